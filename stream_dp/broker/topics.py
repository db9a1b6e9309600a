"""Create topics, on any Kafka, through aiokafka.

Rules: an existing topic keeps its partitions and settings. A topic counts as created when a client can write to it:
every partition has a leader.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stream_dp.errors import WorldError

if TYPE_CHECKING:
    from aiokafka.admin import AIOKafkaAdminClient

_REPLICAS = 3
_LEADER_SECONDS = 15.0
_TOPIC_ALREADY_EXISTS = 36


async def create_topic(
    bootstrap: str,
    name: str,
    partitions: int = 1,
    config: Mapping[str, str] | None = None,
    client: Mapping[str, Any] | None = None,
) -> bool:
    """Create a topic, replicated up to three times; return False if it existed already.

    `client` are further arguments of aiokafka's clients, for clusters with TLS or a login. Raises `WorldError` if
    Kafka does not answer or refuses.
    """
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.errors import KafkaConnectionError, KafkaError

    admin = AIOKafkaAdminClient(**{**(client or {}), "bootstrap_servers": bootstrap})
    try:
        await admin.start()
        created = await _create(admin, name, partitions, dict(config or {}))
        await _leaders(admin, name)
    except KafkaConnectionError as error:
        raise WorldError(
            f"topic {name}: no Kafka broker answers at {bootstrap}: check the address and the "
            "login, and that the broker runs; a broker that was just started takes some seconds"
        ) from error
    except KafkaError as error:
        why = f"Kafka at {bootstrap} failed: {type(error).__name__}"
        raise WorldError(f"topic {name}: {why}") from error
    finally:
        await admin.close()
    return created


async def _create(
    admin: "AIOKafkaAdminClient", name: str, partitions: int, config: dict[str, str]
) -> bool:
    from aiokafka.admin import NewTopic
    from aiokafka.errors import for_code

    replicas = min(_REPLICAS, len((await admin.describe_cluster())["brokers"]))
    topic = NewTopic(name, partitions, replicas, topic_configs=config)
    response = await admin.create_topics([topic])
    (_, code, message), *_ = response.topic_errors
    if code not in (0, _TOPIC_ALREADY_EXISTS):
        raise WorldError(f"topic {name}: Kafka refused: {message or for_code(code).__name__}")
    return bool(code == 0)


async def _leaders(admin: "AIOKafkaAdminClient", name: str) -> None:
    end = time.monotonic() + _LEADER_SECONDS
    while True:
        (topic,) = await admin.describe_topics([name])
        if not topic["error_code"] and all(p["leader"] >= 0 for p in topic["partitions"]):
            return
        if time.monotonic() > end:
            raise WorldError(f"topic {name}: no leader after {_LEADER_SECONDS:.0f} s")
        await asyncio.sleep(0.05)
