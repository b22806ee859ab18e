"""The heart: what a run's journal holds, and how it grows.

Three things happen here. `find` looks a claimed key up, and refuses to go on when the code asks for
something else than was recorded. `append` gives an entry the next sequence number: dense, so that a
claim by another worker takes the number a superseded one would write, and fences it. `take` hands
what is not yet durable to the committer; at most one batch of a run is under way.

The journal does not decide when things are delivered (frame.py) and does no I/O (commit.py).
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable

from holdfast.engine.arguments import why_others
from holdfast.engine.context import Claim, enclosing_step, parent_path
from holdfast.engine.inputs import Inputs
from holdfast.errors import Diverged
from holdfast.types import COMPLETIONS, Entry, Kind

ARGUMENTS = "/arguments"
"""The key of a note with the arguments that plain data was converted to. No call has it: theirs end
with a number."""


class Log:
    """What is recorded of one body: the workflow's, or that of a step which has not ended."""

    __slots__ = ("attempts", "completions", "values")

    def __init__(self) -> None:
        self.completions: dict[str, Entry] = {}  # in the order of delivery
        self.values: dict[str, Entry] = {}
        self.attempts: dict[str, Entry] = {}  # the last failed try of each step

    def drop_failures(self) -> None:
        """The body is tried again: what succeeded in it stays, what failed is tried again."""
        self.completions = {k: e for k, e in self.completions.items() if not e.failed}
        self.attempts.clear()


class Journal:
    def __init__(self, run_id: str, epoch: int, entries: Iterable[Entry]) -> None:
        self.run_id = run_id
        self.epoch = epoch
        self.last_seq = 0
        self.logs: dict[str, Log] = {"": Log()}
        self.delivered_mail: set[int] = set()
        self.resumes = 0
        self.resumed_seq = 0  # steps that were out of tries before that have new ones
        self.arguments: bytes | None = None
        self.stashed: bytes | None = None
        self.chapter = 0  # snapshots taken
        self.started_at = 0
        self.completed_steps = 0
        self.inputs = Inputs()
        self._expected: dict[tuple[str, int], str] = {}
        self._pending: list[Entry] = []
        for entry in entries:
            self._load(entry)
        self.durable_seq = self.last_seq
        self.recorded = len(self.logs[""].completions)
        self._tail: collections.deque[str] = collections.deque(maxlen=3)

    # What was recorded

    def _load(self, entry: Entry) -> None:
        assert entry.seq == self.last_seq + 1, (
            f"run {self.run_id!r}: entry {entry.seq} follows {self.last_seq}; the journal has a gap"
        )
        assert entry.epoch <= self.epoch, f"run {self.run_id!r}: entry of a later epoch"
        self.last_seq = entry.seq
        if not self.started_at:
            self.started_at = entry.at
        if entry.mail is not None:
            self.delivered_mail.add(entry.mail)
        kind = entry.kind
        if kind in COMPLETIONS:
            self._load_completion(entry)
        elif kind is Kind.VALUE or kind is Kind.STATE:
            self._log_of(entry).values[entry.key] = entry
            if entry.key == ARGUMENTS:
                self.arguments = entry.output
        elif kind is Kind.ATTEMPT:
            self._log_of(entry).attempts[entry.key] = entry
            if entry.failed and entry.key in self.logs:
                self.logs[entry.key].drop_failures()
        elif kind is Kind.RESUMED:
            self.resumes += entry.epoch > 0  # else it is a copy, of the run that was forked
            self.resumed_seq = entry.seq
        elif kind is Kind.STASH:
            self.turn_page(entry.output)
        if entry.position and not enclosing_step(entry.key):
            self._expected[parent_path(entry.key), entry.position] = entry.key

    @property
    def is_fresh(self) -> bool:
        """Has the run's code done nothing yet that is on record?"""
        root = self.logs[""]
        return len(self.logs) == 1 and not (
            self.chapter or root.completions or root.values or root.attempts
        )

    def _load_completion(self, entry: Entry) -> None:
        self._log_of(entry).completions[entry.key] = entry
        if entry.kind is Kind.STEP:
            self.completed_steps += 1
            self.logs.pop(entry.key, None)
            self.inputs.load(entry)

    def _log_of(self, entry: Entry) -> Log:
        return self.log(enclosing_step(entry.key))

    def log(self, body: str) -> Log:
        found = self.logs.get(body)
        if found is None:
            found = self.logs[body] = Log()
        return found

    def order_of(self, body: str) -> collections.deque[Entry] | None:
        """The completions recorded of a body, to be delivered again."""
        log = self.logs.get(body)
        return collections.deque(log.completions.values()) if log and log.completions else None

    def step_ended(self, key: str) -> None:
        self.logs.pop(key, None)

    def turn_page(self, stashed: bytes | None) -> None:
        """A snapshot was taken: what came before it is never replayed."""
        self.stashed = stashed
        self.chapter += 1
        self.logs = {"": Log()}
        self._expected.clear()

    # Claim and look up

    def find(
        self, claim: Claim, kind: Kind, digest: bytes | None = None, arguments: bytes = b"{}"
    ) -> Entry | None:
        """The recorded completion of this call, if there is one; Diverged if it is another
        call's."""
        frame = claim.scope.frame
        log = self.logs.get(frame.key)
        if log is None:
            return None
        entry = log.completions.get(claim.key)
        self._check_place(claim, entry)
        if entry is None:
            return None
        refused = kind is Kind.CHILD and entry.kind is Kind.STEP and entry.failed
        if entry.kind is not kind and not refused:
            why = f"it was recorded as a {entry.kind}, not as a {kind}"
            raise self.diverged(claim.key, why, frame.order)
        if digest is not None and entry.digest is not None and digest != entry.digest:
            if frame.is_root:
                earlier = itertools.takewhile(lambda e: e is not entry, log.completions.values())
                hint = why_others(entry, arguments, earlier, self.inputs.whole)
                why = "it was recorded with other arguments"
                raise self.diverged(claim.key, why, frame.order, hint)
            # A step's body does real work and may ask for other things when it is re-entered; what
            # was recorded for other arguments is then not its answer.
            del log.completions[claim.key]
            if frame.order and entry in frame.order:
                frame.order.remove(entry)
            return None
        if frame.key:
            return entry
        self._tail.append(claim.key)
        return entry

    def _check_place(self, claim: Claim, entry: Entry | None) -> None:
        """The n-th call of a scope must be the one that was recorded as its n-th."""
        frame = claim.scope.frame
        if not frame.is_root or not self._expected:
            return
        expected = self._expected.get((claim.scope.path, claim.position), claim.key)
        if expected != claim.key:
            raise self.diverged(claim.key, f"{expected} was recorded here", frame.order)
        if entry is not None and entry.position != claim.position:
            why = f"{claim.key} was recorded as call {entry.position} of its scope and is now "
            why += f"call {claim.position}: a call before it was added or left out"
            raise self.diverged(claim.key, why, frame.order)

    def holds(self, claim: Claim) -> bool:
        """Is the completion of this call on record?"""
        log = self.logs.get(claim.scope.frame.key)
        return log is not None and claim.key in log.completions

    def find_value(self, claim: Claim) -> Entry | None:
        frame = claim.scope.frame
        log = self.logs.get(frame.key)
        entry = log.values.get(claim.key) if log else None
        self._check_place(claim, entry)
        return entry

    def replayed(self) -> None:
        """The replay is over: what it needed can go."""
        self._expected.clear()
        root = self.logs[""]
        root.completions.clear()

    def diverged(
        self, asked: str, why: str, upcoming: Iterable[Entry] | None, hint: str = ""
    ) -> Diverged:
        """An error with a diff: what is recorded next, and what the code asks for instead."""
        agreed = [f"      {key}" for key in self._tail]
        recorded = [
            f"    - {entry.key}  ({entry.kind}, entry {entry.seq})"
            for entry in itertools.islice(upcoming or (), 5)
        ]
        lines = "\n".join([*agreed, *recorded, f"    + {asked}"])
        return Diverged(
            f"run {self.run_id!r} diverged from its journal: {why}.\n{lines}\n"
            "    (- recorded next, + asked for by the code as it is now)\n"
            f"{hint}"
            "The workflow's code changed while the run was under way, or it depends on something "
            "that is not journaled (the time, random numbers, the order of a set, an argument that "
            "a step changed in place). Bring the old "
            f"code back and `holdfast resume {self.run_id}`, or start anew from a step on which "
            f"both agree: `holdfast fork {self.run_id} --before KEY`."
        )

    # Append

    def append(self, entry: Entry) -> None:
        self.last_seq += 1
        entry.seq = self.last_seq
        entry.epoch = self.epoch
        self._pending.append(entry)
        if entry.kind is Kind.STEP:
            self.completed_steps += 1
        body = enclosing_step(entry.key)
        if body:
            self._remember(self.log(body), entry)

    @staticmethod
    def _remember(log: Log, entry: Entry) -> None:
        """The body this belongs to may be tried again in this process."""
        if entry.kind in COMPLETIONS:
            log.completions[entry.key] = entry
        elif entry.kind is Kind.VALUE:
            log.values[entry.key] = entry

    @property
    def durable(self) -> bool:
        return self.durable_seq == self.last_seq

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    def take(self, limit: int, bytes_max: int) -> tuple[list[Entry], int]:
        """The next entries to write, up to the one that reaches `bytes_max`, and how much payload
        they carry. They stay pending until `written`."""
        taken = self._pending[:limit]
        size = 0
        for count, entry in enumerate(taken, 1):
            size += len(entry.input or b"") + len(entry.output or b"")
            if size >= bytes_max:
                return taken[:count], size
        return taken, size

    def forget_unwritten(self) -> None:
        """What was to be written cannot be: the journal ends where the store's does."""
        self._pending.clear()
        self.last_seq = self.durable_seq

    def written(self, count: int) -> None:
        if count:
            self.durable_seq = self._pending[count - 1].seq
            del self._pending[:count]
