"""The sink as a public Kafka topic: the exact bytes that the journal already holds, in one partition.

Rules: `publish` is one transaction of its own, so readers see a tick's releases at once, and markers in the
log follow the ticks, never the load. Key = series, value = body, timestamp = the tick's end as the body
names it, no headers.
What is visible already is never written again, in no version. The lease is the journal's.
"""

from collections.abc import AsyncIterator, Sequence

from stream_dp.adapters.kafka_client import KEPT, RECORD_BYTES
from stream_dp.adapters.kafka_hanging import settle_public
from stream_dp.adapters.kafka_lease import KafkaLease, Outgoing
from stream_dp.adapters.kafka_log import reading
from stream_dp.adapters.kafka_topics import ensure, warnings
from stream_dp.adapters.publish_once import after, not_yet_visible
from stream_dp.runtime.commit import Release
from stream_dp.runtime.release import read_head

_RULES = {**KEPT, "message.timestamp.type": "CreateTime"}
_HINTS = {"max.message.bytes": str(RECORD_BYTES)}


class KafkaSink:
    """The `Sink` port over one topic, `PIPELINE.releases`."""

    def __init__(self, lease: KafkaLease) -> None:
        self._lease = lease
        self._topic = f"{lease.pipeline}.releases"
        self._last: bytes | None = None
        self._known = False
        self.warnings: tuple[str, ...] = ()

    async def open(self) -> None:
        """Take the lease unless the journal has, then create or check the topic.

        Raises:
            FailClosed: the topic has several partitions, or could lose or alter what it holds.
            WorldError: no answer, or access denied.
        """
        await self._lease.start()
        found = await ensure(self._lease.settings, self._topic, _RULES, _HINTS)
        self.warnings = warnings({self._topic: found})
        await settle_public(self._lease, self._topic)

    async def last(self) -> bytes | None:
        """The body of the last visible release, or None."""
        async with reading(self._lease.settings, self._topic) as log:
            record = await log.last()
        self._last = None if record is None else record.value
        self._known = True
        return self._last

    async def read(self, beyond: int = -1) -> AsyncIterator[bytes]:
        """The bodies of all visible releases after `beyond`, oldest first; what comes before is hardly looked at."""
        async with reading(self._lease.settings, self._topic) as log:
            begin, end = await log.bounds()
            if beyond >= 0:
                begin = await log.start_of(begin, end, lambda body: self._after(body, beyond))
            async for records in log.records(begin, end):
                for record in records:
                    if self._after(record.value, beyond):
                        yield record.value

    async def publish(self, releases: Sequence[Release]) -> None:
        """Make visible, all at once, what is not visible yet.

        Raises:
            FailClosed: another engine took over, or a release is visible with other bytes.
            WorldError: no answer; the next start publishes what is missing.
        """
        last = self._last if self._known else await self.last()
        fresh = not_yet_visible(releases, last, f"topic {self._topic!r}")
        if fresh:
            await self._lease.transact([self._record(release) for release in fresh])
            self._last = fresh[-1].body

    async def close(self) -> None:
        """Give the lease back; the journal's is the same one."""
        await self._lease.close()

    def _after(self, body: bytes, beyond: int) -> bool:
        return after(body, beyond, f"topic {self._topic!r}")

    def _record(self, release: Release) -> Outgoing:
        end = read_head(release.body, f"topic {self._topic!r}: what is to be published").end_ms
        return Outgoing(self._topic, release.body, release.series.encode(), end)
