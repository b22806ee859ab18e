"""One body, the workflow's or a step's, and the discipline under which things are delivered to it.

asyncio is deterministic but for the order in which completions arrive. So they are handed to a
frame one at a time: deliver one, let the frame's tasks run until all are blocked, deliver the next.
Live, the order of delivery is journaled; on replay, the journal's order is followed. Whether a
frame is quiet is known and not guessed: every handle the loop holds for it is counted (see
loop.py).

The root frame (the workflow's body) is strict: what it does must follow from what was delivered to
it. A step's body does real I/O in real time, so its frame is lenient: when a recorded entry is not
asked for in a while, others may pass it.
"""

from __future__ import annotations

import asyncio
import collections
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.clock import Micros
from holdfast.types import Entry, Kind

if TYPE_CHECKING:
    from holdfast.engine.context import Claim
    from holdfast.engine.execution import Execution

SPIN_LIMIT = 200_000
"""Handles a root frame may run between two deliveries before it is taken for an endless loop."""

LENIENCE_SECONDS = 0.2
"""How long a quiet step body is waited for to ask for the recorded entry that is next."""


class Receiver(Protocol):
    """A future, of the event loop's kind or a thread's."""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, exception: BaseException, /) -> None: ...


Admit = Callable[[bytes | None], bytes]
"""What came from outside, in the form in which it is recorded; BadValue if it does not fit."""


class Wait:
    """Something a frame waits for, until it is delivered or given up."""

    __slots__ = (
        "admit", "claim", "decode", "due_at", "future", "kind", "label", "mail_name", "ready"
    )  # fmt: skip

    def __init__(
        self,
        kind: Kind,
        claim: Claim,
        future: Receiver,
        *,
        decode: Callable[[Entry], Any],
        label: str = "",
        due_at: Micros | None = None,
        mail_name: str | None = None,
        admit: Admit | None = None,
    ) -> None:
        self.kind = kind
        self.claim = claim
        self.future = future
        self.decode = decode
        self.label = label or claim.name
        self.due_at = due_at
        self.mail_name = mail_name
        self.admit = admit
        self.ready = True  # False while a recorded completion must wait for real work (a thread)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def deliver(self, entry: Entry) -> None:
        if self.future.done():
            return
        try:
            value = self.decode(entry)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a step may have ended with any
            self.future.set_exception(error)
        else:
            self.future.set_result(value)


class Ring:
    """What a timer of a step's body calls: by it is known whether the timer has gone off. The event
    loop comes to one that is due when it has a turn, which may be late."""

    __slots__ = ("_callback", "rung")

    def __init__(self, callback: Callable[..., object]) -> None:
        self._callback, self.rung = callback, False

    def __call__(self, *args: Any) -> None:
        self.rung = True
        self._callback(*args)


class Frame:
    __slots__ = (
        "_lenience",
        "_pumping",
        "arrived",
        "asked",
        "blocked",
        "bodies",
        "held",
        "key",
        "order",
        "outer",
        "ready",
        "run",
        "spun",
        "timers",
    )

    def __init__(
        self,
        run: Execution,
        key: str,
        order: collections.deque[Entry] | None,
        outer: Frame | None = None,
    ) -> None:
        self.run = run
        self.key = key
        self.outer = outer
        self.bodies: dict[asyncio.Task[Any], int] = {}  # in a step's body, and cancelled how often
        self.order = order  # recorded completions that are still to be delivered
        self.asked: dict[str, Wait] = {}  # who waits for them
        self.arrived: collections.deque[tuple[Entry, Wait]] | None = None  # most bodies need none
        self.held: list[asyncio.Future[None]] = []  # new steps, until the replay is over
        self.blocked = 0  # threads of this body that only their durable calls are known of
        self.ready = 0  # handles of this frame that the loop has scheduled or is running
        self.spun = 0
        # The event loop's own, of a step's body.
        self.timers: weakref.WeakKeyDictionary[Any, Ring] | None = None
        self._pumping = False
        self._lenience: asyncio.TimerHandle | None = None

    @property
    def is_root(self) -> bool:
        return not self.key

    # Real time

    def keep(self, timer: Any, ring: Ring) -> Any:
        """The body of the step has set a timer, perhaps a time-out."""
        if self.timers is None:
            self.timers = weakref.WeakKeyDictionary()
        self.timers[timer] = ring
        return timer

    def runs_until(self) -> float:
        """When the last timer that is set in this step's body, or one around it, goes off. It may
        be overdue; 0: all have gone off, or were called off."""
        timers = self.timers.items() if self.timers is not None else ()
        found = [t.when() for t, ring in timers if not ring.rung and not t.cancelled()]
        if self.outer is not None:
            found.append(self.outer.runs_until())
        return max(found, default=0.0)

    # Handles

    def enter(self) -> None:
        self.ready += 1
        if self.key:
            self.run.ready_inside += 1
            return
        self.spun += 1
        if self.spun > SPIN_LIMIT:
            self.run.spins()

    def leave(self) -> None:
        self.ready -= 1
        if self.key:
            self.run.ready_inside -= 1
        assert self.ready >= 0, "a handle of the run was counted down twice"
        if not self.ready:
            self.pump()

    # Delivery

    def my_turn(self) -> bool:
        """May the running code go on with its own completion at once, as if it had been delivered?

        It may if nothing else of the frame can run and nothing came before.
        """
        return (
            self.ready == 1
            and not self.arrived
            and not self.order
            and not self.run.closed
            and not self.run.suspending
            and not (self.bodies and self._unwinding())
        )

    def arrive(self, entry: Entry, wait: Wait) -> None:
        """A live completion: it is journaled and delivered when its turn comes."""
        if self.arrived is None:
            self.arrived = collections.deque()
        self.arrived.append((entry, wait))
        if not self.ready:
            self.pump()

    def ask(self, wait: Wait) -> None:
        """Waits for a completion that the journal holds."""
        self.asked[wait.claim.key] = wait
        if not self.ready:
            self.pump()

    def pump(self) -> None:
        """The frame is quiet: deliver what is next. A delivery that wakes nobody is followed by
        another."""
        if self._pumping or self.run.closed or self.run.suspending:
            return
        if self.run.sync_body and self.run.threads > 0 and not self.key:
            return  # the body's thread is at work, and will be back
        if self.outer is not None and not self.outer.ready and self.outer.bodies:
            self.outer.pump()  # perhaps it was only waiting for this body to take its cancellation
        self._pumping = True
        try:
            while not self.ready and not self.run.closed:
                if self.bodies and self._unwinding():
                    return
                self.spun = 0
                if self.order:
                    if not self._deliver_recorded(self.order):
                        return
                elif not self.run.release(self):
                    return
                elif self.arrived:
                    self._deliver_live(*self.arrived.popleft())
                else:
                    self.run.rest(self)
                    return
        finally:
            self._pumping = False

    def _unwinding(self) -> bool:
        """Is a step that this frame cancelled still on its way out? On replay it is out at once, so
        nothing else may be delivered in between."""
        return any(task.cancelling() > n for task, n in self.bodies.items())

    def _deliver_recorded(self, order: collections.deque[Entry]) -> bool:
        entry = order[0]
        wait = self.asked.get(entry.key)
        if wait is None or not wait.ready:
            self._starve()
            return False
        self._stop_lenience()
        order.popleft()
        del self.asked[entry.key]
        if self.is_root:
            self.run.delivered_again(entry)
        wait.deliver(entry)
        return True

    def _deliver_live(self, entry: Entry, wait: Wait) -> None:
        if wait.future.done():
            self.run.inbox.put_back(entry)
            return  # its waiter was cancelled: nothing depends on it
        if self.is_root:
            if wait.admit is not None and not self.run.inbox.admits(entry, wait):
                return
            self.run.append(entry)
            self.run.pass_time(entry.at)
        wait.deliver(entry)

    # A recorded entry that nobody asks for

    def _starve(self) -> None:
        if self.is_root:
            self.run.starved()
        elif self._lenience is None:
            self._lenience = self.run.call_later(LENIENCE_SECONDS, self._relent)

    def _relent(self) -> None:
        """The step's body went another way than when it was recorded: let it."""
        self._lenience = None
        if self.run.closed or not self.order:
            return
        for entry in self.order:
            wait = self.asked.get(entry.key)
            if wait is not None and wait.ready:
                self.order.remove(entry)
                self.order.appendleft(entry)
                break
        else:
            if not self.held and not self.arrived:
                return  # it is busy with something else; `ask` and `hold` come back here
            self.order.clear()
        if not self.ready:
            self.pump()

    def _stop_lenience(self) -> None:
        if self._lenience is not None:
            self._lenience.cancel()
            self._lenience = None

    def close(self) -> None:
        self._stop_lenience()
        self.asked.clear()
        self.arrived = None
