"""The source as a Kafka topic, read by hand-assigned partitions.

Rules: a record's tick depends on that record alone. Live, it is the broker's append stamp. A tick passes in a
partition at the first record stamped `settle_ms` or more after the tick's end, or, in a silent partition, at
that moment where the brokers say that nothing older is to come: so it passes at the same time with or without
an event, and its publication is held until later. Clocks: the brokers' append clocks and the engine's must
agree to within `settle_ms`, and none may step back by more; else a record is late (it goes to the late bin, and
whether it is late may depend on another record's stamp). In replay, marks and a record's own time decide.
Only committed records count. Nothing here decodes a payload, and nothing leaves but batches; errors carry no
offset.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stream_dp.adapters.kafka_client import (
    KafkaSettings,
    connect,
    deleted,
    disconnect,
    library,
    speaking,
)
from stream_dp.adapters.kafka_ticks import split, split_marked, stamped_on_arrival
from stream_dp.adapters.kafka_topics import administering, check_kept, check_stamped, existing
from stream_dp.adapters.tick_marks import TickMarks
from stream_dp.core.tick_grid import TickGrid
from stream_dp.errors import FailClosed, UsageError, WorldError
from stream_dp.runtime.ports import Batch, Clock, Positions

__all__ = ["KafkaSource", "ReplayTicks", "StampTicks", "split"]

_ROWS = 500
_SLICE_MS = 100
_SILENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class ReplayTicks:
    """Ticks close on marker records, read by `marks`; records are placed by their own time."""

    marks: TickMarks


@dataclass(frozen=True, slots=True)
class StampTicks:
    """Ticks of `step_ms` by append stamp; a partition passes a tick `settle_ms` after its end.

    Publication must be held for longer than that: what is left is for the lookups and the commit.
    """

    step_ms: int
    settle_ms: int

    def __post_init__(self) -> None:
        if self.step_ms < 1 or self.settle_ms < 0:
            raise UsageError(
                "live ticks need a step of 1 ms or more, and must settle in 0 ms or more"
            )


class KafkaSource:
    """The `Source` port over one topic; it never joins a group and commits nothing."""

    def __init__(
        self, settings: KafkaSettings, topic: str, clock: Clock, ticks: ReplayTicks | StampTicks
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._clock = clock
        self._replay = ticks if isinstance(ticks, ReplayTicks) else None
        self._stamps = ticks if isinstance(ticks, StampTicks) else None
        self._settle_ms = 0 if self._stamps is None else self._stamps.settle_ms
        self._grid: TickGrid | None = None
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
            FailClosed: the topic drops older records of a key, or live ticks lack stamps set on arrival.
        """
        self._grid = None if self._stamps is None else TickGrid(origin, self._stamps.step_ms)
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
            await check_kept(self._settings, admin, self._topic)
            if self._stamps is not None:
                await check_stamped(self._settings, admin, self._topic)
        return tuple(int(one["partition"]) for one in found)

    async def seek(self, positions: Positions) -> None:
        """Continue at these positions, at the origin where there is none; marks may come again.

        Raises:
            FailClosed: a position lies outside of what the topic still holds.
        """
        with speaking(self._settings, f"topic {self._topic!r}"):
            every = [self._place(one) for one in self._marked]
            begins = starts = await self._lookup.beginning_offsets(every)
            if self._grid is not None:
                starts = await self._cuts(every, self._grid.origin)
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
        try:
            with speaking(self._settings, f"topic {self._topic!r}"):
                while not self._ready:
                    wait_ms = self._wait_ms()
                    fetched = await self._reader.getmany(timeout_ms=wait_ms, max_records=_ROWS)
                    for at, records in fetched.items():
                        self._ready += self._split(at.partition, records)
                    await self._pass_silent({at.partition for at in fetched})
        except WorldError:
            await self._still_there()
            raise
        ready, self._ready = self._ready, []
        return ready

    async def close(self) -> None:
        """Give the connections back."""
        clients, self._reader, self._lookup = (self._reader, self._lookup), None, None
        for client in clients:
            if client is not None:
                await disconnect(client)

    def _split(self, partition: int, records: Sequence[Any]) -> list[Batch]:
        if self._replay is not None:
            return split_marked(partition, records, self._replay.marks)
        if self._grid is None or not stamped_on_arrival(records):
            raise FailClosed(
                f"topic {self._topic!r} holds records that its brokers did not stamp on arrival; start a "
                "new pipeline with an origin after the topic's setting was changed"
            )
        batches, self._marked[partition] = split(
            partition, records, self._grid, self._marked[partition], self._settle_ms
        )
        return batches

    async def _still_there(self) -> None:
        """After an error that may have any cause: a better one where the topic is gone."""
        async with administering(self._settings, f"topic {self._topic!r}") as admin:
            if await existing(admin, self._topic) is None:
                raise WorldError(
                    f"topic {self._topic!r} was deleted at {self._settings.bootstrap} while it was "
                    "read, or may not be read any more; nothing uncommitted was published"
                )

    def _due(self) -> int:
        """The last tick that has settled by now, so that a silent partition may pass it."""
        if self._grid is None:
            return -1
        return self._grid.passed(self._clock.now() - self._settle_ms)

    def _wait_ms(self) -> int:
        """Until the next tick is due, in slices, for the clock may be a manual one."""
        if self._grid is None:
            return _SLICE_MS
        due = self._grid.end(min(self._marked.values()) + 1) + self._settle_ms
        return min(_SLICE_MS, max(10, due - self._clock.now()))

    async def _pass_silent(self, busy: set[int]) -> None:
        """Mark the tick that is due in partitions that have nothing older to come."""
        if busy:
            self._heard = time.monotonic()
        due = self._due()
        late = [one for one, marked in self._marked.items() if marked < due and one not in busy]
        silent = [at for at in map(self._place, late) if await self._caught_up(at)]
        if silent and self._grid is not None:
            cuts = await self._cuts(silent, self._grid.end(due) + self._settle_ms)
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
