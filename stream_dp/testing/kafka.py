"""One Kafka for a whole pytest session, real and local.

In a conftest.py: `from stream_dp.testing.kafka import kafka` and take the fixture `kafka`, the
bootstrap address. Rules: tests never share topics (`fresh_topic_name`). Without a Kafka the tests
are skipped, with the reason; `STREAM_DP_REQUIRE=kafka,browser` turns such skips into failures.
"""

import asyncio
import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from stream_dp.broker import LocalKafka
from stream_dp.errors import StreamDPError


def required(what: str) -> bool:
    """Whether `STREAM_DP_REQUIRE` names it."""
    names = os.environ.get("STREAM_DP_REQUIRE", "").split(",")
    return what in {name.strip() for name in names}


def missing(what: str, reason: str) -> NoReturn:
    """Skip the test, or fail it if what is missing is required."""
    if required(what):
        pytest.fail(f"{what} is required (STREAM_DP_REQUIRE) but missing: {reason}", pytrace=False)
    pytest.skip(f"{what} is missing: {reason}")


def fresh_topic_name(prefix: str = "test") -> str:
    """A topic name that no other test uses."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def kafka_session() -> Iterator[str]:
    """Start a broker over a temporary folder, yield its bootstrap address, stop it.

    At the end it raises if the broker died in between. The loop is its own: tests keep theirs.
    """
    with (
        tempfile.TemporaryDirectory(prefix="stream-dp-kafka-") as folder,
        asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner,
    ):
        broker = LocalKafka(Path(folder))
        try:
            runner.run(broker.start())
        except StreamDPError as error:
            missing("kafka", str(error))
        try:
            yield broker.bootstrap
            broker.check()
        finally:
            runner.run(broker.stop())


kafka = pytest.fixture(scope="session", name="kafka")(kafka_session)
