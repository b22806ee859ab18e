"""What a rerun forgets, and what it keeps."""

from __future__ import annotations

import holdfast
from holdfast.types import Kind


class Down(Exception):
    pass


down = True
log: list[str] = []
ONCE = holdfast.Retry(attempts=1)


@holdfast.step(retry=ONCE)
async def act(name: str) -> str:
    log.append(name)
    if down and name.startswith("bad"):
        raise Down(name)
    return name


@holdfast.step(retry=ONCE)
async def tool() -> list[str]:
    return [await act("inner"), await act("bad inner")]


@holdfast.workflow
async def handles_one_failure_and_dies_of_another() -> list[str]:
    done = [await act("first")]
    try:
        await act("bad but handled")
    except Down:
        done.append(await act("instead"))
    try:
        done += await tool()
    except Down:
        await act("clean up")
        raise
    return done


async def test_a_rerun_goes_on_at_the_step_that_failed_and_repeats_nothing_else() -> None:
    global down
    down = True
    log.clear()
    workflows = [handles_one_failure_and_dies_of_another]
    async with holdfast.Holdfast("sqlite://:memory:", workflows=workflows) as app:
        run = await app.start(handles_one_failure_and_dies_of_another)
        try:
            await run.result()
        except holdfast.RunFailed as error:
            assert isinstance(error.__cause__, Down)
        assert log == [
            "first",
            "bad but handled",
            "instead",
            "inner",
            "bad inner",
            "clean up",
        ]
        down = False
        log.clear()
        again = await run.rerun()
        assert await again.result() == ["first", "instead", "inner", "bad inner"]
        assert log == ["bad inner"]
        failed = [e.key for e in await run.history() if e.kind is Kind.STEP and e.failed]
        assert failed == ["/act#1"], "a failure that the workflow dealt with stays as it was"
