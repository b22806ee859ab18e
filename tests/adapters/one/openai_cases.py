"""A loop of one's own around OpenAI's client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from openai import AsyncOpenAI

import holdfast
from holdfast.adapters.openai import durable
from tests.adapters.readers import reader
from tests.adapters.world import World


def _loop(world: World, *, stream: bool) -> tuple[Any, list[Any]]:
    client = durable(AsyncOpenAI(base_url=world.model_url, api_key="any"))

    @holdfast.step
    async def note(text: str) -> None:
        await asyncio.to_thread(world.effect, f"note {text}")

    @holdfast.step
    async def search(q: str) -> str:
        await note(q)
        world.effect(f"search {q}")
        return f"found {q}"

    async def ask(messages: list[Any]) -> Any:
        if not stream:
            answer = await client.chat.completions.create(model="m", messages=messages)
            return answer.choices[0].message
        async with client.chat.completions.stream(model="m", messages=messages) as events:
            async for _ in events:
                pass
            return (await events.get_final_completion()).choices[0].message

    async def use(call: Any) -> Any:
        found = await search(json.loads(call.function.arguments)["q"])
        return {"role": "tool", "tool_call_id": call.id, "content": found}

    @holdfast.workflow
    async def agent(question: str) -> str:
        messages: list[Any] = [{"role": "user", "content": question}]
        while True:
            message = await ask(messages)
            messages.append(
                message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"})
            )
            if not message.tool_calls:
                return str(message.content)
            messages += await asyncio.gather(*map(use, message.tool_calls))

    return agent, ["why"]


def plain(world: World) -> tuple[Any, list[Any]]:
    return _loop(world, stream=False)


def streamed(world: World) -> tuple[Any, list[Any]]:
    return _loop(world, stream=True)


def heard(world: World) -> tuple[Any, list[Any]]:
    client = durable(AsyncOpenAI(base_url=world.model_url, api_key="any"))

    async def events(question: str) -> AsyncIterator[Any]:
        for turn in range(2):
            said: list[Any] = [{"role": "assistant", "content": "said"}] * turn
            messages: list[Any] = [{"role": "user", "content": question}, *said]
            async with client.chat.completions.stream(model="m", messages=messages) as events:
                async for event in events:
                    yield event

    return reader(world, events)
