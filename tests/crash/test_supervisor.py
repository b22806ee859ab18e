"""`holdfast serve`: real workers, real signals, effects counted by an outside observer."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path

import pytest

from holdfast.worker.supervisor import DELAY_SECONDS_MAX, exit_reason, next_delay
from tests.helpers.processes import (
    Observer,
    Process,
    SeenStore,
    eventually,
    is_alive,
    seen,
    spawned,
)

AGENT = (
    Observer.CODE
    + """
import asyncio, sys
from datetime import timedelta
import holdfast

@holdfast.step
async def first(name: str) -> None:
    report(f"{name} first")

@holdfast.step
async def second(name: str) -> None:
    await held(f"{name}-gate")
    report(f"{name} second")

@holdfast.step
async def third(name: str) -> int:
    report(f"{name} third")
    return 3

@holdfast.workflow
async def job(name: str) -> int:
    await first(name)
    await second(name)
    return await third(name)

@holdfast.step
def stuck(name: str) -> None:
    import threading
    report(f"{name} stuck")
    threading.Event().wait()

@holdfast.workflow
async def hopeless(name: str) -> None:
    await asyncio.to_thread(stuck, name)

# A lease that outlasts the tests: no disk that stalls ends it.
options = holdfast.WorkerOptions(lease=timedelta(minutes=10))
app = holdfast.Holdfast(STORE_URL, workflows=[job, hopeless], worker_options=options)
"""
)

ONCE = {"{} first": 1, "{} second": 1, "{} third": 1}
PATIENT = ("--grace", "300")
"""For steps that are held until the test lets them go."""


class Site:
    """A directory with a user's module, its store, and an observer of effects."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.observer = Observer(folder)
        self.write_agent()

    def write_agent(self) -> None:
        (self.folder / "agent.py").write_text(f"STORE_URL = {self.url!r}\n{AGENT}", "utf-8")

    def serve(self, workers: int, *options: str):
        return spawned("serve", "agent:app", "--workers", str(workers), *options, cwd=self.folder)

    def work(self, *options: str):
        return spawned("worker", "agent:app", *options, cwd=self.folder)

    def start_held(self, store: SeenStore, name: str) -> int:
        """Starts a job whose second step waits at a gate; the pid of the worker that has it."""
        self.observer.close_gate(f"{name}-gate")
        store.start("job", name)
        return self.observer.await_arrival(f"{name}-gate")

    def finish(self, store: SeenStore, *names: str) -> None:
        for name in names:
            self.observer.open_gate(f"{name}-gate")
        for name in names:
            store.await_status(name, "completed")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.full)])
def kind(request):
    return request.param


@pytest.fixture
def site(tmp_path, url):
    return Site(tmp_path, url)


def await_told(supervisor: Process, workers: Iterable[int]) -> None:
    """Each of these workers knows that it is to leave, and begins no step any more."""

    def told() -> bool:
        lines = [line for line in supervisor.output.splitlines() if "handing the runs back" in line]
        return all(any(f" {pid} INFO " in line for line in lines) for pid in workers)

    eventually(told, f"the workers {sorted(workers)} hand their runs back")


def once(*names: str) -> dict[str, int]:
    return {effect.format(name): count for name in names for effect, count in ONCE.items()}


def test_a_killed_workers_run_goes_on_on_the_other_and_it_is_replaced(site):
    with site.serve(2) as supervisor, seen(site.url) as store:
        before = store.await_workers(2)
        victim = site.start_held(store, "a")
        assert victim in before
        os.kill(victim, signal.SIGKILL)
        heir = site.observer.await_arrival("a-gate", count=2)
        site.finish(store, "a")
        # The second step had had no effect when its worker died; the first is not repeated.
        assert heir != victim
        assert site.observer.effects() == once("a")
        assert store.await_workers(2, without={victim}) > before - {victim}
        supervisor.wait_for_text(f"worker process {victim} died by SIGKILL")
        supervisor.send(signal.SIGTERM)
        assert supervisor.wait() == 0


def test_a_single_workers_replacement_frees_and_continues_its_run(site):
    with site.serve(1) as supervisor, seen(site.url) as store:
        (victim,) = store.await_workers(1)
        assert site.start_held(store, "a") == victim
        os.kill(victim, signal.SIGKILL)
        heir = site.observer.await_arrival("a-gate", count=2)
        assert store.await_workers(1, without={victim}) == {heir}
        site.finish(store, "a")
        assert site.observer.effects() == once("a")
        assert store.registered() == {heir}
        supervisor.send(signal.SIGTERM)
        assert supervisor.wait() == 0


def test_sigterm_lets_running_steps_end_and_hands_runs_back(site):
    with site.serve(2, *PATIENT) as supervisor, seen(site.url) as store:
        workers = store.await_workers(2)
        owner = site.start_held(store, "a")
        supervisor.send(signal.SIGTERM)
        await_told(supervisor, workers)
        # The idle worker has left; the other one waits for its step.
        eventually(lambda: store.registered() == {owner}, "the idle worker leaves")
        site.observer.open_gate("a-gate")
        assert supervisor.wait() == 0
        assert store.registered() == set() and not any(map(is_alive, workers))
        # Nothing was begun after the signal, and no attempt is counted.
        assert store.status("a") == "pending" and store.row("a").strikes == 0
        assert site.observer.effects() == {"a first": 1, "a second": 1}
    with site.serve(1), seen(site.url) as store:
        store.await_status("a", "completed")
    assert site.observer.effects() == once("a")


def test_a_step_that_outlives_the_grace_time_is_handed_back(site):
    with site.work("--grace", "0.2") as worker, seen(site.url) as store:
        site.start_held(store, "a")
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
        assert store.status("a") == "pending" and store.registered() == set()
        assert store.row("a").strikes == 0
    with site.serve(1), seen(site.url) as store:
        site.observer.await_arrival("a-gate", count=2)
        site.finish(store, "a")
    assert site.observer.effects() == once("a")


def test_a_thread_that_never_ends_does_not_keep_the_worker(site):
    with site.work("--grace", "0.2") as worker, seen(site.url) as store:
        store.start("hopeless", "h")
        eventually(lambda: site.observer.effects()["h stuck"], "the step runs in its thread")
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
        assert store.status("h") == "pending"


def test_a_worker_takes_a_second_sigterm_for_at_once(site):
    with site.work(*PATIENT) as worker, seen(site.url) as store:
        site.start_held(store, "a")
        worker.send(signal.SIGTERM)
        worker.wait_for_text("handing the runs back")
        worker.send(signal.SIGTERM)
        assert worker.wait() == -signal.SIGTERM
        assert store.status("a") == "running"
    with site.serve(1), seen(site.url) as store:
        site.observer.await_arrival("a-gate", count=2)
        site.finish(store, "a")
    assert site.observer.effects() == once("a")


def test_sigterm_sent_to_all_processes_at_once_still_hands_back(site):
    """As service managers do it: the workers get one of their own besides their supervisor's."""
    with site.serve(2, *PATIENT) as supervisor, seen(site.url) as store:
        workers = store.await_workers(2)
        site.start_held(store, "a")
        for pid in workers:
            os.kill(pid, signal.SIGTERM)
        supervisor.send(signal.SIGTERM)
        supervisor.wait_for_text("hand their runs back")
        await_told(supervisor, workers)
        site.observer.open_gate("a-gate")
        assert supervisor.wait() == 0
        assert store.status("a") == "pending" and store.row("a").strikes == 0
        assert site.observer.effects() == {"a first": 1, "a second": 1}


def test_a_second_signal_kills_the_workers(site):
    with site.serve(1, *PATIENT) as supervisor, seen(site.url) as store:
        owner = site.start_held(store, "a")
        supervisor.send(signal.SIGINT)
        supervisor.wait_for_text("hand their runs back")
        supervisor.send(signal.SIGINT)
        assert supervisor.wait() == 0
        assert not is_alive(owner) and store.status("a") == "running"


def test_workers_leave_when_their_supervisor_is_killed(site):
    with site.serve(2, *PATIENT) as supervisor, seen(site.url) as store:
        workers = store.await_workers(2)
        site.start_held(store, "a")
        supervisor.send(signal.SIGKILL)
        assert supervisor.wait() == -signal.SIGKILL
        await_told(supervisor, workers)
        site.observer.open_gate("a-gate")
        eventually(lambda: not any(map(is_alive, workers)), "the workers leave")
        assert store.registered() == set()
        assert store.status("a") == "pending" and store.row("a").strikes == 0
        assert site.observer.effects() == {"a first": 1, "a second": 1}


def test_two_supervisors_on_one_file_take_over_from_each_other(site):
    names = [f"job-{n}" for n in range(4)]
    with site.serve(1) as one, site.serve(1) as two, seen(site.url) as store:
        store.await_workers(2)
        for each in (one, two):
            each.wait_for_text("started")  # perhaps a moment after the worker is there
        owners = {name: site.start_held(store, name) for name in names}
        victim = owners[names[0]]
        # Its own supervisor is stopped, so only the other one's worker can take over.
        mine, other = (one, two) if f"{victim} started" in one.output else (two, one)
        mine.send(signal.SIGSTOP)
        os.kill(victim, signal.SIGKILL)
        for name in names:
            if owners[name] == victim:
                heir = site.observer.await_arrival(f"{name}-gate", count=2)
                assert f"worker process {heir} started" in other.output
        mine.send(signal.SIGCONT)
        store.await_workers(2, without={victim})
        site.finish(store, *names)
        assert site.observer.effects() == once(*names)
        for each in (one, two):
            each.send(signal.SIGTERM)
            assert each.wait() == 0
        assert store.registered() == set()


def test_a_worker_that_left_by_itself_is_replaced(site):
    with site.serve(1) as supervisor, seen(site.url) as store:
        (first,) = store.await_workers(1)
        os.kill(first, signal.SIGTERM)
        store.await_workers(1, without={first})
        supervisor.wait_for_text(f"worker process {first} exited with 0")


def test_a_deployment_that_breaks_later_does_not_end_the_supervisor(site):
    with site.serve(1) as supervisor, seen(site.url) as store:
        (first,) = store.await_workers(1)
        (site.folder / "agent.py").write_text("syntax error here")
        os.kill(first, signal.SIGKILL)
        supervisor.wait_for_text("exited with 78")
        site.write_agent()
        store.await_workers(1, without={first})


def test_the_first_death_is_answered_at_once_and_later_ones_ever_later():
    delays = [next_delay(deaths) for deaths in range(1, 2000)]
    assert delays[:4] == [0.0, 0.5, 1.0, 2.0]
    assert delays == sorted(delays) and delays[-1] == DELAY_SECONDS_MAX


def test_the_reason_of_an_exit_is_named():
    assert exit_reason(0) == "exited with 0"
    assert exit_reason(-signal.SIGKILL) == "died by SIGKILL"
    assert exit_reason(-200) == "died by signal 200"
