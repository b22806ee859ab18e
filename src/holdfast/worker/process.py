"""One worker in a process of its own.

It leaves on SIGTERM or SIGINT, when its supervisor is gone, or (if asked to) when there is nothing
to do: it claims nothing more, lets running steps end within the grace time, and hands the rest
back. A second signal ends the process at once, as if it had crashed; others take its runs over.
Windows has no such signals: there only an interrupt from the keyboard stops it.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from holdfast.client import Holdfast
from holdfast.clock import Micros, to_micros
from holdfast.errors import BadArguments, Unsupported

log = logging.getLogger("holdfast")

LEAVE_SECONDS_MAX = 2.0
"""How long, after all runs were handed back, the process waits for its own threads to end."""

COLLECT_AFTER_OBJECTS = 5000
"""Python's own 700 are for programs with less in memory: each commit of many runs exceeds them,
although hardly anything a run leaves behind needs the collector."""

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOptions:
    grace: timedelta | None = None  # None: as the app says
    until_idle: bool = False  # leave when nothing can be done
    wait_timers: timedelta = timedelta(0)  # what falls due within this time is waited for
    supervisor: int | None = None  # a pipe's read end: closed when the supervisor is gone
    uvloop: bool = False


def serve(app: Holdfast, options: ProcessOptions) -> None:
    """Executes the app's runs until it is told to leave."""
    if not app.workflows:
        raise BadArguments("the app lists no workflows: Holdfast(..., workflows=[...])")
    try:
        with asyncio.Runner(loop_factory=_loop_factory(options)) as runner:
            runner.run(_serve(app, options))
            _leave_soon()
    except KeyboardInterrupt:
        log.info("interrupted")  # only where there are no signal handlers; the runs are back


async def _serve(app: Holdfast, options: ProcessOptions) -> None:
    leave = asyncio.Event()
    _leave_on_signals(leave)
    if options.supervisor is not None:
        _leave_with_supervisor(leave, options.supervisor)
    await app.open(worker=True)
    worker = app.worker
    assert worker is not None
    calm_collector()
    if options.until_idle:
        worker.on_looked = _idle_check(app, leave, to_micros(options.wait_timers))
    log.info("worker %s serves %s", worker.id, ", ".join(sorted(app.workflows)))
    try:
        await leave.wait()
    finally:
        await app.close(grace=options.grace)
    log.info("worker %s has left", worker.id)


def calm_collector() -> None:
    """Lets the garbage collector look less often, and never again at what is loaded by now."""
    gc.collect()
    gc.freeze()
    first, *others = gc.get_threshold()
    if first:  # otherwise somebody has switched it off
        gc.set_threshold(max(first, COLLECT_AFTER_OBJECTS), *others)


def _idle_check(
    app: Holdfast, leave: asyncio.Event, wait: Micros
) -> Callable[[Micros | None], None]:
    def looked(next_at: Micros | None) -> None:
        assert app.worker is not None
        nothing_due = next_at is None or next_at > app.clock.now() + wait
        if nothing_due and not app.worker.runs:
            leave.set()

    return looked


def _leave_on_signals(leave: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def told(number: signal.Signals) -> None:
        # The next one is the kernel's to carry out, also when the event loop is blocked. That is so
        # before anybody hears of the first: whoever sends a second must not find it swallowed.
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)
        log.info("%s: handing the runs back", number.name)
        leave.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, told, number)
        except NotImplementedError:
            return


def _leave_with_supervisor(leave: asyncio.Event, fd: int) -> None:
    loop = asyncio.get_running_loop()
    os.set_inheritable(fd, False)

    def closed() -> None:
        # Nobody ever writes into the pipe: being readable means that it was closed.
        loop.remove_reader(fd)
        log.info("the supervisor asks to leave, or is gone: handing the runs back")
        leave.set()

    loop.add_reader(fd, closed)


def _leave_soon() -> None:
    """A step's thread that nobody can stop must not keep the process: its run is handed back."""
    timer = threading.Timer(LEAVE_SECONDS_MAX, os._exit, (0,))
    timer.daemon = True
    timer.start()


def _loop_factory(options: ProcessOptions) -> LoopFactory | None:
    if not options.uvloop:
        return None
    try:
        import uvloop
    except ImportError:
        raise Unsupported("uvloop is not installed: pip install 'holdfast[uvloop]'") from None
    return uvloop.new_event_loop


def fix_hash_seed() -> None:
    """Starts this process's program again with a fixed PYTHONHASHSEED, unless it has one.

    A set iterated in another order after a crash would ask for other steps than were recorded.
    """
    if os.environ.get("PYTHONHASHSEED", "random") != "random":
        return
    command = [sys.executable, *sys.orig_argv[1:]]
    environment = seeded(os.environ)
    if sys.platform == "win32":  # where exec makes a new process and the old one's caller goes on
        sys.exit(subprocess.call(command, env=environment))
    os.execve(sys.executable, command, environment)


def seeded(environment: os._Environ[str]) -> dict[str, str]:
    given = environment.get("PYTHONHASHSEED", "random")
    return {**environment, "PYTHONHASHSEED": "0" if given == "random" else given}
