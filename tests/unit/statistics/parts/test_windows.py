"""`window` and `windows` of a series: what is chosen and at what price, what is planned, what is refused and where."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from stream_dp.core.guarantee import differential_privacy
from stream_dp.core.mechanism import Query, Update
from stream_dp.core.time import TickGrid
from stream_dp.errors import NotDerivable, UsageError
from stream_dp.journal.release import read
from stream_dp.mechanisms.linear.counter import Counter, HybridCounter
from stream_dp.mechanisms.linear.noisy_forest import FLAT
from stream_dp.mechanisms.linear.window_forest import WindowForest
from stream_dp.mechanisms.linear.windows_and_ever import WindowsAndEver
from stream_dp.mechanisms.states import STATES
from stream_dp.pipeline.builder import Chosen, build
from stream_dp.pipeline.fingerprints import fingerprint
from stream_dp.pipeline.report import plan_json
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load_series
from stream_dp.testing.noise import SeededNoise, ZeroNoise

Data = dict[str, Any]


def spec(data: Data, series: Data, **clock: str) -> PipelineSpec:
    """The small pipeline (ticks of an hour, 100 of them) with one series."""
    one = {"name": "it", "statistic": "count", "epsilon": "0.3", **series}
    return PipelineSpec.model_validate(data | {"series": [one], "clock": data["clock"] | clock})


def chosen(data: Data, series: Data, **clock: str) -> Chosen:
    """What is chosen for one series."""
    return build(spec(data, series, **clock)).chosen[0]


def wall(data: Data) -> Data:
    """The same without a horizon."""
    return data | {"clock": {"kind": "wall", "step": "1h"}}


def test_one_forest_has_the_whole_price_of_all_windows(data: Data) -> None:
    found = chosen(data, {"windows": ["3h", "1d"]})
    forest = found.mechanism
    assert isinstance(forest, WindowForest)
    assert (forest.windows, forest.shape, forest.epsilon) == ((1, 3, 24), FLAT, Fraction(3, 10))
    assert differential_privacy(found.derivation.guarantee.measure).epsilon == Fraction(3, 10)
    assert found.spec.views == ("tick", "3h", "1d")
    assert found.spec.about == "count per tick and over 3h, 1d"


def test_one_window_is_a_list_of_one(data: Data) -> None:
    forests = [chosen(data, each).mechanism for each in ({"window": "1d"}, {"windows": ["24h"]})]
    assert forests[0] == forests[1]
    assert chosen(data, {"window": "1d"}).spec.views == ("tick", "1d")
    assert chosen(data, {"window": "1h"}).spec.views == ("tick", "1h")


def test_the_count_so_far_has_an_even_share(data: Data) -> None:
    """One part of as many as there are views; the counter is the one that there would be without windows."""
    found = chosen(data, {"windows": ["ever", "1d"]})
    both = found.mechanism
    assert isinstance(both, WindowsAndEver)
    assert (both.forest.epsilon, both.ever.epsilon) == (Fraction(2, 10), Fraction(1, 10))
    assert isinstance(both.ever, Counter)
    assert differential_privacy(found.derivation.guarantee.measure).epsilon == Fraction(3, 10)
    assert found.spec.views == ("tick", "1d", "ever")
    endless = chosen(wall(data), {"windows": ["1d", "ever"]}).mechanism
    assert isinstance(endless, WindowsAndEver)
    assert isinstance(endless.ever, HybridCounter)
    assert chosen(data, {"windows": ["ever"]}).spec.about == "count per tick, and so far"


def test_long_windows_get_a_forest_of_levels_without_a_horizon_too(data: Data) -> None:
    found = chosen(wall(data), {"windows": ["1d", "60d"]})
    assert isinstance(found.mechanism, WindowForest)
    assert found.mechanism.shape.height > 1
    assert "of its epsilon" in found.choice.why
    bands = [found.choice.windows["60d"](tick) for tick in range(3_000, 3_100)]
    flat = WindowForest(1, Fraction(3, 10), found.mechanism.neighbors, (1, 1_440), FLAT)
    assert max(bands) < 0.7 * flat.view_band(1, 2_000, 0.95)


def test_a_histogram_has_windows_of_every_key(data: Data) -> None:
    series = {"statistic": "histogram", "by": "airline", "windows": ["2h"]}
    built = build(spec(data, series))
    run = built.run_config(0).series[0]
    assert [view.name for view in run.views] == ["tick", "2h"]
    noise, state = ZeroNoise(), run.mechanism.init(ZeroNoise())
    for tick in range(4):
        row = np.array([1, tick, 10 * tick, 0])
        state, _ = run.mechanism.step(state, Update(row), noise)
    _, answer = run.mechanism.step(state, Query(), noise)
    assert answer is not None
    released = read(run.body(TickGrid(0, 1000), 1, 3, state, answer))
    assert isinstance(released.windows, dict)
    assert released.windows["tick"].values == {"AA": 1, "NO": 3, "UA": 30, "other": 0}
    assert released.windows["2h"].values == {"AA": 2, "NO": 5, "UA": 50, "other": 0}
    assert (released.windows["2h"].band or 0) > (released.windows["tick"].band or 0) > 0


def test_bands_are_those_of_the_release_s_own_tick(data: Data) -> None:
    """A live series that starts at tick 40 has the bands of its own first ticks there."""
    built = build(spec(data, {"windows": ["1d"]}))
    one = built.chosen[0].series(built.spec, slice(0, 1), ("",), 40)
    first = built.run_config(0).series[0]
    for tick in (0, 5, 30):
        early = [view.band(tick, None) for view in first.views]
        assert [view.band(tick + 40, None) for view in one.views] == early


def test_the_plan_has_the_error_of_every_window(data: Data) -> None:
    shown = plan_json(build(spec(data, {"windows": ["1d", "ever"]})))["series"][0]
    assert [each["window"] for each in shown["windows"]] == ["tick", "1d", "ever"]
    assert shown["windows"][0]["predicted_error"] == shown["predicted_error"]
    last = [each["predicted_error"][-1]["error"] for each in shown["windows"]]
    assert last == sorted(last)
    every = {len(each["predicted_error"]) for each in shown["windows"]}
    assert every == {len(shown["predicted_error"])}


def test_without_windows_everything_is_as_it_was(data: Data) -> None:
    """The count so far, its bytes in journals, and the fingerprint of the file."""
    plain, windowed = spec(data, {}), spec(data, {"windows": ["1d"]})
    assert plain.series[0].left_out >= {"window", "windows"}
    assert isinstance(build(plain).chosen[0].mechanism, Counter)
    assert "windows" not in plan_json(build(plain))["series"][0]
    assert fingerprint(plain) != fingerprint(windowed)
    assert "windows" not in plain.series[0].described()
    assert windowed.series[0].described()["windows"] == ["tick", "1d"]
    assert windowed.series[0].described()["shape"] == "windows"


def test_a_live_series_is_refused_by_the_same_rules(data: Data) -> None:
    text = '{"name": "live", "statistic": "count", "epsilon": "0.1", "windows": ["%s"]}'
    with pytest.raises(UsageError, match="longer than the horizon"):
        load_series((text % "5d").encode(), spec(data, {}))
    assert load_series((text % "2d").encode(), spec(data, {})).views == ("tick", "2d")


def test_more_than_a_state_may_hold_is_refused(data: Data) -> None:
    domain = [f"k{n}" for n in range(5_000)]
    wide: Mapping[str, Any] = {"type": "category", "domain": domain}
    data["schema"]["airline"] = wide
    with pytest.raises(NotDerivable, match=r"would hold 500,100 numbers.*shorter window"):
        chosen(data, {"statistic": "histogram", "by": "airline", "windows": ["100h"]})


def test_restored_in_the_middle_it_goes_on_byte_for_byte(data: Data) -> None:
    """The bodies of releases, behind a snapshot, with levels and the count so far."""
    built = build(spec(wall(data), {"windows": ["1d", "20d", "ever"]}))
    run, grid = built.run_config(0).series[0], TickGrid(0, 1000)
    bodies: list[bytes] = []
    for again in (False, True):
        state, bodies = run.mechanism.init(SeededNoise(1)), [*bodies, b""]
        for tick in range(700):
            if again and tick % 233 == 1:
                state = STATES.decode(STATES.encode(state))
            state, _ = run.mechanism.step(state, Update(np.array([tick % 7])), SeededNoise(tick))
            if tick > 600:
                _, answer = run.mechanism.step(state, Query(), ZeroNoise())
                assert answer is not None
                bodies[-1] += run.body(grid, tick, tick, state, answer)
    assert bodies[0] == bodies[1]
