"""Which workers are open in this process: needed to tell a lost context from plain use."""

from __future__ import annotations

_open: set[int] = set()


def opened(host: object) -> None:
    _open.add(id(host))


def closed(host: object) -> None:
    _open.discard(id(host))


def any_open() -> bool:
    return bool(_open)
