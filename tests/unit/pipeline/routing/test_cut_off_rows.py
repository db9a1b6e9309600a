"""Rows of users who were active and cut off, on the real path: what the definition says, and what one user changes.

Guard, router, assembler and memory run as in the engine. What a user changes of all caps together, and the loss of the
real noise on it, is in `unit/mechanisms/test_arrivals_exact`.
"""

import itertools
from random import Random
from typing import Any

import numpy as np
import pytest
from faults.test_user_caps import crashes
from oracles.cut_users import cut_by_cap, cut_users
from oracles.user_caps import Caps, Event, Mark
from unit.pipeline.routing.seen_worlds import SeenWorld, rows_of
from unit.pipeline.routing.user_worlds import CAP, FOR_EVER, HORIZON, KEYS, PIPELINE, some_log

from stream_dp.pipeline import user_guard
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.spec import PipelineSpec, diagnose
from stream_dp.pipeline.user_guard import Rooms, cap_uses
from stream_dp.statistics.cut_off import CutOffSeries

PER = {"unit": "user", "user": "customer", "max_events": "2", "per": "2s", "epsilon": "100"}


def pipeline(privacy: Any, window: str | None) -> PipelineSpec:
    series = [
        {"name": "all", "statistic": "count", "epsilon": "2"},
        {"name": "capped", "statistic": "cut_off", "epsilon": "2"} | ({"window": window} if window else {}),
    ]  # fmt: skip
    return PipelineSpec.model_validate(PIPELINE | {"privacy": privacy, "series": series})


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("privacy", "window"), [(PIPELINE["privacy"], 4), (FOR_EVER, None)])
def test_rows_are_those_of_the_definition(seed: int, privacy: Any, window: int | None) -> None:
    """Late records, marks that skip ahead, ticks in any order, batches anywhere."""
    spec = pipeline(privacy, None if window is None else f"{window}s")
    logs = {0: some_log(Random(seed), [f"user {number}" for number in range(7)], 80)}
    found = rows_of(spec, logs, Random(seed))
    assert list(map(tuple, found[:, 1:].tolist())) == cut_users(logs, CAP, window, HORIZON)
    assert found[:, 2].sum() > 0
    assert (found[:, 1:].cumsum(axis=0)[-1] > 0).all()


def test_users_outside_the_share_count_nowhere() -> None:
    logs = {0: some_log(Random(1), [f"user {number}" for number in range(40)], 400)}
    whole, half = (
        rows_of(pipeline(PER | share, "2s"), logs, Random(1))[:, 1:].sum(axis=0)
        for share in ({}, {"share": "1/4"})
    )
    assert (half > 0).all()
    assert (half < whole).all()


def of_records(slots: Any, users: Any, *more: Any) -> Any:
    """Counts the records beyond the cap: each as somebody of its own."""
    users = np.arange(2 * len(users), dtype=np.uint64).reshape(-1, 2) + users
    return cap_uses(slots, users, *more)


BY_CAP = [
    Caps(3, 4, 1), Caps(4, 4, None, 2), Caps(4, 4, None, None, 2), Caps(5, 4, 2, 2, 3), Caps(4, None, 2, 1, 3),
    Caps(3, None, None, 2, 2),
]  # fmt: skip


def by_cap(caps: Caps) -> PipelineSpec:
    """A pipeline with a series for each cap that there is, and one for all together."""
    own = {"per_tick": caps.per_tick, "per_key": caps.per_key, "keys": caps.keys}
    given = {name: str(most) for name, most in own.items() if most is not None}
    window, per = (
        ("overall", {}) if caps.window is None else ("max_events", {"per": f"{caps.window}s"})
    )
    key = {"key": "key"} if given.keys() & {"per_key", "keys"} else {}
    privacy = PER | per | {window: str(caps.cap)} | given | key
    for name in () if caps.window else ("max_events", "per"):
        del privacy[name]
    one = {"statistic": "cut_off", "epsilon": "2"} | (
        {} if caps.window is None else per | {"window": per["per"]}
    )
    one.pop("per", None)
    series = [{"name": f"by_{name}", "cap": name, **one} for name in (window, *given)]
    return PipelineSpec.model_validate(
        PIPELINE | {"privacy": privacy, "series": [*series, {"name": "any", **one}]}
    )


def wrong_rows(caps: Caps, seed: int) -> list[str]:
    """The caps for which the rows of the real path are not those of the oracle."""
    logs = {0: some_log(Random(seed), [f"user {number}" for number in range(6)], 150)}
    spec, expected = by_cap(caps), cut_by_cap(logs, caps, HORIZON)
    rows = rows_of(spec, logs, Random(seed))
    assert rows[:, -1].sum() > 0
    names = [series.cap for series in spec.series[:-1] if isinstance(series, CutOffSeries)]
    oracle = [expected["max_events" if name == "overall" else name or ""] for name in names]
    return [
        name or ""
        for at, (name, wanted) in enumerate(zip(names, oracle, strict=True))
        if list(map(tuple, rows[:, 2 * at : 2 * at + 2].tolist())) != wanted
    ]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("caps", BY_CAP, ids=str)
def test_rows_by_cap_are_those_of_the_definition(caps: Caps, seed: int) -> None:
    assert wrong_rows(caps, seed) == []


async def test_rows_by_cap_are_the_same_through_crashes_anywhere() -> None:
    for seed, caps in enumerate(BY_CAP[3:5]):
        logs = {0: some_log(Random(seed), [f"user {number}" for number in range(6)], 150)}
        world = SeenWorld(logs, by_cap(caps), group=2)
        assert await crashes(world, Random(seed)) > 1
        expected = cut_by_cap(logs, caps, HORIZON)
        for at, name in enumerate(("max_events", "per_tick", "per_key", "keys")):
            assert [row[2 * at : 2 * at + 2] for row in world.recorded()] == expected[name]


def largest_changes(caps: Caps, most: int | None = None) -> tuple[int, int]:
    """The most units that all records of a user change in an entry of a series, and in one series.

    Of every (or of `most`) sequence of four records in two ticks and of two keys, beside another's.
    """
    spec, entry, whole = by_cap(caps), 0, 0
    kinds = [Event("u", tick, key) for tick in (0, 1) for key in KEYS[:2]]
    ends: list[Event | Mark] = [Event("v", 1, "a")] * 3 + [Mark(1), Mark(HORIZON - 1)]
    gone = rows_of(spec, {0: ends}, Random(1))
    for lot, events in enumerate(itertools.islice(itertools.product(kinds, repeat=4), most)):
        changes = np.abs(rows_of(spec, {0: [*events, *ends]}, Random(lot)) - gone).sum(axis=0)
        entry = max(entry, int(changes.max()))
        whole = max(whole, int(changes.reshape(-1, 2).sum(axis=1).max()))
    return entry, whole


@pytest.mark.parametrize("caps", [Caps(2, 4, 1, 1, 1), Caps(3, None, 2, 2)], ids=str)
def test_a_user_changes_one_unit_of_each_entry_by_cap(caps: Caps) -> None:
    """Two units of each series, which its noise is for, whichever cap it is."""
    assert largest_changes(caps) == (1, 2)
    assert {chosen.mechanism.rows.changes for chosen in build(by_cap(caps)).chosen} == {2}


def of_a_batch(self: Rooms, counting: Any) -> Any:
    """A cap whose room is as large in each batch."""
    return self.before(counting) >= self.room.max()


def by_any(rooms: Any, kept: Any) -> Any:
    """Every cap is taken for the one that cut a record off."""
    return dict.fromkeys((None, *rooms), ~kept)


@pytest.mark.parametrize(("owner", "name", "twin"), [
    (Rooms, "full", of_a_batch), (user_guard, "cut_by_cap", by_any), (Rooms, "before", lambda self, _: 0 * self.cells),
])  # fmt: skip
def test_caps_that_are_taken_for_others_are_caught(
    owner: Any, name: str, twin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, twin)
    assert any(wrong_rows(caps, seed) for caps in BY_CAP for seed in range(2))


def test_records_counted_by_cap_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_guard, "cap_uses", of_records)
    assert largest_changes(Caps(2, 4, 1, 1, 1), 20) > (1, 2)


@pytest.mark.parametrize(
    ("cap", "given"), [("per_key", "max_events"), ("overall", "max_events"), ("keys", "max_events")]
)
def test_a_cap_that_the_file_has_not_is_refused(cap: str, given: str) -> None:
    series = [
        {"name": "capped", "statistic": "cut_off", "cap": cap, "window": "2s", "epsilon": "2"}
    ]
    found: Any
    (found,) = diagnose(PIPELINE | {"privacy": PER, "series": series})
    assert found["loc"] == ("series", 0, "cap")
    assert found["msg"] == f"privacy has no {cap}: name {given}, or leave it out for all caps"


def test_the_cap_is_in_the_fingerprint_and_in_the_words() -> None:
    spec = by_cap(BY_CAP[3])
    first, *_, last = spec.series
    assert first.about.endswith("who had events beyond max_events, which are not counted")
    assert first.parameters["cap"] == "max_events"
    assert last.left_out >= {"cap"}
    assert "cap" not in last.parameters
