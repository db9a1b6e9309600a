"""The keys that there are where a key is not known, so that the refusal can name them.

Rules: they are those of the models, followed down the place of an error; a union's tag in the place is no key. Nothing
that was written is repeated.
"""

from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

_TRANSPARENT = (Union, UnionType, Annotated)


def with_known_keys(
    errors: Sequence[ErrorDetails], kind: Any, at: tuple[str | int, ...] = ()
) -> list[ErrorDetails]:
    """Return the errors of validating what stands `at` this place of a `kind`; a key that is not known comes with those
    that are.
    """
    return [
        {**error, "ctx": {"known": known_keys(kind, (*at, *error["loc"]))}}
        if error["type"] == "extra_forbidden"
        else error
        for error in errors
    ]


def known_keys(kind: Any, place: Sequence[str | int]) -> tuple[str, ...]:
    """Return the keys that stand beside the one at this place of a `kind`; none where that is no model's."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return _of_model(kind, place)
    parts = get_args(kind)[:1] if get_origin(kind) is Annotated else get_args(kind)
    inner = place if get_origin(kind) in _TRANSPARENT else place[1:]
    found = (known_keys(part, inner) for part in parts if inner)
    return next(filter(None, found), ())


def _of_model(model: type[BaseModel], place: Sequence[str | int]) -> tuple[str, ...]:
    fields: Mapping[str, Any] = {
        field.alias or name: field.annotation for name, field in model.model_fields.items()
    }
    first, *rest = place
    if not rest:
        dumped = model.model_fields.values()
        return tuple(name for name, field in zip(fields, dumped, strict=True) if not field.exclude)
    if first in fields:
        return known_keys(fields[str(first)], rest)
    tags = (
        tag for kind in fields.values() if get_origin(kind) is Literal for tag in get_args(kind)
    )
    return _of_model(model, rest) if first in tags else ()
