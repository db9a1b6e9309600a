"""The source as a Kafka topic, read in whole record batches by hand-assigned partitions.

Rules: a record's tick depends on the log alone. Live, it follows from the broker's append stamp. A tick passes in a
partition at the first batch stamped `settle_ms` or more after the tick's end. In a silent partition it passes at that
moment of the brokers' clocks, once everything is read that the brokers hold by then. So a tick passes at the same time
with or without an event, and its publication is held until later.

Clocks: no tick passes by the engine's clock. When the engine's clock says that a tick has settled, the brokers are
asked for their time, whatever was read: once a tick, and again if they answer that it is too early. If a broker's clock
certainly differs from the engine's by more than `settle_ms`, the engine stops. A record that becomes visible more than
`settle_ms` after its stamp may be late (it goes to the late bin, and whether it is late may depend on another record's
stamp). In replay, marks and a record's own time decide.

An open transaction delays nothing (unless `wait`): its records count where it is committed. Before a tick passes, the
topic is checked again: an added partition is read from its first record on, and a topic that was made again is refused.
No record stops the reader. Nothing here decodes a payload, and only batches leave this file; errors carry no offset.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from stream_dp.core.time import TickGrid
from stream_dp.engine.ports import NOTHING_BEHIND, Batch, Behinds, Clock, Positions
from stream_dp.errors import FailClosed, WorldError
from stream_dp.kafka.client.clients import (
    KafkaSettings,
    connect,
    damaged,
    deleted,
    disconnect,
    library,
    patiently,
    speaking,
)
from stream_dp.kafka.client.tick_marks import TickMarks
from stream_dp.kafka.client.topics import (
    TopicEyes,
    TopicLook,
    administering,
    check_source,
    existing,
    no_such_topic,
)
from stream_dp.kafka.log.append_clock import BrokerClocks, earliest
from stream_dp.kafka.source.batches import batches, consumer, fitting
from stream_dp.kafka.source.record_batches import Kind, RecordBatch
from stream_dp.kafka.source.ticks import (
    ROOM_BYTES,
    MarkedTicks,
    PartitionTicks,
    Place,
    Room,
    StampedTicks,
    Transaction,
    cell_of,
)
from stream_dp.kafka.source.unpacker import LIMIT_BYTES, Unpacker
from stream_dp.records.cells import Reading

_PAUSE_S = 0.1
_WAIT_MS = 3000
_RECALL_WAIT_MS = 1000
_FULL = 4
_SLICE_MS = 100
_SHORT_MS = 10
_SILENCE_S = 10.0
_log = logging.getLogger(__name__)


class TopicWatch:
    """Watches `topic`, which is read live or replayed: whether it may be read, and whether it is still the same.

    A topic is identified by its id, because a topic that was made again has the same name. In a replay's topic the
    number of partitions is fixed, because ticks would never end in an added partition.
    """

    def __init__(self, settings: KafkaSettings, topic: str, *, live: bool) -> None:
        self._settings, self._topic, self._live = settings, topic, live
        self._eyes = TopicEyes(settings, topic)
        self._first: TopicLook | None = None

    async def check(self) -> None:
        """Check that the topic exists and that its settings allow reading it; needs no `start`."""
        async with administering(self._settings, f"topic {self._topic!r}") as admin:
            if await existing(admin, self._topic) is None:
                raise no_such_topic(self._settings, self._topic)
            await check_source(self._settings, admin, self._topic, live=self._live)

    async def start(self) -> None:
        await self._eyes.start()

    async def stop(self) -> None:
        await self._eyes.stop()

    async def look(self) -> TopicLook:
        """Return the present topic; retry for a while, because brokers that have just begun know no topic.

        Raises `FailClosed` (another topic than at first, or a replay's topic has a new partition) or `WorldError`.
        """
        deadline = time.monotonic() + self._settings.patience_s
        while (now := await self._eyes.look()) is None:
            if time.monotonic() > deadline:
                raise WorldError(
                    f"topic {self._topic!r} at {self._settings.bootstrap} was deleted, or this user may "
                    "no longer read it; nothing uncommitted was published"
                )
            await asyncio.sleep(_PAUSE_S)
        first = self._first = self._first or now
        if now.id != first.id:
            raise deleted(f"topic {self._topic!r}")
        if not self._live and now.partitions != first.partitions:
            raise FailClosed(
                f"topic {self._topic!r}: partitions were added. A replay's ticks would never end, because the new "
                "partitions have no tick marks; replay into a new topic, with a new pipeline name"
            )
        return now


class Origin(NamedTuple):
    """The moment from which records count (ms), and how far stamps may step back (ms)."""

    moment: int
    settle: int

    def follows(self, batch: RecordBatch) -> bool:
        """Return whether this batch, and so every batch before it, is older than the moment."""
        back = self.settle if batch.appended else 0
        return batch.kind is not Kind.DAMAGED and batch.stamp < self.moment - back


async def start_at(reader: Any, place: Any, within: range, origin: Origin) -> int:
    """Return an offset in `within`, or its end, before which every record is older than `origin`.

    `within` ends at the broker's look-up by time, which relies on the offset that a record states about itself, and a
    record may lie; so the stamps of whole batches decide, by bisection from the last offset. In doubt the offset is too
    early, which only costs time. Nothing else may use `reader`, a consumer of whole batches, meanwhile.
    """
    low, high = within.start, within.stop
    if not within:  # with a partition but no position the client would hang for ever
        return low
    at = high - 1
    reader.assign([place])
    while low < high:
        reader.seek(place, at)
        fetched = await reader.getmany(place, timeout_ms=_WAIT_MS, max_records=1)
        read = batches(fetched.get(place, ()))
        if read and origin.follows(read[0]):
            low = at + 1
        else:
            high = at
        at = (low + high) // 2
    reader.unsubscribe()
    return low


class Recall:
    """Fetches a committed transaction again that was too large to be held, and counts its batches in `ticks`.

    `commit` ends it; `place` is the partition. One fetch at a time is held. A cancelled call may be repeated.
    """

    def __init__(
        self, ticks: PartitionTicks, transaction: Transaction, commit: RecordBatch, place: Any
    ) -> None:
        self._ticks, self._commit, self._place = ticks, commit, place
        self._next, self._end = transaction.first, transaction.end

    def begin(self, reader: Any) -> None:
        reader.assign([self._place])
        reader.seek(self._place, self._next)

    async def more(self, reader: Any) -> bool:
        """Count the batches of one fetch of `reader`; return whether the transaction continues."""
        fetched = await reader.getmany(self._place, timeout_ms=_RECALL_WAIT_MS)
        for batch in batches(fetched.get(self._place, ())):
            if batch.kind is Kind.DAMAGED:
                raise damaged(*self._place)
            if batch.base >= self._end:
                break
            if batch.kind is Kind.DATA and batch.producer == self._commit.producer:
                self._ticks.again(batch, self._commit)
            self._next = batch.next
        if self._next < self._end:
            return True
        self._ticks.ended(self._commit)
        reader.unsubscribe()
        return False


class KafkaOffsets:
    """Looks up offsets of one topic, by a client without partitions, so answers never wait behind a fetch."""

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        self._settings, self._topic = settings, topic
        self._consumer = library().AIOKafkaConsumer(
            isolation_level="read_uncommitted", enable_auto_commit=False, **settings.client()
        )

    async def start(self) -> None:
        await self._consumer.start()

    async def stop(self) -> None:
        await disconnect(self._consumer)

    async def begins(self, partitions: Iterable[int]) -> dict[int, int]:
        return await self._asked(self._consumer.beginning_offsets, partitions)

    async def ends(self, partitions: Iterable[int]) -> dict[int, int]:
        return await self._asked(self._consumer.end_offsets, partitions)

    async def cuts(self, partitions: Iterable[int], moment: int) -> dict[int, int]:
        """Return the first offset with a stamp at or after `moment` as the brokers report it, at most the end.

        That relies on the offset that a record states about itself, which may be wrong in either direction.
        """

        async def look_up(places: Any) -> dict[Any, int]:
            stamped = await self._consumer.offsets_for_times(dict.fromkeys(places, moment))
            ends = await self._consumer.end_offsets(places)
            return {
                at: ends[at] if stamped[at] is None else min(stamped[at].offset, ends[at])
                for at in places
            }

        return await self._asked(look_up, partitions)

    async def _asked(
        self, look_up: Callable[[Any], Awaitable[dict[Any, int]]], partitions: Iterable[int]
    ) -> dict[int, int]:
        places = [library().TopicPartition(self._topic, number) for number in partitions]
        about = f"topic {self._topic!r}"
        offsets = await patiently(self._settings, about, lambda: look_up(places))
        return {at.partition: int(offset) for at, offset in offsets.items()}


@dataclass(frozen=True, slots=True)
class ReplayTicks:
    """Ticks close on marker records, read by `marks`; records are placed by their own time."""

    marks: TickMarks


@dataclass(frozen=True, slots=True)
class StampTicks:
    """Ticks of `step_ms` by append stamp; a partition passes a tick `settle_ms` after its end.

    Publication must be delayed by more than that; the difference is for the lookups and the commit. Appends to
    `clock_topic` show the brokers' time; the topic is made if it is missing.
    """

    step_ms: int
    settle_ms: int
    clock_topic: str


class Share(NamedTuple):
    """The partitions of some of several lanes: partition mod lanes."""

    mine: frozenset[int]
    lanes: int

    def of(self, partitions: Sequence[int]) -> tuple[int, ...]:
        return tuple(number for number in partitions if number % self.lanes in self.mine)


EVERY = Share(frozenset({0}), 1)


class KafkaSource:
    """The `Source` port over one topic; it never joins a group and commits nothing.

    It reads the partitions of its `share`. A record batch that would expand beyond `limit` bytes is refused. With
    `wait`, records after an open transaction wait for its end. `read` makes JSON of values that are none.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        clock: Clock,
        ticks: ReplayTicks | StampTicks,
        *,
        wait: bool = False,
        limit: int = LIMIT_BYTES,
        share: Share = EVERY,
        read: Reading | None = None,
    ) -> None:
        self._share = share
        self._settings, self._topic, self._clock, self._ticks = settings, topic, clock, ticks
        self._wait, self._limit, self._read = wait, limit, read
        self._grid: TickGrid | None = None
        self._settle_ms = ticks.settle_ms if isinstance(ticks, StampTicks) else 0
        self._stamp, self._settled, self._ahead_ms, self._look_at = 0, -1, 0, 0
        self._asking: asyncio.Task[None] | None = None
        self._clients: list[Any] = []
        self._room = Room()
        self._looked = TopicLook("", ())
        self._opened: tuple[int, ...] = ()
        self._logs: dict[int, PartitionTicks] = {}
        self._queue: deque[tuple[PartitionTicks, deque[RecordBatch]]] = deque()
        self._recall: Recall | None = None
        self._ready: list[Batch] = []
        self._heard = 0.0

    @property
    def name(self) -> str:
        return self._topic

    @property
    def identity(self) -> str:
        """The topic's id, once it is open; a topic made again has the same name and another id."""
        return self._looked.id

    @property
    def grows(self) -> bool:
        """Whether added partitions are read: in a replay their ticks would never close."""
        return isinstance(self._ticks, StampTicks)

    async def open(self, origin: int) -> tuple[int, ...]:
        """Connect and check the topic, whose tick 0 begins at `origin`; return the partitions.

        Raises `WorldError`, or `FailClosed` if the topic drops older records of a key, live ticks lack stamps set on
        arrival, or a broker's clock differs from this machine's by more than `settle_ms`.
        """
        if isinstance(self._ticks, StampTicks):
            self._grid = TickGrid(origin, self._ticks.step_ms)
        self._watch = TopicWatch(self._settings, self._topic, live=self.grows)
        await self._watch.check()
        clients: list[Any] = [self._watch]
        if isinstance(self._ticks, StampTicks):
            topic = self._ticks.clock_topic
            self._clocks = BrokerClocks(self._settings, topic, self._clock.now)
            await self._clocks.check()
            clients.append(self._clocks)
        if not fitting():
            _log.warning(
                "this version of aiokafka is not the one that whole record batches are read with: records are read one "
                "by one, more slowly, and an open transaction holds ticks up"
            )
        settings = self._settings
        self._unpacker = Unpacker(marks=self._grid is None, limit=self._limit, read=self._read)
        cell = None if self._grid is None else cell_of(self._grid, self._settle_ms)
        self._reader = consumer(settings, wait=self._wait, fetch_wait_ms=_SLICE_MS, cell=cell)
        self._again = consumer(settings, wait=False, fetch_wait_ms=_SLICE_MS)
        self._offsets = KafkaOffsets(settings, self._topic)
        try:
            for client in (*clients, self._reader, self._again, self._offsets):
                self._clients.append(client)
                await connect(settings, client)
            if self._grid is not None:
                await self._ask_brokers(self._grid)
            with speaking(settings, f"topic {self._topic!r}"):
                self._looked = await self._watch.look()
            self._opened = self._share.of(self._looked.partitions)
        except BaseException:
            await self.close()
            raise
        return self._opened

    async def seek(self, positions: Positions, behind: Behinds = NOTHING_BEHIND) -> None:
        """Continue at these positions, and at the origin in partitions without one; marks may be repeated.

        Raises `FailClosed` if a position lies outside of the existing records.
        """
        every, settings = self._share.of(self._looked.partitions), self._settings
        with speaking(settings, f"topic {self._topic!r}"):
            begins = await self._offsets.begins(every)
            new = {number: begins[number] for number in every if number not in positions}
            starts = {**await self._starts(new), **positions}
            ends = await self._offsets.ends(every)
        places = [Place(number, starts[number], behind.get(number)) for number in every]
        if not all(
            begins[at.partition] <= at.begin <= at.position <= ends[at.partition] for at in places
        ):
            raise deleted(f"topic {self._topic!r}")
        self._ready.clear()
        self._queue.clear()
        self._recall = None
        self._room.left = ROOM_BYTES
        self._look_at = 0
        self._heard = time.monotonic()
        self._logs = {at.partition: self._read_from(at) for at in places}
        added = [at for at in places if at.partition not in self._opened]
        self._ready += [Batch(at.partition, (), (), at.position) for at in added]
        self._assign({at.partition: at.begin for at in places})

    async def read(self) -> Sequence[Batch]:
        """Wait for records or marks.

        Raises `FailClosed` if records were deleted before they were read, or as `open` and `TopicWatch.look`.
        """
        with speaking(self._settings, f"topic {self._topic!r}"):
            while not self._ready:
                await self._step()
        if self._grid is None and any(batch.mark is not None for batch in self._ready):
            await self._look()
        ready, self._ready[:] = self._ready[:], []
        return ready

    def known_ends(self) -> Positions:
        """Return the ends of the partitions from the last fetch of each; private. Makes no request."""
        if not self._clients:
            return {}
        known = {number: self._reader.highwater(self._place(number)) for number in self._logs}
        return {number: end for number, end in known.items() if end is not None}

    async def close(self) -> None:
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        clients, self._clients = self._clients, []
        for client in clients:
            await disconnect(client)

    def _read_from(self, place: Place) -> PartitionTicks:
        if isinstance(self._ticks, ReplayTicks):
            return MarkedTicks(place, self._unpacker, self._room, self._ready, self._ticks.marks)
        grid, settle = cast("TickGrid", self._grid), self._ticks.settle_ms
        return StampedTicks(place, self._unpacker, self._room, self._ready, grid, settle)

    async def _starts(self, begins: dict[int, int]) -> dict[int, int]:
        """Return where reading starts in partitions without a position; `begins` are their first offsets."""
        if self._grid is None or not begins:
            return begins
        origin = Origin(self._grid.origin, self._settle_ms)
        cuts = await self._offsets.cuts(begins, origin.moment)
        spans = {number: range(begin, cuts[number]) for number, begin in begins.items()}
        return {
            number: await start_at(self._again, self._place(number), span, origin)
            for number, span in spans.items()
        }

    def _assign(self, positions: Mapping[int, int]) -> None:
        self._reader.assign(list(map(self._place, positions)))
        for partition, position in positions.items():
            self._reader.seek(self._place(partition), position)

    async def _step(self) -> None:
        """Continue with the present transaction, with fetched batches, or with a new fetch."""
        if self._recall is not None:
            if not await self._recall.more(self._again):
                self._recall = None
        elif self._queue:
            await self._take()
        else:
            fetched = await self._reader.getmany(timeout_ms=self._wait_ms())
            for at, records in fetched.items():
                self._queue.append((self._logs[at.partition], deque(batches(records))))
            await self._pass_silent({at.partition for at in fetched})

    async def _take(self) -> None:
        """Take fetched batches until there are enough for one `read`; the rest stays queued."""
        log, waiting = self._queue[0]
        while waiting:
            batch = waiting[0]
            if batch.kind is Kind.DAMAGED:
                raise damaged(self._topic, log.partition)
            if self._grid is not None and batch.kind is not Kind.FOREIGN:
                if not batch.appended:
                    raise self._unstamped()
                if batch.stamp >= self._look_at:
                    await self._look(batch.stamp)
            waiting.popleft()
            if (transaction := log.take(batch)) is not None:
                self._recall = Recall(log, transaction, batch, self._place(log.partition))
                self._recall.begin(self._again)
                return
            if self._read is not None:
                await asyncio.sleep(0)  # reading values that are no JSON takes long
            if len(self._ready) >= _FULL:
                return
        self._queue.popleft()
        log.flush()

    async def _pass_silent(self, busy: set[int]) -> None:
        """Mark the settled tick in partitions where no older record can come.

        Their ends are asked for after the tick has settled by the brokers' clocks: later records have later stamps.
        Records before these ends are read first, and their stamps decide.
        """
        if busy:
            self._heard = time.monotonic()
        if self._grid is not None:
            self._ask_when_due(self._grid)
        late = [number for number, log in self._logs.items() if log.marked < self._settled]
        silent = [number for number in late if number not in busy and await self._caught_up(number)]
        if silent and self._grid is not None:
            settled = self._settled
            moment = self._grid.end(settled) + self._settle_ms
            if moment >= self._look_at:
                await self._look(moment)
            ends = await self._offsets.ends(silent)
            self._heard = time.monotonic()
            for number in silent:
                if await self._reader.position(self._place(number)) >= ends[number]:
                    self._logs[number].mark(settled)
        elif time.monotonic() - self._heard > _SILENCE_S:
            await self._look()
            self._heard = time.monotonic()

    async def _caught_up(self, partition: int) -> bool:
        """Return whether the reader knows of no unread record; makes no request."""
        at = self._place(partition)
        known = self._reader.highwater(at)
        return known is not None and await self._reader.position(at) >= known

    async def _look(self, moment: int = 0) -> None:
        """Check that the topic is unchanged, and start to read partitions that were added before `moment` or now."""
        look = await self._watch.look()
        mine = self._share.of(look.partitions)
        if added := [number for number in mine if number not in self._logs]:
            starts = await self._offsets.begins(added)
            positions = {
                number: await self._reader.position(self._place(number)) for number in self._logs
            }
            for number in added:
                self._logs[number] = self._read_from(Place(number, starts[number]))
                self._ready.append(Batch(number, (), (), starts[number]))
            self._assign({**positions, **starts})
        self._looked = look
        if self._grid is not None:
            passed = self._grid.passed(max(moment, self._stamp) - self._settle_ms)
            self._look_at = self._grid.end(passed + 1) + self._settle_ms

    def _unstamped(self) -> FailClosed:
        return FailClosed(
            f"topic {self._topic!r} holds records that its brokers did not stamp on arrival; start a "
            "new pipeline with an origin after the topic's setting was changed"
        )

    def _ask_when_due(self, grid: TickGrid) -> None:
        """Ask for the brokers' time if it is due, in a task: a slow broker must not delay reading."""
        if self._asking is not None and self._asking.done():
            asked, self._asking = self._asking, None
            asked.result()
        if self._asking is None and self._due(grid) > self._settled:
            self._asking = asyncio.create_task(self._ask_brokers(grid))

    def _due(self, grid: TickGrid) -> int:
        """Return the last tick that should have settled by this machine's clock, less its certain lead."""
        return grid.passed(self._clock.now() - self._ahead_ms - self._settle_ms)

    async def _ask_brokers(self, grid: TickGrid) -> None:
        """Compute the settled tick from the brokers' clocks; the earliest clock decides."""
        stamps = await self._clocks.ask()
        self._stamp = max(self._stamp, earliest(stamps, self._settle_ms))
        self._ahead_ms = max(0, *(-stamp.difference.most for stamp in stamps))
        self._settled = max(self._settled, grid.passed(self._stamp - self._settle_ms))

    def _wait_ms(self) -> int:
        """Return the time until the next tick is due, in slices: the clock may be manual, brokers may answer."""
        if self._grid is None:
            return _SLICE_MS
        if self._asking is not None:
            return _SHORT_MS
        marked = min(log.marked for log in self._logs.values())
        due = self._grid.end(marked + 1) + self._settle_ms + self._ahead_ms
        return min(_SLICE_MS, max(_SHORT_MS, due - self._clock.now()))

    def _place(self, partition: int) -> Any:
        return library().TopicPartition(self._topic, partition)
