"""Looking after a database file: copies, and checks of its health."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import StoreCorrupt, StoreUnavailable
from holdfast.store import migrate
from holdfast.store.sqlite_errors import store_error
from holdfast.store.sqlite_lanes import Db, Reader, connect
from holdfast.store.sqlite_open import APPLICATION_ID, MEMORY

_PAGES_PER_STEP = 1000


def check(db: Db) -> list[str]:
    found = [str(row[0]) for row in db.execute("PRAGMA quick_check")]
    return [] if found == ["ok"] else found


def upgrade_script(path: str) -> str:
    """The migrations that a file needs; reads it only. A file that is missing needs all of them."""
    version = version_of(path) if os.path.exists(path) else 0
    script = migrate.upgrade_sql(version)
    # Without its mark a database would be taken for another program's.
    mark = f"PRAGMA application_id = {APPLICATION_ID};\n" if script and version == 0 else ""
    return mark + script


def version_of(path: str) -> int:
    db = read_only(path)
    try:
        version: int = db.execute("PRAGMA user_version").fetchone()[0]
        return version
    except sqlite3.Error as error:
        raise store_error(error, path) from error
    finally:
        db.close()


def read_only(path: str) -> Db:
    """A connection that cannot change the file. Nobody may use it on two threads at once."""
    return sqlite3.connect(
        f"file:{_quoted(path)}?mode=ro",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        factory=Db,
    )


def backup(path: str, reader: Reader, target: str) -> None:
    """Copies a database while others write it. The copy appears under its name only when whole."""
    with new_file(target) as partial:
        if path == MEMORY:
            reader.run_now(lambda db: _copy(db, partial))
        else:
            source = connect(path)
            try:
                _copy(source, partial)
            finally:
                source.close()
        publish(partial, target)


@contextmanager
def new_file(target: str) -> Iterator[str]:
    """A name for a file that is to be published as `target`; what is left of it is removed."""
    if os.path.lexists(target):
        raise StoreUnavailable(f"{target} exists; a backup does not overwrite anything.")
    partial = f"{target}.partial-{os.urandom(4).hex()}"
    try:
        yield partial
    except sqlite3.Error as error:
        raise store_error(error, target) from error
    except FileExistsError as error:
        raise StoreUnavailable(f"{target} exists; a backup does not overwrite anything.") from error
    except OSError as error:
        raise StoreUnavailable(f"The backup to {target} failed: {error}") from error
    finally:
        for suffix in ("", "-wal", "-shm"):
            _remove(partial + suffix)


def publish(partial: str, target: str) -> None:
    """Gives a whole and durable copy its name."""
    verify(partial)
    os.link(partial, target)  # unlike a rename, it fails if somebody was faster
    _sync(os.path.dirname(os.path.abspath(target)))


def _copy(source: Db, target: str) -> None:
    copy = connect(target)
    try:
        source.backup(copy, pages=_PAGES_PER_STEP)
    finally:
        copy.close()
    make_one_file(target)


def make_one_file(path: str) -> None:
    """Makes a copy durable, and so that it needs no -wal file beside it."""
    copy = connect(path)
    try:
        copy.execute("PRAGMA journal_mode = DELETE")
    finally:
        copy.close()
    fd = os.open(path, os.O_RDWR)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def verify(path: str) -> None:
    """Raises StoreCorrupt unless the file is a whole Holdfast store that this version can read."""
    if not os.path.isfile(path):
        raise StoreUnavailable(f"There is no file {path}.")
    db = read_only(path)
    try:
        found = db.execute("PRAGMA integrity_check").fetchone()[0]
        if found != "ok":
            raise StoreCorrupt(f"{path} is damaged: {found}")
        if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise StoreCorrupt(f"{path} is not a Holdfast store.")
        migrate.missing(db.execute("PRAGMA user_version").fetchone()[0])
    except sqlite3.Error as error:
        raise store_error(error, path) from error
    finally:
        db.close()


def restore(path: str, target: str, *, force: bool = False) -> None:
    """Puts a backup in the place of a store.

    A store that some process has open is never replaced; one that holds anything only with `force`.
    """
    verify(path)
    if os.path.lexists(target):
        _require_unused(target, force=force)
    partial = f"{target}.partial-{os.urandom(4).hex()}"
    try:
        source = connect(path)
        try:
            _copy(source, partial)
        finally:
            source.close()
        verify(partial)
        os.replace(partial, target)
        for suffix in ("-wal", "-shm"):
            _remove(target + suffix)
        _sync(os.path.dirname(os.path.abspath(target)))
    except sqlite3.Error as error:
        raise store_error(error, target) from error
    except OSError as error:
        raise StoreUnavailable(f"The restore to {target} failed: {error}") from error
    finally:
        _remove(partial)


def _require_unused(target: str, *, force: bool) -> None:
    db = sqlite3.connect(target, timeout=0, isolation_level=None)
    try:
        tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if tables and not force:
            raise StoreUnavailable(
                f"{target} holds data; to restore over it, use force (`--force`)."
            )
        # Leaving WAL mode takes every lock there is: it fails while anybody has the file open.
        if db.execute("PRAGMA journal_mode = DELETE").fetchone()[0] != "delete":
            raise StoreUnavailable(f"{target} is in use; stop its workers first.")
        db.execute("BEGIN EXCLUSIVE")
        db.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        raise StoreUnavailable(f"{target} is in use; stop its workers first. ({error})") from error
    except sqlite3.DatabaseError as error:
        if not force:
            raise store_error(error, target) from error
    finally:
        db.close()


def _quoted(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _sync(folder: str) -> None:
    """Makes a new name durable, where directories can be synced."""
    try:
        fd = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(fd)
    except OSError:
        pass
    finally:
        os.close(fd)
