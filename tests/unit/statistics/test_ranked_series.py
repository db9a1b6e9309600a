"""`top`, `maximum` and `largest`: ranks and ties, whose count a maximum is, and room for names in whatever letters."""

import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from pydantic import TypeAdapter
from scipy.stats import binom
from unit.statistics.statistic_cases import GRID, WITHIN, bodies, built_of, series_of

from stream_dp.client.public_release import Counts, PublicRelease, Rank
from stream_dp.core.mechanism import Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.engine.cut_changes import selected
from stream_dp.engine.series import MadeSeries, Series, SeriesView
from stream_dp.errors import FailClosed, UsageError
from stream_dp.journal.release import Shape, read
from stream_dp.mechanisms.hss.sparse_vector import Largest
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.papers import PaperHSS
from stream_dp.mechanisms.serving import Differences, all_at_once
from stream_dp.statistics import Series as SeriesSpec
from stream_dp.statistics.parts.choice import Setting
from stream_dp.statistics.parts.choose_hss import Demand, hss_for, rank_choice
from stream_dp.statistics.top import MOST_TIED, ranks
from stream_dp.testing.noise import SeededNoise, ZeroNoise

TOP = "statistic: top, by: country, k: 2"
MAXIMUM = "{name: it, epsilon: 8, statistic: maximum, by: country}"
ROWS = ([40, 10, 40], [0, 500, 0])
HEAD = '{"v":1,"sequence":1,"series":"it","tick":0,"end":"2026-01-01T01:00:00Z"'


def brute_ranks(
    names: str, counts: list[int], k: int, apart: int
) -> list[tuple[str, int, list[str]]]:
    order = sorted(range(len(names)), key=lambda at: (-counts[at], at))
    near = {
        at: [names[o] for o in order if o != at and abs(counts[o] - counts[at]) <= apart]
        for at in order
    }
    return [(names[at], counts[at], near[at]) for at in order[:k]]


def test_ranks_of_each_window_are_read_off_its_histogram(tmp_path: Path) -> None:
    """With the histogram's noise and no other word on it; in 400 runs all values are in the band at once, 19 in 20."""
    keys = "by: country, every: [1h, 2h]"
    (top,), (counts,) = (
        built_of(tmp_path, f"statistic: {what}, {keys}").chosen
        for what in ("top, k: 3", "histogram")
    )
    assert (top.mechanism, top.choice.why) == (counts.mechanism, counts.choice.why)
    series, runs = series_of(built_of(tmp_path, f"{TOP.replace('k: 2', 'k: 3')}, every: 2h")), 400
    wrong = {1: 0, 3: 0}
    for run in range(runs):
        told = read(bodies(series, [(400, 300, 200), (100, 200, 300)], SeededNoise(run))[1])
        part = told.windows["2h"] if told.windows else None
        assert part is not None
        assert isinstance(part.ranks, tuple)
        assert isinstance(part.band, int)
        off = max(abs(rank.value - 500) for rank in part.ranks)
        for divided in wrong:
            wrong[divided] += off > part.band / divided
    assert binom.sf(wrong[1] - 1, runs, 0.05) > 1e-4
    assert binom.sf(wrong[3] - 1, runs, 0.05) < 1e-4


def test_ranks_are_those_of_the_definition() -> None:
    rng = np.random.default_rng(5)
    for _ in range(300):
        counts = rng.integers(0, 12, 7)
        k, apart = int(rng.integers(1, 8)), int(rng.integers(0, 6))
        told = ranks("gfedcba", counts, k, apart)
        found = [(r.name, r.value, list(r.tied)) for r in told]
        assert found == brute_ranks("gfedcba", counts.tolist(), k, apart)
        assert not any(r.more for r in told)


def test_many_ties_are_listed_up_to_a_number_and_the_rest_is_counted() -> None:
    """The greatest first; the room that a release may take is known beforehand."""
    names = [f"n{place:02}" for place in range(40)]
    told = ranks(names, np.zeros(40, dtype=np.int64), 3, 0)
    assert [r.name for r in told] == names[:3]
    assert all(len(r.tied) == MOST_TIED and r.more == 39 - MOST_TIED for r in told)
    assert told[0].tied == tuple(names[1 : 1 + MOST_TIED])
    assert told[2].tied == (*names[:2], *names[3 : 1 + MOST_TIED])


def test_the_bytes_of_a_top_list_have_the_band_of_all_names_at_once(tmp_path: Path) -> None:
    series = series_of(built_of(tmp_path, TOP))
    first, _ = bodies(series, ROWS)
    mechanism: Any = series.mechanism
    band = mechanism.band(1, all_at_once(0.95, 3))
    assert mechanism.band(1, 0.95) < Differences(mechanism).band(1, 0.95) < 30
    shown = '"ranks":[{"name":"DE","value":40,"tied":["other"]},{"name":"other","value":40,"tied":["DE"]}]'
    assert first.decode() == f'{HEAD},{shown},"band":{band},"confidence":0.95}}'
    below = series.body(GRID, 1, 0, mechanism.init(ZeroNoise()), np.array([-9, -2, -3]))
    assert [(r.name, r.value) for r in read(below).ranks or ()] == [("DE", 0), ("FR", 0)]


def test_a_series_that_begins_later_tells_with_the_bands_of_its_own_ticks(tmp_path: Path) -> None:
    for entry in (TOP, MAXIMUM):
        built = built_of(tmp_path, entry)
        place, keys = built.layout.slice("it"), built.layout.keys("it")
        first, later = (built.chosen[0].series(built.spec, place, keys, start) for start in (0, 5))
        state = first.mechanism.init(ZeroNoise())
        answer = np.array([3, 2, 1])
        told = [
            read(each.body(GRID, 1, at, state, answer)) for each, at in ((first, 0), (later, 5))
        ]
        assert (told[0].ranks, told[0].band) == (told[1].ranks, told[1].band)


def test_auto_takes_the_narrower_band_for_all_names(tmp_path: Path) -> None:
    """An HSS has less typical error where little happens, and lags: who is told apart depends on the largest error."""
    (chosen,) = built_of(tmp_path, f"{TOP}, expected_events: 3").chosen
    assert isinstance(chosen.mechanism, Counter)
    gaussian = f"{TOP}, method: gaussian"
    budget = ", delta: 1e-6, filter: zcdp"
    assert isinstance(
        built_of(tmp_path, gaussian, privacy=budget).chosen[0].mechanism, GaussianCounter
    )


def test_ranks_may_be_asked_by_their_names_and_programs_see_them(tmp_path: Path) -> None:
    series = series_of(built_of(tmp_path, TOP))
    body = bodies(series, ROWS)[-1]
    asked = selected(series, body, {"keys": ["DE", "other"]})
    assert [r["name"] for r in selected(series, body, {})["ranks"]] == ["FR", "DE"]
    assert ([r["name"] for r in asked["ranks"]], asked["band"]) == (["DE"], read(body).band)
    found = PublicRelease.of(body)
    assert isinstance(found.ranks[0], Rank)
    assert isinstance(found.value, Counts)
    assert dict(found.value) == {"FR": 510, "DE": 40}
    windowed = series_of(built_of(tmp_path, f"{TOP}, windows: [2h]"))
    body = bodies(windowed, ROWS)[-1]
    (two,) = selected(windowed, body, {"window": "2h", "keys": ["FR"]})["windows"].values()
    assert [r["value"] for r in two["ranks"]] == [510]
    day = PublicRelease.of(body)
    assert (day.ranks, day.windows["2h"].ranks[0].name) == ((), "FR")
    assert day.value == day.windows["tick"].value


def test_whose_a_maximum_is_stands_beside_it_to_who_asks_and_in_programs(tmp_path: Path) -> None:
    """While the value is 0 nobody is named; it has one value, so keys may not be asked for."""
    series = series_of(built_of(tmp_path, MAXIMUM))
    quiet, body = bodies(series, [[0, 0, 0], [0, 4_000, 0]])
    band = read(quiet).band
    assert quiet.decode() == f'{HEAD},"value":0,"band":{band},"confidence":0.95}}'
    asked = selected(series, body, {})
    assert (asked["name"], asked["value"], asked["band"]) == ("FR", 4_000, read(body).band)
    assert "name" not in selected(series, quiet, {})
    with pytest.raises(UsageError, match="this series has one value and no keys"):
        selected(series, body, {"keys": ["FR"]})
    assert [PublicRelease.of(each).name for each in (quiet, body)] == [None, "FR"]


@pytest.mark.parametrize(("privacy", "more"), [("", ""), (WITHIN, ", method: paper_hss")])
def test_of_equal_counts_the_first_of_the_domain_has_it_and_other_may(
    tmp_path: Path, privacy: str, more: str
) -> None:
    entry = f"{{name: it, epsilon: 20, statistic: maximum, by: [kind, country]{more}}}"
    series = series_of(built_of(tmp_path, entry, privacy=privacy))
    assert isinstance(series.mechanism, PaperHSS if more else Counter)
    empty = [0] * len(series.keys)
    both, other = ([*empty] for _ in "ab")
    both[1] = both[3] = 9_000
    other[-1] = 20_000
    told = [msgspec.json.decode(body) for body in bodies(series, [empty, both, other])]
    assert [one.get("name") for one in told] == [None, series.keys[1], "other, other"]


FAR = 10**4
DATA = {
    1: [[9], [9, 9], [9, 9, 9, 9], [9, 9, 8, 0]],
    2: [[9, 9], [FAR, 5, 5, 5, 5], [FAR, FAR, 0, 0], [9, 5, 5, 4]],
    3: [[FAR, FAR, 5, 5, 5, 5], [FAR, FAR, FAR, 0], [9, 8, 5, 5, 5]],
}
"""Counts of some columns, by the rank that is told: of equal ones each may seem the larger, and others lie far off."""


def off_by_more(counts: list[int], rank: int, band: int, scale: float) -> float:
    """The probability that the count of this rank is off by more than the band, with one DLap in each column.

    Exact up to floats: it is too high where at least `rank` columns lie above, too low where fewer reach the lower end.
    """
    true, a = sorted(counts)[-rank], math.exp(-1 / scale)

    def beyond(least: int) -> float:
        """P(noise >= least)."""
        return a**least / (1 + a) if least > 0 else 1 - a ** (1 - least) / (1 + a)

    def at_least(least: int) -> float:
        """P(at least `rank` noisy counts are at least so many)."""
        number = np.array([1.0])
        for count in counts:
            p = beyond(least - count)
            number = np.convolve(number, [1 - p, p])
        return float(number[rank:].sum())

    return at_least(true + band + 1) + 1 - at_least(true - band)


@pytest.mark.parametrize("rank", DATA)
def test_the_band_of_a_rank_read_off_all_columns_holds_exactly(rank: int) -> None:
    """In one tick, for every data above; a column's own band does not hold, and one less is too little for some."""
    failing, narrow, own = list[float](), list[float](), list[float]()
    for counts in DATA[rank]:
        setting = Setting(len(counts), Neighbors.ADD_REMOVE, 1, 0.95)
        demand = Demand(setting, Largest(rank), Fraction(1, 50))
        choice = rank_choice(demand, "tree")
        (term,) = choice.mechanism.noise(1).terms  # type: ignore[union-attr]
        band, scale = int(choice.expected(0)), float(term[0])
        failing.append(off_by_more(counts, rank, band, scale))
        narrow.append(off_by_more(counts, rank, band * 5 // 6, scale))
        own.append(off_by_more(counts, rank, choice.mechanism.band(1, 0.95), scale))
    assert max(failing) <= 0.05
    assert max(narrow) > 0.05
    assert max(own) > 0.05


@pytest.mark.parametrize(
    ("epsilon", "width", "horizon", "most"),
    [("3/10", 4, 1_000, 92), ("1", 20, 8_760, 47), ("1", 100, 65_536, 72)],
)
def test_auto_reads_a_maximum_off_a_tree_where_that_is_narrower(
    epsilon: str, width: int, horizon: int, most: int
) -> None:
    """On average over the ticks; the HSS, which was the only form, has 411, 150 and 171 at the end."""
    setting = Setting(width, Neighbors.ADD_REMOVE, horizon, 0.95)
    demand = Demand(setting, Largest(1), Fraction(epsilon))
    chosen, hss = rank_choice(demand, "auto"), rank_choice(demand, "hss")
    ticks = [horizon * part // 50 for part in range(1, 50)]
    assert np.mean([chosen.expected(tick) for tick in ticks]) <= most
    assert hss.expected(setting.last) > 2 * most


def test_a_rank_below_the_first_is_told_without_a_name(tmp_path: Path) -> None:
    """For the count of a column of rank 2 has no upper bound: it grows beyond the first, and rank 2 stays as it is."""
    setting, behind = Setting(2, Neighbors.ADD_REMOVE, 48, 0.95), {}
    for rank in (1, 2):
        mechanism: Any = hss_for(Demand(setting, Largest(rank), Fraction(80), 9_000))
        state, told = mechanism.init(ZeroNoise()), 0
        for row in ([900, 899], [0, 5_000]):
            state, told = stepped(mechanism, state, row)
        column = int(np.argsort(-state.released, kind="stable")[rank - 1])
        behind[rank] = abs(told - (900, 5_899)[column])
    assert behind == {1: 0, 2: 5_000}
    assert mechanism.band(mechanism.public(2, state), 0.95) < 20
    (second,) = built_of(tmp_path, "statistic: largest, rank: 2, by: country").spec.series
    assert "named" not in second.described()["parameters"]


def stepped(mechanism: Any, state: Any, row: list[int]) -> tuple[Any, int]:
    state, _ = mechanism.step(state, Update(np.array(row)), ZeroNoise())
    state, answer = mechanism.step(state, Query(), ZeroNoise())
    return state, int(answer[0])


@pytest.mark.parametrize(
    "content",
    [
        '"ranks":[{"name":"d","value":1}],"band":3', '"ranks":[{"name":"d","value":1,"tied":[]}]',
        '"ranks":[],"value":3,"band":3', '"ranks":[{"name":"d","value":1,"tied":[],"more":-1}],"band":3',
        '"name":"d","values":{"a":1},"band":3', '"name":"d","fired":[],"band":3', '"name":"d","ranks":[],"band":3',
    ],
)  # fmt: skip
def test_what_is_no_such_release_is_refused(content: str) -> None:
    with pytest.raises(FailClosed, match="release"):
        read(f'{HEAD},{content},"confidence":0.95}}'.encode())


ODD = ["東京" * 20, "😀" * 50, '"\\' * 40, "\x01" * 60]
"""Names whose letters take two to six bytes each."""
MANY = 30


def names(odd: str) -> tuple[str, ...]:
    return tuple(f"{odd}{at}" for at in range(MANY))


def of_names(keys: Sequence[str], *, views: bool) -> Series:
    mechanism: Counter = None  # type: ignore[assignment]  # a body is made without it
    windows = (SeriesView("tick", tuple(keys), lambda tick, state: 7),) if views else ()
    shape = Shape.WINDOWS if views else Shape.HISTOGRAM
    return Series(
        "s", mechanism, slice(0, MANY), tuple(keys), shape, lambda *_: 7, 0.95, views=windows
    )


@pytest.mark.parametrize("odd", ODD)
def test_a_release_has_no_more_bytes_than_was_said(odd: str) -> None:
    keys = names(odd)
    for views in (False, True):
        made = of_names(keys, views=views)
        body = made.body(GRID, 1, 4, None, np.full(MANY, 10**15))
        assert sum(map(len, keys)) + 24 * MANY < len(body) <= made.most_bytes

    def make(*_: object) -> dict[str, Any]:
        ends = [10**15] * MANY
        return {"values": dict.fromkeys(keys, 10**15), "lows": ends, "highs": ends}

    ratio = MadeSeries("s", ("in",), keys, (), (make,), 0.95)
    assert len(ratio.body(GRID, 1, 4, {"in": b"{}"})) <= ratio.most_bytes


@pytest.mark.parametrize("more", [
    {"statistic": "top", "k": 3}, {"statistic": "maximum"}, {"statistic": "mean", "of": "amount", "clamp": [0, 9]},
], ids=lambda more: more["statistic"])  # fmt: skip
def test_a_letter_counts_as_the_bytes_that_it_has(more: dict[str, Any]) -> None:
    entry = {"name": "s", "epsilon": "1", "by": "city", **more}
    spec: Any = TypeAdapter(SeriesSpec).validate_python(entry)
    for letter, wide in (("é", 2), ("日", 3), ("😀", 4), ('"', 2), ("\x01", 6)):
        long = tuple(letter * many for many in (3, 20, 8))
        plain = tuple("x" * wide * len(name) for name in long)
        assert spec.told_bytes(long) == spec.told_bytes(plain)
