"""A long conversation: its journal grows by what each turn adds, and still shows every input."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Sequence
from typing import Any

import pytest

import holdfast
from holdfast import codec
from holdfast.engine.inputs import BASES_MAX, WHOLE_MAX
from holdfast.testing import Environment, crash_everywhere
from holdfast.types import Entry

Message = dict[str, str]
SAID = "what is said in a turn, " * 40
TURN_BYTES = 2 * len(SAID)
down = False


@holdfast.step
async def answer(messages: list[Message], model: str = "big") -> Message:
    return {"role": "assistant", "content": f"{len(messages)}: {SAID}"}


@holdfast.step(retry=holdfast.Retry(attempts=1))
async def answer_unless_down(messages: list[Message]) -> Message:
    if down and len(messages) > 4:
        raise ConnectionError("down")
    return await answer(messages)


@holdfast.workflow
async def talks(turns: int, pause_before: int | None = None) -> int:
    messages: list[Message] = []
    for turn in range(turns):
        if turn == pause_before:
            await holdfast.promise("go on", bool)
        messages.append({"role": "user", "content": f"{turn}: {SAID}"})
        messages.append(await answer(messages))
    return len(messages)


async def talk_with(name: str, turns: int) -> None:
    messages = [{"role": "user", "content": f"{name}: {SAID * 5}"}]
    for _ in range(turns):
        messages.append(await answer(messages))
        await asyncio.sleep(0)


@holdfast.workflow
async def talks_with_many(talks: int, turns: int) -> None:
    await asyncio.gather(*[talk_with(str(talk), turns) for talk in range(talks)])


def stored_bytes(entries: Sequence[Entry]) -> int:
    return sum(len(entry.input or b"") for entry in entries)


async def as_stored(env: Environment, run: holdfast.Run[Any]) -> list[Entry]:
    return await env.app.store.journal((await env.app.row(run.id)).key)


async def shows_every_input(run: holdfast.Run[Any]) -> list[Entry]:
    entries = await run.history()
    given = [entry for entry in entries if entry.digest is not None]
    assert given
    for entry in given:
        assert entry.input is not None
        assert codec.digest(entry.input) == entry.digest, entry.key
    return entries


async def test_the_journal_of_a_conversation_grows_by_what_each_turn_adds() -> None:
    async with Environment([talks]) as env:
        run = await env.start(talks, 60)
        assert await env.result(run) == 120
        stored = stored_bytes(await as_stored(env, run))
        entries = await shows_every_input(run)
    assert stored < 60 * TURN_BYTES * 1.5 + 5 * WHOLE_MAX
    assert stored_bytes(entries) > 10 * stored
    last = codec.decode(entries[-2].input or b"", Any, what="the input")
    assert len(last["messages"]) == 119 and last["messages"][0]["content"] == f"0: {SAID}"


async def test_a_conversation_that_goes_on_after_a_crash_is_not_stored_again() -> None:
    async with Environment([talks]) as env:
        run = await env.start(talks, 40, 30)
        await env.settle()
        before = await as_stored(env, run)
        await env.crash()
        await run.resolve("go on", True)
        await env.result(run)
        added = (await as_stored(env, run))[len(before) :]
        await shows_every_input(run)
    assert stored_bytes(added) < 10 * TURN_BYTES * 1.5
    await crash_everywhere(talks, 6)


@pytest.mark.parametrize("conversations", [3, BASES_MAX])
async def test_conversations_that_alternate_are_told_apart(conversations: int) -> None:
    async with Environment([talks_with_many]) as env:
        run = await env.start(talks_with_many, conversations, 20)
        await env.result(run)
        stored = stored_bytes(await as_stored(env, run))
        await shows_every_input(run)
    assert stored < conversations * (2 * WHOLE_MAX + 20 * TURN_BYTES * 1.5)


async def test_more_conversations_than_are_told_apart_show_every_input_too() -> None:
    async with Environment([talks_with_many]) as env:
        run = await env.start(talks_with_many, BASES_MAX + 5, 3)
        await env.result(run)
        await shows_every_input(run)


async def test_a_fork_has_every_input_of_the_run_it_comes_from() -> None:
    async with Environment([talks]) as env:
        run = await env.start(talks, 12)
        await env.result(run)
        fork = await run.fork(before="/answer#8")
        assert await env.result(fork) == 24
        assert [e.input for e in await shows_every_input(fork) if e.kind == "step"] == [
            e.input for e in await shows_every_input(run) if e.kind == "step"
        ]


@holdfast.workflow
async def one_of_many_fails(lengths: list[int]) -> None:
    """Conversations that share their beginning; the third fails while the others go on."""
    messages = [await answer([{"role": "user", "content": SAID * 5}])]

    async def branch(number: int, length: int) -> None:
        mine = [*messages]
        for _ in range(length):
            mine.append({"role": "user", "content": f"{number}: {SAID}"})
            for _ in range(number):
                await asyncio.sleep(0)
            mine.append(await answer_unless_down(mine) if number == 2 else await answer(mine))

    await asyncio.gather(*[branch(number, length) for number, length in enumerate(lengths)])


@pytest.mark.parametrize("seed", range(6))
async def test_a_rerun_keeps_every_input_of_what_it_keeps(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = sys.modules[__name__]
    async with Environment([one_of_many_fails]) as env:
        lengths = random.Random(seed).choices(range(3, 10), k=4)
        monkeypatch.setattr(here, "down", True)
        run = await env.start(one_of_many_fails, lengths)
        with pytest.raises(holdfast.RunFailed, match="down"):
            await env.result(run)
        await shows_every_input(run)
        monkeypatch.setattr(here, "down", False)
        await env.result(await run.rerun())
        await shows_every_input(run)


async def test_a_run_that_diverges_late_in_a_conversation_says_what_differs() -> None:
    model = "big"

    @holdfast.workflow
    async def changes() -> None:
        messages: list[Message] = []
        for turn in range(12):
            messages.append(await answer(messages, model if turn == 10 else "big"))
        await holdfast.promise("go on", bool)

    async with Environment([changes]) as env:
        run = await env.start(changes)
        await env.settle()
        await env.crash()
        model = "small"
        await run.resolve("go on", True)
        await env.settle()
        why = await run.why()
    assert '\'model\' was "big" and is now "small"' in why


async def test_inputs_that_are_not_to_be_journaled_are_not() -> None:
    @holdfast.step(journal_input=False)
    async def whisper(messages: list[Message]) -> None: ...

    @holdfast.workflow
    async def whispers() -> None:
        messages = [{"role": "user", "content": SAID * 10}]
        for _ in range(3):
            await whisper(messages)
            messages.append({"role": "user", "content": SAID})

    async with Environment([whispers]) as env:
        run = await env.start(whispers)
        await env.result(run)
        assert stored_bytes(await as_stored(env, run)) == 0
