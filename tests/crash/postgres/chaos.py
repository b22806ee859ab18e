"""A pair of servers, workers and a client in front of them, and all that can happen to them."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any
from urllib.parse import urlsplit

import holdfast
from holdfast.errors import StoreUnavailable
from holdfast.testing.postgres import PostgresServer
from holdfast.testing.proxy import Proxy, Side
from holdfast.types import WorkerRow
from tests.crash.fleet import Fleet, Observer, Process
from tests.crash.postgres.load import LEASE, Cut, Load, Stop
from tests.store.locks import until


class Door:
    """The way of one process, or of some, to both servers."""

    def __init__(self, pair: Pair) -> None:
        self.proxies = [Proxy(server.port).start() for server in pair.servers]
        parts = urlsplit(pair.servers[0].dsn)
        hosts = ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.proxies)
        self.url = f"postgresql://{parts.username}:{parts.password}@{hosts}{parts.path}"


class Pair:
    """A primary and its synchronous standby; after a failover there is a new standby."""

    def __init__(self, primary: PostgresServer) -> None:
        self.servers = [primary, primary.standby()]
        self._first = 0
        self._doors: list[Door] = []

    def door(self) -> Door:
        made = Door(self)
        self._doors.append(made)
        return made

    def restart(self) -> None:
        self.servers[self._first].kill()
        self.servers[self._first].start()

    def fail_over(self) -> None:
        dead = self._first
        self.servers[dead].kill()
        self._first = 1 - dead
        self.servers[self._first].promote()
        self.servers[dead] = self.servers[self._first].standby()
        for door in self._doors:
            door.proxies[dead].target = self.servers[dead].port

    def close(self) -> None:
        for door in self._doors:
            for proxy in door.proxies:
                proxy.stop()


@contextlib.contextmanager
def pair_of_servers() -> Iterator[Pair]:
    with PostgresServer(fsync=False) as primary:
        pair = Pair(primary)
        try:
            yield pair
        finally:
            pair.close()


class Member:
    """A worker process, and whoever takes its place."""

    def __init__(self, name: str, door: Door, observer: Observer) -> None:
        self.name = name
        self.door = door
        self.fleet = Fleet(door.url, observer)
        self.process: Process | None = None
        self.healthy = True

    @property
    def alive(self) -> Process:
        assert self.process is not None
        return self.process

    async def start(self) -> None:
        self.process = await self.fleet.add(lease=LEASE)


class Chaos:
    """Disturbs what it was given, in an order that the seed decides."""

    def __init__(
        self,
        pair: Pair,
        members: list[Member],
        app: holdfast.Holdfast,
        clients: Door,
        observer: Observer,
        load: Load,
        seed: int,
    ) -> None:
        self._pair, self._members, self._app, self._clients = pair, members, app, clients
        self._observer, self._load = observer, load
        self._random = random.Random(seed)
        self._healing: set[asyncio.Task[None]] = set()
        self._calm = asyncio.Event()
        self._since = time.monotonic()
        self.stops: list[Stop] = []
        self.cuts: list[Cut] = []
        self.done: Counter[str] = Counter()

    async def run(self, rounds: int) -> None:
        """Each kind comes once before any comes again."""
        kinds: list[Callable[[], Coroutine[Any, Any, None]]] = []
        for _ in range(rounds):
            if not kinds:
                kinds = [self.kill, self.stop, self.cut, self.pause, self.pause_one_way]
                kinds += [self.delay, self.half_close, self.refuse, self.restart, self.fail_over]
                self._random.shuffle(kinds)
            await self._effects(self._random.randint(20, 120))
            disturb = kinds.pop()
            await disturb()
            self.done[disturb.__name__] += 1
            for task in [task for task in self._healing if task.done()]:
                self._healing.discard(task)
                task.result()

    async def heal(self) -> None:
        """Returns when nothing is disturbed any more."""
        self._calm.set()
        await asyncio.gather(*self._healing)

    # The disturbances

    async def kill(self) -> None:
        if victim := await self._victim("SIGKILL"):
            await victim.alive.kill()
            await victim.start()

    async def stop(self) -> None:
        """For longer than its lease."""
        if (victim := await self._victim("SIGSTOP")) is None:
            return
        process = victim.alive
        known = await self._ids_of(process)
        process.send(signal.SIGSTOP)

        async def go_on() -> None:
            await self._gone(known)
            self.stops.append(Stop(process.pid, time.monotonic()))
            process.send(signal.SIGCONT)

        self._later(victim, go_on)

    async def cut(self) -> None:
        reset = self._random.random() < 0.5
        self._say(f"cut the client's connections, reset={reset}")
        self._cut_off(self._clients)
        for proxy in self._clients.proxies:
            await asyncio.to_thread(proxy.cut, reset=reset)
        if victim := await self._victim(f"cut, reset={reset}"):
            self._cut_off(victim.door)
            for proxy in victim.door.proxies:
                await asyncio.to_thread(proxy.cut, reset=reset)

    async def half_close(self) -> None:
        side = self._side()
        if victim := await self._victim(f"half_close towards {side}"):
            self._cut_off(victim.door)
            for proxy in victim.door.proxies:
                proxy.half_close(side)

    async def delay(self) -> None:
        seconds = self._random.choice([0.02, 0.1, 0.4])
        if victim := await self._victim(f"delay of {seconds} s"):
            for proxy in victim.door.proxies:
                proxy.delay(seconds)

            async def quick_again() -> None:
                await self._effects(self._random.randint(30, 150))
                for proxy in victim.door.proxies:
                    proxy.delay(0)

            self._later(victim, quick_again)

    async def pause(self) -> None:
        """A black hole; sometimes until others have taken it for dead."""
        fatal = self._random.random() < 0.5
        if victim := await self._victim(f"pause, fatal={fatal}"):
            known = await self._ids_of(victim.alive)
            for proxy in victim.door.proxies:
                proxy.pause()
            self._later(victim, lambda: self._resume(victim, known if fatal else set()))

    async def pause_one_way(self) -> None:
        side = self._side()
        if victim := await self._victim(f"pause towards {side}"):
            for proxy in victim.door.proxies:
                proxy.pause(side)
            self._later(victim, lambda: self._resume(victim, set()))

    async def refuse(self) -> None:
        """Cut off, and known to be so on both sides."""
        if victim := await self._victim("refuse and cut"):
            self._cut_off(victim.door)
            for proxy in victim.door.proxies:
                proxy.refuse()
                proxy.cut()
            self._later(victim, lambda: self._resume(victim, set()))

    async def restart(self) -> None:
        self._say("kill and restart of the primary")
        await asyncio.to_thread(self._pair.restart)

    async def fail_over(self) -> None:
        self._say("failover")
        await asyncio.to_thread(self._pair.fail_over)

    # Within

    def _cut_off(self, door: Door) -> None:
        there = [member.alive.pid for member in self._members if member.door is door]
        self.cuts += [Cut(pid, time.monotonic()) for pid in there]

    async def _resume(self, victim: Member, known: set[str]) -> None:
        await self._effects(self._random.randint(20, 100))
        await self._gone(known)
        for proxy in victim.door.proxies:
            proxy.resume()

    def _later(self, victim: Member, heal: Callable[[], Awaitable[None]]) -> None:
        """Heals it beside whatever comes next."""
        victim.healthy = False

        async def healing() -> None:
            await self._load.wider(4)
            await heal()
            await self._load.wider(-4)
            victim.healthy = True
            self._say(f"{victim.name} is well again")

        self._healing.add(asyncio.create_task(healing()))

    async def _victim(self, what: str) -> Member | None:
        """One that is well, if there is another one; of those with a door of their own if it is
        the network's turn."""
        well = [member for member in self._members if member.healthy]
        if what not in ("SIGKILL", "SIGSTOP"):
            well = [member for member in well if member.door is not self._clients]
        if not well or sum(member.healthy for member in self._members) < 2:
            return None
        victim = self._random.choice(well)
        self._say(f"{victim.name} (pid {victim.alive.pid}): {what}")
        return victim

    def _side(self) -> Side:
        return "client" if self._random.random() < 0.5 else "target"

    def _say(self, what: str) -> None:
        passed = time.monotonic() - self._since
        print(f"{passed:6.1f} s {len(self._observer.effects):6} effects  {what}", flush=True)

    async def _effects(self, count: int) -> None:
        """Waits until so many more were seen."""
        wanted = len(self._observer.effects) + count
        enough = asyncio.create_task(
            self._observer.until(lambda: len(self._observer.effects) >= wanted, f"{count} effects")
        )
        calm = asyncio.create_task(self._calm.wait())
        await asyncio.wait({enough, calm}, return_when=asyncio.FIRST_COMPLETED)
        calm.cancel()
        if not enough.done():
            enough.cancel()
            await asyncio.wait({enough})
        else:
            enough.result()

    async def _ids_of(self, process: Process) -> set[str]:
        """Under which it is registered; it may be about to be so again."""

        async def ids() -> set[str]:
            return {row.id for row in await self._workers() if row.pid == process.pid}

        return await until(ids, f"process {process.pid} is registered")

    async def _workers(self) -> list[WorkerRow]:
        while True:
            try:
                return await self._app.workers()
            except StoreUnavailable:
                continue

    async def _gone(self, known: set[str]) -> None:
        """Others have taken it for dead."""

        async def gone() -> bool:
            return not known & {row.id for row in await self._workers()}

        await until(gone, f"{known} are taken for dead")
