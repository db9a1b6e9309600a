"""From batches of records to tick rows; features are added while it runs, for series that are created later.

Rules: the rows of the pipeline file's series come first and never change. Every record is decoded once for all
features. A record that is refused in this way is decoded again for the file's series and for the added features
that read the same fields, so that a record that cannot be read for one feature counts elsewhere as before. Equal
features share their columns; the columns of closed features are used again, the lowest first. Added features are
counted in shards; a change rebuilds one shard only. This file knows no series and no budget.
"""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, pairwise
from operator import attrgetter, itemgetter
from typing import NamedTuple

import numpy as np

from stream_dp.core.mechanism import IntArray
from stream_dp.core.time import TickGrid
from stream_dp.engine.memories import NetMemory, SeenMemory, TotalMemory
from stream_dp.engine.ports import Batch
from stream_dp.engine.tick_assembler import OpenRow, Routed, Row, ThinRow, thin, together, without
from stream_dp.engine.user_table import Arrivals, Hashes
from stream_dp.errors import FailClosed
from stream_dp.journal.dead_letters import TIME_OUT_OF_RANGE, WRONG_TYPE, Span, as_spans
from stream_dp.pipeline.feature_counts import Cells, FeatureCounts
from stream_dp.pipeline.layout import Block, Feature, RowLayout, Slot, uncollected
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_guard import NO_KEY, UserHash
from stream_dp.pipeline.user_homes import naming_field
from stream_dp.records.decoder import NO_TIME, OUTSIDE, Decoded, ListDecoder, OwnTicks, Refusal
from stream_dp.records.endpoints import ReplayClock
from stream_dp.records.record_columns import Summed, Texts

# a batch has dense rows up to so many entries, and for each record so many more
_CELLS, _CELLS_EACH = 1 << 16, 32
_REASONS = {OUTSIDE: TIME_OUT_OF_RANGE, NO_TIME: WRONG_TYPE}


def dead(batch: Batch, refused: Iterable[Refusal]) -> list[Span]:
    """Return the spans that the source could not read, then those of these refusals, by their positions."""
    ordered = sorted(refused, key=itemgetter(0))
    return [*batch.refused, *as_spans((batch.labels[at], why, field) for at, why, field in ordered)]


class Router:
    """Decodes the batches of one pipeline and adds them up into tick rows.

    A record adds its own contribution, decided by that record alone: one entry of a series or, by a list, as many as
    the list has. A time outside the grid is a dead letter, an unknown category counts in `other`, null matches no
    condition. There is no Python call per record beyond the decoder's own: the rest is done by columns.
    """

    def __init__(
        self, spec: PipelineSpec, origin_ms: int, layout: RowLayout | None = None, key: bytes = NO_KEY
    ) -> None:  # fmt: skip
        """`origin_ms` is the start of tick 0; `layout` by default the file's; `key` that of identifiers' hashes."""
        self.layout = layout or RowLayout.of(spec)
        self.width = self.layout.width
        self._grid = TickGrid(origin_ms, spec.clock.step, spec.clock.horizon)
        self._time = spec.clock.field if isinstance(spec.clock, ReplayClock) else None
        counted = list(self.layout.counted(spec))
        user = spec.privacy.user
        self._schema = spec.fields if user is None else spec.fields | naming_field(spec, user)
        self._hash = UserHash(key)
        self.fields = decoded_fields(spec, (feature for feature, _ in counted))
        self.decoder = self._decoder_of(self.fields)
        attribute = self.decoder.attribute
        self.counts = [FeatureCounts(counted, spec.fields, attribute, self._grid, user)]
        if isinstance(spec.clock, ReplayClock):
            self._time_of = self.decoder.attribute(spec.clock.field)
            self._ticks = OwnTicks(self._grid, spec.own_times)

    def beside(self, others: Sequence["Router"], width: int) -> "Router":
        """Return a router that decodes once and counts what this one and the others of its pipeline count."""
        every = copy(self)
        every.width = width
        every.fields = list(dict.fromkeys(chain(self.fields, *(other.fields for other in others))))
        every.decoder = self._decoder_of(every.fields)
        every.counts = list(chain(self.counts, *(other.counts for other in others)))
        return every

    def _decoder_of(self, names: Iterable[str]) -> ListDecoder:
        return ListDecoder({name: self._schema[name] for name in names}, self._schema)

    def decode(self, batch: Batch) -> Batch:
        return replace(batch, decoded=self.decoder.decode(batch.payloads))

    def route(self, batch: Batch) -> Routed:
        routed, refused = self.tally(batch)
        routed.dead = dead(batch, refused)
        return routed

    def tally(self, batch: Batch) -> tuple[Routed, Sequence[Refusal]]:
        if not batch.payloads:
            return Routed({}, (), {}), ()
        decoded: Decoded = batch.decoded or self.decoder.decode(batch.payloads)
        if batch.units:
            decoded = replace(decoded, units=batch.units_at(decoded.positions))
        ticks: IntArray | int
        if batch.tick is None:
            decoded, ticks = self._own_ticks(decoded)
        elif (ticks := batch.tick) not in self._grid:
            outside = [Refusal(at, TIME_OUT_OF_RANGE, self._time) for at in decoded.positions]
            decoded = Decoded([], [], decoded.refused + outside)
        if not decoded.records:
            return Routed({}, (), {}), decoded.refused
        decoded, names, numbers = _by_tick(decoded, ticks)
        thinly = len(names) * self.width > _CELLS + _CELLS_EACH * len(decoded.records)
        rows, texts = (self._thin if thinly else self._dense)(decoded, names, numbers)
        arrived: dict[int, dict[int, Hashes]] = {}
        for identifiers in texts:
            for tick, column, hashes in self._hashed(identifiers):
                arrived.setdefault(tick, {})[column] = hashes
        number = dict(zip(names, numbers.tolist(), strict=True))
        return Routed(rows, (), number, arrived), decoded.refused

    def _dense(
        self, decoded: Decoded, names: list[int], numbers: IntArray
    ) -> tuple[dict[int, Row], list[Texts]]:
        counted = np.zeros((len(names), self.width), np.int64)
        texts = [counts.write(counted, decoded, numbers, names) for counts in self.counts]
        return dict(zip(names, counted, strict=True)), texts

    def _thin(
        self, decoded: Decoded, names: list[int], numbers: IntArray
    ) -> tuple[dict[int, Row], list[Texts]]:
        """Return what `_dense` does, but sparse rows: room and time grow with the number of entries that are not 0."""
        none: IntArray = np.zeros(0, np.int64)
        cells, texts = [Cells(none, none, none)], list[Texts]()
        for counts in self.counts:
            part, identifiers = counts.cells(decoded, numbers, names)
            cells += part
            texts.append(identifiers)
        every = np.concatenate([part.ticks * self.width + part.columns for part in cells])
        sums = together(every, np.concatenate([part.counts for part in cells]))
        ends = np.searchsorted(sums.columns, np.arange(len(names) + 1) * self.width).tolist()
        rows: dict[int, Row] = {}
        for at, (name, (begin, end)) in enumerate(zip(names, pairwise(ends), strict=True)):
            columns = sums.columns[begin:end] - at * self.width
            # copies: a tick that stays open must not keep all of the batch
            rows[name] = ThinRow(columns, sums.counts[begin:end].copy())
        return rows, texts

    def _hashed(self, identifiers: Texts) -> Iterator[tuple[int, int, Hashes]]:
        """Yield the hashes of identifiers by tick and column, of users' totals beside what they add; those of all ticks
        are computed at once.
        """
        places = [(tick, column) for tick, columns in identifiers.items() for column in columns]
        if not places:
            return
        items = [item for columns in identifiers.values() for item in columns.values()]
        texts = [item.texts if isinstance(item, Summed) else item for item in items]
        hashes = self._hash.of(list(chain.from_iterable(texts)))
        parts = np.split(hashes, list(accumulate(map(len, texts))))
        for (tick, column), item, part in zip(places, items, parts, strict=False):
            if isinstance(item, Summed):
                yield tick, column, np.column_stack([part, item.units.astype(np.uint64)])
            else:
                yield tick, column, part

    def _own_ticks(self, decoded: Decoded) -> tuple[Decoded, IntArray]:
        if self._time is None:
            raise ValueError("a wall clock needs batches that carry their tick")
        ticks = self._ticks.of(decoded.values(self._time_of), len(decoded.records))
        inside = ticks >= 0
        if inside.all():
            return decoded, ticks
        outside = [
            Refusal(position, _REASONS[tick], self._time)
            for position, tick in zip(decoded.positions, ticks.tolist(), strict=True)
            if tick < 0
        ]
        kept = decoded.at(np.flatnonzero(inside))
        return replace(kept, refused=decoded.refused + outside), ticks[inside]


def memories_of(layout: RowLayout, spec: PipelineSpec) -> tuple[SeenMemory, TotalMemory, NetMemory]:
    """Return memories, which know nothing yet, of identifiers that came and of what users added to totals."""
    window = spec.privacy.window_ticks(spec.clock)
    return (
        SeenMemory(layout.windows(spec)),
        TotalMemory(layout.totals(signed=False), window),
        NetMemory(layout.totals(signed=True), window),
    )


def decoded_fields(spec: PipelineSpec, features: Iterable[Feature]) -> list[str]:
    """Return the fields that the guard and these features need, in the order in which their records are decoded."""
    names = {spec.clock.field: None} if isinstance(spec.clock, ReplayClock) else {}
    names |= dict.fromkeys(spec.privacy.guarded)
    for feature in features:
        names |= dict.fromkeys(feature.fields)
    return list(names)


def _by_tick(decoded: Decoded, ticks: IntArray | int) -> tuple[Decoded, list[int], IntArray]:
    """Return the records sorted by tick, the ticks that have records, and how many records each has."""
    if not isinstance(ticks, int):
        if (ticks[1:] < ticks[:-1]).any():
            order = np.argsort(ticks, kind="stable")
            decoded, ticks = decoded.at(order), ticks[order]
        if ticks[0] != ticks[-1]:
            distinct, numbers = np.unique(ticks, return_counts=True)
            return decoded, distinct.tolist(), numbers
        ticks = int(ticks[0])
    return decoded, [ticks], np.array([len(decoded.records)])


MOST_IN_A_SHARD = 256  # features; each change rebuilds the counters of its shard in some ms


class Told(NamedTuple):
    """An added feature in words: its first tick, the series of which it is a watch, or "", and its definition."""

    start: int
    series: str
    definition: bytes


UNTOLD = Told(0, "", b"")
AGAIN = "="
"""In place of a series' name: the definition is that of a later version, which counts in the columns of the first."""


@dataclass(slots=True)
class _Added:
    """A feature's part of the row, what is told of it, and the numbers of the series that count on it."""

    slot: Slot
    shard: "_Shard"
    told: "Told"
    users: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Shard:
    """Added features that read the same `fields`; `router` counts them (None after a change)."""

    fields: tuple[str, ...]
    members: dict[Feature | Block, _Added] = field(default_factory=dict)
    router: Router | None = None


@dataclass(frozen=True, slots=True)
class Counting:
    """What is counted beside the file's series: each of `added` from its column on, but nothing in the columns `muted`;
    the row has `width` entries. `told` says `added` in words, by column, and series that count in the file's columns.
    """

    added: Sequence[tuple[Feature | Block, int]]
    muted: Sequence[slice]
    width: int
    told: Sequence[tuple[int, Told]] = ()


@dataclass(frozen=True, slots=True)
class _Counters:
    """How `counting` is counted: all by `every`, added features also by `shards`."""

    counting: Counting
    every: Router
    shards: Sequence[Router]


class OpenRouter:
    """The router of a pipeline file, and of live series. `width` grows when a feature is opened. From `hold` to `renew`
    it counts what it counted at the hold, whatever is opened or closed meanwhile.
    """

    def __init__(
        self, spec: PipelineSpec, origin_ms: int, layout: RowLayout | None = None, key: bytes = NO_KEY
    ) -> None:  # fmt: skip
        self._spec, self._origin = spec, origin_ms
        with uncollected():
            self._base = Router(spec, origin_ms, layout, key)
        self._added: dict[Feature | Block, _Added] = {}
        self._shards: list[_Shard] = []
        self._muted: dict[int, list[slice]] = {}
        self._same: dict[int, tuple[int, Told]] = {}  # of blocks of the file's layout, by user
        self._width = self._base.width
        self._now: _Counters | None = None
        self._held: _Counters | None = None

    @property
    def width(self) -> int:
        return self._width if self._held is None else self._held.every.width

    def hold(self) -> None:
        self._held = self._held or self._counted()

    def renew(self) -> None:
        self._held = None

    def counting(self) -> Counting:
        """Return what is counted now, for another router of the pipeline."""
        return (self._held or self._counted()).counting

    def count(self, counting: Counting) -> None:
        """Count this from here on, and nothing else beside the file's series."""
        self._added.clear()
        self._shards.clear()
        for feature, column in counting.added:
            self._add(feature, column)
        self._muted = {0: list(counting.muted)}
        self._width, self._held, self._now = counting.width, None, None

    @property
    def layout(self) -> RowLayout:
        return self._base.layout

    def place(self, feature: Feature | Block) -> int:
        """Return the column where the feature's entries begin, or would begin."""
        if feature in self.layout.features:
            return self.layout.features[feature].start
        if feature in self._added:
            return self._added[feature].slot.start
        column, wanted = self._base.width, RowLayout.alone(self._spec, feature).width
        slots = sorted((added.slot for added in self._added.values()), key=lambda slot: slot.start)
        for other in slots:
            if other.start - column >= wanted:
                break
            column = max(column, other.stop)
        return column

    def open(self, feature: Feature | Block, column: int, user: int, told: Told = UNTOLD) -> slice:
        """Count the feature for `user` from here on; FailClosed: in the columns from `column` on lie other counts."""
        if not self._takes(feature, column):
            raise FailClosed(
                "the journal keeps the counts of a live series in other columns than this version "
                "does; run the version that wrote it"
            )
        if feature in self.layout.features:
            slot = self.layout.features[feature]
            if isinstance(feature, Block):  # of a later version: its watches are told, too
                self._same[user], self._now = (slot.start, told._replace(series=AGAIN)), None
            return slice(slot.start, slot.stop)
        added = self._added.get(feature) or self._add(feature, column, told)
        added.users.add(user)
        self._width = max(self._base.width, *(added.slot.stop for added in self._added.values()))
        self._now = None
        return slice(added.slot.start, added.slot.stop)

    def _takes(self, feature: Feature | Block, column: int) -> bool:
        """Return whether the feature's entries lie from this column on, or may."""
        if feature in self.layout.features or feature in self._added:
            return self.place(feature) == column
        behind = column + RowLayout.alone(self._spec, feature).width
        slots = (added.slot for added in self._added.values())
        free = all(slot.stop <= column or behind <= slot.start for slot in slots)
        return free and column >= self._base.width

    def watch(self, block: Block, column: int, user: int, told: Told) -> None:
        """Count one more watch of the series `user` from here on, in free columns within its block."""
        self._add(block, column, told).users.add(user)

    def unwatch(self, block: Feature | Block) -> None:
        shard = self._added.pop(block).shard
        del shard.members[block]
        shard.router = self._now = None
        if not shard.members:
            self._shards.remove(shard)

    def mute(self, columns: slice, user: int) -> None:
        """Let nothing count in these columns, which are those of the series `user` alone, from here on."""
        self._muted.setdefault(user, []).append(columns)
        self._now = None

    def close(self, user: int) -> None:
        self._muted.pop(user, None)
        self._same.pop(user, None)
        self._now = None
        for feature, added in list(self._added.items()):
            added.users.discard(user)
            if not added.users:
                self.unwatch(feature)

    def decode(self, batch: Batch) -> Batch:
        return (self._held or self._counted()).every.decode(batch)

    def route(self, batch: Batch) -> Routed:
        counters = self._held or self._counted()
        routed, refused = counters.every.tally(batch)
        if refused and counters.every is not self._base:
            refused = self._one_by_one(batch, routed, refused, counters)
        for columns in counters.counting.muted:
            routed.rows = {tick: without(row, columns) for tick, row in routed.rows.items()}
        routed.dead = dead(batch, refused)
        return routed

    def _add(self, feature: Feature | Block, column: int, told: Told = UNTOLD) -> _Added:
        alone = RowLayout.alone(self._spec, feature)
        fields = tuple(decoded_fields(self._spec, (part for part, _ in alone.counted(self._spec))))
        room = (shard for shard in self._shards if len(shard.members) < MOST_IN_A_SHARD)
        shard = next((shard for shard in room if shard.fields == fields), None)
        if shard is None:
            shard = _Shard(fields)
            self._shards.append(shard)
        added = _Added(Slot(column, alone.features[feature].keys), shard, told)
        self._added[feature] = shard.members[feature] = added
        shard.router = self._now = None
        return added

    def _counted(self) -> _Counters:
        if self._now is None:
            self._shards.sort(key=attrgetter("fields"))
            shards, every = [self._router(shard) for shard in self._shards], self._base
            if shards or self._width != self._base.width:
                every = self._base.beside(shards, self._width)
            added = [(feature, part.slot.start) for feature, part in self._added.items()]
            muted = list(chain.from_iterable(self._muted.values()))
            parts = ((part.slot.start, part.told) for part in self._added.values())
            told = sorted((*parts, *self._same.values()))
            self._now = _Counters(Counting(added, muted, self._width, told), every, shards)
        return self._now

    def _router(self, shard: _Shard) -> Router:
        if shard.router is None:
            slots = {feature: added.slot for feature, added in shard.members.items()}
            width = max(slot.stop for slot in slots.values())
            shard.router = Router(self._spec, self._origin, RowLayout(width, slots, {}))
        return shard.router

    def _one_by_one(
        self, batch: Batch, routed: Routed, refused: Sequence[Refusal], counters: _Counters
    ) -> list[Refusal]:
        """Add what each feature can read of the refused records; return the refusals that remain."""
        places = [refusal.position for refusal in refused]
        payloads = [batch.payloads[place] for place in places]
        again = replace(batch, payloads=payloads, decoded=None, units=batch.units_at(places))
        base, dead_for_file = self._base.tally(again)
        width = counters.every.width
        _count(routed.rows, base, width)
        for tick, number in base.records.items():
            routed.records[tick] = routed.records.get(tick, 0) + number
        why = {refusal.position: refusal for refusal in dead_for_file}
        for shard in counters.shards:
            added, dead_for_shard = shard.tally(again)
            _count(routed.rows, added, width)
            for refusal in dead_for_shard:
                why.setdefault(refusal.position, refusal)
        arrivals: dict[int, Arrivals] = {}
        for tick, arrived in chain(routed.arrived.items(), base.arrived.items()):
            arrivals.setdefault(tick, Arrivals()).add(arrived)
        routed.arrived = {tick: identifiers.once() for tick, identifiers in arrivals.items()}
        return [refusal._replace(position=places[at]) for at, refusal in why.items()]


def _count(rows: dict[int, Row], routed: Routed, width: int) -> None:
    """Add the routed rows, which may be narrower, to `rows`."""
    for tick, part in routed.rows.items():
        row = OpenRow(width)
        for counted in (rows.get(tick), part):
            if counted is not None:
                row.add(thin(counted))
        rows[tick] = row.row()
