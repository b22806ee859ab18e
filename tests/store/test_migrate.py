"""Migrations: applied one after the other, they give the current schema."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from holdfast.errors import SchemaMismatch
from holdfast.store import migrate, queries
from holdfast.store.base import Start, Started
from holdfast.store.sqlite import SQLiteStore
from holdfast.store.sqlite_open import APPLICATION_ID
from holdfast.types import NewRun


def dump(db: sqlite3.Connection) -> dict[str, object]:
    """The schema as SQLite understands it: how it was written does not matter."""
    found: dict[str, object] = {}
    objects = db.execute(
        "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name"
    )
    for type, name, sql in objects.fetchall():
        if type == "table":
            found[name] = (
                db.execute(f"PRAGMA table_xinfo({name})").fetchall(),
                sorted(row[1:] for row in db.execute(f"PRAGMA index_list({name})")),
                "AUTOINCREMENT" in sql,
                "WITHOUT ROWID" in sql,
            )
        else:
            found[name] = re.sub(r"\s+", " ", sql)
    return found


@contextmanager
def applied(*scripts: str) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as db:
        for script in scripts:
            for statement in queries.statements(script):
                db.execute(statement)
        yield db


def schema_of(*scripts: str) -> dict[str, object]:
    with applied(*scripts) as db:
        return dump(db)


CURRENT = queries.read("sqlite", "schema.sql")


def test_all_migrations_give_the_current_schema() -> None:
    migrated = schema_of(*(migration.sql for migration in migrate.migrations()))
    assert migrated == schema_of(CURRENT)


def test_the_difference_would_be_seen() -> None:
    for change in (
        "ALTER TABLE runs ADD COLUMN extra",
        "DROP INDEX runs_ready",
        "CREATE INDEX extra ON runs (queue)",
    ):
        assert schema_of(CURRENT, change) != schema_of(CURRENT)


async def test_a_new_store_has_the_current_schema_and_version(tmp_path: Path) -> None:
    store = SQLiteStore(str(tmp_path / "runs.db"))
    await store.open()
    await store.close()
    with closing(sqlite3.connect(tmp_path / "runs.db")) as db:
        assert dump(db) == schema_of(CURRENT)
        assert db.execute("PRAGMA user_version").fetchone()[0] == len(migrate.migrations())
        assert db.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID


async def test_an_older_schema_is_upgraded_on_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SQLiteStore(str(tmp_path / "runs.db"))
    await store.open()
    await store.close()
    known = migrate.migrations()
    later = migrate.Migration(len(known) + 1, "later", "ALTER TABLE runs ADD COLUMN later TEXT;")
    monkeypatch.setattr(migrate, "migrations", lambda dialect="sqlite": [*known, later])
    await store.open()
    columns = [info[1] for info in store._reader._db.execute("PRAGMA table_info(runs)")]
    assert columns[-1] == "later"
    assert store._reader._db.execute("PRAGMA user_version").fetchone()[0] == later.version
    await store.close()


async def test_runs_of_the_first_schema_go_on_after_the_upgrade(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "runs.db")) as db:
        for statement in queries.statements(migrate.migrations()[0].sql):
            db.execute(statement)
        db.execute(
            "INSERT INTO runs (id, workflow, status, incarnation, session, ready_at, created_at,"
            " updated_at, digest, input) VALUES ('old', 'w', 'pending', 'i', 's', 1, 1, 1, '', '')"
        )
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute("PRAGMA user_version = 1")
        db.commit()
    store = SQLiteStore(str(tmp_path / "runs.db"))
    await store.open()
    new = NewRun(
        id="new",
        workflow="w",
        input=b"",
        digest=b"",
        created_at=2,
        incarnation="i",
        session="s",
        on_busy="join",
    )
    for _ in range(2):
        (started,) = await store.commit([Start(new)])
        assert isinstance(started, Started) and started.row.id == "old"
        assert len(await store.mail([(started.row.key, 0)])) == 1
    await store.close()


async def test_sessions_from_before_they_were_counted_count_as_used_at_the_upgrade(
    tmp_path: Path,
) -> None:
    with closing(sqlite3.connect(tmp_path / "runs.db")) as db:
        for migration in migrate.migrations()[:9]:
            for statement in queries.statements(migration.sql):
                db.execute(statement)
        db.execute("INSERT INTO session_state VALUES ('old', 'a', x'01')")
        db.execute("INSERT INTO session_messages (session, payload) VALUES ('other', x'01')")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute("PRAGMA user_version = 9")
        db.commit()
    began = time.time_ns() // 1000
    store = SQLiteStore(str(tmp_path / "runs.db"))
    await store.open()
    assert await store.prune_sessions(began - 60_000_000, 10) == 0
    assert await store.session_state("old") == {"a": b"\x01"}
    assert await store.prune_sessions(began + 10**12, 10) == 2
    assert await store.session_messages("other") == []
    await store.close()


async def test_a_migration_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SQLiteStore(str(tmp_path / "runs.db"))
    await store.open()
    await store.close()
    known = migrate.migrations()
    broken = "ALTER TABLE runs ADD COLUMN later TEXT; ALTER TABLE nowhere ADD COLUMN x;"
    later = migrate.Migration(len(known) + 1, "later", broken)
    monkeypatch.setattr(migrate, "migrations", lambda dialect="sqlite": [*known, later])
    with pytest.raises(Exception, match="nowhere"):
        await store.open()
    monkeypatch.undo()
    await store.open()
    await store.close()


def test_the_script_to_upgrade_by_hand_does_the_same() -> None:
    script = migrate.upgrade_sql(0)
    assert script.startswith("BEGIN") and script.rstrip().endswith("COMMIT;")
    with applied() as db:
        db.executescript(script)
        assert dump(db) == schema_of(CURRENT)
        assert db.execute("PRAGMA user_version").fetchone()[0] == len(migrate.migrations())
    assert migrate.upgrade_sql(len(migrate.migrations())) == ""
    with pytest.raises(SchemaMismatch):
        migrate.upgrade_sql(999)


def test_every_query_is_known_to_sqlite() -> None:
    """Each is prepared against the schema, so that a typing error shows here."""
    with applied(CURRENT) as db:
        for name, sql in queries.load("sqlite").items():
            # Numbered places (?1) make some releases of Python 3.12 warn at every call.
            assert not re.search(r"\?\d", sql), name
            named = re.findall(r":([a-z_]+)", sql)
            assert not (named and "?" in sql), name
            bound: object = dict.fromkeys(named, "[]") if named else ("[]",) * sql.count("?")
            db.execute(f"EXPLAIN {sql}", bound)  # type: ignore[arg-type]
