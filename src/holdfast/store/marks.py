"""The mark of a move: which of two stores takes runs. At every moment one does, or none.

A move goes through these states; each arrow is one transaction of one store, and whoever repeats a
command goes on from where the marks are.

    source   (none) → leaving ─────────────────────→ left
    target   (none)         → arriving                    → (none): open for business
    undone   leaving → returning;  target emptied → (none);  returning → (none)

A marked store refuses writes by triggers, which are made with the mark and go with it: they stop
processes that had the store open before, and other versions of Holdfast, and cost nothing while no
move is under way.
"""

from typing import NamedTuple

from holdfast.errors import StoreMoved

LEAVING = "leaving"
LEFT = "left"
RETURNING = "returning"
ARRIVING = "arriving"
COPYING = "copying"
"""Only ever inside the transactions that copy rows into a target: nobody else sees it."""


class Mark(NamedTuple):
    state: str
    other: str  # the store at the other end, without a password
    token: str  # of this move: both ends have the same


def store_moved(state: str, other: str, where: str) -> StoreMoved:
    """Why a write was refused."""
    if state == LEFT:
        return StoreMoved(f"The store {where} has moved to {other}: use that one.")
    if state == LEAVING:
        return StoreMoved(
            f"The store {where} is being moved to {other} and takes no writes. Use that one when "
            "`holdfast move` is done, or take the move back with `holdfast move --undo`."
        )
    if state == RETURNING:
        return StoreMoved(
            f"The move of {where} to {other} is being taken back: repeat `holdfast move --undo`."
        )
    if state in (ARRIVING, COPYING):
        return StoreMoved(
            f"The store {where} is the target of a move from {other} that is not done: repeat "
            "`holdfast move`, or take it back with `holdfast move --undo`."
        )
    return StoreMoved(f"The store {where} refused a write because of a move.")
