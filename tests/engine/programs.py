"""Random asyncio programs: every way in which plain code can run things side by side.

A program is drawn from a seed, so that it is the same on every replay. What its steps return, how
long they take and whether they fail is drawn from the world, which is another one every time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import anyio

import holdfast

world = random.Random(0)

FLAKY = holdfast.Retry(
    attempts=4, backoff=timedelta(milliseconds=1), max_delay=timedelta(milliseconds=2)
)
MOMENT = timedelta(milliseconds=2)

Dice = random.Random
Drawn = Callable[[int, Dice], Awaitable[list[Any]]]


@holdfast.step(retry=FLAKY)
async def act(name: str, flaky: bool = False) -> int:
    await asyncio.sleep(world.choice([0, 0, 0, world.random() * 0.003]))
    if flaky and world.random() < 0.4:
        raise ConnectionError("flaky")
    return world.randrange(10**6)


@holdfast.step
def sync_act(name: str) -> int:
    return world.randrange(10**6)


@holdfast.step(retry=FLAKY)
async def tool(calls: int) -> list[int]:
    return [await act(f"n{i}", i == 1) for i in range(calls)]


@holdfast.step(retry=FLAKY)
async def parallel_tool(calls: int) -> list[int]:
    tasks = [asyncio.create_task(act(f"in{i}")) for i in range(calls)]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    first = min(tasks.index(task) for task in done)
    return [first, *await asyncio.gather(*tasks), await act(f"after{first}")]


def in_thread(calls: int) -> list[int]:
    return [sync_act(f"t{i}") for i in range(calls)]


async def draw(depth: int, dice: Dice) -> list[Any]:
    """A few things one after the other; most of them hold smaller programs."""
    out: list[Any] = []
    for _ in range(dice.randint(1, 4)):
        kind = dice.choice(COMPOSED if depth else SIMPLE)
        out += await kind(depth, Dice(dice.randrange(10**9)))
        out.append(asyncio.get_running_loop().time())  # a body's time is replayed, too
    return out


def parts(depth: int, dice: Dice, most: int = 3) -> list[Any]:
    return [draw(depth - 1, Dice(dice.randrange(10**9))) for _ in range(dice.randint(2, most))]


# Simple things


async def one_step(depth: int, dice: Dice) -> list[Any]:
    return [await act("s")]


async def flaky_step(depth: int, dice: Dice) -> list[Any]:
    try:
        return [await act("f", True)]
    except ConnectionError as error:
        return [str(error)]


async def values(depth: int, dice: Dice) -> list[Any]:
    drawn = holdfast.once(lambda: world.random())
    return [holdfast.random(), str(holdfast.uuid4()), str(holdfast.now()), drawn]


async def nested_steps(depth: int, dice: Dice) -> list[Any]:
    return [await tool(3)]


async def plain_sleep(depth: int, dice: Dice) -> list[Any]:
    await asyncio.sleep(0.001)
    return [await act("slept")]


async def durable_sleep(depth: int, dice: Dice) -> list[Any]:
    await holdfast.sleep(MOMENT / 2)
    return [await act("woken")]


# Things side by side


async def nested_parallel(depth: int, dice: Dice) -> list[Any]:
    return [await parallel_tool(3)]


async def gathered(depth: int, dice: Dice) -> list[Any]:
    return [await asyncio.gather(*parts(depth, dice))]


async def task_group(depth: int, dice: Dice) -> list[Any]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part) for part in parts(depth, dice, 2)]
    return [task.result() for task in tasks]


async def anyio_group(depth: int, dice: Dice) -> list[Any]:
    found: dict[int, Any] = {}

    async def keep(index: int, part: Any) -> None:
        found[index] = await part

    async with anyio.create_task_group() as group:
        for index, part in enumerate(parts(depth, dice, 2)):
            group.start_soon(keep, index, part)
    return [list(found.items()), await act("joined" + "".join(map(str, found)))]


async def first_wins(depth: int, dice: Dice) -> list[Any]:
    tasks = [asyncio.create_task(part) for part in parts(depth, dice)]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    winner = min(tasks.index(task) for task in done)
    if winner % 2:
        for task in pending:
            task.cancel()
    else:
        await asyncio.wait(tasks)
    return [winner, await act(f"after{winner}")]


async def durable_race(depth: int, dice: Dice) -> list[Any]:
    name, value = await holdfast.race(a=act("ra"), b=tool(2), t=holdfast.sleep(MOMENT))
    return [name, value, await act("won" + name)]


async def timed_out(depth: int, dice: Dice) -> list[Any]:
    try:
        async with asyncio.timeout(0.001 * dice.randint(0, 3)):
            return await draw(depth - 1, dice)
    except TimeoutError:
        return ["timeout", await act("late")]


async def moved_on(depth: int, dice: Dice) -> list[Any]:
    with anyio.move_on_after(0.001 * dice.randint(1, 3)) as limit:
        return await draw(depth - 1, dice)
    return [limit.cancelled_caught, await act("moved on")]


async def shielded(depth: int, dice: Dice) -> list[Any]:
    task = asyncio.create_task(act("sh"))
    try:
        await asyncio.wait_for(asyncio.shield(task), 0.001)
        in_time = True
    except TimeoutError:
        in_time = False
    return [in_time, await task]


async def cancelled(depth: int, dice: Dice) -> list[Any]:
    task = asyncio.create_task(draw(depth - 1, dice))
    await act("before the cancel")
    task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        return ["cancelled", await act("cleaned up")]


async def threads(depth: int, dice: Dice) -> list[Any]:
    return [await asyncio.to_thread(in_thread, 2)]


async def thread_steps(depth: int, dice: Dice) -> list[Any]:
    return await asyncio.gather(*(asyncio.to_thread(sync_act, f"x{i}") for i in range(2)))


async def generator(depth: int, dice: Dice) -> list[Any]:
    async def generate() -> Any:
        for i in range(3):
            yield await act(f"g{i}")

    return [value async for value in generate()]


async def as_completed(depth: int, dice: Dice) -> list[Any]:
    values = [await next for next in asyncio.as_completed([act(f"c{i}") for i in range(3)])]
    return [values, await act(f"ac{values[0] % 3}")]


async def queued(depth: int, dice: Dice) -> list[Any]:
    queue: asyncio.Queue[int] = asyncio.Queue(2)

    async def produce(number: int) -> None:
        await act("p")
        await queue.put(number)

    tasks = [asyncio.create_task(produce(k)) for k in range(3)]
    order = [await queue.get() for _ in tasks]
    return [order, await act("o" + "".join(map(str, order)))]


async def locked(depth: int, dice: Dice) -> list[Any]:
    lock, order = asyncio.Lock(), []

    async def critical(number: int) -> None:
        await act("pre")
        async with lock:
            order.append(number)
            await act(f"in{len(order)}_{number}")

    await asyncio.gather(*(critical(k) for k in range(3)))
    return [order]


async def waited_for(depth: int, dice: Dice) -> list[Any]:
    event, slots = asyncio.Event(), asyncio.Semaphore(2)
    order: list[tuple[int, int]] = []

    async def wait(number: int) -> None:
        await event.wait()
        async with slots:
            order.append((number, await act(f"e{len(order)}") % 7))

    tasks = [asyncio.create_task(wait(k)) for k in range(3)]
    await act("signal")
    event.set()
    await asyncio.gather(*tasks)
    return [order, await act("".join(str(number) for number, _ in order))]


SIMPLE: list[Drawn] = [one_step, flaky_step, values, nested_steps, plain_sleep, durable_sleep]
COMPOSED: list[Drawn] = [
    *SIMPLE,
    nested_parallel,
    gathered,
    task_group,
    anyio_group,
    first_wins,
    durable_race,
    timed_out,
    moved_on,
    shielded,
    cancelled,
    threads,
    thread_steps,
    generator,
    as_completed,
    queued,
    locked,
    waited_for,
]


@holdfast.workflow
async def program(seed: int, depth: int) -> str:
    try:
        return repr(await draw(depth, Dice(seed)))
    except* ConnectionError:
        pass
    return f"flaky {await act('cleanup')}"
