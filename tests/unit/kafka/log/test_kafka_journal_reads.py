"""Reading a journal from a checkpoint while its engine makes others, without a broker: the log is a stand-in."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from stream_dp.journal.commit import Commit
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.log import journal as kafka_journal
from stream_dp.kafka.log.journal import KafkaJournal
from stream_dp.kafka.log.lease import KafkaLease

NUMBER = 8


async def test_a_checkpoint_that_is_replaced_meanwhile_is_read_from_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    journal = KafkaJournal(KafkaLease(KafkaSettings("localhost:1"), "clicks"), "events")
    records = [
        SimpleNamespace(offset=2 * number, headers=each.headers, value=each.value)
        for number in range(NUMBER)
        for each in journal._parts(Commit(number, b""), b"%d" % number)
    ]
    journal._places = {4: 8, 2: 4}

    class Log:
        async def bounds(self) -> tuple[int, int]:
            journal._places = {6: 12, 4: 8}  # what a commit did meanwhile
            return 0, 2 * NUMBER

        async def records(self, begin: int, end: int) -> AsyncIterator[list[Any]]:
            yield [record for record in records if begin <= record.offset < end]

    @asynccontextmanager
    async def reading(*_: Any) -> AsyncIterator[Log]:
        yield Log()

    monkeypatch.setattr(kafka_journal, "reading", reading)
    assert [sealed async for sealed in journal.read(2)] == [b"%d" % n for n in range(2, NUMBER)]
