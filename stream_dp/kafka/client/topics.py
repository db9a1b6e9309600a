"""Topics: a fresh look at one, and checks: the pipeline's own are made or checked, a source's is only checked.

Rules: the pipeline's own topics have one partition, that of rows one for each lane, and keep all records; a topic with
other settings is refused, never altered. A refusal names the setting to change, and the command that changes it.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from stream_dp.errors import FailClosed, WorldError
from stream_dp.kafka.client.clients import (
    KafkaSettings,
    connected,
    disconnect,
    library,
    patiently,
    request_class,
    some_broker,
    speaking,
)

_NO_ID = bytes(16)
_UNKNOWN_TOPIC = 3
UNCOMPACTED = {"cleanup.policy": "delete"}
STAMPED = {"message.timestamp.type": "LogAppendTime"}
PLAIN = {"compression.type": "uncompressed"}
_HERE = "127.0.0.1"
_TRYING_OUT = "kept once, by the one broker on this machine: enough to try things out; real data want three brokers"
_ONE_BROKER = "one copy only, on the only broker: a power cut could lose commits"
_ONE_COPY = "one copy only: a power cut could lose commits; production wants replication 3"
_FEW_IN_SYNC = "set min.insync.replicas=2, or a lost broker could lose commits"
_TOPIC_EXISTS = 36
_POLL_S = 0.05


class TopicLook(NamedTuple):
    """A topic as a broker knows it now; `id` is empty if the broker returns none."""

    id: str
    partitions: tuple[int, ...]


class TopicEyes:
    """Reads the id and the partitions of one topic, in one request that never waits behind a fetch.

    The id distinguishes a topic from a later one with the same name. Source: the Metadata request of the Kafka
    protocol, version 12; the client library stops at 5, so it is written out here. Older brokers return no id.
    """

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        self._settings, self._topic = settings, topic
        self._client = library(".client").AIOKafkaClient(**settings.client())

    async def start(self) -> None:
        await self._client.bootstrap()

    async def look(self) -> TopicLook | None:
        """Return the present topic; None if it does not exist or may not be seen. Raises `WorldError`."""

        async def look_once() -> TopicLook | None:
            node = await some_broker(self._client)
            asked = _request()([(_NO_ID, self._topic, {})], False, False, {})
            answer = await self._client.send(node, asked)
            ((code, _, identity, _, partitions, *_),) = answer.topics
            if code == _UNKNOWN_TOPIC:
                return None
            if code:
                raise library(".errors").for_code(code)
            numbers = tuple(sorted(partition[1] for partition in partitions))
            return TopicLook("" if identity == _NO_ID else identity.hex(), numbers)

        return await patiently(self._settings, f"topic {self._topic!r}", look_once)

    async def stop(self) -> None:
        await disconnect(self._client)


def no_such_topic(settings: KafkaSettings, topic: str) -> WorldError:
    where = f"topic {topic!r} does not exist at {settings.bootstrap}"
    return WorldError(
        f"{where}, or may not be read: create it first, or check its name and its ACL"
    )


@cache
def _request() -> Any:
    types = library(".protocol.types")
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
    asked = (
        ("topics", many(("topic_id", Identity), ("topic", text), tags)),
        ("allow_auto_topic_creation", types.Boolean),
        ("authorized_operations", types.Boolean), tags,
    )  # fmt: skip
    answered = (
        ("throttle_time_ms", int32), ("brokers", many(*broker)), ("cluster_id", text),
        ("controller_id", int32), ("topics", many(*topic)), tags,
    )  # fmt: skip
    return request_class(3, 12, asked, answered, flexible=True)


@asynccontextmanager
async def administering(settings: KafkaSettings, about: str) -> AsyncIterator[Any]:
    """Yield a connected admin client, which asks brokers that answer."""
    client = library(".admin").AIOKafkaAdminClient(**settings.client())
    send = client._send_request  # noqa: SLF001 - it would ask any, also one that is away

    async def asked(request: Any, node: Any = None) -> Any:
        return await send(request, await some_broker(client._client) if node is None else node)  # noqa: SLF001

    client._send_request = asked  # noqa: SLF001 - see above
    async with connected(settings, client):
        with speaking(settings, about):
            yield client


async def existing(admin: Any, topic: str) -> list[dict[str, Any]] | None:
    """Return the partitions of a topic, or None if it does not exist; never creates it."""
    for entry in await admin.describe_topics():
        if entry["topic"] == topic and entry["partitions"]:
            return sorted(entry["partitions"], key=lambda partition: int(partition["partition"]))
    return None


async def config(admin: Any, topic: str) -> dict[str, str]:
    kinds = library(".admin.config_resource")
    resource = kinds.ConfigResource(kinds.ConfigResourceType.TOPIC, topic)
    (answer,) = await admin.describe_configs([resource])
    ((code, _, _, _, entries),) = answer.resources
    if code:
        raise library(".errors").for_code(code)
    return {entry[0]: entry[1] for entry in entries}


async def cluster_of(settings: KafkaSettings) -> str:
    """Return the id that the cluster gave itself when it was made; empty if it returns none."""
    async with administering(settings, "the cluster's id") as admin:
        return str((await admin.describe_cluster()).get("cluster_id") or "")


def mending(settings: KafkaSettings, topic: str, wanted: Mapping[str, str]) -> str:
    values = [f"{key}={value}" for key, value in wanted.items()]
    return (
        f"set {', '.join(values)} on it, with any tool or by: kafka-configs.sh "
        f"--bootstrap-server {settings.bootstrap} --alter --entity-type topics "
        f"--entity-name {topic} --add-config {','.join(values)}"
    )


async def check_source(settings: KafkaSettings, admin: Any, topic: str, *, live: bool) -> None:
    """Refuse (`FailClosed`) a compacted source, and a live one whose records carry stamps of their producers."""
    present = await config(admin, topic)
    if "compact" in present.get("cleanup.policy", ""):
        raise FailClosed(
            f"topic {topic!r} is compacted: an event removes older events with the same key, so "
            "counts would depend on the time of compaction. "
            f"{mending(settings, topic, UNCOMPACTED)}"
        )
    if live and not stamped(present):
        raise FailClosed(
            f"topic {topic!r}: live ticks need stamps that its brokers set on arrival; "
            + mending(settings, topic, STAMPED)
        )


def stamped(settings: Mapping[str, str]) -> bool:
    return all(settings.get(key) == value for key, value in STAMPED.items())


async def ensure(
    settings: KafkaSettings,
    topic: str,
    rules: Mapping[str, str],
    hints: Mapping[str, str] = MappingProxyType({}),
    wrong: str = "could lose or alter what it holds; if it is still whole,",
    number: int = 1,
) -> str:
    """Create the topic with so many partitions, or check it against `rules`; return advice for safer settings, or "".

    `hints` are set at creation only; `wrong` says what it means that a topic breaks the rules. Raises `FailClosed` (it
    exists with other settings; the text says which to change) or `WorldError`.
    """
    async with administering(settings, f"topic {topic!r}") as admin:
        partitions = await existing(admin, topic)
        if partitions is None:
            wanted = {**hints, **rules}
            partitions = await make_topic(settings, admin, topic, wanted, number=number)
        if len(partitions) != number:
            must = (
                "one partition only; name another topic" if number == 1 else f"{number} partitions"
            )
            raise FailClosed(f"topic {topic!r} must have {must}")
        # this request may reach a broker that does not know the new topic yet
        now = await patiently(settings, f"topic {topic!r}", lambda: config(admin, topic))
        broken = {key: value for key, value in rules.items() if now.get(key) != value}
        if broken:
            raise FailClosed(f"topic {topic!r} {wrong} {mending(settings, topic, broken)}")
        hosts = [broker["host"] for broker in (await admin.describe_cluster())["brokers"]]
    return _could_be_safer(len(partitions[0]["replicas"]), int(now["min.insync.replicas"]), hosts)


def _could_be_safer(copies: int, in_sync: int, hosts: Sequence[str]) -> str:
    """Return what a production setup should change, from the brokers' hosts; mild if one local broker is tried out.

    >>> _could_be_safer(1, 1, ["127.0.0.1"])
    'kept once, by the one broker on this machine: enough to try things out; real data want three brokers'
    >>> _could_be_safer(1, 1, ["kafka.example"]), _could_be_safer(1, 1, ["127.0.0.1"] * 3)[:14]
    ('one copy only, on the only broker: a power cut could lose commits', 'one copy only:')
    >>> _could_be_safer(3, 1, ["a", "b", "c"])[:23], _could_be_safer(3, 2, ["a", "b", "c"])
    ('set min.insync.replicas', '')
    """
    if copies > 1:
        return _FEW_IN_SYNC if in_sync < 2 else ""
    if len(hosts) > 1:
        return _ONE_COPY
    return _TRYING_OUT if list(hosts) == [_HERE] else _ONE_BROKER


def warnings(advice: Mapping[str, str]) -> tuple[str, ...]:
    """Return a line for all topics with the same advice of `ensure`."""
    lines: dict[str, list[str]] = {}
    for topic, what in advice.items():
        if what:
            lines.setdefault(what, []).append(topic)
    return tuple(f"{' and '.join(topics)}: {what}" for what, topics in lines.items())


async def make_topic(
    settings: KafkaSettings,
    admin: Any,
    topic: str,
    wanted: dict[str, str],
    *,
    spread: bool = False,
    number: int = 1,
) -> list[dict[str, Any]]:
    """Make one of the pipeline's own topics and return its partitions once brokers lead them.

    It has so many partitions, or with `spread` one for each broker. Raises the library's `KafkaError`.
    """
    brokers = len((await admin.describe_cluster())["brokers"])
    copies = min(3, brokers)  # also of a broker that is away: copies are not added later
    wanted["min.insync.replicas"] = str(min(2, copies))
    new = library(".admin").NewTopic(
        topic, brokers if spread else number, copies, topic_configs=wanted
    )
    answer = await admin.create_topics([new])
    for _, code, *_ in answer.topic_errors:
        if code not in (0, _TOPIC_EXISTS):
            raise library(".errors").for_code(code)
    async with asyncio.timeout(settings.patience_s):
        while True:
            partitions = await existing(admin, topic)
            if partitions and all(partition["leader"] >= 0 for partition in partitions):
                return partitions
            await asyncio.sleep(_POLL_S)
