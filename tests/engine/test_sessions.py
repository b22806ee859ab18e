"""Sessions: one run at a time, in order; state and messages are journaled with the run."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast import Status, WorkerOptions
from holdfast.testing import Environment, crash_everywhere
from holdfast.testing.kept_store import KeptStore

DAY = timedelta(days=1)
LEAVES_AT_ONCE = WorkerOptions(memory_wait=timedelta(0))
log: list[str] = []


@holdfast.step
async def write_down(text: str) -> None:
    log.append(text)


@holdfast.workflow
async def takes_its_time(name: str) -> str:
    await write_down(f"{name} begins")
    await holdfast.sleep(DAY)
    await write_down(f"{name} ends")
    return name


@holdfast.workflow
async def converses(text: str) -> list[Any]:
    heard: list[Any] = [text]
    while heard[-1] != "bye":
        heard.append((await holdfast.receive())["text"])
    return heard


@holdfast.workflow
async def asks() -> str:
    return await holdfast.promise("ok", str)


@pytest.fixture(autouse=True)
def fresh_log() -> None:
    log.clear()


# Whose turn it is


@pytest.mark.parametrize("options", [LEAVES_AT_ONCE, WorkerOptions()], ids=["out", "in memory"])
async def test_runs_of_one_session_go_one_at_a_time_in_order(options: WorkerOptions) -> None:
    async with Environment([takes_its_time], worker_options=options) as env:
        app = env.app.with_options(session="s")
        runs = [await app.start(takes_its_time, name) for name in "abc"]
        other = await env.app.with_options(session="t").start(takes_its_time, "other")
        await env.settle()
        assert sorted(log) == ["a begins", "other begins"]
        await env.crash()
        assert [await env.result(run) for run in runs] == ["a", "b", "c"]
        await env.result(other)
    assert [line for line in log if "other" not in line] == [
        f"{name} {what}" for name in "abc" for what in ("begins", "ends")
    ]


async def test_a_run_that_releases_its_session_while_waiting_lets_the_next_one_in() -> None:
    async with Environment([takes_its_time], worker_options=LEAVES_AT_ONCE) as env:
        app = env.app.with_options(session="s", while_waiting="release")
        runs = [await app.start(takes_its_time, name) for name in "ab"]
        await env.settle()
        assert log == ["a begins", "b begins"]
        assert [await env.result(run) for run in runs] == ["a", "b"]


async def test_a_busy_session_can_reject() -> None:
    async with Environment([takes_its_time]) as env:
        app = env.app.with_options(session="s", on_busy="reject")
        run = await app.start(takes_its_time, "a")
        with pytest.raises(holdfast.SessionBusy, match=run.id):
            await app.start(takes_its_time, "b")
        await env.result(run)
        assert await env.result(await app.start(takes_its_time, "c")) == "c"


async def test_a_message_for_a_busy_session_can_join_the_run_that_has_it() -> None:
    async with Environment([converses], worker_options=LEAVES_AT_ONCE) as env:
        app = env.app.with_options(session="s", on_busy="join")
        first = await app.start(converses, "hello")
        await env.settle()
        second = await app.start(converses, "bye")
        assert second.id == first.id
        assert await env.result(second) == ["hello", "bye"]


async def test_a_joining_message_that_is_sent_again_under_its_id_arrives_once() -> None:
    async with Environment([converses], worker_options=LEAVES_AT_ONCE) as env:
        app = env.app.with_options(session="s", on_busy="join")
        first = await app.start(converses, "hello")
        for _ in range(3):
            again = await app.with_options(id="message-1").start(converses, "are you there?")
            assert again.id == first.id
        with pytest.raises(holdfast.IdReused, match="message-1"):
            await app.with_options(id="message-1").start(converses, "something else")
        await app.with_options(id="message-2").start(converses, "bye")
        heard = ["hello", "are you there?", "bye"]
        assert await env.result(first) == heard
        # It has ended, and the caller who never heard of that asks once more.
        late = await app.with_options(id="message-2").start(converses, "bye")
        assert await env.result(late) == heard
        assert len(await env.app.list()) == 1


async def test_a_run_that_another_one_starts_may_join_and_a_child_never_does() -> None:
    @holdfast.workflow
    async def says_bye() -> tuple[str, list[Any]]:
        joins = converses.with_options(session="s", on_busy="join")
        own = await holdfast.child(joins.with_options(session="t"), "bye")
        return await holdfast.start(joins, "bye"), own

    async with Environment([converses, says_bye], worker_options=LEAVES_AT_ONCE) as env:
        first = await env.app.with_options(session="s").start(converses, "hello")
        busy = await env.app.with_options(session="t").start(converses, "busy")
        run = await env.app.with_options(id="says").start(says_bye)
        await env.settle()
        assert "waits behind" in await env.app.why("says/child:converses#0")
        await busy.send({"text": "bye"})
        assert await env.result(run) == (first.id, ["bye"])
        assert await env.result(first) == ["hello", "bye"]


async def test_why_names_the_run_that_is_ahead_in_the_session_and_what_to_do() -> None:
    async with Environment([asks, takes_its_time], worker_options=LEAVES_AT_ONCE) as env:
        app = env.app.with_options(session="chat-7")
        await app.with_options(id="first").start(asks)
        await env.settle()
        second = await app.with_options(id="second").start(takes_its_time, "second")
        third = await app.with_options(id="third").start(takes_its_time, "third")
        for run in (second, third):
            why = await run.why()
            assert "session 'chat-7'" in why
            assert "it waits behind run first, which is waiting (the promise 'ok')" in why
            assert "`holdfast why first`" in why and "`holdfast cancel first`" in why
            assert "room" not in why
        assert "behind" not in await env.app.why("first")
        await env.app.pause("first")
        await env.settle()
        assert "To let that one go on: `holdfast resume first`" in await second.why()
        await env.app.resume("first")
        await env.app.resolve("first", "ok", "yes")
        await env.result(second)
        assert "behind" not in await third.why()


async def test_a_new_run_can_interrupt_the_one_that_has_the_session() -> None:
    async with Environment([takes_its_time]) as env:
        app = env.app.with_options(session="s", on_busy="interrupt")
        first = await app.start(takes_its_time, "a")
        await env.settle()
        second = await app.start(takes_its_time, "b")
        assert await env.result(second) == "b"
        assert await first.status() is Status.CANCELLED
    assert log == ["a begins", "b begins", "b ends"]


@pytest.mark.parametrize("while_waiting", ["hold", "release"])
async def test_a_child_that_its_parent_awaits_shares_the_session(while_waiting: str) -> None:
    @holdfast.workflow
    async def delegates() -> str:
        return await holdfast.child(takes_its_time, "child")

    async with Environment([delegates, takes_its_time], worker_options=LEAVES_AT_ONCE) as env:
        app = env.app.with_options(session="s", while_waiting=while_waiting)
        parent = await app.start(delegates)
        await env.settle()
        next_one = await app.start(takes_its_time, "next")
        assert await env.result(parent) == "child"
        assert await env.result(next_one) == "next"
        (child,) = await env.app.store.children((await env.app.row(parent.id)).key)
        assert child.session == "s"


# State and messages


@holdfast.workflow
async def remembers(text: str) -> tuple[int, list[Any]]:
    session = holdfast.session()
    session.set("turns", session.get("turns", 0) + 1)
    session.append({"user": text})
    await write_down(text)
    session.append({"agent": text.upper()})
    await holdfast.sleep(DAY)
    return session.get("turns"), session.messages


async def test_state_and_messages_go_from_one_run_of_a_session_to_the_next() -> None:
    async with Environment([remembers]) as env:
        app = env.app.with_options(session="s")
        await env.result(await app.start(remembers, "one"))
        found = await env.result(await app.start(remembers, "two"))
        stranger = await env.result(await env.app.with_options(session="t").start(remembers, "x"))
    turns, messages = found
    assert turns == 2
    assert messages == [{"user": "one"}, {"agent": "ONE"}, {"user": "two"}, {"agent": "TWO"}]
    assert stranger[0] == 1


async def test_each_change_is_made_once_wherever_a_crash_comes() -> None:
    workflow = remembers.with_options(session="s")
    report = await crash_everywhere(workflow, "one")
    assert report.result == (1, [{"user": "one"}, {"agent": "ONE"}])


async def test_the_store_holds_each_change_once_wherever_a_crash_comes() -> None:
    @holdfast.workflow
    async def reads() -> list[Any]:
        return holdfast.session().messages

    @holdfast.workflow
    async def writes_and_lets_another_read() -> list[Any]:
        session = holdfast.session()
        for number in range(3):
            session.append(number)
        await write_down("written")
        session.append("last")
        return await holdfast.child(reads)

    workflow = writes_and_lets_another_read.with_options(session="s")
    report = await crash_everywhere(workflow, workflows=[reads])
    assert report.result == [0, 1, 2, "last"]


async def test_a_run_sees_the_session_as_it_was_when_it_began_until_it_lets_others_in() -> None:
    @holdfast.workflow
    async def looks_twice() -> tuple[Any, Any]:
        first = holdfast.session().get("color")
        await holdfast.sleep(DAY)
        return first, holdfast.session().get("color")

    @holdfast.workflow
    async def paints(color: str) -> None:
        holdfast.session().set("color", color)

    async with Environment([looks_twice, paints], worker_options=LEAVES_AT_ONCE) as env:
        app = env.app.with_options(session="s", while_waiting="release")
        await env.result(await app.start(paints, "red"))
        run = await app.start(looks_twice)
        await env.settle()
        await (await app.start(paints, "blue")).result()
        assert await env.result(run) == ("red", "blue")


async def test_a_key_can_be_deleted() -> None:
    @holdfast.workflow
    async def forgets() -> list[str]:
        session = holdfast.session()
        session.set("a", 1)
        session.set("b", 2)
        session.delete("a")
        await write_down("deleted")
        return session.keys()

    assert (await crash_everywhere(forgets.with_options(session="s"))).result == ["b"]


async def test_a_step_may_read_the_session_and_the_body_after_it_on_replay() -> None:
    @holdfast.step
    async def looks() -> int:
        return len(holdfast.session().messages)

    @holdfast.workflow
    async def looks_around() -> tuple[int, int]:
        seen = await looks()
        return seen, len(holdfast.session().messages) + await looks()

    assert (await crash_everywhere(looks_around.with_options(session="s"))).result == (0, 0)


async def test_a_step_may_not_change_the_session() -> None:
    @holdfast.step
    async def meddles() -> None:
        holdfast.session().set("color", "red")

    @holdfast.workflow
    async def lets_it() -> None:
        await meddles()

    async with Environment([lets_it]) as env:
        run = await env.app.with_options(session="s").start(lets_it)
        with pytest.raises(holdfast.RunFailed, match="the workflow's own body"):
            await env.result(run)


async def test_a_def_workflow_has_the_same_session() -> None:
    @holdfast.workflow
    def counts() -> int:
        session = holdfast.session()
        session.set("n", session.get("n", 0) + 1)
        session.append("counted")
        return len(session.messages) * 10 + session.get("n")

    assert (await crash_everywhere(counts.with_options(session="s"))).result == 11


async def test_a_run_without_a_session_has_none_to_ask_for() -> None:
    async with Environment([remembers]) as env:
        with pytest.raises(holdfast.RunFailed, match="has no session"):
            await env.result(await env.start(remembers, "x"))


async def test_what_cannot_be_encoded_does_not_change_the_session() -> None:
    @holdfast.workflow
    async def keeps_a_lock() -> list[str]:
        session = holdfast.session()
        with pytest.raises(holdfast.NotEncodable, match="'lock' of session 's'"):
            session.set("lock", asyncio.Lock())
        return session.keys()

    assert (await crash_everywhere(keeps_a_lock.with_options(session="s"))).result == []


# What children write


@holdfast.workflow
async def adds(name: str) -> None:
    session = holdfast.session()
    for number in range(2):
        session.append(f"{name} {number}")
        await write_down(name)
    session.set(name, True)


@holdfast.workflow
async def works_beside_its_children() -> tuple[list[str], list[Any]]:
    async def delegate(name: str) -> None:
        await holdfast.child(adds, name)

    session = holdfast.session()
    children = [asyncio.create_task(delegate(name)) for name in "ab"]
    for number in range(4):
        session.append(f"parent {number}")
        session.set("parent", number)
        await write_down("parent")
    await asyncio.gather(*children)
    return session.keys(), sorted(session.messages)


BESIDE_THEM = (
    ["a", "b", "parent"],
    ["a 0", "a 1", "b 0", "b 1", *(f"parent {number}" for number in range(4))],
)


async def _others_go_on() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@holdfast.workflow
async def counts_once(text: str) -> int:
    session = holdfast.session()
    session.set("n", session.get("n", 0) + 1)
    session.append(text)
    await write_down(text)
    return int(session.get("n"))


async def test_a_parent_sees_what_a_child_wrote_and_loses_none_of_it() -> None:
    @holdfast.workflow
    async def counts_before_and_after() -> tuple[int, list[Any], bool, int, list[Any]]:
        session = holdfast.session()
        session.set("gone", True)
        session.set("n", session.get("n", 0) + 1)
        session.append("parent 1")
        await write_down("before")
        await holdfast.child(counts_once, "child 1")
        seen = session.get("n"), session.messages, session.get("gone")
        session.set("n", session.get("n") + 1)
        session.delete("gone")
        session.append("parent 2")
        await holdfast.child(counts_once, "child 2")
        session.append("parent 3")
        return *seen, session.get("n"), session.messages

    workflow = counts_before_and_after.with_options(session="s")
    report = await crash_everywhere(workflow, workflows=[counts_once])
    assert report.result == (
        2,
        ["parent 1", "child 1"],
        True,
        4,
        ["parent 1", "child 1", "parent 2", "child 2", "parent 3"],
    )


async def test_the_store_has_lost_no_update_of_a_parent_and_its_children() -> None:
    @holdfast.workflow
    async def counts_around_a_child() -> int:
        before = await counts_once.fn("before")
        await holdfast.child(counts_once, "child")
        return before + await counts_once.fn("after")

    async with Environment([counts_around_a_child, counts_once]) as env:
        app = env.app.with_options(session="s")
        assert await env.result(await app.start(counts_around_a_child)) == 1 + 3
        assert await env.store.session_state("s") == {"n": b"3"}
        assert len(await env.store.session_messages("s")) == 3


async def test_a_parent_sees_what_a_child_of_its_step_wrote() -> None:
    @holdfast.step
    async def delegates() -> int:
        before = holdfast.session().get("n")
        await holdfast.child(counts_once, "child")
        return int(holdfast.session().get("n")) - before

    @holdfast.workflow
    async def uses_a_tool() -> tuple[int, int, list[Any]]:
        session = holdfast.session()
        session.set("n", 10)
        added = await delegates()
        session.set("n", session.get("n") + 100)
        await write_down("done")
        return added, session.get("n"), session.messages

    workflow = uses_a_tool.with_options(session="s")
    report = await crash_everywhere(workflow, workflows=[counts_once])
    assert report.result == (1, 111, ["child"])


async def test_a_parent_sees_what_a_grandchild_and_a_failed_child_wrote() -> None:
    @holdfast.workflow
    async def fails_after_all() -> None:
        await holdfast.child(counts_once, "grandchild")
        session = holdfast.session()
        session.set("n", session.get("n") + 10)
        raise ValueError("after all")

    @holdfast.workflow
    async def delegates() -> int:
        session = holdfast.session()
        assert session.get("n") is None
        with pytest.raises(holdfast.RunFailed):
            await holdfast.child(fails_after_all)
        session.set("n", session.get("n") + 100)
        return int(session.get("n"))

    workflow = delegates.with_options(session="s")
    report = await crash_everywhere(workflow, workflows=[counts_once, fails_after_all])
    assert report.result == 111


async def test_a_parent_that_writes_beside_its_children_keeps_its_own_and_sees_theirs() -> None:
    workflow = works_beside_its_children.with_options(session="s")
    report = await crash_everywhere(workflow, workflows=[adds])
    assert report.result == BESIDE_THEM


async def test_changes_made_while_the_session_is_read_are_neither_lost_nor_seen_twice() -> None:
    class TakesTurns(KeptStore):
        """Others go on while it reads, as with a database that is elsewhere."""

        async def session_messages(self, session: str, *, after: int = 0) -> Any:
            found = await self._kept.session_messages(session, after=after)
            await _others_go_on()
            return found

        async def session_state(self, session: str) -> Any:
            await _others_go_on()
            return await self._kept.session_state(session)

    store = TakesTurns()
    async with Environment([works_beside_its_children, adds], store=store) as env:
        run = await env.app.with_options(session="s").start(works_beside_its_children)
        assert await env.result(run) == BESIDE_THEM
    await store.discard()


async def test_a_session_is_the_same_after_a_snapshot() -> None:
    @holdfast.workflow
    async def counts_on() -> tuple[int, list[Any]]:
        session = holdfast.session()
        for turn in range(holdfast.recovered(int) or 0, 3):
            session.set("n", session.get("n", 0) + 1)
            session.append(turn)
            await holdfast.child(counts_once, "child")
            holdfast.stash(turn + 1)
        await write_down("done")
        return session.get("n"), session.messages

    workflow = counts_on.with_options(session="s")
    report = await crash_everywhere(workflow, workflows=[counts_once])
    assert report.result == (6, [0, "child", 1, "child", 2, "child"])


async def test_a_def_workflow_sees_what_its_child_wrote() -> None:
    @holdfast.workflow
    def counts() -> int:
        session = holdfast.session()
        session.set("n", 1)
        holdfast.child(counts_once, "child").result()
        session.set("n", session.get("n") + 1)
        return int(session.get("n"))

    workflow = counts.with_options(session="s")
    assert (await crash_everywhere(workflow, workflows=[counts_once])).result == 3
