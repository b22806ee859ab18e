"""The style that a linter does not know, held by tests.

Each check is a pure function from source to complaints, so that the tests at the end can show that
it does complain. What it does not see: a name reached by getattr or built from strings.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast

ROOT = Path(__file__).parent.parent
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 400

# Who may exceed a limit, and up to where: {"src/holdfast/x.py": 450, "src/holdfast/x.py:name": 90}.
EXCEPTIONS: dict[str, int] = {}

UNSAFE_MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "jsonpickle", "marshal", "shelve"}
UNSAFE_CALLS = {"eval", "exec", "__import__"}

# Written so that this file does not match itself.
INDEX_ADDRESS = re.compile(
    r"index[-_]url|https?://\S+/simp[l]e\b|python[h]osted\.org|tool\.uv\.inde[x]|find[-]links",
    re.IGNORECASE,
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def long_files(name: str, source: str) -> Iterator[str]:
    lines = len(source.splitlines())
    if lines > EXCEPTIONS.get(name, FILE_LINES_MAX):
        yield f"{name}: {lines} lines, at most {FILE_LINES_MAX}"


def long_functions(name: str, source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, Function):
            continue
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > EXCEPTIONS.get(f"{name}:{node.name}", FUNCTION_LINES_MAX):
            yield (
                f"{name}:{node.lineno}: {node.name} has {lines} lines, at most {FUNCTION_LINES_MAX}"
            )


def unsafe_code(name: str, source: str) -> Iterator[str]:
    tree = ast.parse(source)
    for node, module in imported_modules(tree):
        if module.split(".")[0] in UNSAFE_MODULES:
            yield f"{name}:{node.lineno}: imports {module}"
    for call, called in calls(tree):
        if called in UNSAFE_CALLS:
            yield f"{name}:{call.lineno}: calls {called}"


def sleeps(name: str, source: str) -> Iterator[str]:
    """time.sleep anywhere; asyncio.sleep of a test itself.

    In a workflow's body asyncio.sleep is a durable timer and costs no time, so functions inside a
    test may call it. sleep(0) only yields, and is left alone.
    """
    tree = ast.parse(source)
    names = import_aliases(tree)
    for call, called in calls(tree, names):
        if called == "time.sleep":
            yield f"{name}:{call.lineno}: time.sleep; wait for a signal instead"
    for test in ast.walk(tree):
        if not isinstance(test, Function) or not test.name.startswith("test_"):
            continue
        for call, called in calls(test, names, nested=False):
            if called in {"asyncio.sleep", "anyio.sleep"} and not is_zero(call):
                yield f"{name}:{call.lineno}: {test.name} sleeps; wait for a signal instead"


def index_addresses(name: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if INDEX_ADDRESS.search(line):
            yield f"{name}:{number}: {line.strip()[:80]}"


def imported_modules(tree: ast.AST) -> Iterator[tuple[ast.stmt, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node, node.module


def import_aliases(tree: ast.AST) -> dict[str, str]:
    """What the names that a module imports stand for: {"sleep": "time.sleep"}."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {
                alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names
            }
    return names


def calls(
    tree: ast.AST, names: dict[str, str] | None = None, *, nested: bool = True
) -> Iterator[tuple[ast.Call, str]]:
    """Every call and the dotted name that it calls; without `nested`, not in inner functions."""
    waiting = list(ast.iter_child_nodes(tree))
    while waiting:
        node = waiting.pop()
        if not nested and isinstance(node, Function | ast.Lambda | ast.ClassDef):
            continue
        waiting.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Call):
            first, _, rest = ast.unparse(node.func).partition(".")
            first = (names or {}).get(first, first)
            yield node, f"{first}.{rest}" if rest else first


def is_zero(call: ast.Call) -> bool:
    first = call.args[0] if call.args else None
    return isinstance(first, ast.Constant) and first.value == 0


def python_files(folder: str) -> list[tuple[str, str]]:
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found, f"no Python files under {folder}: these checks would pass without looking"
    return [(str(path.relative_to(ROOT)), path.read_text("utf-8")) for path in found]


def repository_files() -> list[Path]:
    """What is committed, or would be by `git add -A`."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
    )
    if listing.returncode:
        pytest.skip(f"not a git repository: {listing.stderr.strip()}")
    # A deleted file stays listed until its deletion is staged.
    return [path for name in listing.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def assert_none(complaints: list[str]) -> None:
    assert not complaints, "\n  " + "\n  ".join(complaints)


# The repository as it is


@pytest.mark.parametrize("check", [long_files, long_functions, unsafe_code])
def test_sources_are_tidy(check):
    assert_none([found for file in python_files("src") for found in check(*file)])


def test_tests_do_not_sleep():
    files = [file for file in python_files("tests") if not file[0].startswith("tests/helpers")]
    assert_none([found for file in files for found in sleeps(*file)])


def test_exceptions_name_what_exists_and_are_still_needed():
    def size(exception: str) -> int:
        name, _, function = exception.partition(":")
        source = (ROOT / name).read_text("utf-8")
        if not function:
            return len(source.splitlines())
        return max(
            (node.end_lineno or node.lineno) - node.lineno + 1
            for node in ast.walk(ast.parse(source))
            if isinstance(node, Function) and node.name == function
        )

    for exception in EXCEPTIONS:
        limit = FUNCTION_LINES_MAX if ":" in exception else FILE_LINES_MAX
        assert size(exception) > limit, f"{exception} needs no exception any more"


def test_public_names_are_sorted_and_exist():
    assert list(holdfast.__all__) == sorted(set(holdfast.__all__))
    assert_none([name for name in holdfast.__all__ if not hasattr(holdfast, name)])


def test_no_file_names_a_package_index():
    complaints = []
    for path in repository_files():
        name = str(path.relative_to(ROOT))
        if path.name == "uv.lock":
            complaints.append(f"{name}: a lock file holds the addresses of its author's index")
        try:
            complaints += index_addresses(name, path.read_text("utf-8"))
        except UnicodeDecodeError:
            continue  # pictures
    assert_none(complaints)


# The checks themselves


def test_a_long_file_is_found():
    assert not list(long_files("x.py", "x = 1\n" * FILE_LINES_MAX))
    assert list(long_files("x.py", "x = 1\n" * (FILE_LINES_MAX + 1)))


def test_a_long_function_is_found():
    body = "    x = 1\n"
    assert not list(long_functions("x.py", "def f():\n" + body * (FUNCTION_LINES_MAX - 1)))
    assert list(long_functions("x.py", "async def f():\n" + body * FUNCTION_LINES_MAX))


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "def f():\n import dill",
        "eval('1')",
        "exec('')",
    ],
)
def test_unsafe_code_is_found(source):
    assert list(unsafe_code("x.py", source))


@pytest.mark.parametrize("source", ["import json", "connection.exec('')", "# eval(x)", "'pickle'"])
def test_safe_code_is_left_alone(source):
    assert not list(unsafe_code("x.py", source))


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.sleep(1)",
        "import time as t\ndef helper(): t.sleep(0)",
        "from time import sleep\nsleep(1)",
        "import asyncio\nasync def test_x(): await asyncio.sleep(0.1)",
        "from asyncio import sleep as nap\nasync def test_x(): await nap(1)",
        "import asyncio\nclass TestX:\n async def test_x(self): await asyncio.sleep(1)",
    ],
)
def test_a_sleep_is_found(source):
    assert list(sleeps("x.py", source))


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio\nasync def test_x(): await asyncio.sleep(0)",
        "import asyncio\nasync def test_x():\n async def body(): await asyncio.sleep(9)",
        "import asyncio\nasync def workflow(): await asyncio.sleep(9)",
        "import holdfast\nasync def test_x(): await holdfast.sleep(9)",
    ],
)
def test_a_durable_timer_is_no_sleep(source):
    assert not list(sleeps("x.py", source))


@pytest.mark.parametrize("host", ["https://pypi.org", "http://10.0.0.1:8080/root"])
def test_an_index_address_is_found(host):
    assert list(index_addresses("x", f"--index{'-'}url {host}"))
    assert list(index_addresses("x", f'source = "{host}/{"simple"}/"'))
    assert not list(index_addresses("x", f"{host}/project/holdfast"))
