"""A topic made ready for the events of a pipeline: what `stream-dp topic` does.

Rules: a topic that exists is left as it is. The brokers of a new one stamp records on arrival, which a wall clock
needs, and store them uncompressed: they unpack each batch themselves, so none gets in that nobody else can unpack.
"""

from stream_dp.adapters.kafka_client import KafkaSettings
from stream_dp.adapters.kafka_topics import PLAIN, STAMPED, UNCOMPACTED
from stream_dp.broker.topics import create_topic


async def make_topic(settings: KafkaSettings, name: str, partitions: int, *, stamped: bool) -> bool:
    """Create the topic; False if it existed already.

    Raises:
        WorldError: no answer, or access denied.
    """
    config = {**UNCOMPACTED, **PLAIN, **(STAMPED if stamped else {})}
    return await create_topic(settings.bootstrap, name, partitions, config, settings.client())
