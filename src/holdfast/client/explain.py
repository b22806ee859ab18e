"""Says in plain words where a run stands, and which command would unblock it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from holdfast import codec
from holdfast.client.answers import unasked
from holdfast.clock import NEVER, Micros, to_datetime
from holdfast.codec.words import awaited
from holdfast.types import HALTED, Entry, Kind, Mail, PromiseRow, RunRow, Status, WorkerRow

_STRAY_MAX = 5
_QUESTIONS_MAX = 5
_QUESTION_CHARS_MAX = 500


def why(
    row: RunRow,
    journal: Sequence[Entry],
    promises: Sequence[PromiseRow],
    mail: Sequence[Mail],
    workers: Sequence[WorkerRow],
    now: Micros,
    *,
    served: bool | None,
    ahead: RunRow | None = None,
    circle: Sequence[RunRow] = (),
    queue: str = "",
) -> str:
    """`mail` is all in its inbox; `workers` are those alive; `served` says whether the asking app
    lists the workflow, None if it lists none at all; `ahead` is the run of its session that it
    waits behind; `circle` are the runs through which it waits for itself; `queue` says what the
    runs of its queue wait for."""
    steps = sum(entry.kind is Kind.STEP and not entry.failed for entry in journal)
    said = [
        f"Run {row.id} of {row.workflow} was started {_ago(now - row.created_at)} "
        f"and has completed {steps} step{'s' if steps != 1 else ''}."
    ]
    if circle:
        said.append(_deadlock(circle))
    elif ahead is not None:
        said.append(_behind(row, ahead))
    else:
        said.append(_state(row, workers, now, served, queue))
    failure = _last_failure(row, journal)
    if failure:
        said.append(failure)
    stray = unasked(promises, mail)
    if stray and not row.status.ended:
        said.append(_stray(stray))
    waiting = _open(row, promises, journal)
    said += _questions(waiting)
    cure = _cure(row, waiting, served=served, stranded=not workers)
    if circle:
        cure = _cure_deadlock(circle)
    elif ahead is not None:
        cure = _cure_ahead(ahead)
    if cure:
        said.append(cure)
    return " ".join(said)


def _state(
    row: RunRow, workers: Sequence[WorkerRow], now: Micros, served: bool | None, queue: str
) -> str:
    match row.status:
        case Status.COMPLETED | Status.FAILED | Status.CANCELLED:
            return f"It ended as {row.status} {_ago(now - (row.ended_at or now))}."
        case Status.RUNNING:
            owner = next((w for w in workers if w.id == row.owner), None)
            if owner is None:
                heir = "; another takes it over" if workers else ", and no other is alive"
                return f"Its worker {row.owner} is gone{heir}."
            return (
                f"It is executed by worker {owner.id} (pid {owner.pid}), claim number {row.epoch}."
            )
        case Status.WAITING:
            waits_for = row.reason or "something outside"
            if row.ready_at is not None and _at(row.ready_at) not in waits_for:
                waits_for += f", at the latest {_at(row.ready_at)}"
            return f"It waits for {waits_for}; nobody needs to own it."
        case Status.PENDING:
            if row.ready_at is not None and row.ready_at > now:
                return f"It is to begin {_at(row.ready_at)}."
            if not workers:
                return "It can go on, but no worker is alive."
            if served is False:
                return f"It is stalled: nobody here serves the workflow {row.workflow!r}."
            if queue:
                return f"It can go on; the queue {row.queue!r} waits for {queue}."
            return "It can go on and waits for a worker with room."
        case Status.PAUSED:
            return "It was paused by hand."
        case Status.PARKED | Status.QUARANTINED:
            text = f"It is {row.status}: {row.reason}."
            if row.ready_at is not None:
                text += " It waits for something else as well, which may come first"
                text += f", at the latest {_at(row.ready_at)}." if row.ready_at < NEVER else "."
            return text


def _behind(row: RunRow, ahead: RunRow) -> str:
    text = f"It can go on when it is its turn in session {row.session!r}: it waits behind run "
    text += f"{ahead.id}, which is {ahead.status}"
    if ahead.status is not Status.RUNNING and ahead.reason:
        text += f" ({ahead.reason})"
    return text + "."


def _deadlock(circle: Sequence[RunRow]) -> str:
    pairs = zip(circle, [*circle[1:], circle[0]], strict=True)
    waits = [
        f"{one.id} awaits its child {other.id}"
        if other.parent == one.key
        else f"{one.id} waits behind {other.id} in session {one.session!r}"
        for one, other in pairs
    ]
    text = f"It is in a deadlock, runs that wait for one another: {', '.join(waits)}. "
    ways_out = [row.ready_at for row in circle if row.ready_at and row.status is Status.WAITING]
    if ways_out:
        return text + f"None of them goes on before {_at(min(ways_out))}."
    return text + "None of them goes on by itself."


def _cure_deadlock(circle: Sequence[RunRow]) -> str:
    keys = {row.key for row in circle}
    child = next(row for row in circle if row.parent in keys)
    return (
        f"To end it, cancel one of them: `{_command('cancel', child.id)}`; to keep it from "
        "happening, let runs that await children in other sessions release their own "
        '(while_waiting="release").'
    )


def _cure_ahead(ahead: RunRow) -> str:
    if ahead.status in HALTED:
        return f"To let that one go on: `{_command('resume', ahead.id)}`."
    return (
        f"To see what that one does: `{_command('why', ahead.id)}`; to stop it: "
        f"`{_command('cancel', ahead.id)}`."
    )


def _last_failure(row: RunRow, journal: Sequence[Entry]) -> str | None:
    if row.status is Status.FAILED and row.output:
        name, message, _ = codec.error_summary(row.output)
        return f"It failed with {name}: {message}."
    answered = {entry.key for entry in journal if entry.kind is Kind.PROMISE}
    failed = [
        entry
        for entry in journal
        if entry.failed
        and entry.output
        and not (entry.kind is Kind.REFUSED and entry.key in answered)
    ]
    if not failed or row.status.ended:
        return None
    last = failed[-1]
    name, message, _ = codec.error_summary(last.output or b"null")
    if last.kind is Kind.REFUSED:
        return f"An answer was refused, because it does not fit ({message})."
    text = f"The last failure was {name} ({message}) in {last.key}, try {last.attempt}"
    if last.kind is Kind.ATTEMPT and last.due_at is not None:
        text += f"; the next try is due {_at(last.due_at)}"
    return text + "."


def _stray(names: Sequence[str]) -> str:
    listed = ", ".join(repr(name) for name in names[:_STRAY_MAX])
    more = f" and {len(names) - _STRAY_MAX} more" if len(names) > _STRAY_MAX else ""
    what = "an answer" if len(names) == 1 else "answers"
    return f"There is {what} to {listed}{more}, which it has not asked for yet."


def _open(
    row: RunRow, promises: Sequence[PromiseRow], journal: Sequence[Entry]
) -> list[PromiseRow]:
    if row.status.ended:
        return []
    delivered = {entry.key for entry in journal if entry.kind is Kind.PROMISE}
    return [p for p in promises if not p.resolved and p.key not in delivered]


def _questions(waiting: Sequence[PromiseRow]) -> list[str]:
    """What is asked, as it was recorded."""
    asked = [(p.name, p.prompt.decode()) for p in waiting if p.prompt is not None]
    said = [f"{name!r} asks {_shortened(prompt)}." for name, prompt in asked[:_QUESTIONS_MAX]]
    more = len(asked) - _QUESTIONS_MAX
    return [*said, f"So do {more} more."] if more > 0 else said


def _shortened(text: str) -> str:
    return text if len(text) <= _QUESTION_CHARS_MAX else f"{text[:_QUESTION_CHARS_MAX]}…"


def _cure(
    row: RunRow, waiting: Sequence[PromiseRow], *, served: bool | None, stranded: bool
) -> str | None:
    if row.status in (Status.FAILED, Status.CANCELLED):
        return f"To go on from the step that failed: `{_command('rerun', row.id)}`."
    if row.status in (Status.PAUSED, Status.PARKED, Status.QUARANTINED):
        return f"To let it go on: `{_command('resume', row.id)}`."
    wants_worker = stranded or (row.status is Status.PENDING and served is False)
    if row.status in (Status.PENDING, Status.RUNNING) and wants_worker:
        return "Start a worker whose app lists this workflow: `holdfast worker module:app`."
    if waiting:
        first = waiting[0]
        answer = "--approve"
        if first.kind != "approval":
            answer = shlex.quote(f"<{awaited(first.type)} as JSON>")
        return f"To answer it: `{_command('resolve', row.id, first.name)} {answer}`."
    return None


def _command(verb: str, *names: str) -> str:
    """As it can be pasted into a shell: names may hold spaces."""
    return f"holdfast {verb} {shlex.join(names)}"


def _ago(span: Micros) -> str:
    seconds = span / 1e6
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{max(0, seconds):.0f} seconds ago"


def _at(at: Micros) -> str:
    return f"{to_datetime(at):%Y-%m-%d %H:%M:%S} UTC"
