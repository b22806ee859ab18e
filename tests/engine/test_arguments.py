"""A step that changes what it was given is pointed out: in tests, and when a run diverges."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import pytest

import holdfast
from holdfast.testing import Environment, NotDurable, crash_everywhere

CHANGES = pytest.mark.filterwarnings("ignore:step .* changed its argument:holdfast.ReplayWarning")


@dataclass
class State:
    notes: list[str] = field(default_factory=list)


@holdfast.step
async def add(items: list[str], item: str) -> None:
    items.append(item)


@holdfast.step
async def add_to_state(state: State) -> None:
    state.notes.append("new")


@holdfast.step
async def spoil(items: list[Any]) -> None:
    items.append(object())  # which cannot be recorded


@holdfast.step
async def count(items: list[str]) -> int:
    return len(items)


@holdfast.step
async def read(state: dict[str, Any]) -> int:
    return len(state)


@holdfast.workflow
async def adds() -> int:
    items = ["one"]
    await add(items, "two")
    return await count(items)


async def diverged(workflow: holdfast.Workflow[[], Any]) -> str:
    with pytest.raises(NotDurable, match="diverged") as caught:
        await crash_everywhere(workflow)
    return str(caught.value)


@CHANGES
async def test_a_divergence_names_the_step_that_may_have_changed_its_argument_in_place() -> None:
    said = await diverged(adds)
    assert """'items' was ["one","two"] and is now ["one"].""" in said
    assert "/add#0 was given just that" in said and "in place" in said


@CHANGES
async def test_it_is_found_inside_of_other_arguments_too() -> None:
    @holdfast.workflow
    async def adds_inside() -> int:
        notes: list[str] = ["ö"]
        await count(["other"])
        await add(notes, "two")
        return await read({"notes": notes, "more": [1, 2]})

    said = await diverged(adds_inside)
    assert "/add#0 was given just that" in said and "/count#0 was" not in said


async def test_a_divergence_of_another_cause_accuses_no_step() -> None:
    luck = iter(range(100))

    @holdfast.workflow
    async def wanders() -> int:
        await count(["same"])
        return await count([f"lucky {next(luck)}"])

    said = await diverged(wanders)
    assert "'items' was [" in said and "was given just that" not in said


@CHANGES
async def test_without_recorded_arguments_the_divergence_is_told_all_the_same() -> None:
    @holdfast.step(journal_input=False)
    async def secret(items: list[str]) -> int:
        return len(items)

    @holdfast.workflow
    async def keeps_secrets() -> int:
        items = ["one"]
        await add(items, "two")
        return await secret(items)

    assert "a step changed in place" in await diverged(keeps_secrets)


async def changes(workflow: holdfast.Workflow[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        async with Environment([workflow]) as env:
            await env.result(await env.start(workflow))
    assert all(w.filename == __file__ for w in caught)
    return [str(w.message) for w in caught if w.category is holdfast.ReplayWarning]


async def test_in_tests_a_step_that_changes_its_argument_is_pointed_out_at_once() -> None:
    @holdfast.workflow
    async def changes_state() -> None:
        await add_to_state(State())

    @holdfast.workflow
    async def spoils() -> None:
        await spoil(["one"])

    expected: list[tuple[holdfast.Workflow[[], Any], str]] = [
        (adds, "/add#0 changed its argument 'items'"),
        (changes_state, "/add_to_state#0 changed its argument 'state'"),
        (spoils, "/spoil#0 changed its argument 'items'"),
    ]
    for workflow, what in expected:
        [said] = await changes(workflow)
        assert what in said


async def test_a_step_that_leaves_its_arguments_alone_is_not_pointed_out() -> None:
    @holdfast.workflow
    async def counts() -> int:
        return await count(["one"]) + await read({"a": [1], "b": {2, 3}})

    assert await changes(counts) == []


async def test_arguments_of_one_name_are_two() -> None:
    taken = ["alice"]

    @holdfast.step
    async def greet(name: str, /, **more: str) -> str:
        return f"{name} {more}"

    @holdfast.workflow
    async def greets() -> str:
        greeting = await greet(taken[0], name="other")
        await holdfast.sleep(1)
        return greeting

    async with Environment([greets]) as env:
        run = await env.start(greets)
        await env.settle()
        taken[0] = "bob"
        with pytest.raises(holdfast.RunHalted, match="other arguments"):
            await env.result(run)
