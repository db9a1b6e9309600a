"""The statistic `quantiles` over sliding windows and so far: its windows, grid and price, and what releases say."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from unit.statistics.test_quantile_series import GRID, file, series_of, windows

from stream_dp.core.guarantee import PureDP
from stream_dp.core.mechanism import Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.engine.cut_changes import selected
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.linear.window_forest import WindowForest
from stream_dp.mechanisms.linear.windows_and_ever import WindowsAndEver
from stream_dp.mechanisms.quantiles.sliding_quantiles import SlidingQuantiles
from stream_dp.mechanisms.quantiles.value_tree import ValueTree
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.report import plan_json
from stream_dp.pipeline.yaml import load
from stream_dp.testing.noise import SeededNoise, ZeroNoise

ONE = Fraction(1)
SLIDING = {"every": ""}
LOW, MID, NONE = [0, 5, 0, 0, 0, 0, 90], [0, 0, 0, 7, 0, 3, 0], [0] * 7


def tree_of(path: Path) -> ValueTree:
    """The tree behind the series' releases."""
    mechanism = build(load(path)).chosen[0].mechanism
    assert isinstance(mechanism, SlidingQuantiles)
    return mechanism.tree


def values(window: dict[str, Any]) -> list[float]:
    """What a window tells of each quantile."""
    return [each["value"] for each in window["quantiles"].values()]


def test_windows_slide_and_so_far_is_told_last(tmp_path: Path) -> None:
    """Entries of a row: below 0, four buckets of 1.5, 6 and more, no number. Told at every tick."""
    series = series_of(file(tmp_path, **SLIDING, windows="[ever, 2h, 3h]"))
    first, second, third, fourth = windows(series, [LOW, MID, MID, NONE])
    assert list(first) == ["2h", "3h", "ever"]
    assert {tuple(values(part)) for part in first.values()} == {(0.75, 1.35)}
    assert values(second["2h"]) == [3.525, 6]
    assert values(third["2h"]) == [4.065, 6]
    assert values(third["3h"]) == values(third["ever"]) == [3.795, 6]
    assert values(fourth["2h"]) == [4.065, 6]
    assert first["2h"]["band"] < second["2h"]["band"] == third["2h"]["band"] < third["3h"]["band"]


def test_without_windows_it_is_told_so_far(tmp_path: Path) -> None:
    path = file(tmp_path, **SLIDING)
    series = series_of(path)
    (_, second) = windows(series, [LOW, MID])
    assert list(second) == ["ever"]
    assert values(second["ever"]) == [3.525, 6]
    tree = tree_of(path)
    assert isinstance(tree.counts, Counter)
    assert tree.counts.horizon == 48
    assert build(load(path)).spec.series[0].about == "quantiles 0.5, 0.9 of amount so far"


def test_values_that_may_be_lie_around(tmp_path: Path) -> None:
    """A thousand events a tick between 1.5 and 3, noise of some tens: nothing but these ends is left."""
    series = series_of(file(tmp_path, **SLIDING, windows="[2h]"))
    noise = SeededNoise(3)
    state = series.mechanism.init(noise)
    for many in (0, 1_000, 1_000):
        row = np.array([0, 0, many, 0, 0, 0, 0], dtype=np.int64)
        state, _ = series.mechanism.step(state, Update(row), noise)
        state, answer = series.mechanism.step(state, Query(), noise)
        assert answer is not None
        body = series.body(GRID, 1, 0, state, answer)
        told = msgspec.json.decode(body)["windows"]["2h"]["quantiles"]["0.5"]
        if not many:
            assert (told["low"], told["high"]) == (0, 6)
    assert (told["low"], told["high"]) == (1.5, 3)
    assert 2 < told["value"] < 2.5


def test_edges_are_a_grid_of_their_own(tmp_path: Path) -> None:
    grid = {"clamp": "", "buckets": "", "edges": "[0, 1, 5, 60]"}
    series = series_of(file(tmp_path, **SLIDING, windows="[3h]", **grid))
    (told,) = windows(series, [[0, 0, 10, 0, 0, 5]])
    assert values(told["3h"]) == [3, 4.6]
    tumbling = series_of(file(tmp_path, every="1h", **grid))
    (told,) = windows(tumbling, [[0, 0, 10, 0, 0, 5]])
    assert told["1h"]["quantiles"]["0.5"] == {"value": 3, "bucket": [1, 5]}


def test_an_event_pays_for_its_levels_and_all_windows_at_once(tmp_path: Path) -> None:
    path = file(tmp_path, **SLIDING, windows="[2h, 3h, ever]", clamp="[0, 600]", buckets="200")
    tree = tree_of(path)
    assert isinstance(tree.counts, WindowsAndEver)
    assert tree.levels.sizes == (202, 9)
    forest = tree.counts.forest
    assert (forest.windows, forest.ones, forest.epsilon) == ((2, 3), 2, Fraction(2, 3))
    assert tree.counts.ever.epsilon == Fraction(1, 3)
    assert tree.width == 203
    (planned,) = plan_json(build(load(path)))["series"]
    assert planned["epsilon"] == 1
    assert [each["window"] for each in planned["windows"]] == ["2h", "3h", "ever"]
    assert "levels of 202, 9 counts" in planned["why"]


@pytest.mark.parametrize("windows", ["[2h]", "[2h, ever]", ""])
def test_where_an_event_is_replaced_in_its_tick_the_nodes_are_counted_for_that(
    tmp_path: Path, windows: str
) -> None:
    path = file(tmp_path, **SLIDING, windows=windows)
    replaced = "privacy: {epsilon: 2, neighbors: replace, moves: within_tick}"
    path.write_text(path.read_text().replace("privacy: {epsilon: 2}", replaced))
    assert tree_of(path).neighbors is Neighbors.REPLACE


def test_the_error_to_expect_of_each_window_is_its_own(tmp_path: Path) -> None:
    path = file(tmp_path, **SLIDING, windows="[2h, 9h, ever]")
    (chosen,) = build(load(path)).chosen
    mechanism: Any = chosen.mechanism
    for place, name in enumerate(("2h", "9h", "ever")):
        public = mechanism.view_public(place, 31, None)
        assert chosen.choice.windows[name](30) == mechanism.view_band(place, public, 0.95)
    assert chosen.choice.expected(30) == chosen.choice.windows["2h"](30)


def test_of_users_each_event_has_its_part_of_the_epsilon(tmp_path: Path) -> None:
    path = file(tmp_path, **SLIDING, windows="[2h]")
    users = "{unit: user, user: who, max_events: 5, per: 1h, neighbors: add_remove, epsilon: 2}"
    text = path.read_text().replace("privacy: {epsilon: 2}", f"privacy: {users}")
    path.write_text(text.replace("domain: [a, b]}", "domain: [a, b]}\n  who: {type: text}"))
    built = build(load(path))
    (chosen,) = built.chosen
    mechanism: Any = chosen.mechanism
    assert mechanism.guarantee.measure == PureDP(ONE / 5)
    whole = chosen.derivation.guarantee
    assert whole.users is not None
    assert whole.measure == PureDP(ONE)


def test_one_of_the_windows_may_be_asked(tmp_path: Path) -> None:
    series = series_of(file(tmp_path, **SLIDING, windows="[2h, 3h]"))
    state = series.mechanism.init(ZeroNoise())
    state, _ = series.mechanism.step(state, Update(np.array(MID)), ZeroNoise())
    _, answer = series.mechanism.step(state, Query(), ZeroNoise())
    assert answer is not None
    body = series.body(GRID, 1, 0, state, answer)
    found = selected(series, body, {"keys": ["0.9"], "window": "3h"})
    assert list(found["windows"]) == ["3h"]
    assert list(found["windows"]["3h"]["quantiles"]) == ["0.9"]


def test_a_window_that_no_state_may_hold_is_refused(tmp_path: Path) -> None:
    path = file(tmp_path, **SLIDING, windows="[1d]", clamp="[0, 600]", buckets="200")
    text = path.read_text().replace("step: 1h, horizon: 48", "step: 1s, horizon: 100000")
    path.write_text(text)
    with pytest.raises(NotDerivable, match="86,400 ticks of"):
        build(load(path))


def test_a_forest_that_is_deep_serves_as_well(tmp_path: Path) -> None:
    path = file(tmp_path, **SLIDING, windows="[200h]")
    path.write_text(path.read_text().replace("horizon: 48", "horizon: 900"))
    series, noise = series_of(path), ZeroNoise()
    counts = series.mechanism.tree.counts  # type: ignore[attr-defined]
    assert isinstance(counts, WindowForest)
    assert counts.shape.height > 1
    state = series.mechanism.init(noise)
    for tick in range(230):
        row = np.array(MID if tick >= 20 else LOW, dtype=np.int64)
        state, _ = series.mechanism.step(state, Update(row), noise)
    _, answer = series.mechanism.step(state, Query(), noise)
    assert answer is not None
    assert answer.tolist()[0] == 371


def test_the_confidence_is_that_of_the_pipeline(tmp_path: Path) -> None:
    path = file(tmp_path, **SLIDING)
    path.write_text(path.read_text() + 'confidence: "0.8"\n')
    mechanism = build(load(path)).chosen[0].mechanism
    assert isinstance(mechanism, SlidingQuantiles)
    assert mechanism.confidence == Fraction(4, 5)
    narrow = replace(mechanism, confidence=Fraction(19, 20))
    assert mechanism.band(4, 0.8) < narrow.band(4, 0.95)
