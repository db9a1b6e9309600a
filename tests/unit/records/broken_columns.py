"""Columns and counts that are wrong on purpose; tests must tell each from the right ones."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from stream_dp.core.mechanism import IntArray
from stream_dp.pipeline import feature_counts
from stream_dp.records import list_columns
from stream_dp.records.amount_units import Amount
from stream_dp.records.conditions import Test
from stream_dp.records.decoder import Decoded, ListDecoder
from stream_dp.records.groupings import Edges, TickKey
from stream_dp.records.list_columns import Entries
from stream_dp.records.record_columns import BoolArray, Numbers, _Coded, _Ordered

Breakage: TypeAlias = tuple[type | Any, str, Any]
"""An object, its attribute, and what takes the attribute's place."""

_decode = ListDecoder.decode
_bins, _key, _pairs = feature_counts._binned, feature_counts.tick_key, feature_counts._pairs
_units = Amount.of
_make, _read, _make_coded = _Ordered.__init__, _Ordered.read, _Coded.__init__


def _null_is_zero(column: _Ordered, records: Sequence[Any]) -> Numbers:
    return Numbers(np.nan_to_num(_read(column, records).values), None)


def _as_doubles(column: _Ordered, attribute: str, _: Any, tests: Sequence[Test]) -> None:
    _make(column, attribute, np.float64, tests)


def _strict(column: _Ordered, numbers: Numbers, answers: BoolArray) -> None:
    values, known = numbers
    known = np.ones(len(values), np.bool_) if known is None else known
    least, most = len(column._least), len(column._least) + len(column._most)
    for row, bound in enumerate(column._least):
        answers[row] = (values > bound) & known
    for row, bound in enumerate(column._most, least):
        answers[row] = (values < bound) & known
    for row, among in enumerate(column._among, most):
        answers[row] = np.isin(values, among) & known


def _mask_of_the_first(column: _Ordered, records: Sequence[Any]) -> Numbers:
    """The nulls of the field that was read first, for every field of the batch."""
    values, known = _read(column, records)
    other = np.array([record.f1 is not None for record in records], np.bool_)
    return Numbers(np.nan_to_num(values), None if known is None and other.all() else other)


def _others_pass(column: _Coded, attribute: str, values: Sequence[Any], tests: Any) -> None:
    """Unknown texts, and null, pass what the last known one passes."""
    _make_coded(column, attribute, values, tests)
    column._passes[:, -1] = column._passes[:, -2]


def _all_in_the_first_tick(passing: BoolArray, numbers: IntArray) -> IntArray:
    """Every record that passes counts in the batch's first tick."""
    found = np.zeros((len(passing), len(numbers)), np.int64)
    found[:, 0] = passing.sum(axis=1)
    return found


def _twice(numbers: IntArray, codes: IntArray, keys: int) -> Entries:
    """An entry counts as often as it is listed."""
    return Entries(codes, np.repeat(np.arange(len(numbers)), numbers))


def _clipped(decoder: ListDecoder, payloads: Sequence[bytes]) -> Decoded:
    """Of a list that is too long the first entries are taken, and nobody is told."""
    records = [json.loads(payload) for payload in payloads]
    for record in records:
        record["tags"] = None if record["tags"] is None else record["tags"][:3]
    return _decode(decoder, [json.dumps(record).encode() for record in records])


def _edge_below(by: Edges, field: Any) -> Any:
    """An edge belongs to the bin below it."""
    lowered = {edge: math.nextafter(float(edge), math.inf) for edge in by.edges}
    moved = Edges(field="x", edges=tuple(Fraction(lowered[edge]) for edge in by.edges))
    whole = [edge + 1 for edge in by.edges if edge < 2**62] or [by.edges[0]]
    return _bins(
        moved
        if by.field == "x"
        else Edges(field=by.field, edges=tuple(whole) + by.edges[len(whole) :]),
        field,
    )


def _null_is_lowest(numbers: Numbers) -> Numbers:
    return Numbers(np.nan_to_num(numbers.values), None)


def _in_utc(by: TickKey, zone: Any, moment: int) -> int:
    return _key(by, UTC, moment)


def _first_of_list(left: Entries, right: Entries, size: int, records: int) -> Entries:
    """Of two lists only the first entries are combined."""
    found = _pairs(left, right, size, records)
    if found.records is None:
        return found
    _, first = np.unique(found.records, return_index=True)
    return Entries(found.codes[first], found.records[first])


def _turned(left: Entries, right: Entries, size: int, records: int) -> Entries:
    """The first grouping changes fastest, if there is room."""
    found = _pairs(left, right, size, records)
    return Entries(found.codes // size, found.records)


def _last_unclamped(amount: Amount, numbers: Numbers) -> IntArray:
    """The last record of a batch is not clamped."""
    found, last = _units(amount, numbers), numbers.values[-1:]
    wide = replace(amount, lowest=-(10**6) * amount.step, highest=10**6 * amount.step)
    known = None if numbers.known is None else numbers.known[-1:]
    return np.append(found[:-1], _units(wide, Numbers(last, known)))


def _clamped_together(amount: Amount, numbers: Numbers) -> IntArray:
    """The batch's amounts are made to fit together, so that one record moves the others'."""
    found, (low, high) = _units(amount, numbers), amount.units
    return np.asarray(np.clip(found, low, max(low, high - (len(found) > 1))))


def _truncated(amount: Amount, numbers: Numbers) -> IntArray:
    """Steps that are begun do not count."""
    finer = replace(amount, step=amount.step / 16)
    return np.asarray(_units(finer, numbers) // 16)


def _null_is_least(amount: Amount, numbers: Numbers) -> IntArray:
    """Null adds the least amount."""
    found = _units(amount, numbers)
    known = np.ones(len(found), np.bool_) if numbers.known is None else numbers.known
    return np.where(known, found, amount.units[0])


BREAKAGES: dict[str, Breakage] = {
    "an entry counts twice": (list_columns, "_once", _twice),
    "long lists are clipped": (ListDecoder, "decode", _clipped),
    "a list that is null counts nowhere": (list_columns, "_NULL", ()),
    "null passes": (_Ordered, "read", _null_is_zero),
    "integers as doubles": (_Ordered, "__init__", _as_doubles),
    "> for >=": (_Ordered, "answer", _strict),
    "the nulls of another field": (_Ordered, "read", _mask_of_the_first),
    "unknown texts pass": (_Coded, "__init__", _others_pass),
    "an edge lies in the bin below": (feature_counts, "_binned", _edge_below),
    "null lies in a bin": (Numbers, "or_null", _null_is_lowest),
    "all clocks show UTC": (feature_counts, "tick_key", _in_utc),
    "one combination a record": (feature_counts, "_pairs", _first_of_list),
    "a member is left out": (feature_counts, "_pairs", _turned),
    "the last record is not clamped": (Amount, "of", _last_unclamped),
    "amounts are clamped together": (Amount, "of", _clamped_together),
    "amounts are truncated": (Amount, "of", _truncated),
    "null adds the least": (Amount, "of", _null_is_least),
    "ticks run together": (feature_counts, "_by_tick", _all_in_the_first_tick),
}
