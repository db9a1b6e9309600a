"""Writes the records that an app makes of one partition of an origin, each at most once despite repeats.

Rules: fed records and the head that covers them are one transaction, of a producer whose transactional id names
pipeline, topic and partition. So a writer that opens fences every other writer of the partition, ends their open
transactions, and then reads a head that no other writer can move and that exactly matches the fed records. After any
error the writer is opened again and its records are compared with the head again: the head shows whether the
transaction counted. A record's partition in the source is a function of the record alone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import msgspec

from stream_dp.engine.ports import Placement, by_content
from stream_dp.errors import FailClosed, Outage, UnknownFormat
from stream_dp.kafka.client.clients import (
    KEPT,
    KafkaSettings,
    backing_off,
    connect,
    disconnect,
    library,
    passing,
    refused,
)
from stream_dp.kafka.client.topics import TopicEyes, ensure
from stream_dp.kafka.log.reader import reading
from stream_dp.records.cells import Sent, value_alone

HEAD_VERSION = 1
_HeadContent: TypeAlias = tuple[str, int, tuple[tuple[int, int], ...]]
HOLES = 1000
"""The most holes kept in a head; each transaction marker leaves one, which is never filled."""
_RULES = {
    "cleanup.policy": "compact",
    "unclean.leader.election.enable": KEPT["unclean.leader.election.enable"],
}
_HINTS = {"segment.bytes": str(2**20), "segment.ms": "600000", "min.cleanable.dirty.ratio": "0.1"}
_FENCED = ("ProducerFenced", "InvalidProducerEpoch")


@dataclass(frozen=True, slots=True)
class OriginHead:
    """`next` is the first unknown offset; `holes` are the ranges of offsets before it that were jumped over.

    A record that arrives in a hole was never fed, so it is fresh. In any order each record is fresh once, as long as
    at most `HOLES` holes are open; a partition that is read in order has holes only at offsets without a record.
    Offsets are private, so the repr shows none. `origin` is the topic's id, unlike that of a later topic of the name.
    """

    origin: str
    next: int = field(default=0, repr=False)
    holes: tuple[tuple[int, int], ...] = field(default=(), repr=False)

    def take(self, offset: int) -> tuple[bool, "OriginHead"]:
        """Return whether the record at this offset is fresh, and the head that includes it."""
        if offset >= self.next:
            jumped = ((self.next, offset - 1),) if offset > self.next else ()
            return True, OriginHead(self.origin, offset + 1, (*self.holes, *jumped)[-HOLES:])
        for at, (first, last) in enumerate(self.holes):
            if first <= offset <= last:
                parts = ((first, offset - 1), (offset + 1, last))
                left = (part for part in parts if part[0] <= part[1])
                holes = (*self.holes[:at], *left, *self.holes[at + 1 :])
                return True, OriginHead(self.origin, self.next, holes[-HOLES:])
        return False, self

    def encoded(self) -> bytes:
        return msgspec.msgpack.encode((HEAD_VERSION, self.origin, self.next, self.holes))


class Made(NamedTuple):
    """The result for the record at `offset`; None if nothing is to be counted."""

    offset: int
    payload: bytes | None

    def __repr__(self) -> str:
        return "<Made>"


class Target(NamedTuple):
    """The source of `pipeline`: the topic that its engine reads, and the functions that place records in it and give
    them their keys and headers.
    """

    settings: KafkaSettings
    pipeline: str
    topic: str
    place: Placement = by_content
    sent: Sent = value_alone

    @property
    def heads(self) -> str:
        """The topic of heads, which is private because heads are exact counts."""
        return f"{self.pipeline}.private.origins"


class OriginWriter:
    """Feeds the results of a partition of the topic `origin`; `ours` returns whether this worker still owns it."""

    def __init__(
        self, target: Target, origin: str, partition: int, ours: Callable[[], bool]
    ) -> None:
        self._target = target
        self._origin, self._partition = origin, partition
        self._name = f"{target.pipeline}.origin.{origin}.{partition}"
        self._ours = ours
        self._producer: Any = None
        self._head = OriginHead("")
        self._places: tuple[int, ...] = ()
        self._turn = asyncio.Lock()

    async def feed(self, made: Sequence[Made]) -> bool:
        """Feed the fresh records, durable on return; False: another worker owns the partition and feeds them.

        Raises:
            FailClosed: the origin was deleted and made again, or its head is damaged.
            UsageError: no partitioner says in which of the source's partitions records belong.
            WorldError: the brokers do not answer for a long while, or deny access.
        """
        return await self._patiently(lambda: self._fed(made))

    async def open(self) -> bool:
        """Fence every other writer of the partition, and read its head; a second call does nothing."""
        return await self._patiently(self._opened)

    async def close(self) -> None:
        """Close the connection; the next writer decides the transaction in flight."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await disconnect(producer)

    async def _patiently(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Do the work, and open again after passing errors; return False if another worker owns the partition."""
        errors, settings = library(".errors"), self._target.settings
        waits, waited = backing_off(), 0.0
        async with self._turn:
            while self._ours():
                try:
                    await self._opened()
                    await work()
                except (errors.KafkaError, errors.IllegalOperation, OSError, TimeoutError) as error:
                    about = f"what is fed into topic {self._target.topic!r}"
                    cause = refused(settings, about, error)
                    again = passing(error) or any(name in type(error).__name__ for name in _FENCED)
                except Outage as error:
                    cause, again = error, True
                else:
                    return True
                await self.close()
                wait = next(waits)
                waited += wait
                if not again or waited > settings.retry_s:
                    raise cause from None
                await asyncio.sleep(wait)
        return False

    async def _opened(self) -> None:
        if self._producer is not None:
            return
        target = self._target
        await ensure(target.settings, target.heads, _RULES, _HINTS)
        identity = await self._identity()
        producer = library().AIOKafkaProducer(
            **target.settings.client(),
            transactional_id=self._name,
            transaction_timeout_ms=target.settings.transaction_timeout_ms,
            linger_ms=5,
        )
        await connect(target.settings, producer)
        try:
            self._places = tuple(sorted(await producer.partitions_for(target.topic)))
            target.place((), self._places)
            self._head = await self._recorded(identity)
        except BaseException:
            await disconnect(producer)
            raise
        self._producer = producer

    async def _identity(self) -> str:
        """Return the origin's topic id; empty if it is not in this cluster."""
        eyes = TopicEyes(self._target.settings, self._origin)
        try:
            await eyes.start()
            topic = await eyes.look()
        finally:
            await eyes.stop()
        return "" if topic is None else topic.id

    async def _recorded(self, identity: str) -> OriginHead:
        """Return the head of the partition; no other writer can move it now."""
        what = f"topic {self._target.heads!r}: the head of {self._origin!r}"
        head = OriginHead(identity)
        async with reading(self._target.settings, self._target.heads) as log:
            decided, end = await log.ends()
            if decided < end:
                raise Outage(f"{what}: a transaction of another writer is open still")
            async with aclosing(log.records(0, end)) as groups:
                async for group in groups:
                    for record in group:
                        if record.key == self._name.encode():
                            head = decoded_head(record.value, what)
        if identity and head.origin and head.origin != identity:
            raise FailClosed(
                f"topic {self._origin!r} was deleted and made anew: its records would be taken for those that were fed "
                "before. Name the new topic otherwise"
            )
        return head

    async def _fed(self, made: Sequence[Made]) -> None:
        head, payloads = self._head, list[bytes]()
        for offset, payload in made:
            fresh, head = head.take(offset)
            if fresh and payload is not None:
                payloads.append(payload)
        if head is self._head:
            return
        target, producer = self._target, self._producer
        async with producer.transaction():
            placed = target.place(payloads, self._places)
            sent = [
                await producer.send(
                    target.topic, payload, key=key, headers=headers, partition=partition
                )
                for payload, partition in zip(payloads, placed, strict=True)
                for key, headers in (target.sent(payload),)
            ]
            name = self._name.encode()
            sent.append(await producer.send(target.heads, head.encoded(), key=name, partition=0))
            await asyncio.gather(*sent)
        self._head = head


def decoded_head(stored: bytes, what: str) -> OriginHead:
    """Return a stored head, which `what` names in errors; raise FailClosed or UnknownFormat if it is none."""
    try:
        version, *content = msgspec.msgpack.decode(stored, type=list[Any])
        if version != HEAD_VERSION:
            raise UnknownFormat(what, "another form of heads", f"form {HEAD_VERSION}")
        return OriginHead(*msgspec.convert(content, _HeadContent))
    except (msgspec.DecodeError, msgspec.ValidationError, ValueError):
        raise FailClosed(f"{what} is no head of an origin; bring it back as it was") from None
