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
        shown = (re.sub(r":[^:@/]*@", ":…@", host.partition("?")[0]) for host in self.hosts)
        return f"{', '.join(shown)}, schema {self.schema}"


def parse(url: str) -> Address:
    try:
        parts = urlsplit(url)
        given = dict(parse_qsl(parts.query, True, strict_parsing=bool(parts.query)))
    except ValueError as error:
        raise StoreError(f"{url!r} is no url: {error}.") from error
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
    kept = {name: value for name, value in given.items() if not _OURS_ANYWAY.fullmatch(name)}
    parts = parts._replace(query=urlencode(kept))
    hosts = _each(parts, parts.netloc.rpartition("@")[2])
    return Address(hosts, _each(parts, direct) if direct else hosts, schema, int(connections))


def _each(parts: SplitResult, hosts: str) -> tuple[str, ...]:
    user, at, _ = parts.netloc.rpartition("@")
    netlocs = [f"{user}{at}{host}" for host in hosts.split(",")]
    return tuple(urlunsplit(parts._replace(netloc=netloc)) for netloc in netlocs)
