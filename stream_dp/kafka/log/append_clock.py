"""The brokers' time, and its difference from this machine's time.

Rules: the topic `NAME.private.clock` is stamped on arrival. It has one partition for each broker that exists when it is
made, so that each broker's clock can be read. It holds empty records, which are deleted soon. A stamp lies between the
moments of sending and of the answer: a slow answer says little, and never makes clocks appear to differ. An append
changes nothing else, so it may be repeated.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from stream_dp.errors import FailClosed, WorldError
from stream_dp.files.system_clock import system_ms
from stream_dp.kafka.client.clients import (
    KafkaSettings,
    connect,
    disconnect,
    library,
    patiently,
    speaking,
)
from stream_dp.kafka.client.topics import (
    STAMPED,
    administering,
    config,
    existing,
    make_topic,
    mending,
    stamped,
)

# of a new clock topic; only the stamp on arrival is required of an existing one
WANTED = {
    "cleanup.policy": "delete",
    "retention.ms": "3600000",
    "unclean.leader.election.enable": "true",  # a clock needs no memory
    **STAMPED,
}
_ON_ARRIVAL = 1


def clock_topic(pipeline: str) -> str:
    return f"{pipeline}.private.clock"


class Difference(NamedTuple):
    """A broker's clock minus this machine's: between `least` and `most` milliseconds."""

    least: int
    most: int


class Stamp(NamedTuple):
    """A broker's clock `stamp` at a moment between `sent` and `answered` of this machine's clock; milliseconds."""

    broker: str
    sent: int
    stamp: int
    answered: int

    @property
    def difference(self) -> Difference:
        return Difference(self.stamp - self.answered, self.stamp - self.sent)


class BrokerClocks:
    """The clocks of the brokers that lead a partition of `topic`; `now` is this machine's clock in milliseconds.

    Raises `WorldError`, or `FailClosed` if the topic keeps the stamps of its producers.
    """

    def __init__(self, settings: KafkaSettings, topic: str, now: Callable[[], int]) -> None:
        self._settings, self._topic, self._now = settings, topic, now
        self._about = f"topic {topic!r}, by which brokers tell their clocks"
        self._producer: Any = None

    async def check(self) -> None:
        """Make the topic if it is missing, or check that it stamps on arrival; needs no `start`."""
        settings, topic = self._settings, self._topic
        async with administering(settings, self._about) as admin:
            if await existing(admin, topic) is None:
                try:
                    await make_topic(settings, admin, topic, {**WANTED}, spread=True)
                except library(".errors").KafkaError as error:
                    if "Authorization" not in type(error).__name__:
                        raise
                    raise WorldError(
                        f"{self._about}: does not exist, and this user may not create it. Grant this user "
                        "Create, Write and DescribeConfigs on that topic (ACL); `stream-dp doctor` prints "
                        "the command"
                    ) from None
            present = await patiently(settings, self._about, lambda: config(admin, topic))
        if not stamped(present):
            raise self._unstamped()

    async def start(self) -> None:
        """Connect and append once: the first append waits for connections, so its stamp would say little."""
        self._producer = library().AIOKafkaProducer(acks=1, **self._settings.client())
        await connect(self._settings, self._producer)
        await self.ask()

    async def ask(self) -> list[Stamp]:
        """Append an empty record to each partition, and return the brokers' stamps."""

        async def ask_once() -> list[Stamp]:
            partitions = sorted(await self._producer.partitions_for(self._topic))
            return await asyncio.gather(*map(self._append, partitions))

        return await patiently(self._settings, self._about, ask_once)

    async def stop(self) -> None:
        if self._producer is not None:
            await disconnect(self._producer)

    async def _append(self, partition: int) -> Stamp:
        sent = self._now()
        answer = await self._producer.send_and_wait(self._topic, b"", partition=partition)
        answered = self._now() + 1  # it came before the next whole millisecond
        if answer.timestamp_type != _ON_ARRIVAL:
            raise self._unstamped()
        leader = self._producer.client.cluster.leader_for_partition(answer.topic_partition)
        return Stamp(f"broker {leader}", sent, answer.timestamp, answered)

    def _unstamped(self) -> FailClosed:
        mend = mending(self._settings, self._topic, STAMPED)
        return FailClosed(f"{self._about}: its brokers do not stamp on arrival; {mend}")


def earliest(stamps: Sequence[Stamp], most: int) -> int:
    """Return the earliest of the brokers' clocks; `FailClosed` if one certainly differs by more than `most` ms."""
    for stamp in stamps:
        ahead, behind = -stamp.difference.most, stamp.difference.least
        if max(ahead, behind) > most:
            word = "ahead of" if ahead > behind else "behind"
            raise FailClosed(
                f"this machine's clock is {max(ahead, behind) / 1000:.1f} s {word} that of "
                f"{stamp.broker}. That is more than half of clock.delay ({most / 1000:g} s), so "
                "records could miss their tick. Synchronise the clocks of this machine and of all "
                "brokers by NTP (`chronyc tracking` shows how far a clock is off), then start "
                "again. If the clocks cannot be synchronised so closely, begin a new pipeline with "
                "a longer clock.d"
            )
    return min(stamp.stamp for stamp in stamps)


async def append_differences(settings: KafkaSettings, pipeline: str) -> list[Difference]:
    """Return the difference of each broker's clock from this machine's; make the clock topic if it is missing."""
    clocks = BrokerClocks(settings, clock_topic(pipeline), system_ms)
    await clocks.check()
    with speaking(settings, "the brokers' clocks"):
        try:
            await clocks.start()
            return [stamp.difference for stamp in await clocks.ask()]
        finally:
            await clocks.stop()
