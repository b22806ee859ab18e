"""Whether a failed step is tried again, and when.

Pure functions over a frozen policy: no store, no clock, no dice. Errors of HTTP clients, cloud and
model SDKs are recognised by their attributes and class names, so that none of them is imported; a
library that reports its errors in some other way is only as well understood as any unknown error.
Whether a second attempt is safe is not asked here: that is the step's own business.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError as FutureCancelled
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from holdfast.errors import (
    HoldfastError,
    StepFailed,
    StepTimedOut,
    StoreUnavailable,
    Terminal,
)
from holdfast.records import FrozenRecord

RETRY_AFTER_MAX = timedelta(hours=1)
EXHAUSTED_MARK = "__holdfast_exhausted__"
"""Set on an error that an inner step has already given up on."""

Verdict = Literal["retryable", "terminal"]

_STATUS_RETRIED = frozenset({408, 409, 425, 429})

# By class name, the most derived class that is listed here decides.
_NAMES_RETRIED = frozenset(
    """
    ConnectionError TimeoutError InterruptedError BlockingIOError gaierror herror
    NetworkError ConnectError ReadError WriteError CloseError PoolTimeout ConnectTimeout
    ReadTimeout WriteTimeout TimeoutException Timeout RemoteProtocolError ProtocolError
    ChunkedEncodingError ContentDecodingError ProxyError SSLError ReadTimeoutError
    ConnectTimeoutError NewConnectionError MaxRetryError NameResolutionError IncompleteRead
    APIConnectionError APITimeoutError RateLimitError InternalServerError ConflictError
    ServiceUnavailableError OverloadedError DeadlineExceededError
    ClientConnectionError ClientConnectorError ClientOSError ClientPayloadError
    ServerDisconnectedError ServerTimeoutError
    EndpointConnectionError ConnectionClosedError HTTPClientError
    """.split()
)
_NAMES_TERMINAL = frozenset(
    """
    ArithmeticError AssertionError AttributeError BufferError ImportError LookupError NameError
    NotImplementedError RecursionError StopAsyncIteration StopIteration SyntaxError TypeError
    ValueError
    FileExistsError FileNotFoundError IsADirectoryError NotADirectoryError PermissionError
    AuthenticationError BadRequestError NotFoundError PermissionDeniedError
    UnprocessableEntityError ContextWindowExceededError ContentPolicyViolationError
    NoCredentialsError PartialCredentialsError ParamValidationError NoRegionError
    DefaultCredentialsError
    InvalidURL UnsupportedProtocol LocalProtocolError TooManyRedirects SSLCertVerificationError
    """.split()
)

# Error codes in words: AWS (often with status 400), gRPC and Google.
_CODES_RETRIED = frozenset(
    """
    Throttling ThrottlingException ThrottledException RequestThrottled RequestThrottledException
    TooManyRequestsException ProvisionedThroughputExceededException RequestLimitExceeded
    BandwidthLimitExceeded LimitExceededException SlowDown PriorRequestNotComplete
    EC2ThrottledException TransactionInProgressException RequestTimeout RequestTimeoutException
    InternalServerException InternalFailure ServiceUnavailable ServiceUnavailableException
    ModelTimeoutException ModelNotReadyException ModelStreamErrorException
    UNAVAILABLE RESOURCE_EXHAUSTED DEADLINE_EXCEEDED ABORTED INTERNAL UNKNOWN
    rate_limit_exceeded rate_limit_error overloaded_error api_error timeout_error
    """.split()
)
_CODES_TERMINAL = frozenset(
    """
    insufficient_quota billing_hard_limit_reached billing_error
    INVALID_ARGUMENT NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED UNAUTHENTICATED
    FAILED_PRECONDITION OUT_OF_RANGE UNIMPLEMENTED DATA_LOSS CANCELLED
    """.split()
)

_ERRNOS_RETRIED = frozenset(
    getattr(errno, name)
    for name in (
        "EADDRNOTAVAIL EAGAIN ECONNABORTED ECONNREFUSED ECONNRESET EHOSTDOWN EHOSTUNREACH EINTR"
        " EMFILE ENETDOWN ENETRESET ENETUNREACH ENFILE ENOBUFS ENOTCONN EPIPE ETIMEDOUT"
    ).split()
    if hasattr(errno, name)
)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Retry(FrozenRecord):
    """How often, how soon and after which errors a step is tried again.

    `attempts` counts the first try; None means without end. `jitter` is the fraction by which a
    delay varies both ways. With `retry_on`, only these errors are retried; `give_up_on` always
    wins. When attempts are exhausted the step's error is raised, the run is parked until somebody
    resumes it (`exhausted="park"`), or `fallback` is called with the step's arguments.
    """

    attempts: int | None = 5
    backoff: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    max_delay: timedelta = timedelta(seconds=60)
    jitter: float = 0.2
    retry_on: tuple[type[BaseException], ...] = ()
    give_up_on: tuple[type[BaseException], ...] = ()
    exhausted: Literal["fail", "park"] = "fail"
    fallback: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        if self.attempts is not None and (type(self.attempts) is not int or self.attempts < 1):
            raise ValueError(
                f"Retry(attempts={self.attempts!r}): a whole number from 1, or None for no end"
            )
        for name in ("backoff", "max_delay"):
            value = getattr(self, name)
            if not isinstance(value, timedelta) or value < timedelta(0):
                raise ValueError(f"Retry({name}={value!r}): a timedelta that is not negative")
        if self.max_delay < self.backoff:
            raise ValueError(
                f"Retry(backoff={self.backoff}, max_delay={self.max_delay}): the first delay is"
                " longer than the longest; raise max_delay too"
            )
        if not _is_number(self.factor) or not 1 <= self.factor < math.inf:
            raise ValueError(f"Retry(factor={self.factor!r}): a number from 1")
        if not _is_number(self.jitter) or not 0 <= self.jitter <= 1:
            raise ValueError(f"Retry(jitter={self.jitter!r}): a fraction from 0 to 1")
        for name in ("retry_on", "give_up_on"):
            classes = getattr(self, name)
            if not isinstance(classes, tuple) or not all(map(_is_error_class, classes)):
                raise ValueError(f"Retry({name}={classes!r}): a tuple of exception classes")
        if self.exhausted not in ("fail", "park"):
            raise ValueError(f'Retry(exhausted={self.exhausted!r}): "fail" or "park"')
        if self.fallback is not None and not callable(self.fallback):
            raise ValueError(f"Retry(fallback={self.fallback!r}): a function, or None")
        if self.fallback is not None and self.exhausted == "park":
            raise ValueError('Retry(exhausted="park", fallback=...): one or the other')


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_error_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def should_retry(policy: Retry, error: BaseException, attempt: int) -> bool:
    """Is there another attempt after `attempt` (counted from 1) failed with `error`?"""
    assert attempt >= 1
    if policy.attempts is not None and attempt >= policy.attempts:
        return False
    # Cancellation and exits are no failures: retrying them would make a run impossible to stop.
    if not isinstance(error, Exception) or isinstance(error, FutureCancelled):
        return False
    if isinstance(error, (Terminal, *policy.give_up_on)):
        return False
    if policy.retry_on:
        return isinstance(error, policy.retry_on)
    return classify(error) == "retryable"


def next_delay(
    policy: Retry, attempt: int, *, random: float, retry_after: timedelta | None = None
) -> timedelta:
    """How long to wait after the failed `attempt` (counted from 1).

    `random` is a number from 0 to 1. What the server asked for is waited out even if it is longer
    than `max_delay`; the jitter is then only added, so that nobody comes early.
    """
    assert attempt >= 1 and 0 <= random <= 1
    longest = policy.max_delay.total_seconds()
    try:
        seconds = policy.backoff.total_seconds() * float(policy.factor) ** (attempt - 1)
    except OverflowError:
        seconds = longest
    seconds = min(seconds, longest) * (1 + policy.jitter * (2 * random - 1))
    if seconds > longest:
        # Folded back instead of cut off: else half of all waiters would return at the same time.
        seconds = max(0.0, 2 * longest - seconds)
    delay = timedelta(seconds=seconds)
    if retry_after is not None:
        delay = max(delay, retry_after * (1 + policy.jitter * random))
    return delay


def classify(error: BaseException) -> Verdict:
    """What a step without a policy of its own does about an error; see docs/retries.md."""
    if not isinstance(error, Exception) or isinstance(error, FutureCancelled):
        return "terminal"
    if _read(error, EXHAUSTED_MARK) is True:
        return "terminal"
    if isinstance(error, HoldfastError) and not isinstance(
        error, StepTimedOut | StoreUnavailable | StepFailed
    ):
        return "terminal"
    if isinstance(error, ExceptionGroup):
        hopeless = any(classify(member) == "terminal" for member in error.exceptions)
        return "terminal" if hopeless else "retryable"
    return _by_code(error) or _by_status(error) or _by_class(error) or "retryable"


def _by_code(error: Exception) -> Verdict | None:
    codes = set(_codes(error))
    if codes & _CODES_TERMINAL:
        return "terminal"
    advice = _header(error, "x-should-retry")  # OpenAI's and Anthropic's servers know best
    if advice in ("true", "false"):
        return "retryable" if advice == "true" else "terminal"
    return "retryable" if codes & _CODES_RETRIED else None


def _by_status(error: Exception) -> Verdict | None:
    status = _status(error)
    if status is None or status < 400:
        return None
    return "retryable" if status in _STATUS_RETRIED or status >= 500 else "terminal"


def _by_class(error: Exception) -> Verdict | None:
    names = [cls.__name__ for cls in type(error).__mro__]
    if isinstance(error, StepFailed):  # it stands in for a class of this name
        names.insert(0, error.type_name.rpartition(".")[2])
    for name in names:
        if name in _NAMES_RETRIED:
            return "retryable"
        if name in _NAMES_TERMINAL:
            return "terminal"
    if isinstance(error, OSError) and error.errno is not None:
        return "retryable" if error.errno in _ERRNOS_RETRIED else "terminal"
    return None


def _read(holder: object, name: str) -> Any:
    """An attribute or key, or None: a property of a foreign error may raise anything."""
    try:
        return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)
    except Exception:
        return None


def _codes(error: Exception) -> Iterator[str]:
    """Every error code in words that the error carries."""
    code = _read(error, "code")
    if callable(code) and callable(_read(error, "details")):  # grpc.RpcError
        try:
            code = code()
        except Exception:
            code = None
    body = _read(error, "body")
    response = _read(error, "response")
    for value in (
        code,
        _read(code, "name"),  # an enum of gRPC codes
        _read(error, "status"),  # google-genai
        _read(_read(error, "grpc_status_code"), "name"),
        *(_read(part, key) for part in (body, _read(body, "error")) for key in ("code", "type")),
        _read(_read(response, "Error"), "Code") if isinstance(response, Mapping) else None,
    ):
        if isinstance(value, str):
            yield value


def _status(error: Exception) -> int | None:
    response = _read(error, "response")
    metadata = _read(response, "ResponseMetadata")
    for value in (
        _read(error, "status_code"),
        _read(error, "status"),
        _read(error, "code"),
        _read(response, "status_code"),
        _read(response, "status"),
        _read(metadata, "HTTPStatusCode"),
    ):
        if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599:
            return int(value)
    return None


def _header(error: BaseException, name: str) -> str | None:
    response = _read(error, "response")
    for headers in (
        _read(response, "headers"),
        _read(error, "headers"),
        _read(_read(response, "ResponseMetadata"), "HTTPHeaders"),
    ):
        try:
            for key, value in headers.items() if headers is not None else ():
                if _text(key).lower() == name:
                    return _text(value).strip()
        except Exception:
            continue
    return None


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def retry_after(error: BaseException, now: datetime) -> timedelta | None:
    """How long the server asked to be left alone, one hour at most; None: it did not say."""
    millis = _seconds(_header(error, "retry-after-ms"))
    seconds = millis / 1000 if millis is not None else None
    if seconds is None:
        header = _header(error, "retry-after")
        seconds = _seconds(header)
        if seconds is None and header:
            seconds = _seconds_until(header, now)
    if seconds is None:
        seconds = _seconds(_read(error, "retry_after"))
    if seconds is None:
        return None
    return timedelta(seconds=min(max(seconds, 0.0), RETRY_AFTER_MAX.total_seconds()))


def _seconds(value: object) -> float | None:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return None if math.isnan(seconds) else seconds


def _seconds_until(date: str, now: datetime) -> float | None:
    from email.utils import parsedate_to_datetime  # costs milliseconds, and dates are rare

    try:
        at = parsedate_to_datetime(date)
    except (ValueError, TypeError, IndexError):
        return None
    # HTTP dates are in GMT, whatever they say or leave out.
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return (at - now).total_seconds()
