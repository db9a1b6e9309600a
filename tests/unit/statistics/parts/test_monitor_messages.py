"""Monitors by message: thresholds asked, watches that come and go, and recovery wherever the engine dies."""

import asyncio
import json
import math
from typing import Any

import pytest
from unit.journal.runtime_worlds import Crash, Fuse
from unit.live.live_series_worlds import HORIZON, Stopping
from unit.live.message_worlds import commit_as_before, text
from unit.live.monitor_worlds import (
    FR,
    MONITOR,
    PIPELINE_M,
    MonitorWorld,
    expected,
    message,
    no_noise,
    wait,
)

from stream_dp.engine.engine import Engine
from stream_dp.journal.commit import Asked, Created, Unwatched, Watched
from stream_dp.noise import NoiseStream
from stream_dp.operate.query import series_words
from stream_dp.server.models.asked import Query
from stream_dp.statistics.parts.watch_roster import ENDED

IS_FR = {"equals": "FR"}


async def run(script: list[tuple[int, bytes]], **more: Any) -> MonitorWorld:
    world = MonitorWorld(script=script, noise=no_noise, **more)
    await world.live()
    return world


def fired(world: MonitorWorld, name: str) -> list[int]:
    return [tick for tick, names in world.releases("m").items() if name in names]


async def test_without_messages_the_watches_of_the_file_fire_as_written() -> None:
    world = await run([message(0, "l1", "list")])
    assert fired(world, "by/FR") == []
    assert fired(world, "quiet") == [0, 1]  # 2 and 4 orders from DE, then 6 and more
    assert fired(world, "by/DE") == [7]  # 2 + 4 + 6 + 8 + 10 + 12 + 14 + 16 = 72, once
    assert fired(world, "large") == expected_large()


def expected_large() -> list[int]:
    """Amounts of 5 and more: one 10 from FR a tick, the early one in tick 7, and DE's from tick 5 on."""
    count, found = 0, []
    for tick in range(HORIZON):
        count += 1 + (tick == 7) + (2 * (tick + 1) if tick >= 5 else 0)
        if count >= 30:
            found.append(tick)
            count = 0
    return found


@pytest.mark.parametrize("tick", [0, 3, 6])
async def test_a_watch_counts_whole_ticks_from_its_cut_on(tick: int) -> None:
    """Whatever the engine had read: also the early record of tick 7, which lies before the cut or behind it."""
    world = await run([message(tick, "w1", "watch", series="m", watch=FR)])
    answer = world.replies()["w1"]["answer"]
    start = answer["start"]
    assert answer == {"series": "m", "watch": "fr", "start": start}
    assert start > tick
    assert fired(world, "fr") == expected(start, HORIZON, IS_FR, 4)
    assert fired(world, "large") == expected_large()  # the others do not notice
    alone = await run([message(0, "l1", "list")])
    assert world.releases("orders") == alone.releases("orders")


async def test_a_watch_ends_and_its_place_is_free_for_another() -> None:
    large = [{"field": "amount", "at_least": 8}]
    heavy = {"name": "heavy", "where": large, "above": 1, "over": "tick"}
    world = await run(
        [
            message(0, "w1", "watch", series="m", watch=FR),
            message(4, "u1", "unwatch", series="m", watch="fr"),
            message(4, "w2", "watch", series="m", watch=heavy),
            message(5, "u2", "unwatch", series="m", watch="quiet"),
            message(6, "w3", "watch", series="m", watch={**FR, "name": "fr2"}),
        ]
    )
    said = {name: each["answer"] for name, each in world.replies().items()}
    assert fired(world, "fr") == expected(said["w1"]["start"], said["u1"]["end"], IS_FR, 4)
    assert fired(world, "heavy") == list(range(said["w2"]["start"], HORIZON))
    assert fired(world, "fr2") == expected(said["w3"]["start"], HORIZON, IS_FR, 4)
    changes = [c for commit in world.commits() for c in commit.changes]
    assert [c.place for c in changes if isinstance(c, Watched)] == [
        5,
        5,
        6,
    ]  # not that of `quiet`, of the file
    assert ENDED not in str(world.bodies)
    rows = {t: row for c in world.commits() for t, row in zip(c.ticks, c.rows, strict=True)}
    assert [tick for tick, row in rows.items() if row[1 + 4]] == list(range(said["u2"]["end"]))


async def test_a_threshold_that_is_asked_is_compared_and_re_arms() -> None:
    world = await run(
        [
            message(3, "a1", "ask", series="m", watch="by/FR", threshold=10**6),
            message(3, "a2", "ask", series="m", watch="by/FR", threshold=1),
            message(3, "a3", "ask", series="m", watch="by/FR", threshold=1),
            message(3, "a4", "ask", series="m", watch="quiet", threshold=1),
            message(3, "a5", "ask", "bob", series="m", watch="large", threshold=10**6),
        ]
    )  # fmt: skip
    said = world.replies()
    compared = said["a1"]["tick"] + 1 + 1  # the ticks before, and this
    band = math.ceil(4 * math.log((compared + 1) / 0.05))  # scale: touch / epsilon
    assert said["a1"]["answer"] == {
        "series": "m", "watch": "by/FR", "threshold": 10**6, "fired": False, "band": band, "confidence": 0.95,
        "not_private": True,
    }  # fmt: skip
    again = said["a2"]["tick"] + 1 + 2
    assert said["a2"]["answer"]["band"] == math.ceil(4 * math.log((again + 1) / 0.05))
    assert (
        said["a4"]["answer"]["band"] == 12
    )  # a tick's: of its one noisy count, whatever was asked
    assert said["a2"]["answer"]["fired"] is True
    assert said["a3"]["refused"]["detail"] == "this watch has ended; create a new one"
    assert said["a4"]["answer"]["fired"] is False  # there are orders in every tick
    assert said["a5"]["answer"]["fired"] is False
    assert fired(world, "by/FR") == []


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("watch", {"series": "orders", "watch": FR}, "series: only a monitor has watches"),
    ("watch", {"series": "nobody", "watch": FR}, "series: no series of this name runs"),
    ("watch", {"watch": {**FR, "name": "large"}}, "is already there"),
    ("watch", {"watch": {**FR, "above": 2.5}}, "above: must be a whole number"),
    ("watch", {"watch": {"name": "fr"}}, "needs one of above and below"),
    ("watch", {"watch": {**FR, "again": 1}}, "watch, line 1, column "),
    ("watch", {"watch": {**FR, "where": [{"field": "amount", "above": 5}]}},
     "where[0].above: is not a known key; known are field, at_least, at_most, equals, one_of, contains"),
    ("watch", {"watch": {**FR, "where": [{"field": "country", "at_least": "FR"}]}},
     "a category field cannot be compared with at_least; it takes equals, one_of"),
    ("watch", {"watch": {"name": "two", "by": "country", "above": 5}}, ""),
    ("watch", {"watch": {"name": "three", "above": 5}}, "watch, line 1, column 1: one event may count 5 times"),
    ("watch", {"watch": {**FR, "name": "four", "by": "country"}}, "adjacent free place(s)"),
    ("unwatch", {"watch": "fr"}, "watch: none of this name is here; there are "),
    ("ask", {"watch": "by", "threshold": 5}, "there are by/"),
    ("ask", {"watch": "large", "threshold": "five"}, "threshold: "),
]  # fmt: skip


async def test_what_is_refused_names_its_key_and_changes_nothing() -> None:
    """One watch of them is good, and two later ones are refused for its sake: there is no room, or too much overlap."""
    script = [
        message(2, f"r{at}", do, **{"series": "m", **more})
        for at, (do, more, _) in enumerate(REFUSED)
    ]
    world = await run(script)
    for (_, _, why), answer in zip(REFUSED, world.replies().values(), strict=True):
        assert why in answer["refused"]["detail"] if why else "answer" in answer, answer
    changes = [change for commit in world.commits() for change in commit.changes]
    assert [type(change) for change in changes] == [Watched]
    seeds = [seed for commit in world.commits() for seed in commit.seeds]
    assert len(seeds) == 1 + 1 + HORIZON  # the first states, the one watch, the ticks


async def test_an_analyst_changes_no_series_that_another_paid_for() -> None:
    mine = {
        "name": "mine",
        "statistic": "monitor",
        "epsilon": 1,
        "watch": [{"name": "all", "above": 3}],
    }
    world = await run(
        [
            message(1, "x1", "watch", "ann", series="m", watch=FR),
            message(1, "c1", "create", "ann", series=mine),
            message(2, "x2", "watch", "bob", series="mine", watch=FR),
            message(2, "u1", "unwatch", "ann", series="mine", watch="all"),
            message(2, "w1", "watch", "ann", series="mine", watch=FR),
            message(3, "a1", "ask", "ann", series="mine", watch="fr", threshold=10**6),
            message(3, "x3", "ask", "bob", series="mine", watch="fr", threshold=1),
        ]
    )
    said = world.replies()
    kinds = {name: each["refused"]["kind"] for name, each in said.items() if "refused" in each}
    assert kinds == {"x1": "forbidden", "x2": "forbidden", "x3": "forbidden"}
    assert said["a1"]["answer"]["fired"] is False
    start = said["w1"]["answer"]["start"]
    live = {t: names for t, names in world.releases("mine").items() if "fr" in names}
    assert list(live) == expected(start, HORIZON, IS_FR, 4)


async def test_the_list_shows_the_watches_of_a_monitor_and_to_others_not_where_they_count() -> None:
    mine = {"name": "mine", "statistic": "monitor", "epsilon": 1, "touch": 2, "watch": [FR]}
    small = {"name": "small", "above": 3, "over": "tick"}
    world = await run(
        [
            message(1, "w1", "watch", series="m", watch=FR),
            message(1, "c1", "create", "ann", series=mine),
            message(2, "w2", "watch", "ann", series="mine", watch=small),
            message(3, "u1", "unwatch", series="m", watch="fr"),
            message(3, "u2", "unwatch", series="m", watch="quiet"),
            *(message(4, f"l{n}", "list", analyst) for n, analyst in enumerate(("", "ann", "bob"))),
            message(10, "l5", "list"),
        ]
    )
    said = {name: each["answer"] for name, each in world.replies().items()}
    listed = [{each["name"]: each for each in said[f"l{n}"]["queries"]} for n in range(3)]
    assert "watches" not in listed[0]["orders"]
    where = [{"field": "country", "equals": "FR"}]
    large, by, fr, quiet = listed[2]["m"]["watches"]
    assert large == {
        "name": "large", "where": [{"field": "amount", "at_least": "5"}], "above": 30, "over": "since_firing",
        "rearm": True, "analyst": "", "start": 0, "start_time": None, "end": None, "end_time": None, "created": False,
    }  # fmt: skip
    assert (by["by"], by["above"], by["rearm"], by["where"]) == ("country", 60, False, [])
    assert (fr["name"], fr["where"], fr["created"]) == ("fr", where, True)
    assert (fr["start"], fr["end"]) == (said["w1"]["start"], said["u1"]["end"])
    assert (quiet["below"], quiet["over"], quiet["end"]) == (6, "tick", said["u2"]["end"])
    for rows, whole in zip(listed, (True, True, False), strict=True):
        watches = rows["mine"]["watches"]
        assert [(one["name"], one["analyst"], one["created"]) for one in watches] == [
            ("fr", "", False), ("small", "ann", True),
        ]  # fmt: skip
        assert watches[1]["start"] == said["w2"]["start"]
        assert [one.get("where") for one in watches] == ([where, []] if whole else [None, None])
        Query.documented(rows["mine"])
        Query.documented(rows["m"])
    again = MonitorWorld(
        store=world.store, answers=world.answers, bodies=world.bodies, noise=no_noise
    )
    again.store.commits = world.store.commits[:-1]  # there is a tick left to run
    del again.bodies[-3:]
    found = list[Any]()

    async def look(engine: Engine) -> None:
        body = await engine.tell(text("l4", "list").encode(), "")
        found.extend(json.loads(body)["answer"]["queries"])

    await again.told(look, tick=10)
    assert found == said["l5"]["queries"]  # a restart remembers who, when, and what ended


def monitor_in(rows: list[dict[str, Any]]) -> dict[str, Any]:
    (row,) = [each for each in rows if each["name"] == "m"]
    return row


async def test_of_very_many_watches_the_newest_are_listed() -> None:
    """The answer has a bound."""
    many = [
        {"name": f"n{n}", "where": [{"field": "amount", "equals": f"{n}"}], "above": 9}
        for n in range(150)
    ]
    series = [PIPELINE_M["series"][0], {**MONITOR, "most": "200", "watch": many}]
    world = await run(
        [message(1, "w1", "watch", series="m", watch=FR), message(2, "l1", "list")],
        pipeline=PIPELINE_M | {"series": series},
    )
    row = monitor_in(world.replies()["l1"]["answer"]["queries"])
    assert [one["name"] for one in row["watches"]] == [f"n{n}" for n in range(51, 150)] + ["fr"]
    assert row["more_watches"] == 51


@pytest.mark.parametrize(
    ("by", "told"),
    [
        ([{"field": "amount", "edges": ["1"]}, "country"], "amount in bins and country"),
        ({"tick": "hour", "zone": "Europe/Berlin"}, "hour in Europe/Berlin"),
    ],
)
async def test_the_list_says_in_words_what_a_watch_goes_by(by: Any, told: str) -> None:
    """A list of watches by bins ended the engine, at every start anew: the message was still there."""
    watch = {"name": "each", "by": by, "above": 9}
    room = {**MONITOR, "most": "60"}
    world = await run(
        [message(1, "w1", "watch", series="m", watch=watch), message(2, "l1", "list")],
        pipeline=PIPELINE_M | {"series": [PIPELINE_M["series"][0], room]},
    )
    assert "refused" not in world.replies()["w1"]
    rows = world.replies()["l1"]["answer"]["queries"]
    row = monitor_in(rows)
    assert {one["name"]: one.get("by") for one in row["watches"]}["each"] == told
    for each in rows:
        Query.documented(each)


@pytest.mark.parametrize(("most", "told"), [(20_000, 9), (3_000, 3)])
async def test_of_long_watches_as_many_are_listed_as_fit(
    monkeypatch: pytest.MonkeyPatch, most: int, told: int
) -> None:
    """Sixty conditions of 2,400 numbers made a list of 3 MB, and a record of a topic takes 8."""
    monkeypatch.setattr(series_words, "LISTED_BYTES", most)
    values = [f"{at:09}" for at in range(1, 101)]
    many = [
        {"name": f"n{at}", "where": [{"field": "amount", "one_of": values}], "above": 9}
        for at in range(8)
    ]
    series = [PIPELINE_M["series"][0], {**MONITOR, "touch": "9", "watch": many}]
    world = await run(
        [message(1, "w1", "watch", series="m", watch=FR), message(2, "l1", "list")],
        pipeline=PIPELINE_M | {"series": series},
    )
    row = monitor_in(world.replies()["l1"]["answer"]["queries"])
    names = [*(f"n{at}" for at in range(8)), "fr"]
    assert [one["name"] for one in row["watches"]] == names[-told:]
    assert row.get("more_watches", 0) == 9 - told
    assert len(json.dumps(row["watches"])) < 1.2 * most


SCRIPT = [
    message(1, "w1", "watch", series="m", watch=FR),
    message(2, "a1", "ask", series="m", watch="fr", threshold=3),
    message(2, "a2", "ask", series="m", watch="large", threshold=3),
    message(3, "u1", "unwatch", series="m", watch="fr"),
    message(4, "w2", "watch", series="m", watch={"name": "tick", "above": 3, "over": "tick"}),
    message(6, "w3", "watch", series="m", watch=FR),
    message(6, "a3", "ask", series="m", watch="tick", threshold=15),
    message(7, "u2", "unwatch", series="m", watch="by"),
    message(8, "a4", "ask", series="m", watch="fr", threshold=1),
]


def sound(world: MonitorWorld) -> bool:
    """Whether each message has one answer, what is public is on record, and no seed is used twice."""
    recorded = [answer.body for commit in world.commits() for answer in commit.answers]
    released = [release.body for commit in world.commits() for release in commit.releases]
    seeds = [seed for commit in world.commits() for seed in commit.seeds]
    changes = [type(change) for commit in world.commits() for change in commit.changes]
    return (
        recorded == world.answers
        and released == world.bodies
        and len(set(seeds)) == len(seeds)
        and sorted(world.replies()) == ["a1", "a2", "a3", "a4", "u1", "u2", "w1", "w2", "w3"]
        and (changes.count(Watched), changes.count(Unwatched)) == (3, 2)
        and changes.count(Asked) >= 3  # one comes perhaps before its watch has seen a tick
    )


@pytest.mark.parametrize(
    "first", [1, 4, *(pytest.param(n, marks=pytest.mark.full) for n in (2, 3))]
)
async def test_wherever_it_dies_the_watches_go_on_with_the_same_bytes(first: int) -> None:
    for left in range(first, 200, 4):
        world = MonitorWorld(script=SCRIPT)
        try:
            await world.live(Fuse(left))
        except Crash:
            public = list(world.answers), list(world.bodies)
            await world.live()
            assert (world.answers[: len(public[0])], world.bodies[: len(public[1])]) == public
        else:
            assert sound(world)
            return
        assert sound(world), f"after a crash at place {left}"
    raise AssertionError("the fuse is too short")


async def test_a_start_from_a_snapshot_knows_the_watches_that_came_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stream_dp.engine.engine.SNAPSHOT_TICKS", 2)
    world = MonitorWorld(script=SCRIPT, noise=no_noise)
    await world.live()
    assert any(commit.snapshot is not None for commit in world.commits())
    whole = list(world.bodies)
    done = max(at for at, commit in enumerate(world.commits()) if commit.changes)
    for kept in range(done + 1, len(world.store.commits)):
        again = MonitorWorld(script=SCRIPT, noise=no_noise)
        again.store.commits[:] = world.store.commits[:kept]
        tick = max((t for c in world.commits()[:kept] for t in c.ticks), default=-1)
        again.bodies[:] = [body for body in whole if json.loads(body)["tick"] <= tick]
        again.answers[:] = [a.body for c in world.commits()[:kept] for a in c.answers]
        await again.live()
        assert again.bodies == whole


async def test_a_place_that_is_used_again_holds_nothing_of_before() -> None:
    """The early record of tick 7 counted in the place already; the watch that has it now begins behind that record."""
    world = MonitorWorld(noise=no_noise)
    source = Stopping(2)
    engine = world.messaging(source)
    going = asyncio.create_task(engine.run())

    async def told(name: str, do: str, watch: Any) -> None:
        said = text(name, do, series="m", watch=watch).encode()
        await engine.tell(said, "")

    await wait(world, 2)
    await told("w1", "watch", FR)
    source.go(4)
    await wait(world, 4)
    await told("u1", "unwatch", "fr")
    await told("w2", "watch", {**FR, "name": "again", "above": 1, "over": "tick"})
    source.go(HORIZON)
    await going
    counts = {7: 2, **dict.fromkeys((5, 6, 8, 9, 10, 11), 2)}
    assert fired(world, "again") == sorted(counts)
    (begun,) = (
        c
        for commit in world.commits()
        for c in commit.changes
        if isinstance(c, Watched) and c.at == 5
    )
    column = 1 + begun.place
    rows = {t: row[column] for c in world.commits() for t, row in zip(c.ticks, c.rows, strict=True)}
    assert {tick: rows[tick] for tick in counts} == counts


ALERTS = {"name": "new", "statistic": "alerts", "by": "country", "threshold": 5, "epsilon": "0.5"}


@pytest.mark.parametrize(
    ("second", "kind"),
    [(message(2, "w1", "watch", series="m", watch=FR), Watched), (message(2, "c1", "create", series=ALERTS), Created)],
    ids=["watch", "series"],
)  # fmt: skip
async def test_what_begins_in_the_commit_of_a_question_begins_again_from_its_own_seed(
    monkeypatch: pytest.MonkeyPatch, second: tuple[int, bytes], kind: type
) -> None:
    commit_as_before(monkeypatch)
    drawn: list[tuple[bytes, int]] = []

    def noted(seed: bytes, stream: int) -> NoiseStream:
        drawn.append((seed, stream))
        return NoiseStream(seed, stream)

    first = message(2, "a1", "ask", series="m", watch="large", threshold=10**6)
    world = MonitorWorld(script=[first, second], noise=noted)
    await world.live()
    kinds = [tuple(type(c) for c in commit.changes) for commit in world.commits() if commit.changes]
    assert kinds == [(Asked, kind)]
    seeds = [seed for commit in world.commits() for seed in commit.seeds]
    assert len(set(seeds)) == len(seeds)  # also of two that draw from streams of their own
    once, drawn[:] = sorted(drawn), []
    bodies = list(world.bodies)
    await world.live()
    assert sorted(drawn) == once
    assert len(set(once)) == len(once)
    world.bodies.clear()
    await world.live()
    assert world.bodies == bodies
