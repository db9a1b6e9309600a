"""From a batch of records to tick rows: which entries of which tick's row each record counts in.

Rules: a record adds exactly its own contribution, decided by that record alone: one entry of a series, or, for a
series by a list, as many as the list has. The tick is that of the clock, or that of the record's own time. A time
outside the grid is a dead letter, an unknown category counts in `other`, null matches no condition. No await, no
queue and no Python call per record beyond the decoder's own: the rest is done by columns.
"""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from itertools import accumulate, chain, pairwise
from operator import attrgetter, itemgetter

import numpy as np

from stream_dp.core.messages import IntArray
from stream_dp.core.tick_grid import TickGrid
from stream_dp.engine.memories.user_hash import UserHash
from stream_dp.engine.memories.user_table import Hashes
from stream_dp.engine.ports import Batch
from stream_dp.engine.ticks.tick_assembler import Routed
from stream_dp.engine.ticks.tick_rows import Row, ThinRow, together
from stream_dp.journal.dead_letters import TIME_OUT_OF_RANGE, WRONG_TYPE, Span, as_spans
from stream_dp.pipeline.file.spec import PipelineSpec
from stream_dp.pipeline.routing.feature_counts import Cells, FeatureCounts
from stream_dp.pipeline.routing.layout import Feature, RowLayout
from stream_dp.pipeline.routing.user_guard import NO_KEY
from stream_dp.pipeline.routing.user_names import naming_field
from stream_dp.records.decoder import Decoded, ListDecoder, Refusal
from stream_dp.records.endpoints import ReplayClock
from stream_dp.records.identifier_columns import Texts
from stream_dp.records.own_ticks import NO_TIME, OUTSIDE, OwnTicks

__all__ = ["Routed", "Router", "RowLayout"]

_CELLS, _CELLS_EACH = (
    1 << 16,
    32,
)  # a batch has dense rows up to _CELLS entries, and _CELLS_EACH more for each record
_REASONS = {OUTSIDE: TIME_OUT_OF_RANGE, NO_TIME: WRONG_TYPE}


def dead(batch: Batch, refused: Iterable[Refusal]) -> list[Span]:
    """Return the spans that the source could not read, then those of these refusals, by their positions."""
    ordered = sorted(refused, key=itemgetter(0))
    return [*batch.refused, *as_spans((batch.labels[at], why, field) for at, why, field in ordered)]


class Router:
    """Decodes the batches of one pipeline and adds them up into tick rows."""

    def __init__(
        self,
        spec: PipelineSpec,
        origin_ms: int,
        layout: RowLayout | None = None,
        key: bytes = NO_KEY,
    ) -> None:
        """`origin_ms` is the start of tick 0 in milliseconds since 1970; `layout` is by default that of the file.

        `key` is the key of the hashes of identifiers.
        """
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
        self.counts = [
            FeatureCounts(counted, self.width, spec.fields, self.decoder.attribute, self._grid)
        ]
        if isinstance(spec.clock, ReplayClock):
            self._time_of = attrgetter(self.decoder.attribute(spec.clock.field))
            self._ticks = OwnTicks(self._grid, spec.own_times)

    def beside(self, others: Sequence["Router"], width: int) -> "Router":
        """Return a router that decodes once and counts what this one and the others count, in `width` columns.

        All are of one pipeline; no two count in the same column.
        """
        every = copy(self)
        every.width = width
        every.fields = list(dict.fromkeys(chain(self.fields, *(one.fields for one in others))))
        every.decoder = self._decoder_of(every.fields)
        every.counts = list(chain(self.counts, *(one.counts for one in others)))
        return every

    def _decoder_of(self, names: Iterable[str]) -> ListDecoder:
        return ListDecoder({name: self._schema[name] for name in names}, self._schema)

    def decode(self, batch: Batch) -> Batch:
        """Return the batch with its payloads decoded."""
        return replace(batch, decoded=self.decoder.decode(batch.payloads))

    def route(self, batch: Batch) -> Routed:
        """Add up a batch, decoding it first if nobody has; nothing that a payload holds raises.

        Raises:
            ValueError: the batch has no tick although the clock is a wall clock.
        """
        routed, refused = self.tally(batch)
        routed.dead = dead(batch, refused)
        return routed

    def tally(self, batch: Batch) -> tuple[Routed, Sequence[Refusal]]:
        """Return what the payloads add, without dead letters, and the refused records; raises like `route`."""
        if not batch.payloads:
            return Routed({}, (), {}), ()
        decoded: Decoded = batch.decoded or self.decoder.decode(batch.payloads)
        ticks: IntArray | int
        if batch.tick is None:
            decoded, ticks = self._own_ticks(decoded)
        else:
            decoded, ticks = self._given_tick(decoded, batch.tick), batch.tick
        if not decoded.records:
            return Routed({}, (), {}), decoded.refused
        decoded, names, numbers = _by_tick(decoded, ticks)
        thinly = len(names) * self.width > _CELLS + _CELLS_EACH * len(decoded.records)
        rows, texts = (self._thin if thinly else self._dense)(decoded, names, numbers)
        arrived: dict[int, dict[int, Hashes]] = {}
        for found in texts:
            for tick, column, hashes in self._hashed(found):
                arrived.setdefault(tick, {})[column] = hashes
        number = dict(zip(names, numbers.tolist(), strict=True))
        return Routed(rows, (), number, arrived), decoded.refused

    def _dense(
        self, decoded: Decoded, names: list[int], numbers: IntArray
    ) -> tuple[dict[int, Row], list[Texts]]:
        """Return the rows of these ticks, and the identifiers that came."""
        counted = np.zeros((len(names), self.width), np.int64)
        texts = [counts.write(counted, decoded, numbers, names) for counts in self.counts]
        return dict(zip(names, counted, strict=True)), texts

    def _thin(
        self, decoded: Decoded, names: list[int], numbers: IntArray
    ) -> tuple[dict[int, Row], list[Texts]]:
        """Return rows and identifiers as `_dense` does, but sparse rows.

        Room and time grow with the number of entries that are not 0.
        """
        none: IntArray = np.zeros(0, np.int64)
        cells, texts = [Cells(none, none, none)], list[Texts]()
        for counts in self.counts:
            some, found = counts.cells(decoded, numbers, names)
            cells += some
            texts.append(found)
        every = np.concatenate([each.ticks * self.width + each.columns for each in cells])
        sums = together(every, np.concatenate([each.counts for each in cells]))
        ends = np.searchsorted(sums.columns, np.arange(len(names) + 1) * self.width).tolist()
        rows: dict[int, Row] = {}
        for at, (name, (begin, end)) in enumerate(zip(names, pairwise(ends), strict=True)):
            # copies: a tick that stays open must not keep all of the batch
            rows[name] = ThinRow(
                sums.columns[begin:end] - at * self.width, sums.counts[begin:end].copy()
            )
        return rows, texts

    def _hashed(self, found: Texts) -> Iterator[tuple[int, int, Hashes]]:
        """Yield the hashes of identifiers by tick and column; those of all ticks are computed at once."""
        places = [(tick, column) for tick, columns in found.items() for column in columns]
        if not places:
            return
        texts = [texts for columns in found.values() for texts in columns.values()]
        hashes = self._hash.of(list(chain.from_iterable(texts)))
        parts = np.split(hashes, list(accumulate(map(len, texts))))
        for (tick, column), part in zip(places, parts, strict=False):
            yield tick, column, part

    def _given_tick(self, decoded: Decoded, tick: int) -> Decoded:
        if tick in self._grid:
            return decoded
        outside = [Refusal(at, TIME_OUT_OF_RANGE, self._time) for at in decoded.positions]
        return Decoded([], [], decoded.refused + outside)

    def _own_ticks(self, decoded: Decoded) -> tuple[Decoded, IntArray]:
        if self._time is None:
            raise ValueError("a wall clock needs batches that carry their tick")
        times = map(self._time_of, decoded.records)
        ticks = self._ticks.of(times, len(decoded.records))
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


def decoded_fields(spec: PipelineSpec, features: Iterable[Feature]) -> list[str]:
    """Return the fields that the guard and these features need, in the order in which their records are decoded."""
    names = {spec.clock.field: None} if isinstance(spec.clock, ReplayClock) else {}
    if spec.privacy.user is not None:
        names[spec.privacy.user] = None
    for feature in features:
        names |= dict.fromkeys(feature.fields)
    return list(names)


def _by_tick(decoded: Decoded, ticks: IntArray | int) -> tuple[Decoded, list[int], IntArray]:
    """Return the records sorted by tick, the ticks that have records, and how many records each tick has."""
    number = np.array([len(decoded.records)])
    if isinstance(ticks, int):
        return decoded, [ticks], number
    if (ticks[1:] < ticks[:-1]).any():
        order = np.argsort(ticks, kind="stable")
        decoded, ticks = decoded.at(order), ticks[order]
    if ticks[0] == ticks[-1]:
        return decoded, [int(ticks[0])], number
    distinct, numbers = np.unique(ticks, return_counts=True)
    return decoded, distinct.tolist(), numbers
