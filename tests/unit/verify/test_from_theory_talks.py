"""Watches that are asked, added, ended and kept beside others, blind: from THEORY 3 and 6 and docs/monitors.md alone.

An event lies in one instance of each watch that is there in its tick. So asks, ends and beginnings cost nothing more,
in any order; watches that one event touches share epsilon. An event that is replaced leaves one watch and enters
another: over windows a watch that loses it costs e1 + e2 and one that gains it e2 alone, or the other way round where
it fires below. So what is stated is met by a watch above beside one below, and by a quarter not by two above.
"""

from fractions import Fraction
from typing import Any

import pytest
from unit.verify.exact.raw_streams import World, pipeline
from unit.verify.exact.talks import NEAR, Talk, Turn, law
from unit.verify.theory_watch import QUERY, TheoryWatch

from stream_dp.mechanisms.watches.monitor_state import (
    ArmQuery,
    DisarmQuery,
    ThresholdQuery,
    WatchTerms,
)

Said = list[tuple[Any, Any, int]]
WITHIN = {"neighbors": "replace", "moves": "within_tick"}
ANY = {"neighbors": "replace"}
USERS = {"unit": "user", "user": "who", "overall": "2"}
ABOVE, BELOW = {"above": "1", "over": "2s"}, {"below": "1", "over": "2s"}


def monitor(
    watches: list[dict[str, Any]], epsilon: int, privacy: dict[str, str] | None = None, **more: str
) -> World:
    """The product's, from a file."""
    named = [{"name": f"w{n}"} | each for n, each in enumerate(watches)]
    series = {"name": "m", "statistic": "monitor", "epsilon": str(epsilon), "watch": named}
    return World(pipeline([series | {"most": str(len(watches))} | more], privacy or {}, 9))


def said(*messages: Any) -> Turn:
    """Each of these to both copies."""
    return lambda rest: [(one, one, 0) for one in messages]


def rows(rest: int) -> Said:
    """A tick of nothing, and one event in one of the copies."""
    return [((0,), (0,), 0), *([((0,), (1,), 1)] if rest else [])]


COMPARED = said(QUERY)
ASKED = said(None, ThresholdQuery(1, place=0), ThresholdQuery(2, place=0))
TERMS = {
    "since it fired": WatchTerms(1),
    "ticks": WatchTerms(1, tick=True),
    "window": WatchTerms(1, window=2),
    "below": WatchTerms(1, window=2, below=True),
}


KINDS = {
    "since it fired": {"above": "1"},
    "ticks": {"above": "1", "over": "tick"},
    "window": ABOVE,
    "below": BELOW,
}


@pytest.mark.parametrize("kind", KINDS)
def test_asks_cost_nothing_more(kind: str) -> None:
    """Behind each tick, and before and behind it, at two thresholds."""
    world = monitor([KINDS[kind]], 2)
    mechanism = world.series[0].mechanism
    found = Talk(mechanism, [rows, COMPARED, ASKED] * 3).loss()
    assert 2 - NEAR < found <= world.stated == 2
    both_sides = [rows, ASKED, COMPARED, ASKED, rows, COMPARED, ASKED]
    assert Talk(mechanism, both_sides).loss() <= 2


@pytest.mark.parametrize("then", TERMS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_event_counts_in_no_watch_that_begins_later(kind: str, then: str) -> None:
    """One is ended, asked and begun in its place, in any order, between two ticks; also what was once refused."""
    world = monitor([KINDS[kind]], 2)
    begun = ArmQuery(place=0, watch=TERMS[then])
    changes = said(None, DisarmQuery(place=0), ThresholdQuery(1, place=0), begun)
    turns = [rows, COMPARED, changes, changes, changes, rows, COMPARED, ASKED]
    assert Talk(world.series[0].mechanism, turns).loss() <= world.stated == 2


def test_watches_that_go_wrong_are_caught() -> None:
    """What a place has seen is not forgotten when it begins again; a window of one tick has two noises."""
    one, nothing = Fraction(1), Fraction(0)
    kept = TheoryWatch(1, (one, one, nothing), 3, wrong="kept window")
    turns = [rows, COMPARED, ASKED, ASKED, ASKED]
    assert Talk(kept, turns).loss() > 2.4
    single = TheoryWatch(1, (one, one, nothing), 1)
    assert Talk(single, [rows, COMPARED] * 2).loss() > 1.4


# --- several watches on one monitor, users, events that are replaced ------------------------------


def wide(rest: int) -> Said:
    """The first of two places."""
    return [((0, 0), (0, 0), 0), *([((0, 0), (1, 0), 1)] if rest else [])]


def lost(watch: dict[str, Any], privacy: dict[str, str] | None = None, **more: str) -> list[float]:
    """What a watch beside another loses by an event, without it over with it and the other way round, to a tenth."""
    world = monitor([watch], 4, privacy, most="2", **more)
    assert world.stated == 4
    return [
        round(each, 1) for each in Talk(world.series[0].mechanism, [wide, COMPARED] * 4).losses()
    ]


@pytest.mark.parametrize("privacy", [{}, WITHIN], ids=["touch", "replaced"])
def test_watches_of_one_monitor_draw_noise_of_their_own(privacy: dict[str, str]) -> None:
    """Together they say what each says alone, with the product of the chances."""
    more, rows_of_both = {"most": "2"} | ({} if privacy else {"touch": "2"}), [(1, 0), (0, 1)]
    watches = [KINDS["window"], KINDS["since it fired"]]
    single = [monitor([one], 4, privacy, **more).series[0].mechanism for one in watches]
    laws = [law(one, [(row[n], 0) for row in rows_of_both], 1) for n, one in enumerate(single)]
    expected: dict[Any, Fraction] = {}
    for one, p in laws[0].items():
        for other, q in laws[1].items():
            told = tuple((a[0], b[0]) for a, b in zip(one, other, strict=True))
            expected[told] = expected.get(told, Fraction(0)) + p * q
    assert (
        law(monitor(watches, 4, privacy, **more).series[0].mechanism, rows_of_both, 1) == expected
    )


def test_what_one_event_touches_shares_epsilon() -> None:
    """It counts in two watches: the sum of what both lose is what is stated, in one of the directions."""
    parts = {kind: lost(watch, touch="2") for kind, watch in KINDS.items()}
    assert parts == {
        "since it fired": [2, 2], "ticks": [2, 2], "window": [2, 1], "below": [1, 2],
    }  # fmt: skip


def test_an_event_that_leaves_one_watch_for_another() -> None:
    """One loses it, the other gains it; two windows above lose three quarters of what is stated."""
    parts = {kind: lost(watch, WITHIN) for kind, watch in KINDS.items()}

    def together(one: str, other: str) -> float:
        return max(parts[one][0] + parts[other][1], parts[one][1] + parts[other][0])

    assert together("since it fired", "since it fired") == together("ticks", "ticks") == 4
    assert together("window", "below") == together("window", "ticks") == 4
    assert together("window", "window") == together("below", "below") == 3


def moved(rest: int) -> Said:
    """An event here in one copy (1), there in the other (2)."""
    here, there = ((0,), (1,), 1), ((1,), (0,), 2)
    return [((0,), (0,), 0), *([here] if rest & 1 else []), *([there] if rest & 2 else [])]


def some(rest: int) -> Said:
    """One or two events of a user, or one of somebody else."""
    return [((1,), (1,), 0), *(((0,), (n,), n) for n in range(min(rest, 2) + 1))]


@pytest.mark.parametrize("kind", KINDS)
def test_a_user_with_two_events_loses_what_is_stated_by_the_group_rule(kind: str) -> None:
    """Both in one tick, or one now and one later; below a threshold of one, two are as one."""
    watch = KINDS[kind] | ({"below": "2"} if kind == "below" else {})
    world = monitor([watch], 4, USERS)
    found = Talk(world.series[0].mechanism, [some, COMPARED] * 4, 2, radius=5).loss()
    assert 4 - NEAR < found <= world.stated == 4


@pytest.mark.parametrize(("kind", "units"), [*zip(KINDS, (4, 4, 3, 3), strict=True)])
def test_an_event_in_another_tick_is_one_less_and_one_more(kind: str, units: int) -> None:
    """Stated is the double of one event; a window loses three quarters of that, for one of them costs e2 alone."""
    world = monitor([KINDS[kind]], 4, ANY)
    found = Talk(world.series[0].mechanism, [moved, COMPARED] * 4, 3, radius=4).loss()
    assert units - NEAR < found <= units <= world.stated == 4
