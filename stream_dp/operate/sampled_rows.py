"""The rows that a sample's records would make, and what windows of these hold. Exact and NOT PRIVATE.

Rules: rows are those of the pipeline's own guard, router and memories, so they have what would count. Typical totals
are averages over the whole windows that the sample covers; where it covers none, what adds up is taken at the sample's
rate, and of the rest nothing is known. No journal is opened or made; nothing is charged or published.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from stream_dp.core.mechanism import IntArray
from stream_dp.core.wording import how_many
from stream_dp.engine.memories import Memories
from stream_dp.engine.ports import Batch
from stream_dp.engine.tick_assembler import Cut, Routed, TickAssembler
from stream_dp.engine.tick_reader import EveryRecord
from stream_dp.errors import UsageError
from stream_dp.operate.fitting import Piece, Sample
from stream_dp.pipeline.builder import Chosen
from stream_dp.pipeline.layout import RowLayout
from stream_dp.pipeline.report import span_of
from stream_dp.pipeline.router import Router, memories_of
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_guard import NO_KEY, guard_of
from stream_dp.records.endpoints import ReplayClock
from stream_dp.records.record_columns import numbers_of
from stream_dp.statistics.parts.choice import ENDLESS, Floats

MOST_CELLS = 1 << 26  # numbers of all rows of a sample: half a gigabyte


@dataclass(frozen=True, repr=False)
class Rows:
    """The rows of a sample's ticks, shape (ticks, width), from tick `first` on. Exact and NOT PRIVATE."""

    first: int
    rows: IntArray

    def totals(self, columns: slice, span: int, *, adds_up: bool) -> Floats | None:
        """Return the average totals of windows of so many ticks; None where the sample covers none, unless they add up
        at the sample's rate.
        """
        own, ticks = self.rows[:, columns], len(self.rows)
        begins = range(-self.first % span, ticks - span + 1, span)
        if begins:
            sums = [own[begin : begin + span].sum(axis=0) for begin in begins]
            averages: Floats = np.mean(sums, axis=0)
            return averages
        return own.sum(axis=0) * (span / ticks) if adds_up and ticks else None


def usable(spec: PipelineSpec, sample: Sample) -> Sample:
    """Return the sample without the records that some field of the pipeline's series makes dead letters."""
    router, pieces = Router(spec, 0, RowLayout.of(spec)), list[Piece]()
    for piece in sample.pieces:
        everything = Batch(piece.partition, piece.payloads, range(len(piece.payloads)), 0)
        kept = router.decode(everything).decoded.positions
        payloads, places = ([held[at] for at in kept] for held in (piece.payloads, piece.places))
        pieces.append(replace(piece, payloads=payloads, places=places))
    return replace(sample, pieces=pieces)


def out_of_order(spec: PipelineSpec, sample: Sample) -> bool:
    """Return whether most of the later half of a file's sample is of ticks that its first half has passed."""
    router = Router(spec, spec.clock.start or 0, RowLayout.of(spec))
    [piece] = sample.pieces
    halves = np.array_split(np.arange(len(piece.payloads)), 2)
    parts = [[piece.payloads[at] for at in half] for half in halves]
    batches = [Batch(piece.partition, part, range(len(part)), 0) for part in parts]
    whole = (_whole_amounts(spec, router, router.decode(batch)) for batch in batches)
    first, later = (router.route(batch).records for batch in whole)
    passed = sum(records for tick, records in later.items() if tick < max(first, default=0))
    return 2 * passed > sum(later.values())


def rows_of(spec: PipelineSpec, sample: Sample, *, guarded: bool = True) -> Rows:
    """Return the rows of a sample; none where nothing says when its records came, or where all are dead.

    Ticks that the sample may hold only in part are left out, where there are others. Not `guarded`, records count that
    caps of users would cut off.
    """
    layout = RowLayout.of(spec)
    nothing = Rows(0, np.zeros((0, layout.width), np.int64))
    replayed, step = isinstance(spec.clock, ReplayClock), spec.clock.step
    stamps = [piece.stamp for piece in sample.pieces if piece.stamp is not None and piece.payloads]
    if not replayed and not stamps:
        return nothing
    origin = (spec.clock.start or 0) if replayed else min(stamps) - min(stamps) % step
    router = Router(spec, origin, layout)
    guard = guard_of(spec, origin, NO_KEY) if guarded else EveryRecord()
    guard.begin(sample.partitions)
    routed: list[tuple[Batch, Routed]] = []
    ticks_of: dict[int, set[int]] = {}
    for piece in sample.pieces:
        tick = None if replayed else ((piece.stamp or origin) - origin) // step
        places = range(len(piece.payloads))
        read = router.decode(Batch(piece.partition, piece.payloads, places, 0, tick))
        every = _whole_amounts(spec, router, read)
        batch = guard.admit(every, -1)
        rows = router.route(batch)
        routed.append((batch, rows))
        there = rows if batch is every else router.route(every)
        ticks_of.setdefault(piece.partition, set()).update(there.records)
    first, last = _covered(spec, [ticks for ticks in ticks_of.values() if ticks])
    if last < first:
        return nothing
    if (last - first + 1) * max(1, layout.width) > MOST_CELLS:
        raise UsageError(
            "--sample: these records lie in too many ticks for rows of this width: take fewer "
            "records"
        )
    ticks = TickAssembler(sample.partitions, layout.width, Cut(next_tick=first))
    for batch, rows in routed:
        ticks.add(batch, rows)
    for partition in sample.partitions:
        ticks.add(Batch(partition, (), (), 1, mark=last), Routed({}, (), {}))
    closed, _ = Memories(*memories_of(layout, spec)).record(ticks.closed(last - first + 1))
    return Rows(first, np.stack([tick.row for tick in closed]))


def _whole_amounts(spec: PipelineSpec, router: Router, batch: Batch) -> Batch:
    """Return a batch whose records add all that they have to a total that series share, which no guard has limited."""
    decoded, units = batch.decoded, dict[str, IntArray]()
    shared = {series.shares for series in spec.counted}
    for total in (total for total in spec.privacy.shared if total.of in shared):
        read = numbers_of(spec.fields[total.of], router.decoder.attribute(total.of))
        units[total.of] = np.zeros(len(batch.payloads), np.int64)
        units[total.of][np.asarray(decoded.positions, np.int64)] = total.amount.of(
            read(decoded.records)
        )
    return replace(batch, units=units)


def _covered(spec: PipelineSpec, ticks: Sequence[set[int]]) -> tuple[int, int]:
    """Return the first and the last tick that a sample holds in full, as far as it shows: by partition the `ticks` that
    have records, whether or not they count.

    A file is read from its beginning, so its last tick may be cut; the newest records of each partition begin somewhere
    in a tick, and end in one that is still open.
    """
    if not ticks:
        return 0, -1
    first, last = min(map(min, ticks)), max(map(max, ticks))
    whole = max(map(min, ticks)) + 1, last - 1
    if isinstance(spec.clock, ReplayClock):
        whole = first, last - (last + 1 != spec.clock.horizon)
    return whole if whole[0] <= whole[1] else (first, last)


@dataclass(frozen=True)
class Sampled:
    """The totals that a sample shows of the series of a pipeline."""

    spec: PipelineSpec
    rows: Rows

    @cached_property
    def _layout(self) -> RowLayout:
        return RowLayout.of(self.spec)

    def rated(self, window: str) -> bool:
        """Return whether a window is longer than the sample, so that its totals are those of the sample's rate."""
        return self._span(window) > len(self.rows.rows)

    def _span(self, window: str) -> int:
        return span_of(window, self.spec.clock.step, (self.spec.clock.horizon or ENDLESS) - 1)

    def __call__(self, chosen: Chosen, window: str, width: int) -> Floats | str:
        span = self._span(window)
        adds_up = chosen.spec.identifier is None and not chosen.spec.totals
        columns = self._layout.slice(chosen.spec.name)
        totals = self.rows.totals(columns, span, adds_up=adds_up)
        if totals is None:
            length = (
                how_many(span, "tick") if len(self.rows.rows) else "records that say their time"
            )
            return f"a sample of {length}"
        return totals
