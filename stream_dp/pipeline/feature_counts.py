"""From decoded records to rows: how many records count in each entry of their tick's row.

Rules: records come sorted by tick, so the records of a tick are neighbours in every column. A record adds only its
own contribution to each feature whose conditions it passes: one entry, or as many as its lists have, each once.
Features that differ in one value only are counted together (`alike`). Rows are private.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, timedelta, tzinfo
from itertools import chain, pairwise
from typing import Any, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np

from stream_dp.core.mechanism import IntArray
from stream_dp.core.time import EPOCH, TickGrid
from stream_dp.engine.tick_assembler import together
from stream_dp.pipeline.layout import Feature, Slot
from stream_dp.records.amount_units import (
    Amount,
    Centred,
    Fitting,
    Known,
    SharedAmount,
    Sign,
    UserTotal,
)
from stream_dp.records.conditions import Needs, Test
from stream_dp.records.decoder import Decoded
from stream_dp.records.groupings import Edges, TickKey, edge_value, grouping_fields, number_of_keys
from stream_dp.records.list_columns import Entries
from stream_dp.records.record_columns import (
    BoolArray,
    CapUse,
    Columns,
    Identified,
    RecordColumns,
    Summed,
    Texts,
    texts_of,
)

# Features whose conditions differ in one value only: one count by the values of that field answers all of them. A
# hundred thousand features that each ask for another `equals` of one field are a histogram of that field, read at a
# hundred thousand places. It changes no count, only the work, and depends on the features alone, never on records.

MANY = 8  # from so many features on, those that share a field and all other conditions are counted together
_CODED = ("category", "text", "list", "integer")
_VALUED = ("equals", "one_of", "contains")


class AskedFor(NamedTuple):
    """A feature's columns of the row, and the values of the field that it counts."""

    columns: tuple[int, ...]
    values: frozenset[Any]


@dataclass(frozen=True, slots=True)
class Alike:
    """Features that count values of `field`, among the records that pass `rest`."""

    field: str
    rest: Needs
    wanted: tuple[AskedFor, ...]


def alike(
    scalars: Mapping[Needs, Sequence[int]], fields: Mapping[str, Any]
) -> tuple[list[Alike], dict[Needs, Sequence[int]]]:
    """Split features (columns of the row by their conditions) into those counted together and the others."""
    known = Counter(key for where in scalars for _, key in _ways(where, fields))
    together: dict[tuple[str, Needs], list[AskedFor]] = {}
    alone: dict[Needs, Sequence[int]] = {}
    for where, columns in scalars.items():
        ways = [(known[key], key[0], test, key) for test, key in _ways(where, fields)]
        number, _, test, key = max(ways, key=lambda way: way[:2], default=(0, "", None, None))
        if number < MANY or test is None or key is None:
            alone[where] = columns
        else:
            together.setdefault(key, []).append(AskedFor(tuple(columns), test.values))
    groups = [Alike(field, rest, tuple(asked)) for (field, rest), asked in together.items()]
    return groups, alone


def _ways(where: Needs, fields: Mapping[str, Any]) -> Iterator[tuple[Test, tuple[str, Needs]]]:
    for test in where:
        if not isinstance(test, Test):
            continue
        if test.operator in _VALUED and fields[test.field].type in _CODED:
            yield test, (test.field, where - {test})


# The entry of a row in which each record of a batch counts, where it is more than a field's code: columns only, no
# Python call per record. Null, and a value that is no number, counts in `other`. With several groupings a record
# counts once in every combination of its entries.


class BatchTicks(NamedTuple):
    """The ticks of a batch, in order, and the index of each record's tick; None: all records are in the first."""

    names: Sequence[int]
    at: IntArray | None
    records: int


Coder: TypeAlias = Callable[[Columns, BatchTicks], Entries]


def coder(by: Any, fields: Mapping[str, Any], grid: TickGrid) -> Coder:
    if isinstance(by, tuple):
        sizes = [number_of_keys(fields, part) for part in by]
        return _crossed([coder(part, fields, grid) for part in by], sizes)
    if isinstance(by, Edges):
        return _binned(by, fields[by.field])
    if isinstance(by, TickKey):
        return _ticked(by, grid)
    if by is None:
        return lambda columns, ticks: Entries(np.zeros(ticks.records, np.int64))
    return lambda columns, ticks: columns.codes[by]


def _binned(by: Edges, field: Any) -> Coder:
    """Return the coder of the bin of each value: how many edges are at most as large."""
    bounds = [edge_value(field, edge) for edge in by.edges]
    edges = np.array(bounds, np.int64 if field.type == "integer" else np.float64)
    other = len(edges) + 1

    def bins(columns: Columns, ticks: BatchTicks) -> Entries:
        values, known = columns.numbers[by.field]
        codes = np.searchsorted(edges, values, side="right")
        if known is not None:
            codes = np.where(known, codes, other)
        return Entries(codes)

    return bins


def _ticked(by: TickKey, grid: TickGrid) -> Coder:
    zone: tzinfo = UTC if by.zone is None else ZoneInfo(by.zone)

    def tick_keys(columns: Columns, ticks: BatchTicks) -> Entries:
        keys = np.array([tick_key(by, zone, grid.start(tick)) for tick in ticks.names], np.int64)
        if ticks.at is None:
            return Entries(np.full(ticks.records, keys[0]))
        return Entries(keys[ticks.at])

    return tick_keys


def tick_key(by: TickKey, zone: tzinfo, moment: int) -> int:
    """Return the index, among its keys, of the hour or weekday of a moment in ms since 1970."""
    local = EPOCH + timedelta(milliseconds=moment)
    with suppress(OverflowError):  # within a day of the first or the last datetime
        local = local.astimezone(zone)
    return local.hour if by.tick == "hour" else local.weekday()


def _crossed(coders: Sequence[Coder], sizes: Sequence[int]) -> Coder:
    """Return the coder of every combination of a record's entries; the last grouping changes fastest."""

    def combinations(columns: Columns, ticks: BatchTicks) -> Entries:
        first, *others = [entries(columns, ticks) for entries in coders]
        for other, size in zip(others, sizes[1:], strict=True):
            first = _pairs(first, other, size, ticks.records)
        return first

    return combinations


def _pairs(left: Entries, right: Entries, size: int, records: int) -> Entries:
    """Combine each left entry with each right entry of the same record; there are `size` right entries in all."""
    if right.records is None:
        return Entries(left.codes * size + left.of(right.codes), left.records)
    if left.records is None:
        return Entries(left.codes[right.records] * size + right.codes, right.records)
    both = right.at(left.records)
    return Entries(both.of(left.codes) * size + both.codes, both.of(left.records))


_Codes = Mapping[Any, Entries]


@dataclass(frozen=True, slots=True, repr=False)
class Cells:
    """Sparse counts: the index of a tick in its batch, a column, and a count; one entry may occur several times."""

    ticks: IntArray
    columns: IntArray
    counts: IntArray


class FeatureCounts:
    """Counts records in features, each with its slot in a row."""

    def __init__(
        self,
        features: Iterable[tuple[Feature, Slot]],
        fields: Mapping[str, Any],
        attribute: Callable[[str], str],
        grid: TickGrid,
        user: str | None = None,
    ) -> None:
        """See `RecordColumns` for `fields` and `attribute`; `grid` says when each tick begins, `user` is the field that
        names the users whose totals are counted.
        """
        every = list(features)
        elsewhere = Identified | CapUse | UserTotal
        features = [item for item in every if not isinstance(item[0].of, elsewhere)]
        named = [(f, f.of, slot) for f, slot in every if isinstance(f.of, Identified | UserTotal)]
        scalars: dict[Needs, list[int]] = {}
        for feature, slot in features:
            if feature.by is None and feature.of is None:
                scalars.setdefault(feature.where, []).append(slot.start)
        self._totals = scalars.pop(frozenset(), None)
        together, alone = alike(scalars, fields)
        self._scalars = list(chain.from_iterable(alone.values()))
        self._repeats = np.repeat(np.arange(len(alone)), [len(at) for at in alone.values()])
        by = [(f, slot) for f, slot in features if f.by is not None or f.of is not None]
        added = list(dict.fromkeys(f.of for f, _ in by if f.of is not None))
        totals = [of.amount for _, of, _ in named if isinstance(of, UserTotal)]
        added = list(dict.fromkeys([*added, *totals]))
        signs = {of: of.tests(fields) for of in added if isinstance(of, Sign)}
        shared = [feature.where for feature, _ in by] + [alike.rest for alike in together]
        shared += [feature.where for feature, *_ in named]
        shared += [frozenset({test}) for tests in signs.values() for test in tests]
        wheres = list(dict.fromkeys([*alone, *(where for where in shared if where)]))
        place = {where: at for at, where in enumerate(wheres)}
        valued = {alike.field: list(_values(alike.field, together)) for alike in together}
        grouped = [*(f for f, _ in by), *(f for f, *_ in named)]
        coded = list(_numbered_or_coded(grouped))
        self._columns = RecordColumns(coded, wheres, fields, attribute, valued)
        groupings = dict.fromkeys(f.by for f in grouped if not isinstance(f.by, str))
        self._coders = {grouping: coder(grouping, fields, grid) for grouping in groupings}
        self._amounts = [of for of in added if isinstance(of, Amount | Centred | Known)]
        self._shared = [of for of in added if isinstance(of, SharedAmount)]
        self._signs = {
            sign: (place[frozenset({up})], place[frozenset({down})])
            for sign, (up, down) in signs.items()
        }
        self._parts: list[_By | _Together] = [
            _By(feature.by, place.get(feature.where), slot, feature.of) for feature, slot in by
        ]
        self._parts += [
            _Together(alike, place.get(alike.rest), self._columns.codes_of(alike.field))
            for alike in together
        ]
        self._named: list[_Named] = []
        for feature, of, slot in named:
            name = user if isinstance(of, UserTotal) else of.field
            if name is not None:
                amount = of.amount if isinstance(of, UserTotal) else None
                own = feature.by, place.get(feature.where), slot
                self._named.append(_Named(*own, attribute(name), amount))

    def write(
        self, rows: IntArray, decoded: Decoded, numbers: IntArray, names: Sequence[int]
    ) -> Texts:
        """Write the columns of these features into `rows` of shape (ticks, width); return the identifiers to count, and
        what users add to their totals. The first `numbers[0]` records are in tick `names[0]`, and so on.
        """
        at = np.repeat(np.arange(len(numbers)), numbers) if len(numbers) > 1 else None
        passing, codes = self._read(decoded, names, at)
        if self._totals is not None:
            rows[:, self._totals] = numbers[:, None]
        if self._scalars:
            rows[:, self._scalars] = self._passed(passing, numbers)[self._repeats].T
        for part in self._parts:
            part.count(rows, codes, passing, at)
        return self._texts(decoded, codes, passing, names, at)

    def cells(
        self, decoded: Decoded, numbers: IntArray, names: Sequence[int]
    ) -> tuple[list[Cells], Texts]:
        """Return what `write` writes, as cells, whose room depends on the records and not on the width of a row."""
        at = np.repeat(np.arange(len(numbers)), numbers)
        passing, codes = self._read(decoded, names, at)
        cells = [part.cells(codes, passing, at) for part in self._parts]
        every = np.arange(len(numbers))
        if self._totals is not None:
            columns = np.array(self._totals, np.int64)
            ticks, counts = np.repeat(every, len(columns)), np.repeat(numbers, len(columns))
            cells.append(Cells(ticks, np.tile(columns, len(every)), counts))
        if self._scalars:
            passed = self._passed(passing, numbers)[self._repeats]
            which, ticks = np.nonzero(passed)
            columns = np.array(self._scalars, np.int64)
            cells.append(Cells(ticks, columns[which], passed[which, ticks]))
        return cells, self._texts(decoded, codes, passing, names, at)

    def _texts(
        self,
        decoded: Decoded,
        codes: _Codes,
        passing: BoolArray,
        names: Sequence[int],
        at: IntArray | None,
    ) -> Texts:
        """Return what is named in these records; `at` as in `_By.count`, among the ticks `names`."""
        texts: Texts = {}
        for part in self._named:
            at = np.zeros(len(decoded.records), np.int64) if at is None else at
            for tick, column, found in part.found(decoded, codes, passing, at):
                texts.setdefault(names[tick], {})[column] = found
        return texts

    def _passed(self, passing: BoolArray, numbers: IntArray) -> IntArray:
        """Return how many records pass the conditions of the scalars, of shape (conditions, ticks)."""
        return _by_tick(passing[: int(self._repeats[-1]) + 1], numbers)

    def _read(
        self, decoded: Decoded, names: Sequence[int], at: IntArray | None
    ) -> tuple[BoolArray, _Codes]:
        """Return which records pass which condition, and the codes by which features count; `at` as in `_By.count`."""
        columns = self._columns(decoded)
        passing = columns.passing
        codes: dict[Any, Entries] = dict(columns.codes)
        for by, entries in self._coders.items():
            codes[by] = entries(columns, BatchTicks(names, at, len(decoded.records)))
        for amount in self._amounts:
            codes[amount] = Entries(amount.of(columns.numbers[amount.field]))
        for shared in self._shared:
            units = decoded.units[shared.field]
            if isinstance(shared, Fitting):
                units = shared.of(columns.numbers[shared.field], units)
            codes[shared] = Entries(units)
        for sign, (up, down) in self._signs.items():
            codes[sign] = Entries(passing[up].astype(np.int64) - passing[down])
        return passing, codes


class _By:
    """A feature with an entry for each value of a field, or for each key of another grouping. It counts records or,
    with `amount`, sums up their amounts.
    """

    def __init__(self, by: Any, where: int | None, slot: Slot, amount: Hashable = None) -> None:
        self._by, self._where, self._slot, self._amount = by, where, slot, amount

    def count(self, rows: IntArray, codes: _Codes, passing: BoolArray, at: IntArray | None) -> None:
        """Write the feature's part of the rows; `at` is the index of each record's tick (None: there is one tick)."""
        entries, ticks, keys = codes[self._by], len(rows), len(self._slot.keys)
        if self._amount is None:
            part = _histogram(entries, self._where, keys, ticks, passing, at)
        else:
            units = entries.of(codes[self._amount].codes)
            part = _histogram(entries, self._where, keys, ticks, passing, at, units)
        rows[:, self._slot.start : self._slot.stop] = part

    def cells(self, codes: _Codes, passing: BoolArray, at: IntArray) -> Cells:
        entries, ticks, records = _chosen(codes[self._by], self._where, passing, at)
        amounts = None if self._amount is None else codes[self._amount].codes[records]
        units = np.ones(len(entries), np.int64) if amounts is None else amounts
        return Cells(ticks, entries + self._slot.start, units)


class _Named:
    """Who is named by a field of the records, of which a memory says what counts; by `by` as in `_By`.

    With `amount` it is how much the records of each add up to.
    """

    def __init__(
        self, by: Any, where: int | None, slot: Slot, attribute: str, amount: Amount | None
    ) -> None:
        self._by, self._where, self._slot, self._amount = by, where, slot, amount
        self._attribute = attribute

    def found(
        self, decoded: Decoded, codes: _Codes, passing: BoolArray, at: IntArray
    ) -> Iterator[tuple[int, int, Sequence[bytes] | Summed]]:
        """Yield the index of a tick, a column, and who is named there; null names nobody, and 0 adds nothing."""
        entries, ticks, records = _chosen(codes[self._by], self._where, passing, at)
        values, keys = decoded.values(self._attribute), len(self._slot.keys)
        known: dict[Any, int] = {}
        first = np.fromiter(map(known.setdefault, values, range(len(values))), np.int64)
        amounts = (
            np.ones(len(first), np.int64) if self._amount is None else codes[self._amount].codes
        )
        units = np.where(first == known.get(None, -1), 0, amounts)[records]
        some = units != 0
        cells = (ticks * keys + entries)[some] * len(first) + first[records][some]
        sums = together(cells, units[some])
        places, of = np.divmod(sums.columns, max(1, len(first)))
        begins = np.flatnonzero(np.diff(places, prepend=-1))
        for begin, end in pairwise([*begins.tolist(), len(places)]):
            tick, key = divmod(int(places[begin]), keys)
            texts = texts_of(map(values.__getitem__, of[begin:end].tolist()))
            named = texts if self._amount is None else Summed(texts, sums.counts[begin:end])
            yield tick, self._slot.start + key, named


class _Together:
    """Features that count values of one field; the coded field has one more value, for all other values."""

    def __init__(self, alike: Alike, rest: int | None, codes: Mapping[Any, int]) -> None:
        self._field, self._rest, self._keys = alike.field, rest, len(codes) + 1
        wanted = [
            (column, sorted(codes[v] for v in w.values))
            for w in alike.wanted
            for column in w.columns
        ]
        self._columns = [column for column, _ in wanted]
        self._codes = np.array([code for _, asked in wanted for code in asked], np.int64)
        lengths = np.array([len(asked) for _, asked in wanted], np.int64)
        self._starts = np.cumsum(lengths) - lengths

    def count(self, rows: IntArray, codes: _Codes, passing: BoolArray, at: IntArray | None) -> None:
        counts = _histogram(codes[self._field], self._rest, self._keys, len(rows), passing, at)
        rows[:, self._columns] = np.add.reduceat(counts[:, self._codes], self._starts, axis=1)

    def cells(self, codes: _Codes, passing: BoolArray, at: IntArray) -> Cells:
        """Return the entries that are not 0: a record counts in each column that asks for its value."""
        values, ticks, _ = _chosen(codes[self._field], self._rest, passing, at)
        order = np.argsort(self._codes, kind="stable")
        lengths = np.diff(np.append(self._starts, len(self._codes)))
        columns = np.repeat(np.array(self._columns, np.int64), lengths)[order]
        asking = np.bincount(self._codes, minlength=self._keys)
        begins, number = np.cumsum(asking) - asking, asking[values]
        place = np.arange(number.sum()) - np.repeat(np.cumsum(number) - number, number)
        columns = columns[np.repeat(begins[values], number) + place]
        return Cells(np.repeat(ticks, number), columns, np.ones(len(columns), np.int64))


def _histogram(
    entries: Entries, where: int | None, keys: int, ticks: int, passing: BoolArray, at: IntArray | None,
    units: IntArray | None = None,
) -> IntArray:  # fmt: skip
    """Return how many records have each code, or the sum of their `units`; of shape (ticks, keys)."""
    cells = entries.codes if at is None else entries.codes + entries.of(at) * keys
    if where is not None:
        chosen = entries.of(passing[where]).nonzero()
        cells, units = cells[chosen], None if units is None else units[chosen]
    if units is None:
        return np.bincount(cells, minlength=ticks * keys).reshape(ticks, keys)
    sums = np.zeros(ticks * keys, np.int64)
    np.add.at(sums, cells, units)
    return sums.reshape(ticks, keys)


def _chosen(
    entries: Entries, where: int | None, passing: BoolArray, at: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Return the codes of the records that pass, and the tick and the index of the record of each code."""
    codes, ticks, records = entries.codes, entries.of(at), entries.of(np.arange(len(at)))
    if where is None:
        return codes, ticks, records
    chosen = entries.of(passing[where]).nonzero()
    return codes[chosen], ticks[chosen], records[chosen]


def _numbered_or_coded(features: Iterable[Feature]) -> Iterable[str]:
    for feature in features:
        yield from grouping_fields(feature.by)
        if isinstance(feature.of, Amount | Centred | Known | UserTotal | Fitting):
            yield feature.of.field


def _values(field: str, together: Sequence[Alike]) -> Iterable[Any]:
    wanted = (w.values for alike in together if alike.field == field for w in alike.wanted)
    return dict.fromkeys(chain.from_iterable(wanted))


def _by_tick(passing: BoolArray, numbers: IntArray) -> IntArray:
    """Return how many records pass, of shape (conditions, ticks); every tick has a record."""
    if len(numbers) == 1:
        return np.count_nonzero(passing, axis=1, keepdims=True)
    starts = np.cumsum(numbers) - numbers
    return np.add.reduceat(passing, starts, axis=1, dtype=np.int64)
