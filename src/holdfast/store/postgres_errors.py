"""PostgreSQL's errors in Holdfast's words: what happened, where, and what to do."""

from __future__ import annotations

import asyncio
import ssl

import asyncpg

from holdfast.errors import SchemaMismatch, StoreError, StoreUnavailable
from holdfast.store.marks import store_moved

SUPERSEDED = "HF001"
NOT_REGISTERED = "HF002"
MOVED = "HF003"
UNIQUE_VIOLATION = "23505"
NO_RIGHT = "42501"

DRIVER_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InternalClientError,
    asyncpg.InterfaceError,
    OSError,
    asyncio.TimeoutError,
    ValueError,  # a url that makes no sense to the driver
)

_GONE = frozenset(
    {
        "57P01",  # the server shuts down
        "57P02",  # it crashed
        "57P03",  # it starts up
        "57P05",  # idle for too long
        "25006",  # it has become a standby
        "53300",  # all its connections are taken
        "25P03",  # an administrator's time-outs, which end the session, too
        "25P04",
    }
)
_TRY_AGAIN = frozenset(
    {
        "40P01",  # deadlock
        "40001",  # serialisation
        "55P03",  # lock_timeout
        "57014",  # statement_timeout, or an administrator cancelled it
    }
)
_NOT_NOW = ("53", "57", "58")  # classes of errors that are the server's, and nobody's fault here
CURES = {
    "28P01": "The server does not accept the password.",
    "28000": "The server does not let this user in: look at its pg_hba.conf.",
    "3D000": "There is no such database; create it first (createdb).",
    NO_RIGHT: "The user lacks a right there. Grant it USAGE and the rights to read and write on "
    "the schema, its tables, sequences and functions, or let the schema's owner run Holdfast.",
    "53300": "The server gives us no further connection: raise max_connections or the limit of the "
    "user or database, or use fewer processes. Each takes three, and up to `connections` more.",
    "53100": "The server's disk is full. Nothing was written; free some space and it goes on.",
    "53200": "The server is out of memory.",
}
_NO_SCHEMA = frozenset({"42P01", "3F000", "42883"})


def code_of(error: BaseException) -> str:
    return getattr(error, "sqlstate", None) or ""


def is_broken(error: BaseException) -> bool:
    """Whether the driver says so, and not the server: it may have come upon a connection whose end
    it had not finished reading."""
    return isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError)


def is_gone(error: BaseException) -> bool:
    """Whether the connection is lost, and with it the answer: another one may do better."""
    if isinstance(error, ssl.SSLError):
        return False
    if isinstance(error, OSError | asyncio.TimeoutError | StoreUnavailable):
        return True
    code = code_of(error)
    return code.startswith("08") or code in _GONE


def is_passing(error: BaseException) -> bool:
    """Whether the statement was undone as a whole and may be sent again as it is."""
    return code_of(error) in _TRY_AGAIN


def store_error(error: BaseException, where: str) -> StoreError:
    if isinstance(error, StoreError):
        return error
    code = code_of(error)
    if isinstance(error, asyncpg.PostgresError) and code == MOVED:
        return store_moved(error.detail or "", error.message or "", where)
    said = f"(store {where}; PostgreSQL says: {error or type(error).__name__})"
    if code in _NO_SCHEMA:
        return SchemaMismatch(
            f"The schema is not there, or not all of it: `holdfast db upgrade` makes it. {said}"
        )
    if code in CURES:
        return StoreUnavailable(f"{CURES[code]} {said}")
    if is_gone(error) or is_passing(error):
        return StoreUnavailable(f"The server cannot be reached or does not answer. {said}")
    if code.startswith(_NOT_NOW):
        return StoreUnavailable(f"The server cannot do it now. {said}")
    return StoreError(f"PostgreSQL refused an operation. {said}")
