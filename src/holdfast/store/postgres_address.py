"""What a postgresql:// url means: the servers, the schema, and how to get past a pooler.

    postgresql://user:password@one:5432,two:5432/agents?schema=tenant_a&direct=one:5432,two:5432

Everything the driver understands is passed on to it. Ours are `schema` (default: holdfast),
`direct` (where to find the servers themselves when the url leads to a pooler) and `connections`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from holdfast.errors import StoreError

SCHEMES = ("postgresql", "postgres")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")


@dataclass(frozen=True, slots=True)
class Address:
    dsn: str
    direct: str  # for the sessions that must outlive a statement: LISTEN, and the liveness locks
    schema: str
    pooled: bool
    connections: int

    @property
    def shown(self) -> str:
        """The url without its password, for messages."""
        parts = urlsplit(self.dsn)
        return urlunsplit(parts._replace(netloc=re.sub(r":[^:@/]*@", ":…@", parts.netloc)))


def parse(url: str) -> Address:
    try:
        parts = urlsplit(url)
        given = dict(
            parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        )
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
    given.setdefault("target_session_attrs", "read-write")
    dsn = urlunsplit(parts._replace(query=urlencode(given)))
    user, at, _ = parts.netloc.rpartition("@")
    beside = urlunsplit(parts._replace(netloc=user + at + direct, query=urlencode(given)))
    return Address(dsn, beside if direct else dsn, schema, bool(direct), int(connections))
