"""How a journal grows with a conversation that is given to a model as a whole, turn by turn."""

from __future__ import annotations

from typing import Any

import holdfast
from benchmarks.setting import PAYLOAD, Setting, remove


@holdfast.step
async def answer(messages: list[dict[str, str]]) -> dict[str, str]:
    return {"role": "assistant", "content": PAYLOAD}


@holdfast.workflow
async def talk(turns: int) -> None:
    messages: list[dict[str, str]] = []
    for _ in range(turns):
        messages.append({"role": "user", "content": PAYLOAD})
        messages.append(await answer(messages))


async def conversation(setting: Setting) -> None:
    folder = setting.fresh()
    async with holdfast.Holdfast(f"sqlite:///{folder}/bench.db", workflows=[talk]) as app:
        for turns in (20, 80, 320):
            run = await app.start(talk, turns)
            await run.result()
            size = await _journal_bytes(app, run)
            said = 2 * len(PAYLOAD) * turns
            what = f"journal of {turns} turns to what is said in them"
            setting.add(what, size / said, "ratio", "does not grow")
    remove(folder)


async def _journal_bytes(app: holdfast.Holdfast, run: holdfast.Run[Any]) -> int:
    entries = await app.store.journal((await app.row(run.id)).key)
    return sum(len(entry.input or b"") + len(entry.output or b"") for entry in entries)
