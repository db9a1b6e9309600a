"""One Kafka for a whole pytest session, real and local.

In a conftest.py: `from stream_dp.testing.kafka import kafka` and use the fixture `kafka`, the bootstrap address.
Rules: tests never share topics (`fresh_topic_name`). Without a Kafka the tests are skipped, with the reason;
`STREAM_DP_REQUIRE=kafka,browser` turns such skips into failures.
"""

import asyncio
import fcntl
import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from stream_dp.broker import LocalKafka
from stream_dp.errors import StreamDPError


def missing(what: str, reason: str) -> NoReturn:
    """Skip the test, or fail it if `what` is required."""
    names = os.environ.get("STREAM_DP_REQUIRE", "").split(",")
    if what in map(str.strip, names):
        pytest.fail(f"{what} is required (STREAM_DP_REQUIRE) but missing: {reason}", pytrace=False)
    pytest.skip(f"{what} is missing: {reason}")


def fresh_topic_name(prefix: str = "test") -> str:
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def kafka_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a broker over a temporary folder, yield its bootstrap address, stop it.

    The workers of one run (`pytest -n`) share it: the first worker that needs the broker starts it, stops it after
    the last worker has left, and then raises if the broker died meanwhile. The broker has its own event loop.
    """
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    address = shared / "kafka.address"
    with (shared / "kafka.start").open("a") as start, (shared / "kafka.users").open("a") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        fcntl.flock(start, fcntl.LOCK_EX)
        if address.exists():
            start.close()
            yield address.read_text(encoding="ascii")
            return
        with _broker() as broker:
            address.write_text(broker.bootstrap, encoding="ascii")
            start.close()
            yield broker.bootstrap
            fcntl.flock(users, fcntl.LOCK_EX)
            address.unlink()
            broker.check()


@contextmanager
def _broker() -> Iterator[LocalKafka]:
    """Yield a running broker; if there is none, skip the test, or fail it if Kafka is required."""
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
            yield broker
        finally:
            runner.run(broker.stop())


kafka = pytest.fixture(scope="session", name="kafka")(kafka_session)
