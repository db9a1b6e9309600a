"""A fresh look at a topic: its id and its partitions, in one request.

Rules: the client reads no records, so its answer never waits behind a fetch. The id distinguishes a topic from a
later one with the same name, made after it was deleted. Source: the Metadata request of the Kafka protocol, version
12; the client library stops at 5, so the version is written out here. Older brokers return no id.
"""

from functools import cache
from typing import Any, NamedTuple

from stream_dp.errors import WorldError
from stream_dp.kafka.client.clients import (
    KafkaSettings,
    disconnect,
    library,
    patiently,
    some_broker,
)

_NO_ID = bytes(16)
_UNKNOWN_TOPIC = 3


class TopicLook(NamedTuple):
    """A topic as a broker knows it now; `id` is empty if the broker returns none."""

    id: str
    partitions: tuple[int, ...]


class TopicEyes:
    """Reads the id and the partitions of one topic."""

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self._client = library(".client").AIOKafkaClient(**settings.client())

    async def start(self) -> None:
        """Connect."""
        await self._client.bootstrap()

    async def look(self) -> TopicLook | None:
        """Return the present topic; None if it does not exist or may not be seen.

        Raises:
            WorldError: brokers do not answer for a while (an `Outage`), or deny access.
        """
        return await patiently(self._settings, f"topic {self._topic!r}", self._look_once)

    async def _look_once(self) -> TopicLook | None:
        node = await some_broker(self._client)
        answer = await self._client.send(node, _request()(self._topic))
        ((code, _, identity, _, partitions, *_),) = answer.topics
        if code == _UNKNOWN_TOPIC:
            return None
        if code:
            raise library(".errors").for_code(code)
        found = tuple(sorted(one[1] for one in partitions))
        return TopicLook("" if identity == _NO_ID else identity.hex(), found)

    async def stop(self) -> None:
        """Close the connection."""
        await disconnect(self._client)


def no_such_topic(settings: KafkaSettings, topic: str) -> WorldError:
    """Return the error for a topic that does not exist, or may not be seen."""
    return WorldError(
        f"topic {topic!r} does not exist at {settings.bootstrap}, or may not be read: create it first, or "
        "check its name and its ACL"
    )


@cache
def _request() -> Any:
    """Return the request class, built from the library's parts."""
    api, types = library(".protocol.api"), library(".protocol.types")
    text, tags = types.CompactString("utf-8"), ("tags", types.TaggedFields)
    many, int16, int32 = types.CompactArray, types.Int16, types.Int32

    class Identity:
        @staticmethod
        def encode(value: bytes) -> bytes:
            return value

        @staticmethod
        def decode(data: Any) -> bytes:
            return bytes(data.read(len(_NO_ID)))

    partition = (
        ("error_code", int16), ("partition", int32), ("leader", int32), ("leader_epoch", int32),
        ("replicas", many(int32)), ("isr", many(int32)), ("offline_replicas", many(int32)), tags,
    )  # fmt: skip
    topic = (
        ("error_code", int16), ("topic", text), ("topic_id", Identity), ("is_internal", types.Boolean),
        ("partitions", many(*partition)), ("authorized_operations", int32), tags,
    )  # fmt: skip
    broker = (("node_id", int32), ("host", text), ("port", int32), ("rack", text), tags)

    class TopicLookResponse(api.Response):  # type: ignore[misc, name-defined]
        API_KEY = 3
        API_VERSION = 12
        SCHEMA = types.Schema(
            ("throttle_time_ms", int32), ("brokers", many(*broker)), ("cluster_id", text),
            ("controller_id", int32), ("topics", many(*topic)), tags,
        )  # fmt: skip

    class TopicLookStruct(api.RequestStruct):  # type: ignore[misc, name-defined]
        FLEXIBLE_VERSION = True
        API_KEY = 3
        API_VERSION = 12
        RESPONSE_TYPE = TopicLookResponse
        SCHEMA = types.Schema(
            ("topics", many(("topic_id", Identity), ("topic", text), tags)),
            ("allow_auto_topic_creation", types.Boolean),
            ("authorized_operations", types.Boolean), tags,
        )  # fmt: skip

    class TopicLookRequest(api.Request[TopicLookStruct]):  # type: ignore[misc, name-defined]
        API_KEY = 3

        def __init__(self, name: str) -> None:
            self._name = name

        def build(self, request_struct_class: Any) -> Any:
            return request_struct_class([(_NO_ID, self._name, {})], False, False, {})

    return TopicLookRequest
