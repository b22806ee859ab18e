"""Processes for tests to start and kill: `python children.py <what> <store> …`.

Each says on a line of its own when it has got somewhere, so that nobody has to sleep.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from holdfast.errors import StoreError
from holdfast.store import open_store
from holdfast.store.base import Start, Started, Store
from holdfast.store.sqlite import SQLiteStore
from holdfast.testing.conformance.given import (
    NOW,
    append,
    claim_ids,
    do,
    new_run,
    started_and_claimed,
    step,
    worker,
)
from holdfast.types import MailKind


def say(*words: object) -> None:
    print(*words, flush=True)


async def opened(url: str) -> Store:
    store = open_store(url)
    await store.open()
    return store


async def commit_forever(path: str, name: str) -> None:
    """Starts runs and appends three entries to each in one batch; says what was acknowledged."""
    store = await opened(path)
    await worker(store, name)
    for n in range(1_000_000):
        runs = [await started_and_claimed(store, f"{name}-{n}-{m}", by=name) for m in range(2)]
        await store.commit([append(run, step(2), step(3), step(4)) for run in runs])
        say(*(run.id for run in runs))


async def claim_everything(path: str, name: str) -> None:
    """Claims one run after the other until there are none."""
    store = await opened(path)
    await worker(store, name)
    say("ready")
    sys.stdin.readline()
    mine = []
    while ids := await claim_ids(store, name, limit=1):
        mine += ids
    say(*mine)


async def start_run(path: str, id: str) -> None:
    store = await opened(path)
    (outcome,) = await store.commit([Start(new_run(id))])
    assert isinstance(outcome, Started)
    say(outcome.created)
    await store.close()


async def post_when_told(path: str, run: str) -> None:
    store = await opened(path)
    say("ready")
    sys.stdin.readline()
    await store.post(run, MailKind.MESSAGE, "", b"from afar", NOW)
    say("posted")
    await store.close()


async def live(path: str, name: str, lease: str = "3600") -> None:
    """Registers as a worker that owns a run, and lives until it is killed."""
    store = await opened(path)
    await worker(store, name, float(lease))
    await started_and_claimed(store, f"run of {name}", by=name)
    say("registered", os.getpid())
    sys.stdin.readline()


async def live_in_a_ring(path: str, name: str) -> None:
    """Registers, and says who of the others has died, from the moment it is told to watch them."""
    store = await opened(path)
    await worker(store, name)
    say("registered")
    await asyncio.to_thread(sys.stdin.readline)
    for other in await store.workers():
        if other.id != name:
            store.watch(other, partial(say, "gone", other.id))
    say("watching")
    await asyncio.to_thread(sys.stdin.readline)


def paused_process(**options: Any) -> int:
    """Starts a process that does nothing, and says its pid once it is there."""
    command = [sys.executable, "-c", "import signal; print(1, flush=True); signal.pause()"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, **options)
    assert child.stdout is not None
    child.stdout.readline()
    return child.pid


async def live_with_children(path: str, name: str) -> None:
    """The same, with a forked child and one that was handed all open files."""
    store = await opened(path)
    await worker(store, name)
    await started_and_claimed(store, f"run of {name}", by=name)
    reading, writing = os.pipe()
    forked = os.fork()
    if forked == 0:
        os.write(writing, b"!")
        signal.pause()
    os.read(reading, 1)
    say(forked, paused_process(close_fds=False))
    sys.stdin.readline()


async def fork_while_registering(path: str, name: str) -> None:
    """Forks a child that lives on, when it is told to, while the worker's sessions are opened."""
    store = await opened(path)
    say("open")
    await asyncio.to_thread(sys.stdin.readline)
    registering = asyncio.create_task(worker(store, name))
    await asyncio.to_thread(sys.stdin.readline)
    forked = os.fork()
    if forked == 0:
        signal.pause()
    say(forked)
    await registering
    say("registered")
    await asyncio.to_thread(sys.stdin.readline)


async def live_with_an_heir_of_the_lock(path: str, name: str) -> None:
    """A worker whose lock somebody else keeps alive, as a careless subprocess can."""
    store = await opened(path)
    assert isinstance(store, SQLiteStore)
    await worker(store, name)
    lock = store._liveness._own[name]
    assert lock._fd is not None
    say(paused_process(pass_fds=[lock._fd]))
    sys.stdin.readline()


async def stop_inside_a_transaction(path: str, name: str, lease: str) -> None:
    """Registers, takes the write lock and is stopped."""
    store = await opened(path)
    await worker(store, name, float(lease))
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO inbox (run, kind, name, at) VALUES (1, 'message', 'half-done', 1)")
    say("in")
    os.kill(os.getpid(), signal.SIGSTOP)
    db.execute("COMMIT")


async def fork_and_use(path: str) -> None:
    """What a forked child gets from its parent's store, and what the parent has left."""
    store = await opened(path)
    await worker(store)
    run = await started_and_claimed(store, "run")
    pid = os.fork()
    if pid == 0:
        try:
            # The child has no loop of its own to run this on, and none is needed.
            store.commit([append(run, step(2))]).send(None)
        except StoreError as error:
            say("refused:", error)
        except BaseException as error:
            say("wrong:", repr(error))
        del store
        gc.collect()  # closes every connection that is not kept from it
        os._exit(0)
    os.waitpid(pid, 0)  # noqa: ASYNC222
    await do(store, append(run, step(2)))
    say("went on", len(await store.journal(run.key)))
    await store.close()


async def open_read_only(path: str) -> None:
    """Opens the store as somebody who may only read it."""
    await asyncio.to_thread(os.getuid)  # loads what only root may be able to read
    os.setuid(65534)
    try:
        store = await opened(path)
        await store.commit([Start(new_run("run"))])
    except StoreError as error:
        say(type(error).__name__, error)
    else:
        say("it worked")


_KNOWN: list[Callable[..., Coroutine[Any, Any, None]]] = [
    claim_everything,
    commit_forever,
    fork_and_use,
    fork_while_registering,
    live,
    live_in_a_ring,
    live_with_an_heir_of_the_lock,
    live_with_children,
    open_read_only,
    post_when_told,
    start_run,
    stop_inside_a_transaction,
]

if __name__ == "__main__":
    named = {function.__name__: function for function in _KNOWN}
    asyncio.run(named[sys.argv[1]](*sys.argv[2:]))
