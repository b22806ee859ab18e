"""Steps: what is recorded is not executed again, and what does not fit the record is refused."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast import Status
from holdfast.testing import Environment, crash_everywhere
from holdfast.types import Kind

HALF_A_DAY = timedelta(hours=12)


@holdfast.step
async def double(number: int) -> int:
    return 2 * number


@holdfast.step
def halve(number: int) -> int:
    return number // 2


async def test_async_and_sync_steps_return_their_results_and_are_recorded_once() -> None:
    @holdfast.workflow
    async def both(number: int) -> int:
        return await double(await asyncio.to_thread(halve, number))

    report = await crash_everywhere(both, 20)
    assert report.result == 20
    assert dict(report.steps) == {"/halve#0": 1, "/double#0": 1}


async def test_a_tool_of_three_steps_that_dies_after_the_second_goes_on_at_the_third() -> None:
    third = asyncio.Event()

    @holdfast.step
    async def call(number: int) -> int:
        if number == 2 and not third.is_set():
            third.set()
            await asyncio.Event().wait()
        return number

    @holdfast.step
    async def tool() -> int:
        return sum([await call(0), await call(1), await call(2)])

    @holdfast.workflow
    async def use_tool() -> int:
        return await tool()

    async with Environment([use_tool]) as env:
        run = await env.start(use_tool)
        await third.wait()
        await env.crash()
        assert await env.result(run) == 3
    calls = [key.rpartition("/")[2] for key in env.started]
    assert calls == ["tool#0", "call#0", "call#1", "call#2", "tool#0", "call#2"]


async def test_outside_of_a_run_a_step_is_the_plain_function() -> None:
    assert await double(4) == 8
    assert halve(4) == 2  # even on the event loop: there is no run to be harmed
    assert inspect.iscoroutinefunction(double.__wrapped__)  # type: ignore[attr-defined]
    assert inspect.signature(double) == inspect.signature(double.__wrapped__)  # type: ignore[attr-defined]


async def test_a_step_in_a_bare_thread_is_refused_where_runs_are_executed() -> None:
    outcome: list[BaseException] = []

    def lost() -> None:
        try:
            halve(2)
        except BaseException as error:
            outcome.append(error)

    @holdfast.workflow
    async def forgets_the_context() -> None:
        thread = threading.Thread(target=lost, name="mine")
        thread.start()
        thread.join()

    async with Environment([forgets_the_context]) as env:
        await env.result(await env.start(forgets_the_context))
    assert isinstance(outcome[0], holdfast.NotInRun)
    assert "'mine'" in str(outcome[0]) and "asyncio.to_thread" in str(outcome[0])


async def test_a_bare_thread_with_a_copy_of_the_context_belongs_to_the_run() -> None:
    @holdfast.workflow
    async def brings_the_context(number: int) -> int:
        found: list[int] = []
        context = contextvars.copy_context()
        work = asyncio.get_running_loop().run_in_executor(
            None, lambda: found.append(context.run(halve, number))
        )
        await work
        return found[0]

    async with Environment([brings_the_context]) as env:
        assert await env.result(await env.start(brings_the_context, 8)) == 4
    assert [key.rpartition("/")[2] for key in env.started] == ["halve#0"]


async def test_a_sync_step_on_the_event_loop_is_refused_with_the_cure() -> None:
    @holdfast.workflow
    async def blocks() -> int:
        return halve(4)

    async with Environment([blocks]) as env:
        with pytest.raises(holdfast.RunFailed, match=r"asyncio\.to_thread") as failed:
            await env.result(await env.start(blocks))
    assert isinstance(failed.value.__cause__, holdfast.StepOnEventLoop)


class Mailer:
    def __init__(self, sender: str) -> None:
        self.sender = sender

    @holdfast.step
    async def send(self, to: str) -> str:
        return f"{self.sender} to {to}"


async def test_a_method_can_be_a_step_and_its_self_is_not_journaled() -> None:
    @holdfast.workflow
    async def mails(to: str) -> str:
        return await Mailer("me").send(to)

    async with Environment([mails]) as env:
        run = await env.start(mails, "you")
        assert await env.result(run) == "me to you"
        (entry,) = [e for e in await run.history() if e.kind is Kind.STEP]
    assert entry.key == "/send#0"
    assert b"you" in (entry.input or b"") and b"me" not in (entry.input or b"")


async def test_excluded_parameters_and_unjournaled_inputs_leave_no_trace() -> None:
    @holdfast.step(exclude=["client"])
    async def ask(client: object, question: str) -> str:
        return question

    @holdfast.step(journal_input=False)
    async def whisper(secret: str) -> int:
        return len(secret)

    @holdfast.workflow
    async def talk() -> None:
        await ask(object(), "why?")
        await whisper("hush")

    async with Environment([talk]) as env:
        run = await env.start(talk)
        await env.result(run)
        asked, whispered = [e for e in await run.history() if e.kind is Kind.STEP]
    assert asked.input is not None and b"why?" in asked.input
    assert whispered.input is None and whispered.digest is not None


async def test_the_idempotency_key_is_the_same_in_every_try_and_after_a_crash() -> None:
    keys: dict[str, list[str]] = {}
    reached = asyncio.Event()

    @holdfast.step(retry=holdfast.Retry(attempts=3))
    async def charge(name: str) -> None:
        tries = keys.setdefault(name, [])
        tries.append(holdfast.idempotency_key())
        if len(tries) == 1:
            raise ConnectionError("try again")
        if len(tries) == 2:
            reached.set()
            await asyncio.Event().wait()

    @holdfast.workflow
    async def charges(name: str) -> None:
        await charge(name)

    async with Environment([charges]) as env:
        run = await env.start(charges, "a")
        await env.settle()
        env.clock.advance(timedelta(seconds=2))  # type: ignore[union-attr]
        await reached.wait()
        await env.crash()
        await env.result(run)
        reached.clear()
        other = await env.start(charges, "a")
        await env.result(other)
    assert len(keys["a"]) == 4
    assert len(set(keys["a"][:3])) == 1
    assert keys["a"][3] != keys["a"][0]  # another run, another effect


async def test_the_idempotency_key_belongs_into_a_step() -> None:
    with pytest.raises(holdfast.NotInRun):
        holdfast.idempotency_key()


# Code that changed


class Code:
    """What a workflow does, to be changed while a run of it is under way."""

    steps: list[Any]


@holdfast.workflow
async def follows_the_code() -> str:
    for call in Code.steps:
        await call()
    return "done"


async def halted_after(before: list[Any], after: list[Any]) -> tuple[str, list[str]]:
    """The diff, and what the changed code started, when it changes while the run sleeps."""
    Code.steps = before
    async with Environment([follows_the_code]) as env:
        run = await env.start(follows_the_code)
        await env.settle()
        Code.steps = after
        env.started.clear()
        await env.advance(2 * HALF_A_DAY)
        assert await run.status() is Status.PARKED
        with pytest.raises(holdfast.RunHalted, match="diverged"):
            await run.result()
        return (await env.app.row(run.id)).reason or "", env.started


def sleeps() -> Any:
    return holdfast.sleep(2 * HALF_A_DAY)


async def test_other_arguments_than_recorded_are_refused() -> None:
    diff, started = await halted_after(
        [lambda: double(1), sleeps], [lambda: double(2), sleeps, lambda: double(3)]
    )
    assert "/double#0" in diff and "other arguments" in diff
    assert started == []


async def test_another_step_at_a_recorded_place_is_refused_and_the_diff_names_both() -> None:
    @holdfast.step
    async def triple(number: int) -> int:
        return 3 * number

    diff, started = await halted_after(
        [lambda: double(1), sleeps], [lambda: triple(1), lambda: double(1), sleeps]
    )
    assert "- /double#0" in diff and "+ /triple#0" in diff
    assert started == []


async def test_a_run_that_ends_with_recorded_entries_that_nobody_asked_for_is_refused() -> None:
    diff, started = await halted_after(
        [lambda: double(1), lambda: double(2), sleeps], [lambda: double(1)]
    )
    assert "- /double#1" in diff and "the end of the workflow" in diff
    assert started == []


async def test_a_run_halted_by_changed_code_goes_on_once_the_old_code_is_back() -> None:
    old = [lambda: double(1), sleeps, lambda: double(2)]
    Code.steps = old
    async with Environment([follows_the_code]) as env:
        run = await env.start(follows_the_code)
        await env.settle()
        Code.steps = []
        await env.advance(2 * HALF_A_DAY)
        assert await run.status() is Status.PARKED
        Code.steps = old
        await run.resume()
        assert await env.result(run) == "done"
    assert env.started == ["/double#0", "/double#1"]


async def test_code_added_behind_everything_recorded_is_followed() -> None:
    Code.steps = [lambda: double(1), sleeps]
    async with Environment([follows_the_code]) as env:
        run = await env.start(follows_the_code)
        await env.settle()
        Code.steps = [*Code.steps, lambda: double(2)]
        assert await env.result(run) == "done"
    assert env.started == ["/double#0", "/double#1"]


# What cannot be recorded


async def test_a_result_that_cannot_be_encoded_fails_the_step_for_good_and_names_it() -> None:
    @holdfast.step
    async def returns_a_lock() -> Any:
        return {"lock": threading.Lock()}

    @holdfast.workflow
    async def locks() -> None:
        await returns_a_lock()

    async with Environment([locks]) as env:
        with pytest.raises(holdfast.RunFailed) as failed:
            await env.result(await env.start(locks))
    assert isinstance(failed.value.__cause__, holdfast.NotEncodable)
    assert "/returns_a_lock#0" in str(failed.value.__cause__)
    assert env.started == ["/returns_a_lock#0"]


async def test_an_argument_that_cannot_be_encoded_fails_before_the_step_begins() -> None:
    @holdfast.step
    async def takes(what: Any) -> None:
        return None

    @holdfast.workflow
    async def passes_a_lock() -> None:
        await takes(threading.Lock())

    async with Environment([passes_a_lock]) as env:
        with pytest.raises(holdfast.RunFailed, match="/takes#0"):
            await env.result(await env.start(passes_a_lock))
    assert env.started == []


async def test_a_recorded_error_is_raised_again_on_replay() -> None:
    @holdfast.step
    async def fails() -> None:
        raise ValueError("no good")

    @holdfast.workflow
    async def catches() -> str:
        try:
            await fails()
        except ValueError as error:
            return f"caught {error} {await double(1)}"
        return "nothing"

    report = await crash_everywhere(catches)
    assert report.result == "caught no good 2"


@holdfast.step
async def one_moment(what: str) -> str:
    await asyncio.sleep(0)
    return what


@holdfast.workflow
async def names_calls_elsewhere() -> list[str]:
    here = contextvars.copy_context()

    async def aside() -> list[str]:
        return [await here.run(one_moment, "named outside"), await one_moment("named inside")]

    return await asyncio.create_task(aside())


async def test_a_call_that_is_named_in_another_scope_does_not_move_its_caller_there() -> None:
    async with Environment([names_calls_elsewhere]) as env:
        run = await env.start(names_calls_elsewhere)
        await run.result()
        keys = [e.key for e in await run.history() if e.kind is Kind.STEP]
    assert keys[0] == "/one_moment#0"
    assert "aside@0" in keys[1]
    await crash_everywhere(names_calls_elsewhere)
