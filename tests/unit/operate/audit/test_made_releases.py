"""Ratios in the life of an engine: in the commit and the sequence of their inputs, the same bytes wherever it dies, and
made again by whoever has the releases and the file.

Real noise under seeds that are the same in every run of the tests, live series, snapshots and restarts; an altered
journal and twins of the engine are caught.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from unit.journal.runtime_worlds import Crash, Fuse
from unit.live.live_series_worlds import HORIZON, Stopping, World
from unit.live.message_worlds import MessageWorld, sealed, text
from unit.operate.audit.trace_worlds import RICH, checked, lived, resealed, seeded

from stream_dp.core.time import TickGrid
from stream_dp.engine.series import MadeSeries
from stream_dp.errors import FailClosed
from stream_dp.journal.commit import Commit

LATE = {"where": [{"field": "amount", "at_least": "6"}]}
SERIES: list[dict[str, Any]] = [
    {"name": "share", "statistic": "ratio", "of": "late", "over": "orders"},
    {"name": "orders", "statistic": "count", "epsilon": "1"},
    {"name": "late", "statistic": "count", "epsilon": "1", **LATE},
    {"name": "by_country", "statistic": "histogram", "by": "country", "method": "tree", "epsilon": "1"},
    {"name": "shares", "statistic": "ratio", "of": "by_country", "over": "orders", "digits": "6"},
    {"name": "rate", "statistic": "count", "windows": ["3h"], "epsilon": "1"},
    {"name": "late_rate", "statistic": "count", "windows": ["3h"], "epsilon": "1", **LATE},
    {"name": "rates", "statistic": "ratio", "of": "late_rate", "over": "rate"},
]  # fmt: skip
MADE: dict[str, Any] = {**RICH, "series": SERIES}
NAMES = ("orders", "late", "by_country", "rate", "late_rate")
RATIOS = ("share", "shares", "rates")
SCRIPT = [
    (1, sealed(text("a1", "ask", series="share"))),
    (2, sealed(text("a2", "ask", series="shares", keys=["FR"]))),
    (3, sealed(text("a3", "ask", series="share", window="3h"))),
    (4, sealed(text("h1", "halt", series="share"))),
    (4, sealed(text("w1", "watch", series="share", watch={"name": "w"}))),
    (5, sealed(text("c1", "create", series={"name": "share", "statistic": "count", "epsilon": "0.1"}))),
    (5, sealed(text("c2", "create", series={"name": "r", "statistic": "ratio", "of": "late", "over": "orders"}))),
    (6, sealed(text("l1", "list"))),
]  # fmt: skip


def talking() -> MessageWorld:
    return MessageWorld(MADE, script=list(SCRIPT), watched=False)


@pytest.fixture
async def world() -> World:
    """A life with a restart, and with series that come and go."""
    return await lived(seeded(MADE))


def by_tick(world: World) -> dict[int, dict[str, bytes]]:
    found: dict[int, dict[str, bytes]] = {}
    for body in world.bodies:
        said = json.loads(body)
        found.setdefault(said["tick"], {})[said["series"]] = body
    return found


async def test_ratios_stand_behind_the_others_in_commit_and_sequence(world: World) -> None:
    said = [json.loads(body) for body in world.bodies]
    assert [each["sequence"] for each in said] == list(range(1, len(said) + 1))
    for tick, bodies in by_tick(world).items():
        live = [name for name in bodies if name in ("german", "largest")]
        assert tuple(bodies) == (*NAMES, *live, *RATIOS), f"tick {tick}"
    for commit in world.commits():
        ticks = [release.tick for release in commit.releases if release.series == "share"]
        assert ticks == list(commit.ticks)


async def test_whoever_has_file_and_releases_makes_the_same(world: World) -> None:
    """No key, journal or state: the public bodies of a tick, and what the file says."""
    built = world.built
    grid = TickGrid(built.run_config(0).origin, 3_600_000, HORIZON)
    seen = 0
    for tick, bodies in by_tick(world).items():
        for made in built.made:
            body = bodies[made.series.name]
            number = json.loads(body)["sequence"]
            assert made.series.body(grid, number, tick, bodies) == body
            seen += 1
    assert seen == HORIZON * len(RATIOS)


async def test_the_trace_makes_them_again(world: World) -> None:
    found = await checked(world)
    releases = sum(len(commit.releases) for commit in world.commits())
    assert (found.releases, found.made) == (releases, HORIZON * len(RATIOS))
    assert found.counts.asks == 2 * (found.releases - found.made)
    assert found.json()["made_of_releases"] == found.made
    assert found.snapshots >= 2


LAST_SHARE = ("share", HORIZON - 1)


def another_share(commits: list[Commit]) -> None:
    for at, commit in enumerate(commits):
        releases = [
            msgspec.structs.replace(each, body=each.body.replace(b'"low":0.', b'"low":0.0'))
            if (each.series, each.tick) == LAST_SHARE
            else each
            for each in commit.releases
        ]
        commits[at] = msgspec.structs.replace(commit, releases=tuple(releases))


def no_share(commits: list[Commit]) -> None:
    for at, commit in enumerate(commits):
        kept = tuple(each for each in commit.releases if (each.series, each.tick) != LAST_SHARE)
        commits[at] = msgspec.structs.replace(commit, releases=kept)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            another_share,
            "series share, tick 11: the release computed from the releases of late and orders differs",
        ),
        (no_share, "lacks the release of series share at tick 11"),
    ],
)
async def test_an_altered_ratio_is_caught(
    world: World, change: Callable[[list[Commit]], None], why: str
) -> None:
    resealed(world, change)
    with pytest.raises(FailClosed, match=why):
        await checked(world)


async def test_recovery_makes_them_again() -> None:
    world = await lived(seeded(MADE), snapshots=1000)
    resealed(world, another_share)
    world.bodies.clear()
    with pytest.raises(FailClosed, match="replaying tick 11 of series share does not give"):
        await world.engine(Stopping()).run()


async def test_a_ratio_of_the_tick_before_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A twin of the engine: what is made lags behind."""
    before: dict[str, bytes] = {}
    own = MadeSeries.body

    def lagging(
        self: MadeSeries, grid: TickGrid, sequence: int, tick: int, bodies: Mapping[str, bytes]
    ) -> bytes:
        body = own(self, grid, sequence, tick, before or bodies)
        if self.name == RATIOS[-1]:
            before.update(bodies)
        return body

    with monkeypatch.context() as patched:
        patched.setattr(MadeSeries, "body", lagging)
        world = seeded(MADE)
        source = Stopping()
        await world.engine(source).run()
    with pytest.raises(FailClosed, match="differs from the recorded release"):
        await checked(world)


async def test_a_ratio_is_asked_and_neither_halted_watched_nor_created() -> None:
    world = talking()
    await world.live()
    said = {each["id"]: each for each in world.said()}
    told = said["a1"]["answer"]
    assert told["value"] == world.releases("share")[told["tick"]]
    assert {"low", "high", "confidence"} <= set(told)
    assert list(said["a2"]["answer"]["values"]) == ["FR"]
    refused = {name: each["refused"] for name, each in said.items() if "refused" in each}
    assert {name: each["kind"] for name, each in refused.items()} == {
        "a3": "usage", "h1": "unknown", "w1": "unknown", "c1": "usage", "c2": "usage",
    }  # fmt: skip
    assert "computed from the releases of other series" in str(refused["w1"])
    listed = {row["name"]: row for row in said["l1"]["answer"]["queries"]}
    assert set(listed) == {*NAMES, *RATIOS}
    assert (listed["share"]["epsilon"], listed["share"]["created"]) == ("0", False)


async def test_the_same_bytes_wherever_it_dies() -> None:
    """What is public after a crash is a part of what is public in the end, and the trace holds."""
    for left in range(1, 200, 7):
        world = talking()
        try:
            await world.live(Fuse(left))
        except Crash:
            public = list(world.bodies)
            await world.live()
            assert world.bodies[: len(public)] == public
        else:
            return
        numbers = [json.loads(body)["sequence"] for body in world.bodies]
        assert numbers == list(range(1, len(numbers) + 1))
        if left % 3 == 0:
            assert (await checked(world)).made == len(RATIOS) * HORIZON
    raise AssertionError("the fuse is too short")
