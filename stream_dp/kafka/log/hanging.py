"""Transactions that their coordinator has ended but their partition has not: they block readers for ever.

Why: when a broker dies, Kafka 4.3.1 may mistake a partition without a leader for a deleted one, and record a commit
or an abort as complete without writing its marker to that partition.

Rules: only the holder of the lease ends such a transaction, by an empty transaction of its own: every life of a
pipeline has the same producer id. Transactions of others are left alone. Here it is unknown whether the coordinator
recorded a commit or an abort. A journal commit that was acknowledged is followed by its releases and answers, and
by nothing else. So a hanging transaction of the journal is committed if any of these was ever written to its public
topic, even in vain, and aborted otherwise; in the latter case no reader has seen anything of it. A hanging
transaction of a public topic is durable in the journal: it is aborted, and the same bytes are published again. An
acknowledged commit without releases and answers is lost with its marker.
"""

import logging
from collections.abc import Mapping
from typing import Any

from stream_dp.journal.public_sequence import ANSWERS, RELEASES, PublicSequence
from stream_dp.kafka.log.lease import KafkaLease
from stream_dp.kafka.log.reader import reading

FIRST_RELEASE, FIRST_ANSWER = "first-release", "first-answer"
"""Headers of a journal record with the numbers of its commit's first release and first answer, which are public.
"""
_ABOUT: Mapping[str, PublicSequence[Any]] = {FIRST_RELEASE: RELEASES, FIRST_ANSWER: ANSWERS}
"""The public sequence of each header."""

_log = logging.getLogger(__name__)


async def settle_public(lease: KafkaLease, topic: str) -> None:
    """End a hanging transaction of a public topic.

    Raises:
        FailClosed: the lease is lost.
        WorldError: the brokers do not answer, or deny access.
    """
    if await _hanging(lease, topic) is not None:
        what = "it is aborted now, and what it holds is published again"
        await _end(lease, topic, what, commit=False)


async def settle_journal(lease: KafkaLease, topic: str) -> None:
    """End a hanging transaction of the journal's topic: commit it if any of it is or was public, else abort it.

    Raises:
        FailClosed: the lease is lost.
        WorldError: the brokers do not answer, or deny access.
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
    """Return begin and end of the undecided part after waiting for it, or None."""
    async with reading(lease.settings, topic) as log:
        decided, end = await log.ends()
    return (decided, end) if decided < end else None


async def _firsts(lease: KafkaLease, topic: str, begin: int, end: int) -> dict[str, int]:
    """Return the numbers in the headers of this part of the journal, decided or not."""
    found: dict[str, int] = {}
    async with reading(lease.settings, topic, "read_uncommitted") as log:
        async for records in log.records(begin, end):
            for record in records:
                for name, value in record.headers:
                    if name in _ABOUT:
                        found.setdefault(name, int(value))
    return found


async def _was_shown(lease: KafkaLease, firsts: Mapping[str, int]) -> bool:
    """Return whether a release or answer from these numbers on was ever written to its topic."""
    for header, first in firsts.items():
        if first <= await _last_written(lease, header):
            return True
    return False


async def _last_written(lease: KafkaLease, header: str) -> int:
    """Return the last number ever written to the public topic of this header, -1 if none."""
    sequence = _ABOUT[header]
    public = f"{lease.pipeline}.{sequence.name}"
    async with reading(lease.settings, public, "read_uncommitted") as log:
        last = await log.last()
    return -1 if last is None else sequence.number_of(last.value, f"topic {public!r}")


async def _end(lease: KafkaLease, topic: str, what: str, *, commit: bool) -> None:
    _log.warning("%s: the brokers lost the end of a transaction of a former run; %s", topic, what)
    await lease.end_hanging(topic, commit=commit)
