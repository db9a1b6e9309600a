"""Messages about mistakes in a pipeline file, with suggestions of similar names.

Rules: pydantic reports errors and their places; `with_expected` adds what the model expected there. Written text is
repeated only in quotes, or as the corrected list if that is asked for. Suggested names are public. This file knows
no particular key, and no text.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from stream_dp.core.wording import meant, near_names
from stream_dp.records.scalars import PATTERNS

UNKNOWN = "is not a known key"
GONE = {
    "release_every": "is gone: every series is released at every tick; leave it out"
}  # keys of former versions
_MAPPING, _LIST = "must be a mapping (key: value)", "must be a list"
_MESSAGES = {
    "missing": "is missing",
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "dict_type": _MAPPING,
    "tuple_type": _LIST,
    "string_type": "must be text",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a smaller number",
    "bool_parsing": "must be true or false",
}
_OTHER_FORM = ("model_type", "model_attributes_type", "dict_type", "tuple_type")
_SHOWN, _MOST_HOMES = 3, 2  # keys of an example, and parts that a key may belong to
_PLAIN = re.compile(r"[\w.+/%][\w .+/%-]*|-\d[\d.]*")  # text that needs no quotes within brackets

Place = Sequence[str | int]


@dataclass(frozen=True, slots=True)
class Written:
    """The content at the place of an error: its `text`, if it is a text, and its `form`: text, list or mapping. For an
    unknown key, `text` is the key and `keys` are the keys of its mapping. `listed` is the text written as a list.
    """

    text: str | None = None
    form: str = ""
    keys: Sequence[str] = ()
    listed: str | None = None


NOTHING = Written()


def explained(wrong: ValidationError, data: Any, kind: Any) -> list[ErrorDetails]:
    errors = with_expected(wrong, kind)
    tags = [error for error in errors if error["type"] == "union_tag_invalid"]
    return errors + [more for error in tags for more in _behind_tag(error, data, kind)]


def with_expected(
    wrong: ValidationError, kind: Any, at: tuple[str | int, ...] = ()
) -> list[ErrorDetails]:
    """Return the errors of validating the content `at` this place of a `kind`, with expectations in their context.

    For an unknown key, `known` has the known keys of each possible model, and `homes` the parts of the file that
    know the key. For content that is not a mapping or list, `kinds` has the types that are allowed there.
    """
    errors = []
    for error in wrong.errors(include_url=False, include_input=False):
        place = (*at, *error["loc"])
        if error["type"] == "extra_forbidden":
            error["ctx"] = {"known": known_keys(kind, place), "homes": _homes(kind, place)}
        elif error["type"] in _OTHER_FORM:
            error["ctx"] = {"kinds": tuple(_kinds_at(kind, place))}
        errors.append(error)
    return errors


def known_keys(kind: Any, place: Place) -> tuple[tuple[str, ...], ...]:
    return tuple(map(_keys, _models_at(kind, place[:-1])))


def _keys(model: type[BaseModel]) -> tuple[str, ...]:
    fields = model.model_fields.items()
    return tuple(field.alias or name for name, field in fields if not field.exclude)


def _homes(kind: Any, place: Place) -> Sequence[str]:
    """Return the parts of a file that know a key which the part at this place does not; empty if they are many."""
    if not _is_model(kind) or "source" not in _keys(kind):
        return ()  # not a whole file
    parts = {"the file itself": [kind]}
    for part in _keys(kind):
        parts[part] = _models_at(kind, (part,))
        parts[f"an entry of {part}"] = _models_at(kind, (part, 0))
    here = _models_at(kind, place[:-1])
    homes = [name for name, models in parts.items() if any(place[-1] in _keys(m) for m in models)]
    beside = [name for name, models in parts.items() if any(model in here for model in models)]
    known_beside = set(homes) & set(beside)  # a part beside this one knows the key
    return () if not beside or known_beside or len(homes) > _MOST_HOMES else homes


def _models_at(kind: Any, place: Place) -> list[type[BaseModel]]:
    return [model for model in _kinds_at(kind, place) if _is_model(model)]


def _kinds_at(kind: Any, place: Place) -> Iterator[Any]:
    """Yield the types allowed at a place of a `kind`; a union's tag in the place is skipped."""
    origin = get_origin(kind)
    if origin is Annotated or origin in (Union, UnionType):
        for part in get_args(kind)[: 1 if origin is Annotated else None]:
            yield from _kinds_at(part, place)
    elif not place:
        yield kind
    elif _is_model(kind):
        fields = {field.alias or name: field for name, field in kind.model_fields.items()}
        if place[0] in fields:
            yield from _kinds_at(fields[place[0]].annotation, place[1:])
        elif place[0] == (_tag_of(kind) or ("", ""))[1]:
            yield from _kinds_at(kind, place[1:])
    else:
        for part in get_args(kind):
            yield from _kinds_at(part, place[1:])


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _tag_of(model: type[BaseModel]) -> tuple[str, str] | None:
    """Return the tag key that identifies a model, and its value; None without a tag."""
    for name, field in model.model_fields.items():
        if get_origin(field.annotation) is Literal and get_args(field.annotation) == (
            field.default,
        ):
            return name, str(field.default)
    return None


def _behind_tag(error: ErrorDetails, data: Any, kind: Any) -> Iterator[ErrorDetails]:
    """Yield the further errors of an entry with an unknown tag. Errors that depend on the guess are left out: missing
    keys, and keys unlike any of the guessed kind's.
    """
    place, entry = error["loc"], _entry(data, error["loc"])
    near = near_names(error["ctx"]["tag"], offered_by(error))
    for model in _models_at(kind, place):
        tag = _tag_of(model)
        if tag is None or [tag[1]] != near or not isinstance(entry, Mapping):
            continue
        try:
            model.model_validate({**entry, tag[0]: tag[1]})
        except ValidationError as wrong:
            for more in with_expected(wrong, model):
                if not _depends_on_the_guess(more, entry):
                    yield {**more, "loc": (*place, *more["loc"])}


def _depends_on_the_guess(error: ErrorDetails, entry: Any) -> bool:
    if error["type"] != "extra_forbidden":
        return error["type"] == "missing"
    keys = tuple(map(str, _entry(entry, error["loc"][:-1])))
    return near_key(error, Written(str(error["loc"][-1]), keys=keys)) is None


def _entry(data: Any, place: Place) -> Any:
    """Return the content at a place; a union's tag in it is skipped."""
    for part in place:
        if isinstance(part, int) or part in data:
            data = data[part]
    return data


def as_list(text: str) -> str | None:
    """Return a text as the list that it seems to mean; None if that is not clear.

    >>> as_list("24h"), as_list("DE, FR"), as_list("amount: 3")
    ('[24h]', '[DE, FR]', None)
    """
    items = [item.strip() for item in text.strip("[]() ").split(",")]
    return f"[{', '.join(items)}]" if all(map(_PLAIN.fullmatch, items)) else None


def message(error: ErrorDetails, written: Written = NOTHING) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "union_tag_invalid":
        # only written text is in quotes
        if suggestion(error, written):
            key = str(context["discriminator"]).strip("'")
            return f"'{context['tag']}' is not a known {key}"
        return f"'{context['tag']}' is none of {', '.join(offered_by(error))}"
    if kind == "literal_error":
        *most, last = offered_by(error)
        return f"must be {', '.join(most)} or {last}" if most else f"must be {last}"
    if kind == "extra_forbidden":
        return _unknown(error, written)
    if kind == "string_pattern_mismatch" and context["pattern"] in PATTERNS:
        return PATTERNS[context["pattern"]]
    if kind == "string_type" and written.form in ("list", "mapping"):
        return f"must be one text, not a {written.form}"
    if "kinds" in context:
        return _other_form(context["kinds"], written)
    words = error["msg"].removeprefix("Value error, ").replace(" after validation", "")
    for subject in ("Input", "String", "Value", "Tuple", "Dictionary"):
        words = words.replace(f"{subject} should", "must")
    return _MESSAGES.get(kind, words)


def _unknown(error: ErrorDetails, written: Written) -> str:
    if (gone := GONE.get(str(error["loc"][-1]))) is not None:
        return gone
    known, homes = _known(error, written), error.get("ctx", {}).get("homes")
    if homes:
        return f"is not a key here; it belongs to {' or to '.join(homes)}"
    if not known or near_key(error, written):
        return UNKNOWN
    return f"{UNKNOWN}; known are {', '.join(known)}"


def suggestion(error: ErrorDetails, written: Written) -> str:
    """Return a question that suggests a similar name; empty if none is similar."""
    if error["type"] == "extra_forbidden":
        key = near_key(error, written)
        return f"; did you mean {key}?" if key else ""
    return meant(written.text, offered_by(error))


def near_key(error: ErrorDetails, written: Written) -> str | None:
    if error.get("ctx", {}).get("homes"):
        return None
    free = [key for key in _known(error, written) if key not in written.keys]
    return next(iter(near_names(written.text, free)), None)


def offered_by(error: ErrorDetails) -> Sequence[str]:
    context = error.get("ctx", {})
    listed = context.get("expected_tags") or context.get("expected") or ""
    if error["type"] in ("union_tag_invalid", "literal_error"):
        return [text.strip("'") for text in listed.replace(" or ", ", ").split(", ")]
    names: Sequence[str] = context.get("names", ())
    return names


def _known(error: ErrorDetails, written: Written) -> Sequence[str]:
    """Return the known keys; of several possible models, those of the one that knows most of the other keys."""
    models: Sequence[Sequence[str]] = error.get("ctx", {}).get("known", ())
    return max(models, key=lambda keys: len({*keys} & {*written.keys}), default=())


def _other_form(kinds: Sequence[Any], written: Written) -> str:
    lists = [get_args(kind) for kind in kinds if get_origin(kind) is tuple]
    models = [kind for kind in kinds if _is_model(kind)]
    if lists:
        return f"{_LIST}{_listed(lists[0], written)}"
    if not models:
        named = ", with the name of each entry as its key" if written.form == "list" else ""
        return f"{_MAPPING}{named}"
    tags = {tag[1]: tag[0] for model in models if (tag := _tag_of(model)) is not None}
    near = next(iter(near_names(written.text, tags)), None)
    if near is not None:
        return f"{_MAPPING}: write {{{tags[near]}: {near}}}"
    return f"{_MAPPING}, such as {_example(models[0])}"


def _listed(items: Sequence[Any], written: Written) -> str:
    if models := _models_at(items[0], ()):
        return f" with a dash before each entry: - {_example(models[0])}"
    if len(items) == 2 and items[1] is not Ellipsis:
        return " of two, from and to, such as [0, 100]"
    if written.listed is not None:
        return f": write {written.listed}"
    return ", in brackets or with a dash before each entry"


def _example(model: type[BaseModel]) -> str:
    tag, fields = _tag_of(model), model.model_fields.items()
    keys = [field.alias or name for name, field in fields if field.is_required()]
    extra: Any = model.model_config.get("json_schema_extra") or {}
    more = [name for name, _ in fields if name not in keys]
    least = extra.get("then", extra).get("minProperties", 0)
    keys += more[: max(least - len(keys), 0)]
    shown = [*([f"{tag[0]}: {tag[1]}"] if tag else []), *(f"{key}: ..." for key in keys)]
    return "{" + ", ".join(shown[:_SHOWN] or ["..."]) + "}"
