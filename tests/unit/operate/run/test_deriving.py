"""The process that derives what messages define: it finds what is found here, knows no secret, and ends nobody else."""

import asyncio
import json
import os
import pickle
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from stream_dp.errors import EngineEnded, UsageError
from stream_dp.live.planner import LiveSeriesPlanner, PlannedSeries
from stream_dp.operate.run.deriving import DIED, DerivingProcess
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.statistics import STATISTICS

PIPELINE: dict[str, Any] = {
    "version": "1",
    "name": "shop",
    "source": {"kind": "kafka", "bootstrap": "none:9092", "topic": "orders"},
    "schema": {
        "time": {"type": "time"},
        "country": {"type": "category", "domain": ["DE", "FR"]},
        "article": {"type": "category", "domain": [f"a{at}" for at in range(2000)]},
        "amount": {"type": "integer"},
    },
    "privacy": {"epsilon": "50"},
    "clock": {"kind": "wall", "step": "1s", "delay": "2s"},
    "series": [{"name": "orders", "statistic": "count", "epsilon": "1"}],
}
ENDING = PIPELINE | {
    "source": {"kind": "file", "path": "unused.jsonl"},
    "clock": {"kind": "replay", "field": "time", "start": "2026-01-01T00:00:00Z", "step": "1h", "horizon": "5000"},
}  # fmt: skip
SUM = {"of": "amount", "clamp": [0, 1000]}
DEAREST: list[dict[str, Any]] = [
    {"statistic": "count", "windows": [f"{hours}h" for hours in (1, 3, 7, 13, 24, 47, 71, 110)]},
    {"statistic": "sum", **SUM, "windows": ["1h", "24h", "72h"]},
    {"statistic": "mean", **SUM, "windows": ["24h"]},
    {"statistic": "gauge", "of": "country", "plus": ["DE"], "minus": ["FR"], "windows": ["72h"]},
    {"statistic": "histogram", "by": "article", "where": [{"field": "amount", "at_least": 3}]},
    {"statistic": "top", "by": "article", "k": 10},
    {"statistic": "maximum", "by": "article"},
    {"statistic": "largest", "by": "article", "rank": 5},
    {"statistic": "columns_above", "by": "article", "level": 100},
    {"statistic": "quantiles", "of": "amount", "at": [0.5], "edges": list(range(200)), "windows": ["10m"]},
    {"statistic": "alerts", "by": "article", "threshold": 50},
    {"statistic": "monitor", "watch": [
        {"name": f"w{at}", "above": 9, "where": [{"field": "amount", "at_least": at}]} for at in range(100)
    ]},
]  # fmt: skip
NEVER = {"distinct", "cut_off", "ratio"}
"""Those that only a file can define."""


def planner(pipeline: dict[str, Any]) -> LiveSeriesPlanner:
    built = build(PipelineSpec.model_validate(pipeline))
    return LiveSeriesPlanner(built.spec, OpenRouter(built.spec, 0))


def said(series: dict[str, Any]) -> bytes:
    return json.dumps({"name": "x", "epsilon": "0.5", **series}).encode()


@asynccontextmanager
async def derives(here: LiveSeriesPlanner) -> AsyncIterator[DerivingProcess]:
    process = DerivingProcess(here)
    await process._warm()
    try:
        yield process
    finally:
        await process.close()


def number_of(process: DerivingProcess) -> int:
    assert process._process is not None
    return process._process.pid


FIELDS = ("definition", "name", "derivation", "mechanism", "error_unit", "supposing", "start")


@pytest.mark.parametrize("pipeline", [PIPELINE, ENDING], ids=["wall", "ending"])
async def test_it_finds_what_is_found_here_and_nothing_is_derived_here(
    pipeline: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dearest definition of each statistic: mechanism, price and prediction; the engine's own process rests."""
    assert {each["statistic"] for each in DEAREST} | NEVER == {
        kind.model_fields["statistic"].default for kind in STATISTICS
    }
    here = planner(pipeline)
    series = [each for each in DEAREST if pipeline is PIPELINE or each["statistic"] != "quantiles"]
    wanted = [here.propose(said(each), 7) for each in series]
    monkeypatch.setattr(LiveSeriesPlanner, "propose", None)
    async with derives(here) as process:
        for each, own in zip(series, wanted, strict=True):
            theirs = (await process.derive(said(each), 7)).outcome
            assert isinstance(theirs, PlannedSeries), (each, theirs)
            for name in FIELDS:
                assert getattr(theirs, name) == getattr(own, name), (each, name)
            error = own.predicted()
            assert (theirs.predicted(), theirs.windows()) == (error, own.windows()), each
            assert theirs.place("", []) == own.place("", [])
            later = theirs.at(9)
            assert (later is None) == (pipeline is ENDING)
            assert later is None or later.predicted() == (error[0] + 2, error[1])
        for wrong, words in (
            ({"statistic": "count", "windows": ["1h", "1h"]}, "windows"),
            ({"statistic": "count", "method": "gaussian"}, "gaussian needs a delta"),
        ):
            outcome = (await process.derive(said(wrong), 1)).outcome
            assert type(outcome) is UsageError
            assert words in str(outcome)


async def test_one_that_dies_refuses_its_definition_and_the_next_one_is_derived() -> None:
    async with derives(planner(PIPELINE)) as process:
        assert isinstance((await process.derive(said(DEAREST[0]), 1)).outcome, PlannedSeries)
        os.kill(number_of(process), signal.SIGSTOP)
        poison = asyncio.create_task(process.derive(said(DEAREST[1]), 1))
        await asyncio.sleep(0)
        os.kill(number_of(process), signal.SIGKILL)
        outcome = (await poison).outcome
        assert isinstance(outcome, UsageError)
        assert str(outcome) == DIED
        assert isinstance((await process.derive(said(DEAREST[1]), 1)).outcome, PlannedSeries)


async def test_one_that_is_cancelled_answers_nobody_else_and_one_that_is_closed_ends() -> None:
    async with derives(planner(PIPELINE)) as process:

        async def stopped() -> "asyncio.Task[Any]":
            os.kill(number_of(process), signal.SIGSTOP)
            waits = asyncio.create_task(process.derive(said(DEAREST[0]), 1))
            await asyncio.sleep(0)
            return waits

        waits = await stopped()
        waits.cancel()
        await asyncio.wait({waits})
        other = (await process.derive(said(DEAREST[6]), 1)).outcome
        assert isinstance(other, PlannedSeries)
        assert other.series.statistic == "maximum"
        waits = await stopped()
        await process.close()
        with pytest.raises(EngineEnded):
            await waits
        with pytest.raises(EngineEnded):
            await process.derive(said(DEAREST[0]), 1)


async def test_it_is_given_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_DP_TOKEN_FILE", "SECRET-1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET-2")
    sent = list[bytes]()

    def noted(value: Any, into: Any) -> None:
        sent.append(pickle.dumps(value))
        dump(value, into)

    dump = pickle.dump
    monkeypatch.setattr(pickle, "dump", noted)
    here = planner(PIPELINE)
    async with derives(here) as process:
        await process.derive(said(DEAREST[5]), 1)
        environ = Path(f"/proc/{number_of(process)}/environ")
        environment = await asyncio.to_thread(environ.read_bytes)
    assert b"SECRET" not in environment
    assert sent == [pickle.dumps(here.spec), pickle.dumps((said(DEAREST[5]), 1))]
