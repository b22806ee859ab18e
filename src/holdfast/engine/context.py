"""Where in a run the code is: the scope that names what it does next.

A key is the path of scopes down to a call, and the call's own name with a counter:
`/review@0/ask#2` is the third `ask` of the first task that runs `review`. Tasks, threads and step
bodies are scopes of their own, so that parallel branches count for themselves and get the same keys
on replay, whatever order they run in. A part of a path with `#` is a step, one with `@` a task or
thread.

Keys are stable as long as the code asks for the same things in the same order *within each scope*;
they know nothing of the order between scopes.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from holdfast.errors import BadValue, NotInRun
from holdfast.text import A_NAME, can_be_a_name
from holdfast.types import RunId

if TYPE_CHECKING:
    from holdfast.engine.frame import Frame
    from holdfast.engine.preview import Preview

P = ParamSpec("P")
R = TypeVar("R")


class Scope:
    __slots__ = ("_branches", "_calls", "after", "claims", "frame", "path")

    def __init__(self, frame: Frame, path: str) -> None:
        self.frame = frame
        self.path = path
        self.claims = 0
        self.after: tuple[Preview, ...] = ()  # what its code may have read; see preview.py
        self._calls: dict[str, int] = {}
        self._branches: dict[str, int] | None = None

    @property
    def is_main(self) -> bool:
        """Is this the workflow's own body, and no task, thread or step of it?"""
        return not self.frame.key and "@" not in self.path

    def claim(self, name: str) -> Claim:
        """Names the next call of `name` in this scope."""
        n = self._calls.get(name, 0)
        self._calls[name] = n + 1
        self.claims += 1
        return Claim(self, f"{self.path}/{quoted(name)}#{n}", name, self.claims)

    def restart(self, path: str) -> None:
        """Names begin anew under another path."""
        self.path, self.claims, self._calls, self._branches = path, 0, {}, None

    def branch(self, name: str) -> Scope:
        """The scope of a new task or thread."""
        if self._branches is None:
            self._branches = {}
        n = self._branches.get(name, 0)
        self._branches[name] = n + 1
        return Scope(self.frame, f"{self.path}/{quoted(name)}@{n}")


class Claim:
    """A call's identity, taken when it is made and not when it is awaited."""

    __slots__ = ("key", "name", "position", "scope")

    def __init__(self, scope: Scope, key: str, name: str, position: int) -> None:
        self.scope, self.key, self.name, self.position = scope, key, name, position

    def __str__(self) -> str:
        """As errors name it; most claims are never put into words."""
        return f"step {self.key!r} of run {self.scope.frame.run.row.id!r}"


current: contextvars.ContextVar[Scope | None] = contextvars.ContextVar("holdfast", default=None)


# `asyncio.to_thread` enters the caller's context inside the thread, so that the context variable
# alone would give every thread of a task the task's own scope. The submission's scope is kept here.
class _Submission(threading.local):
    pair: tuple[Scope, Scope] | None = None  # of the submitting code, and of the thread's own


_submission = _Submission()


def enter_submission(parent: Scope, own: Scope) -> None:
    _submission.pair = (parent, own)


def leave_submission() -> None:
    _submission.pair = None


def scope() -> Scope | None:
    """The scope of the calling code; None outside any run."""
    found = current.get()
    if found is not None:
        pair = _submission.pair
        if pair is not None and pair[0] is found:
            return pair[1]
    return found


def here(branch: str | None = None) -> contextvars.Context:
    """A copy of the context that is of this task or thread; see `placed`. branch: or of a branch of
    that name, as if a task were made of it, for what is called beside others."""
    context, where = contextvars.copy_context(), scope()
    context.run(current.set, where.branch(branch) if where is not None and branch else where)
    return context


@contextlib.contextmanager
def placed(context: contextvars.Context) -> Iterator[None]:
    """The code inside makes its durable calls, and its tasks, as if it were where `context` was
    taken by `here()`: the same names, the same counters. For adapters, whose frameworks call the
    user's code from tasks and threads of their own, which would be in its keys. Both places are of
    the same step, or of the same workflow's body; otherwise nothing happens."""
    there, here = context.get(current), scope()
    if there is None or here is None or there.frame is not here.frame:
        yield
        return
    token, pair = current.set(there), _submission.pair
    _submission.pair = None  # a thread, too, is where it is told to be
    try:
        yield
    finally:
        _submission.pair = pair
        current.reset(token)


def outside(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Calls code that makes a value once, and not on replay: durable calls in it are plain ones."""
    context = contextvars.copy_context()
    context.run(current.set, None)
    return context.run(call, *args, **kwargs)


def current_run() -> RunId | None:
    """The id of the run that this code is a part of; None outside of runs."""
    where = current.get()  # a thread has a scope of its own, but no other run
    return where.frame.run.row.id if where is not None else None


def scratch() -> dict[Any, Any]:
    """What this execution of the run keeps in memory: empty whenever the body begins, also on
    replay. Adapters keep there what belongs to a run and not to the process."""
    where = current.get()
    if where is None:
        raise NotInRun("scratch() is for code inside of a run")
    return where.frame.run.scratch


def on_leave(close: Callable[[], Awaitable[None]]) -> None:
    """Awaits `close()` when this execution of the run leaves memory: it has ended, waits for long,
    or another worker has it. Adapters close there what `scratch()` holds. It is no part of the run,
    and called on its event loop; a process that is killed calls nothing."""
    where = scope()
    if where is None:
        raise NotInRun("on_leave() is for code inside of a run")
    where.frame.run.held.add(close)


def quoted(name: str) -> str:
    """A name that cannot be mistaken for a path."""
    if "/" in name or "#" in name or "@" in name or "%" in name:
        for char in "%/#@":
            name = name.replace(char, f"%{ord(char):02X}")
    return name


def named(what: str, name: object) -> str:
    """A name that every store can hold; BadValue otherwise."""
    if can_be_a_name(name) and name:
        return name
    raise BadValue(f"the name of a {what} is {A_NAME}, not {name!r}")


def parent_path(key: str) -> str:
    return key.rpartition("/")[0]


def enclosing_step(key: str) -> str:
    """The key of the innermost step around this one; empty for the workflow's own body."""
    path = parent_path(key)
    if "#" not in path:
        return ""
    cut = path.find("/", path.rindex("#"))
    return path if cut < 0 else path[:cut]


def chapter_path(chapter: int) -> str:
    """Where the body's keys begin: anew after each snapshot, so that they agree with a restart from
    it."""
    return f"/~{chapter}" if chapter else ""
