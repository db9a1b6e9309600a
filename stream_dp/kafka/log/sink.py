"""The sink as a public Kafka topic, `PIPELINE.releases`.

Rules: those of every public topic (`public`). Key = series, value = body, timestamp = the tick's end as in the
body.
"""

from stream_dp.journal.commit import Release
from stream_dp.journal.public_sequence import RELEASES
from stream_dp.journal.release import read_head
from stream_dp.kafka.log.lease import KafkaLease, Outgoing
from stream_dp.kafka.log.public import PublicTopic


class KafkaSink(PublicTopic[Release]):
    """The `Sink` port over one topic."""

    def __init__(self, lease: KafkaLease) -> None:
        super().__init__(lease, RELEASES)

    def _record(self, one: Release) -> Outgoing:
        end = read_head(one.body, f"topic {self._topic!r}: what is to be published").end_ms
        return Outgoing(self._topic, one.body, one.series.encode(), end)
