"""An id that is used again, by a call that spells a default out or leaves it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import holdfast
from holdfast.testing import Environment, crash_everywhere


@dataclass(frozen=True)
class Style:
    words: int = 100


PLAIN = Style()
UNSENT: Any = object()


@holdfast.workflow
async def writes(topic: str, n: int = 0, style: Style = PLAIN, *more: int, **options: str) -> str:
    return f"{topic} {n} {style.words}"


@holdfast.workflow
async def has_a_mark(n: int = 0, mark: Any = UNSENT) -> bool:
    return mark is UNSENT


SAME: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (("a",), {}),
    (("a", 0), {}),
    (("a",), {"style": Style()}),
    ((), {"topic": "a", "n": 0, "style": Style(100)}),
]
OTHERS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (("b",), {}),
    (("a", 1), {}),
    (("a",), {"style": Style(5)}),
    (("a", 0, Style(), 7), {}),
    (("a",), {"loud": "yes"}),
]


@pytest.mark.parametrize("first", SAME)
async def test_a_default_that_is_spelled_out_is_the_same_argument(first: Any) -> None:
    async with Environment([writes]) as env:
        app = env.app.with_options(id="one")
        for args, kwargs in (first, *SAME):
            assert await env.result(await app.start(writes, *args, **kwargs)) == "a 0 100"
        for args, kwargs in OTHERS:
            with pytest.raises(holdfast.IdReused, match="'one'"):
                await app.start(writes, *args, **kwargs)
        assert len(await env.app.list()) == 1


async def test_a_value_of_another_type_is_not_the_default() -> None:
    @holdfast.workflow
    async def loose(value: Any = 0) -> str:
        return repr(value)

    async with Environment([loose]) as env:
        app = env.app.with_options(id="one")
        await app.start(loose)
        for value in (False, 0.0, "0", None):
            with pytest.raises(holdfast.IdReused):
                await app.start(loose, value)


async def test_a_default_that_no_journal_can_hold_is_left_alone() -> None:
    async with Environment([has_a_mark]) as env:
        app = env.app.with_options(id="one")
        assert await env.result(await app.start(has_a_mark))
        assert await env.result(await app.start(has_a_mark, 0))
        with pytest.raises(holdfast.IdReused):
            await app.start(has_a_mark, 0, 1)


async def test_children_and_starts_of_a_run_know_defaults_too() -> None:
    @holdfast.workflow
    async def starts() -> tuple[list[str], str]:
        again = has_a_number.with_options(id="child")
        started = [
            await holdfast.start(has_a_number.with_options(id="own")),
            await holdfast.start(has_a_number.with_options(id="own"), 0),
        ]
        first = await holdfast.child(again)
        second = await holdfast.child(again, 0)
        return started, f"{first} {second}"

    report = await crash_everywhere(starts, workflows=[has_a_number])
    assert report.result == (["own", "own"], "0 0")


@holdfast.workflow
async def has_a_number(n: int = 0) -> int:
    return n


async def test_a_run_that_was_continued_is_known_by_the_call_that_began_it() -> None:
    @holdfast.workflow
    async def goes_on(first: int = 0, second: int = 0) -> str:
        if first < 2:
            holdfast.continue_as(first + 1, 5)
        return await holdfast.promise("end", str)

    async with Environment([goes_on]) as env:
        app = env.app.with_options(id="one")
        await app.start(goes_on)
        await env.settle()
        assert (await env.app.row("one")).generation == 3
        for args in ((), (0,), (0, 0)):
            assert (await app.start(goes_on, *args)).id == "one"
        with pytest.raises(holdfast.IdReused):
            await app.start(goes_on, 2, 5)


async def test_a_join_is_known_by_its_arguments_whichever_defaults_it_spells_out() -> None:
    @holdfast.workflow
    async def listens(n: int = 0) -> Any:
        return await holdfast.receive()

    async with Environment([listens]) as env:
        app = env.app.with_options(session="s", on_busy="join")
        first = await app.with_options(id="first").start(listens)
        joining = app.with_options(id="second")
        for args in ((), (0,)):
            assert (await joining.start(listens, *args)).id == "first"
        assert len(await env.app.store.mail([((await env.app.row("first")).key, 0)])) == 1
        assert await env.result(first) == {}


async def test_a_run_takes_the_default_of_the_code_that_executes_it() -> None:
    """A default that changes is a change of the code: what a call leaves out is not kept."""

    @holdfast.workflow(name="changing")
    async def old(n: int = 0) -> int:
        return n + await holdfast.promise("more", int)

    @holdfast.workflow(name="changing")
    async def new(n: int = 1) -> int:
        return n + await holdfast.promise("more", int)

    async with Environment([old]) as env:
        await env.app.with_options(id="left out").start(old)
        await env.app.with_options(id="spelled out").start(old, 0)
        await env.settle()
        store, env._owns_store = env.store, False
    async with Environment([new], store=store) as env:
        for id, args in (("left out", ()), ("left out", (1,)), ("spelled out", (0,))):
            await env.app.with_options(id=id).start(new, *args)
        for id, args in (("left out", (0,)), ("spelled out", ())):
            with pytest.raises(holdfast.IdReused):
                await env.app.with_options(id=id).start(new, *args)
        for id in ("left out", "spelled out"):
            await env.app.resolve(id, "more", 10)
        assert await env.result(env.app.get("left out")) == 11
        assert await env.result(env.app.get("spelled out")) == 10
    await store.discard()
