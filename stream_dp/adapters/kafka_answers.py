"""Answers to messages as a public Kafka topic, `PIPELINE.answers`.

Rules: those of every public topic (kafka_public.py). Key = the message's id (none where the answer has none), value =
body, timestamp = the end of the last tick before the cut as the body names it.
"""

from collections.abc import Sequence

from stream_dp.adapters.kafka_lease import KafkaLease, Outgoing
from stream_dp.adapters.kafka_public import PublicTopic
from stream_dp.adapters.publish_once import answer_after, answers_not_yet_visible
from stream_dp.runtime.answer_body import answer_head
from stream_dp.runtime.commit import Answer


class KafkaAnswers(PublicTopic[Answer]):
    """The `Answers` port over one topic."""

    def __init__(self, lease: KafkaLease) -> None:
        super().__init__(lease, "answers")

    def _after(self, body: bytes, beyond: int) -> bool:
        return answer_after(body, beyond, f"topic {self._topic!r}")

    def _fresh(self, durable: Sequence[Answer], last: bytes | None) -> list[Answer]:
        return answers_not_yet_visible(durable, last, f"topic {self._topic!r}")

    def _record(self, one: Answer) -> Outgoing:
        end = answer_head(one.body, f"topic {self._topic!r}: what is to be published").end_ms
        key = None if one.id is None else one.id.encode()
        return Outgoing(self._topic, one.body, key, end)
