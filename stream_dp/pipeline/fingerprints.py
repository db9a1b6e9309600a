"""Fingerprints of all that touches data or guarantee in a pipeline file: of the whole, and of each part.

Rules: the fingerprint covers everything that touches data or guarantee and nothing else. A key added in a later
version is left out at its default, which has the meaning of files without the key. This file opens no file.
"""

import hashlib
import json
from fractions import Fraction
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from stream_dp.core.neighbors import Neighbors
from stream_dp.pipeline.spec import PipelineSpec, zone_offsets, zones_in
from stream_dp.records.conditions import Condition, typed
from stream_dp.records.endpoints import ReplayClock
from stream_dp.records.privacy import GONE_FILTER, OF_USERS, Privacy
from stream_dp.records.schema import TimeField, offsets
from stream_dp.statistics.parts.series_spec import SeriesSpec

# keys of `privacy` newer than the first journals: their defaults have the meaning of files without them
_LATER = (
    *("delta", "first_block_delta", "own_delta", "filter", "order", "analysts"),
    *OF_USERS,
)
FORMER_ORDER = Fraction(8)
"""The order of a renyi filter without one, before there was a best one: what a fingerprint without an order means."""

_UNMEANT: dict[str, Any] = dict.fromkeys(
    ("version", "source", "journal", "releases", "queries"), True
)


class Fingerprints(NamedTuple):
    whole: str
    parts: dict[str, str]


def fingerprint(spec: PipelineSpec) -> str:
    """Return SHA-256 over the meaning of everything that touches data or guarantee. Addresses, paths and the order of
    schema keys do not count; `0.2` and `1/5` are the same.
    """
    return fingerprints(spec).whole


def fingerprints(spec: PipelineSpec) -> Fingerprints:
    texts = {part: _canonical(what) for part, what in sorted(meaning(spec).items())}
    whole = ",".join(f"{json.dumps(part)}:{text}" for part, text in texts.items())
    return Fingerprints(
        _digest(f"{{{whole}}}"), {part: _digest(text)[:12] for part, text in texts.items()}
    )


def under_gone_filter(spec: PipelineSpec) -> str:
    """Return the fingerprint that the part `privacy` would have under the filter `GONE_FILTER`."""
    return _digest(_canonical(meaning(spec)["privacy"] | {"filter": GONE_FILTER}))[:12]


def under_former_order(spec: PipelineSpec) -> str:
    """Return the fingerprint that the part `privacy` would have with `order: 8`."""
    privacy = meaning(spec)["privacy"]
    privacy.pop("order", None)
    return _digest(_canonical(privacy))[:12]


def under_former_series(spec: PipelineSpec) -> str:
    """Return the fingerprint that the part `series` would have if each series had its `former_keys`."""
    series = tuple(own.model_copy(update=dict(own.former_keys)) for own in spec.series)
    return _digest(_canonical(meaning(spec.model_copy(update={"series": series}))["series"]))[:12]


def meaning(spec: PipelineSpec) -> dict[str, Any]:
    conditions = [
        series.conditions_as(lambda condition: _meaning(spec, condition)) for series in spec.series
    ]
    parts = spec.model_dump(
        mode="json",
        exclude=_UNMEANT | {"series": {at: set(own) for at, own in enumerate(conditions)}},
        by_alias=True,
    )
    for later in _LATER:
        default = Privacy.model_fields[later].default
        former = FORMER_ORDER if later == "order" else default
        if getattr(spec.privacy, later) in (default, former):
            del parts["privacy"][later]
    for analyst, written in zip(
        spec.privacy.analysts, parts["privacy"].get("analysts", ()), strict=False
    ):
        where = written.pop("where")
        if where:
            written["where"] = sorted(_meaning(spec, condition) for condition in analyst.where)
    parts["privacy"].pop("expect", None)  # guesses mean nothing
    if spec.relation is not Neighbors.REPLACE_ANY_TICK:
        del parts["privacy"]["moves"]  # without the key, an event is always in one tick
    _declared_only(spec, parts["schema"])
    parts["series"] = [
        _of_series(series, dumped) | meant
        for series, dumped, meant in zip(spec.series, parts["series"], conditions, strict=True)
    ]
    if zones := zones_in(spec.series):
        parts["zones"] = zone_offsets(zones, spec.clock)
    if spec.in_order:
        parts["releases"] = {"values": "array"}
    if counting := spec.source.counting:
        parts["source"] = counting
    return parts


def _of_series(series: SeriesSpec, dumped: dict[str, Any]) -> dict[str, Any]:
    left_out = {*series.left_out, *series.unmeant, *series.words}
    return series.as_fingerprinted({key: of for key, of in dumped.items() if key not in left_out})


def _declared_only(spec: PipelineSpec, schema: dict[str, Any]) -> None:
    """Leave out what is not declared: paths, tables, formulas, zones; the clock's field counts its offsets."""
    for name, field in spec.fields.items():
        for key in ("path", "map", "from", "decimal"):
            if schema[name].get(key) in (None, "."):
                schema[name].pop(key, None)
        if not isinstance(field, TimeField):
            continue
        if field.zone is None:
            del schema[name]["zone"]
        elif isinstance(spec.clock, ReplayClock) and spec.clock.field == name:
            schema[name]["offsets"] = offsets(ZoneInfo(field.zone), spec.clock.grid)


def _canonical(what: Any) -> str:
    return json.dumps(what, sort_keys=True, separators=(",", ":"))


def _digest(text: str) -> str:
    return hashlib.sha256(b"stream_dp pipeline 1\n" + text.encode()).hexdigest()


def _meaning(spec: PipelineSpec, condition: Condition) -> list[Any]:
    if condition.field is None:
        return [condition.combines, [_meaning(spec, part) for _, part in condition.parts]]
    field, operator = spec.fields[condition.field], condition.operator
    values = sorted({typed(field, operator, text) for text in condition.texts})
    return [condition.field, operator, values]
