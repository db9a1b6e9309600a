"""Monitors on sums in an engine: what fires, is asked and told, beside records summed by hand, and after crashes."""

import json
import math
from fractions import Fraction
from typing import Any

import pytest
from unit.journal.runtime_worlds import Crash, Fuse
from unit.live.live_series_worlds import HORIZON, seen_from
from unit.live.monitor_worlds import PIPELINE_M, MonitorWorld, message, no_noise

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
    added = [Fraction(0)] * HORIZON
    for tick, record in seen_from(start):
        if record["country"] == country and isinstance(record["amount"], int):
            added[tick] += min(max(record["amount"], -4), 9)
    return added


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
    scale = 3 * 18 / Fraction(3, 2)  # touch, units; half of both shares for each noise
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
