"""How long `import holdfast` takes: it counts in every recovery."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.figures import middle
from benchmarks.setting import Setting, remove


async def imports(setting: Setting) -> None:
    folder = setting.fresh()
    _report(folder)
    own: list[float] = []
    total: list[float] = []
    for _ in range(3 if setting.quick else 9):
        lines = _report(folder).splitlines()
        # A list, as a module that its own package has imported meanwhile is there twice.
        micros = [_entry(line) for line in lines if line.startswith("import time:")]
        own.append(sum(self_ for name, self_, _ in micros if _is_ours(name)) / 1e3)
        total.append(next(all_ for name, _, all_ in micros if name == "holdfast") / 1e3)
    remove(folder)
    setting.add("holdfast's own modules", middle(own), "ms", "under 60")
    setting.add("with what they import", middle(total), "ms")


def _report(cache: Path) -> str:
    """With compiled modules, as any process but the first finds them."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(cache)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-X", "importtime", "-c", "import holdfast"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stderr


def _entry(line: str) -> tuple[str, float, float]:
    """`import time: self | cumulative | name`, in µs; the header gives zeros."""
    own, cumulative, name = line.removeprefix("import time:").split("|")
    if not own.strip().isdigit():
        return "", 0.0, 0.0
    return name.strip(), float(own), float(cumulative)


def _is_ours(name: str) -> bool:
    return name == "holdfast" or name.startswith("holdfast.")
