"""What else is wrong with an entry whose kind is misspelled: its other keys, read as those of the kind that is meant.

Rules: what depends on the guess is not told: what is missing, and keys that are like none of that kind's. Nothing that
was written is repeated.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from stream_dp.core.near_names import near_names
from stream_dp.pipeline.file.error_words import Written, near_key, offered_by
from stream_dp.pipeline.file.expected import is_model, kinds_at, tag_of, with_expected


def behind_misspelled(errors: Sequence[ErrorDetails], data: Any, kind: Any) -> list[ErrorDetails]:
    """Return the further errors of validating `data` as a `kind`, each behind an unknown tag among the `errors`."""
    return [
        found
        for error in errors
        if error["type"] == "union_tag_invalid"
        for found in _behind(error, data, kind)
    ]


def _behind(error: ErrorDetails, data: Any, kind: Any) -> Iterator[ErrorDetails]:
    place, entry = error["loc"], _entry(data, error["loc"])
    near = near_names(error["ctx"]["tag"], offered_by(error))
    models = [each for each in kinds_at(kind, place) if is_model(each)]
    for model in models:
        tag = tag_of(model)
        if isinstance(entry, Mapping) and tag is not None and [tag[1]] == near:
            try:
                model.model_validate({**entry, tag[0]: tag[1]})
            except ValidationError as wrong:
                told = wrong.errors(include_url=False, include_input=False)
                for each in with_expected(told, model):
                    if not _depends_on_the_guess(each, entry):
                        yield {**each, "loc": (*place, *each["loc"])}


def _depends_on_the_guess(error: ErrorDetails, entry: Any) -> bool:
    """Whether it is wrong of the guessed kind alone, perhaps: a key that is missing, or like none of its keys."""
    if error["type"] != "extra_forbidden":
        return error["type"] == "missing"
    beside = _entry(entry, error["loc"][:-1])
    written = Written(str(error["loc"][-1]), keys=tuple(map(str, beside)))
    return near_key(error, written) is None


def _entry(data: Any, place: Sequence[str | int]) -> Any:
    """What stands at a place; a union's tag in it is no key."""
    for part in place:
        if isinstance(part, int) or part in data:
            data = data[part]
    return data
