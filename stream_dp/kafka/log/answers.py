"""Answers to messages as a public Kafka topic, `PIPELINE.answers`.

Rules: those of every public topic (`public`). Key = the message's id (no key if the answer has no id), value =
body, timestamp = the end of the last tick before the cut, as in the body.
"""

from stream_dp.journal.answer_body import answer_head
from stream_dp.journal.commit import Answer
from stream_dp.journal.public_sequence import ANSWERS
from stream_dp.kafka.log.lease import KafkaLease, Outgoing
from stream_dp.kafka.log.public import PublicTopic


class KafkaAnswers(PublicTopic[Answer]):
    """The `Answers` port over one topic."""

    def __init__(self, lease: KafkaLease) -> None:
        super().__init__(lease, ANSWERS)

    def _record(self, one: Answer) -> Outgoing:
        end = answer_head(one.body, f"topic {self._topic!r}: what is to be published").end_ms
        key = None if one.id is None else one.id.encode()
        return Outgoing(self._topic, one.body, key, end)
