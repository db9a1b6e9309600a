"""A transaction that its coordinator has ended and its partition has not: readers of what is committed wait for ever.

Why: where a broker dies, Kafka 4.3.1 may take a partition that has no leader for a deleted one, and book a commit or
an abort as complete without writing its marker there. Rules: only who holds the lease ends such a transaction, by an
empty one of its own, for every life of a pipeline has one producer id; those of others stay. What was booked is not
known here any more. A commit of the journal that was acknowledged is followed by its releases, and nothing else is:
so it is committed where any of them was ever written to the public topic, also in vain, and else aborted, and then no
reader has seen anything of it. What hangs in the public topic is durable in the journal: it is aborted, and the same
bytes are published again. An acknowledged commit without releases (a series created or halted) is lost with its
marker.
"""

import logging

from stream_dp.adapters.kafka_lease import KafkaLease
from stream_dp.adapters.kafka_log import reading
from stream_dp.runtime.release import read_head

FIRST = "first-release"
"""The header of a journal's record that tells the sequence of the first release of its commit, public as it is."""

_log = logging.getLogger(__name__)


async def settle_public(lease: KafkaLease, topic: str) -> None:
    """End what hangs in the public topic.

    Raises:
        FailClosed: the lease is lost.
        WorldError: no answer, or access denied.
    """
    if await _hanging(lease, topic) is not None:
        what = "it is aborted now, and what it holds is published again"
        await _end(lease, topic, what, commit=False)


async def settle_journal(lease: KafkaLease, topic: str, public: str) -> None:
    """End what hangs in the journal's topic: commit it where `public` holds, or held, a release of it.

    Raises:
        FailClosed: the lease is lost.
        WorldError: no answer, or access denied.
    """
    hanging = await _hanging(lease, topic)
    if hanging is not None:
        first = await _first_release(lease, topic, *hanging)
        commit = first is not None and first <= await _last_written(lease, public)
        what = (
            "committed now, for what it holds is public"
            if commit
            else "aborted now: nothing of it was published"
        )
        await _end(lease, topic, f"it is {what}", commit=commit)


async def _hanging(lease: KafkaLease, topic: str) -> tuple[int, int] | None:
    """Where what is not decided begins and ends, after it was waited for."""
    async with reading(lease.settings, topic) as log:
        decided, end = await log.ends()
    return (decided, end) if decided < end else None


async def _first_release(lease: KafkaLease, topic: str, begin: int, end: int) -> int | None:
    """The sequence of the first release in a part of the journal, decided or not."""
    async with reading(lease.settings, topic, "read_uncommitted") as log:
        async for records in log.records(begin, end):
            for record in records:
                for name, value in record.headers:
                    if name == FIRST:
                        return int(value)
    return None


async def _last_written(lease: KafkaLease, public: str) -> int:
    """The sequence of the last release that was ever written to the public topic, -1 where none was."""
    async with reading(lease.settings, public, "read_uncommitted") as log:
        last = await log.last()
    return -1 if last is None else read_head(last.value, f"topic {public!r}").sequence


async def _end(lease: KafkaLease, topic: str, what: str, *, commit: bool) -> None:
    _log.warning("%s: the brokers lost the end of a transaction of a former run; %s", topic, what)
    await lease.end_hanging(topic, commit=commit)
