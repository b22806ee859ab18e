"""Exceptions come back with class, message, arguments and attributes, or as a StepFailed."""

from __future__ import annotations

import asyncio
import json
import sys
import types
from typing import Any

import httpx
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import errors
from holdfast.codec import (
    ERROR_BYTES_MAX,
    classes,
    decode,
    decode_error,
    encode,
    encode_error,
    error_summary,
    register,
)
from holdfast.retry import EXHAUSTED_MARK, classify

WHAT = "step 'ask' of run 'r1'"


def again(exc: BaseException) -> BaseException:
    return decode_error(encode_error(exc, what=WHAT))


class Refused(Exception):
    """Its own __init__ takes something else than what it passes on."""

    def __init__(self, code: int, *, client: object = None) -> None:
        super().__init__(f"refused with {code}")
        self.code = code
        self.client = client


class Shouting(ValueError):
    def __str__(self) -> str:
        return str(self.args[0]).upper()


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


class Opaque:
    def __repr__(self) -> str:
        return "<an opaque thing>"


class DiskError(OSError):
    def __init__(self, disk: str) -> None:
        super().__init__(5, "broken", f"/dev/{disk}")
        self.disk = disk


class Outer:
    class InnerError(Exception):
        pass


@pytest.mark.parametrize(
    "exc",
    [
        ValueError("x"),
        ValueError(),
        ValueError("a", 1, (2.5, None), {"k": b"v"}),
        KeyError("missing"),
        FileNotFoundError(2, "No such file", "/a"),
        OSError(18, "Invalid link", "/a", None, "/b"),
        OSError("just text"),
        ConnectionResetError(104, "reset"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad byte"),
        StopIteration(3),
        asyncio.CancelledError("told to"),
        json.JSONDecodeError("bad", "{", 1),
        errors.Terminal("no"),
        errors.StepTimedOut("slow"),
        errors.StepFailed("x", type_name="a.B"),
        Refused(7),
        Shouting("hey"),
        DiskError("sda"),
        Outer.InnerError("x"),
        httpx.ReadTimeout("slow"),
        ValueError("lone \ud800 surrogate"),
    ],
    ids=lambda exc: ascii(exc)[:50],
)
def test_an_exception_comes_back_with_class_message_args_and_attributes(exc):
    result = again(exc)
    assert type(result) is type(exc)
    assert str(result) == str(exc) and result.args == exc.args
    assert {k: v for k, v in vars(result).items() if v is not None} == {
        k: v for k, v in vars(exc).items() if v is not None
    }


def test_the_fields_of_builtin_errors_are_set():
    result = again(OSError(18, "Invalid link", "/a", None, "/b"))
    assert isinstance(result, OSError)
    assert (result.errno, result.filename, result.filename2) == (18, "/a", "/b")
    broken = again(DiskError("sda"))
    assert isinstance(broken, DiskError) and (broken.errno, broken.disk) == (5, "sda")


@given(st.lists(st.one_of(st.text(), st.integers(), st.floats(allow_nan=False), st.binary())))
def test_any_arguments_come_back(args):
    result = again(RuntimeError(*args))
    assert type(result) is RuntimeError and result.args == tuple(args)


def test_what_has_no_durable_form_becomes_its_repr_or_is_left_out():
    result = again(Refused(7, client=Opaque()))
    assert isinstance(result, Refused)
    assert result.code == 7 and not hasattr(result, "client")
    pair = again(ValueError("a", Opaque()))
    assert type(pair) is ValueError and pair.args == ("a", "<an opaque thing>")


def test_the_class_stays_even_if_its_arguments_spoil_the_message():
    class Plain:
        def __str__(self) -> str:
            return "the text"

    result = again(ValueError(Plain()))
    assert type(result) is ValueError and str(result) == "the text"


def test_status_codes_survive_for_whoever_decides_about_retries():
    request = httpx.Request("GET", "https://example.org")
    response = httpx.Response(503, request=request)
    result = again(httpx.HTTPStatusError("down", request=request, response=response))
    assert type(result) is httpx.HTTPStatusError and str(result) == "down"
    marked = ConnectionError("x")
    setattr(marked, EXHAUSTED_MARK, True)
    assert classify(again(marked)) == "terminal"


# --- chains and groups


def test_notes_and_causes_come_back_three_deep():
    chain: BaseException = ValueError("0")
    for n in range(1, 6):
        outer = RuntimeError(str(n))
        outer.__cause__ = chain
        chain = outer
    chain.add_note("seen by hand")
    result: BaseException | None = again(chain)
    assert result is not None and result.__notes__ == ["seen by hand"]
    messages = []
    while result is not None:
        messages.append(str(result))
        result = result.__cause__
    assert messages[:4] == ["5", "4", "3", "2"] and len(messages) == 4


def test_groups_come_back_with_their_members():
    group = ExceptionGroup("two", [ValueError("a"), ExceptionGroup("in", [KeyError("b")])])
    result = again(group)
    assert type(result) is ExceptionGroup and str(result) == str(group)
    assert [repr(member) for member in result.exceptions] == [
        "ValueError('a')",
        "ExceptionGroup('in', [KeyError('b')])",
    ]
    assert type(again(BaseExceptionGroup("b", [asyncio.CancelledError()]))) is BaseExceptionGroup


def test_exceptions_that_refer_to_one_another_end_somewhere():
    one, two = Refused(1), Refused(2)
    one.__dict__.update(a=two, b=[two, one], c=one)
    two.__dict__.update(a=one, b=[one, two], c=two)
    one.__cause__, two.__cause__ = two, one
    one.args = (two, one)
    assert len(encode_error(one, what=WHAT)) <= ERROR_BYTES_MAX


# --- when the class is not at hand


def test_an_exception_of_a_module_that_is_not_loaded_is_a_StepFailed():
    module = types.ModuleType("vanishing")
    sys.modules["vanishing"] = module
    cls = type("GoneError", (Exception,), {"__module__": "vanishing"})
    vars(module)["GoneError"] = cls
    exc = cls("it broke")
    exc.status_code = 401
    data = encode_error(exc, what=WHAT)
    assert type(decode_error(data)) is cls
    del sys.modules["vanishing"]
    result = decode_error(data)
    assert isinstance(result, errors.StepFailed)
    assert str(result) == "it broke" and result.type_name == "vanishing.GoneError"
    assert classify(result) == "terminal"  # 401
    assert error_summary(encode_error(result, what=WHAT))[0] == "vanishing.GoneError"


def test_a_local_class_is_a_StepFailed_unless_registered(monkeypatch):
    monkeypatch.setattr(classes, "_registered", {})
    monkeypatch.setattr(classes, "_by_name", {})
    monkeypatch.setattr(classes, "_reach", [])

    class LocalError(Exception):
        pass

    assert type(again(LocalError("x"))) is errors.StepFailed
    register(LocalError, name="local-error")
    assert type(again(LocalError("x"))) is LocalError


def test_no_module_is_imported_and_no_attribute_of_a_lazy_module_is_asked_for():
    lazy = types.ModuleType("lazy")
    lazy.__getattr__ = lambda name: pytest.fail("asked")  # type: ignore[method-assign]
    sys.modules["lazy"] = lazy
    try:
        for ref in ("lazy:Error", "antigravity:Error", "os:system", "builtins:eval", ":", "x"):
            data = json.dumps({"~": "error", "c": ref, "s": "m"}).encode()
            assert type(decode_error(data)) is errors.StepFailed
    finally:
        del sys.modules["lazy"]
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize(
    "exc", [KeyboardInterrupt("x"), SystemExit(3), GeneratorExit(), errors.Suspended("x")]
)
def test_what_would_end_a_process_or_a_run_is_never_rebuilt(exc):
    result = again(exc)
    assert type(result) is errors.StepFailed and type(exc).__name__ in result.type_name


def test_a_class_that_cannot_be_made_by_hand_is_a_StepFailed():
    with pytest.raises(pydantic.ValidationError) as caught:
        pydantic.TypeAdapter(int).validate_python("x")
    result = again(caught.value)
    assert type(result) is errors.StepFailed and str(result) == str(caught.value)


# --- never fails, never grows without bound


def test_any_exception_can_be_encoded():
    assert "no message" in str(again(Unprintable(Opaque())))
    huge = again(ValueError("x" * 10**7, b"y" * 10**7))
    assert type(huge) is ValueError and len(str(huge)) < 10_000


def test_the_traceback_is_kept_as_limited_text():
    def down(n: int) -> None:
        if n == 0:
            raise ValueError("at the bottom " + "x" * 5000)
        down(n - 1)

    try:
        down(200)
    except ValueError as exc:
        data = encode_error(exc, what=WHAT)
    name, message, trace = error_summary(data)
    assert name == "ValueError" and message.startswith("at the bottom")
    assert "Traceback" in trace and "in down" in trace and len(trace) <= 8 * 1024
    assert error_summary(encode_error(KeyError("k"), what=WHAT))[:2] == ("KeyError", "'k'")


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'"x"', b'{"~":"error"}', b'{"~":"error","c":1,"s":2}', b"\xff"]
)
def test_damaged_errors_are_refused(data):
    with pytest.raises(errors.NotDecodable):
        decode_error(data)


# --- exceptions as values


def test_exceptions_are_values_too_and_their_bytes_hold_no_traceback():
    def fail() -> BaseException:
        try:
            raise ValueError("x")
        except ValueError as exc:
            return exc

    value: dict[str, Any] = {"results": [1, fail()]}
    data = encode(value, what=WHAT)
    assert data == encode({"results": [1, ValueError("x")]}, what=WHAT)
    result = decode(data, what=WHAT)["results"][1]
    assert type(result) is ValueError and result.args == ("x",)
