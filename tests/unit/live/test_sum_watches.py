"""Monitors on sums as people write them: units, thresholds below 0, what is told and asked, and what is refused."""

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.journal.runtime_worlds import Crash, Fuse
from unit.live.live_series_worlds import HORIZON, batches
from unit.live.monitor_worlds import PIPELINE_M, MonitorWorld, message, no_noise

from stream_dp.core.mechanism import Query, Update
from stream_dp.core.time import TickGrid
from stream_dp.errors import UsageError
from stream_dp.journal.release import read
from stream_dp.mechanisms.watches.kinds import SumMonitor
from stream_dp.mechanisms.watches.monitor_state import WatchTerms
from stream_dp.mechanisms.watches.watch_noise import crossing_chance
from stream_dp.pipeline.builder import Chosen, build
from stream_dp.pipeline.fingerprints import fingerprint
from stream_dp.pipeline.report import plan_json
from stream_dp.pipeline.yaml import load
from stream_dp.testing.noise import ZeroNoise

FILE = """\
version: 1
name: watched
source: {kind: file, path: orders.jsonl}
schema:
  time: {type: time}
  shop: {type: category, domain: [a, b]}
  amount: {type: number, nullable: true}
privacy: {epsilon: 2}
clock: {kind: replay, field: time, start: "2026-01-01T00:00:00Z", step: 1h, horizon: 240}
series:
  - name: m
    statistic: monitor
    epsilon: 0.2
    of: amount
    clamp: [-60, 40]
    step: 0.5
    watch:
      - {name: busy, by: shop, above: 900, over: 6h}
      - {name: low, below: -100, over: 1d}
"""


def written(folder: Path, text: str = FILE) -> Path:
    """A pipeline file with this monitor."""
    path = folder / "orders.yaml"
    path.write_text(text)
    return path


def chosen(folder: Path, text: str = FILE) -> Chosen:
    """What is chosen for it."""
    (found,) = build(load(written(folder, text))).chosen
    return found


def mechanism(found: Chosen) -> SumMonitor:
    """Its mechanism."""
    assert isinstance(found.mechanism, SumMonitor)
    return found.mechanism


def test_thresholds_and_clamps_are_in_the_fields_unit(tmp_path: Path) -> None:
    found = chosen(tmp_path)
    monitor = mechanism(found)
    below = WatchTerms(-200, below=True, window=24)
    assert monitor.watches == (WatchTerms(1_800, 3, window=6), below)
    assert [monitor.lowest, monitor.highest, monitor.ones] == [-120, 80, 2]
    assert monitor.window_scale == 2 * 2 * 120 / Fraction(1, 5)  # two watches, 120 units, twice
    busy, low = found.choice.alarms
    assert (busy.usual, busy.chance) == (450, crossing_chance(900, monitor.window_scale, 24))
    assert (low.usual, low.chance) == (-50, crossing_chance(101, monitor.window_scale, 24))
    assert low.words.startswith("low: a false alarm per day with a chance of at most")
    assert low.words.endswith("while its sum of amount stays at -50")
    assert found.choice.expected(11) == monitor.band((12, True), 0.95) / 2
    assert found.derivation.guarantee.measure.epsilon == Fraction(1, 5)  # type: ignore[union-attr]


def test_a_record_that_may_be_replaced_pays_for_both_amounts(tmp_path: Path) -> None:
    within = FILE.replace("epsilon: 2}", "epsilon: 2, neighbors: replace, moves: within_tick}")
    anywhere = FILE.replace("epsilon: 2}", "epsilon: 2, neighbors: replace}")
    found = [mechanism(chosen(tmp_path, text)) for text in (FILE, within, anywhere)]
    assert [each.l1 for each in found] == [2 * 120, 4 * 120, 2 * 120]
    assert [each.epsilon for each in found] == [Fraction(1, 5), Fraction(1, 5), Fraction(1, 10)]


def test_what_is_told_is_in_the_fields_unit(tmp_path: Path) -> None:
    text = FILE.replace("    of:", "    value: 0.1\n    most: 8\n    of:")
    found = chosen(tmp_path, text)
    monitor = mechanism(found)
    assert found.spec.price == Fraction(3, 10)
    series = found.series(
        load(written(tmp_path, text)),
        slice(0, 8),
        ("busy/a", "busy/b", "busy/other", "low", *[""] * 4),
    )
    state, noise = monitor.init(ZeroNoise()), ZeroNoise()
    for row in ([1_000, 0, 0, 1_000], [801, 1_799, 0, -1_001]):
        state, _ = monitor.step(state, Update(np.array([*row, 0, 0, 0, 0])), noise)
        state, answer = monitor.step(state, Query(), noise)
    assert answer is not None
    said = read(series.body(TickGrid(0, 3_600_000, 240), 1, 1, state, answer))
    assert said.fired == ("busy/a",)
    assert said.counts == {"busy/a": 900.5}
    assert said.band == found.choice.expected(1)
    assert said.counts_band == monitor.value_band(0.95) / 2


def test_readers_are_told_of_what(tmp_path: Path) -> None:
    shown = chosen(tmp_path).spec.described()
    assert shown["about"] == "2 watches on sums of amount, each from -60 to 40"
    assert "{band} of amount" in shown["meaning"]
    assert shown["parameters"]["low"] == "below -100 in 1d"
    (planned,) = plan_json(build(load(written(tmp_path))))["series"]
    assert [each["keyed"] for each in planned["false_alarms"]] == [True, False]
    counts = FILE.replace("    of: amount\n    clamp: [-60, 40]\n    step: 0.5\n", "")
    counts = counts.replace("below: -100", "below: 100")
    prints = [fingerprint(load(written(tmp_path, text))) for text in (FILE, counts)]
    prints.append(fingerprint(load(written(tmp_path, FILE.replace("[-60, 40]", "[-60, 41]")))))
    assert len(set(prints)) == 3


SUMS: dict[str, Any] = {
    "name": "m", "statistic": "monitor", "epsilon": "2", "value": "1", "touch": "3", "most": "6",
    "of": "amount", "clamp": ["-4", "9"], "step": "0.5", "ask": ["bob"],
    "watch": [
        {"name": "by", "by": "country", "above": "60"},
        {"name": "few", "where": [{"field": "country", "equals": "DE"}], "below": "15", "over": "2h"},
    ],
}  # fmt: skip
PIPELINE_S = PIPELINE_M | {
    "privacy": PIPELINE_M["privacy"] | {"epsilon": "8"},
    "series": [{"name": "orders", "statistic": "count", "epsilon": "1"}, SUMS],
}
FR = {"name": "fr", "where": [{"field": "country", "equals": "FR"}], "above": 19, "over": "3h"}
SCRIPT = [
    message(1, "w1", "watch", series="m", watch=FR),
    message(2, "a1", "ask", series="m", watch="fr", threshold=-3),
    message(3, "a2", "ask", series="m", watch="few", threshold=-100),
    message(3, "w2", "watch", series="m", watch={**FR, "name": "x", "above": -1}),
    message(3, "a3", "ask", "bob", series="m", watch="by/FR", threshold=10**16),
]


def sums(country: str, start: int = 0) -> list[Fraction]:
    """What the records of one country add in each tick, those from before the cut of `start` left out."""
    found = [Fraction(0)] * HORIZON
    for batch in batches():
        for payload in batch.payloads:
            record = json.loads(payload)
            tick, amount = int(record["time"][11:13]), record["amount"]
            behind = (batch.mark or 0) >= start and tick >= start
            if behind and record["country"] == country and isinstance(amount, int):
                found[tick] += min(max(amount, -4), 9)
    return found


async def test_sums_of_records_are_compared_asked_and_told() -> None:
    world = MonitorWorld(script=SCRIPT, noise=no_noise, pipeline=PIPELINE_S)
    await world.live()
    told = {each["tick"]: each for each in map(json.loads, world.bodies) if each["series"] == "m"}
    total, expected = Fraction(0), list[int]()
    counts = dict[int, Fraction]()
    for tick, added in enumerate(sums("DE")):
        total += added
        if total >= 60:
            expected.append(tick)
            counts[tick], total = total, Fraction(0)
    assert expected
    assert [tick for tick, each in told.items() if "by/DE" in each["fired"]] == expected
    assert {tick: told[tick]["counts"]["by/DE"] for tick in expected} == counts
    said = world.replies()
    assert (
        said["a1"]["answer"]["fired"] is True
    )  # a sum of the last hours, whatever it is, is above
    assert said["a1"]["answer"]["count"] >= 0
    assert said["a2"]["answer"]["fired"] is False
    scale = (
        3 * 18 / Fraction(3, 2)
    )  # touch, units; half of both shares for each noise over a window
    compared = said["a1"]["tick"] + 1 + 0 + 1
    band = Fraction(math.ceil(float(scale) * math.log((compared + 1) / 0.05)), 2)
    assert said["a1"]["answer"]["band"] == band
    assert said["w2"]["refused"]["detail"].endswith("above: must be greater than or equal to 1")
    assert (
        said["a3"]["refused"]["detail"] == "threshold: must be a whole number from -10^15 to 10^15"
    )
    start = said["w1"]["answer"]["start"]
    asked, per_tick, fired = said["a1"]["tick"] + 1, sums("FR", start), list[int]()
    begun = asked  # the answer was a firing: it begins again
    for tick in range(begun, HORIZON):
        if sum(per_tick[max(begun, tick - 2) : tick + 1]) >= 19:
            fired.append(tick)
            begun = tick + 1
    assert fired
    assert [t for t, each in told.items() if "fr" in each["fired"] and t >= asked] == fired


@pytest.mark.parametrize("left", [9, 14, 19, 24, 29, 34])
async def test_after_a_crash_signed_sums_go_on_with_the_same_bytes(left: int) -> None:
    world = MonitorWorld(script=SCRIPT[:3], pipeline=PIPELINE_S)
    with pytest.raises(Crash):
        await world.live(Fuse(left))
    public = list(world.answers), list(world.bodies)
    await world.live()
    assert (world.answers[: len(public[0])], world.bodies[: len(public[1])]) == public
    assert sorted(world.replies()) == ["a1", "a2", "w1"]


def test_a_threshold_that_is_asked_is_a_whole_number_of_steps(tmp_path: Path) -> None:
    found = chosen(tmp_path, FILE.replace("step: 0.5", "step: 20"))
    asking = found.spec.asking(("busy/a", "busy/b", "busy/other", "low"), found.mechanism, None)
    assert asking is not None
    assert asking.query({"watch": "low", "threshold": -40}).threshold == -2
    with pytest.raises(UsageError, match="threshold: is no whole number of steps of 20"):
        asking.query({"watch": "low", "threshold": -50})
