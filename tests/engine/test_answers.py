"""Typed waits, answered by whoever has only plain data, or only the class."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from pydantic import BaseModel, HttpUrl, field_validator

import holdfast
from holdfast import Decision, Status, WorkerOptions
from holdfast.testing import Environment, crash_everywhere
from holdfast.types import Kind

STAYS = WorkerOptions(memory_wait=timedelta(hours=1))
LATER = timedelta(minutes=1)
"""A run that begins then has not asked for anything when it is answered."""


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass
class Line:
    name: str
    size: Size = Size.SMALL
    price: Decimal = Decimal("1.50")


@dataclass
class Order:
    lines: list[Line]
    due: date | None = None
    id: UUID = field(default_factory=uuid4)  # another one each time it is made


class Shipment(BaseModel):
    to: HttpUrl
    at: datetime
    path: Path = Path("x")
    line: Line | None = None

    @field_validator("path")
    @classmethod
    def mark(cls, path: Path) -> Path:
        return Path(f"{path}+")  # not idempotent: it must not run twice


ORDER = {"lines": [{"name": "a", "size": "l", "price": "2.5"}], "due": "2026-01-31"}
SHIPMENT = {"to": "https://x.org/", "at": "2026-01-31T08:00:00Z", "path": "x"}


@holdfast.step
async def note(text: str) -> str:
    return text


@holdfast.workflow
async def takes_an_order() -> Order:
    await note("before")
    order = await holdfast.promise("order", Order)
    assert type(order) is Order and type(order.lines[0]) is Line
    await note(f"{order}")  # another order would be another argument
    return order


@holdfast.workflow
async def ships() -> list[Any]:
    first = await holdfast.promise("shipment", Shipment)
    then = await holdfast.receive(Shipment | Order)
    await note(f"{first!r} {then!r}")
    return [repr(first), repr(then)]


@holdfast.workflow
def ships_in_a_thread() -> str:
    line = holdfast.promise("line", Line).result()
    return f"{line} {holdfast.receive(dict[date, Size]).result()}"


async def test_a_promise_of_a_class_is_answered_with_plain_data() -> None:
    async with Environment([takes_an_order]) as env:
        run = await env.start(takes_an_order)
        await env.settle()
        await run.resolve("order", ORDER)
        order = await env.result(run)
        assert order.lines == [Line("a", Size.LARGE, Decimal("2.5"))]
        assert order.due == date(2026, 1, 31)


async def test_the_body_sees_the_same_value_after_a_crash_at_every_position() -> None:
    report = await crash_everywhere(takes_an_order, answers={"order": ORDER})
    assert report.result.lines == [Line("a", Size.LARGE, Decimal("2.5"))]
    report = await crash_everywhere(
        ships, answers={"shipment": SHIPMENT}, messages=[{"lines": [{"name": "b"}]}]
    )
    assert "PosixPath('x+')" in report.result[0] and "Line(name='b'" in report.result[1]
    report = await crash_everywhere(
        ships_in_a_thread, answers={"line": {"name": "c"}}, messages=[{"2026-01-31": "SMALL"}]
    )
    assert "Line(name='c'" in report.result and "SMALL" in report.result


@dataclass
class Ticket:
    id: UUID = field(default_factory=holdfast.uuid4)
    at: datetime = field(default_factory=holdfast.now)


@holdfast.workflow
async def numbers_tickets() -> list[str]:
    first = holdfast.uuid4(), await holdfast.promise("ticket", Ticket), holdfast.uuid4()
    then = await holdfast.receive(Ticket), holdfast.uuid4(), holdfast.now()
    return [await note(f"{one}") for one in (*first, *then)]


async def test_what_a_class_makes_of_an_answer_takes_no_place_in_the_journal() -> None:
    await crash_everywhere(numbers_tickets, answers={"ticket": {}}, messages=[{}])


async def test_the_journal_holds_the_value_and_not_the_plain_data() -> None:
    async with Environment([takes_an_order]) as env:
        run = await env.start(takes_an_order)
        await env.settle()
        await run.resolve("order", ORDER)
        order = await env.result(run)
        (answer,) = [e for e in await run.history() if e.kind is Kind.PROMISE]
        assert str(order.id) in (answer.output or b"").decode()


async def test_it_is_answered_with_an_instance_of_a_class_that_nobody_registered() -> None:
    sent = Shipment(
        to=HttpUrl("https://x.org"), at=datetime(2026, 1, 31, tzinfo=UTC), path=Path("y")
    )
    order = Order([Line("a")])

    @holdfast.workflow
    async def takes_instances() -> str:
        one = await holdfast.promise("one", Shipment)
        many = await holdfast.promise("many", list[Order])
        return repr([one, many, await holdfast.receive(Order | None)])

    async with Environment([takes_instances]) as env:
        run = await env.start(takes_instances)
        await env.settle()
        await run.resolve("one", sent)
        await env.settle()
        await run.resolve("many", [order])
        await run.send(order)
        assert await env.result(run) == repr([sent, [order], order])


def test_the_sync_door_takes_instances_too(tmp_path: Path) -> None:
    app = holdfast.Holdfast(f"sqlite:///{tmp_path}/a.db", workflows=[takes_an_order])
    order = Order([Line("a")])
    with app.sync() as door:
        run = door.start(takes_an_order)
        run.resolve("order", order, early=True)
        assert run.result() == order


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({}, "the value lacks the field 'lines' of .*:Order"),
        ({"lines": [{"name": "a", "size": "xl"}]}, r'value.lines\[0\].size is "xl".*"s", "l"'),
        ({"lines": [], "due": "tomorrow"}, 'value.due is "tomorrow", awaited is a date such as'),
        ({"lines": [], "do": 1}, "a field 'do', which .*:Order does not have"),
        (Line("a"), "the value is a .*:Line, awaited is a.* .*:Order"),
        ("order", "the value is a string, awaited is a.* .*:Order, or an object with its fields"),
    ],
)
async def test_a_wrong_answer_is_refused_at_the_client_and_the_promise_stays_open(
    answer: object, said: str
) -> None:
    async with Environment([takes_an_order]) as env:
        run = await env.start(takes_an_order)
        await env.settle()
        with pytest.raises(holdfast.BadValue, match=said):
            await run.resolve("order", answer)
        (promise,) = await env.app.promises(run.id)
        assert not promise.resolved
        await run.resolve("order", {"lines": [{"name": "a"}]})
        assert (await env.result(run)).lines == [Line("a")]


async def test_a_client_without_the_classes_answers_too() -> None:
    async with Environment([takes_an_order]) as env:
        run = await env.start(takes_an_order)
        await env.settle()
        client = holdfast.Holdfast(env.store, worker=False, clock=env.clock)
        client._parts.store, client._parts.loop = env.app.store, asyncio.get_running_loop()
        with pytest.raises(holdfast.BadValue, match="lacks the field 'lines'"):
            await client.resolve(run.id, "order", {"due": "2026-01-31"})
        await client.resolve(run.id, "order", ORDER)
        assert (await env.result(run)).due == date(2026, 1, 31)


async def test_an_approval_is_answered_with_plain_data() -> None:
    @holdfast.workflow
    async def asks() -> str:
        return repr(await holdfast.approval("release"))

    async with Environment([asks]) as env:
        run = await env.start(asks)
        await env.settle()
        with pytest.raises(holdfast.BadValue, match=r"value\.approved is"):
            await run.resolve("release", {"approved": "yes"})
        await run.resolve("release", {"approved": True, "by": "ann"})
        assert await env.result(run) == repr(Decision(True, "ann"))


# Answers that come before their type is known


@pytest.mark.parametrize("stays", [True, False], ids=["in memory", "suspended"])
@pytest.mark.parametrize("inside", [True, False], ids=["in a step", "in the body"])
async def test_an_early_answer_that_does_not_fit_is_refused_by_the_run_which_waits_for_another(
    stays: bool, inside: bool
) -> None:
    @holdfast.step
    async def asks() -> str:
        return (await holdfast.promise("line", Line)).name

    @holdfast.workflow
    async def waits() -> str:
        await note("before")
        return await asks() if inside else (await holdfast.promise("line", Line)).name

    async with Environment([waits], worker_options=STAYS if stays else None) as env:
        run = await env.app.with_options(delay=LATER).start(waits)
        await run.resolve("line", {"nome": "a"}, early=True)
        await env.advance(LATER)
        (promise,) = await env.app.promises(run.id)
        assert not promise.resolved
        why = await run.why()
        assert "An answer was refused" in why and "a field 'nome'" in why
        assert f"holdfast resolve {run.id} line" in why
        await env.crash()
        await env.settle()
        await run.resolve("line", {"name": "b"})
        await env.settle()
        assert await env.result(run) == "b"
        assert "refused" not in await run.why()
        kinds = [e.kind for e in await run.history() if e.key.endswith("/promise:line#0")]
        assert kinds == [Kind.REFUSED, Kind.PROMISE]


async def test_an_answer_is_refused_once_however_often_the_worker_dies_meanwhile() -> None:
    @holdfast.workflow
    async def waits() -> str:
        return (await holdfast.promise("line", Line)).name

    async with Environment([waits]) as env:
        run = await env.app.with_options(delay=LATER).start(waits)
        await run.resolve("line", [1], early=True)
        await env.crash()
        await env.advance(LATER)
        for _ in range(3):
            await env.crash()
            await env.settle()
        assert await run.status() is Status.WAITING
        await run.resolve("line", {"name": "c"})
        assert await env.result(run) == "c"
        kinds = [e.kind for e in await run.history()]
        assert kinds.count(Kind.REFUSED) == 1


async def test_what_only_the_class_can_tell_is_refused_by_the_run() -> None:
    class Even(BaseModel):
        n: int

        @field_validator("n")
        @classmethod
        def is_even(cls, n: int) -> int:
            if n % 2:
                raise asyncio.CancelledError if n < 0 else ValueError("odd")
            return n

    @holdfast.workflow
    async def waits() -> int:
        return (await holdfast.promise("n", Even)).n

    async with Environment([waits]) as env:
        run = await env.start(waits)
        await env.settle()
        await run.resolve("n", {"n": 3})
        await env.settle()
        assert "Value error, odd" in await run.why()
        await run.resolve("n", {"n": -1})
        await env.settle()
        assert "CancelledError" in await run.why()
        await run.resolve("n", {"n": 4})
        assert await env.result(run) == 4


async def test_a_race_that_the_refused_answer_was_in_goes_on() -> None:
    @holdfast.workflow
    async def races() -> str:
        match await holdfast.race(
            line=holdfast.promise("line", Line), expired=holdfast.sleep(timedelta(days=1))
        ):
            case "line", Line(name=name):
                return name
            case _:
                return "expired"

    async with Environment([races]) as env:
        run = await env.app.with_options(delay=LATER).start(races)
        await run.resolve("line", 3, early=True)
        assert await env.result(run) == "expired"


# Messages


@holdfast.workflow
async def listens() -> list[str]:
    heard: list[str] = []
    while len(heard) < 3:
        try:
            heard.append((await holdfast.receive(Line)).name)
        except holdfast.BadValue as error:
            heard.append(await note(str(error)))
    return heard


async def test_a_message_that_does_not_fit_is_an_error_that_the_code_can_catch() -> None:
    messages = [{"name": "a"}, {"name": 1}, Line("b")]
    report = await crash_everywhere(listens, messages=messages)
    assert report.result == [
        "a",
        "a message on channel '': the value.name is an integer, awaited is a string",
        "b",
    ]


async def test_a_message_of_a_class_that_the_receiver_does_not_name_is_an_error_with_the_cure() -> (
    None
):
    @holdfast.workflow
    async def hears() -> Any:
        return await holdfast.receive()

    async with Environment([hears]) as env:
        run = await env.start(hears)
        await run.send(Line("a"))
        with pytest.raises(holdfast.RunFailed, match=r"Name the class in the annotation"):
            await env.result(run)


# Names


async def test_why_tells_of_answers_that_nobody_has_asked_for() -> None:
    async with Environment([takes_an_order]) as env:
        run = await env.app.with_options(delay=LATER).start(takes_an_order)
        await run.resolve("ordre", ORDER)  # it may ask for that yet
        await env.advance(LATER)
        with pytest.raises(holdfast.UnknownPromise, match="open are: 'order'"):
            await run.resolve("ordr", ORDER)
        why = await run.why()
        assert "There is an answer to 'ordre', which it has not asked for yet." in why
        await run.resolve("order", ORDER)
        await env.result(run)
        assert "ordre" not in await run.why()


# Arguments


@holdfast.workflow
async def ordered(order: Order, at: datetime, notes: dict[Size, float]) -> str:
    await note(f"{order}")
    return f"{[type(order), type(at), notes]} {order.id}"


untyped: Any = ordered  # as one starts it who has plain data only


async def test_a_run_is_started_with_plain_data_and_again_it_is_the_same_run() -> None:
    async with Environment([ordered]) as env:
        app = env.app.with_options(id="o1")
        when = "2026-01-31T08:00:00Z"
        run: Any = await app.start(untyped, ORDER, when, {"s": 1})
        same: Any = await app.start(untyped, ORDER, when, {"s": 1})
        result = await env.result(run)
        assert await same.result() == result
        assert f"{ {Size.SMALL: 1.0} }" in result and "Order" in result and "datetime" in result
        with pytest.raises(holdfast.BadArguments, match="order: the value lacks the field 'lines'"):
            await env.app.start(untyped, {}, when, {})


async def test_a_child_is_started_with_plain_data_and_a_replay_asks_for_the_same_child() -> None:
    @holdfast.workflow
    async def starts() -> str:
        return await holdfast.child(untyped, ORDER, "2026-01-31T08:00:00Z", {"s": 1})

    assert "Order" in (await crash_everywhere(starts, workflows=[ordered])).result


async def test_a_stub_without_the_classes_starts_it_with_plain_data() -> None:
    @holdfast.remote("ordered")
    async def stub(order: dict[str, Any], at: str, notes: Any) -> str:
        raise NotImplementedError

    @holdfast.workflow
    async def starts() -> str:
        return await holdfast.child(stub, ORDER, "2026-01-31T08:00:00Z", {"s": 1})

    report = await crash_everywhere(starts, workflows=[ordered])
    assert "Order" in report.result and "datetime" in report.result
    async with Environment([starts, ordered]) as env:
        run = await env.app.start(stub, {"lines": 3}, "2026-01-31T08:00:00Z", {})
        with pytest.raises(holdfast.RunFailed, match=r"BadArguments.*order: the value.lines is"):
            await env.result(run)
