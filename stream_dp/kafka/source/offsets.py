"""Begin and end of a topic's partitions, and the offset of a moment in them.

Rules: the client has no partitions, so answers never wait behind a fetch; a look-up is repeated for a while.
Offsets are private.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from stream_dp.kafka.client.clients import KafkaSettings, disconnect, library, patiently


class KafkaOffsets:
    """Looks up offsets of one topic.

    Its methods raise WorldError if brokers do not answer for a while (an `Outage`), or deny access.
    """

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self._consumer = library().AIOKafkaConsumer(
            isolation_level="read_uncommitted", enable_auto_commit=False, **settings.client()
        )

    async def start(self) -> None:
        """Connect."""
        await self._consumer.start()

    async def stop(self) -> None:
        """Close the connections."""
        await disconnect(self._consumer)

    async def begins(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return the first existing offset of each partition."""
        return await self._found(self._consumer.beginning_offsets, self._places(partitions))

    async def ends(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return the offset after the last record of each partition."""
        return await self._found(self._consumer.end_offsets, self._places(partitions))

    async def cuts(self, partitions: Iterable[int], moment: int) -> dict[int, int]:
        """Return the first offset with a stamp at or after `moment` as the brokers report it, at most the end.

        The brokers' answer relies on the offset that a record states about itself, which may be wrong in either
        direction.
        """
        places = self._places(partitions)

        async def look_up(asked: Any) -> dict[Any, int]:
            found = await self._consumer.offsets_for_times(dict.fromkeys(asked, moment))
            ends = await self._consumer.end_offsets(asked)
            return {
                at: ends[at] if found[at] is None else min(found[at].offset, ends[at])
                for at in asked
            }

        return await self._found(look_up, places)

    async def _found(
        self, look_up: Callable[[Any], Awaitable[dict[Any, int]]], places: list[Any]
    ) -> dict[int, int]:
        about = f"topic {self._topic!r}"
        found = await patiently(self._settings, about, lambda: look_up(places))
        return {at.partition: int(offset) for at, offset in found.items()}

    def _places(self, partitions: Iterable[int]) -> list[Any]:
        return [library().TopicPartition(self._topic, one) for one in partitions]
