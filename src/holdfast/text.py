"""What text every store can hold."""

from __future__ import annotations

from typing import TypeGuard


def can_be_stored(text: object) -> TypeGuard[str]:
    """Is it text, without lone surrogates, which UTF-8 has not, and null characters, which
    PostgreSQL has not?"""
    if not isinstance(text, str) or "\0" in text:
        return False
    return text.isascii() or text.encode("utf-8", "replace").decode() == text
