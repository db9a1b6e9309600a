"""A producer for trying a pipeline out: each record is acknowledged by all in-sync replicas.

Rules: a record's partition is a function of the record alone (`engine.ticks.placement`). The topic is never made
here. Errors contain no content and no count. This file knows no format.
"""

import asyncio
from typing import Any

from stream_dp.engine.ticks.placement import Placement, by_content
from stream_dp.errors import WorldError
from stream_dp.kafka.client.clients import (
    KafkaSettings,
    connect,
    disconnect,
    library,
    speaking,
)
from stream_dp.kafka.client.topics import STAMPED, administering, config, existing

AT_ONCE = 1000
"""The largest number of unacknowledged records."""


class TryOutProducer:
    """Sends records to one topic while its context is open."""

    def __init__(self, settings: KafkaSettings, topic: str, place: Placement = by_content) -> None:
        self._settings = settings
        self._topic = topic
        self._place = place
        self._partitions: tuple[int, ...] = ()
        self._producer: Any = None
        self._sent: list[asyncio.Future[Any]] = []
        self.stamped = False

    async def __aenter__(self) -> "TryOutProducer":
        """Check the topic and connect; `stamped` then says whether its brokers stamp records on arrival.

        Raises:
            WorldError: the topic does not exist, the brokers do not answer, or access is denied.
        """
        settings, topic = self._settings, self._topic
        async with administering(settings, f"topic {topic}") as admin:
            if await existing(admin, topic) is None:
                raise WorldError(
                    f"topic {topic} does not exist at {settings.bootstrap}; make it by "
                    f"`stream-dp topic {topic} --bootstrap {settings.bootstrap}`"
                )
            found = await config(admin, topic)
        self.stamped = all(found.get(key) == value for key, value in STAMPED.items())
        self._producer = library().AIOKafkaProducer(
            **settings.client(), enable_idempotence=True, linger_ms=5
        )
        await connect(settings, self._producer)
        with speaking(settings, f"topic {topic}"):
            self._partitions = tuple(sorted(await self._producer.partitions_for(topic)))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connection."""
        if self._producer is not None:
            await disconnect(self._producer)

    async def send(self, payload: bytes) -> None:
        """Send a record; when `AT_ONCE` records are unacknowledged, wait for all acknowledgements.

        Raises:
            WorldError: this record, or an earlier one, was not acknowledged.
        """
        (partition,) = self._place((payload,), self._partitions)
        with speaking(self._settings, f"topic {self._topic}"):
            self._sent.append(await self._producer.send(self._topic, payload, partition=partition))
        if len(self._sent) >= AT_ONCE:
            await self.acknowledged()

    async def acknowledged(self) -> None:
        """Wait until all sent records are acknowledged; raises as `send`."""
        sent, self._sent = self._sent, []
        with speaking(self._settings, f"topic {self._topic}"):
            await asyncio.gather(*sent)
