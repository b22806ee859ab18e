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


@pytest.mark.parametrize(
    "key",
    [("user", 7), 1, None, b"user", "\ud800", "a\0b", "a" * 513],
    ids=lambda key: ascii(key)[:20],
)
async def test_a_key_that_is_not_text_is_refused_at_the_call_and_changes_nothing(key: Any) -> None:
    @holdfast.workflow
    async def tries() -> list[str]:
        session = holdfast.session()
        for call in (
            lambda: session.set(key, 1),
            lambda: session.get(key),
            lambda: session.delete(key),
        ):
            with pytest.raises(holdfast.BadValue, match="a key of session 's' is text"):
                call()
        await think()
        return session.keys()

    async with Environment([tries]) as env:
        run = await env.app.with_options(session="s").start(tries)
        assert await env.result(run) == []
        assert await env.store.session_state("s") == {}


async def test_keys_may_be_any_text_that_a_store_can_hold() -> None:
    keys = ["", " ", "ü", "日本", "\x7f", "日" * 512]

    @holdfast.workflow
    async def keeps() -> list[str]:
        session = holdfast.session()
        for key in keys:
            session.set(key, key)
        await think()
        return session.keys()

    report = await crash_everywhere(keeps.with_options(session="s"))
    assert report.result == sorted(keys)


async def test_changing_what_was_read_changes_neither_the_view_nor_the_store() -> None:
    @holdfast.workflow
    async def changes_in_place() -> tuple[Any, Any, Any]:
        session = holdfast.session()
        given = [1]
        session.set("list", given)
        session.append({"n": 1})
        given.append(2)
        session.get("list").append(3)
        session.messages[0]["n"] = 4
        await think()
        session.set("other", True)
        return session.get("list"), session.messages, session.get("missing", given)

    report = await crash_everywhere(changes_in_place.with_options(session="s"))
    assert report.result == ([1], [{"n": 1}], [1, 2])


async def test_what_was_read_and_changed_is_kept_once_it_is_set() -> None:
    @holdfast.workflow
    async def puts_back() -> Any:
        session = holdfast.session()
        for number in range(3):
            found = session.get("list", [])
            found.append(number)
            session.set("list", found)
            await think()
        return session.get("list")

    async with Environment([puts_back]) as env:
        run = await env.app.with_options(session="s").start(puts_back)
        assert await env.result(run) == [0, 1, 2]
        assert await env.store.session_state("s") == {"list": b"[0,1,2]"}
