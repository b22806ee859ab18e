"""What our dataclasses have in common: how they are shown and compared.

`dataclass` compiles these methods anew for each class, which takes half a millisecond of every
recovery: so they are written here, once, and our dataclasses have `eq=False, repr=False`.
"""

from __future__ import annotations

from typing import Any, ClassVar


class Record:
    """Shows all fields, and is equal to another of its class whose fields are."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__dataclass_fields__)

    def __repr__(self) -> str:
        fields = zip(self.__dataclass_fields__, self._values(), strict=True)
        return f"{type(self).__qualname__}({', '.join(f'{k}={v!r}' for k, v in fields)})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()


class FrozenRecord(Record):
    """A record that never changes, so that it has a hash."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(self._values())
