"""A file fed at a chosen speed, into a topic with tick marks or to an engine: the work behind `replay` and the demo."""

import asyncio
import hashlib
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from stream_dp.core.wording import Progress, how_many, percent, unseen
from stream_dp.engine.ports import (
    NOTHING_BEHIND,
    Batch,
    Behinds,
    Placement,
    Positions,
    Source,
    by_content,
)
from stream_dp.errors import UsageError
from stream_dp.files.memory import WrappedSource
from stream_dp.files.records import Record, RepeatedTicks, load_records, ticked
from stream_dp.journal.keys import Sealer
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.feed import KafkaFeed
from stream_dp.kafka.client.tick_marks import TickMarks
from stream_dp.operate.fitting import Reason, Sample, piece_of, reasons_of, routed
from stream_dp.operate.keys import sealer_for
from stream_dp.operate.run.settings import settings_for, settled, source_there
from stream_dp.operate.sending import known_encoding, make_topic
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_homes import placement_of
from stream_dp.pipeline.yaml import load
from stream_dp.records.cells import Sent, sent_with, value_alone
from stream_dp.records.endpoints import UTF_8, KafkaSourceSpec, ReplayClock
from stream_dp.records.schema import TimeField

_AT_ONCE = 8192
_OUT_OF_RANGE = "the clock declares start, step and horizon"
_NO_TIME = {
    "offset": "a time needs an offset, or the schema must declare its `zone:`, or the `format:` of its numbers",
    "zone": "a time is text such as 2013-01-01 10:00:00, and never null",
    "number": "a time is a whole number, as `format:` says, and never null",
    "pattern": "a time is text as the pattern of `format:` says, and never null",
}


@dataclass(frozen=True, slots=True)
class Examined:
    """The usable records of a file, in the file's order, and the reasons why the others are not usable."""

    good: Sequence[Record]
    bad: Sequence[Reason]

    @property
    def refused(self) -> int:
        """Number of records that could not be used."""
        return sum(reason.records for reason in self.bad)

    def report(self, spec: PipelineSpec, file: Path) -> Iterator[str]:
        """Yield lines for the operator's terminal; none if every record is usable. NOT PRIVATE."""
        if not self.bad:
            return
        time = spec.clock.field if isinstance(spec.clock, ReplayClock) else None
        hints = {} if time is None else _hints(spec, time)
        whole = len(self.good) + self.refused
        yield f"NOT PRIVATE: {spec.name} cannot use {self.refused:,} of the {how_many(whole, 'record')} of {file.name}:"
        for reason in self.bad:
            hint = hints.get(reason.reason) if reason.field == time else None
            advice = f" ({hint})" if hint else ""
            yield f"  {reason.name}: {reason.records:,}, the first in {reason.example}{advice}"


def examine(
    spec: PipelineSpec, records: Sequence[Record], shown: Callable[[int], None] = lambda done: None
) -> Examined:
    """Route every record as the engine would, before any is sent; `shown` receives the number of routed records.

    The pipeline's own router decides, so exactly the engine's dead letters are reported. Counts and lines are exact
    and NOT PRIVATE, for the operator's own terminal. The content of a record is never shown.
    """
    begins = range(0, len(records), _AT_ONCE)
    pieces = [piece_of(records[begin : begin + _AT_ONCE], spec.fields) for begin in begins]
    sample = Sample("", pieces, lines=True)
    why, _ = routed(spec, sample, shown)
    good = [record for at, record in enumerate(records) if at not in why]
    return Examined(good, reasons_of(sample, why))


def _hints(spec: PipelineSpec, time: str) -> dict[str, str]:
    """Return advice about the form of a time, by the reason of the refusal."""
    field = settled(spec.fields[time], TimeField)
    written = "zone" if field.zone else "offset" if field.format == "iso" else "number"
    written = "pattern" if field.form.patterned else written
    return {"time_out_of_range": _OUT_OF_RANGE, "wrong_type": _NO_TIME[written]}


CHUNK_TICKS = 200
CHUNKS_PER_SECOND = 10


@dataclass(frozen=True, slots=True)
class Fed:
    """Numbers of records that were sent, were in the topic from an earlier run, and were left out. NOT PRIVATE."""

    sent: int
    before: int
    skipped: int = 0


Speed: TypeAlias = Callable[[int], float]
"""Returns the ticks per second at a tick."""


@dataclass(frozen=True, slots=True)
class Feed:
    """The topic to feed and the speed, in ticks per second (None: as fast as possible).

    `create` makes a missing topic with this many partitions (0: never make it). After `every` ticks the records come
    again, later (None: never).
    """

    topic: str
    speed: Speed | None = None
    create: int = 0
    encoding: str = UTF_8
    every: int | None = None


async def replay_file(
    pipeline: Path,
    file: Path,
    to: Feed,
    key_file: Path | None,
    tell: Callable[[str], None],
    skip_bad: bool = False,
    progress: Progress = unseen,
) -> Fed:
    """Examine all records of `file`, then feed them into the topic `to` of the pipeline file's brokers.

    `tell` receives lines for the operator: unusable records, that the pipeline reads another topic, and that
    brokers do not answer yet. `progress` receives how much is done. With `skip_bad`, records that the pipeline
    cannot use are left out.
    """
    spec, encoding = load(pipeline), known_encoding(to.encoding)
    _, source = _replayed(spec)
    if to.topic != source.topic:
        tell(f"Warning: {spec.name} reads topic {source.topic}, not {to.topic}")
    sealer = sealer_for(spec, key_file)
    progress(f"Reading {file.name}")
    records = await loaded(spec, file, encoding)

    def shown(done: int) -> None:
        progress(f"Examining {file.name}", *percent(done, len(records)))

    examined = await asyncio.to_thread(examine, spec, records, shown)
    for line in examined.report(spec, file):
        tell(line)
    if examined.bad and not skip_bad:
        raise UsageError(
            f"{file}: {spec.name} cannot use the records that are listed above; nothing was "
            "sent. Correct the file or the schema, or add --skip-bad to leave these records out"
        )
    if examined.bad and not examined.good:
        raise UsageError(f"{file}: {spec.name} cannot use any of its records; nothing was sent")
    await source_there(spec, tell)
    fed = await feed_records(spec, sealer, examined.good, to, progress)
    return replace(fed, skipped=examined.refused)


async def loaded(spec: PipelineSpec, file: Path, encoding: str = UTF_8) -> list[Record]:
    clock, _ = _replayed(spec)
    times = clock.field, spec.own_times
    return await asyncio.to_thread(load_records, file, spec.fields, *times, encoding)


async def feed_records(
    spec: PipelineSpec,
    sealer: Sealer,
    records: Sequence[Record],
    to: Feed,
    progress: Progress = unseen,
) -> Fed:
    """Feed records, sorted by time, into a topic of the pipeline's broker, up to the end of the declared range.

    The marks are signed with the operator's key. An interrupted replay continues after its last complete tick. Raises
    FailClosed if the topic holds something else.
    """
    clock, source = _replayed(spec)
    progress("Sorting records into ticks")
    ticks = await asyncio.to_thread(ticked, records, clock.grid)
    settings, place, sent = settings_for(source), placement_of(spec), sent_with(spec.fields)
    if to.create:
        place((), range(to.create))
        await make_topic(settings, to.topic, to.create, stamped=False)
    feed_of = await asyncio.to_thread(feed_id, ticks)
    if to.every is not None:
        ticks = RepeatedTicks(ticks, to.every, clock.step)
    marks = TickMarks(sealer.mark_key(), to.topic, clock.grid, feed_of)
    first = await feed(settings, marks, ticks, to.speed, (place, sent), progress)
    before = ticks.before(first)
    return Fed(len(records) - before, before)


def _replayed(spec: PipelineSpec) -> tuple[ReplayClock, KafkaSourceSpec]:
    if not isinstance(spec.clock, ReplayClock):
        raise UsageError("replay needs a pipeline with `clock: {kind: replay, ...}`")
    if not isinstance(spec.source, KafkaSourceSpec):
        raise UsageError(
            "replay needs a pipeline with `source: {kind: kafka, ...}`, which names the topic"
        )
    return spec.clock, spec.source


async def feed(
    settings: KafkaSettings,
    marks: TickMarks,
    ticks: Sequence[Sequence[Record]],
    speed: Speed | None = None,
    how: tuple[Placement, Sent] = (by_content, value_alone),
    progress: Progress = unseen,
) -> int:
    """Send the ticks that the topic does not hold yet, at most at this speed; return the first tick sent.

    `how` says in which partition a record lies, and with which key and headers.
    """
    sender = KafkaFeed(settings, marks, *how)
    try:
        progress(f"Reading what {marks.topic} holds")
        first = await sender.open()
        begin, due = first, time.monotonic()
        while begin < len(ticks):
            progress(f"Sending to {marks.topic}", begin, len(ticks), "tick")
            now = math.inf if speed is None else speed(begin)
            chunk = max(1, round(min(CHUNK_TICKS, now / CHUNKS_PER_SECOND)))
            if now < math.inf:
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            await sender.send(begin, ticks[begin : begin + chunk])
            begin, due = begin + chunk, due + chunk / now
        return first
    finally:
        await sender.close()


def feed_id(ticks: Sequence[Sequence[Record]]) -> str:
    """Return the identity of a feed as 32 hexadecimal digits: a digest of all records and their ticks."""
    digest = hashlib.blake2b(digest_size=16)
    for records in ticks:
        digest.update(b"%d\n" % len(records))
        for record in records:
            digest.update(b"%d\n%s" % (len(record.payload), record.payload))
    return digest.hexdigest()


PAUSE = 0.1
LONGEST = 864_000


class Paced(WrappedSource):
    """`source` with at most `speed` marks a second, for the demo without a broker; at least one in `LONGEST` pauses."""

    def __init__(self, source: Source, speed: Speed) -> None:
        super().__init__(source)
        self._speed = speed
        self._waiting: deque[Batch] = deque()
        self._due = time.monotonic()  # when the next mark is

    async def seek(self, positions: Positions, behind: Behinds = NOTHING_BEHIND) -> None:
        self._waiting.clear()
        self._due = time.monotonic()
        await super().seek(positions, behind)

    async def read(self) -> Sequence[Batch]:
        """Return the batches that are due by now, at least one; empty at the end of the source."""
        if not self._waiting:
            self._waiting.extend(await super().read())
        if not self._waiting:
            return []
        await asyncio.sleep(min(LONGEST * PAUSE, max(PAUSE, self._due - time.monotonic())))
        now, taken = time.monotonic(), [self._take()]
        while self._waiting and self._due < now:
            taken.append(self._take())
        return taken

    def _take(self) -> Batch:
        batch = self._waiting.popleft()
        if batch.mark is not None:
            self._due += 1 / self._speed(batch.mark)
        return batch
