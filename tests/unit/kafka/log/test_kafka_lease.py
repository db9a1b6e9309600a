"""A lease keeps to its table, without a broker: its producer is a stand-in. What fencing does is in tests/kafka."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from stream_dp.engine.phases import LeasePhase
from stream_dp.errors import FailClosed, WorldError
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.log import lease as kafka_lease
from stream_dp.kafka.log.lease import KafkaLease


class Producer:
    """Commits nothing, or fails, or waits for `go`."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.go.set()
        self.error: Exception | None = None
        self.closed = 0

    async def begin_transaction(self) -> None:
        """Begin nothing."""

    async def commit_transaction(self) -> None:
        await self.go.wait()
        if self.error is not None:
            raise self.error


class Fencing:
    """What `start` gets: the producer, once `go` is set; or an error, once."""

    def __init__(self) -> None:
        self.producer = Producer()
        self.go = asyncio.Event()
        self.go.set()
        self.errors: list[Exception] = []

    async def __call__(self) -> Producer:
        await self.go.wait()
        if self.errors:
            raise self.errors.pop()
        return self.producer


def phase(lease: KafkaLease) -> LeasePhase:
    """Return its phase as of now, whatever it was a line before."""
    return lease.phase


@pytest.fixture
def fencing() -> Fencing:
    return Fencing()


@pytest.fixture
def lease(fencing: Fencing, monkeypatch: pytest.MonkeyPatch) -> KafkaLease:
    async def closed(producer: Producer) -> None:
        producer.closed += 1

    monkeypatch.setattr(kafka_lease, "disconnect", closed)
    monkeypatch.setattr(kafka_lease, "_abandon", closed)
    made = KafkaLease(KafkaSettings("nowhere:1"), "clicks")
    monkeypatch.setattr(made, "_fence", fencing)
    return made


async def test_a_lease_is_held_once_and_closed_once(lease: KafkaLease, fencing: Fencing) -> None:
    assert phase(lease) is LeasePhase.NONE
    with pytest.raises(FailClosed, match="not started"):
        await lease.transact([])
    await lease.start()
    await lease.start()
    assert phase(lease) is LeasePhase.HELD
    await lease.transact([])
    await lease.close()
    await lease.close()
    assert phase(lease) is LeasePhase.CLOSED
    assert fencing.producer.closed == 2  # disconnected and abandoned, once each
    for call in (lease.start, lambda: lease.transact([])):
        with pytest.raises(FailClosed, match="closed"):
            await call()


async def test_a_lease_that_could_not_be_had_may_be_asked_for_again(
    lease: KafkaLease, fencing: Fencing
) -> None:
    fencing.errors.append(WorldError("no broker"))
    with pytest.raises(WorldError, match="no broker"):
        await lease.start()
    assert phase(lease) is LeasePhase.NONE
    await lease.start()
    assert phase(lease) is LeasePhase.HELD


def fails(producer: Producer) -> None:
    producer.error = RuntimeError("fenced, perhaps")


def hangs(producer: Producer) -> None:
    producer.go.clear()


@pytest.mark.parametrize(
    ("broken", "error", "says"),
    [(fails, FailClosed, "a transaction failed"), (hangs, WorldError, "a transaction")],
)
async def test_a_lost_lease_stays_lost_and_says_why(
    lease: KafkaLease,
    fencing: Fencing,
    monkeypatch: pytest.MonkeyPatch,
    broken: Callable[[Producer], None],
    error: type[Exception],
    says: str,
) -> None:
    monkeypatch.setattr(KafkaLease, "_limit_s", 0)
    await lease.start()
    broken(fencing.producer)
    calls: list[Callable[[], Any]] = [lambda: lease.transact([])] * 2 + [lease.start]
    for call in calls:
        with pytest.raises(error, match=says):
            await call()
        assert phase(lease) is LeasePhase.LOST
    await lease.close()
    assert phase(lease) is LeasePhase.CLOSED
    assert fencing.producer.closed == 1  # abandoned: a lost lease ends no transaction
    with pytest.raises(error, match=says):
        await lease.transact([])


async def test_an_interrupted_transaction_loses_the_lease(
    lease: KafkaLease, fencing: Fencing
) -> None:
    await lease.start()
    hangs(fencing.producer)
    running = asyncio.create_task(lease.transact([]))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert phase(lease) is LeasePhase.LOST
    closing = asyncio.create_task(lease.close())
    await asyncio.sleep(0)
    assert not closing.done()
    fencing.producer.go.set()
    await closing
    with pytest.raises(FailClosed, match="interrupted"):
        await lease.start()


async def test_a_lease_that_is_closed_while_it_fences_is_given_back(
    lease: KafkaLease, fencing: Fencing
) -> None:
    fencing.go.clear()
    starting = asyncio.create_task(lease.start())
    await asyncio.sleep(0)
    assert phase(lease) is LeasePhase.FENCING
    await lease.close()
    fencing.go.set()
    with pytest.raises(FailClosed, match="closed"):
        await starting
    assert phase(lease) is LeasePhase.CLOSED
    assert fencing.producer.closed == 1
