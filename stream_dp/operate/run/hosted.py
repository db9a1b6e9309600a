"""Lanes in a host: any program that reads a pipeline's topic with a client of its own, and appends rows to a log.

Rules: a host gives what it read in the order of offsets, and hears all rows of its lanes' logs in theirs; it appends
what a lane makes. It may then die, repeat and restart as it likes: rows that came before, or follow nothing, do not
count. It hands over committed records alone. It holds the keys of a worker. docs/rows.md is the contract.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from stream_dp.core.time import TickGrid
from stream_dp.engine.lanes.rows import COUNTING, Layout, LayoutLog, RowSealer, Sealed
from stream_dp.engine.lanes.workers import LaneWork, Overtaken
from stream_dp.engine.ports import Batch
from stream_dp.errors import FailClosed, UsageError
from stream_dp.journal.keys import WorkerKeys
from stream_dp.kafka.client.tick_marks import TickMarks
from stream_dp.kafka.source.batches import batches
from stream_dp.kafka.source.ticks import MarkedTicks, PartitionTicks, Place, Room, StampedTicks
from stream_dp.kafka.source.unpacker import Unpacker
from stream_dp.operate.keys import worker_keys_for
from stream_dp.operate.run.settings import settled
from stream_dp.pipeline.fingerprints import fingerprint
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_guard import guard_of
from stream_dp.pipeline.yaml import load
from stream_dp.records.endpoints import KafkaSourceSpec, WallClock, Workers

__all__ = ["HostedLane", "LaneHost", "Overtaken", "RawRecord"]
Pair: TypeAlias = tuple[Iterable[tuple[str, bytes]], bytes]
"""The headers and the value of a record."""


class RawRecord(NamedTuple):
    """A record of the source. `timestamp` is in ms; the type 1 is the time of arrival, that brokers set."""

    offset: int
    value: bytes | None
    timestamp: int
    timestamp_type: int = 1
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()

    def __repr__(self) -> str:
        return "<RawRecord>"


class LaneHost:
    """Makes the lanes of a pipeline under one layout."""

    def __init__(self, spec: PipelineSpec, keys: WorkerKeys, layout: Layout) -> None:
        """Raises `FailClosed` if the engine that laid the layout counts otherwise, and `UsageError` if no workers read
        the pipeline's source.
        """
        source, workers = workers_of(spec)
        self.spec, self.keys, self.layout, self.source = spec, keys, layout, source
        self.sealer = sealer_of(spec, keys)
        if layout.counting != COUNTING:
            raise FailClosed(
                f"{spec.name}: its engine counts as version {layout.counting} of counting, this worker as version "
                f"{COUNTING}: let both run one version of stream_dp, the engine first"
            )
        if (layout.fingerprint, layout.lanes) != (fingerprint(spec), workers.lanes):
            raise FailClosed(
                f"{spec.name}: its engine runs another pipeline file than this worker; give both the same"
            )
        self.router = OpenRouter(spec, layout.origin, None, keys.users)
        if self.router.width != layout.width:
            raise FailClosed(
                f"{spec.name}: its engine counts other series than this worker's file has"
            )

    @classmethod
    def of(
        cls, pipeline: str | Path, key_file: str | Path | None, layouts: Iterable[Pair]
    ) -> "LaneHost | None":
        """Return a host under the newest layout among all records of `NAME.private.layout`; None if none is whole.

        `key_file` holds what `stream-dp worker --export-key` wrote, or the operator's key (default:
        STREAM_DP_KEY_FILE).
        """
        spec = load(Path(pipeline))
        keys = worker_keys_for(spec, None if key_file is None else Path(key_file))
        log = LayoutLog(sealer_of(spec, keys))
        for headers, value in layouts:
            log.take(Sealed(tuple(headers), value))
        return None if log.newest is None else cls(spec, keys, log.newest)

    def work(self, lane: int) -> LaneWork:
        """Return a lane that takes batches of a `Source`, and gives plain rows."""
        guard = guard_of(self.spec, self.layout.origin, self.keys.users)
        return LaneWork(self.layout, lane, guard, self.router, marked=not self.live)

    def lane(self, number: int) -> "HostedLane":
        """Return a lane that takes raw records, and gives sealed rows."""
        return HostedLane(self, number)

    @property
    def live(self) -> bool:
        return isinstance(self.spec.clock, WallClock)


def workers_of(spec: PipelineSpec) -> tuple[KafkaSourceSpec, Workers]:
    """Return the source that workers read; raises `UsageError` if they do not."""
    source = settled(spec.source, KafkaSourceSpec)
    if source.workers is None:
        raise UsageError(
            f"{spec.name}: no workers read its source; `source: workers: {{lanes: N}}` says so, for good"
        )
    return source, source.workers


def sealer_of(spec: PipelineSpec, keys: WorkerKeys) -> RowSealer:
    _, workers = workers_of(spec)
    return RowSealer(keys.rows, spec.name, pad=workers.pad)


class HostedLane:
    """A lane, from raw records to sealed rows.

    First `hear` the records of the lane's log of rows, from `place` on; then `begin`, and give records from where that
    says. After any `Overtaken`, and after any other error of the host, make a new one.
    """

    def __init__(self, host: LaneHost, number: int) -> None:
        self._host, self._number = host, number
        self._work = host.work(number)
        self._out: list[Batch] = []
        self._logs: dict[int, PartitionTicks] = {}

    @property
    def place(self) -> int:
        """Where in the lane's log to begin to hear."""
        return self._host.layout.places[self._number]

    def hear(self, headers: Iterable[tuple[str, bytes]], value: bytes) -> None:
        """Learn of the next record of the lane's log, its own ones too. Raises `Overtaken` or `FailClosed`."""
        record = Sealed(tuple(headers), value)
        self._work.heard(*self._host.sealer.row(self._number, record))

    def begin(self, starts: Mapping[int, int]) -> dict[int, int]:
        """Return where to read each partition: where the last row that counts ends, or at its place in `starts`, which
        names the begin of each partition of the lane that is there now.
        """
        layout, cut = self._host.layout, self._work.chain.cut
        every = sorted({*starts, *cut.positions})
        for partition in every:
            self._require_mine(partition)
        missing = [
            at for at in layout.first if at % layout.lanes == self._number and at not in every
        ]
        if missing:
            raise UsageError(
                f"lane {self._number}: `starts` must name each of its partitions; missing: {missing}"
            )
        if cut.behind:
            raise FailClosed(
                f"lane {self._number}: the last row that counts was written by a worker amid an open transaction, "
                "which a host of committed records cannot go on with: let a worker read this lane, or set "
                "`open_transactions: wait` from the first start on"
            )
        self._work.begin(every)
        places = {at: cut.positions.get(at, starts.get(at, 0)) for at in every}
        self._logs = {at: self._read_from(at, place) for at, place in places.items()}
        return places

    def feed(self, partition: int, records: Sequence[RawRecord]) -> None:
        """Take the next records of a partition, in their order. What came before is dropped, so repeats do no harm.

        Records are any objects with the attributes of `RawRecord`. A partition that `begin` did not name is taken for
        one that was added to the topic; it counts from its first record on.
        """
        if not records:
            return
        log = self._logs.get(partition)
        if log is None:
            self._require_mine(partition)
            log = self._logs[partition] = self._read_from(partition, records[0].offset)
            self._work.take(Batch(partition, (), (), records[0].offset))
        fresh = [record for record in records if record.offset >= log.position]
        if self._host.live and any(record.timestamp_type != 1 for record in fresh):
            raise FailClosed(
                "the source holds records that its brokers did not stamp on arrival; set message.timestamp.type="
                "LogAppendTime, and start a new pipeline with an origin after that"
            )
        for batch in batches(fresh):
            log.take(batch)
        log.flush()
        self._take()

    def quiet(self, partition: int, stamp: int, end: int) -> None:
        """Learn that, after the brokers' clocks showed `stamp` (ms), the partition's end was at offset `end`.

        If all before it was fed, ticks that have settled by then end here. Only a live clock needs this.
        """
        log, clock = self._logs[partition], self._host.spec.clock
        if isinstance(clock, WallClock) and log.position >= end:
            grid = TickGrid(self._host.layout.origin, clock.step)
            if (passed := grid.passed(stamp - clock.delay // 2)) > log.marked:
                log.mark(passed)
        self._take()

    def rows(self) -> list[Sealed]:
        """Return the next records to append to the lane's log, in this order. Raises `Overtaken`."""
        return [self._host.sealer.record(*made) for made in self._work.rows()]

    def _take(self) -> None:
        taken, self._out[:] = self._out[:], []
        for batch in taken:
            self._work.take(batch)

    def _require_mine(self, partition: int) -> None:
        lanes = self._host.layout.lanes
        if partition % lanes != self._number:
            raise UsageError(
                f"partition {partition} is not of lane {self._number} but of lane {partition % lanes}: a lane is the "
                f"partitions p with p mod {lanes} = its number"
            )

    def _read_from(self, partition: int, position: int) -> PartitionTicks:
        host, clock = self._host, self._host.spec.clock
        read, limit = host.source.read(host.spec.fields), host.source.largest_batch
        unpacker = Unpacker(marks=not host.live, limit=limit, read=read)
        place, room = Place(partition, position), Room()
        if isinstance(clock, WallClock):
            grid = TickGrid(host.layout.origin, clock.step)
            return StampedTicks(place, unpacker, room, self._out, grid, clock.delay // 2)
        marks = TickMarks(host.keys.marks, host.source.topic, clock.grid)
        return MarkedTicks(place, unpacker, room, self._out, marks)
