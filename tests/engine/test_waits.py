"""Waits: timers, promises, messages and races, across crashes and out of memory."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import holdfast
from holdfast import Decision, FakeClock, Status, WorkerOptions
from holdfast.testing import Environment, crash_everywhere
from holdfast.types import Kind

DAY = timedelta(days=1)
LEAVES_AT_ONCE = WorkerOptions(memory_wait=timedelta(0))


@holdfast.step
async def note(text: str) -> str:
    return text


# Timers


@pytest.mark.parametrize("how", ["holdfast", "asyncio"])
async def test_a_sleep_has_an_absolute_deadline_that_crashes_do_not_prolong(how: str) -> None:
    @holdfast.workflow
    async def sleeps(how: str) -> str:
        await (holdfast.sleep(DAY) if how == "holdfast" else asyncio.sleep(86_400))
        return await note("awake")

    async with Environment([sleeps]) as env:
        run = await env.start(sleeps, how)
        await env.advance(DAY / 2)
        await env.crash()
        await env.advance(DAY / 2 - timedelta(seconds=1))
        assert await run.status() is not Status.COMPLETED
        await env.crash()
        await env.advance(timedelta(seconds=1))
        assert await run.result() == "awake"
        assert env.clock.now() == (await env.app.row(run.id)).ended_at


async def test_sleep_until_waits_for_a_point_in_time() -> None:
    @holdfast.workflow
    async def sleeps(when: datetime) -> datetime:
        await holdfast.sleep_until(when)
        return holdfast.now()

    async with Environment([sleeps]) as env:
        when = datetime(2026, 2, 3, 4, 5, tzinfo=UTC)
        assert await env.result(await env.start(sleeps, when)) == when
        long_ago = datetime(1999, 1, 1, tzinfo=UTC)
        assert await env.result(await env.start(sleeps, long_ago)) == when


async def test_a_point_in_time_is_the_same_in_a_step_that_has_taken_a_while() -> None:
    @holdfast.step
    async def sleeps(when: datetime) -> None:
        if len(env.started) == 1:  # it is entered again when the time has come
            assert isinstance(env.clock, FakeClock)
            env.clock.advance(timedelta(hours=1))
        await holdfast.sleep_until(when)

    @holdfast.workflow
    async def works(when: datetime) -> datetime:
        await sleeps(when)
        return holdfast.now()

    async with Environment([works]) as env:
        when = datetime(2026, 2, 3, 4, 5, tzinfo=UTC)
        assert await env.result(await env.start(works, when)) == when


@pytest.mark.parametrize("bad", [timedelta(seconds=-1), -0.5, float("nan"), float("inf")])
async def test_a_sleep_that_makes_no_sense_is_refused(bad: Any) -> None:
    @holdfast.workflow
    async def sleeps() -> None:
        await holdfast.sleep(bad)

    async with Environment([sleeps]) as env:
        with pytest.raises(holdfast.RunFailed) as failed:
            await env.result(await env.start(sleeps))
    assert isinstance(failed.value.__cause__, holdfast.BadValue)


async def test_a_durable_wait_outside_of_a_run_is_refused() -> None:
    with pytest.raises(holdfast.NotInRun, match="inside a workflow"):
        holdfast.sleep(1)


async def test_a_sleep_inside_a_step_survives_a_crash_too() -> None:
    @holdfast.step
    async def naps() -> str:
        await holdfast.sleep(DAY)
        return await note("awake")

    @holdfast.workflow
    async def has_it_nap() -> str:
        return await naps()

    async with Environment([has_it_nap]) as env:
        run = await env.start(has_it_nap)
        await env.advance(DAY / 2)
        await env.crash()
        await env.advance(DAY / 2)
        assert await run.result() == "awake"
    assert (await crash_everywhere(has_it_nap)).result == "awake"


# Promises and approvals


@holdfast.workflow
async def awaits_an_answer() -> int:
    await note("before")
    return await holdfast.promise("answer", int)


@pytest.mark.parametrize("options", [LEAVES_AT_ONCE, WorkerOptions()], ids=["out", "in memory"])
async def test_a_promise_is_answered_while_it_is_awaited(options: WorkerOptions) -> None:
    async with Environment([awaits_an_answer], worker_options=options) as env:
        run = await env.start(awaits_an_answer)
        await env.settle()
        (promise,) = await env.app.promises(run.id)
        assert (promise.name, promise.kind, promise.resolved) == ("answer", "promise", False)
        await run.resolve("answer", 42)
        assert await env.result(run) == 42
        (promise,) = await env.app.promises(run.id)
        assert promise.resolved


async def test_a_promise_can_be_answered_before_it_is_awaited() -> None:
    @holdfast.workflow
    async def opens_late() -> int:
        await holdfast.sleep(DAY)
        return await holdfast.promise("answer", int)

    async with Environment([opens_late]) as env:
        run = await env.start(opens_late)
        await env.settle()
        with pytest.raises(holdfast.UnknownPromise, match="early=True"):
            await run.resolve("answer", 42)
        await run.resolve("answer", 42, early=True)
        assert await env.result(run) == 42


@pytest.mark.parametrize("answer", [None, 1, "text", [1, {"a": 2}], Decision(True)])
async def test_a_promise_of_no_type_takes_any_answer(answer: object) -> None:
    @holdfast.workflow
    async def takes_anything() -> Any:
        return await holdfast.promise("anything")

    async with Environment([takes_anything]) as env:
        run = await env.start(takes_anything)
        await env.settle()
        await run.resolve("anything", answer)
        assert await env.result(run) == answer


async def test_the_first_answer_stands() -> None:
    async with Environment([awaits_an_answer]) as env:
        run = await env.start(awaits_an_answer)
        await env.settle()
        await run.resolve("answer", 1)
        with pytest.raises(holdfast.AlreadyResolved):
            await run.resolve("answer", 2)
        assert await env.result(run) == 1


async def test_an_answer_of_the_wrong_type_is_refused_and_changes_nothing() -> None:
    async with Environment([awaits_an_answer]) as env:
        run = await env.start(awaits_an_answer)
        await env.settle()
        with pytest.raises(holdfast.BadValue):
            await run.resolve("answer", "forty-two")
        await run.resolve("answer", 42)
        assert await env.result(run) == 42


async def test_one_promise_name_in_two_places_is_refused() -> None:
    @holdfast.workflow
    async def opens_twice() -> None:
        holdfast.promise("answer", int)
        holdfast.promise("answer", int)

    async with Environment([opens_twice]) as env:
        with pytest.raises(holdfast.RunFailed) as failed:
            await env.result(await env.start(opens_twice))
    assert isinstance(failed.value.__cause__, holdfast.PromiseReused)


@holdfast.workflow
async def asks_for_release(draft: str) -> str:
    approval = holdfast.approval("release", draft)
    match await holdfast.race(decision=approval, expired=holdfast.sleep(2 * DAY)):
        case "decision", Decision(approved=True, by=who):
            return await note(f"released by {who}")
        case "decision", Decision(comment=comment):
            return f"declined: {comment}"
        case _:
            return "nobody answered"


@pytest.mark.parametrize(
    ("decision", "outcome"),
    [
        (Decision(True, by="ann"), "released by ann"),
        (Decision(False, comment="too long"), "declined: too long"),
        (None, "nobody answered"),
    ],
)
async def test_an_approval_races_against_a_timer(decision: Decision | None, outcome: str) -> None:
    answers = {"release": decision} if decision else None
    assert (await crash_everywhere(asks_for_release, "draft", answers=answers)).result == outcome


async def test_an_approval_shows_its_prompt_and_how_to_answer_it() -> None:
    async with Environment([asks_for_release], worker_options=LEAVES_AT_ONCE) as env:
        run = await env.start(asks_for_release, "the draft")
        await env.settle()
        (promise,) = await env.app.promises(run.id)
        assert b"the draft" in (promise.prompt or b"")
        why = await run.why()
    assert "the approval 'release'" in why
    assert "'release' asks \"the draft\"." in why
    assert f"holdfast resolve {run.id} release --approve" in why


async def test_promises_say_what_they_ask_until_they_are_answered() -> None:
    @holdfast.workflow
    async def asks_much() -> list[Any]:
        about: Any = holdfast.promise("about", str, prompt={"title of": ["owls", "bats"]})
        others = [holdfast.promise(f"n{n}", int, prompt="x" * 10_000) for n in range(5)]
        return [await one for one in (about, *others)]

    async with Environment([asks_much], worker_options=LEAVES_AT_ONCE) as env:
        run = await env.start(asks_much)
        await env.settle()
        why = await run.why()
        assert '\'about\' asks {"title of":["owls","bats"]}.' in why
        assert "'n3' asks \"xxx" in why and "So do 1 more." in why
        assert len(why) < 5000
        await run.resolve("about", "Owls")
        await env.settle()
        why = await run.why()
        assert "'about' asks" not in why and "'n4' asks" in why


async def test_a_question_may_be_put_in_other_words_while_it_is_open() -> None:
    prompts: list[Any] = [None]

    @holdfast.workflow
    async def counts() -> int:
        number = holdfast.promise("n", int, prompt=prompts[-1])
        await holdfast.promise("go on")
        return await number

    async with Environment([counts], worker_options=LEAVES_AT_ONCE) as env:
        run = await env.start(counts)
        await env.settle()
        assert "asks" not in await run.why()
        prompts.append("How many?")  # by a newer version of the program
        await run.resolve("go on", None)
        await env.settle()
        assert "'n' asks \"How many?\"." in await run.why()
        prompts.append("How many then?")
        await run.resolve("n", 3)
        assert await env.result(run) == 3


async def test_a_prompt_that_cannot_be_recorded_is_refused() -> None:
    @holdfast.workflow
    async def asks() -> int:
        return await holdfast.promise("n", int, prompt=object())

    async with Environment([asks]) as env:
        with pytest.raises(holdfast.RunFailed) as failed:
            await env.result(await env.start(asks))
    assert isinstance(failed.value.__cause__, holdfast.NotEncodable)
    assert "the prompt of promise 'n'" in str(failed.value.__cause__)


async def test_a_promise_that_lost_a_race_stays_open_and_can_be_awaited_again() -> None:
    @holdfast.workflow
    async def asks_again() -> tuple[str, int]:
        answer = holdfast.promise("answer", int)
        first, _ = await holdfast.race(answer=answer, late=holdfast.sleep(DAY))
        return first, await answer

    async with Environment([asks_again]) as env:
        run = await env.start(asks_again)
        await env.advance(2 * DAY)
        await run.resolve("answer", 7)
        assert await env.result(run) == ("late", 7)
    report = await crash_everywhere(asks_again, answers={"answer": 7})
    assert report.result == ("answer", 7)


# Races


async def test_a_step_that_lost_a_race_is_cancelled_and_recorded_as_abandoned() -> None:
    cancelled = asyncio.Event()

    @holdfast.step
    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    @holdfast.workflow
    async def races() -> str:
        winner, _ = await holdfast.race(slow=endless(), quick=note("quick"))
        return winner

    async with Environment([races]) as env:
        run = await env.start(races)
        assert await env.result(run) == "quick"
        assert cancelled.is_set()
        abandoned = [e.key for e in await run.history() if e.kind is Kind.ABANDONED]
    assert [key.rpartition("/")[2] for key in abandoned] == ["endless#0"]


async def test_a_race_takes_a_duration_for_a_timer_and_needs_a_contender() -> None:
    @holdfast.workflow
    async def races() -> str:
        with pytest.raises(holdfast.BadValue):
            holdfast.race()
        winner, _ = await holdfast.race(answer=holdfast.promise("answer"), late=DAY)
        return winner

    assert (await crash_everywhere(races)).result == "late"


async def test_the_error_of_the_winner_is_raised() -> None:
    @holdfast.step
    async def fails() -> None:
        raise ValueError("lost by winning")

    @holdfast.workflow
    async def races() -> str:
        try:
            await holdfast.race(bad=fails(), late=holdfast.sleep(DAY))
        except ValueError as error:
            return str(error)
        return "no error"

    assert (await crash_everywhere(races)).result == "lost by winning"


# Messages


async def test_messages_come_in_order_and_channels_are_kept_apart() -> None:
    @holdfast.workflow
    async def listens() -> list[Any]:
        heard: list[Any] = [await holdfast.receive(int), await holdfast.receive(int)]
        heard.append(await holdfast.receive(str, channel="aside"))
        heard.append(await holdfast.receive(int))
        return heard

    async with Environment([listens], worker_options=LEAVES_AT_ONCE) as env:
        run = await env.start(listens)
        await run.send("psst", channel="aside")
        for number in (1, 2, 3):
            await run.send(number)
        await env.crash()
        assert await env.result(run) == [1, 2, "psst", 3]
    await crash_everywhere(awaits_two, messages=["a", "b", "c"])


@holdfast.workflow
async def awaits_two() -> str:
    return await holdfast.receive(str) + await note("-") + await holdfast.receive(str)


async def test_a_message_that_came_too_late_for_one_waiter_is_for_the_next() -> None:
    @holdfast.workflow
    async def listens() -> list[Any]:
        heard: list[Any] = []
        for _ in range(3):
            try:
                async with asyncio.timeout(60):
                    heard.append(await holdfast.receive(str))
            except TimeoutError:
                heard.append(None)
        return heard

    async with Environment([listens]) as env:
        run = await env.start(listens)
        await env.advance(timedelta(seconds=70))
        await run.send("hello")
        assert await env.result(run) == [None, "hello", None]
    await crash_everywhere(listens, messages=["hello"])
