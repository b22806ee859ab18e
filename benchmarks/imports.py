"""How long `import holdfast` takes: it counts in every recovery."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.figures import middle
from benchmarks.setting import Setting


async def imports(setting: Setting) -> None:
    own: list[float] = []
    total: list[float] = []
    for _ in range(3 if setting.quick else 9):
        lines = _report().splitlines()
        micros = dict(
            _entry(line) for line in lines if line.startswith("import time:") and "|" in line
        )
        own.append(sum(self_ for name, (self_, _) in micros.items() if _is_ours(name)) / 1e3)
        total.append(micros["holdfast"][1] / 1e3)
    setting.add("holdfast's own modules", middle(own), "ms", "under 60")
    setting.add("with what they import", middle(total), "ms")


def _report() -> str:
    command = [sys.executable, "-X", "importtime", "-c", "import holdfast"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr


def _entry(line: str) -> tuple[str, tuple[float, float]]:
    """`import time: self | cumulative | name`, in µs; the header gives zeros."""
    own, cumulative, name = line.removeprefix("import time:").split("|")
    if not own.strip().isdigit():
        return "", (0.0, 0.0)
    return name.strip(), (float(own), float(cumulative))


def _is_ours(name: str) -> bool:
    return name == "holdfast" or name.startswith("holdfast.")
