"""What of a framework is used though it is not documented, or is easily changed.

All of it is looked up by name, so that `durable()` can say what is missing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from holdfast.adapters._shared import find_hooks, require_hooks


class Hooks:
    """names: "module:class.method"; `of` are names that count once their module is loaded, because
    to import it takes its time."""

    def __init__(
        self,
        distribution: str,
        tested: str,
        names: Iterable[str],
        of: tuple[str, Iterable[str]] | None = None,
    ) -> None:
        self._distribution, self.tested = distribution, tested
        self.found = find_hooks(names)
        self._module, self._later = of or ("", ())

    def check(self) -> None:
        later = find_hooks(self._later) if self._module in sys.modules else {}
        require_hooks(self._distribution, self.tested, {**self.found, **later})

    def __getitem__(self, name: str) -> Any:
        """What is called so in its module; None if there is no such thing."""
        return next(found for known, found in self.found.items() if known.endswith(f":{name}"))
