"""Runs in every state, for a store that is moved; and processes that move it and are killed.

    python -m tests.store.moving_agent live URL              brings runs into every state, and stays
    python -m tests.store.moving_agent move SOURCE TARGET    moves, and is killed again and again
    python -m tests.store.moving_agent alarm SOURCE TARGET   the same, at any moment
    python -m tests.store.moving_agent undo SOURCE TARGET    the same, taking the move back
    python -m tests.store.moving_agent use URL               says what becomes of its writes

Each says on a line of its own when it has got somewhere.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import holdfast
from holdfast import FakeClock, Holdfast, Retry, Status, WorkerOptions, Workflow, store
from holdfast.store import copying
from holdfast.store.base import Start
from holdfast.store.copying import Progress
from holdfast.testing.conformance.given import NOW, new_run
from holdfast.types import MailKind, WorkerRow

FOLDER = "MOVING_FOLDER"
"""Names the directory in which steps report what they do."""


def effect(line: str) -> None:
    path = os.path.join(os.environ[FOLDER], "effects.txt")
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{line}\n".encode())
    os.close(fd)


def is_broken() -> bool:
    return os.path.exists(os.path.join(os.environ[FOLDER], "broken"))


@holdfast.step
async def note(what: str) -> str:
    effect(what)
    return f"<{what}>"


@holdfast.step
async def slow(what: str) -> str:
    effect(f"slow {what}")
    if is_broken():
        print("slow", flush=True)
        await asyncio.Event().wait()
    return f"<slow {what}>"


@holdfast.step(retry=Retry(attempts=1, exhausted="park"))
async def fragile(what: str) -> str:
    effect(f"fragile {what}")
    if is_broken():
        raise ConnectionError("out of order")
    return f"<fragile {what}>"


@holdfast.workflow
async def noted(name: str) -> str:
    return await note(f"{name} 1") + await note(f"{name} 2")


@holdfast.workflow
async def failing(name: str) -> str:
    await note(f"{name} 1")
    raise ValueError("on purpose")


@holdfast.workflow
async def slowly(name: str) -> str:
    return await note(f"{name} 1") + await slow(name) + await note(f"{name} 2")


@holdfast.workflow
async def asking(name: str) -> str:
    first = await note(f"{name} 1")
    return first + str(await holdfast.promise("answer", int)) + await note(f"{name} 2")


@holdfast.workflow
async def sleeping(name: str) -> str:
    first = await note(f"{name} 1")
    await holdfast.sleep(timedelta(hours=1))
    return first + await note(f"{name} 2")


@holdfast.workflow
async def parent(name: str) -> str:
    first = await note(f"{name} 1")
    child = asking.with_options(id=f"{name}'s child")
    return first + await holdfast.child(child, f"{name}'s child") + await note(f"{name} 2")


@holdfast.workflow
async def parking(name: str) -> str:
    return await note(f"{name} 1") + await fragile(name)


@holdfast.workflow
async def hearing(name: str) -> str:
    heard = [await holdfast.receive() for _ in range(3)]
    return await note(f"{name} 1") + f"{heard[0]} {heard[2]}"


@holdfast.workflow
async def turn(name: str, wait: bool) -> list[Any]:
    chat = holdfast.session()
    chat.set("turns", chat.get("turns", 0) + 1)
    chat.append(await note(name))
    if wait:
        await holdfast.promise("answer", int)
    return [chat.get("turns"), *chat.messages]


WORKFLOWS: list[Workflow[Any, Any]] = [
    noted,
    failing,
    slowly,
    asking,
    sleeping,
    parent,
    parking,
    hearing,
    turn,
]


def app_of(url: str, **options: Any) -> Holdfast:
    keep = WorkerOptions(memory_wait=timedelta(0))
    return Holdfast(url, workflows=WORKFLOWS, worker_options=keep, **options)


async def live(url: str) -> None:
    """Its clock is two hours late, so that its timers are due in the store that comes after."""
    app = app_of(url, clock=FakeClock(datetime.now(UTC) - timedelta(hours=2)))
    await app.open()

    async def start(workflow: Any, id: str, *args: Any, **options: Any) -> Any:
        return await app.with_options(id=id, **options).start(workflow, id, *args)

    await (await start(noted, "ended")).result()
    for run in [await start(failing, "failed"), await start(parking, "parked")]:
        try:
            await run.result()
        except holdfast.RunError as error:
            print(type(error).__name__, flush=True)
    await start(asking, "asks")
    await start(asking, "answered early")
    await start(asking, "paused")
    await start(sleeping, "sleeps")
    await start(parent, "has a child")
    await start(hearing, "hears", session="talk")
    await (await start(turn, "turn 1", False, session="chat")).result()
    await start(turn, "turn 2", True, session="chat")
    await start(turn, "turn 3", False, session="chat")
    waiting = ["asks", "answered early", "paused", "sleeps", "has a child", "has a child's child"]
    for id in [*waiting, "hears", "turn 2"]:
        while (await app.row(id)).status is not Status.WAITING:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await app.pause("paused")
    await app.send("hears", "one")
    await app.with_options(id="joins", session="talk", on_busy="join").start(noted, "two")
    await start(slowly, "dies")
    await asyncio.Event().wait()


def killed_at_every_place(what: str, source: str, target: str) -> None:
    """Forks processes that do it, each killed one report later, until one gets to the end."""
    copying.BATCH_ROWS = 3
    chance = random.Random(what)
    for place in range(1, 1000):
        pid = os.fork()
        if pid == 0:
            if what == "alarm":  # the kernel ends the process, wherever it is
                # Ever later, so that a slow machine gets there in time, too.
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.03, 0.05 * 1.1**place))
            asyncio.run(_until(what, source, target, place))
            os._exit(0)
        chance.random()
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGKILL, signal.SIGALRM):
            print("killed", flush=True)
            sys.stdin.readline()  # somebody looks at the stores meanwhile
        else:
            print("ended", os.WEXITSTATUS(status), flush=True)
            return


async def _until(what: str, source: str, target: str, place: int) -> None:
    reports = 0

    def report(progress: Progress) -> None:
        nonlocal reports
        reports += 1
        if reports == place and what != "alarm":
            os.kill(os.getpid(), signal.SIGKILL)

    if what == "undo":
        await store.undo_move(source, target, report)
    else:
        await store.move(source, target, report)


async def use(url: str) -> None:
    """Has a store open, with mail for a run of it, and goes on using it when told to."""
    used = store.open_store(url)
    await used.open()
    await used.post("pending", MailKind.MESSAGE, "", b"from afar", NOW)
    print("open", flush=True)
    while sys.stdin.readline():
        for write in (
            used.post("pending", MailKind.MESSAGE, "", b"more", NOW),
            used.commit([Start(new_run("from afar"))]),
            used.register(WorkerRow("from afar", "", 0, "", NOW, 60.0)),
        ):
            try:
                await write
            except holdfast.HoldfastError as error:
                print(type(error).__name__, error, flush=True)
            else:
                print("done", flush=True)


if __name__ == "__main__":
    if sys.argv[1] in ("live", "use"):
        asyncio.run({"live": live, "use": use}[sys.argv[1]](sys.argv[2]))
    else:
        killed_at_every_place(*sys.argv[1:])
