"""A run whose world goes away goes on and publishes the same once; a start reads no more than it keeps."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from live_acts import create_series
from unit.cli.conftest import HORIZON, YAML, say
from unit.cli.conftest import Site as LiveSeriesService
from unit.cli.conftest import site as live_series
from unit.live.live_series_steps import question
from unit.live.live_series_worlds import HORIZON as LAST_TICKS
from unit.live.live_series_worlds import PIPELINE, SEALER, Stopping, batches
from unit.live.monitor_worlds import PIPELINE_M

from stream_dp import Pipeline, PublicRelease, WorldError
from stream_dp.engine.engine import Engine
from stream_dp.engine.ports import Ports
from stream_dp.errors import Outage
from stream_dp.files.files import FileSink, FileSource
from stream_dp.files.memory import MemoryJournal, MemorySink, MemorySource, MemoryStore
from stream_dp.files.sqlite import SqliteJournal
from stream_dp.journal import public_sequence, release
from stream_dp.journal.commit import Release
from stream_dp.kafka.log.lease import Holder
from stream_dp.operate.keys import sealer_for
from stream_dp.operate.run.running import Run
from stream_dp.operate.run.wiring import open_ports
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load
from stream_dp.server.view import BY_OPERATOR
from stream_dp.testing.manual_clock import ManualClock

__all__ = ["live_series", "say"]  # fixtures
SERIES, BLOCK = 3, 4


def failing(call: Callable[..., Any], at: int, *, after: bool) -> Callable[..., Any]:
    """An asynchronous method that fails for the world's reasons at its `at`-th call, before or after its work."""
    calls = 0

    async def once(self: Any, *args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at and not after:
            raise Outage("the world went away")
        answer = await call(self, *args)
        if calls == at:
            raise Outage("the world went away")
        return answer

    return once


PLACES: list[tuple[type[Any], str, int]] = [
    (FileSource, "read", 2),
    (SqliteJournal, "append", 3),
    (FileSink, "publish", 2),
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("after", [False, True])
def test_an_outage_anywhere_changes_nothing_of_what_is_published(
    live_series: LiveSeriesService, monkeypatch: pytest.MonkeyPatch, place: Any, after: bool
) -> None:
    """Also where it is not known whether the commit or the publication came about."""
    port, method, at = place
    monkeypatch.setattr(port, method, failing(getattr(port, method), at, after=after))
    seen: list[PublicRelease] = []
    assert Pipeline.load(live_series.pipeline).run(seen.append) == SERIES * HORIZON
    assert [release.sequence for release in seen] == list(range(1, SERIES * HORIZON + 1))
    assert [release.body.decode() for release in seen] == live_series.releases
    assert live_series.command("ledger").code == 0


class Away:
    """A world that goes away when told to, and comes back."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.back = asyncio.Event()
        self.at_work = asyncio.Event()
        self.failed = False


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Away:
    """A source that waits after its first block of ticks, fails once the world is gone, and opens when it is back."""
    world = Away()
    read, opening = FileSource.read, FileSource.open

    async def reading(self: FileSource) -> Any:
        if world.at_work.is_set():
            await (asyncio.Event() if world.failed else world.gone).wait()
            world.failed = True
            raise Outage("the world went away")
        world.at_work.set()
        return (await read(self))[:BLOCK]

    async def open_again(self: FileSource, origin: int) -> Any:
        if world.gone.is_set():
            await world.back.wait()
        return await opening(self, origin)

    monkeypatch.setattr(FileSource, "read", reading)
    monkeypatch.setattr(FileSource, "open", open_again)
    return world


def run_of(live_series: LiveSeriesService) -> Run:
    spec = load(live_series.pipeline)
    sealer, holder = sealer_for(spec, None), Holder()
    ports: Callable[[], Ports] = partial(open_ports, spec, sealer, holder=holder)
    return Run(build(spec), ports(), again=ports)


async def waits(run: Run) -> "asyncio.Task[None]":
    """Run until the first block is public: then nothing happens until the world goes away."""
    ends = asyncio.create_task(run.until_end())
    await until(lambda: run.ticks >= BLOCK)
    return ends


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - steps of the loop, no time
        await asyncio.sleep(0)


LIVE = json.dumps({"name": "new", "statistic": "count", "epsilon": "0.001"}).encode()


async def test_orders_wait_until_it_caught_up(live_series: LiveSeriesService, away: Away) -> None:
    live_series.write("epsilon: 1}", "epsilon: 2}")
    run = run_of(live_series)
    view = run.view()
    assert view.live_series is not None
    ends = await waits(run)
    created = await view.live_series.create(LIVE, "", BY_OPERATOR)
    before = (view.pipeline(), view.budget(), view.live_series.queries())
    assert not view.catching_up()
    away.gone.set()
    await until(view.catching_up)
    for order in (
        view.live_series.create(LIVE.replace(b"new", b"other"), "", BY_OPERATOR),
        view.live_series.preview(LIVE.replace(b"new", b"other"), "", BY_OPERATOR),
        view.live_series.halt("new", BY_OPERATOR),
    ):
        with pytest.raises(WorldError, match="catching up; nothing was done"):
            await order
    assert (view.pipeline(), view.budget(), view.live_series.queries()) == before
    away.back.set()
    await until(lambda: not view.catching_up())
    assert (view.pipeline(), view.budget(), view.live_series.queries()) == before
    halted = await view.live_series.halt("new", BY_OPERATOR)
    assert halted["end"] == created["start"]
    with pytest.raises(Exception, match="has or had this name"):
        await view.live_series.create(LIVE, "", BY_OPERATOR)
    run.stop()
    await ends


ONCE = """\
  - name: once
    statistic: monitor
    epsilon: 50
    watch: [{name: some, above: 1, rearm: false}]
"""


async def test_a_watch_that_fired_is_over_behind_it(
    live_series: LiveSeriesService, away: Away
) -> None:
    """A tick has 4 events; that noise of scale 1/50 hides them has a chance below 1e-30."""
    live_series.pipeline.write_text(YAML.replace("epsilon: 1}", "epsilon: 99}") + ONCE)
    run = run_of(live_series)
    view = run.view()
    assert view.live_series is not None
    ends = await waits(run)
    before = view.live_series.queries()
    (watch,) = next(each["watches"] for each in before if each["name"] == "once")
    assert (watch["end"], watch["fired"]) == (1, 1)
    away.gone.set()
    await until(view.catching_up)
    away.back.set()
    await until(lambda: not view.catching_up())
    assert view.live_series.queries() == before
    run.stop()
    await ends


async def test_told_to_stop_while_it_is_out_it_ends_and_says_why(
    live_series: LiveSeriesService, away: Away, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_dp.operate.run.settings.backing_off", lambda _: iter([1000.0]))
    run = run_of(live_series)
    ends = await waits(run)
    away.gone.set()
    await until(lambda: run.catching_up)
    run.stop()
    with pytest.raises(Outage, match="went away"):
        await ends


async def test_only_what_is_new_is_read_of_what_was_published(
    live_series: LiveSeriesService, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    read = FileSink.read

    def noting(self: FileSink, beyond: int = -1) -> Any:
        asked.append(beyond)
        return read(self, beyond)

    monkeypatch.setattr(FileSink, "read", noting)
    monkeypatch.setattr(FileSink, "publish", failing(FileSink.publish, 2, after=True))
    run = run_of(live_series)
    await run.until_end()
    assert asked == [-1, SERIES * BLOCK]
    assert [release.body.decode() for release in run.log.since(-1)] == live_series.releases


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
    assert run.ticks == LAST_TICKS


async def test_a_start_reads_fewer_of_many_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_dp.operate.run.running.READ_AT_START", 2)
    built = build(PipelineSpec.model_validate(PIPELINE))
    run, sink = await second_start(built, KEEP)
    assert {tick for _, tick in sink.given} == {7, 8}
    assert run.log.forgotten > 0


async def test_where_a_watch_fires_once_all_is_read_that_tells_of_it() -> None:
    built = build(PipelineSpec.model_validate(PIPELINE_M))
    _, sink = await second_start(built, KEEP)
    assert {tick for _, tick in sink.given} == set(range(9))


async def test_a_start_that_is_tried_does_not_touch_which_watches_have_fired(
    live_series: LiveSeriesService, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = list[Engine]()

    async def retain(_: Engine, keep: int, again: Callable[[], Engine]) -> None:
        tried.append(again())

    monkeypatch.setattr(Engine, "retain", retain)
    run = run_of(live_series)
    run.built.spec.journal.__dict__["keep"] = 1
    await run._retain()
    (memories,) = (engine._memories._memories for engine in tried)
    assert run.engine._memories._memories[-2] is run._fired
    assert memories[-2].kind == run._fired.kind
    assert memories[-2] is not run._fired


@pytest.mark.parametrize("beyond", [-1, 777, 3999])
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
