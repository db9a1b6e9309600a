"""Makes a topic for the events of a pipeline: the work of `stream-dp topic`.

Rules: an existing topic is not changed. The brokers of a new one stamp records on arrival, which a wall clock
needs, and store them uncompressed: they unpack each batch themselves, so every stored batch can be unpacked by
readers.
"""

from collections.abc import Callable

from stream_dp.broker.topics import create_topic
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.topics import PLAIN, STAMPED, UNCOMPACTED
from stream_dp.operate.run.awaited_brokers import brokers_there


async def make_topic(
    settings: KafkaSettings,
    name: str,
    partitions: int,
    *,
    stamped: bool,
    tell: Callable[[str], None] | None = None,
) -> bool:
    """Create the topic; return False if it existed already. With `tell`, wait for brokers that do not answer yet.

    Raises:
        WorldError: the brokers do not answer, or deny access.
    """
    if tell is not None:
        await brokers_there(settings, tell)
    config = {**UNCOMPACTED, **PLAIN, **(STAMPED if stamped else {})}
    return await create_topic(settings.bootstrap, name, partitions, config, settings.client())
