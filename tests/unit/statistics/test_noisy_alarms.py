"""Alarms that fire mostly by noise: what is told before they are created, what would do, and who confirms them."""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest
from unit.journal.runtime_worlds import Crash, Fuse
from unit.live.live_series_worlds import PIPELINE
from unit.live.message_worlds import WITH_ANALYSTS, MessageWorld, sealed, text
from unit.live.monitor_worlds import FR, MonitorWorld

from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.promise import caveats
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.statistics.parts.choice import noise_of

BY: dict[str, Any] = {"statistic": "alerts", "by": "country"}
SUM = {"of": "amount", "clamp": ["-10", "40"], "step": "5"}
ALARMS: Mapping[str, dict[str, Any]] = {
    "since the last": {**BY, "threshold": "60"},
    "window": {**BY, "threshold": "60", "windows": ["3h"]},
    "below": {**BY, "threshold": "60", "windows": ["3h"], "below": "true"},
    "below the usual": {**BY, "threshold": "1900", "usual": "2000", "windows": ["3h"], "below": "true"},
    "sum below 0": {**BY, **SUM, "threshold": "-50", "windows": ["3h"], "below": "true"},
    "watch": {"statistic": "monitor", "watch": [{"name": "w", "above": "40"}]},
    "watch of ticks with counts": {
        "statistic": "monitor", "value": "0.03", "watch": [{"name": "w", "above": "40", "over": "tick"}],
    },
}  # fmt: skip
WOULD = re.compile(
    r"mostly noise: a false alarm per (?:key and )?day has a chance of at most (?P<chance>\d+) %"
    r"(?:, and the band of ± (?P<band>[\d,.]+) is not less than the threshold)?"
    r"\. A threshold of (?P<threshold>-?[\d,]+) or epsilon (?P<epsilon>[\d.]+) is enough"
)


def planned(alarm: dict[str, Any], epsilon: str) -> Built:
    series = [{"name": "it", "epsilon": epsilon, **alarm}]
    changes = {"privacy": {"epsilon": "100"}, "series": series}
    return build(PipelineSpec.model_validate(PIPELINE | changes))


def noise(alarm: dict[str, Any], epsilon: str) -> str:
    (chosen,) = planned(alarm, epsilon).chosen
    return noise_of(chosen.choice.alarms, chosen.spec.price)


def at_threshold(alarm: dict[str, Any], threshold: int) -> dict[str, Any]:
    if "watch" in alarm:
        return {**alarm, "watch": [{**alarm["watch"][0], "above": str(threshold)}]}
    return {**alarm, "threshold": str(threshold)}


@pytest.mark.parametrize("kind", ALARMS)
def test_what_is_said_to_do_does_and_much_less_does_not(kind: str) -> None:
    """Both the threshold and the epsilon: with either the chance is tolerated and the band below the threshold."""
    alarm = ALARMS[kind]
    found = WOULD.fullmatch(noise(alarm, "0.05"))
    assert found is not None
    (chosen,) = planned(alarm, "0.05").chosen
    (told,) = chosen.choice.alarms
    assert round(100 * told.chance) == int(found["chance"])
    threshold, epsilon = int(found["threshold"].replace(",", "")), Fraction(found["epsilon"])
    assert noise(at_threshold(alarm, threshold), "0.05") == ""
    assert noise(alarm, str(float(epsilon))) == ""
    halfway = at_threshold(alarm, threshold + round(told.usual - threshold) // 2 // 5 * 5)
    if "usual" in alarm:
        assert noise(halfway, "0.05")
    else:
        assert noise(at_threshold(alarm, threshold // 2 // 5 * 5), "0.05")
    assert noise(alarm, str(float(epsilon / 2)))


def test_the_plan_of_a_file_warns() -> None:
    built = planned(ALARMS["since the last"], "0.05")
    (warned,) = [note for note in caveats(built) if "noise)" not in note and "mostly noise" in note]
    assert warned.startswith(
        "it: mostly noise: a false alarm per key and day has a chance of at most"
    )
    assert not [note for note in caveats(planned(ALARMS["window"], "9")) if "mostly" in note]


def test_of_several_watches_the_worst_is_named_by_its_place() -> None:
    watches = [
        {"name": "a", "above": "50"},
        {"name": "b", "above": "2"},
        {"name": "c", "above": "9000"},
    ]
    assert noise({"statistic": "monitor", "watch": watches}, "1").startswith(
        "watch[1]: mostly noise"
    )


GERMAN = [{"field": "country", "equals": "DE"}]
NOISY = {"name": "busy", "epsilon": "0.1", **BY, "threshold": "50"}
QUIET = {"name": "rare", "epsilon": "0.1", **BY, "threshold": "5000"}
DEAR = {"name": "dear", "epsilon": "2.5", **BY, "threshold": "2"}


def script() -> list[tuple[int, bytes]]:
    """Previews and creations, with and without a confirmation."""
    said = [
        text("p1", "preview", series=NOISY), text("p2", "preview", series=QUIET),
        text("c1", "create", series=NOISY, accept_noise=False),
        text("c2", "create", series=DEAR, accept_noise=False),
        text("c3", "create", series=NOISY, accept_noise="yes"),
        text("c4", "create", series=NOISY),
        text("c5", "create", series=QUIET, accept_noise=False),
    ]  # fmt: skip
    return [(1, sealed(one)) for one in said]


async def test_a_message_must_confirm_what_is_mostly_noise() -> None:
    world = MessageWorld(WITH_ANALYSTS, script=script())
    await world.live()
    said = {each["id"]: each for each in world.said()}
    preview = said["p1"]["answer"]
    (alarm,) = preview["false_alarms"]
    assert (alarm["name"], alarm["usual"], alarm["keyed"]) == ("busy", 25, True)
    assert WOULD.fullmatch(preview["noise"])
    assert "noise" not in said["p2"]["answer"]
    assert said["p2"]["answer"]["false_alarms"][0]["chance"] < 0.05
    refused = {name: each["refused"] for name, each in said.items() if "refused" in each}
    assert {name: each["kind"] for name, each in refused.items()} == {
        "c1": "noise", "c2": "budget", "c3": "usage",
    }  # fmt: skip
    why = refused["c1"]["detail"].removeprefix("series: ")
    noise, _, what = why.partition(". Nothing was done; ")
    assert WOULD.fullmatch(noise)  # of the ticks from its own start on
    assert what == "to run it all the same, confirm it: accept_noise"
    assert refused["c1"]["exit_code"] == 2
    assert "busy" not in refused["c1"]["detail"]
    assert said["c4"]["answer"]["left"] == "1.9", "the refusals have charged"
    assert (said["c4"]["answer"]["name"], said["c5"]["answer"]["name"]) == ("busy", "rare")


@pytest.mark.parametrize("left", [9, 19])
async def test_a_restart_replays_what_was_confirmed(left: int) -> None:
    """A journal holds no confirmation, as those of before, when nobody was asked."""
    listed = (8, sealed(text("l1", "list")))
    world = MessageWorld(WITH_ANALYSTS, script=[*script(), listed])
    with pytest.raises(Crash):
        await world.live(Fuse(left))
    answers, bodies = list(world.answers), list(world.bodies)
    await world.live()
    assert world.answers[: len(answers)] == answers
    assert world.bodies[: len(bodies)] == bodies
    names = {one["name"] for one in world.said()[-1]["answer"]["queries"]}
    assert {"busy", "rare"} <= names
    assert "dear" not in names


async def test_a_watch_of_a_monitor_that_runs_is_confirmed_too() -> None:
    watches = [
        ("w1", FR, False), ("w2", FR, True),
        ("w3", {"name": "de", "where": GERMAN, "above": 4000}, False),
    ]  # fmt: skip
    said = [text(n, "watch", series="m", watch=w, accept_noise=accept) for n, w, accept in watches]
    world = MonitorWorld(script=[(1, sealed(one)) for one in said])
    await world.live()
    found = {each["id"]: each for each in world.said()}
    assert found["w1"]["refused"]["kind"] == "noise"
    assert re.match(
        r"watch: mostly noise: a false alarm per day has a chance of at most \d+ %, and the band of ± \d+ is not less "
        r"than the threshold\. A threshold of [\d,]+ is enough\. Nothing was done",
        found["w1"]["refused"]["detail"],
    )
    assert (found["w2"]["answer"]["watch"], found["w3"]["answer"]["watch"]) == ("fr", "de")
    answers = list(world.answers)
    await world.live()
    assert world.answers == answers
