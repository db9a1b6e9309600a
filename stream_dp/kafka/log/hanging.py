"""A transaction that its coordinator has ended and its partition has not: readers of what is committed wait for ever.

Why: where a broker dies, Kafka 4.3.1 may take a partition that has no leader for a deleted one, and book a commit or
an abort as complete without writing its marker there. Rules: only who holds the lease ends such a transaction, by an
empty one of its own, for every life of a pipeline has one producer id; those of others stay. What was booked is not
known here any more. A commit of the journal that was acknowledged is followed by its releases and answers, and nothing
else is: so it is committed where any of them was ever written to its public topic, also in vain, and else aborted, and
then no reader has seen anything of it. What hangs in a public topic is durable in the journal: it is aborted, and the
same bytes are published again. An acknowledged commit without either is lost with its marker.
"""

import logging
from collections.abc import Mapping
from typing import Any

from stream_dp.journal.public_sequence import ANSWERS, RELEASES, PublicSequence
from stream_dp.kafka.log.lease import KafkaLease
from stream_dp.kafka.log.reader import reading

FIRST_RELEASE, FIRST_ANSWER = "first-release", "first-answer"
"""The headers of a journal's record that tell the numbers of its commit's first release and answer, public as they are.
"""
_ABOUT: Mapping[str, PublicSequence[Any]] = {FIRST_RELEASE: RELEASES, FIRST_ANSWER: ANSWERS}
"""For each header the public sequence that it is about."""

_log = logging.getLogger(__name__)


async def settle_public(lease: KafkaLease, topic: str) -> None:
    """End what hangs in a public topic.

    Raises:
        FailClosed: the lease is lost.
        WorldError: no answer, or access denied.
    """
    if await _hanging(lease, topic) is not None:
        what = "it is aborted now, and what it holds is published again"
        await _end(lease, topic, what, commit=False)


async def settle_journal(lease: KafkaLease, topic: str) -> None:
    """End what hangs in the journal's topic: commit it where anything of it is public, or was.

    Raises:
        FailClosed: the lease is lost.
        WorldError: no answer, or access denied.
    """
    hanging = await _hanging(lease, topic)
    if hanging is not None:
        commit = await _was_shown(lease, await _firsts(lease, topic, *hanging))
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


async def _firsts(lease: KafkaLease, topic: str, begin: int, end: int) -> dict[str, int]:
    """What the headers say that a part of the journal begins with, decided or not."""
    found: dict[str, int] = {}
    async with reading(lease.settings, topic, "read_uncommitted") as log:
        async for records in log.records(begin, end):
            for record in records:
                for name, value in record.headers:
                    if name in _ABOUT:
                        found.setdefault(name, int(value))
    return found


async def _was_shown(lease: KafkaLease, firsts: Mapping[str, int]) -> bool:
    """Say whether any of what begins with these numbers was ever written to its public topic."""
    for header, first in firsts.items():
        if first <= await _last_written(lease, header):
            return True
    return False


async def _last_written(lease: KafkaLease, header: str) -> int:
    """The last number that was ever written to the public topic of this header, -1 where none was."""
    sequence = _ABOUT[header]
    public = f"{lease.pipeline}.{sequence.name}"
    async with reading(lease.settings, public, "read_uncommitted") as log:
        last = await log.last()
    return -1 if last is None else sequence.number_of(last.value, f"topic {public!r}")


async def _end(lease: KafkaLease, topic: str, what: str, *, commit: bool) -> None:
    _log.warning("%s: the brokers lost the end of a transaction of a former run; %s", topic, what)
    await lease.end_hanging(topic, commit=commit)
