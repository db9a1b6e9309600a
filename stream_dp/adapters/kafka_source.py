"""The source as a Kafka topic, read by hand-assigned partitions, and how its records fall into ticks.

Rules: a record's tick depends on that record alone. Live, it is the broker's append stamp; a tick ends in a
partition before the first record of a later tick, or, in a silent partition, where the brokers say that nothing
older is to come. In replay, marks are records with the header `stream-dp-tick`, and a record's own time
decides its tick. Only committed records count. `split` and `split_marked` are pure. Nothing here decodes a
payload, and nothing leaves but batches; errors carry no offset.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

from stream_dp.adapters.kafka_topics import (
    KafkaSettings,
    administering,
    config,
    connect,
    deleted,
    disconnect,
    existing,
    library,
    mending,
    speaking,
)
from stream_dp.errors import FailClosed, UsageError, WorldError
from stream_dp.runtime.ports import Batch, Clock, Positions

TICK_HEADER = "stream-dp-tick"
_APPEND = {"message.timestamp.type": "LogAppendTime"}
_APPENDED = 1
_ROWS = 500
_SLICE_MS = 100
_SILENCE_S = 10.0
_stamp = attrgetter("timestamp")
_headers = attrgetter("headers")


@dataclass(frozen=True, slots=True)
class ReplayTicks:
    """Ticks close on marker records; records are placed by their own time."""


@dataclass(frozen=True, slots=True)
class StampTicks:
    """Ticks of `step_ms` by append stamp; a silent partition passes a tick `delay_ms` after its end."""

    step_ms: int
    delay_ms: int

    def __post_init__(self) -> None:
        if self.step_ms < 1 or self.delay_ms < 0:
            raise UsageError("live ticks need a step of at least 1 ms and a delay of at least 0 ms")


def split(
    partition: int, records: Sequence[Any], origin: int, step: int, marked: int
) -> tuple[list[Batch], int]:
    """Consecutive stamped records as batches of one tick each, with the marks between them.

    `marked` is the last tick marked in this partition (-1 for none); the new one is returned. A tick that
    was marked and comes again (the broker's clock stepped back) keeps its number.
    """
    stamps = list(map(_stamp, records))
    runs: Iterable[tuple[int, Sequence[Any]]] = [((stamps[0] - origin) // step, records)]
    if (min(stamps) - origin) // step != (max(stamps) - origin) // step:
        grouped = groupby(records, key=lambda record: (record.timestamp - origin) // step)
        runs = ((int(tick), list(run)) for tick, run in grouped)
    batches: list[Batch] = []
    for tick, run in runs:
        if tick - 1 > marked:
            marked = tick - 1
            batches.append(Batch(partition, (), (), run[0].offset, mark=marked))
        if tick >= 0:
            batches.append(_batch(partition, run, tick))
    return batches, marked


def split_marked(partition: int, records: Sequence[Any]) -> list[Batch]:
    """Consecutive records of a replay as batches that end at its marks.

    Raises:
        FailClosed: a mark is not a number.
    """
    if not any(map(_headers, records)):
        return [_batch(partition, records)]
    batches: list[Batch] = []
    run: list[Any] = []
    for record in records:
        mark = dict(record.headers).get(TICK_HEADER)
        if mark is None:
            run.append(record)
            continue
        if not mark.isdigit():
            raise FailClosed(f"the source has a tick marker ({TICK_HEADER}) that is not a number")
        payloads, labels = _payloads(run), _labels(run)
        batches.append(Batch(partition, payloads, labels, record.offset + 1, mark=int(mark)))
        run = []
    return [*batches, _batch(partition, run)] if run else batches


def _batch(partition: int, run: Sequence[Any], tick: int | None = None) -> Batch:
    return Batch(partition, _payloads(run), _labels(run), run[-1].offset + 1, tick)


def _payloads(run: Sequence[Any]) -> list[bytes]:
    return [record.value or b"" for record in run]


def _labels(run: Sequence[Any]) -> Sequence[int]:
    if run and run[-1].offset - run[0].offset == len(run) - 1:
        return range(run[0].offset, run[-1].offset + 1)
    return [record.offset for record in run]


class KafkaSource:
    """The `Source` port over one topic; it never joins a group and commits nothing."""

    def __init__(
        self, settings: KafkaSettings, topic: str, clock: Clock, ticks: ReplayTicks | StampTicks
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._clock = clock
        self._step_ms = self._delay_ms = 0
        if isinstance(ticks, StampTicks):
            self._step_ms, self._delay_ms = ticks.step_ms, ticks.delay_ms
        self._origin = 0
        self._reader: Any = None
        self._lookup: Any = None
        self._marked: dict[int, int] = {}
        self._ready: list[Batch] = []
        self._heard = 0.0

    @property
    def name(self) -> str:
        """The topic."""
        return self._topic

    async def open(self, origin: int) -> tuple[int, ...]:
        """Connect, check the topic, and stand at `origin`; return the partitions.

        Raises:
            WorldError: no such topic, no answer, or access denied.
            FailClosed: live ticks need a topic that stamps its records on arrival.
        """
        self._origin = origin
        partitions = await self._check()
        self._marked = dict.fromkeys(partitions, -1)
        consumer = library().AIOKafkaConsumer
        options = {**self._settings.client(), "enable_auto_commit": False}
        options |= {"auto_offset_reset": "none", "fetch_max_wait_ms": _SLICE_MS}
        self._reader = consumer(isolation_level="read_committed", **options)
        self._lookup = consumer(isolation_level="read_uncommitted", **options)
        try:
            await connect(self._settings, self._reader)
            await connect(self._settings, self._lookup)
            await self.seek({})
        except BaseException:
            await self.close()
            raise
        return partitions

    async def _check(self) -> tuple[int, ...]:
        async with administering(self._settings, f"topic {self._topic!r}") as admin:
            found = await existing(admin, self._topic)
            if found is None:
                raise WorldError(
                    f"topic {self._topic!r} does not exist at {self._settings.bootstrap}, or may not be "
                    "read: create it first, or check its name and its ACL"
                )
            if self._step_ms:
                settings = await config(admin, self._topic)
                if any(settings.get(key) != value for key, value in _APPEND.items()):
                    raise FailClosed(
                        f"topic {self._topic!r}: live ticks need stamps that its brokers set on arrival: "
                        + mending(self._settings, self._topic, _APPEND)
                    )
        return tuple(int(one["partition"]) for one in found)

    async def seek(self, positions: Positions) -> None:
        """Continue at these positions, at the origin where there is none; marks may come again.

        Raises:
            FailClosed: a position lies outside of what the topic still holds.
        """
        with speaking(self._settings, f"topic {self._topic!r}"):
            every = [self._place(one) for one in self._marked]
            begins = starts = await self._lookup.beginning_offsets(every)
            if self._step_ms:
                starts = await self._cuts(every, self._origin)
            ends = await self._lookup.end_offsets(every)
        starts = {at: positions.get(at.partition, starts[at]) for at in every}
        if not all(begins[at] <= starts[at] <= ends[at] for at in every):
            raise deleted(f"topic {self._topic!r}")
        self._ready = []
        self._heard = time.monotonic()
        self._marked = dict.fromkeys(self._marked, -1)
        self._reader.assign(every)
        for at in every:
            self._reader.seek(at, starts[at])

    async def read(self) -> Sequence[Batch]:
        """Wait for records or marks.

        Raises:
            FailClosed: records were deleted before they were read, or carry stamps of their producers.
            WorldError: no answer.
        """
        with speaking(self._settings, f"topic {self._topic!r}"):
            while not self._ready:
                fetched = await self._reader.getmany(timeout_ms=self._wait_ms(), max_records=_ROWS)
                for at, records in fetched.items():
                    self._ready += self._split(at.partition, records)
                await self._pass_silent({at.partition for at in fetched})
        ready, self._ready = self._ready, []
        return ready

    async def close(self) -> None:
        """Give the connections back."""
        clients, self._reader, self._lookup = (self._reader, self._lookup), None, None
        for client in clients:
            if client is not None:
                await disconnect(client)

    def _split(self, partition: int, records: Sequence[Any]) -> list[Batch]:
        if not self._step_ms:
            return split_marked(partition, records)
        if not records[0].timestamp_type == records[-1].timestamp_type == _APPENDED:
            raise FailClosed(
                f"topic {self._topic!r} holds records that its brokers did not stamp on arrival; start a "
                "new pipeline with an origin after the topic's setting was changed"
            )
        before = self._marked[partition]
        batches, after = split(partition, records, self._origin, self._step_ms, before)
        self._marked[partition] = after
        return batches

    def _due(self) -> int:
        """The last tick that a silent partition may have passed by now."""
        if not self._step_ms:
            return -1
        return (self._clock.now() - self._delay_ms - self._origin) // self._step_ms - 1

    def _wait_ms(self) -> int:
        """Until the next tick is due, in slices, for the clock may be a manual one."""
        if not self._step_ms:
            return _SLICE_MS
        next_tick = min(self._marked.values()) + 1
        due = self._origin + (next_tick + 1) * self._step_ms + self._delay_ms
        return min(_SLICE_MS, max(10, due - self._clock.now()))

    async def _pass_silent(self, busy: set[int]) -> None:
        """Mark the tick that is due in partitions that have nothing older to come."""
        if busy:
            self._heard = time.monotonic()
        due = self._due()
        late = [one for one, marked in self._marked.items() if marked < due and one not in busy]
        silent = [at for at in map(self._place, late) if await self._caught_up(at)]
        if silent:
            cuts = await self._cuts(silent, self._origin + (due + 1) * self._step_ms)
            self._heard = time.monotonic()
            for at in silent:
                position = await self._reader.position(at)
                if position >= cuts[at]:
                    self._marked[at.partition] = due
                    self._ready.append(Batch(at.partition, (), (), position, mark=due))
        elif time.monotonic() - self._heard > _SILENCE_S:
            await self._lookup.end_offsets([self._place(min(self._marked))])
            self._heard = time.monotonic()

    async def _caught_up(self, at: Any) -> bool:
        """Whether the reader knows of nothing that it has not given; needs no request."""
        known = self._reader.highwater(at)
        return known is not None and await self._reader.position(at) >= known

    async def _cuts(self, places: Sequence[Any], moment: int) -> dict[Any, int]:
        """The first position with a stamp at or beyond `moment`, or the end as it is after that look."""
        found = await self._lookup.offsets_for_times(dict.fromkeys(places, moment))
        ends = await self._lookup.end_offsets(places)
        return {at: ends[at] if found[at] is None else found[at].offset for at in places}

    def _place(self, partition: int) -> Any:
        return library().TopicPartition(self._topic, partition)
