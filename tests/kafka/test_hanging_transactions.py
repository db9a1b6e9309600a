"""A transaction whose end the brokers lost, as Kafka 4.3.1 does where a leader dies: the pipeline's next life ends it.

It is made by a producer with the pipeline's own transactional id that writes to a partition without telling its
coordinator of it, which brokers permit while they do not verify it.
"""

from collections.abc import AsyncIterator, Iterable

import pytest
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from kafka.kafka_worlds import Parts, administering, create, release, visible
from kafka.raw_batches import RawBatch, record
from kafka.raw_producer import RawTransactions
from kafka.raw_wire import Wire

from stream_dp.errors import FailClosed
from stream_dp.journal.commit import Commit
from stream_dp.kafka.log import journal as kafka_hanging
from stream_dp.kafka.log.journal import KafkaJournal
from stream_dp.kafka.log.lease import KafkaLease, Outgoing
from stream_dp.kafka.log.public import KafkaAnswers
from stream_dp.testing.port_checks import sample_answers

FIRST = Commit(1, b"", releases=(release(0), release(1)))
ASKED = Commit(2, b"", answers=tuple(sample_answers(1, 3)))
SECOND = Commit(2, b"", releases=(release(2, tick=1), release(3, tick=1)))


@pytest.fixture(autouse=True)
async def unverified(kafka: str) -> AsyncIterator[None]:
    """The broker takes records of a transaction whose coordinator knows nothing of their partition."""

    async def verifying(value: str) -> None:
        rule = {"transaction.partition.verification.enable": value}
        async with administering(kafka) as admin:
            await admin.alter_configs([ConfigResource(ConfigResourceType.BROKER, "1", rule)])

    await verifying("false")
    yield
    await verifying("true")


def batch(records: Iterable[Outgoing]) -> RawBatch:
    return RawBatch(
        [
            record(one.value, at, key=one.key, headers=[(n.encode(), v) for n, v in one.headers])
            for at, one in enumerate(records)
        ]
    )


async def lived(parts: Parts) -> KafkaJournal:
    """The journal of a pipeline after a commit whose releases are public."""
    await create(parts.kafka, parts.topic("events"), 1)
    one = await parts.journal()
    sink = await parts.sink(one._lease)
    await one.append(Commit(0, b""), b"header")
    await one.append(FIRST, b"first")
    await sink.publish(FIRST.releases)
    return one


class FormerLife:
    """The life after that, of which the brokers lose the ends of transactions."""

    def __init__(self, wire: Wire, name: str) -> None:
        self.name = name
        self._raw = RawTransactions(wire, f"{name}.shard-0")

    def hang(self, records: Iterable[Outgoing]) -> None:
        every = list(records)
        self._raw._joined.add((every[0].topic, 0))
        assert self._raw.send(every[0].topic, 0, batch(every)).error == 0
        self._raw._joined.clear()

    def publish(self, commit: Commit, *, seen: bool) -> None:
        """Write a commit's releases or answers to their public topic, for readers to see or in vain."""
        topic = f"{self.name}.{'answers' if commit.answers else 'releases'}"
        every = commit.answers or commit.releases
        bodies = [Outgoing(topic, each.body, b"key") for each in every]
        assert self._raw.send(topic, 0, batch(bodies)).error == 0
        self._raw.end(commit=seen)


async def sealed(journal: KafkaJournal) -> list[bytes]:
    return [one async for one in journal.read()]


@pytest.mark.parametrize("published", ["never", "in vain", "seen"])
@pytest.mark.parametrize("last", [SECOND, ASKED], ids=["releases", "answers"])
async def test_a_commit_that_hangs_counts_exactly_where_it_was_written_to_readers(
    impatient: Parts, last: Commit, published: str
) -> None:
    """Else a release or an answer would be public that no commit holds, and the pipeline could never go on."""
    one = await lived(impatient)
    await KafkaAnswers(one._lease).open()
    with Wire(impatient.kafka) as wire:
        former = FormerLife(wire, impatient.name)
        former.hang(one._parts(last, b"second"))
        if published != "never":
            former.publish(last, seen=published == "seen")
    again = await impatient.journal()
    counts = [b"second"] if published != "never" else []
    assert await sealed(again) == [b"header", b"first", *counts]
    await again.append(Commit(2 + len(counts), b""), b"following")
    assert await sealed(again) == [b"header", b"first", *counts, b"following"]


@pytest.mark.parametrize(("seen", "published"), [(10**9, False), (-1, True)])
async def test_one_that_is_always_committed_or_always_aborted_is_caught(
    impatient: Parts, monkeypatch: pytest.MonkeyPatch, seen: int, published: bool
) -> None:
    """The twins: a commit that nobody decided, and one that is lost though its releases are public."""

    async def written(lease: KafkaLease, public: str) -> int:
        return seen

    monkeypatch.setattr(kafka_hanging, "_last_written", written)
    one = await lived(impatient)
    with Wire(impatient.kafka) as wire:
        former = FormerLife(wire, impatient.name)
        former.hang(one._parts(SECOND, b"second"))
        if published:
            former.publish(SECOND, seen=True)
    counts = [b"second"] if published else []
    assert await sealed(await impatient.journal()) != [b"header", b"first", *counts]


async def test_a_commit_without_releases_that_hangs_is_aborted(impatient: Parts) -> None:
    one = await lived(impatient)
    with Wire(impatient.kafka) as wire:
        FormerLife(wire, impatient.name).hang(one._parts(Commit(2, b""), b"created"))
    assert await sealed(await impatient.journal()) == [b"header", b"first"]


async def test_releases_that_hang_are_published_again_with_the_same_bytes(impatient: Parts) -> None:
    one = await lived(impatient)
    await one.append(SECOND, b"second")
    kafka, topic = impatient.kafka, impatient.topic("releases")
    with Wire(kafka) as wire:
        former = FormerLife(wire, impatient.name)
        former.hang([Outgoing(topic, each.body, b"by_day") for each in SECOND.releases])
    again = await impatient.journal()
    sink = await impatient.sink(again._lease)
    assert await sink.last() == FIRST.releases[-1].body
    await sink.publish(SECOND.releases)
    first, second = ([each.body for each in one.releases] for one in (FIRST, SECOND))
    assert [each.value for each in await visible(kafka, topic)] == [*first, *second]
    written = [each.value for each in await visible(kafka, topic, "read_uncommitted")]
    assert written == [*first, *second, *second]


async def test_what_another_program_leaves_open_is_not_ended(impatient: Parts) -> None:
    one = await lived(impatient)
    with Wire(impatient.kafka) as wire:
        stranger = RawTransactions(wire, impatient.topic("stranger"))
        its = batch(one._parts(SECOND, b"x"))
        assert stranger.send(impatient.topic("private.journal"), 0, its).error == 0
        with pytest.raises(FailClosed, match="has an open transaction"):
            await impatient.journal()
        stranger.end(commit=False)
