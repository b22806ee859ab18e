"""Code in README.md and docs/ works.

Every ``python`` block compiles. A block opened as ``python run`` is a whole program: it is executed
in an empty directory and must exit with 0. Whether the other blocks do what the text says is not
checked.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RUN_SECONDS_MAX = 120

FENCE = re.compile(r"^\s*(?P<marks>```+|~~~+)(?P<info>[^`]*)$")


@dataclass(frozen=True)
class Block:
    file: str
    line: int  # of its first line of code
    words: tuple[str, ...]  # behind the opening fence
    code: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def blocks(file: str, text: str) -> Iterator[Block]:
    """The fenced Python blocks of a Markdown text."""
    marks, line = "", 0
    words: tuple[str, ...] = ()
    code: list[str] = []
    for number, text_line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(text_line)
        if not marks and fence:
            marks, line, words, code = (
                fence["marks"],
                number + 1,
                tuple(fence["info"].split()),
                [],
            )
        elif fence and fence["marks"].startswith(marks) and not fence["info"].strip():
            marks = ""
            if words and words[0].lower() in {"python", "py", "python3"}:
                yield Block(file, line, words, textwrap.dedent("\n".join(code) + "\n"))
        else:
            code.append(text_line)
    if marks:
        raise ValueError(f"{file}:{line - 1}: this fence is never closed")


def documented() -> list[Block]:
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [
        block
        for path in paths
        if path.exists()
        for block in blocks(str(path.relative_to(ROOT)), path.read_text("utf-8"))
    ]


def compiles(block: Block) -> None:
    # A fragment may await, as it would inside a function.
    flags = 0 if "run" in block.words else ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    source = "\n" * (block.line - 1) + block.code  # errors then show the line in the document
    compile(source, block.file, "exec", flags=flags, dont_inherit=True)


def run(block: Block, folder: Path) -> subprocess.CompletedProcess[str]:
    program = folder / "program.py"
    program.write_text(block.code, "utf-8")
    return subprocess.run(
        [sys.executable, program.name],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUTF8": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        text=True,
        timeout=RUN_SECONDS_MAX,
    )


BLOCKS = documented()


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_compiles(block):
    compiles(block)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_is_marked_as_the_tests_understand_it(block):
    assert block.words in {("python",), ("python", "run")}, f"{block}: ```{' '.join(block.words)}"


@pytest.mark.parametrize("block", [block for block in BLOCKS if "run" in block.words], ids=str)
def test_a_program_runs(block, tmp_path):
    done = run(block, tmp_path)
    assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"


# The checks themselves


def test_blocks_are_found_with_their_lines_and_words():
    text = "# T\n\n```python run\nx = 1\n```\n\n```sh\nls\n```\n\n"
    text += "- an item\n\n  ```python\n  y = 2\n  ```\n"
    found = list(blocks("x.md", text))
    assert [(b.line, b.words, b.code) for b in found] == [
        (4, ("python", "run"), "x = 1\n"),
        (14, ("python",), "y = 2\n"),
    ]


def test_a_fence_inside_a_longer_fence_is_text():
    text = "````markdown\n```python\nnot python\n```\n````\n"
    assert not list(blocks("x.md", text))


def test_an_open_fence_is_found():
    with pytest.raises(ValueError, match=r"x\.md:2"):
        list(blocks("x.md", "text\n```python\nx = 1\n"))


def test_code_that_does_not_compile_is_found():
    compiles(Block("x.md", 1, ("python",), "await x\n"))
    with pytest.raises(SyntaxError) as error:
        compiles(Block("x.md", 7, ("python",), "x = 1\nx = = 1\n"))
    assert error.value.lineno == 8


@pytest.mark.parametrize(
    ("code", "status"), [("import holdfast\n", 0), ("raise SystemExit(3)\n", 3)]
)
def test_a_program_is_judged_by_its_exit_status(code, status, tmp_path):
    assert run(Block("x.md", 1, ("python", "run"), code), tmp_path).returncode == status
