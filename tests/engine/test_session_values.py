"""What a session's keys may be, and what becomes of values that are changed after they were
read."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast.testing import Environment, crash_everywhere


@holdfast.step
async def think() -> None:
    return


@pytest.mark.parametrize("key", [("user", 7), 1, None, b"user", "\ud800", "a\0b"], ids=ascii)
async def test_a_key_that_is_not_text_is_refused_at_the_call_and_changes_nothing(key: Any) -> None:
    @holdfast.workflow
    async def tries() -> list[str]:
        session = holdfast.session()
        for call in (
            lambda: session.set(key, 1),
            lambda: session.get(key),
            lambda: session.delete(key),
        ):
            with pytest.raises(holdfast.BadValue, match="keys of session 's' are text"):
                call()
        await think()
        return session.keys()

    async with Environment([tries]) as env:
        run = await env.app.with_options(session="s").start(tries)
        assert await env.result(run) == []
        assert await env.store.session_state("s") == {}


async def test_keys_may_be_any_text_that_a_store_can_hold() -> None:
    keys = ["", " ", "ü", "日本", "\x7f", "a" * 5000]

    @holdfast.workflow
    async def keeps() -> list[str]:
        session = holdfast.session()
        for key in keys:
            session.set(key, key)
        await think()
        return session.keys()

    report = await crash_everywhere(keeps.with_options(session="s"))
    assert report.result == sorted(keys)
