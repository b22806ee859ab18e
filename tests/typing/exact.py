"""Checked by mypy, not run: each `type: ignore` here must be needed, or `make lint` fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any, assert_type

import holdfast


@holdfast.step
async def ask(prompt: str) -> int:
    return len(prompt)


@holdfast.step(retry=holdfast.Retry(attempts=2))
def save(text: str, *, twice: bool = False) -> bool:
    return twice


class Agent:
    @holdfast.step
    async def think(self, topic: str) -> str:
        return topic


@holdfast.workflow
async def research(question: str, depth: int = 1) -> list[int]:
    assert_type(await ask(question), int)
    assert_type(await asyncio.to_thread(save, question, twice=True), bool)
    assert_type(await Agent().think("x"), str)
    await ask(3)  # type: ignore[arg-type]
    await asyncio.to_thread(save, 3)  # type: ignore[arg-type]
    return [depth]


@holdfast.workflow(name="other")
def plain(question: str) -> float:
    return 1.0


@holdfast.remote("elsewhere")
async def elsewhere(x: int) -> str: ...  # type: ignore[empty-body]


async def use(app: holdfast.Holdfast) -> None:
    run = await app.start(research, "why?", depth=2)
    assert_type(run, holdfast.Run[list[int]])
    assert_type(await run.result(), list[int])
    assert_type(await (await app.start(plain, "why?")).result(), float)
    assert_type(await (await app.with_options(id="a").start(elsewhere, 1)).result(), str)
    await app.start(research, 3)  # type: ignore[call-overload]
    await app.start(research)  # type: ignore[call-overload]
    await app.start(research, "why?", depht=2)  # type: ignore[call-arg]


@holdfast.workflow
def titled(title: str, *, bold: bool = False) -> None: ...


HOURLY = timedelta(hours=1)
holdfast.Schedule("a", research, "why?", cron="0 3 * * *", zone="Europe/Berlin", catch_up="all")
holdfast.Schedule("b", research, "why?", 2, every=HOURLY)
holdfast.Schedule("c", plain.with_options(priority=1), "why?", every=HOURLY)
holdfast.Schedule("d", titled, "why?", every=HOURLY, kwargs={"bold": True})
holdfast.Schedule("e", research, 3, every=HOURLY)  # type: ignore[arg-type]
holdfast.Schedule("f", research, every=HOURLY)  # type: ignore[arg-type]
holdfast.Schedule("g", research, "why?", "deep", every=HOURLY)  # type: ignore[arg-type]
holdfast.Schedule("h", titled, "why?", True, every=HOURLY)  # type: ignore[arg-type]
holdfast.Schedule("i", research, "why?", every=HOURLY, catch_up="some")  # type: ignore[arg-type]
assert_type(holdfast.tick(), datetime | None)


async def inside() -> None:
    assert_type(await holdfast.child(research, "why?"), list[int])
    assert_type(await holdfast.promise("n", int), int)
    assert_type(await holdfast.promise("n", int, prompt="How many?"), int)
    assert_type(await holdfast.promise("n", prompt={"how": "many"}), Any)
    assert_type(await holdfast.approval("release"), holdfast.Decision)
    assert_type(await holdfast.receive(str), str)
    name, _ = await holdfast.race(a=ask("x"), b=holdfast.sleep(1))
    assert_type(name, str)
    assert_type(await holdfast.start(research, "why?"), str)
    await holdfast.child(research, 3)  # type: ignore[arg-type]


@holdfast.workflow
def inside_a_thread() -> None:
    assert_type(save("x"), bool)
    assert_type(holdfast.child(research, "why?").result(), list[int])
    assert_type(holdfast.child(plain, "why?").result(), float)
    assert_type(holdfast.promise("n", int).result(), int)
    assert_type(holdfast.approval("release").result(), holdfast.Decision)
    assert_type(holdfast.receive(str, channel="a").result(), str)
    assert_type(holdfast.receive().result(), Any)
    assert_type(holdfast.race(a=holdfast.receive(), b=HOURLY).result(), tuple[str, Any])
    assert_type(holdfast.start(research, "why?").result(), str)
    assert_type(holdfast.sleep(1).result(), None)
    assert_type(holdfast.once(lambda: 1), int)
    holdfast.start(research, 3)  # type: ignore[arg-type]
    holdfast.race(a=3)  # type: ignore[arg-type]


plain_call: Callable[[str], Coroutine[Any, Any, int]] = ask
assert_type(plain("x"), float)
