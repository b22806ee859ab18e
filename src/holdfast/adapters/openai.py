"""OpenAI's own clients, for loops that you write yourself.

    client = durable(AsyncOpenAI())

Each call of the client inside a run is a step, streamed ones too; see _http.py. Outside of runs it
is the client that it was.
"""

from __future__ import annotations

from typing import TypeVar

import openai

import holdfast
from holdfast.adapters._http import durable_client

C = TypeVar("C", openai.OpenAI, openai.AsyncOpenAI)


def durable(client: C, *, retry: holdfast.Retry | None = None) -> C:
    """retry: what to do when a call fails, instead of the engine's own policy."""
    return durable_client(client, retry)
