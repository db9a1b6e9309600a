"""How well a pipeline can use a sample: reasons with an example place each, shares, fields, and hints.

Rules: the pipeline's own router decides. Everything here is exact and NOT PRIVATE, for the operator's own terminal
alone. Nothing is charged, committed or published.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stream_dp.engine.ports import Batch
from stream_dp.journal.dead_letters import TIME_OUT_OF_RANGE, WRONG_PARTITION
from stream_dp.operate.check.field_fit import FieldFit, field_fits
from stream_dp.operate.check.hints import Hint, hints
from stream_dp.operate.check.sample import Sample
from stream_dp.pipeline.file.spec import PipelineSpec
from stream_dp.pipeline.routing.router import Router
from stream_dp.pipeline.routing.user_guard import NO_KEY, guard_of
from stream_dp.pipeline.routing.user_homes import PARTITIONERS
from stream_dp.pipeline.routing.user_placement import placement_of
from stream_dp.records.endpoints import KafkaSourceSpec, ReplayClock
from stream_dp.records.groupings import grouping_fields

_WITH_OTHER = ("category", "list")  # field types whose series have an entry `other`


@dataclass(frozen=True, slots=True)
class Reason:
    """Number of records that one reason makes unusable; `field` is its cause if known, `example` a place."""

    reason: str
    field: str | None
    records: int
    example: str

    @property
    def name(self) -> str:
        """Reason and field in words."""
        return self.reason if self.field is None else f"{self.reason} in {self.field}"


@dataclass(frozen=True, slots=True)
class Fitting:
    """Numbers of sample records: all, `dead` (unusable), `late` (after a mark of their tick), `other`, `null`.

    A record counts in `other` if a field by which a series groups is null or outside of its domain; `null` counts
    the records with a null.
    """

    origin: str
    records: int
    dead: int
    late: int
    other: int
    null: int
    reasons: Sequence[Reason]
    fields: Sequence[FieldFit]
    hints: Sequence[Hint]

    @property
    def wholly_refused(self) -> bool:
        """Whether there are records and none of them can be used."""
        return 0 < self.records == self.dead

    def share(self, records: int) -> float:
        """Return the share of the sample, from 0 to 1, that this number of records is."""
        return records / self.records if self.records else 0.0


def fitting_of(spec: PipelineSpec, sample: Sample) -> Fitting:
    """Route a sample as the engine would.

    Raises:
        UsageError: users are protected, but the source does not declare how they are placed on several partitions.
    """
    why, late = _routed(spec, sample)
    fits = field_fits(spec, sample.payloads)
    outside = [at for at, (reason, _) in why.items() if reason == TIME_OUT_OF_RANGE]
    reasons = _reasons(sample, why)
    grouped = {name for series in spec.series for name in grouping_fields(series.grouped_by)}
    by = [fit for fit in fits if fit.name in grouped and fit.type in _WITH_OTHER]
    null = {at for fit in by for at in fit.null} - why.keys()
    other = ({at for fit in by for at in fit.other} - why.keys()) | null
    astray = [at for at, (reason, _) in why.items() if reason == WRONG_PARTITION]
    suggested = hints(spec, sample.payloads, fits, outside, sample.columns)
    return Fitting(
        sample.origin, sample.records, sum(each.records for each in reasons), late, len(other),
        len(null), reasons, fits, [*partitioner_hints(spec, sample, astray), *suggested],
    )  # fmt: skip


def _routed(spec: PipelineSpec, sample: Sample) -> tuple[dict[int, tuple[str, str | None]], int]:
    """Return reason and field for each position that cannot be used, and the number of records behind their mark.

    Raises:
        UsageError: users are protected, but the source does not declare how they are placed on several partitions.
    """
    replayed = isinstance(spec.clock, ReplayClock)
    router, guard = Router(spec, start := spec.clock.start or 0), guard_of(spec, start, NO_KEY)
    guard.begin(sample.partitions)
    why: dict[int, tuple[str, str | None]] = {}
    marked: dict[int, int] = {}
    late = begin = 0
    for piece in sample.pieces:
        places = range(begin, begin + len(piece.payloads))
        begin = places.stop
        tick = None if replayed else 0
        batch = Batch(piece.partition, piece.payloads, places, begin, tick)
        mark = marked.get(piece.partition, -1)
        routed = router.route(guard.admit(batch, mark))
        for span in routed.dead:
            why |= dict.fromkeys(range(span.first, span.last + 1), (span.reason, span.field))
        late += sum(records for tick, records in routed.records.items() if tick <= mark)
        marked[piece.partition] = max(mark, -1 if piece.mark is None else piece.mark)
    return why, late


def _reasons(sample: Sample, why: dict[int, tuple[str, str | None]]) -> list[Reason]:
    """Return the reasons, the most frequent first."""
    found: dict[tuple[str, str | None], list[Any]] = {}
    for at, kind in sorted(why.items()):
        found.setdefault(kind, [0, sample.place(*sample.places[at])])[0] += 1
    for partition, span in sample.refused:
        kind = span.reason, span.field
        found.setdefault(kind, [0, sample.place(partition, span.first)])[0] += span.records
    reasons = [Reason(*kind, records, place) for kind, (records, place) in found.items()]
    return sorted(reasons, key=lambda each: -each.records)


def partitioner_hints(spec: PipelineSpec, sample: Sample, astray: Sequence[int]) -> list[Hint]:
    """Return hints that name a partitioner which explains the partitions of most records at `astray`."""
    if not astray or not isinstance(spec.source, KafkaSourceSpec):
        return []
    payloads = [sample.payloads[at] for at in astray]
    lie = [sample.places[at][0] for at in astray]
    found = []
    for other in sorted(PARTITIONERS.keys() - {spec.source.partitioner}):
        source = spec.source.model_copy(update={"partitioner": other})
        put = placement_of(spec.model_copy(update={"source": source}))(payloads, sample.partitions)
        explained = sum(map(int.__eq__, put, lie))
        if 2 * explained > len(lie):
            says = f"records lie where `partitioner: {other}` puts their users; declare that in `source:`"
            found.append(Hint(says, explained))
    return found
