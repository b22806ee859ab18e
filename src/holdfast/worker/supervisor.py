"""Keeps a number of worker processes running.

A worker that dies is replaced: at once the first time, then with growing delays for as long as its
successors die young. The supervisor does not touch runs: living workers take over those of a dead
one by themselves, and a replacement frees them when it starts.

Workers are told to leave by closing a pipe, which the kernel also does when the supervisor is
killed. It is not done by SIGTERM, because service managers send that to the whole group: a worker
would take the supervisor's for the second one, which means "at once". For the same reason each
worker has a session of its own, which an interrupt from the keyboard does not reach.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from datetime import timedelta

from holdfast.errors import Unsupported
from holdfast.worker.process import seeded

log = logging.getLogger("holdfast")

NOT_STARTED = 78
"""The exit code of a worker that cannot start as it was told to (EX_CONFIG of sysexits.h)."""

SETTLED_SECONDS = 60.0
"""A worker that lived for so long was sound; the next death is a first one again."""

DELAY_SECONDS_MAX = 10.0
MARGIN_SECONDS = 5.0
"""Beyond the grace time, for writing down what was done in it."""

SUPERVISOR_OPTION = "--supervisor-fd"


def next_delay(deaths: int) -> float:
    """Seconds to wait after this many deaths in a row, each of them young."""
    if deaths <= 1:
        return 0.0
    return min(DELAY_SECONDS_MAX, 0.5 * 2.0 ** min(deaths - 2, 10))


def exit_reason(code: int) -> str:
    if code >= 0:
        return f"exited with {code}"
    try:
        return f"died by {signal.Signals(-code).name}"
    except ValueError:
        return f"died by signal {-code}"


class Supervisor:
    """Runs `python -m holdfast worker ARGUMENTS` several times over."""

    def __init__(self, arguments: Sequence[str], *, workers: int, grace: timedelta) -> None:
        assert workers > 0
        self._arguments = list(arguments)
        self._workers = workers
        self._grace = grace
        self._stop = asyncio.Event()
        self._children: set[asyncio.subprocess.Process] = set()
        self._proven = False  # some worker got as far as to fail for another reason
        self._failed = False
        self._pipe: tuple[int, int] = (-1, -1)

    async def run(self) -> int:
        """Returns the exit code: 0 after SIGTERM, 1 if the workers cannot start at all."""
        if sys.platform == "win32":
            raise Unsupported(
                "`holdfast serve` needs signals and pipes that Windows does not have; "
                "start `holdfast worker` there, once for each worker"
            )
        self._pipe = os.pipe()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._signalled, number)
        seats = [asyncio.create_task(self._keep()) for _ in range(self._workers)]
        try:
            await self._stop.wait()
        finally:
            self._stop.set()
            os.close(self._pipe[1])
            await self._end(seats)
            os.close(self._pipe[0])
        return 1 if self._failed else 0

    def _signalled(self, number: signal.Signals) -> None:
        if self._stop.is_set():
            log.warning("%s again: the workers are killed", number.name)
            self._kill()
        else:
            log.info("%s: the workers hand their runs back", number.name)
            self._stop.set()

    async def _end(self, seats: Sequence[asyncio.Task[None]]) -> None:
        seconds = self._grace.total_seconds() + MARGIN_SECONDS
        _, late = await asyncio.wait(seats, timeout=seconds)
        if late:
            log.warning("%d workers did not leave in %.0f s and are killed", len(late), seconds)
            self._kill()
            await asyncio.wait(late)
        for seat in seats:
            seat.result()

    def _kill(self) -> None:
        for child in self._children:
            try:
                child.kill()
            except ProcessLookupError:
                continue

    async def _keep(self) -> None:
        """Keeps one place filled."""
        deaths = 0
        while not self._stop.is_set():
            began = time.monotonic()
            child = await self._start()
            code = await child.wait()
            self._children.discard(child)
            lived = time.monotonic() - began
            if self._stop.is_set():
                log.info("worker process %d %s", child.pid, exit_reason(code))
                return
            if code == NOT_STARTED and not self._proven:
                self._failed = True
                self._stop.set()
                return
            self._proven = True
            deaths = 1 if lived >= SETTLED_SECONDS else deaths + 1
            await self._rest(child.pid, code, lived, next_delay(deaths))

    async def _start(self) -> asyncio.subprocess.Process:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # the current directory is put on the path later, behind Holdfast itself
            "-m",
            "holdfast",
            "worker",
            *self._arguments,
            SUPERVISOR_OPTION,
            str(self._pipe[0]),
            stdin=asyncio.subprocess.DEVNULL,
            env=seeded(os.environ),
            pass_fds=[self._pipe[0]],
            start_new_session=True,
        )
        self._children.add(child)
        log.info("worker process %d started", child.pid)
        return child

    async def _rest(self, pid: int, code: int, lived: float, delay: float) -> None:
        then = f"in {delay:.1f} s" if delay else "at once"
        reason = exit_reason(code)
        log.warning(
            "worker process %d %s after %.1f s; the next starts %s", pid, reason, lived, then
        )
        try:
            await asyncio.wait_for(self._stop.wait(), delay)
        except TimeoutError:
            return
