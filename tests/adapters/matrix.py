"""Which test shows what of which framework; made into the table in docs/adapters.md.

    python -m tests.adapters.matrix            # is the table what the tests have shown?
    python -m tests.adapters.matrix --write    # writes it

`make test-frameworks` notes in build/ which tests have passed. A test that matrix.toml names and
that did not pass, or is not there any more, is an error.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs" / "adapters.md"
BEGIN = "<!-- made by `make matrix` from the tests that have passed -->"
END = "<!-- end -->"
ENVIRONMENTS = ("one", "two")

SHOWN: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text("utf-8")
)
"""By framework and capability: a test, or in words why there is none."""


def table(passed: set[str]) -> str:
    """The matrix as Markdown; capabilities are its rows, since there are more of them."""
    names = list(SHOWN)
    lines = [f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    lines.append(f"| version | {' | '.join(_version(name) for name in names)} |")
    for capability in [name for name in SHOWN[names[0]] if name != "distribution"]:
        cells = [_cell(name, SHOWN[name][capability], passed) for name in names]
        lines.append(f"| {capability} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(name: str, said: str, passed: set[str]) -> str:
    if "::" not in said:
        return said
    if said not in passed:
        sys.exit(
            f"{name}: test_{said} has not passed: run `make test-frameworks`, or mend the list"
        )
    return "✓"


def _version(name: str) -> str:
    pins = "\n".join(
        (ROOT / "frameworks" / f"{which}.constraints.txt").read_text() for which in ENVIRONMENTS
    )
    found = re.search(rf"^{re.escape(SHOWN[name]['distribution'])}==(\S+)", pins, re.M)
    assert found is not None, name
    return found[1]


def note(environment: str, outcomes: dict[str, bool]) -> None:
    """Called by pytest when it has run tests of an environment: all of them, or a few again."""
    path = _noted(environment)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**_outcomes(environment), **outcomes}, indent=1))


def _outcomes(environment: str) -> dict[str, bool]:
    path = _noted(environment)
    found: dict[str, bool] = json.loads(path.read_text()) if path.exists() else {}
    return found


def _noted(environment: str) -> Path:
    return ROOT / "build" / f"adapters-{environment}.json"


def main() -> None:
    noted = [_outcomes(environment) for environment in ENVIRONMENTS]
    passed = {test for outcomes in noted for test, has_passed in outcomes.items() if has_passed}
    text = DOCS.read_text()
    before, _, rest = text.partition(BEGIN)
    wanted = f"{before}{BEGIN}\n\n{table(passed)}\n\n{END}{rest.partition(END)[2]}"
    if "--write" in sys.argv:
        DOCS.write_text(wanted)
    elif wanted != text:
        sys.exit(f"{DOCS.name} does not say what the tests have shown: `make matrix` writes it")


if __name__ == "__main__":
    main()
