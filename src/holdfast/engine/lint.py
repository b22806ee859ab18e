"""Points out reads of the time, of chance and of the environment in a workflow's own code.

They give something else on replay. Looked at are the workflow's function and what it calls by name
in its own module, steps excluded; libraries do such things all the time and are left alone. It
reads source text, so it sees no more than that: it is a hint, and the digest of each step's
arguments is the proof.
"""

from __future__ import annotations

import ast
import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from holdfast.errors import ReplayWarning

_CURES = {
    "time.time": "holdfast.now()",
    "time.time_ns": "holdfast.now()",
    "time.monotonic": "holdfast.now()",
    "time.perf_counter": "holdfast.now()",
    "datetime.datetime.now": "holdfast.now()",
    "datetime.datetime.utcnow": "holdfast.now()",
    "datetime.datetime.today": "holdfast.now()",
    "datetime.date.today": "holdfast.now().date()",
    "uuid.uuid1": "holdfast.uuid4()",
    "uuid.uuid4": "holdfast.uuid4()",
    "os.getenv": "holdfast.once(...)",
    "os.environ": "holdfast.once(...)",
    "os.urandom": "holdfast.once(...)",
}
_CURES_BY_MODULE = {"random": "holdfast.random()", "secrets": "holdfast.once(...)"}

MODULES_MAX = 32

Function = ast.FunctionDef | ast.AsyncFunctionDef


def warn_of_undurable_reads(fn: Callable[..., Any]) -> None:
    """Issues a ReplayWarning for each place, with its file and line."""
    try:
        path = inspect.getsourcefile(fn)
        source = "".join(inspect.findsource(inspect.getmodule(fn) or fn)[0])
        found = sorted(set(_reads(_looked_at(source), fn.__name__)))
    except Exception:  # whatever loaders, odd code objects and the parser raise: it is only a hint
        return  # no source at hand (a shell, a frozen app): nothing can be said
    for line, read, cure in found:
        warnings.warn_explicit(
            f"{read} is read in workflow {fn.__name__!r}, and will be something else on replay: "
            f"use {cure}, or read it in a step",
            ReplayWarning,
            path or "<unknown>",
            line,
        )


class _Seen(NamedTuple):
    """What matters of a function."""

    is_step: bool
    calls: list[str]
    reads: list[tuple[int, str, str]]  # in which line, what, and its cure


@functools.lru_cache(MODULES_MAX)
def _looked_at(source: str) -> dict[str, _Seen]:
    """The functions of a module by name: it is read once for all its workflows."""
    module = ast.parse(source)
    names = _imported(module)
    return {
        node.name: _look_at(node, names) for node in ast.walk(module) if isinstance(node, Function)
    }


def _look_at(function: Function, names: dict[str, str]) -> _Seen:
    seen = _Seen(_is_step(function), [], [])
    for node in _own_nodes(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            seen.calls.append(node.func.id)
        read = _dotted(node, names)
        cure = _CURES.get(read) or _CURES_BY_MODULE.get(read.partition(".")[0])
        if cure and "." in read:
            seen.reads.append((getattr(node, "lineno", 1), read, cure))
    return seen


def _reads(functions: dict[str, _Seen], start: str) -> Iterator[tuple[int, str, str]]:
    seen: set[str] = set()
    queue = [start]
    while queue:
        name = queue.pop()
        function = functions.get(name)
        if function is None or name in seen:
            continue
        seen.add(name)
        if name != start and function.is_step:
            continue
        queue += function.calls
        yield from function.reads


def _own_nodes(function: Function) -> Iterator[ast.AST]:
    """Everything in a function but the insides of steps that are defined in it."""
    stack: list[ast.AST] = list(function.body)
    while stack:
        node = stack.pop()
        if isinstance(node, Function) and _is_step(node):
            continue
        yield node
        stack.extend(ast.iter_child_nodes(node))


def _is_step(function: Function) -> bool:
    for decorator in function.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
        if name in ("step", "workflow", "remote"):
            return True
    return False


def _imported(module: ast.Module) -> dict[str, str]:
    """What the module's names stand for."""
    names: dict[str, str] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.partition(".")[0]] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _dotted(node: ast.AST, names: dict[str, str]) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in names:
        return ""
    return ".".join([names[node.id], *reversed(parts)])
