"""Pydantic models and types, handled without importing pydantic.

A model is rebuilt by validation, so that its private attributes and validators are set up as ever.
While the class has the fields it was recorded with, the recorded values then take the place of
what validation made of them: a validator that is not idempotent must not run twice on a value, and
a model built by `model_construct` (API clients do that) need not validate at all. If the fields
have changed, validation alone decides. Not guaranteed: private attributes keep no values.
"""

from __future__ import annotations

import sys
from typing import Any

from holdfast.codec.classes import Plan


def model_parts(value: Any, plan: Plan) -> tuple[dict[str, Any], dict[str, Any], set[str]]:
    """The fields' values, the extra ones, and the names of those that were given."""
    attributes = value.__dict__
    fields = {name: attributes[name] for name in plan.fields if name in attributes}
    return fields, value.__pydantic_extra__ or {}, value.__pydantic_fields_set__


def rebuild_model(
    plan: Plan, fingerprint: object, fields: dict[str, Any], extra: dict[str, Any], given: set[str]
) -> Any:
    if fingerprint != plan.fingerprint:
        return _validate(plan, {**fields, **extra})
    try:
        model = _validate(plan, {**fields, **extra})
        if type(model) is not plan.cls:
            raise TypeError(f"validation made a {type(model).__qualname__}")
    except Exception:
        model = plan.cls.model_construct(given, **fields)  # type: ignore[attr-defined]
    model.__dict__.update(fields)
    object.__setattr__(model, "__pydantic_fields_set__", given)
    if extra:
        object.__setattr__(model, "__pydantic_extra__", extra)
    return model


def _validate(plan: Plan, values: dict[str, Any]) -> Any:
    cls: Any = plan.cls
    if getattr(cls, "__pydantic_root_model__", False):
        return cls.model_validate(values["root"])
    try:
        return cls.model_validate(values, by_name=True, by_alias=False)
    except TypeError:  # pydantic before 2.11 knows fields by their aliases only
        aliases = {name: info.validation_alias for name, info in plan.fields.items()}
        named = {
            alias if isinstance(alias := aliases.get(name), str) else name: item
            for name, item in values.items()
        }
        return cls.model_validate(named)


def _adapter(plan: Plan) -> Any:
    if plan.adapter is None:
        # The class has a hook for pydantic, so somebody has loaded pydantic or nobody can.
        plan.adapter = sys.modules["pydantic"].TypeAdapter(plan.cls)
    return plan.adapter


def pack_core(value: object, plan: Plan) -> object:
    """Plain data for a type that pydantic knows how to write, such as a URL."""
    plain = _adapter(plan).dump_python(value, mode="json")
    if _adapter(plan).validate_python(plain) != value:
        raise ValueError("it would not come back the same")  # a SecretStr, for one
    return plain


def unpack_core(plain: object, plan: Plan) -> object:
    return _adapter(plan).validate_python(plain)
