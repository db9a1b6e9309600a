"""Fingerprints of all that touches data or guarantee in a pipeline file, whole and by part; and what differs in a file
that changes while its journal goes on.

Rules: the fingerprint covers everything that touches data or guarantee and nothing else. A key added in a later
version is left out at its default, which has the meaning of files without the key. The series of the first file are one
block, charged together, so the pipeline of a journal is always that of its first file; series that came with a later
file are live series of the operator. A change may add and end series, end one and go on with its name, add fields, and
change words. All else belongs to the ledger or to the meaning of what is public, and is refused by name. This file
opens no file.
"""

import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from operator import itemgetter
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from pydantic import ValidationError

from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import FailClosed, UsageError
from stream_dp.pipeline.layout import uncollected
from stream_dp.pipeline.spec import PipelineSpec, zone_offsets, zones_in
from stream_dp.pipeline.yaml import canonical_series, escaped, load_live
from stream_dp.records.conditions import Condition, typed
from stream_dp.records.endpoints import KafkaSourceSpec, ReplayClock, schemas_of
from stream_dp.records.privacy import GONE_FILTER, OF_USERS, TOTALS, Privacy
from stream_dp.records.schema import ListField, TimeField, key_path, offsets
from stream_dp.statistics import Series
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
    if totals := parts["privacy"].get(TOTALS):
        totals.sort(key=itemgetter("of"))
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
        for key in ("path", "from_key", "from_header", "map", "from"):
            if schema[name].get(key) in (None, False):
                schema[name].pop(key, None)
        if schema[name].get("decimal") == ".":
            del schema[name]["decimal"]
        if isinstance(field, ListField) and field.inner:
            schema[name]["path"] = [key_path(name, field), field.inner]  # once keys of this text
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


_SERIES, _SCHEMA = "series", "schema"
_MOST = 9  # every checkpoint holds what the first file said
_REASONS = {
    "name": "another name is another pipeline",
    "privacy": "the ledger promises this to somebody, for good",
    "clock": "ticks are counted from the first start on",
    "source": "the ledger is of one source",
    "public_data": "the ledger promises this to somebody, for good",
    "confidence": "what is public names it",
    "releases": "what is public has one form",
}


class Said(NamedTuple):
    """What a file says: its fields and series, beside the other parts of the file of now; and what it says of those."""

    spec: PipelineSpec
    others: Mapping[str, Any]

    @classmethod
    def of(cls, spec: PipelineSpec) -> "Said":
        return cls(spec, _others(spec))


@uncollected()
def told(spec: PipelineSpec) -> bytes:
    """Return what a file says that its fingerprint covers, as public JSON; empty if it cannot be read."""
    plain = spec.model_dump(mode="json", exclude_none=True, by_alias=True, include={"fields"})
    series = [own.as_kept(json.loads(canonical_series(own))) for own in spec.series]
    others = json.dumps(_others(spec), sort_keys=True)  # a text, for YAML takes no null
    text = escaped({_SCHEMA: plain[_SCHEMA], _SERIES: series, "others": others})
    try:
        return text if fingerprint(heard(text, spec).spec) == fingerprint(spec) else b""
    except FailClosed:
        return b""


def text_of(spec: PipelineSpec) -> bytes:
    """Return what `told` does as journals keep it, deflated."""
    return zlib.compress(text, _MOST) if (text := told(spec)) else b""


def earlier(text: bytes, spec: PipelineSpec) -> Said:
    """Return what the file said of which `text_of` wrote this, beside the other parts of `spec`; raise `FailClosed` if
    it is not one.
    """
    try:
        return heard(zlib.decompress(text), spec)
    except zlib.error:
        return heard(b"", spec)


def heard(text: bytes, spec: PipelineSpec) -> Said:
    """Return what `told` wrote, as `earlier` does."""
    try:
        data = load_live(text, lambda data: data, "file")
        others = json.loads(data["others"])
        parts = {name: getattr(spec, name) for name in PipelineSpec.model_fields}
        privacy = spec.privacy.model_copy(update={"expect": None})  # may name series of now
        source = spec.source
        if isinstance(source, KafkaSourceSpec):
            source = source.as_counted(others.get("source") or {})
        parts |= {
            "source": source,
            "privacy": privacy,
            _SCHEMA: data[_SCHEMA],
            _SERIES: data[_SERIES],
        }
        del parts["fields"]
        return Said(PipelineSpec.model_validate(parts), others)
    except (UsageError, ValidationError, KeyError, TypeError, ValueError):
        raise FailClosed(
            f"the journal of {spec.name} holds a pipeline file that this version cannot read; "
            "use the version that wrote it"
        ) from None


def going_on(first: PipelineSpec, now: PipelineSpec) -> PipelineSpec:
    """Return the pipeline as its journal goes on: the series of the `first` file, in the words of `now`, and its fields
    with those that were added.
    """
    meant, said = _series(now), {own.name: own for own in now.series}
    series = tuple(
        said[own.name] if meant.get(own.name) == of else own
        for own, of in zip(first.series, _series(first).values(), strict=True)
    )
    return now.model_copy(update={_SERIES: series})


@dataclass(frozen=True)
class FileChanges:
    """What a changed file would change: series by name, and added fields and schemas of values. `changed` have another
    definition, `worded` other words only.

    `refused` says what cannot be changed, and why; then nothing can be applied. `equal`: there is nothing to record.
    """

    added: tuple[Series, ...] = ()
    ended: tuple[Series, ...] = ()
    changed: tuple[Series, ...] = ()
    fields: tuple[str, ...] = ()
    worded: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    schemas: tuple[str, ...] = ()
    equal: bool = True


def compared(then: Said, file: Said) -> FileChanges:
    """Return what changes from the file of before to a file of now, of one journal."""
    (before, others), now = then, file.spec
    old, new = _series(before), _series(now)
    changed = [name for name in new if name in old and old[name] != new[name]]
    said = {own.name: own for own in before.series}
    schemas, parts = _added_schemas(others, file.others), file.others
    if schemas:
        parts = {**parts, "source": others["source"]}
    refused = [*_other_changes(others, parts), *_schema_changes(before, now)]
    refused += [
        f"series {own.name}: is made of releases of {', '.join(made_of)}, which would be those of "
        f"another series; leave {own.name} out"
        for own in now.series
        if own.name in old and (made_of := sorted({*own.inputs} & {*changed}))
    ]
    return FileChanges(
        tuple(own for own in now.series if own.name not in old),
        tuple(own for own in before.series if own.name not in new),
        tuple(own for own in now.series if own.name in changed),
        tuple(name for name in now.fields if name not in before.fields),
        tuple(
            own.name
            for own in now.series
            if own.name in said
            and own.name not in changed
            and _words(own) != _words(said[own.name])
        ),
        tuple(refused),
        schemas,
        fingerprint(before) == fingerprint(now),
    )


def _series(spec: PipelineSpec) -> dict[str, Any]:
    """Return the meaning of each series, by name."""
    named: dict[str, Any] = {own["name"]: own for own in meaning(spec)[_SERIES]}
    return named


def _others(spec: PipelineSpec) -> dict[str, Any]:
    """Return the meaning of all parts but series and fields, as JSON has it."""
    meant = meaning(spec)
    for part in (_SERIES, _SCHEMA, "zones"):  # zones follow from series
        meant.pop(part, None)
    plain: dict[str, Any] = json.loads(json.dumps(meant))
    return {
        part: {key: value for key, value in of.items() if value is not None}
        if isinstance(of, dict)
        else of
        for part, of in plain.items()
    }


def _other_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for part in sorted(old.keys() | new.keys()):
        if old.get(part) != new.get(part):
            what = _keys(old.get(part), new.get(part))
            yield f"{part}{f' ({what})' if what else ''}: {_REASONS.get(part, 'does not change')}"


def _added_schemas(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the numbers of the schemas that a source has more than before; none if anything else of it differs."""
    then, now = old.get("source") or {}, new.get("source") or {}
    before, after = schemas_of(then), schemas_of(now)
    unlike = [
        {**each, "values": {**(each.get("values") or {}), "schemas": None, "ids": None}}
        for each in (then, now)
    ]
    kept = {number: text for number, text in after.items() if number in before}
    if not before or kept != before or unlike[0] != unlike[1]:
        return ()
    return tuple(sorted(after.keys() - before.keys(), key=int))


def _schema_changes(before: PipelineSpec, now: PipelineSpec) -> Iterator[str]:
    new = meaning(now)[_SCHEMA]
    for name, field in meaning(before)[_SCHEMA].items():
        if name not in new:
            yield f"schema.{name}: a field stays, for series of before may read it"
        elif new[name] != field:
            yield f"schema.{name}: what a field of before means does not change; add one of another name"


def _keys(old: Any, new: Any) -> str:
    """Return the keys that differ, in one line; empty if there are none."""
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return ""
    return ", ".join(key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key))


def _words(series: Series) -> list[Any]:
    return [getattr(series, key, None) for key in series.words]
