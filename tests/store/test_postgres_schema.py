"""The schema in PostgreSQL: made and upgraded on demand only, never taken from somebody else."""

from __future__ import annotations

import re
import time

import asyncpg
import pytest

from holdfast.errors import (
    SchemaMismatch,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
    Unsupported,
)
from holdfast.store import migrate, queries, upgrade, upgrade_script
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres_address import parse
from holdfast.testing.conformance.given import worker
from holdfast.testing.postgres import PostgresServer

_COLUMNS = """
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
    pg_get_expr(d.adbin, d.adrelid), c.reloptions
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = $1::regnamespace AND c.relkind = 'r' AND a.attnum > 0
ORDER BY c.relname, a.attname
"""
_INDEXES = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = $1 ORDER BY 1"


async def run(dsn: str, *scripts: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        for script in scripts:
            await connection.execute(script)
    finally:
        await connection.close()


async def dump(dsn: str, schema: str) -> list[str]:
    """The schema as the server understands it; in which order it was written does not matter."""
    connection = await asyncpg.connect(dsn)
    try:
        rows = [
            *await connection.fetch(_COLUMNS, schema),
            *await connection.fetch(_INDEXES, schema),
        ]
    finally:
        await connection.close()
    return [re.sub(rf"\b{schema}\.", "", repr(tuple(row))) for row in rows]


async def opened(url: str) -> None:
    store = PostgresStore(url)
    await store.open()
    await store.close()


async def test_all_migrations_give_the_current_schema(postgres: PostgresServer) -> None:
    dsn = postgres.create_database("migrations")
    await run(dsn, "CREATE SCHEMA one; CREATE SCHEMA two")
    migrated = [migration.sql for migration in migrate.migrations("postgres")]
    await run(dsn, "SET search_path = one", "SET search_path = one;" + ";".join(migrated))
    await run(dsn, "SET search_path = two;" + queries.read("postgres", "schema.sql"))
    found = await dump(dsn, "one")
    assert found == await dump(dsn, "two")
    assert any("runs_ready" in row for row in found)
    await run(dsn, "CREATE INDEX extra ON two.runs (queue)")
    assert found != await dump(dsn, "two"), "a difference would be seen"


async def test_a_store_of_the_version_before_is_refused_until_it_is_upgraded_with_all_it_holds(
    postgres: PostgresServer, postgres_url: str
) -> None:
    schema = parse(postgres_url).schema
    *before, _ = migrate.migrations("postgres")
    await run(
        postgres.dsn,
        f"CREATE SCHEMA {schema}; SET search_path = {schema};"
        + ";".join(migration.sql for migration in before)
        + f"; INSERT INTO holdfast (version) VALUES ({len(before)});"
        "INSERT INTO session_state VALUES ('old', 'a', 'x');"
        "INSERT INTO session_messages (session, payload) VALUES ('old', 'x'), ('other', 'x')",
    )
    with pytest.raises(SchemaMismatch, match="holdfast db upgrade"):
        await opened(postgres_url)
    began = time.time_ns() // 1000
    await upgrade(postgres_url)
    store = PostgresStore(postgres_url)
    await store.open()
    assert await store.prune_sessions(began - 60_000_000, 10) == 0, "they count as used just now"
    assert await store.session_state("old") == {"a": b"x"}
    assert await store.prune_sessions(began + 10**12, 10) == 2
    assert await store.session_state("old") == {}
    await store.close()


async def test_a_store_that_is_not_there_is_refused_with_the_command_that_makes_it(
    postgres: PostgresServer, postgres_url: str
) -> None:
    with pytest.raises(SchemaMismatch, match="holdfast db upgrade"):
        await opened(postgres_url)
    schema = parse(postgres_url).schema
    found = postgres.sql(f"SELECT count(*) FROM pg_namespace WHERE nspname = '{schema}'")
    assert found == [["0"]], "nothing was changed"
    await upgrade(postgres_url)
    await opened(postgres_url)


async def test_an_upgrade_can_be_repeated_and_printed(postgres_url: str) -> None:
    script = await upgrade_script(postgres_url)
    assert "CREATE TABLE runs" in script and "FUNCTION append" in script
    await run(postgres_url.partition("?")[0], script)
    await opened(postgres_url)
    assert await upgrade_script(postgres_url) == ""
    await upgrade(postgres_url)
    await opened(postgres_url)


async def test_another_products_schema_is_left_as_it_is(
    postgres: PostgresServer, postgres_url: str
) -> None:
    schema = parse(postgres_url).schema
    await run(postgres.dsn, f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.precious (x int)")
    for attempt in (opened, upgrade):
        with pytest.raises(StoreCorrupt, match="another program"):
            await attempt(postgres_url)
    (only,) = await dump(postgres.dsn, schema)
    assert "precious" in only


async def test_another_products_table_of_our_name_is_left_as_it_is(
    postgres: PostgresServer, postgres_url: str
) -> None:
    schema = parse(postgres_url).schema
    await run(postgres.dsn, f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.holdfast (x int)")
    for attempt in (opened, upgrade):
        with pytest.raises(StoreCorrupt, match="not Holdfast's"):
            await attempt(postgres_url)


async def test_a_newer_schema_is_refused_unless_it_says_that_it_works_with_ours(
    postgres: PostgresServer, postgres_url: str
) -> None:
    await upgrade(postgres_url)
    table = f"{parse(postgres_url).schema}.holdfast"
    await run(postgres.dsn, f"UPDATE {table} SET version = 99, works_with = 99")
    for attempt in (opened, upgrade):
        with pytest.raises(SchemaMismatch, match="Upgrade Holdfast"):
            await attempt(postgres_url)
    await run(postgres.dsn, f"UPDATE {table} SET works_with = 1")
    await opened(postgres_url)


async def test_a_role_without_rights_is_told_which(
    postgres: PostgresServer, postgres_url: str
) -> None:
    await upgrade(postgres_url)
    await run(postgres.dsn, "DROP ROLE IF EXISTS nobody; CREATE ROLE nobody LOGIN PASSWORD 'x'")
    at = postgres_url.rpartition("@")[2]
    with pytest.raises(StoreUnavailable, match="Grant"):
        await opened(f"postgresql://nobody:x@{at}")


@pytest.mark.parametrize(
    ("revoked", "named"),
    [
        ("INSERT ON {}.sessions", r"sessions \(INSERT\)"),
        ("USAGE ON SEQUENCE {}.runs_key_seq", r"runs_key_seq \(USAGE\)"),
        ("EXECUTE ON FUNCTION {}.hand_back", r"hand_back \(EXECUTE\)"),
    ],
)
async def test_a_worker_that_lacks_one_right_is_refused_when_it_starts(
    postgres: PostgresServer, postgres_url: str, revoked: str, named: str
) -> None:
    """It would try for ever to write what it may not: an upgrade has added a table, perhaps."""
    await upgrade(postgres_url)
    schema = parse(postgres_url).schema
    await run(
        postgres.dsn,
        f"CREATE ROLE {schema}_user LOGIN PASSWORD 'x'",
        f"GRANT USAGE ON SCHEMA {schema} TO {schema}_user",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {schema}_user",
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {schema}_user",
        f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {schema}_user",
        f"REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} FROM public",
        f"CREATE ROLE {schema}_other; CREATE TABLE {schema}.others (x int)",
        f"ALTER TABLE {schema}.others OWNER TO {schema}_other",
    )
    store = PostgresStore(f"postgresql://{schema}_user:x@{postgres_url.rpartition('@')[2]}")
    await store.open()
    await worker(store, "w1")
    await run(postgres.dsn, f"REVOKE {revoked.format(schema)} FROM {schema}_user")
    with pytest.raises(StoreUnavailable, match=f"Grant.*{named}"):
        await worker(store, "w2")
    assert [row.id for row in await store.workers()] == ["w1"]
    await store.close()


async def test_a_role_with_too_few_connections_is_told_how_many_it_takes(
    postgres: PostgresServer,
) -> None:
    url = postgres.create_database("crowded")
    await run(
        postgres.dsn,
        "CREATE ROLE crowd LOGIN PASSWORD 'x' CONNECTION LIMIT 2",
        "ALTER DATABASE crowded OWNER TO crowd",
    )
    store = PostgresStore(f"postgresql://crowd:x@{url.rpartition('@')[2]}")
    await upgrade(store.url)
    await store.open()
    with pytest.raises(StoreUnavailable, match=r"no further connection.*Each takes three"):
        await worker(store)
    await store.close()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda url: url.replace("://postgres:", "://postgres:wrong"), "password"),
        (lambda url: url.replace("/postgres?", "/nowhere?"), "no such database"),
    ],
)
async def test_a_wrong_address_is_refused_by_name(postgres_url: str, change, says: str) -> None:
    with pytest.raises(StoreUnavailable, match=says) as raised:
        await opened(change(postgres_url))
    password = postgres_url.split(":")[2].partition("@")[0]
    assert password not in str(raised.value)


async def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await opened("postgresql://u@127.0.0.1:1/x")


@pytest.mark.parametrize(
    "query", ["schema=Upper", "schema=a-b", "schema=1a", 'schema=x"y', "connections=0", "schema="]
)
def test_odd_options_are_refused(query: str) -> None:
    with pytest.raises(StoreError, match=r"schema|connections"):
        PostgresStore(f"postgresql://u@h/d?{query}")


@pytest.mark.parametrize("password", ["pa:hush", "pa@hush", "%40hush", "hush/pa", "hu#sh", "hu?sh"])
def test_no_part_of_a_password_is_shown(password: str) -> None:
    try:
        said = parse(f"postgresql://me:{password}@h/d").shown
    except StoreError as error:
        said = str(error)
    assert not re.search(r"hu|sh|pa[:@]", said)
    with pytest.raises(StoreError, match="percent-encoded") as raised:
        parse(f"postgresql://me:{password}@[h/d")
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize(
    ("query", "hosts"),
    [
        ("host=a,b", ("a", "b")),
        ("host=a,b&port=1", ("a:1", "b:1")),
        ("host=a,::1&port=1,2&target_session_attrs=read-write", ("a:1", "[::1]:2")),
    ],
)
def test_hosts_may_be_named_behind_the_question_mark(query: str, hosts: tuple[str, ...]) -> None:
    """To the driver they would be one, and that is the first to answer, be it a standby."""
    found = parse(f"postgresql://me:hush@/d?{query}")
    assert found.hosts == tuple(f"postgresql://me:hush@{host}/d" for host in hosts)


def test_a_directory_of_sockets_is_left_to_the_driver() -> None:
    assert parse("postgresql:///d?host=/run/pg").hosts == ("postgresql:/d?host=%2Frun%2Fpg",)


@pytest.mark.parametrize(
    "setting",
    ["synchronous_commit = off", "default_transaction_isolation = 'repeatable read'"],
)
async def test_a_server_that_would_break_a_promise_is_refused(
    postgres: PostgresServer, setting: str
) -> None:
    dsn = postgres.create_database(f"loose_{setting[:4]}")
    await upgrade(dsn)
    name = dsn.rpartition("/")[2]
    await run(dsn, f'ALTER DATABASE "{name}" SET {setting}')
    with pytest.raises(Unsupported, match="ALTER ROLE"):
        await opened(dsn)
