"""What becomes of a workflow or a durable agent, in this process."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import holdfast


async def result_of(workflow: Any, *args: Any) -> Any:
    async with holdfast.Holdfast(":memory:", workflows=[workflow]) as app:
        run = await app.start(workflow, *args)
        return await asyncio.wait_for(run.result(), 120)


async def cause_of(workflow: Any, *args: Any) -> BaseException:
    with pytest.raises(holdfast.RunFailed) as failed:
        await result_of(workflow, *args)
    assert failed.value.__cause__ is not None
    return failed.value.__cause__


async def asked(app: holdfast.Holdfast, run: str, *, but: str = "") -> Any:
    """A promise that the run waits for, of another name than `but`."""
    async with asyncio.timeout(120):
        while True:
            found = [one for one in await app.promises(run) if one.name != but]
            if found:
                return found[0]
            await asyncio.sleep(0.001)
