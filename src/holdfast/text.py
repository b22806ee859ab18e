"""What text every store can hold."""

from __future__ import annotations

import os
from typing import TypeGuard

NAME_CHARS_MAX = 512
A_NAME = f"text without lone surrogates and null characters, of up to {NAME_CHARS_MAX} characters"


def fresh_id() -> str:
    """A name that nobody else has: what `uuid.uuid4().hex` is, in a quarter of the time."""
    return os.urandom(16).hex()


def can_be_stored(text: object) -> TypeGuard[str]:
    """Is it text, without lone surrogates, which UTF-8 has not, and null characters, which
    PostgreSQL has not?"""
    if not isinstance(text, str) or "\0" in text:
        return False
    return text.isascii() or text.encode("utf-8", "replace").decode() == text


def can_be_a_name(text: object) -> TypeGuard[str]:
    """The same, and short enough for every store's index."""
    return can_be_stored(text) and len(text) <= NAME_CHARS_MAX


def storable(text: str) -> str:
    """The same, with what no store can hold written out."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
