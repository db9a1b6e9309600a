"""The statistic `quantiles`: buckets, grids and prices, what windows tell and when, and ends that hold."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from unit.statistics.statistic_cases import (
    EVENT,
    GRID,
    MOVES,
    USER,
    WITHIN,
    bodies,
    built_of,
    series_of,
)

from stream_dp.core.guarantee import PureDP
from stream_dp.core.mechanism import Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.engine.cut_changes import selected
from stream_dp.engine.series import Series
from stream_dp.errors import NotDerivable
from stream_dp.journal.release import Quantile
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.linear.pairs import WindowsAndEver
from stream_dp.mechanisms.linear.window_forest import WindowForest
from stream_dp.mechanisms.quantiles.bucket_windows import TumblingQuantiles
from stream_dp.mechanisms.quantiles.value_tree import SlidingQuantiles, ValueLevels, ValueTree
from stream_dp.mechanisms.serving import derived
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.promise import caveats, warnings
from stream_dp.pipeline.yaml import canonical_series, load, load_series
from stream_dp.statistics.parts.choice import Setting
from stream_dp.statistics.quantiles import ValueGrid, sliding_choice
from stream_dp.testing.noise import SeededNoise, ZeroNoise

KEYS = "statistic: quantiles, of: amount, clamp: [0, 6], buckets: 4, at: [0.5, 0.9]"
SINGLE = "statistic: quantiles, of: amount, at: [0.5]"
LOW, MID, NONE = [0, 5, 0, 0, 0, 0, 90], [0, 0, 0, 7, 0, 3, 0], [0] * 7
"""Entries of a row: below 0, four buckets of 1.5, 6 and more, no number."""


def windows(series: Series, rows: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
    """The windows of each release, without noise."""
    return [msgspec.json.decode(body)["windows"] for body in bodies(series, rows)]


def values(window: dict[str, Any]) -> list[float]:
    return [each["value"] for each in window["quantiles"].values()]


def tree_of(built: Built) -> ValueTree:
    mechanism = built.chosen[0].mechanism
    assert isinstance(mechanism, SlidingQuantiles)
    return mechanism.tree


def test_what_a_whole_window_tells_stays_until_the_next_one_ends(tmp_path: Path) -> None:
    """Nothing is told before an end."""
    series = series_of(built_of(tmp_path, f"{KEYS}, every: [2h, 3h]"))
    first, second, third, fourth = windows(series, [LOW, MID, MID, NONE])
    assert list(first) == ["2h", "3h"]
    assert first["2h"]["quantiles"] == first["3h"]["quantiles"] == {}
    pair = {"0.5": {"value": 3.75, "bucket": [3, 4.5]}, "0.9": {"value": 6, "bucket": [6, 6]}}
    assert second["2h"]["quantiles"] == third["2h"]["quantiles"] == pair
    assert third["3h"]["quantiles"]["0.5"] == pair["0.5"]
    assert fourth["3h"] == third["3h"]
    assert {each["band"] for each in first.values()} == {series.band(0, None)}


def test_windows_slide_and_so_far_is_told_last(tmp_path: Path) -> None:
    series = series_of(built_of(tmp_path, f"{KEYS}, windows: [ever, 2h, 3h]"))
    first, second, third, fourth = windows(series, [LOW, MID, MID, NONE])
    assert list(first) == ["2h", "3h", "ever"]
    assert {tuple(values(part)) for part in first.values()} == {(0.75, 1.35)}
    assert values(second["2h"]) == [3.525, 6]
    assert values(third["2h"]) == values(fourth["2h"]) == [4.065, 6]
    assert values(third["3h"]) == values(third["ever"]) == [3.795, 6]
    assert first["2h"]["band"] < second["2h"]["band"] == third["2h"]["band"] < third["3h"]["band"]


def test_windows_hop_and_what_is_told_stays_until_the_next_hop_ends(tmp_path: Path) -> None:
    """Of four hours in hops of two, and so far: nothing is told before the first hop ends."""
    built = built_of(tmp_path, f"{KEYS}, windows: [4h, 2h, ever], hop: 2h")
    series, rows = series_of(built), [LOW, MID, MID, NONE, MID, LOW, LOW]
    told = windows(series, rows)
    sliding = series_of(built_of(tmp_path, f"{KEYS}, windows: [4h, 2h, ever]"))
    at_ends = windows(sliding, rows)
    assert [each["4h"]["quantiles"] for each in told[:1]] == [{}]
    assert all(view.first == 1 for view in series.views)
    for tick in range(1, 7):
        end = (tick + 1) // 2 * 2 - 1
        assert [values(part) for part in told[tick].values()] == [
            values(part) for part in at_ends[end].values()
        ]
        assert told[tick] == told[end]
    assert told[0]["2h"]["band"] == told[1]["2h"]["band"] < told[3]["4h"]["band"]
    assert told[6]["4h"]["band"] == told[3]["4h"]["band"] < at_ends[6]["4h"]["band"]
    tree = tree_of(built)
    assert isinstance(tree.counts, WindowsAndEver)
    assert (tree.hop, tree.counts.forest.windows) == (2, (2, 1))
    assert isinstance(tree.counts.ever, Counter)
    assert tree.counts.ever.horizon == 4
    assert (
        "; counts are released at the end of each 2h; errors are in ranks"
        in built.chosen[0].choice.why
    )


def test_a_hop_is_on_record_only_where_it_is_written(tmp_path: Path) -> None:
    plain, hopping = (
        built_of(tmp_path, f"{KEYS}, windows: [4h]{more}") for more in ("", ", hop: 2h")
    )
    assert "hop" not in plain.spec.series[0].parameters
    assert (
        "hop" in plain.spec.series[0].left_out
    )  # so files without it have the fingerprint they had
    assert plain.parts["series"] != hopping.parts["series"]
    assert hopping.spec.series[0].parameters["hop"] == "2h"


@pytest.mark.parametrize(("privacy", "relation", "epsilon"), [
    (WITHIN, Neighbors.REPLACE, 1), (MOVES, Neighbors.ADD_REMOVE, Fraction(1, 2)),
    (f"{USER}, max_events: 5, per: 1h", Neighbors.ADD_REMOVE, Fraction(1, 5)),
])  # fmt: skip
def test_hops_cost_what_ticks_do(
    tmp_path: Path, privacy: str, relation: Neighbors, epsilon: Fraction
) -> None:
    built = built_of(tmp_path, f"{KEYS}, windows: [4h], hop: 2h", privacy=privacy)
    tree = tree_of(built)
    assert (tree.neighbors, tree.guarantee.measure) == (relation, PureDP(Fraction(epsilon)))
    derivation = derived(built.chosen[0].mechanism, "it")
    assert derivation.guarantee == tree.guarantee
    assert "of hops of 2 ticks" in str(derivation)


def test_without_windows_it_is_told_so_far(tmp_path: Path) -> None:
    built = built_of(tmp_path, KEYS)
    (_, second) = windows(series_of(built), [LOW, MID])
    assert {name: values(part) for name, part in second.items()} == {"ever": [3.525, 6]}
    counts = tree_of(built).counts
    assert isinstance(counts, Counter)
    assert counts.horizon == 8


def test_edges_are_a_grid_of_their_own(tmp_path: Path) -> None:
    grid = "statistic: quantiles, of: amount, edges: [0, 1, 5, 60], at: [0.5, 0.9]"
    (told,) = windows(
        series_of(built_of(tmp_path, f"{grid}, windows: [3h]")), [[0, 0, 10, 0, 0, 5]]
    )
    assert values(told["3h"]) == [3, 4.6]
    (told,) = windows(series_of(built_of(tmp_path, f"{grid}, every: 1h")), [[0, 0, 10, 0, 0, 5]])
    assert told["1h"]["quantiles"]["0.5"] == {"value": 3, "bucket": [1, 5]}


def test_an_event_pays_for_each_quantile_of_each_tumbling_length(tmp_path: Path) -> None:
    mechanism = built_of(tmp_path, f"{KEYS}, every: [2h, 3h]").chosen[0].mechanism
    assert isinstance(mechanism, TumblingQuantiles)
    assert (mechanism.windows, mechanism.at) == ((2, 3), (Fraction(1, 2), Fraction(9, 10)))
    assert mechanism.choice_epsilon == Fraction(1, 4)
    assert (mechanism.width, mechanism.buckets) == (7, 6)


def test_an_event_pays_for_its_levels_and_all_sliding_windows_at_once(tmp_path: Path) -> None:
    grid = "of: amount, clamp: [0, 600], buckets: 200, at: [0.5, 0.9], windows: [2h, 3h, ever]"
    built = built_of(tmp_path, f"statistic: quantiles, {grid}", horizon=48)
    tree = tree_of(built)
    assert isinstance(tree.counts, WindowsAndEver)
    assert isinstance(tree.levels, ValueLevels)
    assert (tree.levels.sizes, tree.width) == ((202, 9), 203)
    forest = tree.counts.forest
    assert (forest.windows, forest.ones, forest.epsilon) == ((2, 3), 2, Fraction(2, 3))
    assert tree.counts.ever.epsilon == Fraction(1, 3)
    assert "its levels have 202, 9 counts" in built.chosen[0].choice.why


@pytest.mark.parametrize(
    ("privacy", "relation", "epsilon"),
    [
        (EVENT, Neighbors.ADD_REMOVE, 1), (WITHIN, Neighbors.REPLACE, 1), (MOVES, Neighbors.ADD_REMOVE, Fraction(1, 2)),
        (f"{USER}, max_events: 5, per: 1h", Neighbors.ADD_REMOVE, Fraction(1, 5)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("over", ["", ", windows: [2h, ever]"])
def test_the_tree_of_values_is_for_one_step(
    tmp_path: Path, over: str, privacy: str, relation: Neighbors, epsilon: Fraction
) -> None:
    tree = tree_of(built_of(tmp_path, KEYS + over, privacy=privacy))
    assert (tree.neighbors, tree.guarantee.measure) == (relation, PureDP(Fraction(epsilon)))


def why(folder: Path, keys: str) -> str:
    built = built_of(folder, keys, horizon=240)
    return built.chosen[0].choice.why


def test_the_error_is_a_part_of_the_records_that_are_expected(tmp_path: Path) -> None:
    """2,400 in 240 ticks, so 20 in two hours and 480 in two days; `every` is proposed for what is much, and slides."""
    for over, lengths in (
        ("windows: [2h, 48h, ever]", (2, 48, 240)),
        ("every: [2h, 48h]", (2, 48)),
    ):
        (chosen,) = built_of(tmp_path, f"{KEYS}, {over}", horizon=240).chosen
        errors = [windows(239) for windows in chosen.choice.windows.values()]
        names = ["in 2h", "in 48h", "so far"]
        parts = [
            f"{e / (10 * n):.1%} {name}" for e, n, name in zip(errors, lengths, names, strict=False)
        ]
        said = why(tmp_path, f"{KEYS}, {over}, expected_events: 2400")
        assert f"as parts of the expected records, the errors are {', '.join(parts)}" in said
        assert ("; with every" in said) == over.startswith("windows")
    apart, together = (
        built_of(tmp_path, f"{KEYS}, every: [2h, 48h]{more}", horizon=240).chosen[0].choice.windows["48h"](0)
        for more in ("", ", method: together")
    )  # fmt: skip
    both = why(tmp_path, f"{KEYS}, windows: [2h, 48h], expected_events: 2400")
    assert f"every and method: together instead of windows {together / 480:.1%} in 48h" in both
    assert together < apart
    single = why(tmp_path, f"{SINGLE}, clamp: [0, 6], windows: [2h, 48h], expected_events: 2400")
    assert "; with every instead of windows" in single
    many = "statistic: quantiles, of: amount, clamp: [0, 6], at: [0.2, 0.4, 0.6, 0.8]"  # too many tuples
    assert "; with every instead of windows" in why(
        tmp_path, f"{many}, windows: [48h], expected_events: 2400"
    )
    plenty = why(tmp_path, f"{KEYS}, windows: [2h, 48h], expected_events: 99000000")
    assert "instead of windows" not in plenty
    plain, guessed = (
        built_of(tmp_path, f"{KEYS}, every: 2h{more}").parts
        for more in ("", ", expected_events: 7")
    )
    assert plain == guessed


@pytest.mark.parametrize(
    ("privacy", "more", "guesses"),
    [
        (EVENT, "", "records: 10"),
        (EVENT, ", where: [{field: country, equals: DE}]", "records: 40, passing: {it: 0.25}"),
        (f"{USER}, max_events: 4, per: 4h", "", "users: 16, events: [1, 9]"),  # 16 times (1 + 4) / 2 in 4 hours
    ],
)  # fmt: skip
def test_guesses_of_records_show_and_propose_what_expected_events_do(
    tmp_path: Path, privacy: str, more: str, guesses: str
) -> None:
    """10 a tick are 2,400 in 240; a guess of the series itself goes first, and one that is missing is not made up."""
    keys = f"{KEYS.replace('amount', 'pieces').replace('buckets: 4', 'buckets: 3')}, windows: [2h, 48h]{more}"

    def said(keys: str, guesses: str = "") -> str:
        own = privacy + (f", expect: {{{guesses}}}" if guesses else "")
        return built_of(tmp_path, keys, privacy=own, horizon=240).chosen[0].choice.why

    declared = said(f"{keys}, expected_events: 2400")
    assert "; with every" in declared
    assert "; with hop" in declared
    assert said(keys, guesses) == declared
    warned = warnings(build(load(tmp_path / "shop.yaml")))
    assert any(
        warning.removeprefix("it: as parts of the expected records, ") in declared
        for warning in warned
    )
    assert said(f"{keys}, expected_events: 2400", guesses.replace("10", "77")) == declared
    nullable = keys.replace("pieces", "amount").replace(more or "nothing", "")
    without_passing = guesses.partition(", passing")[0]
    assert said(nullable, without_passing) == said(nullable)
    prints = [
        built_of(tmp_path, keys, privacy=privacy + text, horizon=240).parts
        for text in ("", f", expect: {{{guesses}}}")
    ]
    assert prints[0] == prints[1]


def part_with_hop(folder: Path, over: str, hop: int, events: int) -> float:
    """The largest part of the records expected in one of the windows of 12 and 24 hours, in 240, that an error is."""
    (chosen,) = built_of(folder, f"{KEYS}, {over}, hop: {hop}h", horizon=240).chosen
    errors = (chosen.choice.windows[f"{span}h"](239) / (events * span / 240) for span in (12, 24))
    return max(errors)


@pytest.mark.parametrize("events", [1_000, 3_000, 4_000, 5_000, 6_000, 7_000])
def test_the_shortest_hop_is_proposed_with_which_no_error_is_much(
    tmp_path: Path, events: int
) -> None:
    over = "windows: [24h, 12h, ever]"
    said = why(tmp_path, f"{KEYS}, {over}, expected_events: {events}")
    parts = {hop: part_with_hop(tmp_path, over, hop, events) for hop in (2, 3, 4, 6, 12)}
    enough = [hop for hop, part in parts.items() if part <= 0.1]
    hop = min(enough, default=12)
    assert f"; with hop: {hop}h " in said
    assert said.endswith(f" {parts[hop]:.1%} in 12h")
    again = why(tmp_path, f"{KEYS}, {over}, hop: {hop}h, expected_events: {events}")
    assert ("; with hop:" in again) == (not enough and hop < 12)


def sum_of_parts(folder: Path, keys: str, number: int, records: dict[str, int]) -> float:
    """The part of the records that an error is at most of a window's, and a bucket's own if they lie evenly."""
    (chosen,) = built_of(folder, f"{keys}, buckets: {number}", horizon=240).chosen
    errors = chosen.choice.windows
    return max(errors[name](239) / many for name, many in records.items()) + 1 / number


@pytest.mark.parametrize("hop", ["", ", hop: 12h"])
@pytest.mark.parametrize("events", [1_000, 9_000, 30_000])
@pytest.mark.parametrize(
    ("of", "clamp", "numbers"),
    [("amount", "[0, 6]", (5, 7, 10, 14, 20, 30, 50, 80, 125)), ("pieces", "[0, 400]", (5, 8, 10, 16, 20, 25, 50, 80))],
)  # fmt: skip
def test_the_buckets_are_proposed_that_leave_least_to_error_and_bucket(
    tmp_path: Path, of: str, clamp: str, numbers: tuple[int, ...], events: int, hop: str
) -> None:
    keys = (
        f"statistic: quantiles, of: {of}, clamp: {clamp}, at: [0.5, 0.9], windows: [24h, 48h]{hop}"
    )
    records = {"24h": events // 10, "48h": events // 5}
    said = why(tmp_path, f"{keys}, buckets: 100, expected_events: {events}")
    shown = re.findall(
        r"as parts of the expected records|([0-9.]+)% in", said.partition("; with")[0]
    )
    parts = zip(shown[1:], records.items(), strict=True)
    much = {name: many for part, (name, many) in parts if float(part) > 10}
    if not much:
        assert "; with" not in said
        return
    sums = {n: sum_of_parts(tmp_path, keys, n, much) for n in (*numbers, 100) if n <= 100}
    best = min(sums, key=lambda number: sums[number])
    assert ("; with buckets" in said) == (best != 100)
    if best != 100:
        assert f"; with buckets: {best} " in said
        part = f"{sums[best] - 1 / best:.1%}"
        assert f"{part} in 24h" in said.partition("; with buckets")[2]
        assert said.endswith(f" (a bucket has {1 / best:.1%} on average)")
        again = why(tmp_path, f"{keys}, buckets: {best}, expected_events: {events}")
        assert "; with buckets" not in again


def test_edges_are_as_many_as_they_are(tmp_path: Path) -> None:
    edges = ", ".join(map(str, range(100)))
    keys = f"statistic: quantiles, of: amount, edges: [{edges}], at: [0.5], windows: [24h]"
    said = why(tmp_path, f"{keys}, expected_events: 900")
    assert "; with hop" in said
    assert "; with buckets" not in said


def test_no_hop_is_proposed_where_none_divides_the_windows(tmp_path: Path) -> None:
    said = why(tmp_path, f"{KEYS}, windows: [11h, 12h], expected_events: 100")
    assert "as parts of the expected records" in said
    assert "with hop" not in said


def test_a_series_of_fewer_ticks_than_a_hop_is_made_for_one(tmp_path: Path) -> None:
    """As a live series is, at the end of a horizon: nothing of it is told."""
    built = built_of(tmp_path, f"{KEYS}, hop: 4h", horizon=5)
    setting = Setting(7, Neighbors.ADD_REMOVE, 3, 0.95, step=3_600_000)
    choice = sliding_choice(setting, Fraction(1), ("ever",), (Fraction(1, 2),), "4h")
    mechanism: Any = choice.mechanism
    assert mechanism.tree.counts.horizon == 1
    series = series_of(built)
    assert [each["ever"]["quantiles"] == {} for each in windows(series, [LOW] * 5)] == [
        True
    ] * 3 + [False] * 2


def test_plan_says_how_many_ticks_at_the_end_are_in_no_whole_hop(tmp_path: Path) -> None:
    built = built_of(tmp_path, f"{KEYS}, windows: [6h], hop: 3h", horizon=11)
    (note,) = (each for each in caveats(built) if "horizon" in each)
    assert (
        "the horizon ends in the middle of a hop of 3h, so no release contains the records of the horizon's last "
        "2 ticks" in note
    )
    whole = built_of(tmp_path, f"{KEYS}, windows: [6h], hop: 3h", horizon=12)
    assert not any("horizon" in each for each in caveats(whole))


@pytest.mark.parametrize(
    ("of", "clamp", "buckets"),
    [("pieces", "[-20, 400]", 210), ("pieces", "[0, 9]", 9), ("pieces", "[0, 1202]", 601), ("amount", "[0, 9]", 200)],
)  # fmt: skip
def test_of_integers_as_many_buckets_as_fit_are_taken_where_none_are_named(
    tmp_path: Path, of: str, clamp: str, buckets: int
) -> None:
    keys = f"statistic: quantiles, of: {of}, clamp: {clamp}, at: [0.5]"
    for over in ("", ", every: 2h"):
        (chosen,) = built_of(tmp_path, keys + over).chosen
        assert chosen.spec.parameters["buckets"] == buckets
        said = (
            f"; {buckets} buckets, the number nearest to 200 that divides the clamp into integers"
        )
        assert chosen.choice.why.endswith(said) == (buckets != 200)
        (named,) = built_of(tmp_path, f"{keys}, buckets: {buckets}{over}").chosen
        assert named.fingerprint == chosen.fingerprint
        assert "the number nearest to" not in named.choice.why


def test_a_live_series_takes_as_many_and_has_them_on_record(tmp_path: Path) -> None:
    spec = built_of(tmp_path, KEYS).spec
    asked = b"{name: two, statistic: quantiles, of: pieces, clamp: [0, 9], at: [0.5], epsilon: 1}"
    assert b'"buckets":9' in canonical_series(load_series(asked, spec))


def test_what_a_choice_of_all_looks_at_takes_room_of_live_series(tmp_path: Path) -> None:
    """So that no analyst makes every tick look at millions of tuples: two such series are all that her room holds."""
    keys = "statistic: quantiles, of: amount, clamp: [0, 456], buckets: 228, at: [0.25, 0.5, 0.75]"
    apart, together = (
        built_of(tmp_path, f"{keys}, every: [1h, 2h]{more}").spec.series[0].work
        for more in ("", ", method: together")
    )
    assert (apart, together) == (0, 2 * math.comb(232, 3) // 50)
    assert together > 80_000


def test_a_quantile_and_one_of_the_windows_may_be_asked(tmp_path: Path) -> None:
    series = series_of(built_of(tmp_path, f"{KEYS}, every: [2h, 3h]"))
    assert series.keys == ("0.5", "0.9")
    state = series.mechanism.init(ZeroNoise())
    body = series.body(GRID, 1, 0, state, np.array([1, 2, -1, -1]))
    found = selected(series, body, {"keys": ["0.9"]})["windows"]
    assert found["2h"]["quantiles"] == {"0.9": {"value": 2.25, "bucket": (1.5, 3)}}
    assert found["3h"]["quantiles"] == {}
    sliding = series_of(built_of(tmp_path, f"{KEYS}, windows: [2h, 3h]"))
    (body,) = bodies(sliding, [MID])
    (three,) = selected(sliding, body, {"keys": ["0.9"], "window": "3h"})["windows"].values()
    assert list(three["quantiles"]) == ["0.9"]


def test_noise_that_cannot_be_drawn_is_refused_before_anything_is_charged() -> None:
    quantile = Fraction("0.1234567890123")
    made = TumblingQuantiles(5, Fraction(1), Neighbors.ADD_REMOVE, (2,), (quantile,))
    with pytest.raises(NotDerivable, match="too wide to be drawn"):
        derived(made, "q")
    derived(replace(made, at=(Fraction("0.123456"),)), "q")


def test_a_forest_that_is_deep_serves_as_well(tmp_path: Path) -> None:
    built = built_of(tmp_path, f"{KEYS}, windows: [200h]", horizon=900)
    counts: Any = tree_of(built).counts
    assert isinstance(counts, WindowForest)
    assert counts.shape.height > 1
    mechanism: Any = built.chosen[0].mechanism
    state = mechanism.init(ZeroNoise())
    for tick in range(230):
        row = np.array(MID if tick >= 20 else LOW, dtype=np.int64)
        state, _ = mechanism.step(state, Update(row), ZeroNoise())
    assert mechanism.step(state, Query(), ZeroNoise())[1].tolist()[0] == 371


def test_the_confidence_is_that_of_the_pipeline(tmp_path: Path) -> None:
    built_of(tmp_path, KEYS)
    path = tmp_path / "shop.yaml"
    path.write_text(path.read_text() + "confidence: 0.8\n")
    mechanism = build(load(path)).chosen[0].mechanism
    assert isinstance(mechanism, SlidingQuantiles)
    narrow = replace(mechanism, confidence=Fraction(19, 20))
    assert mechanism.band(4, 0.8) < narrow.band(4, 0.95)


def medians(series: Series) -> tuple[int, int]:
    """Of 40 medians of six hours on a fine grid: how many have a `low` and a `high`, and how many lie outside."""
    outside = told = 0
    for run in range(40):
        places, width = np.random.default_rng(run).integers(1, 101, 60), series.mechanism.width
        rows = [np.bincount(part, minlength=width).tolist() for part in np.split(places, 6)]
        body = msgspec.json.decode(bodies(series, rows, SeededNoise(run))[-1])
        found, right = body["windows"]["6h"]["quantiles"]["0.5"], np.median(places) * 0.06 - 0.03
        if "low" in found:
            told += 1
            outside += not found["low"] - 0.06 <= right <= found["high"] + 0.06
        else:
            assert found["bucket"][0] <= found["value"] <= found["bucket"][1]
    return told, outside


@pytest.mark.parametrize(("over", "wanted"), [("every: 6h", 0), ("windows: [6h]", 40)])
def test_ends_beside_a_confidence_hold_or_are_not_told_as_ends(
    tmp_path: Path, over: str, wanted: int
) -> None:
    """`low` and `high` hold it with 95 % (7 or more of 40 outside: below 0.4 %); a bucket promises nothing."""
    series = series_of(built_of(tmp_path, f"{SINGLE}, clamp: [0, 6], buckets: 100, {over}"))
    told, outside = medians(series)
    assert told == wanted
    assert outside < 7


def test_the_twin_that_tells_a_bucket_as_low_and_high_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_ends(grid: ValueGrid, place: int) -> Quantile:
        low, high = grid.buckets[place]
        return Quantile(value=float(low + high) / 2, low=float(low), high=float(high))

    monkeypatch.setattr(ValueGrid, "bucket", with_ends)
    told, outside = medians(
        series_of(built_of(tmp_path, f"{SINGLE}, clamp: [0, 6], buckets: 100, every: 6h"))
    )
    assert told == 40
    assert outside >= 7
