"""A run whose world goes away at every place in turn goes on, publishes the same once, and takes no order meanwhile."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from unit.cli.conftest import HORIZON, YAML, LiveSeriesService, live_series, say

from stream_dp import Pipeline, PublicRelease, WorldError
from stream_dp.engine.ports import Ports
from stream_dp.errors import Outage
from stream_dp.files.files import FileSink, FileSource
from stream_dp.files.sqlite import SqliteJournal
from stream_dp.kafka.log.lease import Holder
from stream_dp.operate.keys import sealer_for
from stream_dp.operate.run.running import Run
from stream_dp.operate.run.wiring import open_ports
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.yaml import load
from stream_dp.server.live_series import BY_OPERATOR

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
    (FileSink, "publish", 1),
    (FileSink, "publish", 2),
]


@pytest.mark.parametrize(("port", "method", "at"), PLACES)
@pytest.mark.parametrize("after", [False, True])
def test_an_outage_anywhere_changes_nothing_of_what_is_published_and_handed_out(
    live_series: LiveSeriesService,
    monkeypatch: pytest.MonkeyPatch,
    port: type[Any],
    method: str,
    at: int,
    after: bool,
) -> None:
    """Also where it is not known whether the commit or the publication came about."""
    monkeypatch.setattr(port, method, failing(getattr(port, method), at, after=after))
    seen: list[PublicRelease] = []
    assert Pipeline.load(live_series.pipeline).run(seen.append) == SERIES * HORIZON
    assert [release.sequence for release in seen] == list(range(1, SERIES * HORIZON + 1))
    assert [release.body.decode() for release in seen] == live_series.releases
    assert live_series.command("ledger").code == 0


def test_an_outage_before_anything_ran_is_told_at_once(
    live_series: LiveSeriesService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileSource, "open", failing(FileSource.open, 1, after=False))
    with pytest.raises(Outage, match="went away"):
        Pipeline.load(live_series.pipeline).run()


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


async def waits(run: Run) -> None:
    """Wait until its first block is public: then nothing happens until the world goes away."""
    while run.ticks < BLOCK:  # noqa: ASYNC110 - nobody is told
        await asyncio.sleep(0)


LIVE = json.dumps({"name": "new", "statistic": "count", "epsilon": "0.001"}).encode()


async def test_orders_are_refused_while_it_catches_up_and_taken_once_it_runs(
    live_series: LiveSeriesService, away: Away
) -> None:
    live_series.write("epsilon: 1}", "epsilon: 2}")
    run = run_of(live_series)
    view = run.view()
    assert view.live_series is not None
    ends = asyncio.create_task(run.until_end())
    await waits(run)
    created = await view.live_series.create(LIVE, "", BY_OPERATOR)
    before = (view.pipeline(), view.budget(), view.live_series.queries())
    assert not view.catching_up()
    away.gone.set()
    while not view.catching_up():  # noqa: ASYNC110 - nobody is told
        await asyncio.sleep(0)
    for order in (
        view.live_series.create(LIVE.replace(b"new", b"other"), "", BY_OPERATOR),
        view.live_series.preview(LIVE.replace(b"new", b"other"), "", BY_OPERATOR),
        view.live_series.halt("new", BY_OPERATOR),
    ):
        with pytest.raises(WorldError, match="catching up; nothing was done"):
            await order
    assert (view.pipeline(), view.budget(), view.live_series.queries()) == before
    away.back.set()
    while view.catching_up():  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert (view.pipeline(), view.budget(), view.live_series.queries()) == before
    halted = await view.live_series.halt("new", BY_OPERATOR)
    assert halted["end"] == created["start"]
    with pytest.raises(Exception, match="is or was there"):
        await view.live_series.create(LIVE, "", BY_OPERATOR)
    run.stop()
    await ends


ONCE = """\
  - name: once
    statistic: monitor
    epsilon: 50
    watch: [{name: some, above: 1, rearm: false}]
"""


async def test_what_ended_by_firing_before_an_outage_is_listed_so_behind_it(
    live_series: LiveSeriesService, away: Away
) -> None:
    """A tick has 4 events; that noise of scale 1/50 hides them has a chance below 1e-30."""
    live_series.pipeline.write_text(YAML.replace("epsilon: 1}", "epsilon: 99}") + ONCE)
    run = run_of(live_series)
    view = run.view()
    assert view.live_series is not None
    ends = asyncio.create_task(run.until_end())
    await waits(run)
    before = view.live_series.queries()
    (watch,) = next(each["watches"] for each in before if each["name"] == "once")
    assert (watch["end"], watch["fired"]) == (1, 1)
    away.gone.set()
    while not view.catching_up():  # noqa: ASYNC110
        await asyncio.sleep(0)
    away.back.set()
    while view.catching_up():  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert view.live_series.queries() == before
    run.stop()
    await ends


async def test_told_to_stop_while_it_is_out_it_ends_and_says_why(
    live_series: LiveSeriesService, away: Away, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_dp.operate.run.running.backing_off", lambda _: iter([1000.0]))
    run = run_of(live_series)
    ends = asyncio.create_task(run.until_end())
    await waits(run)
    away.gone.set()
    while not run.catching_up:  # noqa: ASYNC110
        await asyncio.sleep(0)
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
