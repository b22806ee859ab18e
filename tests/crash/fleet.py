"""Worker processes to kill, and an observer outside of them who counts what they really did.

Every effect of a step is a line sent to the observer, who answers it. As long as an answer is held
back, the step that asked stays where it is: so a test can kill at a place it has chosen, and waits
for what it sees and never for time to pass.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import IO, Any

from tests.helpers.processes import ROOT, environment

SECONDS_MAX = 120.0


class Effect:
    """One execution of a step's effect, as the observer saw it."""

    def __init__(self, line: dict[str, Any]) -> None:
        self.run: str = line["run"]
        self.name: str = line["name"]
        self.key: str = line["key"]  # the idempotency key
        self.pid: int = line["pid"]
        self.epoch: int = line["epoch"]  # under which it was executed
        self.began: float = line["began"]  # on the machine's steady clock; 0: not in a step
        self.token: str = line["token"]  # of this execution, never used twice
        self.seen = time.monotonic()
        self._answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def __repr__(self) -> str:
        return f"<{self.name} of {self.run} in {self.pid}>"

    @property
    def waits(self) -> bool:
        return not self._answer.done()

    def let_go(self, answer: str = "go on") -> None:
        if not self._answer.done():
            self._answer.set_result(answer)

    async def answered(self) -> str:
        return await self._answer


class Observer:
    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.holds: Callable[[Effect], bool] = lambda effect: False
        self._changed = asyncio.Condition()
        self._folder = tempfile.TemporaryDirectory(prefix="hf-")  # a socket's path must be short
        self.path = f"{self._folder.name}/observer"
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Observer:
        self._server = await asyncio.start_unix_server(self._serve, self.path)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        self.let_all_go()
        self._folder.cleanup()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            effect = Effect(json.loads(await reader.readline()))
            self.effects.append(effect)
            if not self.holds(effect):
                effect.let_go()
            async with self._changed:
                self._changed.notify_all()
            writer.write((await effect.answered() + "\n").encode())
            await writer.drain()
        except (OSError, ValueError):
            pass  # whoever asked was killed
        finally:
            writer.close()

    def let_all_go(self) -> None:
        self.holds = lambda effect: False
        for effect in self.effects:
            effect.let_go()

    async def until(self, seen: Callable[[], Any], what: str) -> Any:
        """The first true value of `seen`, asked after each effect. It may take any time, as long as
        there are effects."""
        async with self._changed:
            try:
                while not (found := seen()):
                    async with asyncio.timeout(SECONDS_MAX):
                        await self._changed.wait()
            except (asyncio.CancelledError, TimeoutError):
                print(f"waited in vain for {what}; seen so far: {self.effects}")
                raise
        return found

    async def sees(self, name: str, *, run: str = "", pid: int = 0, count: int = 1) -> Effect:
        """The effect of this name (of this run, in this process), once it has come."""

        def seen() -> Effect | None:
            found = [
                effect
                for effect in self.effects
                if effect.name == name and run in ("", effect.run) and pid in (0, effect.pid)
            ]
            return found[count - 1] if len(found) >= count else None

        effect: Effect = await self.until(seen, f"{count} x {name} {run} {pid or ''}")
        return effect

    def names(self, *, run: str = "", pid: int = 0) -> list[str]:
        return [e.name for e in self.effects if run in ("", e.run) and pid in (0, e.pid)]


class Process:
    """One worker process of tests/crash/agent.py."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid
        self.said: list[str] = []
        self.children: list[int] = []
        self._changed = asyncio.Condition()
        self._readers = [
            asyncio.create_task(self._read(stream)) for stream in (process.stdout, process.stderr)
        ]

    async def _read(self, pipe: IO[bytes] | None) -> None:
        stream = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), pipe
        )
        async for line in stream:
            text = line.decode(errors="replace").rstrip()
            if text.startswith("child "):
                self.children.append(int(text.split()[1]))
            async with self._changed:
                self.said.append(text)
                self._changed.notify_all()
        transport.close()

    async def says(self, text: str, *, count: int = 1) -> str:
        """The first line with this text in it, or that of this count."""
        async with asyncio.timeout(SECONDS_MAX), self._changed:
            try:
                while len(found := [line for line in self.said if text in line]) < count:
                    await self._changed.wait()
            except asyncio.CancelledError:
                print(f"process {self.pid} did not say {text!r}, but:", *self.said, sep="\n  ")
                raise
        return found[count - 1]

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ended(self) -> int:
        """The exit code. Its children may live on, and keep its output open."""
        return await asyncio.to_thread(self._process.wait, SECONDS_MAX)

    async def kill(self) -> None:
        self.send(signal.SIGKILL)
        await self.ended()

    async def close(self) -> None:
        await self.kill()
        for child in self.children:
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                pass
        await asyncio.gather(*self._readers)
        assert self._process.stdin is not None
        self._process.stdin.close()


@contextmanager
def nobody_writes(url: str) -> Iterator[None]:
    """Meanwhile no process is inside a transaction on a file. A server ends those by itself."""
    path = url.removeprefix("sqlite:///")
    if path == url:
        yield
        return
    with closing(sqlite3.connect(path, timeout=SECONDS_MAX, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("ROLLBACK")


class Fleet:
    """Worker processes on one store; ends them all when it is left.

    `within`: a command that starts them, in a network of their own for example."""

    def __init__(self, url: str, observer: Observer, within: Sequence[str] = ()) -> None:
        self.url = url
        self._within = within
        self._observer = observer
        self.all: list[Process] = []

    async def __aenter__(self) -> Fleet:
        return self

    async def __aexit__(self, *exc: object) -> None:
        for process in self.all:
            if exc[0] is not None:
                print(f"--- {process.pid} said:", *process.said, sep="\n")
            await process.close()

    async def add(self, **options: object) -> Process:
        """A worker that is registered and serves; for the options see agent.py."""
        process = self.begin(**options)
        await process.says("serving")
        return process

    async def stop(self, process: Process) -> None:
        """SIGSTOP, while it has no transaction open: in one it would block the others, who end it
        for that. Its lease is renewed in one every few seconds."""

        def stop() -> None:
            with nobody_writes(self.url):
                process.send(signal.SIGSTOP)
                os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)

        await asyncio.to_thread(stop)

    def begin(self, **options: object) -> Process:
        """The same, without waiting for it."""
        command = [sys.executable, "-m", "tests.crash.agent", self.url, self._observer.path]
        process = Process(
            subprocess.Popen(
                [*self._within, *command, json.dumps(options)],
                cwd=ROOT,
                env=environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )
        self.all.append(process)
        return process
