"""Ids, names and filters that no store can hold are refused by name, on every store; odd ones that
it can hold work."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any

import pytest

import holdfast
from holdfast.testing import Environment
from holdfast.types import RunFilter

Call = Callable[[], Coroutine[Any, Any, object]]


@holdfast.workflow
async def asks() -> str:
    return await holdfast.promise("ok", str)


@pytest.mark.parametrize("odd", ["\ud800", "a\0b"], ids=ascii)
async def test_text_that_no_store_can_hold_names_nothing(odd: str) -> None:
    async with Environment([asks]) as env:
        app = env.app
        run = await app.start(asks)
        unknown: list[Call] = [
            lambda: app.get(odd).status(),
            lambda: app.get(odd).result(),
            lambda: app.why(odd),
            lambda: app.history(odd),
            lambda: app.promises(odd),
            lambda: app.cancel(odd),
            lambda: app.pause(odd),
            lambda: app.resume(odd),
            lambda: app.rerun(odd),
            lambda: app.fork(odd, before="/asks#0"),
            lambda: app.send(odd, 1),
            lambda: app.resolve(odd, "ok", "yes"),
        ]
        for call in unknown:
            with pytest.raises(holdfast.UnknownRun, match="there is no run"):
                await call()
        bad: list[Call] = [
            lambda: run.send(1, channel=odd),
            lambda: run.resolve(odd, "yes", early=True),
            lambda: run.resolve("x" * 513, "yes", early=True),
            lambda: app.pause_queue(odd),
            lambda: app.resume_queue(odd),
            lambda: app.list(RunFilter(session=odd)),
            lambda: app.list(RunFilter(id_prefix=odd)),
        ]
        for call in bad:
            with pytest.raises(holdfast.BadValue, match="text without lone surrogates"):
                await call()
        with pytest.raises(holdfast.UnknownSchedule):
            await app.delete_schedule(odd)
        for name in ("id", "session", "queue", "fairness_key"):
            with pytest.raises(holdfast.BadArguments, match=f"{name} is text"):
                app.with_options(**{name: odd})


@pytest.mark.parametrize("odd", [None, 7, b"run"], ids=ascii)
async def test_what_is_no_text_is_no_id(odd: Any) -> None:
    async with Environment([asks]) as env:
        for call in (env.app.get(odd).status, lambda: env.app.cancel(odd)):
            with pytest.raises(holdfast.UnknownRun, match="there is no run"):
                await call()


Named = Callable[[Any], object]

NAMES: dict[str, Named] = {
    "receive": lambda name: holdfast.receive(channel=name),
    "promise": lambda name: holdfast.promise(name),
    "approval": lambda name: holdfast.approval(name),
    "once": lambda name: holdfast.once(lambda: 1, name=name),
    "session key": lambda name: holdfast.session().set(name, 1),
}


@pytest.mark.parametrize(
    "odd", ["\ud800", "a\0b", 7, "x" * 513], ids="surrogate null 7 long".split()
)
@pytest.mark.parametrize("what", NAMES)
async def test_a_name_inside_a_run_is_refused_at_the_call(what: str, odd: Any) -> None:
    @holdfast.workflow
    async def names_it() -> str:
        try:
            NAMES[what](odd)
        except holdfast.BadValue as error:
            return str(error)
        return "nothing was said"

    @holdfast.workflow
    def names_it_in_a_thread() -> str:
        try:
            NAMES[what](odd)
        except holdfast.BadValue as error:
            return str(error)
        return "nothing was said"

    async with Environment([names_it, names_it_in_a_thread]) as env:
        for workflow in (names_it, names_it_in_a_thread):
            run = await env.app.with_options(session="one").start(workflow)
            assert "text without lone surrogates and null characters" in await env.result(run)


@pytest.mark.parametrize("odd", ["\ud800", "a\0b"], ids=ascii)
def test_what_is_declared_has_a_name_that_can_be_stored(odd: str) -> None:
    def body() -> None: ...

    with pytest.raises(holdfast.BadValue, match="name of a workflow"):
        holdfast.workflow(name=odd)(body)
    with pytest.raises(holdfast.BadValue, match="name of a step"):
        holdfast.step(name=odd)(body)
    with pytest.raises(holdfast.BadArguments):
        holdfast.Queue(odd)
    with pytest.raises(holdfast.BadArguments):
        holdfast.Limit(odd, per_second=1)
    with pytest.raises(holdfast.BadArguments):
        holdfast.Limit("ok", per_second=1, key=lambda: odd).name_for((), {})


@pytest.mark.parametrize(
    "which",
    [
        {"status": "failed"},
        {"status": {"odd"}},
        {"limit": -1},
        {"created_after": datetime(2026, 1, 1)},
    ],
    ids=str,
)
async def test_a_filter_that_makes_no_sense_is_refused_by_name(which: dict[str, Any]) -> None:
    async with Environment([asks]) as env:
        with pytest.raises(holdfast.BadValue, match=next(iter(which))):
            await env.app.list(RunFilter(**which))


async def test_names_with_spaces_are_quoted_in_the_command_that_unblocks() -> None:
    @holdfast.workflow
    async def releases() -> None:
        await holdfast.race(decision=holdfast.approval("the release"), late=timedelta(days=1))

    async with Environment([releases]) as env:
        run = await env.app.with_options(id="report 7").start(releases)
        await env.settle()
        why = await run.why()
    assert "`holdfast resolve 'report 7' 'the release' --approve`" in why
    assert "a timer due 2026-01-02 00:00:00 UTC; nobody" in why


@pytest.mark.parametrize("odd", ["\ud800", "a\0b"], ids=ascii)
async def test_a_run_is_parked_by_an_error_whose_text_no_store_can_hold(odd: str) -> None:
    @holdfast.step(retry=holdfast.Retry(attempts=1, exhausted="park"))
    async def fails() -> None:
        raise RuntimeError(odd)

    @holdfast.workflow
    async def gives_up() -> None:
        await fails()

    async with Environment([gives_up]) as env:
        run = await env.start(gives_up)
        await env.settle()
        row = await env.app.row(run.id)
        assert row.status is holdfast.Status.PARKED
        assert row.reason and ascii(odd).strip("'") in row.reason
