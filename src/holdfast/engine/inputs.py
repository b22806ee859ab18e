"""Inputs of steps that go on from earlier ones, and how little of them is stored.

An agent gives its model the whole conversation each turn. Stored whole, the journal of n messages
would hold n²/2 of them. So a large input is stored as what it adds to that of an earlier step, as

    ~["<digest of the earlier one>",<bytes of its beginning>,<bytes of its end>]<what is between>

which is no JSON, and so no whole input. The digest of an entry is that of its whole input: on
replay arguments are compared by it, and nothing has to be put together again.

An earlier step is one that had succeeded, durably, when the later one began. Neither a rerun nor a
fork drops such a step and keeps the later one.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator

from holdfast.types import Entry, Kind

WHOLE_MAX = 4096
"""Inputs up to so many bytes are stored whole."""

BASES_MAX = 16
"""How many conversations of a run are told apart, those least recently used being forgotten."""

BASES_BYTES_MAX = 4 << 20
"""And how much memory they take; a single one may take more."""

_MARK = b"~"


class Inputs:
    """The inputs of a run that later ones may go on from."""

    __slots__ = ("_bases", "_loaded")

    def __init__(self) -> None:
        self._bases: dict[bytes, bytes] = {}  # whole, by their digests; the newest is the last
        self._loaded: dict[bytes, bytes] = {}  # as they are stored

    def load(self, entry: Entry) -> None:
        if base := _as_base(entry):
            # The first of its kind: one that was given again may go on from what came in between.
            self._loaded.setdefault(*base)

    def whole(self, entry: Entry) -> bytes | None:
        """The input of a loaded entry. None: it is not on record."""
        return None if entry.input is None else _whole(entry.input, self._loaded.get)

    def shortened(self, payload: bytes) -> bytes:
        """What is to be stored of an input."""
        if len(payload) <= WHOLE_MAX:
            return payload
        if self._loaded:
            self._recall()
        best = payload
        for digest, base in self._bases.items():
            stored = _difference(digest, base, payload)
            if len(stored) < len(best):
                best = stored
        return best

    def succeeded(self, digest: bytes, payload: bytes, stored: bytes) -> None:
        """A step has, durably: others may go on from its input. The one that it went on from has
        probably served its time."""
        if len(payload) <= WHOLE_MAX:
            return
        if stored.startswith(_MARK):
            self._bases.pop(_parsed(stored)[0], None)
        self._bases.pop(digest, None)
        self._bases[digest] = payload
        size = sum(map(len, self._bases.values()))
        while len(self._bases) > BASES_MAX or (size > BASES_BYTES_MAX and len(self._bases) > 1):
            size -= len(self._bases.pop(next(iter(self._bases))))

    def _recall(self) -> None:
        """After a crash or a wait, conversations go on from what was loaded."""
        loaded, self._loaded = self._loaded, {}
        continued = {_parsed(stored)[0] for stored in loaded.values() if stored.startswith(_MARK)}
        for digest in [one for one in loaded if one not in continued][-BASES_MAX:]:
            whole = _whole(loaded[digest], loaded.get)
            if whole is not None:
                self.succeeded(digest, whole, whole)


def with_whole_inputs(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The entries of a journal, as if each input were stored whole."""
    bases: dict[bytes, bytes] = {}
    for entry in entries:
        if entry.input is not None and entry.input.startswith(_MARK):
            entry = dataclasses.replace(entry, input=_whole(entry.input, bases.get))
        if base := _as_base(entry):
            bases.setdefault(*base)
        yield entry


def _as_base(entry: Entry) -> tuple[bytes, bytes] | None:
    """The entry's digest and what is stored of its input, if others may go on from that."""
    stored, digest = entry.input, entry.digest
    if stored is None or digest is None or entry.kind is not Kind.STEP or entry.failed:
        return None
    is_large = len(stored) > WHOLE_MAX or stored.startswith(_MARK)
    return (digest, stored) if is_large else None


def _whole(stored: bytes, find: Callable[[bytes], bytes | None]) -> bytes | None:
    differences = []
    found: bytes | None = stored
    while found is not None and found.startswith(_MARK):
        digest, head, tail, rest = _parsed(found)
        differences.append((head, tail, rest))
        found = find(digest)
    if found is None:
        return None
    whole = found
    for head, tail, rest in reversed(differences):
        whole = whole[:head] + rest + whole[len(whole) - tail :]
    return whole


def _parsed(stored: bytes) -> tuple[bytes, int, int, bytes]:
    end = stored.index(b"]") + 1
    digest, head, tail = json.loads(stored[len(_MARK) : end])
    return bytes.fromhex(digest), head, tail, stored[end:]


def _difference(digest: bytes, base: bytes, payload: bytes) -> bytes:
    shorter = min(len(base), len(payload))
    head = _most(shorter, lambda n, m: base.startswith(payload[n:m], n))
    tail = _most(
        shorter - head,
        lambda n, m: base.endswith(payload[len(payload) - m : len(payload) - n], 0, len(base) - n),
    )
    said = json.dumps([digest.hex(), head, tail], separators=(",", ":")).encode()
    return _MARK + said + payload[head : len(payload) - tail]


def _most(limit: int, agree: Callable[[int, int], bool]) -> int:
    """How many bytes agree: `agree(n, m)` says whether those from n up to m do."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if agree(low, middle):
            low = middle
        else:
            high = middle - 1
    return low
