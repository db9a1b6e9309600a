"""The topic of a source: whether it may be read, and whether it is still the same topic.

Rules: a topic is identified by its id, because a topic that was made again has the same name. In a replay's topic
the number of partitions is fixed, because ticks would never end in an added partition; for a live topic the source
handles added partitions. Nothing here reads a record.
"""

import asyncio
import time

from stream_dp.errors import FailClosed, WorldError
from stream_dp.kafka.client.clients import KafkaSettings, deleted
from stream_dp.kafka.client.topic_look import TopicEyes, TopicLook, no_such_topic
from stream_dp.kafka.client.topics import administering, check_kept, check_stamped, existing

_PAUSE_S = 0.1


class TopicWatch:
    """Watches `topic`, which is read live or replayed."""

    def __init__(self, settings: KafkaSettings, topic: str, *, live: bool) -> None:
        self._settings = settings
        self._topic = topic
        self._live = live
        self._eyes = TopicEyes(settings, topic)
        self._first: TopicLook | None = None

    async def check(self) -> None:
        """Check that the topic exists and that its settings allow reading it; needs no `start`.

        Raises:
            WorldError: the topic does not exist, the brokers do not answer, or access is denied.
            FailClosed: it drops older records of a key, or a live topic has no stamps set on arrival.
        """
        async with administering(self._settings, f"topic {self._topic!r}") as admin:
            if await existing(admin, self._topic) is None:
                raise no_such_topic(self._settings, self._topic)
            await check_kept(self._settings, admin, self._topic)
            if self._live:
                await check_stamped(self._settings, admin, self._topic)

    async def start(self) -> None:
        """Connect."""
        await self._eyes.start()

    async def look(self) -> TopicLook:
        """Return the present topic; retry for a while, because brokers that have just begun know no topic.

        Raises:
            FailClosed: it is another topic than at the first look, or a partition was added to a replay's topic.
            WorldError: the topic was deleted, or brokers do not answer for a while (an `Outage`), or deny access.
        """
        deadline = time.monotonic() + self._settings.patience_s
        while (found := await self._eyes.look()) is None:
            if time.monotonic() > deadline:
                raise self._gone()
            await asyncio.sleep(_PAUSE_S)
        if self._first is None:
            self._first = found
        if found.id != self._first.id:
            raise deleted(f"topic {self._topic!r}")
        if not self._live and found.partitions != self._first.partitions:
            raise FailClosed(
                f"topic {self._topic!r}: partitions were added, and a replay's ticks would never end in them; replay "
                "into a new topic, with a new pipeline name"
            )
        return found

    async def stop(self) -> None:
        """Close the connection."""
        await self._eyes.stop()

    def _gone(self) -> WorldError:
        return WorldError(
            f"topic {self._topic!r} was deleted at {self._settings.bootstrap} while it was "
            "read, or may not be read any more; nothing uncommitted was published"
        )
