"""What adapters have in common: calls as steps, policies, and a look at a framework's hooks.

An adapter finds the run by its context (`holdfast.current_run()`), so that the framework need not
pass anything on. Outside of runs it does nothing at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dataclasses
import datetime
import decimal
import enum
import functools
import importlib
import importlib.metadata
import inspect
import uuid
import warnings
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import holdfast

A = TypeVar("A")
T = TypeVar("T")

NAMES_MAX = 1000
"""How often one run may ask for an answer under the same id of a call."""

NOT_FOR_THE_MODEL = (
    holdfast.NotEncodable,
    holdfast.NotDecodable,
    holdfast.PayloadTooLarge,
    holdfast.TooDeep,
    holdfast.Diverged,
    holdfast.BodySpins,
    holdfast.NotInRun,
    holdfast.StepOnEventLoop,
    holdfast.PromiseReused,
    holdfast.StoreError,
)
"""Mistakes in the program: told to the model as a tool's failure, nobody would ever see them."""

AGENT_WORKFLOW = "__holdfast_workflow__"  # where an app looks for it
OVERFLOW_CODES = ("context_length_exceeded", "string_above_max_length")
OVERFLOW_WORDS = (
    "context length",
    "context window",
    "prompt is too long",
    "maximum context",
    "maximum number of tokens",
)
_LEVELS_MAX = 20
_PLAIN = (
    type(None), str, int, float, bool, bytes, datetime.date, datetime.time, datetime.timedelta,
    decimal.Decimal, uuid.UUID, enum.Enum,
)  # fmt: skip


class UntestedVersion(UserWarning):
    """The framework is newer than what this adapter was tested with; its hooks are there."""


def as_step(
    name: str,
    work: Callable[[], Awaitable[T]],
    *,
    shown: Any = None,
    retry: holdfast.Retry | None = None,
    returns: Any = Any,
) -> Awaitable[T]:
    """Awaits `work` as a step. Its result must be JSON-ready, or of a type that `returns` leads to.
    `shown` is what the journal shows as the step's input; on replay it must be the same again, so
    leave out what changes (ids, times)."""

    async def call(shown):  # type: ignore[no-untyped-def]
        return await work()

    call.__annotations__["return"] = returns
    return holdfast.step(name=name, retry=retry)(call)(shown)


def as_thread_step(
    name: str,
    work: Callable[[], T],
    *,
    shown: Any = None,
    retry: holdfast.Retry | None = None,
    returns: Any = Any,
) -> T:
    """The same for code in a thread."""
    return _thread_step(name, work, retry, returns)(shown)


def _thread_step(
    name: str, work: Callable[[], T], retry: holdfast.Retry | None, returns: Any
) -> Callable[[Any], T]:
    def call(shown: Any) -> Any:
        return work()

    call.__annotations__["return"] = returns
    return holdfast.step(name=name, retry=retry)(call)


def in_own_thread(
    name: str,
    work: Callable[[], T],
    *,
    shown: Any = None,
    retry: holdfast.Retry | None = None,
    returns: Any = Any,
) -> asyncio.Future[T]:
    """Sync work as a step of async code, in a thread made for it: it may take its time, and the
    event loop's own threads are few."""
    step = _thread_step(name, work, retry, returns)
    threads = ThreadPoolExecutor(1, thread_name_prefix="holdfast-adapter")
    entering = functools.partial(contextvars.copy_context().run, step, shown)
    working: asyncio.Future[T] = asyncio.get_running_loop().run_in_executor(threads, entering)
    working.add_done_callback(lambda _: threads.shutdown(wait=False))
    return working


class Place:
    """A place in a run, to which calls belong that are made elsewhere in it.

    Frameworks make tasks of their own, and a call's key would name them: it would change with the
    framework's next version. Calls that are made under a place are named as if made there.
    """

    def __init__(self, branch: str | None = None) -> None:
        self._context = holdfast.here(branch)
        self._step = _step_here()

    @property
    def is_near(self) -> bool:
        """Not so in a step that has begun since: its calls are its own."""
        return self._step == _step_here()

    def nearest(self) -> Place:
        """This one, or the step's own in a step that has begun since."""
        return self if self.is_near else Place()

    @property
    def is_in_body(self) -> bool:
        """Of the workflow itself, not of a step."""
        return not self._step

    def claim(self, make: Callable[[], T]) -> T:
        """Makes a durable call; it can be awaited anywhere."""
        return self._context.run(make)

    def entered(self) -> contextlib.AbstractContextManager[None]:
        """For code that a framework calls from a task or thread of its own."""
        return holdfast.placed(self._context)

    def branch(self, name: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task for something that happens beside others; what it calls is named under it."""
        work.__qualname__ = name  # type: ignore[attr-defined]
        inside = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        return self._context.run(lambda: loop.create_task(work, context=inside))


def _step_here() -> str:
    try:
        return holdfast.idempotency_key()
    except holdfast.NotInRun:
        return ""


def blocking(work: Coroutine[Any, Any, T], instead: str) -> T:
    """Waits for `work` in a `def` workflow or a thread of a run. `instead`: what to do on the event
    loop, which the run itself needs."""
    if asyncio._get_running_loop() is not None:
        work.close()
        raise holdfast.NotInRun(
            f"this blocks the event loop that its run needs: {instead} in async workflows and "
            "tools; sync calls are for `def` ones, and threads"
        )
    result: T = holdfast.race(work=work).result()[1]
    return result


async def ask_in_order(
    models: Sequence[A],
    given: Any,
    ask: Callable[[A, Any], Awaitable[T]],
    *,
    on_overflow: Callable[[Any], Any] | None = None,
    may_turn: Callable[[], bool] = lambda: True,
) -> T:
    """Asks one model after the other, each as often as the policy of its step says, and once more
    with something shorter if `given` was more than it can read."""

    async def fitted(model: A) -> T:
        try:
            return await ask(model, given)
        except holdfast.ContextOverflow:
            if on_overflow is None:
                raise
        shorter = on_overflow(given)
        return await ask(model, await shorter if inspect.isawaitable(shorter) else shorter)

    for model in models[:-1]:
        try:
            return await fitted(model)
        except Exception as error:
            turns = not isinstance(error, holdfast.HoldfastError)
            turns = turns or isinstance(error, holdfast.Terminal | holdfast.StepFailed)
            if not turns or not may_turn():
                raise
    return await fitted(models[-1])


def under_free_name(name: str, make: Callable[[str], T]) -> T:
    """Makes a promise of that name; some models count their calls anew in each conversation, and
    then it ends in a number."""
    for n in range(1, NAMES_MAX):
        try:
            return make(name if n == 1 else f"{name}:{n}")
        except holdfast.PromiseReused:
            continue
    raise holdfast.PromiseReused(f"{NAMES_MAX} promises of one run are called {name!r}")


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What the options of `durable(...)` say about failing calls.

    retry: for calls of the model; tools: for calls of tools, of all or by their names. None is the
    engine's own policy.
    """

    retry: holdfast.Retry | None = None
    tools: holdfast.Retry | Mapping[str, holdfast.Retry] | None = None

    def __post_init__(self) -> None:
        given = self.tools
        if given is not None and not isinstance(given, holdfast.Retry):
            for name, policy in given.items():
                if not isinstance(name, str) or not isinstance(policy, holdfast.Retry):
                    raise holdfast.BadArguments(
                        f"tools={given!r}: a holdfast.Retry, or one for each tool's name"
                    )

    def for_tool(self, name: str) -> holdfast.Retry | None:
        if self.tools is None or isinstance(self.tools, holdfast.Retry):
            return self.tools
        return self.tools.get(name)


def is_plain(value: Any, levels: int = _LEVELS_MAX) -> bool:
    """Is it data, and nothing that lives (a client, a lock)?"""
    if isinstance(value, _PLAIN):
        return True
    if not levels:
        return False
    parts: Any = None
    if isinstance(value, dict):
        parts = [*value, *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        parts = value
    elif hasattr(type(value), "model_fields"):  # of pydantic
        parts = vars(value).values()
    elif dataclasses.is_dataclass(value):
        parts = [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    return parts is not None and all(is_plain(part, levels - 1) for part in parts)


def is_same(before: Any, after: Any) -> bool:
    try:
        return type(before) is type(after) and bool(before == after)
    except Exception:  # whatever a class of the user's does when it is compared
        return False


def is_overflow(error: BaseException) -> bool:
    """Does the model say that it was given more than it can read?"""
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, Mapping) else None
    codes = [getattr(error, "code", None), inner.get("code") if inner else None]
    if any(code in OVERFLOW_CODES for code in codes):
        return True
    status = getattr(error, "status_code", getattr(error, "code", None))  # Google's is a code
    return status in (400, 413) and any(word in str(error).lower() for word in OVERFLOW_WORDS)


@functools.cache
def in_runs(kind: type[Any]) -> type[Any]:
    """A class of clients, of OpenAI or Anthropic, that leave retries to the step around their calls
    and send its key with each try."""

    def get(self: Any) -> int:
        return 0 if holdfast.current_run() is not None else self.__dict__["max_retries"]

    def put(self: Any, value: int) -> None:
        self.__dict__["max_retries"] = value

    def headers(self: Any) -> dict[str, Any]:
        found: dict[str, Any] = super(made, self).default_headers
        key = _step_here() if holdfast.current_run() is not None else ""
        return {**found, "Idempotency-Key": key} if key else found

    own = {"max_retries": property(get, put), "default_headers": property(headers)}
    made: type[Any] = type(kind.__name__, (kind,), own)
    return made


def leave_retries_to_the_step(client: Any) -> bool:
    """A client that tries again by itself would multiply what the policy says. False if it is of
    another kind than OpenAI's and Anthropic's."""
    if not isinstance(getattr(client, "__dict__", {}).get("max_retries"), int):
        return False
    kind: type[Any] = type(client)
    if not isinstance(getattr(kind, "max_retries", None), property):
        client.__class__ = in_runs(kind)  # type: ignore[arg-type, unused-ignore]
    return True


def make_startable(agent: A, workflow: holdfast.Workflow[Any, Any]) -> A:
    """Lets `app.start(agent, ...)` run the agent as a run of its own."""
    put = type.__setattr__ if isinstance(agent, type) else object.__setattr__
    put(agent, AGENT_WORKFLOW, workflow)
    return agent


def require_name(agent: object, name: object) -> str:
    """An agent's own name: its runs and its keys are found by it, also by the next process."""
    if isinstance(name, str) and name.strip():
        return name
    raise holdfast.BadArguments(
        f"{agent!r} has no name, and its runs are found by it after a restart: give it one that "
        "stays, where it is made or by durable(agent, name=...)"
    )


def find_hooks(names: Iterable[str]) -> dict[str, Any]:
    """What the names ("module:class.method") stand for; None if there is no such thing."""
    return {name: _found(name) for name in names}


def _found(name: str) -> Any:
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ImportError:
        return None
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def require_hooks(distribution: str, tested: str, hooks: Mapping[str, object]) -> None:
    """Refuses a framework without the hooks that its adapter needs (those that are None), and warns
    of one that is newer than what was tested."""
    version = importlib.metadata.version(distribution)
    missing = sorted(name for name, hook in hooks.items() if hook is None)
    if missing:
        raise holdfast.Unsupported(
            f"{distribution} {version} has no {', '.join(missing)}, which its adapter needs: use "
            f"{distribution}=={tested}, or a newer Holdfast"
        )
    if _numbers(version) > _numbers(tested):
        warnings.warn(
            f"{distribution} {version} is newer than {tested}, with which Holdfast was tested; the "
            "hooks that it needs are there",
            UntestedVersion,
            stacklevel=3,
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:3] if part.isdigit())
