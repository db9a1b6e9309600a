"""A pipeline's promise in words, for `plan`, API, page, `ledger` and `audit`.

Rules: everything here is declared and public. The promise is that of the whole budget, so it holds for everything
asked later; a factor is rounded up, never down. The text never speaks of a person if the promise is for an event,
or for a person's window.
"""

from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Any

from stream_dp.accounting.amounts import text
from stream_dp.core.how_many import how_many
from stream_dp.core.neighbors import Neighbors
from stream_dp.pipeline.file.spec import PipelineSpec
from stream_dp.records.groupings import (
    By,
    grouping_fields,
    grouping_text,
    most_ones,
    number_of_keys,
)
from stream_dp.records.scalars import duration_text
from stream_dp.records.schema import ListField

TELLING = 100
"""From this factor on, the text no longer says that nothing can be told."""
ANY_ROW = "any row in its tick for any other: ~_H of [HSV]"
_WINDOWS = {60_000: "minute", 3_600_000: "hour", 86_400_000: "day", 604_800_000: "week"}
_EXACT, _SHOWN = (Context(prec=digits, rounding=ROUND_CEILING) for digits in (40, 3))


def plain_promise(spec: PipelineSpec) -> str:
    """Return who is protected and what that means, in one line without a symbol."""
    thing, them, other = _protected(spec)
    factor, privacy = times(spec.privacy.epsilon), spec.privacy
    change = (
        f"with or without {them}"
        if spec.relation is Neighbors.ADD_REMOVE
        else f"with {them} or with {other}"
    )
    slack = f", apart from a probability of {text(privacy.delta)}" if privacy.delta else ""
    says = (
        f"no single {thing} can be told from what is published"
        if factor < TELLING
        else f"one {thing} may show in what is published"
    )
    moved = ", at any time," if spec.relation is Neighbors.REPLACE_ANY_TICK else ""
    vouched = f", if {spec.condition}" if spec.condition else ""
    bound = f"{change}{moved} every outcome is at most {factor:,f} times as likely{slack}{vouched}."
    return f"{spec.name} protects {unit_name(spec)}: {says}: {bound}"


def times(epsilon: Fraction) -> Decimal:
    """Return e to the power of `epsilon` in three digits, rounded up.

    >>> times(Fraction(2)), times(Fraction(1, 100)), times(Fraction(10))
    (Decimal('7.39'), Decimal('1.02'), Decimal('2.21E+4'))
    """
    power = _EXACT.divide(Decimal(epsilon.numerator), Decimal(epsilon.denominator))
    factor = _EXACT.next_plus(power.exp(_EXACT))  # exp rounds to the nearest
    return _SHOWN.plus(factor)


def _protected(spec: PipelineSpec) -> tuple[str, str, str]:
    privacy = spec.privacy
    if privacy.unit == "event":
        return "event", "it", "another in its place"
    window = f" of one {_window(privacy.per)}" if privacy.per else ""
    return f"{privacy.user}'s events{window}", "them", "others in their place"


def unit_name(spec: PipelineSpec) -> str:
    """Return the unit in short: `one event`, `(user, day)`, or `user, for ever`."""
    privacy = spec.privacy
    if privacy.unit == "event":
        return "one event"
    if privacy.per is None:
        return "user, for ever"
    return f"(user, {_WINDOWS.get(privacy.per) or duration_text(privacy.per)})"


def unit_words(spec: PipelineSpec) -> str:
    """Return the unit in words: whose events together, and how many of them count."""
    privacy, name = spec.privacy, unit_name(spec)
    if privacy.unit == "event":
        return name
    where = "for ever" if privacy.per is None else f"within one {_window(privacy.per)}"
    many = f"{privacy.cap} {'counts' if privacy.cap == 1 else 'count'}"
    return f"{name}: all events of one {privacy.user} {where} together, of which at most {many}"


def unit_json(spec: PipelineSpec) -> dict[str, Any]:
    """Return the unit for API and `--json`: `unit`, and for a user `users` with field, number and window."""
    privacy = spec.privacy
    if privacy.unit == "event":
        return {"unit": privacy.unit}
    per = None if privacy.per is None else duration_text(privacy.per)
    users = {
        "name": unit_name(spec), "field": privacy.user, "max_events": privacy.cap, "per": per,
    }  # fmt: skip
    return {"unit": privacy.unit, "users": users}


def _window(milliseconds: int) -> str:
    """Return the name of a public window of this length: `day`, or `window of 36h`."""
    return _WINDOWS.get(milliseconds) or f"window of {duration_text(milliseconds)}"


def lists_json(spec: PipelineSpec) -> dict[str, list[dict[str, Any]]]:
    """Return the lists by which the file's series group, under `lists`; empty if there are none.

    Each has its `field` (in words, if a series groups by more than the list), the number of `entries` of its rows,
    and the `most` entries that one event sets.
    """
    named = dict.fromkeys(series.grouped_by for series in spec.series)
    found = [
        {
            "field": grouping_text(by),
            "entries": number_of_keys(spec.fields, by),
            "most": most_ones(spec.fields, by),
        }
        for by in named
        if by is not None and _has_a_list(spec, by)
    ]
    return {"lists": found} if found else {}


def _has_a_list(spec: PipelineSpec, by: By) -> bool:
    return any(isinstance(spec.fields[name], ListField) for name in grouping_fields(by))


def lists_words(spec: PipelineSpec) -> str:
    """Return how many entries one event sets, as a part of a sentence; empty if no series groups by a list."""
    said = []
    for each in lists_json(spec).get("lists", []):
        entries, most = each["entries"], each["most"]
        whole = spec.relation is Neighbors.REPLACE and most == entries
        many = f"up to {most} of the {how_many(entries, 'entry', 'entries')} of {each['field']}"
        said.append(f"{many} ({ANY_ROW})" if whole else many)
    return f"an event sets {' and '.join(said)}" if said else ""
