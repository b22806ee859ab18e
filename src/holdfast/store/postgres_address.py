"""What a postgresql:// url means: the servers, the schema, and how to get past a pooler.

    postgresql://user:password@one:5432,two:5432/agents?schema=tenant_a&direct=one:5432,two:5432

Everything that the driver understands is passed on to it. Ours are `schema` (default: holdfast),
`direct` (where the servers themselves are, when the url leads to a pooler) and `connections`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from holdfast.errors import StoreError

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")
# The driver would take these, which other drivers know, for settings of the server. Which servers
# to use, and how to keep their connections alive, is decided here anyway.
_OURS_ANYWAY = re.compile(r"keepalives.*|tcp_user_timeout|target_session_attrs")


@dataclass(frozen=True, slots=True)
class Address:
    hosts: tuple[str, ...]  # one url each
    direct: tuple[str, ...]  # for sessions that must outlive a statement: LISTEN, liveness locks
    schema: str
    connections: int

    @property
    def pooled(self) -> bool:
        return self.direct != self.hosts

    @property
    def shown(self) -> str:
        """The servers without a password, for messages."""
        return f"{', '.join(map(_without_password, self.hosts))}, schema {self.schema}"


def parse(url: str) -> Address:
    try:
        parts = urlsplit(url)
        given = dict(parse_qsl(parts.query, True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise _bad_url() from None  # the error, too, may quote a part of the password
    if parts.fragment or ("@" not in parts.netloc and "@" in parts.path):
        raise _bad_url()  # a hash or a slash in the password
    schema = given.pop("schema", "holdfast")
    if not _SCHEMA.fullmatch(schema):
        raise StoreError(
            f"{schema!r} cannot be a schema: use up to 48 lower-case letters, digits and "
            "underscores, and no digit first."
        )
    direct = given.pop("direct", "")
    connections = given.pop("connections", "4")
    if not connections.isdecimal() or not 1 <= int(connections) <= 100:
        raise StoreError(f"connections={connections} is no number from 1 to 100.")
    named = _hosts_of_query(given) if not parts.netloc.rpartition("@")[2] else ""
    kept = {name: value for name, value in given.items() if not _OURS_ANYWAY.fullmatch(name)}
    parts = parts._replace(query=urlencode(kept))
    hosts = _each(parts, named or parts.netloc.rpartition("@")[2])
    return Address(hosts, _each(parts, direct) if direct else hosts, schema, int(connections))


def _hosts_of_query(given: dict[str, str]) -> str:
    """Takes `host=db1,db2&port=5432` out of the query; a directory of sockets stays there. The
    driver would stop at the first of them that answers, be it a standby."""
    hosts = given.get("host", "").split(",")
    if not all(hosts) or any(host.startswith("/") for host in hosts):
        return ""
    del given["host"]
    ports = given.pop("port", "").split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    if len(ports) != len(hosts):
        raise StoreError(f"The url names {len(hosts)} hosts and {len(ports)} ports.")
    named = (f"[{host}]" if ":" in host else host for host in hosts)
    pairs = zip(named, ports, strict=True)
    return ",".join(f"{host}:{port}" if port else host for host, port in pairs)


def _bad_url() -> StoreError:
    return StoreError(
        "The store's url makes no sense. What is special in a user or a password is "
        "percent-encoded: %40 for @, %2F for /, %3A for :, %3F for ?, %23 for #."
    )


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    name, colon, _ = user.partition(":")
    hidden = f"{name}{colon}{'…' if colon else ''}{at}{host}"
    return f"{parts.scheme}://{hidden}{parts.path}"


def _each(parts: SplitResult, hosts: str) -> tuple[str, ...]:
    user, at, _ = parts.netloc.rpartition("@")
    netlocs = [f"{user}{at}{host}" for host in hosts.split(",")]
    return tuple(urlunsplit(parts._replace(netloc=netloc)) for netloc in netlocs)
