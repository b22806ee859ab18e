"""What a workflow's function takes and returns."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

from holdfast import codec
from holdfast.errors import BadArguments, BadValue, HoldfastError


class Signature:
    """What a workflow's function takes and returns, found out at first use: annotations may name
    later classes."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn = fn
        self.checked = False

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self._fn)

    @functools.cached_property
    def hints(self) -> tuple[dict[str, Any], Any]:
        return codec.hints(self._fn)

    @functools.cached_property
    def expected(self) -> list[tuple[str, Any]]:
        """Parameters with an annotation that a value can be checked against."""
        named = [
            name
            for name, parameter in self.signature.parameters.items()
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ]
        hints = self.hints[0]
        return [(name, hints[name]) for name in named if name in hints]

    @functools.cached_property
    def defaults(self) -> dict[str, str]:
        """As they would be sent; those that cannot be are left out."""
        found = {}
        for name, parameter in self.signature.parameters.items():
            try:
                sent = codec.encode({name: parameter.default}, annotation=self.table, what=name)
            except HoldfastError:
                continue
            found[name] = json.dumps(json.loads(sent)[name])
        return found

    @functools.cached_property
    def table(self) -> Any:
        """One annotation that reaches every class the parameters name."""
        annotations = tuple(self.hints[0].values())
        return tuple.__class_getitem__(annotations) if annotations else None

    def fitted(self, given: Mapping[str, Any], what: str) -> dict[str, Any] | None:
        """The arguments with plain data converted; None: all are what they should be."""
        changed: dict[str, Any] = {}
        for name, annotation in self.expected:
            value = given.get(name)
            if name not in given or type(value) is annotation:
                continue
            try:
                fitted = codec.fitted(value, annotation, what=f"{what}: {name}")
            except BadValue as error:
                raise BadArguments(str(error)) from error.__cause__
            if fitted is not value:
                changed[name] = fitted
        return {**given, **changed} if changed else None
