"""What an agent, a graph or a swarm remembers, kept apart for each run.

Strands keeps the conversation in the agent itself. In a process that executes many runs they would
read one another's, and a run that is replayed would find what it said before. So inside of a run a
durable object's attributes are the run's own: they begin as they were when it was made durable,
and what is set there is seen there only. Outside of runs it is the object that it was.
"""

from __future__ import annotations

import functools
from typing import Any, TypeVar

import holdfast
from holdfast.adapters._active import OPTIONS

T = TypeVar("T")

INITIAL = "__holdfast_initial__"
_STATES = "holdfast.strands"

Attributes = dict[str, Any]


def base_of(thing: object) -> Attributes:
    """Its attributes outside of runs."""
    found: Attributes = object.__getattribute__(thing, "__dict__")
    return found


def options_of(thing: object) -> Any:
    return base_of(thing)[OPTIONS]


class Own:
    """Methods that the classes of durable objects have before those of Strands."""

    def _holdfast_begin(self, base: Attributes) -> Attributes:
        """The attributes that a run begins with, where they are not those of `base`."""
        raise NotImplementedError

    def _holdfast_begun(self) -> None:
        """They are there."""

    def __getattribute__(self, name: str) -> Any:
        if name[:2] != "__" and (own := own_of(self)) is not None and name in own:
            return own[name]
        return object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        own = None if name.startswith("__") else own_of(self)
        if own is None or hasattr(getattr(type(self), name, None), "__set__"):
            object.__setattr__(self, name, value)
        else:
            own[name] = value


def above(durable: object) -> Any:
    """What `super()` is to a durable object."""
    return super(type(durable), durable)


def own_of(thing: Own) -> Attributes | None:
    """Its attributes in this run; None outside of runs."""
    if holdfast.current_run() is None:
        return None
    states: dict[int, tuple[Own, Attributes]] = holdfast.scratch().setdefault(_STATES, {})
    found = states.get(id(thing))
    if found is None:
        found = states[id(thing)] = (thing, {})
        found[1].update(thing._holdfast_begin(base_of(thing)))
        thing._holdfast_begun()
    return found[1]


def seen_in_run() -> list[Any]:
    """The durable objects that this run has used."""
    return [thing for thing, _ in holdfast.scratch().get(_STATES, {}).values()]


@functools.cache
def _class(methods: Any, kind: Any) -> type[Any]:
    """A class with the only base `kind`: an object's class can be changed to no other."""
    found: dict[str, Any] = {"__module__": kind.__module__}
    for part in reversed(methods.__mro__[:-1]):
        found.update({name: value for name, value in vars(part).items() if callable(value)})
        found.update({name: v for name, v in vars(part).items() if isinstance(v, property)})
    return type(kind.__name__, (kind,), found)


def make_own(thing: T, methods: type[Own], options: object, initial: object) -> T:
    """Others hold on to the object (its plugins and tools, the graph it is in), so it is changed in
    place and no copy is made."""
    if OPTIONS not in base_of(thing):
        durable_class: Any = _class  # what it is given are classes, and hashable
        object.__setattr__(thing, "__class__", durable_class(methods, type(thing)))
        object.__setattr__(thing, INITIAL, initial)
    object.__setattr__(thing, OPTIONS, options)
    return thing
