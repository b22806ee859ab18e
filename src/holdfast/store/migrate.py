"""Schema versions: numbered .sql files, only ever upwards.

The version of a database is the number of the last file applied to it. What this module does not do
is decide when to upgrade: SQLite does it on open, under the write lock.
"""

import functools
import os
from typing import NamedTuple

from holdfast.errors import SchemaMismatch
from holdfast.store import queries


class Migration(NamedTuple):
    version: int
    name: str
    sql: str


@functools.cache  # each opening of a store asks several times
def migrations(dialect: str = "sqlite") -> tuple[Migration, ...]:
    folder = os.path.join(os.path.dirname(__file__), "sql", dialect, "migrations")
    found = []
    for file in sorted(os.listdir(folder)):
        number, _, name = file.removesuffix(".sql").partition("_")
        found.append(Migration(int(number), name, queries.read(dialect, "migrations", file)))
    versions = [migration.version for migration in found]
    assert versions == list(range(1, len(found) + 1)), (
        f"migrations of {dialect} are not numbered densely"
    )
    return tuple(found)


def missing(from_version: int, dialect: str = "sqlite") -> tuple[Migration, ...]:
    """What a database of this version still needs."""
    found = migrations(dialect)
    if from_version > len(found):
        raise SchemaMismatch(
            f"The store's schema is version {from_version}, and this Holdfast knows versions up to "
            f"{len(found)}. Upgrade Holdfast here; the store was not touched."
        )
    return found[from_version:]


def upgrade_sql(from_version: int, dialect: str = "sqlite") -> str:
    """A script that brings a database of this version up to date, to be applied by hand."""
    parts = []
    for migration in missing(from_version, dialect):
        parts.append(f"-- {migration.version:04d} {migration.name}\n{migration.sql.strip()}\n")
    if parts and dialect == "sqlite":
        parts.append(f"PRAGMA user_version = {len(migrations(dialect))};\n")
    return "\n".join(["BEGIN;\n", *parts, "COMMIT;\n"]) if parts else ""
