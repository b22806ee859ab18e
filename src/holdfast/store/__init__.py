"""Where runs are kept. SQL lives below this package and nowhere else."""

from __future__ import annotations

from holdfast.errors import StoreError
from holdfast.store.base import Store
from holdfast.store.sqlite import SQLiteStore


def open_store(url: str) -> Store:
    """The store that a url means; it is opened by `await store.open()`."""
    scheme, separator, _ = url.partition("://")
    if not separator or scheme == "sqlite":
        return SQLiteStore(url)
    raise StoreError(
        f"{url!r} names no known kind of store. Known are sqlite:///relative.db, "
        "sqlite:////absolute.db and sqlite://:memory:."
    )
