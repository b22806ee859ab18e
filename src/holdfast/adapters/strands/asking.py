"""Interrupts as durable waits: each is a promise, named by what raised it and the id of the call.

`app.resolve` gives what the `interruptResponse` would. All are asked for before the first is
awaited, so that they can be answered in any order.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import holdfast
from holdfast.adapters._questions import question
from holdfast.adapters._shared import under_free_name


async def answers(interrupts: Iterable[Any], nodes: Iterable[str] = ()) -> list[dict[str, Any]]:
    """What to resume with. nodes: their names, in a graph or swarm."""
    known = {str(uuid.uuid5(uuid.NAMESPACE_OID, name)): name for name in nodes}
    asked = [(one, under_free_name(_name(one, known), _ask(one))) for one in interrupts]
    return [
        {"interruptResponse": {"interruptId": one.id, "response": _said(await promise)}}
        for one, promise in asked
    ]


def _ask(interrupt: Any) -> Callable[[str], Any]:
    asked = interrupt.name if interrupt.reason is None else interrupt.reason
    return lambda name: holdfast.promise(name, prompt=question(asked))


def _said(answer: Any) -> Any:
    return False if answer is None else answer  # Strands takes None for no answer yet


def _name(interrupt: Any, nodes: Mapping[str, str]) -> str:
    """Of an id `v1:<what raised it>:<id of the call, or digest of the node>:<digest of the name>`,
    perhaps behind that of a call of an agent as a tool."""
    _, _, last = str(interrupt.id).rpartition("v1:")
    _, _, rest = last.partition(":")
    where, _, _ = rest.rpartition(":")
    where = nodes.get(where, where)
    return f"{interrupt.name}:{where}" if where else str(interrupt.name)
