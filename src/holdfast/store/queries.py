"""Named SQL, read once from .sql files.

A file holds queries, each under `-- name: word` and a sentence that says what it is for. A name in
capitals is a fragment: it stands for its text in every query. Parameters are always bound, never
pasted in.
"""

from __future__ import annotations

import os
import re

_HERE = os.path.dirname(__file__)


def read(*path: str) -> str:
    with open(os.path.join(_HERE, "sql", *path), encoding="utf-8") as file:
        return file.read()


def read_all(*path: str) -> list[str]:
    """The texts of all files of a folder, in the order of their names."""
    folder = os.path.join(_HERE, "sql", *path)
    return [read(*path, name).strip() for name in sorted(os.listdir(folder))]


def load(dialect: str) -> dict[str, str]:
    """All queries of a dialect, by name."""
    found: dict[str, str] = {}
    folder = os.path.join(_HERE, "sql", dialect, "queries")
    for name in sorted(os.listdir(folder)):
        for chunk in read(dialect, "queries", name).split("-- name: ")[1:]:
            title, _, rest = chunk.partition("\n")
            title = title.strip()
            assert title not in found, f"{name}: two queries are named {title}"
            lines = rest.splitlines()
            assert lines[0].startswith("-- "), f"{name}: {title} has no comment"
            sql = "\n".join(line for line in lines if not line.startswith("--"))
            found[title] = sql.strip().rstrip(";")
    for fragment in filter(str.isupper, list(found)):
        text = found.pop(fragment)
        found = {title: sql.replace(fragment, text) for title, sql in found.items()}
    return found


def statements(script: str) -> list[str]:
    """The statements of a script; none of ours has a semicolon inside a string or a comment."""
    code = re.sub(r"--[^\n]*", "", script)
    return [statement.strip() for statement in code.split(";") if statement.strip()]
