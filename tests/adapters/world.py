"""What an agent under test can reach: a scripted model, and an observer of its effects."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import holdfast


@dataclass(frozen=True)
class World:
    model_url: str
    effects_url: str
    folder: str  # of the store; kept when the agent's process is killed

    def effect(self, name: str) -> None:
        """Something that must not happen twice. Its receiver knows by its key if it does."""
        key = holdfast.idempotency_key() if holdfast.current_run() else ""
        line = json.dumps({"name": name, "key": key, "pid": os.getpid()}).encode()
        with urllib.request.urlopen(f"{self.effects_url}/effect", data=line) as answer:
            answer.read()


Case = Callable[[World], tuple[Any, list[Any]]]
"""Builds an agent as a process that has just started would, and what it is to be asked."""
