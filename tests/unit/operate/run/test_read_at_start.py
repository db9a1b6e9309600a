"""What a start reads of what is public: no more than is kept, and what tells which watches have fired."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from live_acts import create_series
from unit.live.live_series_steps import question
from unit.live.live_series_worlds import HORIZON, PIPELINE, SEALER, Stopping, batches
from unit.live.monitor_worlds import PIPELINE_M

from stream_dp.engine.ports import Ports
from stream_dp.files.files import FileSink
from stream_dp.files.memory import MemoryJournal, MemorySink, MemorySource, MemoryStore
from stream_dp.journal import public_sequence, release
from stream_dp.journal.commit import Release
from stream_dp.operate.run.running import Run
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.testing.manual_clock import ManualClock

KEEP = 3


class Sink(MemorySink):
    """Notes what is read."""

    def __init__(self, bodies: list[bytes]) -> None:
        super().__init__(bodies)
        self.given: list[tuple[str, int]] = []

    async def read(self, beyond: int = -1) -> AsyncIterator[bytes]:
        async for body in super().read(beyond):
            said = json.loads(body)
            self.given.append((said["series"], said["tick"]))
            yield body


def ports(source: MemorySource, store: MemoryStore, sink: Sink) -> Ports:
    return Ports(source, MemoryJournal(store), sink, ManualClock(0), SEALER)


async def second_start(built: Built, keep: int | None, *, create: bool = False) -> tuple[Run, Sink]:
    """Run to tick 8, from tick 4 on with a series that is created, and again; return the second run."""
    store, bodies, source = MemoryStore(), list[bytes](), Stopping(2)
    first = Run(built, ports(source, store, Sink(bodies)), keep=keep)
    going = asyncio.create_task(first.until_end())
    await first.ready.wait()
    while first.ticks < 3:  # noqa: ASYNC110 - steps of the loop, no time
        await asyncio.sleep(0)
    if create:
        await create_series(first.engine, question())
    source.go(8)
    while first.ticks < 9:  # noqa: ASYNC110 - steps of the loop, no time
        await asyncio.sleep(0)
    first.stop()
    await going
    sink = Sink(bodies)
    again = Run(built, ports(MemorySource(batches(), partitions=(0, 1)), store, sink), keep=keep)
    await again.until_end()
    return again, sink


async def test_a_start_reads_what_it_keeps_and_says_that_more_was_before() -> None:
    built = build(PipelineSpec.model_validate(PIPELINE))
    run, sink = await second_start(built, KEEP, create=True)
    assert sink.given == [(name, tick) for tick in (6, 7, 8) for name in ("orders", "large")]
    before = 6 + 2  # of orders six, of what was created two
    assert run.log.forgotten >= before
    assert [each.tick for each in run.log.series_between("orders", 0, 99)] == [9, 10, 11]
    assert run.ticks == HORIZON


async def test_what_keeps_all_reads_all() -> None:
    built = build(PipelineSpec.model_validate(PIPELINE))
    run, sink = await second_start(built, None)
    assert [tick for _, tick in sink.given] == list(range(9))
    assert run.log.forgotten == -1


async def test_where_a_watch_fires_once_all_is_read_that_tells_of_it() -> None:
    built = build(PipelineSpec.model_validate(PIPELINE_M))
    _, sink = await second_start(built, KEEP)
    assert {tick for _, tick in sink.given} == set(range(9))


@pytest.mark.parametrize("beyond", [-1, 0, 1, 777, 3998, 3999, 4000])
async def test_a_file_is_hardly_looked_at_before_what_is_wanted(
    beyond: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, looks = FileSink(tmp_path / "releases.jsonl"), list[int]()
    await sink.open()
    head = b'"series":"x","tick":%d,"end":"2026-01-01T00:00:00Z","pad":"%s"}'
    every = [
        Release(n, "x", n, b'{"v":1,"sequence":%d,' % n + head % (n, b"p" * (n * 7919 % 2000)))
        for n in range(4000)
    ]
    await sink.publish(every)

    def looked(body: bytes, what: str) -> Any:
        looks.append(1)
        return release.read_head(body, what)

    monkeypatch.setattr(public_sequence, "read_head", looked)
    assert [body async for body in sink.read(beyond)] == [one.body for one in every[beyond + 1 :]]
    await sink.close()
    assert len(looks) <= 4000 - max(0, beyond) + 1400  # those of a chunk
