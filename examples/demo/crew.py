"""The worker processes: started, killed with SIGKILL, replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Member:
    name: str
    process: subprocess.Popen[bytes]
    started_at: float  # seconds since 1970
    killed_at: float | None = None
    ready: bool = False  # it is in the store's list of workers

    @property
    def pid(self) -> int:
        return self.process.pid


class Crew:
    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.members: list[Member] = []
        self._log = folder / "workers.log"
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self._environment = {**os.environ, **environment, "PYTHONPATH": path}

    def hire(self) -> Member:
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "examples.demo.agent_worker"],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demo, which then sends them home
            )
        member = Member(f"w{len(self.members) + 1}", process, time.time())
        self.members.append(member)
        return member

    def kill(self, member: Member) -> None:
        member.killed_at = time.time()
        os.kill(member.pid, signal.SIGKILL)
        member.process.wait()

    @property
    def alive(self) -> list[Member]:
        return [member for member in self.members if member.killed_at is None]

    def of(self, pid: int) -> Member:
        return next(member for member in self.members if member.pid == pid)

    def close(self) -> None:
        """Lets those who live hand their work back; those who do not leave in time are killed."""
        for member in self.members:
            assert member.process.stdin is not None
            member.process.stdin.close()
        for member in self.alive:
            try:
                member.process.wait(5)
            except subprocess.TimeoutExpired:
                member.process.kill()
                member.process.wait()

    def last_words(self, lines: int = 20) -> str:
        text = self._log.read_text("utf-8", "replace") if self._log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])
