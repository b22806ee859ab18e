"""Where runs are kept. SQL lives below this package and nowhere else.

The functions here are the only place that tells one kind of store from another, by its url.
"""

from __future__ import annotations

import os

from holdfast.errors import StoreError
from holdfast.store import sqlite_upkeep
from holdfast.store.base import Store
from holdfast.store.sqlite import SQLiteStore
from holdfast.store.sqlite_open import MEMORY, path_of


def open_store(url: str) -> Store:
    """The store that a url means; it is opened by `await store.open()`."""
    _require_sqlite(url)
    return SQLiteStore(url)


def exists(url: str) -> bool:
    """Whether there is something to open; opening creates a file that is missing."""
    _require_sqlite(url)
    return os.path.exists(path_of(url))


def is_shared(url: str) -> bool:
    """Whether other processes can see this store."""
    _require_sqlite(url)
    return path_of(url) != MEMORY


def upgrade_script(url: str) -> str:
    """SQL that brings the store's schema up to date, to be applied by hand; empty: it is."""
    _require_sqlite(url)
    return sqlite_upkeep.upgrade_script(path_of(url))


def restore(url: str, source: str, *, force: bool = False) -> None:
    """Puts a backup in the place of a store that nobody has open."""
    _require_sqlite(url)
    sqlite_upkeep.restore(source, path_of(url), force=force)


def _require_sqlite(url: str) -> None:
    scheme, separator, _ = url.partition("://")
    if separator and scheme != "sqlite":
        raise StoreError(
            f"{url!r} names no known kind of store. Known are sqlite:///relative.db, "
            "sqlite:////absolute.db and sqlite://:memory:."
        )
