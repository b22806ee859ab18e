"""Kills an agent after each of its commits, and counts what really happened outside of it."""

from __future__ import annotations

import atexit
import json
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.testing.loopback import LoopbackServer, Request, Response
from holdfast.testing.model_server import ModelServer, Script
from tests.helpers.processes import ROOT, environment

COMMITS_MAX = 200
_ASKED_BY = ("messages", "input", "contents")
STORAGE = tempfile.mkdtemp(prefix="holdfast-crewai-")
"""Where CrewAI keeps a database that all its processes write to: these are not to wait for those of
other tests."""
atexit.register(shutil.rmtree, STORAGE, ignore_errors=True)
QUIET = {
    "OTEL_SDK_DISABLED": "true",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_DISABLE_TRACKING": "true",
    "CREWAI_DISABLE_VERSION_CHECK": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "CREWAI_STORAGE_DIR": STORAGE,
    "ANONYMIZED_TELEMETRY": "false",
    "LANGSMITH_TRACING": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
}


class EffectServer(LoopbackServer):
    """`failing` says which effects do not come about at first, and how often."""

    def __init__(self, failing: dict[str, int] | None = None) -> None:
        super().__init__()
        self.effects: list[dict[str, Any]] = []
        self._failing = Counter(failing or {})

    def handle(self, request: Request) -> Response:
        if self._failing[request.body["name"]] > 0:
            self._failing[request.body["name"]] -= 1
            return Response({}, status=503)
        self.effects.append(request.body)
        return Response({})


class Zygote:
    """A process that forks one for each run; see zygote.py."""

    def __init__(self, cases: str) -> None:
        self.cases = cases.rpartition(".")[2]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.adapters.zygote", cases],
            cwd=ROOT,
            env=environment(**QUIET),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None and self._process.stdin is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        assert self._out.readline() == "ready\n", f"{cases} cannot be imported"

    def do(self, task: dict[str, Any]) -> dict[str, Any]:
        self._in.write(json.dumps(task) + "\n")
        self._in.flush()
        done: dict[str, Any] = json.loads(self._out.readline())
        return done

    def close(self) -> None:
        self._in.close()
        self._process.wait(120)
        self._out.close()


class World:
    """One life of an agent: its store, its model and the observer of its effects."""

    def __init__(
        self,
        zygote: Zygote,
        case: str,
        script: Script,
        answers: dict[str, Any] | None = None,
        *,
        failing: dict[str, int] | None = None,
        pace_seconds: float = 0.0,
    ) -> None:
        self._zygote, self._case, self._answers = zygote, case, answers or {}
        self._folder = tempfile.TemporaryDirectory(prefix="hf-")
        never = threading.Event()
        self.model = ModelServer(script, on_piece=lambda *_: never.wait(pace_seconds))
        self.effects = EffectServer(failing)

    @property
    def folder(self) -> str:
        return self._folder.name

    def __enter__(self) -> World:
        self.model.start()
        self.effects.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.model.stop()
        self.effects.stop()
        self._folder.cleanup()

    def run(self, *, die_after: int | None = None, rests: bool = False) -> dict[str, Any] | None:
        """One process of the agent; None: it was killed. rests: it is looked at before each
        answer, when it has left memory."""
        folder = Path(self._folder.name)
        log, out = folder / "log", folder / "out"
        task = {
            "case": self._case,
            "store": str(folder / "runs.db"),
            "model_url": self.model.url,
            "effects_url": self.effects.address,
            "run": "agent",
            "answers": self._answers,
            "die_after": die_after,
            "rests": rests,
            "log": str(log),
            "out": str(out),
        }
        done = self._zygote.do(task)
        if done["killed"] and die_after is not None:
            return None
        assert done["status"] == 0, f"the agent's process failed: {done}\n{log.read_text()}"
        outcome: dict[str, Any] = json.loads(out.read_text())
        return outcome

    # What must hold

    def asked(self) -> list[str]:
        """The questions the model was asked, as far as they tell calls apart."""
        return [
            json.dumps(
                next((asked.body[key] for key in _ASKED_BY if asked.body.get(key)), None),
                sort_keys=True,
            )
            for asked in self.model.requests
        ]

    def asked_by_key(self) -> set[tuple[str, str | None]]:
        keys = (asked.idempotency_key for asked in self.model.requests)
        return set(zip(self.asked(), keys, strict=True))

    def effect_names(self) -> list[str]:
        """Each effect once: its receiver knows by the key that it has come again."""
        once = {(effect["name"], effect["key"]) for effect in self.effects.effects}
        return sorted(name for name, _ in once)


def check_every_kill(
    zygote: Zygote,
    case: str,
    script: Script,
    *,
    every: int = 1,
    answers: dict[str, Any] | None = None,
    at_once: bool = False,
    killed: Callable[[World], None] = lambda world: None,
    check: Callable[[World], None] = lambda world: None,
    pace_seconds: float = 0.0,
) -> dict[str, Any]:
    """Kills the agent after its k-th commit, for every k (or each `every`-th), and lets a fresh
    process finish: it gives the same result, the model was asked no more than once for each answer
    on record, and each effect happened once. at_once: it does several things at once, and may be
    killed while an answer is on its way, which is asked for again under the same key. killed,
    check: what else to do then, and in the end.
    pace_seconds: between two pieces of a stream."""
    with World(zygote, case, script, answers, pace_seconds=pace_seconds) as world:
        undisturbed = world.run()
        assert undisturbed is not None
        needed, effects = Counter(world.asked()), world.effect_names()
        check(world)
    for k in range(1, COMMITS_MAX, every):
        with World(zygote, case, script, answers, pace_seconds=pace_seconds) as world:
            if world.run(die_after=k) is not None:
                assert k > 1  # how many commits there are depends on what goes into one
                return undisturbed
            killed(world)
            finished = world.run()
            where = f"killed after commit {k}"
            assert finished is not None
            assert finished.get("result") == undisturbed.get("result"), (where, finished)
            asked = Counter(world.asked())
            assert asked.keys() == needed.keys(), where
            assert all(n <= needed[one] + at_once for one, n in asked.items()), where
            keys = Counter(one for one, _ in world.asked_by_key())
            assert not at_once or all(n <= needed[one] for one, n in keys.items()), where
            assert world.effect_names() == effects, where
            check(world)
    raise AssertionError(f"the agent makes more than {COMMITS_MAX} commits")
