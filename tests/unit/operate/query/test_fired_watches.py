"""What releases tell of watches that fire once; by hand, with a roster of names alone."""

import json
from types import SimpleNamespace
from typing import Any

from stream_dp.journal.commit import Release
from stream_dp.operate.query.series_words import FiredWatches
from stream_dp.statistics.parts.watch_roster import REMEMBERED, WatchRoster


def watch(name: str, *, rearm: bool = False, by: str | None = None) -> Any:
    return SimpleNamespace(name=name, by=by, rearm=rearm)


def registry(asking: object) -> Any:
    """One where the series `m` runs, with this roster."""
    live = SimpleNamespace(series=SimpleNamespace(asking=asking))
    return SimpleNamespace(named={"m": live}.get)


def release(tick: int, *fired: str, series: str = "m") -> Release:
    body = {
        "v": 1, "sequence": tick + 1, "series": series, "tick": tick, "end": "2026-01-01T00:00:00Z", "fired": fired,
        "band": 3, "confidence": 0.95,
    }  # fmt: skip
    return Release(tick + 1, series, tick, json.dumps(body).encode())


ROSTER = WatchRoster.of(
    ("again", "once", "by/AA", "by/UA", "", ""),
    [watch("again", rearm=True), watch("once"), watch("by", by="airline")],
    None,
    1,
)


def test_each_key_of_a_watch_that_fires_once_has_its_end() -> None:
    seen = FiredWatches()
    seen.take(release(4, "again", "by/UA"), registry(ROSTER))
    seen.take(release(6, "by/AA", "again"), registry(ROSTER))
    seen.take(release(7, "once", series="other"), registry(ROSTER))
    seen.take(release(8), registry(None))
    again, once, by = ROSTER.placed
    assert [seen.ends("m", one) for one in (again, once, by)] == [{}, {}, {"by/UA": 5, "by/AA": 7}]


def test_what_was_told_where_it_was_asked_counts_too() -> None:
    told = ROSTER.answered({"watch": "by/AA", "threshold": 1, "fired": True}, 3)
    for kept in (
        ROSTER.answered({"watch": "by/AA", "threshold": 1, "fired": False}, 3),
        ROSTER.answered({"watch": "again", "threshold": 1, "fired": True}, 3),
    ):
        assert kept is ROSTER
    seen = FiredWatches()
    seen.take(release(4, "by/UA"), registry(told))
    assert seen.ends("m", told.placed[2]) == {"by/AA": 3, "by/UA": 5}
    assert told.placed[2].places == 2
    ended = ROSTER.without(ROSTER.named("once"), 9)
    late = ended.answered({"watch": "once", "threshold": 1, "fired": True}, 9)
    assert [(one.end, one.asked) for one in late.gone] == [(9, {"once": 9})]


def test_a_name_that_is_used_again_has_lives_of_its_own_and_only_what_is_remembered_is_kept() -> (
    None
):
    seen, roster = FiredWatches(), ROSTER
    for life in range(1000):
        begun = roster.with_watch(watch("x"), 4, ["x"], 10 * life, "")
        if life % 2:
            seen.take(release(10 * life + 3, "x"), registry(begun))
        roster = begun.without(begun.named("x"), 10 * life + 10)
    ends = [10 * life + 4 if life % 2 else None for life in range(1000 - REMEMBERED, 1000)]
    assert [seen.ends("m", one).get("x") for one in roster.gone] == ends
    assert len(seen._ends["m"]) < 200


def test_what_fired_in_a_series_that_runs_no_more_is_forgotten() -> None:
    seen = FiredWatches()
    for at in range(100):
        name = f"m{at}"
        live = SimpleNamespace(series=SimpleNamespace(asking=ROSTER))
        here: Any = SimpleNamespace(named={name: live}.get)
        seen.take(release(at, "once", series=name), here)
        assert seen.ends(name, ROSTER.placed[1]) == {"once": at + 1}
    assert list(seen._ends) == ["m99"]
