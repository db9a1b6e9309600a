"""What the models expect at a place of the file, so that a refusal can name it: keys, forms, and where a key belongs.

Rules: places are followed down the models; a union's tag in a place is no key. Nothing that was written is repeated.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

Place = Sequence[str | int]
_UNIONS = (Union, UnionType)
_OTHER_FORM = ("model_type", "model_attributes_type", "dict_type", "tuple_type")
_MOST_HOMES = 2


def with_expected(
    errors: Sequence[ErrorDetails], kind: Any, at: tuple[str | int, ...] = ()
) -> list[ErrorDetails]:
    """Return the errors of validating what stands `at` this place of a `kind`, with what is expected in their context.

    A key that is not known has those that are, under `known` for each model that may stand there, and under `homes` the
    parts of the file that know it. What is no mapping, or no list, has under `kinds` what may stand there.
    """
    return [
        {**error, "ctx": found} if (found := _of(error, kind, at)) else error for error in errors
    ]


def _of(error: ErrorDetails, kind: Any, at: tuple[str | int, ...]) -> dict[str, Any]:
    place = (*at, *error["loc"])
    if error["type"] == "extra_forbidden":
        return {"known": known_keys(kind, place), "homes": _homes(kind, place)}
    if error["type"] in _OTHER_FORM:
        return {"kinds": tuple(kinds_at(kind, place))}
    return {}


def known_keys(kind: Any, place: Place) -> tuple[tuple[str, ...], ...]:
    """Return the keys that may stand beside the one at this place of a `kind`, of each model that may stand there."""
    return tuple(map(_keys, filter(is_model, kinds_at(kind, place[:-1]))))


def kinds_at(kind: Any, place: Place) -> Iterator[Any]:
    """Return the types that may stand at a place of a `kind`."""
    origin = get_origin(kind)
    if origin is Annotated or origin in _UNIONS:
        for part in get_args(kind)[: 1 if origin is Annotated else None]:
            yield from kinds_at(part, place)
    elif not place:
        yield kind
    elif is_model(kind):
        yield from _within(kind, place)
    else:
        for part in get_args(kind):
            yield from kinds_at(part, place[1:])


def is_model(kind: Any) -> bool:
    """Say whether what stands there is a mapping with keys of its own."""
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def tag_of(model: type[BaseModel]) -> tuple[str, str] | None:
    """Return the key that tells a model from others, and what stands behind it; None: it has none."""
    for name, field in model.model_fields.items():
        if get_origin(field.annotation) is Literal and get_args(field.annotation) == (
            field.default,
        ):
            return name, str(field.default)
    return None


def _within(model: type[BaseModel], place: Place) -> Iterator[Any]:
    first, *rest = place
    fields: Mapping[str, Any] = {
        field.alias or name: field.annotation for name, field in model.model_fields.items()
    }
    if first in fields:
        yield from kinds_at(fields[str(first)], rest)
    elif first in _tags(fields.values()):
        yield from kinds_at(model, rest)


def _tags(kinds: Any) -> Iterator[Any]:
    return (tag for kind in kinds if get_origin(kind) is Literal for tag in get_args(kind))


def _keys(model: type[BaseModel]) -> tuple[str, ...]:
    fields = model.model_fields.items()
    return tuple(field.alias or name for name, field in fields if not field.exclude)


def _homes(kind: Any, place: Place) -> tuple[str, ...]:
    """The parts of a whole file that know a key which this part does not; none where they are many."""
    parts, key = _parts(kind), place[-1]
    here = {model for model in kinds_at(kind, place[:-1]) if is_model(model)}
    if not any(here & models for models in parts.values()):
        return ()
    knowing = {
        name: {model for model in models if key in _keys(model)} for name, models in parts.items()
    }
    if any(here & models and knowing[name] for name, models in parts.items()):
        return ()  # another of its kind takes it
    found = tuple(name for name, models in knowing.items() if models)
    return found if len(found) <= _MOST_HOMES else ()


def _parts(kind: Any) -> dict[str, set[Any]]:
    """The models of a whole file's parts, by how a part is called; nothing of what is no whole file."""
    if not is_model(kind) or "source" not in _keys(kind):
        return {}
    found = {"the file itself": {kind}}
    for part in _keys(kind):
        for inner, name in (((), part), ((0,), f"an entry of {part}")):
            found[name] = {model for model in kinds_at(kind, (part, *inner)) if is_model(model)}
    return found
