"""The in-memory adapters keep the ports' contract, and the checks themselves can fail."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from stream_dp.engine.ports import Batch, Journal, Sink, Source
from stream_dp.errors import FailClosed
from stream_dp.files.memory import MemoryJournal, MemorySink, MemorySource, MemoryStore
from stream_dp.journal.commit import Commit, Release
from stream_dp.testing.port_checks import (
    check_journal,
    check_journal_checkpoints,
    check_journal_order,
    check_sink,
    check_sink_versions,
    sample_releases,
)


def _batch(position: int, *payloads: bytes, mark: int | None = None, partition: int = 0) -> Batch:
    return Batch(partition, payloads, tuple(range(len(payloads))), position, mark=mark)


@pytest.mark.parametrize("check", [check_journal, check_journal_checkpoints, check_journal_order])
async def test_journal_contract(
    check: Callable[[Callable[[], Journal]], Coroutine[Any, Any, None]],
) -> None:
    store = MemoryStore()
    await check(lambda: MemoryJournal(store))


@pytest.mark.parametrize("check", [check_sink, check_sink_versions])
async def test_sink_contract(
    check: Callable[[Callable[[], Sink]], Coroutine[Any, Any, None]],
) -> None:
    bodies: list[bytes] = []
    await check(lambda: MemorySink(bodies))


class _TwoWriters(MemoryJournal):
    def _check_lease(self) -> None:
        pass


class _Forgetful(MemoryJournal):
    async def append(self, commit: Commit, sealed: bytes) -> None:
        await super().append(commit, b"" if commit.sequence == 1 else sealed)


class _Repeating(MemorySink):
    async def publish(self, releases: Sequence[Release]) -> None:
        self.bodies.extend(release.body for release in releases)


@pytest.mark.parametrize("broken", [_TwoWriters, _Forgetful])
async def test_a_broken_journal_is_caught(broken: type[MemoryJournal]) -> None:
    store = MemoryStore()
    with pytest.raises(AssertionError):
        await check_journal(lambda: broken(store))


async def test_a_broken_sink_is_caught() -> None:
    bodies: list[bytes] = []
    with pytest.raises(AssertionError):
        await check_sink(lambda: _Repeating(bodies))
    bodies.clear()
    with pytest.raises(AssertionError):
        await check_sink_versions(lambda: _Repeating(bodies))


async def test_sink_refuses_disorder_and_foreign_bodies() -> None:
    with pytest.raises(FailClosed, match="order"):
        await MemorySink().publish(sample_releases(0, 3)[::-1])
    with pytest.raises(FailClosed, match="no release"):
        await MemorySink([b"hello"]).publish(sample_releases(0, 3))


async def _payloads(source: Source) -> list[bytes]:
    found: list[bytes] = []
    while batches := await source.read():
        found.extend(payload for batch in batches for payload in batch.payloads)
    return found


async def test_source_seeks_behind_a_position() -> None:
    batches = [_batch(2, b"a", b"b"), _batch(3, b"x", partition=1), _batch(4, b"c", b"d", mark=0)]
    source = MemorySource(batches)
    assert await source.open(0) == (0, 1)
    assert await _payloads(source) == [b"a", b"b", b"x", b"c", b"d"]
    await source.seek({0: 2})
    assert await _payloads(source) == [b"x", b"c", b"d"]
    await source.seek({0: 4, 1: 3})
    assert await _payloads(source) == []
    await source.close()
