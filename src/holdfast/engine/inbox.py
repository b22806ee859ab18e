"""What outsiders sent to a run: answers, messages, children's ends, and the wish that it stop.

Outsiders never write a journal. Mail waits here until somebody in the run waits for it, and is
journaled when it is delivered, like every other completion. Mail that was taken for a waiter who
then gave up goes back. An answer that does not fit its promise is refused, which is journaled too:
the promise is open again, for whoever knows better.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from holdfast import codec
from holdfast.clock import Micros
from holdfast.engine import rest, trouble
from holdfast.engine.context import Claim, Scope
from holdfast.engine.frame import Frame, Wait
from holdfast.errors import BadValue
from holdfast.types import Entry, Kind, Mail, MailKind

if TYPE_CHECKING:
    from holdfast.engine.execution import Execution

log = logging.getLogger("holdfast")

_INTERRUPTS = (Kind.CANCEL, Kind.DEADLINE)
_KEYS = {kind: f"/{kind}#0" for kind in _INTERRUPTS}


class Inbox:
    def __init__(self, run: Execution) -> None:
        self.seen = 0  # the newest mail that has come
        self.cancel_wanted = False
        self.due = False  # the store holds mail that has not come yet
        self._run = run
        self._box: dict[tuple[MailKind, str], list[Mail]] = {}
        self._taken: dict[int, Mail] = {}  # on its way to somebody, not yet journaled
        self._deadline: Any = None
        self._left = False

    def open(self) -> None:
        """Recorded interrupts are delivered on replay without anybody asking for them."""
        run = self._run
        recorded = run.journal.logs[""].completions
        for kind in _INTERRUPTS:
            if _KEYS[kind] in recorded:
                claim = _claim(run.root, kind)
                run.root.ask(Wait(kind, claim, _Interrupt(run, kind), decode=_nothing))
        at = run.row.deadline_at
        if at is not None and _KEYS[Kind.DEADLINE] not in recorded:
            self._arm(at)

    def _arm(self, at: Micros) -> None:
        self._deadline = self._run.call_at(at, self._too_late)

    def _too_late(self) -> None:
        run = self._run
        if not run.cancelled:  # else it is unwinding already
            run.pausing = False
            run.open_gate()
            self._interrupt(Kind.DEADLINE)

    def close(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()

    def is_news_of_a_child(self, mail: Mail) -> bool:
        return mail.kind is MailKind.CHILD and mail.id not in self._run.journal.delivered_mail

    def let_go(self) -> None:
        """The run has left: nothing more is handed to it."""
        self._left = True
        del self._run

    def receive(self, mail: Mail) -> None:
        if self._left:
            return
        run = self._run
        self.seen = max(self.seen, mail.id)
        if self.due:
            self.due = False
            run.reconsider()
        if mail.kind is MailKind.CANCEL:
            self.cancel_wanted = True
            run.pausing = False  # it is to unwind first, and then there is nothing to pause
            run.open_gate()
        if run.closed:
            if run.halting is not None and run.then is None:
                trouble.leave(run, run.halting)
            return
        if mail.id in run.journal.delivered_mail:
            return
        run.journal.delivered_mail.add(mail.id)
        if mail.kind is MailKind.PAUSE:
            run.pausing = not self.cancel_wanted and not trouble.is_overdue(run)
            rest.consider(run)
        elif mail.kind is MailKind.CANCEL:
            self._interrupt(Kind.CANCEL, mail.id)
        else:
            self._box.setdefault((mail.kind, mail.name), []).append(mail)
            self._match_all()

    def _match_all(self) -> None:
        for wait in list(self._run.waits):
            if wait.mail_name is not None and wait.ready and not wait.future.done():
                self.match(wait)

    def match(self, wait: Wait) -> None:
        """Gives a wait the oldest mail that is there for it."""
        assert wait.mail_name is not None
        box = self._box.get((MailKind(wait.kind), wait.mail_name))
        if not box:
            return
        mail = box.pop(0)
        self._taken[mail.id] = mail
        wait.ready = False
        entry = Entry(
            0,
            wait.kind,
            wait.claim.key,
            self._run.tick(),
            position=wait.claim.position,
            failed=mail.failed,
            output=mail.payload,
            mail=mail.id,
        )
        self._run.arrive(entry, wait)

    def admits(self, entry: Entry, wait: Wait) -> bool:
        """Puts what came into the form in which it is journaled. False: it does not fit, and the
        run goes on waiting."""
        assert wait.admit is not None
        try:
            entry.output = wait.admit(entry.output)
        except BadValue as error:
            if entry.kind is not Kind.PROMISE:
                return True  # nobody can be asked to say it again: the code is told
            refusal = codec.encode_error(error, what=wait.label)
            self._run.note(Kind.REFUSED, entry.key, failed=True, output=refusal, mail=entry.mail)
            self._taken.pop(entry.mail or 0, None)
            wait.ready = True
            log.warning("run %r goes on waiting for %s: %s", self._run.row.id, wait.label, error)
            return False
        return True

    def put_back(self, entry: Entry) -> None:
        """Whoever waited for it has given up: it is for the next, who may be waiting already."""
        mail = self._taken.pop(entry.mail or 0, None)
        if mail is not None:
            self._box.setdefault((mail.kind, mail.name), []).insert(0, mail)
            self._match_all()

    def _interrupt(self, kind: Kind, mail: int | None = None) -> None:
        """Cancels the body, by a journaled completion like any other."""
        run = self._run
        claim = _claim(run.root, kind)
        wait = Wait(kind, claim, _Interrupt(run, kind), decode=_nothing)
        run.arrive(Entry(0, kind, claim.key, run.tick(), mail=mail), wait)


class _Interrupt:
    """Receives a cancel or a passed deadline on behalf of the whole body."""

    def __init__(self, run: Execution, kind: Kind) -> None:
        self._run, self._kind, self._done = run, kind, False

    def done(self) -> bool:
        return self._done

    def set_result(self, result: object, /) -> None:
        run = self._run
        self._done = run.cancelled = True
        if self._kind is Kind.DEADLINE:
            run.deadline_passed = True
        target = run.portal_task or run.task
        if target is run.task and run.sync_body:
            run.cancel_pending = True  # a thread hears of it at its next durable call
        elif target is not None:
            target.cancel(f"run {run.row.id!r}: {self._kind}")

    def set_exception(self, exception: BaseException, /) -> None:
        self._done = True


def _claim(root: Frame, kind: Kind) -> Claim:
    return Claim(Scope(root, ""), _KEYS[kind], str(kind), 0)


def _nothing(entry: Entry) -> None:
    return None
