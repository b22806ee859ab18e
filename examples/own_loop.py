"""The agent loop you wrote yourself, made durable: `python -m examples.own_loop`.

No framework: the loop asks a model over HTTP, calls the tools it wants, and goes on until it
answers. Only the two functions that reach the world are steps; killed in any turn, it resumes
there. OPENAI_BASE_URL and OPENAI_API_KEY choose a model; without them a scripted one answers.
"""

import asyncio
import json
import os
from typing import Any

import httpx

import holdfast
from holdfast.testing.model_server import ModelServer, Reply

Message = dict[str, Any]

TURNS_MAX = 10
SCRIPT = [
    Reply(tool_calls=[("weather", {"city": "Vienna"}), ("weather", {"city": "Oslo"})]),
    Reply(text="Take the night train to Vienna: it is sunny there, and raining in Oslo."),
]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}]


@holdfast.step  # retries what can succeed later (429, 5xx, time-outs), gives up on the rest
async def ask(messages: list[Message]) -> Message:
    url, key = os.environ["OPENAI_BASE_URL"], os.environ.get("OPENAI_API_KEY", "none")
    body = {"model": "gpt-4o-mini", "messages": messages, "tools": TOOLS}
    async with httpx.AsyncClient(timeout=60, headers={"Authorization": f"Bearer {key}"}) as http:
        response = await http.post(f"{url}/chat/completions", json=body)
    message: Message = response.raise_for_status().json()["choices"][0]["message"]
    return message


@holdfast.step
async def weather(city: str) -> str:
    return {"Vienna": "sunny, 24 °C"}.get(city, "rain")


@holdfast.workflow
async def assistant(question: str) -> str:
    messages: list[Message] = [{"role": "user", "content": question}]
    for _ in range(TURNS_MAX):
        message = await ask(messages)
        messages.append(message)
        wanted = message.get("tool_calls") or []
        if not wanted:
            return str(message["content"])
        cities = [json.loads(call["function"]["arguments"])["city"] for call in wanted]
        for call, found in zip(wanted, await asyncio.gather(*map(weather, cities)), strict=True):
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": found})
    return "I went round in circles."


async def main() -> None:
    with ModelServer(SCRIPT) as scripted:
        os.environ.setdefault("OPENAI_BASE_URL", scripted.url)
        async with holdfast.Holdfast("sqlite:///assistant.db", workflows=[assistant]) as app:
            run = await app.start(assistant, "Where should I go by train?")
            print(await run.result())


if __name__ == "__main__":
    asyncio.run(main())
