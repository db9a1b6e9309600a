"""Apache Kafka's own command line tools, as a distribution has them: two of them, from its jar of tools.

Rules: the jar is that of the brokers' version and checked like theirs; its folder is one of its own in the cache.
"""

import os
from pathlib import Path

from stream_dp.broker.jars import KAFKA_VERSION, Jar, cache_dir, resolve_jars
from stream_dp.broker.process import find_java

TOOLS = Jar(
    "org.apache.kafka",
    "kafka-tools",
    KAFKA_VERSION,
    "62f3c5dd7aa3442d4c5bc6a95f86e2502178ea09de8e27f74d9563bf955e253c",
)
QUICK = "-Xmx128m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
CLASSES = {"kafka-topics.sh": "TopicCommand", "kafka-acls.sh": "AclCommand"}


def write_tools(folder: Path) -> Path:
    """Write the tools into this folder; return it, as KAFKA_BIN wants it.

    Raises:
        WorldError: the jars cannot be had.
    """
    own = resolve_jars(folder=cache_dir() / f"kafka-tools-{KAFKA_VERSION}", jars=[TOOLS])
    classpath = os.pathsep.join(map(str, [*own, *resolve_jars()]))
    folder.mkdir()
    for name, each in CLASSES.items():
        tool = folder / name
        line = f"exec '{find_java()}' {QUICK} -cp '{classpath}' org.apache.kafka.tools.{each}"
        tool.write_text(f'#!/bin/sh\n{line} "$@"\n')
        tool.chmod(0o755)
    return folder
