"""A pipeline in a program: the plan of the command, the releases of the file, and an end when it is asked for."""

import asyncio
import json
import threading
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from unit.cli.conftest import HORIZON, YAML, say
from unit.cli.conftest import Site as LiveSeriesService
from unit.cli.conftest import site as live_series

import stream_dp as sdp
from stream_dp import (
    BudgetRefused,
    Counts,
    FailClosed,
    Pipeline,
    PublicRelease,
    PublicWindow,
    UsageError,
    WorldError,
)
from stream_dp.files.files import FileSource
from stream_dp.files.sqlite import SqliteJournal
from stream_dp.journal.release import Shape
from stream_dp.server.models.published import EXAMPLES

__all__ = ["live_series", "say"]  # fixtures
SERIES = 3


def published(live_series: LiveSeriesService) -> list[bytes]:
    return [line.encode() for line in live_series.releases]


def test_the_plan_is_that_of_the_command(live_series: LiveSeriesService) -> None:
    plan = Pipeline.load(live_series.pipeline).plan()
    assert plan.values == json.loads(live_series.command("plan", "--json").out)
    assert plan.derivation.guarantee.measure.epsilon == 1  # type: ignore[union-attr]
    lines = str(plan).splitlines()
    assert lines[0].startswith("clicks: all that is asked, now and later: DP epsilon 1, delta 0")
    assert [line.split(", error")[0] for line in lines[-SERIES:]] == [
        "clicks: Counter, epsilon 0.5",
        "by_page: Counter, epsilon 0.25",
        "busy: Alerts, epsilon 0.25",
    ]
    assert not live_series.journal.exists()


def test_a_run_hands_out_what_is_published(live_series: LiveSeriesService) -> None:
    pipeline = Pipeline.load(live_series.pipeline)
    seen: list[PublicRelease] = []
    assert pipeline.run(seen.append) == SERIES * HORIZON
    assert [release.body for release in seen] == published(live_series)
    assert [release.sequence for release in seen] == list(range(1, SERIES * HORIZON + 1))
    first, by_page, busy = seen[:SERIES]
    said = json.loads(first.body)
    assert (first.series, first.tick, first.band, first.confidence) == ("clicks", 0, 6, 0.95)
    assert (first.value, first.end) == (said["value"], "2024-05-01T01:00:00Z")
    assert by_page.value == Counts(*zip(*json.loads(by_page.body)["values"].items(), strict=True))
    assert busy.value == tuple(json.loads(busy.body)["fired"])
    assert pipeline.run(seen.append) == 0
    assert len(seen) == SERIES * HORIZON


def test_a_key_may_be_named(
    live_series: LiveSeriesService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STREAM_DP_KEY_FILE")
    with pytest.raises(UsageError, match="operator key"):
        Pipeline.load(live_series.pipeline).run()
    key = live_series.folder / "operator.key"
    assert Pipeline.load(str(live_series.pipeline), key_file=str(key)).run() == SERIES * HORIZON


async def test_releases_come_while_the_block_runs(live_series: LiveSeriesService) -> None:
    pipeline = Pipeline.load(live_series.pipeline)
    async with pipeline.running() as releases:
        first = await anext(releases)
        assert first.body in published(live_series)
        with pytest.raises(UsageError, match="already runs"):
            await pipeline.run_async()
        rest = [release async for release in releases]
    assert [first.body, *(release.body for release in rest)] == published(live_series)


class Waiting(FileSource):
    """A file that tells half of its batches, and then waits."""

    async def read(self) -> Any:
        if getattr(self, "told", False):
            await asyncio.Event().wait()
        self.told = True
        batches = await super().read()
        return batches[: len(batches) // 2]


@pytest.fixture
def endless(live_series: LiveSeriesService, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    monkeypatch.setattr("stream_dp.operate.run.wiring.FileSource", Waiting)
    return Pipeline.load(live_series.pipeline)


async def test_leaving_the_block_ends_the_run(endless: Pipeline) -> None:
    async with asyncio.timeout(60), endless.running():
        pass
    async with asyncio.timeout(60):
        async with endless.running() as releases:
            endless.stop()
            assert [release async for release in releases] == []
    endless.stop()


def test_another_thread_may_stop_it(endless: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = threading.Event()
    told = Waiting.read

    async def telling(self: Waiting) -> Any:
        if getattr(self, "told", False):
            waits.set()
        return await told(self)

    monkeypatch.setattr(Waiting, "read", telling)

    def stop() -> None:
        waits.wait()
        endless.stop()

    thread = threading.Thread(target=stop)
    thread.start()
    assert endless.run() >= 0
    thread.join()


async def test_an_error_in_the_block_ends_the_run_and_is_the_one_that_is_raised(
    endless: Pipeline,
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with endless.running():
            _ = 1 / 0
    task = asyncio.create_task(endless.run_async())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_what_is_no_release_is_not_handed_out() -> None:
    with pytest.raises(FailClosed):
        PublicRelease.of(b"{}")


@pytest.mark.parametrize("shape", Shape)
def test_a_release_of_every_shape_is_handed_out(shape: Shape) -> None:
    said = PublicRelease.of(json.dumps(EXAMPLES[shape]).encode())
    assert said.series == EXAMPLES[shape]["series"]
    assert said.value


def test_a_release_of_windows_has_them_by_name_and_shows_the_single_tick() -> None:
    said = PublicRelease.of(json.dumps(EXAMPLES["windows"]).encode())
    assert said.windows == {"tick": PublicWindow(41, 14), "24h": PublicWindow(870, 68)}
    assert (said.value, said.band) == (41, 14)
    assert PublicRelease.of(json.dumps(EXAMPLES["scalar"]).encode()).windows == {}


def test_a_release_of_quantiles_has_them_with_their_band_in_ranks() -> None:
    """Those of the first window at once, as values and bands are; none before a window has ended."""
    told = {"0.5": {"value": 33.5, "bucket": [33, 34]}, "0.9": {"value": 81, "low": 80, "high": 90}}
    day, week = {"quantiles": told, "band": 158}, {"quantiles": {}, "band": 742}
    body = {**EXAMPLES["windows"], "windows": {"24h": day, "7d": week}}
    said = PublicRelease.of(json.dumps(body).encode())
    assert (said.band, said.windows["24h"].band, said.windows["7d"].band) == (158, 158, 742)
    assert said.quantiles == said.windows["24h"].quantiles
    assert (said.quantiles["0.5"].value, said.quantiles["0.5"].bucket) == (33.5, (33, 34))
    assert (said.quantiles["0.9"].low, said.quantiles["0.9"].high) == (80, 90)
    assert said.windows["7d"].quantiles == {}
    assert PublicRelease.of(json.dumps(EXAMPLES["windows"]).encode()).quantiles == {}


class Full(SqliteJournal):
    """A disk without space."""

    async def append(self, *_: Any) -> None:
        raise WorldError("the disk is full")


def test_what_stops_the_engine_is_raised(
    live_series: LiveSeriesService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_dp.operate.run.wiring.SqliteJournal", Full)
    with pytest.raises(WorldError, match="the disk is full"):
        Pipeline.load(live_series.pipeline).run()
    assert published(live_series) == []


def test_a_new_guarantee_is_named(live_series: LiveSeriesService) -> None:
    Pipeline.load(live_series.pipeline).run()
    for path in live_series.folder.glob("clicks.journal*"):
        path.unlink()
    (live_series.folder / "clicks.releases.jsonl").unlink()
    pipeline = Pipeline.load(live_series.pipeline)
    with pytest.raises(FailClosed, match="accept-new-guarantee"):
        pipeline.run()
    assert pipeline.run(accept_new_guarantee="again") == SERIES * HORIZON


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("epsilon: 0.5", "epsilon: 5", BudgetRefused),
        ("statistic: count", "statistic: x", UsageError),
    ],
)
def test_a_file_is_checked_when_it_is_loaded(
    old: str, new: str, error: type[Exception], tmp_path: Path
) -> None:
    assert old in YAML
    (tmp_path / "clicks.yaml").write_text(YAML.replace(old, new))
    with pytest.raises(error):
        Pipeline.load(tmp_path / "clicks.yaml")


PARTS: dict[str, Any] = {
    "name": "shop",
    "public_data": True,
    "source": {"kind": "file", "path": Path("orders.jsonl")},
    "schema": {
        "time": {"type": "time"},
        "amount": {"type": "number"},
        "country": {"type": "category", "domain": ["DE", "NO", "on"]},
    },
    "privacy": {"epsilon": Fraction(3, 2)},
    "clock": {"kind": "replay", "field": "time", "start": "2024-01-01T00:00:00Z", "step": "1h", "horizon": 3},
}  # fmt: skip
FILE = """\
version: 1
name: shop
public_data: true
source: {kind: file, path: orders.jsonl}
schema:
  time: {type: time}
  amount: {type: number}
  country: {type: category, domain: [DE, "NO", "on"]}
privacy: {epsilon: 3/2}
clock: {kind: replay, field: time, start: 2024-01-01T00:00:00Z, step: 1h, horizon: 3}
series:
  - {name: orders, statistic: count, epsilon: 0.5}
  - {name: by_country, statistic: histogram, by: country, epsilon: 1/3}
  - {name: volume, statistic: sum, of: amount, clamp: [-2.5, 240], step: 0.01, epsilon: 0.000001}
"""


def written() -> Pipeline:
    return Pipeline(
        **PARTS,
        series=[
            sdp.Count(name="orders", epsilon=Decimal("0.5")),
            {"name": "by_country", "statistic": "histogram", "by": "country", "epsilon": "1/3"},
            sdp.Sum(
                name="volume",
                of="amount",
                clamp=("-2.5", 240),
                step="0.01",
                epsilon=Decimal("1E-6"),
            ),
        ],
    )


def test_a_pipeline_in_python_is_that_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shop.yaml").write_text(FILE)
    by_file, pipeline = Pipeline.load("shop.yaml"), written()
    assert by_file.to_yaml() == FILE
    Path("again.yaml").write_text(pipeline.to_yaml())
    for same in (pipeline, Pipeline.load("again.yaml")):
        assert same.plan() == by_file.plan()
        assert same._built.fingerprint == by_file._built.fingerprint
    Path("orders.jsonl").write_text(
        '{"time": "2024-01-01T00:30:00Z", "amount": 3, "country": "NO"}\n'
    )
    assert pipeline.run() == 9
    assert by_file.run() == 0  # it is the same journal


def test_a_mistake_in_python_is_named_as_in_a_file() -> None:
    with pytest.raises(UsageError, match=r"series\[0\].bye: is not a known key; did you mean by"):
        Pipeline(**PARTS, series=[sdp.Histogram(name="a", bye="country", epsilon="0.1")])
