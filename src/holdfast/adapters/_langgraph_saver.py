"""A graph's own checkpointer inside of runs.

To a run the journal says where it is. A checkpointer that went on with the run would give a replay
a later state than it began with: messages would double and steps be counted from elsewhere. So a
graph reads its thread once, in a step, goes on in memory, and writes what came of it into its
checkpointer at its end, in a step again. Checkpoints have the same ids on every replay, so that to
write them twice changes nothing.

Not guaranteed: that somebody who reads the thread meanwhile sees how far the run is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from langchain_core.runnables.config import var_child_runnable_config
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver

import holdfast
from holdfast.adapters._shared import as_step

_CONF = "configurable"
_SAVER = "__pregel_checkpointer"


def lent(graph: Any, config: Any) -> tuple[Any, Scratch | None]:
    """The config under which a graph works on a copy of its thread, and that copy."""
    own = graph.checkpointer
    conf = (config or {}).get(_CONF, {})
    if not isinstance(own, BaseCheckpointSaver) or _SAVER in conf:
        return config, None
    others = (graph.config, var_child_runnable_config.get())
    if not conf and not any((one or {}).get(_CONF) for one in others):
        return config, None  # LangGraph says that a thread's id is missing
    deltas = [name for name, c in graph.channels.items() if isinstance(c, DeltaChannel)]
    if deltas:
        raise holdfast.Unsupported(
            f"{graph.name!r} has a checkpointer and DeltaChannels ({', '.join(deltas)}), whose "
            "values are spread over its checkpoints: annotate them with a reducer"
        )
    scratch = Scratch(own)
    return {**(config or {}), _CONF: {**conf, _SAVER: scratch}}, scratch


class Scratch(InMemorySaver):
    def __init__(self, own: BaseCheckpointSaver[Any]) -> None:
        super().__init__()
        self._own = own
        self._read: set[tuple[str, str, str | None]] = set()
        self._is_new = False
        self._written: list[tuple[str, tuple[Any, ...]]] = []

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self._own.get_next_version(current, channel)

    async def aget_tuple(self, config: Any) -> CheckpointTuple | None:
        conf = config[_CONF]
        thread, ns = str(conf["thread_id"]), str(conf.get("checkpoint_ns", ""))
        asked = (thread, ns, conf.get("checkpoint_id"))
        known = super().get_tuple(config)
        if known is not None or asked in self._read or self._is_new:
            return known
        self._read.add(asked)
        plain = {_CONF: {k: v for k, v in conf.items() if not k.startswith("__")}}

        async def read() -> Any:
            return _packed(await _either(self._own.aget_tuple, self._own.get_tuple, plain))

        found = await as_step("checkpoint", read, shown=list(asked))
        if found is None:
            self._is_new = not ns  # nothing is known of the thread, nor of the graphs inside
            return None
        self._seed(thread, ns, found)
        return super().get_tuple(config)

    def _seed(self, thread: str, ns: str, found: dict[str, Any]) -> None:
        place: Any = {_CONF: {"thread_id": thread, "checkpoint_ns": ns}}
        if found["parent"] is not None:
            place[_CONF]["checkpoint_id"] = found["parent"]
        checkpoint: Any = dict(found["checkpoint"])
        versions = checkpoint["channel_versions"]
        here = super().put(place, checkpoint, found["metadata"], versions)
        for task, channel, value in found["writes"]:
            super().put_writes(here, [(channel, value)], task)

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        given = (_plain(config), dict(checkpoint), metadata, new_versions)
        self._written.append(("put", given))
        return super().put(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: Any, writes: Any, task_id: str, task_path: str = ""
    ) -> None:
        self._written.append(("put_writes", (_plain(config), list(writes), task_id, task_path)))
        super().put_writes(config, writes, task_id, task_path)

    async def flush(self) -> None:
        """Writes all of it into the checkpointer of the graph."""
        written, self._written = self._written, []
        if not written:
            return
        if isinstance(self._own, InMemorySaver):
            # It dies with its process, and a replay has to fill it again.
            for name, given in written:
                getattr(self._own, name)(*given)
            return

        async def write() -> None:
            for name, given in written:
                await _either(getattr(self._own, f"a{name}"), getattr(self._own, name), *given)

        await as_step("checkpoints", write)


async def _either(
    asynchronous: Callable[..., Awaitable[Any]], sync: Callable[..., Any], *given: Any
) -> Any:
    """Some checkpointers are only sync."""
    try:
        return await asynchronous(*given)
    except NotImplementedError:
        return await asyncio.to_thread(sync, *given)


def _plain(config: Any) -> Any:
    return {_CONF: {k: v for k, v in config[_CONF].items() if not k.startswith("__")}}


def _packed(found: CheckpointTuple | None) -> dict[str, Any] | None:
    if found is None:
        return None
    parent: Any = found.parent_config or {}
    return {
        "checkpoint": dict(found.checkpoint),
        "metadata": dict(found.metadata),
        "parent": parent.get(_CONF, {}).get("checkpoint_id"),
        "writes": [list(write) for write in found.pending_writes or ()],
    }
