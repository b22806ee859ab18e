"""Ids and names that no store can hold are refused by name, on every store."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
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
            lambda: app.list(RunFilter(session=odd)),
            lambda: app.list(RunFilter(id_prefix=odd)),
        ]
        for call in bad:
            with pytest.raises(holdfast.BadValue, match="text without lone surrogates"):
                await call()
        for name in ("id", "session", "queue", "fairness_key"):
            with pytest.raises(holdfast.BadArguments, match=f"{name} is text"):
                app.with_options(**{name: odd})


@pytest.mark.parametrize("odd", [None, 7, b"run"], ids=ascii)
async def test_what_is_no_text_is_no_id(odd: Any) -> None:
    async with Environment([asks]) as env:
        for call in (env.app.get(odd).status, lambda: env.app.cancel(odd)):
            with pytest.raises(holdfast.UnknownRun, match="there is no run"):
                await call()
