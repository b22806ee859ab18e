"""Payloads: values and errors as bytes of standard JSON, and back.

`decode(encode(value))` equals the value with the same types at every level, or `encode` raises.
Not guaranteed: equal values have equal bytes only if their dicts are in the same order, and bytes
written by a newer version may not be readable by an older one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextvars import copy_context
from hashlib import blake2b
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any, NoReturn

from holdfast.codec.classes import EMPTY, LOOSE, table_for
from holdfast.codec.faults import (
    flat_error,
    pack_error,
    traceback_text,
    type_name,
    unpack_error,
)
from holdfast.codec.pack import LEVELS_MAX, TAG, Trouble, pack
from holdfast.codec.shapes import shape_of
from holdfast.codec.unpack import unpack
from holdfast.errors import BadValue, NotDecodable, NotEncodable, PayloadTooLarge

PAYLOAD_BYTES_MAX = 256 * 2**20
# An error is there to be read; beyond this only its class, message and traceback are kept.
ERROR_BYTES_MAX = 2**20

_TAG_BYTES = f'"{TAG}"'.encode()

# To look for what needs an escape is several times faster than to escape letter by letter.
_LONG = 100
_RARE = bytes(set(range(0x20)) - {0x0A} | set(b'"\\'))


def _writer(escape: Callable[[str], str], *, ensure_ascii: bool) -> Callable[[Any], str]:
    """A JSONEncoder's `encode`, without the C encoder it makes anew at each call.

    No cycle can get here: pack() stops at its nesting limit.
    """
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, check_circular=False, allow_nan=False, separators=(",", ":")
    )
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return encoder.encode
    chunks = make(None, encoder.default, escape, None, ":", ",", False, False, False)
    return lambda tree: "".join(chunks(tree, 0))


_dumps = _writer(encode_basestring, ensure_ascii=False)
_dumps_ascii = _writer(encode_basestring_ascii, ensure_ascii=True)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_loads = json.JSONDecoder(parse_constant=_refuse_constant).decode


def encode(value: object, *, annotation: object = Any, what: object, loose: bool = False) -> bytes:
    """The value as bytes; `what` names it in errors. The annotation says which classes may occur.

    Does not check the value against the annotation. With `loose` every dataclass, enum, NamedTuple
    and model may occur: for data that is compared and shown, and that nobody will decode.
    """
    try:
        try:
            data = _quote(value) if type(value) is str else _encode(value, annotation, loose)
        except RecursionError:
            data = _on_fresh_stack(lambda: _encode(value, annotation, loose))
    except Trouble as trouble:
        cause = trouble.__cause__
        raise NotEncodable(_sentence(what, "cannot be recorded", trouble)) from cause
    except RecursionError:
        raise NotEncodable(
            f"{what}: cannot be recorded: the value is nested too deeply. Return flatter data."
        ) from None
    if len(data) > PAYLOAD_BYTES_MAX:
        raise PayloadTooLarge(
            f"{what}: the value takes {len(data):,} bytes, and {PAYLOAD_BYTES_MAX:,} are the limit."
            " Keep large data in a file or an object store, and return its address."
        )
    return data


def _encode(value: object, annotation: object, loose: bool) -> bytes:
    return _to_bytes(pack(value, LOOSE if loose else table_for(annotation), LEVELS_MAX))


def decode(data: bytes, annotation: object = Any, *, what: object) -> Any:
    """The value that was encoded."""
    try:
        try:
            value = _decode(data, annotation)
        except RecursionError:
            value = _on_fresh_stack(lambda: _decode(data, annotation))
    except Trouble as trouble:
        cause = trouble.__cause__
        raise NotDecodable(_sentence(what, "cannot be read", trouble)) from cause
    except RecursionError:
        raise NotDecodable(
            f"{what}: cannot be read: the recorded value is nested too deeply"
        ) from None
    except ValueError as error:
        raise NotDecodable(f"{what}: the recorded value is damaged: {error}") from None
    return value


def _decode(data: bytes, annotation: object) -> Any:
    if data[:1] == b'"' and data.find(b'"', 1) == len(data) - 1 and b"\\" not in data:
        return data[1:-1].decode()  # a text without escapes
    value = _loads(data.decode())
    # Without a tag anywhere the JSON is the value.
    return unpack(value, table_for(annotation)) if _TAG_BYTES in data else value


def decode_fitting(data: bytes, annotation: object, *, what: object) -> tuple[Any, bool]:
    """What came from outside, as a value of the annotated type; BadValue if it does not fit.

    The second is True if plain data was converted: then another form of it is to be recorded, for
    a class may make something else of the same data the next time.
    """
    from holdfast.codec.fit import Fitter, complaint

    shape = shape_of(annotation)

    def fit() -> tuple[Any, bool]:
        node = _loads(data.decode())
        fitter = Fitter(shape.tree, len(data), shape)
        value = fitter.fit(shape.tree, node)
        return (value, True) if fitter.changed else (decode(data, annotation, what=what), False)

    try:
        if not shape.tree:
            return decode(data, annotation, what=what), False
        try:
            return fit()
        except RecursionError:
            found: tuple[Any, bool] = _on_fresh_stack(fit)
            return found
    except Trouble as trouble:
        raise BadValue(f"{what}: {complaint(trouble)}") from trouble.__cause__
    except NotDecodable as error:
        raise BadValue(str(error)) from error.__cause__
    except RecursionError:
        raise BadValue(f"{what}: the value is nested too deeply") from None
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # anybody may have written it, and classes raise what they like
        text = f"{type(error).__name__}: {error}"
        raise BadValue(f"{what}: the value cannot be read: {text}") from error


def admit(data: bytes, annotation: object, *, what: object) -> bytes:
    """What came from outside in the form in which it is recorded; BadValue if it does not fit."""
    value, converted = decode_fitting(data, annotation, what=what)
    if not converted:
        return data
    try:
        return encode(value, annotation=annotation, what=what)
    except (NotEncodable, PayloadTooLarge):  # its class holds more than can be recorded
        return data


def fitted(value: Any, annotation: object, *, what: object) -> Any:
    """The value of a call's argument, converted from plain data if need be; BadValue if it does not
    fit."""
    if type(value) is annotation or not shape_of(annotation).tree:
        return value
    data = encode(value, annotation=annotation, what=what)
    made, converted = decode_fitting(data, annotation, what=what)
    return made if converted else value


def _on_fresh_stack(work: Callable[[], Any]) -> Any:
    """Runs in a thread of its own: the recursion limit counts per thread.

    A value that was recorded near the stack's bottom must be readable near its top, too.
    """
    outcome: list[Any] = []
    context = copy_context()

    def run() -> None:
        try:
            outcome.extend((True, context.run(work)))
        except BaseException as error:
            outcome.extend((False, error))

    thread = threading.Thread(target=run, name="holdfast-codec")
    thread.start()
    thread.join()
    succeeded, result = outcome
    if not succeeded:
        raise result
    return result


def digest(data: bytes) -> bytes:
    """16 bytes that tell payloads apart; not a signature."""
    return blake2b(data, digest_size=16).digest()


def encode_error(exc: BaseException, *, what: object) -> bytes:
    """The exception as bytes. Never fails: what cannot be recorded is left out."""
    trace = traceback_text(exc)
    try:
        node = pack_error(exc, EMPTY, LEVELS_MAX, pack)
        node["traceback"] = trace
        data = _to_bytes(node)
    except Exception:  # above all RecursionError, when the stack is nearly full
        data = b""
    if not data or len(data) > ERROR_BYTES_MAX:
        data = _to_bytes({**flat_error(exc), "traceback": trace})
    assert len(data) <= PAYLOAD_BYTES_MAX, what
    return data


def decode_error(data: bytes) -> BaseException:
    """The exception, or a StepFailed in its place if its class is not at hand."""
    try:
        return unpack_error(_error_node(data), EMPTY, unpack)
    except NotDecodable:
        raise
    except Exception as error:
        raise NotDecodable(f"a recorded error is damaged: {error}") from error


def error_summary(data: bytes) -> tuple[str, str, str]:
    """The error's type name, message and traceback as text, whatever classes are loaded."""
    node = _error_node(data)
    name = type_name(str(node.get("c")))
    attributes = node.get("d")
    if name == "holdfast.errors.StepFailed" and isinstance(attributes, dict):
        name = str(attributes.get("type_name") or name)
    return name, str(node.get("s")), str(node.get("traceback", ""))


def _error_node(data: bytes) -> dict[str, Any]:
    try:
        node = _loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise NotDecodable(f"a recorded error is damaged: {error}") from None
    if not isinstance(node, dict) or node.get(TAG) != "error":
        raise NotDecodable("a recorded error is damaged: the data holds no error")
    return node


def _quote(text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which only an escape can hold
        return encode_basestring_ascii(text).encode()
    if len(data) >= _LONG and len(data.translate(None, _RARE)) == len(data):
        return b'"' + data.replace(b"\n", b"\\n") + b'"'
    return encode_basestring(text).encode()


def _to_bytes(node: object) -> bytes:
    try:
        return _dumps(node).encode()
    except UnicodeEncodeError:  # a lone surrogate, which only an escape can hold
        return _dumps_ascii(node).encode()


def _sentence(what: object, verb: str, trouble: Trouble) -> str:
    text = f"{what}: {verb}: {trouble.where()} {trouble.reason}."
    return f"{text} {trouble.cure}" if trouble.cure else text
