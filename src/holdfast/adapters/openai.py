"""OpenAI's own clients, for loops that you write yourself.

    client = durable(AsyncOpenAI())

Each call of the client inside a run is a step, streamed ones too; see _http.py. Outside of runs it
is the client that it was.
"""

from __future__ import annotations

from typing import TypeVar

import openai

import holdfast
from holdfast.adapters._http import check_hooks, durable_client

C = TypeVar("C", openai.OpenAI, openai.AsyncOpenAI)


_TESTED = "3.49.0"


def durable(client: C, *, retry: holdfast.Retry | None = None, explain: bool = False) -> C:
    """retry: what to do when a call fails, instead of the engine's own policy. explain: prints what
    will be journaled."""
    check_hooks("openai", _TESTED, client)
    return durable_client(client, retry, explain)
