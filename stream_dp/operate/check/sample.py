"""A sample of records: from a data file or from a topic, with the place of each.

Rules: a sample is exact and NOT PRIVATE; no journal is opened or made for it. The operator's key is read only if a
topic may hold tick marks, because a mark counts only with the signature of that key.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from stream_dp.errors import UsageError
from stream_dp.files.records import column_names, each_record
from stream_dp.journal.dead_letters import BAD_MARK, Span
from stream_dp.journal.keys import Sealer
from stream_dp.kafka.client.sample import SampledBatch, sample_topic
from stream_dp.kafka.client.tick_marks import TickMarks
from stream_dp.operate.run.settings import fields_of, settings_for
from stream_dp.pipeline.file.spec import PipelineSpec
from stream_dp.records.endpoints import KafkaSourceSpec, ReplayClock


@dataclass(frozen=True, slots=True, repr=False)
class Piece:
    """Records of one partition, up to a tick mark if there is one; `refused` are unreadable records."""

    partition: int
    payloads: Sequence[bytes]
    places: Sequence[int]
    refused: Sequence[Span] = ()
    mark: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Sample:
    """Records of `origin` in reading order; `columns` are those of a table; `lines`: places are line numbers.

    `partitions` are all partitions of a topic, also those without records.
    """

    origin: str
    pieces: Sequence[Piece]
    columns: Sequence[str] = ()
    lines: bool = False
    partitions: Sequence[int] = (0,)
    payloads: list[bytes] = field(init=False)
    places: list[tuple[int, int]] = field(init=False)

    def __post_init__(self) -> None:
        payloads = [payload for piece in self.pieces for payload in piece.payloads]
        places = [(piece.partition, place) for piece in self.pieces for place in piece.places]
        object.__setattr__(self, "payloads", payloads)
        object.__setattr__(self, "places", places)

    @property
    def refused(self) -> list[tuple[int, Span]]:
        """Unreadable records, each with its partition."""
        return [(piece.partition, span) for piece in self.pieces for span in piece.refused]

    @property
    def records(self) -> int:
        """Number of records, including unreadable ones."""
        return len(self.payloads) + sum(span.records for _, span in self.refused)

    def place(self, partition: int, place: int) -> str:
        """Return the place of a record in words."""
        if self.lines:
            return f"line {place:,}"
        return f"partition {partition}, offset {place}"


def file_sample(spec: PipelineSpec, path: Path, most: int) -> Sample:
    """Return the first `most` records of a data file.

    Raises:
        UsageError, WorldError: see `each_record`.
    """
    return next(iter(file_samples(spec, path, most)), Sample(path.name, (), lines=True))


def file_samples(spec: PipelineSpec, path: Path, most: int) -> Iterable[Sample]:
    """Return the records of a data file in samples of `most` records; raises as `file_sample`."""
    columns = column_names(path)
    found = each_record(path, fields_of(spec), _time_column(spec, path, columns), spec.own_times)
    while records := list(islice(found, most)):
        payloads, lines = [one.payload for one in records], [one.line for one in records]
        yield Sample(path.name, (Piece(0, payloads, lines),), columns, lines=True)


def _time_column(spec: PipelineSpec, path: Path, columns: Sequence[str]) -> str:
    """Return the time column; if the clock does not use one, return any column of the schema."""
    if isinstance(spec.clock, ReplayClock):
        return spec.clock.field
    if not columns:
        return next(iter(spec.fields))
    for name in spec.fields:
        if name in columns:
            return name
    raise UsageError(f"{path}: none of its columns is a field of the schema")


async def topic_sample(
    spec: PipelineSpec, topic: str, most: int, sealer: Callable[[], Sealer], *, newest: bool = True
) -> Sample:
    """Return the `most` newest (or oldest) records of each partition of a topic of the pipeline's brokers.

    Raises:
        UsageError: the pipeline names no brokers; or the topic holds tick marks, and there is no key.
        WorldError: see `sample_topic`.
    """
    if not isinstance(spec.source, KafkaSourceSpec):
        raise UsageError("--topic: this pipeline reads a file, so nothing says where the topic is")
    replayed = isinstance(spec.clock, ReplayClock)
    found = await sample_topic(
        settings_for(spec.source), topic, most,
        marks=replayed, newest=newest, limit=spec.source.largest_batch,
    )  # fmt: skip
    pieces = await asyncio.to_thread(_pieces, spec, topic, found.batches, sealer)
    return Sample(f"topic {topic}", pieces, partitions=found.partitions)


def _pieces(
    spec: PipelineSpec, topic: str, found: Sequence[SampledBatch], sealer: Callable[[], Sealer]
) -> list[Piece]:
    clock = spec.clock
    if not isinstance(clock, ReplayClock) or not any(one.records.marks for one in found):
        return [Piece(n, r.values, r.offsets, r.refused) for n, r in found]
    marks = TickMarks(sealer().mark_key(), topic, clock.grid)
    return [piece for one in found for piece in _marked(one, marks)]


def _marked(one: SampledBatch, marks: TickMarks) -> Iterable[Piece]:
    """Yield a record batch, cut at its tick marks; a false mark becomes a refused record."""
    values, offsets, refused, claims = one.records
    begin, bad = 0, list(refused)
    for at, claim in sorted(claims.items()):
        mark = marks.read(one.partition, claim)
        if mark is None:
            bad.append(Span(BAD_MARK, None, offsets[at], offsets[at]))
        yield Piece(one.partition, values[begin:at], offsets[begin:at], (), mark)
        begin = at + 1
    yield Piece(one.partition, values[begin:], offsets[begin:], bad)
