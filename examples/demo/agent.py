"""The agent: 18 steps and an approval, written as if nothing could ever die.

Plain asyncio, no recovery code. Its model and its tools are real HTTP services on loopback. Each
request carries the step's idempotency key, the same in every try, so that a tool which has done
its work already can say so instead of doing it twice.
"""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from typing import Any

import httpx

import holdfast

MODEL = os.environ.get("DEMO_MODEL", "")
OFFICE = os.environ.get("DEMO_OFFICE", "")
SABOTAGED = os.environ.get("DEMO_SABOTAGE") == "1"

client = httpx.AsyncClient(timeout=60, verify=False, headers={"X-Worker": str(os.getpid())})


async def post(url: str, body: dict[str, Any], key: str | None) -> Any:
    headers = {"Idempotency-Key": key} if key else {}
    response = await client.post(url, json=body, headers=headers)
    return response.raise_for_status().json()


@holdfast.step  # a bare step retries what can succeed later, and honours Retry-After
async def think(task: str) -> str:
    """One call of the model."""
    body = {"model": "scripted", "messages": [{"role": "user", "content": task}]}
    answer = await post(f"{MODEL}/chat/completions", body, holdfast.idempotency_key())
    return str(answer["choices"][0]["message"]["content"])


@holdfast.step(retry=holdfast.Retry(attempts=5, backoff=timedelta(seconds=0.3)))
async def use(tool: str, subject: str) -> str:
    """One call of a tool that changes something in the world."""
    answer = await post(f"{OFFICE}/{tool}", {"subject": subject}, holdfast.idempotency_key())
    return str(answer["done"])


async def researcher(subject: str) -> str:
    """Runs next to another one; its steps are its own."""
    question = await think(f"question on {subject}")
    await use("search", subject)
    await use("archive", subject)
    return await think(f"notes on {subject}: {question}")


@holdfast.step
async def publish(text: str) -> str:
    """A tool made of three steps: it resumes inside."""
    page = await use("page", text)
    await use("pictures", page)
    await use("announce", page)
    return page


@holdfast.workflow
async def report(topic: str) -> str:
    await think(f"plan a report on {topic}")
    notes = await asyncio.gather(researcher("night trains"), researcher("short flights"))
    draft = await think(f"draft from {len(notes)} notes")
    final = await think(f"critique of: {draft}")
    decision = await holdfast.approval("release", final)
    if not decision.approved:
        return f"declined by {decision.by}"
    page = await publish(final)
    await think(f"subject line for {page}")
    await use("mail", page)
    await invoice(page)
    return page


async def invoice(page: str) -> str:
    if SABOTAGED:  # not a step: nothing remembers that it was sent
        answer = await post(f"{OFFICE}/invoice", {"subject": page}, key=None)
        return str(answer["done"])
    return await use("invoice", page)
