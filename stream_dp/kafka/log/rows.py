"""The rows of workers: `NAME.private.rows`, with a partition for each lane, and `NAME.private.layout`, with one.

Rules: rows are written by any number of idempotent producers, without transactions; what counts is decided by their
order (`engine.lanes.rows`). Layouts are written under the pipeline's lease. Both are sealed; kind, lane, tick and epoch
stand in headers. No offsets are committed: a worker's membership in the group `NAME.workers` says that it lives, and
which lanes it should read, and correctness never depends on it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from stream_dp.engine.lanes.rows import (
    LAYOUT,
    LaneRow,
    Layout,
    LayoutLog,
    RowSealer,
    Sealed,
    Stamp,
    another_log,
    encoded,
)
from stream_dp.engine.ports import Positions
from stream_dp.errors import FailClosed
from stream_dp.kafka.client.clients import (
    KEPT,
    RECORD_BYTES,
    KafkaSettings,
    connect,
    disconnect,
    library,
    patiently,
    speaking,
)
from stream_dp.kafka.client.topics import TopicEyes, TopicLook, administering, ensure, existing
from stream_dp.kafka.log.journal import PART_BYTES
from stream_dp.kafka.log.lease import SESSION_S, KafkaLease, Outgoing

_HINTS = {"max.message.bytes": str(RECORD_BYTES)}
_POLL_MS = 200
_AT_ONCE = 500
_NEVER_MS = 2**31 - 1
_JOINING_S = 3 * SESSION_S  # a group waits for members that have died until their sessions end


class KafkaRows:
    """The `Rows` port of the engine, which has a `lease`, and what a worker reads and writes."""

    def __init__(
        self,
        settings: KafkaSettings,
        pipeline: str,
        sealer: RowSealer,
        lanes: int,
        fingerprint: str,
        file: bytes = b"",
        lease: KafkaLease | None = None,
    ) -> None:
        self.lanes, self.fingerprint, self.file = lanes, fingerprint, file
        self.settings, self._sealer, self._lease = settings, sealer, lease
        self.topic, self._layouts = f"{pipeline}.private.rows", f"{pipeline}.private.layout"
        self._clients: list[Any] = []
        self._log = LayoutLog(sealer)
        self._laid: deque[int] = deque(maxlen=2)

    async def open(self) -> str:
        settings = self.settings
        if (look := await self._look()) is not None and len(look.partitions) != self.lanes:
            raise FailClosed(
                f"source.workers.lanes: topic {self.topic!r} has {len(look.partitions)} partitions, "
                f"which fixes the number of lanes of this pipeline, but the file says {self.lanes}"
            )
        if self._lease is not None:
            await ensure(settings, self._layouts, KEPT, _HINTS)
            await ensure_rows(settings, self.topic, self.lanes)
        if not self._clients:
            self._layout_reader = self._consumer("read_committed")
            self._reader = self._consumer("read_uncommitted")
            self._offsets = self._consumer("read_uncommitted")
            self._clients += (self._layout_reader, self._reader, self._offsets)
            for client in self._clients:
                await connect(settings, client)
            place = self._place(self._layouts)
            self._layout_reader.assign([place])
            with speaking(settings, f"topic {self._layouts!r}"):
                await self._layout_reader.seek_to_beginning(place)
        look = look or await self._look()
        if look is None:
            raise another_log(0)
        return look.id

    async def _look(self) -> TopicLook | None:
        eyes = TopicEyes(self.settings, self.topic)
        try:
            with speaking(self.settings, f"topic {self.topic!r}"):
                await eyes.start()
            return await eyes.look()
        finally:
            await eyes.stop()

    async def made(self) -> bool:
        """Return whether an engine has made the topics."""
        async with administering(self.settings, f"topic {self.topic!r}") as admin:
            return all([await existing(admin, topic) for topic in (self._layouts, self.topic)])

    async def layout(self) -> Layout | None:
        reader, place = self._layout_reader, self._place(self._layouts)
        end = (await self._ends_of(reader, [place]))[place]
        with speaking(self.settings, f"topic {self._layouts!r}"):
            while await reader.position(place) < end:
                try:
                    fetched = await reader.getmany(place, timeout_ms=_POLL_MS)
                except library(".errors").OffsetOutOfRangeError:  # read long ago, and deleted since
                    await reader.seek_to_beginning(place)
                    continue
                for record in fetched.get(place, ()):
                    if parts := self._log.take(Sealed(record.headers, record.value)):
                        self._laid.append(record.offset - parts + 1)
        return self._log.newest

    async def lay(self, layout: Layout) -> None:
        if self._lease is None:
            raise TypeError("only the engine writes layouts")
        stamp = Stamp(LAYOUT, -1, layout.tick, layout.epoch)
        await self._lease.start()
        headers, sealed = self._sealer.record(stamp, encoded(layout))
        parts = [sealed[at : at + PART_BYTES] for at in range(0, len(sealed), PART_BYTES)]
        count = ("parts", b"%d" % len(parts))
        await self._lease.transact(
            [
                Outgoing(self._layouts, part, headers=(*headers, ("part", b"%d" % at), count))
                for at, part in enumerate(parts)
            ]
        )

    async def ends(self) -> dict[int, int]:
        ends = await self._ends_of(self._offsets, self._places(range(self.lanes)))
        return {place.partition: int(end) for place, end in ends.items()}

    async def follow(self, places: Positions) -> None:
        every = self._places(places)
        begins = await self._asked(self._offsets.beginning_offsets, every)
        ends = await self._ends_of(self._offsets, every)
        for place in every:
            if not begins[place] <= places[place.partition] <= ends[place]:
                raise another_log(place.partition)
        self._reader.assign(every)
        for place in every:
            self._reader.seek(place, places[place.partition])

    async def read(self, lanes: Sequence[int]) -> list[tuple[int, LaneRow, bytes]]:
        if not lanes:
            return []
        try:
            with speaking(self.settings, f"topic {self.topic!r}"):
                fetched = await self._reader.getmany(
                    *self._places(lanes), timeout_ms=_POLL_MS, max_records=_AT_ONCE
                )
        except FailClosed:
            raise another_log(lanes[0]) from None
        return [
            (
                record.offset,
                *self._sealer.row(place.partition, Sealed(record.headers, record.value)),
            )
            for place, many in fetched.items()
            for record in many
        ]

    async def caught_up(self, ends: Mapping[int, int]) -> bool:
        """Return whether everything before these ends was read."""
        places = self._places(ends)
        return all([await self._reader.position(at) >= ends[at.partition] for at in places])

    async def drop(self, places: Positions) -> None:
        about = f"topic {self.topic!r}: deletion of old rows"
        deleted = library(".admin").RecordsToDelete
        where = {
            self._place(self.topic, lane): deleted(before_offset=at) for lane, at in places.items()
        }
        await self.layout()
        if len(self._laid) > 1:
            where[self._place(self._layouts)] = deleted(before_offset=self._laid[0])
        async with administering(self.settings, about) as admin:
            await patiently(self.settings, about, lambda: admin.delete_records(where))

    async def close(self) -> None:
        clients, self._clients = self._clients, []
        for client in clients:
            await disconnect(client)

    def outgoing(self, stamp: Stamp, plain: bytes) -> Outgoing:
        """Return the record of a row, sealed."""
        headers, sealed = self._sealer.record(stamp, plain)
        return Outgoing(self.topic, sealed, headers=headers)

    def _consumer(self, level: str) -> Any:
        return library().AIOKafkaConsumer(
            isolation_level=level,
            enable_auto_commit=False,
            auto_offset_reset="none",
            max_partition_fetch_bytes=RECORD_BYTES,
            fetch_max_wait_ms=_POLL_MS,
            **self.settings.client(),
        )

    def _place(self, topic: str, lane: int = 0) -> Any:
        return library().TopicPartition(topic, lane)

    def _places(self, lanes: Sequence[int] | Positions | range) -> list[Any]:
        return [self._place(self.topic, lane) for lane in lanes]

    async def _ends_of(self, reader: Any, places: Sequence[Any]) -> Any:
        return await self._asked(reader.end_offsets, places)

    async def _asked(self, look_up: Callable[[Any], Any], places: Sequence[Any]) -> Any:
        return await patiently(
            self.settings, f"topic {places[0].topic!r}", lambda: look_up(list(places))
        )


async def ensure_rows(settings: KafkaSettings, topic: str, lanes: int) -> None:
    """Make the topic of rows if it is not there, else check it."""
    await ensure(settings, topic, KEPT, _HINTS, number=lanes)


class RowsProducer:
    """Appends rows; each is in the log when `written` returns."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._producer = library().AIOKafkaProducer(
            enable_idempotence=True, max_request_size=RECORD_BYTES, **settings.client()
        )

    async def open(self) -> None:
        await connect(self._settings, self._producer)

    async def written(self, records: Sequence[tuple[int, Outgoing]]) -> None:
        """Append records, each to the log of a lane, in this order."""
        with speaking(self._settings, "the rows of a worker"):
            sent = [
                await self._producer.send(topic, value, key, lane, stamp, list(headers))
                for lane, (topic, value, key, stamp, headers) in records
            ]
            await asyncio.gather(*sent)

    async def close(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.patience_s):
                await disconnect(self._producer)


class Membership:
    """The lanes that a worker should read, as the group `NAME.workers` shares them out among those that live."""

    def __init__(self, settings: KafkaSettings, pipeline: str) -> None:
        self._settings, self._pipeline = settings, pipeline
        self.lanes: frozenset[int] = frozenset()
        self.changed = asyncio.Event()
        self._member: Any = None

    async def join(self) -> None:
        """Join the group; a second call does nothing."""
        if self._member is not None:
            return
        this = self

        class Listener(library(".abc").ConsumerRebalanceListener):  # type: ignore[misc]  # of no known type
            def on_partitions_revoked(self, revoked: Any) -> None: ...
            def on_partitions_assigned(self, assigned: Any) -> None:
                if assigned:
                    member.pause(*assigned)
                lanes = frozenset(place.partition for place in assigned)
                if lanes != this.lanes:
                    this.lanes = lanes
                    this.changed.set()

        member = library().AIOKafkaConsumer(
            group_id=f"{self._pipeline}.workers",
            session_timeout_ms=int(SESSION_S * 1000),
            heartbeat_interval_ms=1000,
            max_poll_interval_ms=_NEVER_MS,
            enable_auto_commit=False,
            auto_offset_reset="latest",
            **self._settings.client(),
        )
        member.subscribe([f"{self._pipeline}.private.rows"], listener=Listener())
        patient = replace(self._settings, patience_s=self._settings.patience_s + _JOINING_S)
        with speaking(self._settings, f"group {self._pipeline}.workers"):
            await connect(patient, member)
        self._member = member

    async def leave(self) -> None:
        member, self._member = self._member, None
        if member is not None:
            await disconnect(member)
