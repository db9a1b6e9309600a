"""What is wrong, in the words of the house, for each kind of error that the models find; and what may be meant.

Rules: of what was written nothing is repeated but in quotes, and a list as it would be right, where that is asked for.
This file knows no particular key and no place.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic_core import ErrorDetails

from stream_dp.core.near_names import meant, near_names
from stream_dp.pipeline.file.expected import is_model, kinds_at, tag_of
from stream_dp.records.scalars import PATTERNS

UNKNOWN = "is not a known key"
GONE = {"release_every": "is gone: every series is released at every tick; leave it out"}
"""Keys that files of former versions had."""
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
_SHOWN = 3  # keys of an example
_PLAIN = re.compile(r"[\w.+/%][\w .+/%-]*|-\d[\d.]*")  # what needs no quotes within brackets


@dataclass(frozen=True, slots=True)
class Written:
    """What stands at the place of an error: its `text`, if it is one, and its `form`: text, list or mapping.

    Of a key that is not known the text is the key, and `keys` are those of its mapping. `listed` is the text as a list.
    """

    text: str | None = None
    form: str = ""
    keys: Sequence[str] = ()
    listed: str | None = None


NOTHING = Written()


def as_list(text: str) -> str | None:
    """Return a text as the list that it seems to be meant as; None where that is not plain.

    >>> as_list("24h"), as_list("DE, FR"), as_list("amount: 3")
    ('[24h]', '[DE, FR]', None)
    """
    items = [item.strip() for item in text.strip("[]() ").split(",")]
    return f"[{', '.join(items)}]" if all(map(_PLAIN.fullmatch, items)) else None


def message(error: ErrorDetails, written: Written = NOTHING) -> str:
    """Return what is wrong."""
    kind, context = error["type"], error.get("ctx", {})
    if kind == "union_tag_invalid":
        # only what was written stands in quotes
        if suggestion(error, written):
            return f"'{context['tag']}' is not a known {_key_of(context)}"
        return f"'{context['tag']}' is none of {', '.join(offered_by(error))}"
    if kind == "literal_error":
        return f"must be {_either(offered_by(error))}"
    if kind == "extra_forbidden":
        return _unknown(error, written)
    if kind == "string_pattern_mismatch" and context["pattern"] in PATTERNS:
        return PATTERNS[context["pattern"]]
    if kind == "string_type" and written.form in ("list", "mapping"):
        return f"must be one text, not a {written.form}"
    if "kinds" in context:
        return _other_form(context["kinds"], written)
    said = error["msg"].removeprefix("Value error, ").replace(" after validation", "")
    for subject in ("Input", "String", "Value", "Tuple", "Dictionary"):
        said = said.replace(f"{subject} should", "must")
    return _MESSAGES.get(kind, said)


def suggestion(error: ErrorDetails, written: Written) -> str:
    """Return the question which of the names that there are is meant; nothing where none is near."""
    if error["type"] == "extra_forbidden":
        key = near_key(error, written)
        return f"; did you mean {key}?" if key else ""
    return meant(written.text, offered_by(error))


def near_key(error: ErrorDetails, written: Written) -> str | None:
    """Return the key, of those that are not there yet, which an unknown one is meant to be."""
    if error.get("ctx", {}).get("homes"):
        return None
    known = _known(error, written)
    return next(
        iter(near_names(written.text, [key for key in known if key not in written.keys])), None
    )


def offered_by(error: ErrorDetails) -> Sequence[str]:
    """Return the names of which one was asked for, where that is known."""
    context = error.get("ctx", {})
    if error["type"] == "union_tag_invalid":
        return _unquoted(context["expected_tags"].split(", "))
    if error["type"] == "literal_error":
        return _unquoted(context["expected"].replace(" or ", ", ").split(", "))
    names: Sequence[str] = context.get("names", ())
    return names


def _key_of(context: Mapping[str, Any]) -> str:
    """The key that tells which of several a mapping is."""
    return str(context["discriminator"]).strip("'")


def _unquoted(texts: Iterable[str]) -> list[str]:
    return [text.strip("'") for text in texts]


def _either(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last


def _unknown(error: ErrorDetails, written: Written) -> str:
    if (gone := GONE.get(str(error["loc"][-1]))) is not None:
        return gone
    known, homes = _known(error, written), error.get("ctx", {}).get("homes", ())
    if homes:
        return f"is no key here; it belongs to {' or to '.join(homes)}"
    if not known or near_key(error, written):
        return UNKNOWN
    return f"{UNKNOWN}; known are {', '.join(known)}"


def _known(error: ErrorDetails, written: Written) -> Sequence[str]:
    """The keys that there are; where several models may stand there, those of the one that knows most of the others."""
    models: Sequence[Sequence[str]] = error.get("ctx", {}).get("known", ())
    return max(models, key=lambda keys: len({*keys} & {*written.keys}), default=())


def _other_form(kinds: Sequence[Any], written: Written) -> str:
    """What must stand there in place of a text, a list or a mapping."""
    lists = [get_args(kind) for kind in kinds if get_origin(kind) is tuple]
    models = [kind for kind in kinds if is_model(kind)]
    if lists:
        return f"{_LIST}{_listed(lists[0], written)}"
    if not models:
        return (
            f"{_MAPPING}, with the name of each entry as its key"
            if written.form == "list"
            else _MAPPING
        )
    tags = {tag[1]: tag[0] for model in models if (tag := tag_of(model)) is not None}
    said = next(iter(near_names(written.text, tags)), None)
    return (
        f"{_MAPPING}: write {{{tags[said]}: {said}}}"
        if said
        else f"{_MAPPING}, such as {_example(models)}"
    )


def _listed(items: Sequence[Any], written: Written) -> str:
    """How a list of these items is written, behind the words that it must be one."""
    if models := [kind for kind in kinds_at(items[0], ()) if is_model(kind)]:
        return f" with a dash before each entry: - {_example(models)}"
    if len(items) == 2 and items[1] is not Ellipsis:
        return " of two, from and to, such as [0, 100]"
    if written.listed is not None:
        return f": write {written.listed}"
    return ", in brackets or with a dash before each entry"


def _example(models: Sequence[type[Any]]) -> str:
    """A mapping that one of these models reads, as far as its first keys go."""
    model = models[0]
    tag = tag_of(model)
    fields = model.model_fields.items()
    needed = [field.alias or name for name, field in fields if field.is_required()]
    extra: Any = model.model_config.get("json_schema_extra") or {}
    more = [name for name, _ in fields if name not in needed]
    needed += more[: max(extra.get("minProperties", 0) - len(needed), 0)]
    shown = [*([f"{tag[0]}: {tag[1]}"] if tag else []), *(f"{key}: ..." for key in needed)]
    return "{" + ", ".join(shown[:_SHOWN] or ["..."]) + "}"
