"""Retry policies: validation, delays, and which errors a bare step retries."""

from __future__ import annotations

import asyncio
import concurrent.futures
import enum
import errno
import socket
import ssl
import urllib.error
from datetime import UTC, datetime, timedelta
from email.message import Message
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import errors
from holdfast.retry import (
    EXHAUSTED_MARK,
    RETRY_AFTER_MAX,
    Retry,
    classify,
    next_delay,
    retry_after,
    should_retry,
)

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def error(name: str = "Strange", base: type[Exception] = Exception, **attributes: Any) -> Exception:
    exc: Exception = type(name, (base,), {})("went wrong")
    exc.__dict__.update(attributes)
    return exc


def answered(status: int, **headers: str) -> SimpleNamespace:
    return SimpleNamespace(
        status_code=status, headers={k.replace("_", "-"): v for k, v in headers.items()}
    )


# --- validation


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": 0},
        {"attempts": -1},
        {"attempts": True},
        {"attempts": 2.0},
        {"backoff": timedelta(seconds=-1)},
        {"backoff": 1},
        {"max_delay": timedelta(seconds=-1)},
        {"backoff": timedelta(minutes=2)},
        {"factor": 0.5},
        {"factor": float("inf")},
        {"factor": float("nan")},
        {"jitter": -0.1},
        {"jitter": 1.5},
        {"jitter": float("nan")},
        {"retry_on": ValueError},
        {"retry_on": ("ValueError",)},
        {"give_up_on": [ValueError]},
        {"exhausted": "explode"},
        {"fallback": 3},
        {"exhausted": "park", "fallback": print},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_naming_the_option(options):
    with pytest.raises(ValueError, match=f"Retry\\({next(iter(options))}"):
        Retry(**options)


def test_the_error_about_a_first_delay_beyond_the_longest_says_what_to_do():
    with pytest.raises(ValueError, match="raise max_delay too"):
        Retry(backoff=timedelta(minutes=2))


def test_options_are_keywords_and_a_policy_cannot_be_changed():
    with pytest.raises(TypeError):
        Retry(3)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Retry().attempts = 4  # type: ignore[misc]


# --- delays

PLAIN = Retry(jitter=0)


def test_delays_grow_by_the_factor_up_to_the_longest():
    seconds = [next_delay(PLAIN, n, random=0.5).total_seconds() for n in range(1, 10)]
    assert seconds == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_the_millionth_delay_does_not_overflow():
    assert next_delay(PLAIN, 1_000_000, random=0.5) == timedelta(seconds=60)
    assert next_delay(Retry(backoff=timedelta(0), attempts=None), 10**9, random=1) <= timedelta(
        seconds=60
    )


@given(
    st.integers(1, 10_000),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(1, 10),
    st.integers(0, 3600),
)
def test_delays_are_never_negative_nor_beyond_the_longest(attempt, random, jitter, factor, first):
    policy = Retry(
        backoff=timedelta(seconds=first),
        max_delay=timedelta(hours=1),
        jitter=jitter,
        factor=factor,
    )
    assert timedelta(0) <= next_delay(policy, attempt, random=random) <= policy.max_delay


def test_jitter_spreads_both_ways_and_at_the_longest_only_downwards():
    policy = Retry(jitter=0.2)
    assert next_delay(policy, 1, random=0) == timedelta(seconds=0.8)
    assert next_delay(policy, 1, random=1) == timedelta(seconds=1.2)
    late = {next_delay(policy, 20, random=r / 10) for r in range(11)}
    assert max(late) <= policy.max_delay and len(late) > 5


def test_what_the_server_asks_for_is_waited_out_even_beyond_the_longest_delay():
    asked = timedelta(minutes=10)
    assert next_delay(PLAIN, 1, random=0, retry_after=asked) == asked
    assert asked <= next_delay(Retry(), 1, random=0.9, retry_after=asked) <= asked * 1.2
    assert next_delay(PLAIN, 5, random=0, retry_after=timedelta(0)) == timedelta(seconds=16)


# --- precedence


def test_attempts_count_the_first_try():
    policy = Retry(attempts=3)
    assert [should_retry(policy, TimeoutError(), n) for n in (1, 2, 3)] == [True, True, False]
    assert should_retry(Retry(attempts=None), TimeoutError(), 10**9)
    assert not should_retry(Retry(attempts=1), TimeoutError(), 1)


def test_terminal_and_give_up_on_win_over_retry_on():
    class Fatal(errors.Terminal):
        pass

    policy = Retry(retry_on=(Exception,), give_up_on=(KeyError,))
    assert not should_retry(policy, Fatal(), 1)
    assert not should_retry(policy, KeyError(), 1)
    assert should_retry(policy, ValueError(), 1)


def test_retry_on_decides_alone():
    policy = Retry(retry_on=(ValueError,))
    assert should_retry(policy, ValueError(), 1)
    assert not should_retry(policy, TimeoutError(), 1)


@pytest.mark.parametrize(
    "stop",
    [
        asyncio.CancelledError(),
        concurrent.futures.CancelledError(),
        KeyboardInterrupt(),
        SystemExit(1),
        errors.Suspended(),
    ],
)
def test_cancellation_and_exits_are_never_retried(stop):
    assert classify(stop) == "terminal"
    assert not should_retry(Retry(attempts=None, retry_on=(BaseException,)), stop, 1)


def test_an_error_an_inner_step_gave_up_on_is_retried_only_if_named():
    exhausted = error(base=TimeoutError)
    setattr(exhausted, EXHAUSTED_MARK, True)
    assert classify(exhausted) == "terminal"
    assert not should_retry(Retry(), exhausted, 1)
    assert should_retry(Retry(retry_on=(TimeoutError,)), exhausted, 1)


# --- classification


class GrpcCode(enum.Enum):
    UNAVAILABLE = (14, "unavailable")
    NOT_FOUND = (5, "not found")


def grpc_error(code: GrpcCode) -> Exception:
    return error("RpcError", code=lambda: code, details=lambda: "")


REQUEST = httpx.Request("GET", "https://example.org")


def aws(code: str, status: int) -> dict[str, Any]:
    return {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}


@pytest.mark.parametrize(
    "exc",
    [
        ConnectionError(),
        ConnectionResetError(),
        BrokenPipeError(),
        TimeoutError(),
        socket.gaierror(-2, "Name or service not known"),
        ssl.SSLError(1, "EOF occurred"),
        OSError(errno.ENETUNREACH, "unreachable"),
        OSError("a library's own, without a number"),
        RuntimeError("unknown errors are retried"),
        error("UsersOwnError"),
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
        httpx.RemoteProtocolError("closed"),
        httpx.HTTPStatusError("x", request=REQUEST, response=httpx.Response(503, request=REQUEST)),
        urllib.error.HTTPError("u", 502, "bad gateway", Message(), None),
        urllib.error.URLError("no route"),
        error("RateLimitError", status_code=429, code="rate_limit_exceeded"),
        error("OverloadedError", status_code=529),
        error("APIConnectionError"),
        error("APITimeoutError"),
        error("ServerDisconnectedError"),
        error("ClientResponseError", status=500),
        error("ChunkedEncodingError", OSError),
        error("TooManyRequests", code=HTTPStatus.TOO_MANY_REQUESTS),
        error("ClientError", response=aws("ThrottlingException", 400)),
        error("ClientError", response=aws("InternalError", 500)),
        grpc_error(GrpcCode.UNAVAILABLE),
        error("ServerError", code=503, status="UNAVAILABLE"),
        error("ConnectionClosed", code=1006),
        error(status_code=400, response=answered(400, x_should_retry="true")),
        errors.StepTimedOut(),
        errors.StoreUnavailable(),
        errors.StepFailed("x", type_name="openai.APITimeoutError"),
        ExceptionGroup("all may pass", [TimeoutError(), ConnectionError()]),
        *(error(status_code=status) for status in (408, 409, 425, 429, 500, 502, 503, 504)),
    ],
    ids=repr,
)
def test_what_may_pass_by_itself_is_retried(exc):
    assert classify(exc) == "retryable"


@pytest.mark.parametrize(
    "exc",
    [
        TypeError(),
        ValueError(),
        KeyError("x"),
        IndexError(),
        AttributeError(),
        AssertionError(),
        NotImplementedError(),
        ImportError(),
        SyntaxError(),
        NameError(),
        ZeroDivisionError(),
        RecursionError(),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        FileNotFoundError(errno.ENOENT, "x"),
        PermissionError(errno.EACCES, "x"),
        OSError(errno.ENOSPC, "disk full"),
        ssl.SSLCertVerificationError(1, "certificate verify failed"),
        httpx.HTTPStatusError("x", request=REQUEST, response=httpx.Response(404, request=REQUEST)),
        httpx.UnsupportedProtocol("ftp"),
        urllib.error.HTTPError("u", 403, "forbidden", Message(), None),
        error("RateLimitError", status_code=429, code="insufficient_quota"),
        error("RateLimitError", status_code=429, body={"error": {"code": "insufficient_quota"}}),
        error("AuthenticationError", status_code=401),
        error("AuthenticationError"),
        error("ClientResponseError", status=404),
        error("NotFound", code=HTTPStatus.NOT_FOUND),
        error("ClientError", response=aws("ValidationException", 400)),
        error("NoCredentialsError"),
        grpc_error(GrpcCode.NOT_FOUND),
        error(status_code=500, response=answered(500, x_should_retry="false")),
        errors.Terminal("no"),
        errors.Diverged(),
        errors.RunFailed(),
        errors.LeaseLost(),
        errors.StepFailed("x", type_name="openai.AuthenticationError"),
        ExceptionGroup("one cannot", [TimeoutError(), ValueError()]),
        *(error(status_code=status) for status in (400, 401, 403, 404, 405, 413, 422, 451)),
    ],
    ids=repr,
)
def test_what_will_fail_again_is_not_retried(exc):
    assert classify(exc) == "terminal"


def test_the_most_derived_known_class_decides():
    class Lookup(httpx.ConnectError, ValueError):
        pass

    class Parse(ValueError, TimeoutError):
        pass

    assert classify(Lookup("x")) == "retryable"
    assert classify(Parse()) == "terminal"


def test_an_error_whose_attributes_raise_is_an_unknown_error():
    class Hostile(Exception):
        def __getattr__(self, name):
            raise RuntimeError(name)

        @property
        def response(self):
            raise RuntimeError

    assert classify(Hostile()) == "retryable"
    assert retry_after(Hostile(), NOW) is None


# --- Retry-After


@pytest.mark.parametrize(
    ("exc", "seconds"),
    [
        (error(response=answered(429, Retry_After="7")), 7),
        (error(response=answered(429, RETRY_AFTER="0.5")), 0.5),
        (error(response=answered(429, retry_after_ms="1500", retry_after="9")), 1.5),
        (error(response=answered(503, retry_after="Thu, 01 Jan 2026 12:00:30 GMT")), 30),
        (error(response=answered(503, retry_after="Thu, 01 Jan 2026 11:00:00 GMT")), 0),
        (error(response=answered(503, retry_after="-5")), 0),
        (error(headers={"Retry-After": "3"}), 3),
        (error(response=SimpleNamespace(headers={b"Retry-After": b"3"})), 3),
        (error(response={"ResponseMetadata": {"HTTPHeaders": {"retry-after": "4"}}}), 4),
        (error(retry_after=2.5), 2.5),
        (error(retry_after=timedelta(seconds=12)), 12),
        (error(retry_after="6"), 6),
    ],
)
def test_the_wish_of_the_server_is_read_wherever_it_stands(exc, seconds):
    assert retry_after(exc, NOW) == timedelta(seconds=seconds)


def test_httpx_headers_are_read():
    response = httpx.Response(429, headers={"Retry-After": "11"}, request=REQUEST)
    exc = httpx.HTTPStatusError("x", request=REQUEST, response=response)
    assert retry_after(exc, NOW) == timedelta(seconds=11)


@pytest.mark.parametrize("value", ["soon", "", "nan", "Thu, 99 Foo 2026"])
def test_a_wish_that_cannot_be_read_is_none(value):
    assert retry_after(error(response=answered(429, retry_after=value)), NOW) is None


def test_no_wish_is_none():
    assert retry_after(ValueError(), NOW) is None
    assert retry_after(error(retry_after=True), NOW) is None
    assert retry_after(error(retry_after=print), NOW) is None


@pytest.mark.parametrize("value", [86_400, float("inf"), timedelta(days=9), 10**400])
def test_an_endless_wish_is_capped_at_an_hour_or_ignored(value):
    assert retry_after(error(retry_after=value), NOW) in (RETRY_AFTER_MAX, None)
