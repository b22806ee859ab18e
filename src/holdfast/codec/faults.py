"""Exceptions in and out of payloads.

An exception is rebuilt without calling its `__init__`, and only if its class is a builtin,
registered, or already loaded; else a StepFailed stands in. Not guaranteed: attributes that have no
durable form (an HTTP response, say) are gone, arguments of that kind come back as their repr, and
there is no traceback but its text. What comes back has the same `str()`.
"""

from __future__ import annotations

import builtins
import sys
import traceback
from collections.abc import Callable
from typing import Any

from holdfast.codec.classes import TypeTable, reference
from holdfast.errors import StepFailed, Suspended

TRACEBACK_CHARS_MAX = 8 * 1024
MESSAGE_CHARS_MAX = 8 * 1024
_REPR_CHARS_MAX = 1000
_FRAMES_MAX = 40

# Each error inside an error (cause, member, argument) uses up this much of the nesting limit, so
# that they go four deep at most. What does not fit is left out here and does not end the walk, so
# errors that refer to one another would otherwise take exponential time.
LEVELS_PER_ERROR = 50

# These end a process, a generator or a run's stay in memory: a recorded one must not do that again.
_NEVER_REBUILT = (KeyboardInterrupt, SystemExit, GeneratorExit, Suspended)

Pack = Callable[[object, TypeTable, int], Any]
Unpack = Callable[[Any, TypeTable], Any]


def message_of(exc: BaseException) -> str:
    try:
        return str(exc)
    except Exception as error:
        return f"<no message: str() raised {type(error).__name__}>"


def pack_error(exc: BaseException, table: TypeTable, room: int, pack: Pack) -> dict[str, Any]:
    """The exception as a JSON object; what `pack` refuses becomes its repr or is left out."""
    plan = table.plan_of(type(exc))
    node: dict[str, Any] = {
        "~": "error",
        "c": plan.ref if plan is not None else reference(type(exc)),
        "s": message_of(exc),
    }
    room -= LEVELS_PER_ERROR
    if room <= 0:
        return node

    def attempt(value: object, otherwise: Callable[[object], object]) -> Any:
        try:
            return pack(value, table, room)
        except Exception:
            return otherwise(value)

    members: tuple[BaseException, ...] = ()
    if isinstance(exc, BaseExceptionGroup):
        members = exc.exceptions
        node["args"] = [exc.message]
        node["members"] = [pack_error(member, table, room, pack) for member in members]
    else:
        node["args"] = [attempt(arg, _short_repr) for arg in _args_of(exc)]
    attributes: dict[str, Any] = {}
    for name, value in list(getattr(exc, "__dict__", {}).items()):
        if name != "__notes__" and isinstance(name, str):
            packed = attempt(value, lambda _: attributes)
            if packed is not attributes:
                attributes[name] = packed
    if attributes:
        node["d"] = attributes
    notes = getattr(exc, "__notes__", None)
    if isinstance(notes, list) and notes:
        node["notes"] = [note for note in notes if isinstance(note, str)]
    if exc.__cause__ is not None:
        node["cause"] = pack_error(exc.__cause__, table, room, pack)
    return node


def flat_error(exc: BaseException) -> dict[str, Any]:
    """What is kept of an exception that is too large to be recorded whole."""
    message = message_of(exc)
    if len(message) > MESSAGE_CHARS_MAX:
        message = f"{message[:MESSAGE_CHARS_MAX]}… ({len(message)} characters)"
    return {"~": "error", "c": reference(type(exc)), "s": message}


def traceback_text(exc: BaseException) -> str:
    """The traceback, at most 8 KB of it: how it began and, more of interest, how it ended."""
    try:
        text = "".join(traceback.format_exception(exc, limit=-_FRAMES_MAX))
    except Exception as error:
        return f"<no traceback: formatting it raised {type(error).__name__}>"
    if len(text) <= TRACEBACK_CHARS_MAX:
        return text
    head = TRACEBACK_CHARS_MAX // 8
    return f"{text[:head]}\n…\n{text[-(TRACEBACK_CHARS_MAX - head - 3) :]}"


def type_name(ref: str) -> str:
    """A class reference as people write it: `httpx.ReadTimeout`, `ValueError`."""
    return ref.replace(":", ".").removeprefix("builtins.")


def _args_of(exc: BaseException) -> tuple[object, ...]:
    if isinstance(exc, OSError) and exc.filename is not None and len(exc.args) == 2:
        # OSError takes the file names out of its args; its constructor wants them back.
        if exc.filename2 is None:
            return (*exc.args, exc.filename)
        return (*exc.args, exc.filename, None, exc.filename2)
    return exc.args


class Shown(str):
    """What is left of an argument without a durable form: it prints as the argument did."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _short_repr(value: object) -> dict[str, Any]:
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__qualname__}>"
    if len(text) > _REPR_CHARS_MAX:
        text = f"{text[:_REPR_CHARS_MAX]}…"
    return {"~": "repr", "v": text}


def _unpack_arg(node: Any, table: TypeTable, unpack: Unpack) -> Any:
    if isinstance(node, dict) and node.get("~") == "repr":
        return Shown(node["v"])
    return unpack(node, table)


def unpack_error(node: dict[str, Any], table: TypeTable, unpack: Unpack) -> BaseException:
    ref, message = node["c"], node["s"]
    if not isinstance(ref, str) or not isinstance(message, str):
        raise ValueError("an error needs a class and a message")
    args = [_unpack_arg(arg, table, unpack) for arg in node.get("args", ())]
    attributes = {name: unpack(value, table) for name, value in node.get("d", {}).items()}
    members = [unpack_error(member, table, unpack) for member in node.get("members", ())]
    cls = _class_of(ref, table)
    exc: BaseException | None = None
    if cls is not None:
        exc = _rebuild(cls, args, attributes, members, message)
    if exc is None:
        exc = StepFailed(message or type_name(ref), type_name=type_name(ref))
        # Marks and status codes still tell whether trying again makes sense.
        exc.__dict__.update({k: v for k, v in attributes.items() if k != "type_name"})
    for note in node.get("notes", ()):
        exc.add_note(note)
    if node.get("cause") is not None:
        exc.__cause__ = unpack_error(node["cause"], table, unpack)
    return exc


def _class_of(ref: str, table: TypeTable) -> type[BaseException] | None:
    plan = table.find(ref)
    cls: object = plan.cls if plan is not None else _loaded(ref)
    if not isinstance(cls, type) or not issubclass(cls, BaseException):
        return None
    return None if issubclass(cls, _NEVER_REBUILT) else cls


def _loaded(ref: str) -> object:
    """The class if its module is loaded. Never by getattr: a lazy module would import things."""
    module_name, _, qualname = ref.partition(":")
    found: object = sys.modules.get(module_name)
    for part in qualname.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    return found


def _rebuild(
    cls: type[BaseException],
    args: list[Any],
    attributes: dict[str, Any],
    members: list[BaseException],
    message: str,
) -> BaseException | None:
    if members or issubclass(cls, BaseExceptionGroup):
        args = [args[0] if args else message, members]
    # Arguments that came back as their repr may spoil the message; the class still says what to
    # catch, so a second try gives it the message as its only argument.
    for candidate in (args, [message]):
        try:
            exc = _revive(cls, tuple(candidate), attributes)
            if str(exc) == message:
                return exc
        except Exception:  # whatever the class does with arguments it has never seen
            continue
    return None


def _revive(
    cls: type[BaseException], args: tuple[Any, ...], attributes: dict[str, Any]
) -> BaseException:
    """An instance made by the builtin base's constructor, passing by the class's own `__init__`."""
    base: Any = next(b for b in cls.__mro__ if getattr(builtins, b.__name__, None) is b)
    exc: BaseException = base.__new__(cls, *args)
    if not isinstance(exc, cls):
        raise TypeError(f"{cls!r} made {type(exc)!r}")
    base.__init__(exc, *args)
    if not isinstance(exc, OSError | BaseExceptionGroup):
        exc.args = args
    if attributes:
        exc.__dict__.update(attributes)
    return exc
