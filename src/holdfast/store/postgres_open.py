"""Is this database ours, is its schema the right one, and does the server keep what it promises?

Nothing is changed by opening a store. The schema is made and upgraded by `holdfast db upgrade`: on
a database that many share, that is somebody's decision.
"""

from __future__ import annotations

import re

import asyncpg

from holdfast.errors import (
    SchemaMismatch,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
    Unsupported,
)
from holdfast.store import migrate, queries
from holdfast.store import postgres_errors as errors
from holdfast.store.postgres_address import Address, parse
from holdfast.store.postgres_link import Link
from holdfast.store.postgres_servers import Connection, Servers, close

DIALECT = "postgres"
SERVER_OLDEST = 140000

_PRESENT = """
SELECT to_regclass($1) IS NOT NULL AS ours,
    EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = $2) AS any
"""
_SETTINGS = """
SELECT current_setting('server_version_num')::integer AS version,
    current_setting('default_transaction_isolation') AS isolation,
    current_setting('synchronous_commit') AS synchronous,
    current_setting('fsync') AS fsync,
    current_setting('server_encoding') AS encoding
"""
_MISSING_RIGHTS = """
WITH ours AS (  -- others may keep things of their own beside it
    SELECT relnamespace AS schema, relowner AS owner FROM pg_class WHERE oid = to_regclass($1)
)
SELECT c.relname || ' (' || r.name || ')'
FROM ours JOIN pg_class c ON (c.relnamespace, c.relowner) = (ours.schema, ours.owner)
CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) r (name)
WHERE CASE WHEN c.relkind = 'r' THEN NOT has_table_privilege(c.oid, r.name) END
UNION ALL
SELECT c.relname || ' (USAGE)'
FROM ours JOIN pg_class c ON (c.relnamespace, c.relowner) = (ours.schema, ours.owner)
WHERE CASE WHEN c.relkind = 'S' THEN NOT has_sequence_privilege(c.oid, 'USAGE') END
UNION ALL
SELECT p.proname || ' (EXECUTE)'
FROM ours JOIN pg_proc p ON (p.pronamespace, p.proowner) = (ours.schema, ours.owner)
WHERE NOT has_function_privilege(p.oid, 'EXECUTE')
ORDER BY 1 LIMIT 10
"""


async def check(link: Link) -> None:
    """Raises an error that says what to do, unless all is well."""
    (found,) = await link.read(_SETTINGS)
    _check_server(found)
    version = await _version(link)
    if migrate.missing(version, DIALECT):
        raise SchemaMismatch(
            f"The schema {link.address.schema!r} is version {version}, and this Holdfast needs "
            f"version {len(migrate.migrations(DIALECT))}: run `holdfast db upgrade`. Nothing was "
            "changed."
        )


async def check_rights(link: Link) -> None:
    """Raises an error unless the user may do all that a worker does: it would get stuck later."""
    rows = await link.read(_MISSING_RIGHTS, f"{link.address.schema}.holdfast")
    if rows:
        raise StoreUnavailable(
            f"{errors.CURES[errors.NO_RIGHT]} It lacks, among others: "
            f"{', '.join(row[0] for row in rows)} (store {link.address.shown})."
        )


def _check_server(found: asyncpg.Record) -> None:
    if found["version"] < SERVER_OLDEST:
        raise Unsupported(
            f"The server is PostgreSQL {found['version'] // 10000}; at least "
            f"{SERVER_OLDEST // 10000} is needed."
        )
    if found["isolation"] != "read committed":
        raise Unsupported(
            f"default_transaction_isolation is {found['isolation']!r} here, and wake-ups would be "
            "lost: ALTER ROLE … SET default_transaction_isolation = 'read committed'."
        )
    if found["synchronous"] == "off":
        raise Unsupported(
            "synchronous_commit is off here: the server would forget what it has acknowledged. "
            "ALTER ROLE … SET synchronous_commit = on."
        )
    if found["encoding"] != "UTF8":
        raise Unsupported(f"The database's encoding is {found['encoding']}; it must be UTF8.")


async def _version(link: Link) -> int:
    schema = link.address.schema
    (present,) = await link.read(_PRESENT, f"{schema}.holdfast", schema)
    if not present["ours"]:
        if present["any"]:
            raise StoreCorrupt(
                f"The schema {schema!r} belongs to another program. Nothing was changed; choose "
                "another one with ?schema=… in the url."
            )
        return 0
    try:
        rows = await link.read(f'SELECT product, version, works_with FROM "{schema}".holdfast')
    except StoreError as error:
        if errors.code_of(error.__cause__ or error) != "42703":
            raise
        rows = []
    if len(rows) != 1 or rows[0]["product"] != "holdfast":
        raise StoreCorrupt(
            f"The table {schema}.holdfast is not Holdfast's. Nothing was changed; choose another "
            "schema with ?schema=… in the url."
        )
    version: int = rows[0]["version"]
    known = len(migrate.migrations(DIALECT))
    # During a rolling upgrade the schema is ahead of some of the code that uses it.
    return known if version > known >= rows[0]["works_with"] else version


def script(version: int, schema: str) -> str:
    """What brings a schema of this version up to date, its functions too."""
    pending = migrate.missing(version, DIALECT)
    parts = [f'CREATE SCHEMA IF NOT EXISTS "{schema}";'] if version == 0 else []
    parts.append(f'SET LOCAL search_path = "{schema}", pg_temp;')
    parts += [f"-- {m.version:04d} {m.name}\n{m.sql.strip()}" for m in pending]
    parts += queries.read_all(DIALECT, "functions")
    now = version + len(pending)
    if version == 0:
        parts.append(f"INSERT INTO holdfast (version) VALUES ({now});")
    elif pending:
        parts.append(f"UPDATE holdfast SET version = {now};")
    return "\n\n".join(["BEGIN;", *parts, "COMMIT;"]) + "\n"


async def _with_link(url: str) -> tuple[Link, int]:
    link = Link(Servers(parse(url)))
    await link.open()
    try:
        (found,) = await link.read(_SETTINGS)
        _check_server(found)
        return link, await _version(link)
    except BaseException:
        await link.close()
        raise


async def is_there(url: str) -> bool:
    """Whether there is a store, of the version that this Holdfast needs."""
    link, version = await _with_link(url)
    try:
        if version:
            await check(link)
    finally:
        await link.close()
    return version > 0


async def upgrade_script(url: str) -> str:
    link, version = await _with_link(url)
    await link.close()
    return script(version, link.address.schema) if migrate.missing(version, DIALECT) else ""


async def upgrade(url: str) -> None:
    """Makes the schema or brings it up to date, in one transaction."""
    address = parse(url)
    connection = await _connected(address)
    try:
        async with connection.transaction():
            # Two upgrades at once: the second finds it done.
            lock = f"holdfast/{address.schema}"
            await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", lock)
            link, version = await _with_link(url)
            await link.close()
            text = script(version, address.schema)
            await connection.execute(re.sub(r"^(BEGIN|COMMIT);$", "", text, flags=re.MULTILINE))
    except errors.DRIVER_ERRORS as error:
        raise errors.store_error(error, address.shown) from error
    finally:
        await close(connection)


async def _connected(address: Address) -> Connection:
    try:
        return await Servers(address).connect()
    except (*errors.DRIVER_ERRORS, StoreError) as error:
        raise errors.store_error(error, address.shown) from error
