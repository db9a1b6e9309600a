"""Methods are chosen from the specification alone: profiles of events, predicted errors, and the reason in words."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.core.guarantee import differential_privacy
from stream_dp.core.mechanism import Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.engine.series import Meaning
from stream_dp.errors import UsageError
from stream_dp.mechanisms.hss.hss import HSS
from stream_dp.mechanisms.hss.per_bin_hss import PerBinHSS
from stream_dp.mechanisms.hss.sparse_vector import MAXIMUM, Quantity
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.statistics.parts import choose_hss
from stream_dp.statistics.parts.choice import (
    BURSTS,
    SUPPOSED,
    ExpectedShape,
    Profile,
    Setting,
    by_gaussian,
    by_tree,
    largest_rho,
    tree_counter,
)
from stream_dp.statistics.parts.choose_hss import (
    BINS,
    JOINT,
    MOST_EVENTS,
    Demand,
    all_forms,
    bins_hss,
    break_even,
    form_errors,
    hss_choice,
    hss_for,
    hss_forms,
    hss_of,
    joint_hss,
    narrowest,
    narrowest_choice,
    paper_hss_choice,
    predicted_intervals,
    rank_choice,
    typical_choice,
)
from stream_dp.statistics.parts.predicted_errors import (
    GAUSSIAN,
    GAUSSIAN_HSS,
    TREE,
    counter_error,
    hss_error,
    least_regret,
)
from stream_dp.testing.noise import ZeroNoise

Data = dict[str, Any]
DEMAND = Demand(Setting(20, Neighbors.ADD_REMOVE, 1000, 0.95), None, Fraction(1), 5000)


SUMMED = replace(DEMAND.setting, delta=Fraction(1, 10**6), by_rho=True)


@pytest.mark.parametrize("form", [BINS, JOINT, GAUSSIAN_HSS])
def test_an_hss_is_made_for_all_entries_of_an_event_and_costs_no_more_than_it_has(
    form: str,
) -> None:
    found: Any = hss_of(form, replace(DEMAND, setting=replace(SUMMED, ones=2)))
    assert found.rows.ones == 2
    measure = found.guarantee.measure
    if form == GAUSSIAN_HSS:
        whole = largest_rho(replace(SUMMED, ones=2), DEMAND.epsilon, "it")
        assert Fraction(999, 1000) * whole < measure.rho <= whole
    else:
        assert measure.epsilon == DEMAND.epsilon


def test_the_algorithm_of_the_paper_is_for_a_row_in_place_of_another_at_its_price() -> None:
    demand = replace(DEMAND, setting=SUMMED, quantity=MAXIMUM, counter="gaussian")
    with pytest.raises(UsageError, match="is made for the relation ~_H"):
        paper_hss_choice(demand)
    rows = replace(SUMMED, neighbors=Neighbors.REPLACE)
    found: Any = paper_hss_choice(replace(demand, setting=rows)).mechanism
    whole = largest_rho(rows, DEMAND.epsilon, "it")
    assert Fraction(99, 100) * whole < found.guarantee.measure.rho <= whole


def test_where_a_delta_is_granted_a_rank_may_be_read_off_a_gaussian_counter() -> None:
    demand = replace(DEMAND, setting=replace(SUMMED, horizon=1 << 16, width=100), quantity=MAXIMUM)
    assert isinstance(rank_choice(demand, "auto").mechanism, GaussianCounter)
    assert isinstance(rank_choice(demand, "tree").mechanism, Counter)
    tree, gaussian = by_tree(SUMMED, Fraction(1), "it"), by_gaussian(SUMMED, Fraction(1))
    for band, kind in (
        (104, GaussianCounter),
        (106, Counter),
    ):  # what is cheaper may be a 20th wider
        bands = {
            TREE: replace(tree, expected={SUMMED.last: 100}.__getitem__),
            GAUSSIAN: replace(gaussian, expected={SUMMED.last: band}.__getitem__),
        }
        assert isinstance(narrowest(replace(DEMAND, setting=SUMMED), bands, {}).mechanism, kind)
    assert GAUSSIAN_HSS in all_forms(replace(DEMAND, setting=SUMMED))
    assert GAUSSIAN_HSS not in all_forms(replace(DEMAND, setting=replace(SUMMED, gdp=True)))


def chosen(data: Data, method: str, **changes: Any) -> Any:
    histogram = data["series"][1] | {"method": method, "expected_events": "2000"} | changes
    return build(PipelineSpec.model_validate(data | {"series": [histogram]})).chosen[0]


def _number(text: str) -> int:
    return int(text.replace(",", ""))


@pytest.mark.parametrize(
    ("horizon", "events"), [("100", "2000"), ("100000", "3"), ("5", "1000000"), ("100", None)]
)
def test_typical_takes_the_smaller_typical_error_and_says_why(
    data: Data, horizon: str, events: str | None
) -> None:
    data["clock"]["horizon"] = horizon
    auto = chosen(data, "typical", expected_events=events)
    found = re.fullmatch(
        r"method: typical, typical error \(RMSE\) for ([\d,]+) events "
        r"\((expected|by default, one a tick: declare expected_events); "
        r"zipf / even by default: declare expected_shape\): tree ([0-9. /]+), "
        r"hss bin by bin ([0-9. /]+), hss joint ([0-9. /]+); "
        r"hss is chosen up to about ([\d,]+) events",
        auto.choice.why,
    )
    assert found
    assert (found[1], found[2] == "expected") == (f"{int(events or horizon):,}", events is not None)
    errors = [[float(error) for error in found[form].split(" / ")] for form in (3, 4, 5)]
    least = [min(each) for each in zip(*errors, strict=True)]
    kinds: tuple[type, ...] = (Counter, PerBinHSS, HSS)
    regrets = {
        kind: max(e / m for e, m in zip(each, least, strict=True))
        for kind, each in zip(kinds, errors, strict=True)
    }
    taken = type(auto.mechanism)
    assert regrets[taken] <= min(regrets.values()) + 0.05  # the shown errors are rounded
    if taken is not HSS:
        wanted = chosen(data, "tree" if taken is Counter else "hss", expected_events=events)
        assert auto.mechanism == wanted.mechanism
    assert (_number(found[1]) < 2 * _number(found[6])) == (taken is not Counter)


@pytest.mark.parametrize(
    ("horizon", "ones", "epsilon", "events", "kind"),
    [(8_760, 1, "1/4", 1_000, Counter), (65_536, 5, "1", 10, HSS), (8_760, 5, "1", 10, Counter)],
)
def test_auto_takes_the_narrowest_band_at_the_end(
    horizon: int, ones: int, epsilon: str, events: int, kind: type
) -> None:
    """In the first case the smallest typical error has an HSS, with 1.7 times the band."""
    setting = Setting(100, Neighbors.ADD_REMOVE, horizon, 0.95, ones=ones)
    demand = Demand(setting, None, Fraction(epsilon), events)
    auto, typical = narrowest_choice(demand), typical_choice(demand)
    assert isinstance(auto.mechanism, kind)
    bands = [auto, typical, hss_choice(demand), by_tree(setting, demand.epsilon, "")]
    last = [choice.expected(setting.last) for choice in bands]
    assert last[0] == min(last)
    taken = "hss joint" if kind is HSS else "tree"
    assert auto.why.startswith(
        f"method: auto chooses {taken}, because of the bands at the end: tree "
    )
    assert (last[1] > 1.7 * last[0]) == (epsilon == "1/4")


def test_without_a_declaration_every_choice_is_far_from_the_best_on_some_data() -> None:
    """Nothing comes, or a million whole rows in each tick: the same file, so the same choice, whichever it is."""
    ticks, own = 128, 10
    demand = Demand(
        Setting(own, Neighbors.ADD_REMOVE, ticks, 0.95, ones=own), None, Fraction(1), None
    )
    forms: dict[str, Any] = {
        TREE: tree_counter(demand.setting, demand.epsilon),
        JOINT: joint_hss(demand),
        BINS: bins_hss(demand),
    }
    regrets: dict[str, list[float]] = {form: [] for form in forms}
    for rows_a_tick in (0, 10**6):
        bands = {
            form: _last_band(mechanism, ticks, [rows_a_tick] * own)
            for form, mechanism in forms.items()
        }
        for form, band in bands.items():
            regrets[form].append(band / min(bands.values()))
    assert {form: of.index(max(of)) for form, of in regrets.items()} == {TREE: 0, JOINT: 1, BINS: 1}
    assert min(max(of) for of in regrets.values()) > 1.2
    assert isinstance(narrowest_choice(demand).mechanism, Counter)
    found = re.search(r"; hss is chosen up to about ([\d,]+) events", narrowest_choice(demand).why)
    assert found
    events = _number(found[1])
    kinds = [narrowest_choice(replace(demand, expected_events=n)) for n in (events, 2 * events)]
    assert [type(choice.mechanism) for choice in kinds] == [HSS, Counter]
    assert not any("hss is chosen up to" in choice.why for choice in kinds)


def _last_band(mechanism: Any, ticks: int, row: list[int]) -> float:
    """The band at the last tick of so many equal rows, without noise; bin by bin the widest one of a category."""
    if isinstance(mechanism, Counter):
        return float(mechanism.band(ticks, 0.95))
    noise = ZeroNoise()
    state = mechanism.init(noise)
    for _ in range(ticks):
        state, _ = mechanism.step(state, Update(np.array(row, np.int64)), noise)
        state, _ = mechanism.step(state, Query(), noise)
    return float(mechanism.lag(ticks, int(np.max(state.intervals)), 0.95))


@pytest.mark.parametrize(
    ("joint", "shape", "taken"),
    [((88, 60), None, "bins"), ((95, 60), "even", "bins"), ((88, 60), "even", "joint")],
)
def test_a_declared_shape_costs_little_where_it_is_wrong(
    joint: tuple[int, int], shape: ExpectedShape | None, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bands by form for zipf and even: joint is the best for even, 17 or 8 % beyond the least regret."""
    bands = {"bins": (75, 65), "joint": joint}
    monkeypatch.setattr(
        choose_hss, "_lag", lambda form, demand, _: bands[form][SUPPOSED.index(demand.shape)]
    )
    monkeypatch.setattr(choose_hss, "_choice", lambda form, *_: form)
    forms: Any = {form: form for form in bands}
    chosen_form: Any = narrowest(replace(DEMAND, shape=shape), {}, forms)
    assert chosen_form == taken


@pytest.mark.parametrize(
    ("shape", "kind"), [("even", PerBinHSS), (None, PerBinHSS), ("bursts", HSS)]
)
def test_a_declared_shape_decides_between_the_forms(
    data: Data, shape: str | None, kind: type
) -> None:
    data["clock"]["horizon"] = "65536"
    found = chosen(data, "typical", expected_events="4000", expected_shape=shape)
    assert isinstance(found.mechanism, kind)
    assert (shape or "zipf / even by default: declare expected_shape") in found.choice.why
    assert isinstance(chosen(data, "hss", expected_shape=shape).mechanism, PerBinHSS)


def test_the_least_regret_is_that_of_the_worst_shape() -> None:
    errors = {"tree": (10.0, 10.0), "bins": (9.0, 10.5), "joint": (6.0, 14.0)}
    assert least_regret(errors) == "joint"  # 1.4, where bins have 1.5 and the tree 1.67
    assert least_regret(errors | {"joint": (8.0, 20.0)}) == "bins"  # 1.125, 1.25 and 2
    assert least_regret({form: found[:1] for form, found in errors.items()}) == "joint"
    assert least_regret({"first": (1.0,), "second": (1.0,)}) == "first"


def test_hss_is_taken_up_to_the_break_even() -> None:
    most = break_even(DEMAND)
    forms = (TREE, *hss_forms(DEMAND))
    taken = [
        least_regret(form_errors(replace(DEMAND, expected_events=events), forms)) != TREE
        for events in (most, 2 * most)
    ]
    assert taken == [True, False]


def test_a_bursty_stream_of_any_size_has_an_hss() -> None:
    """It has few updates, however large they are; for one tick a tree has one node."""
    bursts = replace(DEMAND, shape="bursts")
    assert break_even(bursts) == MOST_EVENTS
    setting = bursts.setting
    assert "hss is chosen for any number of events" in typical_choice(bursts).why
    assert break_even(replace(bursts, setting=replace(setting, horizon=1))) < 1000


def test_columns_that_events_reach_many_of_have_the_joint_form_only() -> None:
    wide = replace(DEMAND, setting=replace(DEMAND.setting, ones=3))
    assert hss_forms(wide) == (JOINT,)
    assert isinstance(hss_for(wide), HSS)
    assert hss_forms(replace(wide, setting=replace(wide.setting, ones=2))) == (BINS, JOINT)


def test_a_method_that_is_asked_for_is_taken(data: Data) -> None:
    tree, hss = chosen(data, "tree"), chosen(data, "hss")
    assert isinstance(tree.mechanism, Counter)
    assert isinstance(hss.mechanism, PerBinHSS)
    assert tree.choice.why == "method: tree; expected_events not used"
    shapes = "zipf / even by default: declare expected_shape"
    assert (
        hss.choice.why
        == f"method: hss; the predicted errors are for 2,000 events (expected; {shapes})"
    )
    default = f"100 events (by default, one a tick: declare expected_events; {shapes})"
    plain = [chosen(data, method, expected_events=None).choice.why for method in ("tree", "hss")]
    assert plain == ["method: tree", f"method: hss; the predicted errors are for {default}"]


@pytest.mark.parametrize("counter", ["tree", "gaussian"])
def test_a_declared_shape_moves_the_prediction_of_an_hss_and_is_named(
    data: Data, counter: str
) -> None:
    """Also where no form is chosen by it; of a method that takes no guesses it is said that they are not used."""
    data["privacy"] |= {"filter": "zcdp", "delta": "1e-6", "epsilon": "3"}
    data["clock"]["horizon"] = "65536"
    more = {"counter": counter, "expected_events": "400000", "epsilon": "0.1"}
    flat, steep = (
        chosen(data, "hss", expected_shape=shape, **more).choice for shape in ("even", "zipf")
    )
    assert flat.expected(65535) != steep.expected(65535)
    assert flat.why.endswith("; the predicted errors are for 400,000 events (expected; even)")
    guessed: Data = {"expected_shape": "even", "expected_events": None, "epsilon": "0.1"}
    for method in ("tree", "gaussian"):
        choice = chosen(data, method, **guessed).choice
        assert choice.why == f"method: {method}; expected_shape not used"
        other = guessed | {"expected_shape": "bursts"}
        assert choice.expected(65535) == chosen(data, method, **other).choice.expected(65535)
    both = chosen(data, "tree", **guessed | {"expected_events": "9"}).choice.why
    assert both == "method: tree; expected_events and expected_shape not used"


def test_a_quantity_of_all_columns_is_watched_jointly() -> None:
    """And no parameter depends on the guess."""
    found = hss_for(replace(DEMAND, quantity=MAXIMUM))
    assert isinstance(found, HSS)
    assert found == hss_for(replace(DEMAND, quantity=MAXIMUM, expected_events=None))
    assert found.kappa is None
    assert found.gamma(1, 0) == found.tuned.gamma(1, 0)


@settings(max_examples=15, deadline=None)
@given(
    st.fractions(Fraction(1, 100), 10, max_denominator=1000),
    st.sampled_from((Neighbors.ADD_REMOVE, Neighbors.REPLACE)),
    st.integers(1, 30),
)
def test_the_shares_are_exactly_what_was_asked_for(
    epsilon: Fraction, neighbors: Neighbors, width: int
) -> None:
    demand = replace(DEMAND, epsilon=epsilon, setting=Setting(width, neighbors, 1000, 0.95))
    joint = joint_hss(demand)
    for one in (joint, bins_hss(demand), hss_for(demand)):
        assert differential_privacy(one.guarantee.measure).epsilon == epsilon
    rest = joint.threshold_epsilon + joint.query_epsilon
    monotone = neighbors is Neighbors.ADD_REMOVE or width == 1
    assert joint.threshold_epsilon == rest * (Fraction(1, 2) if monotone else Fraction(5, 13))


def test_predicted_intervals_by_hand() -> None:
    hss = joint_hss(replace(DEMAND, quantity=MAXIMUM))
    demand = replace(DEMAND, quantity=MAXIMUM)
    first = hss.gamma(1_000, 0)
    assert predicted_intervals(hss, replace(demand, expected_events=first - 1), 999) == 0
    assert predicted_intervals(hss, replace(demand, expected_events=first), 999) == 1
    for many in (10, 1_000, 20_000, 10**5):
        after = predicted_intervals(hss, replace(demand, expected_events=many), 999)
        fit = [k for k in range(1_001) if k * hss.gamma(1_000, k // 2) <= many]
        assert fit == [*range(after + 1)]
    assert predicted_intervals(hss, replace(demand, expected_events=10**12), 9) == 10


def test_a_former_rule_predicts_by_growth_alone() -> None:
    former = replace(DEMAND.setting, meaning=Meaning.BY_GROWTH)
    demand = replace(DEMAND, quantity=MAXIMUM, setting=former, expected_events=1_000)
    hss = joint_hss(demand)
    few = min(1_000, 1_000 // hss.tuned.growth(1_000))
    assert predicted_intervals(hss, demand, 999) == 1_000 // hss.tuned.growth(few)


PLAIN_SETTING, PLAIN_DEMAND = DEMAND.setting, replace(DEMAND, expected_events=None)


def tree_rmse(setting: Setting, epsilon: Fraction, profile: Profile) -> float:
    return counter_error(tree_counter(setting, epsilon), setting, profile)


def test_a_tree_of_half_the_epsilon_errs_twice_as_much() -> None:
    full = Profile.of(20, 10**7)
    one = tree_rmse(PLAIN_SETTING, Fraction(1), full)
    assert tree_rmse(PLAIN_SETTING, Fraction(1, 2), full) == pytest.approx(2 * one, rel=1e-3)


def test_empty_columns_have_half_the_variance() -> None:
    """What is published is not below 0."""
    full, empty = (tree_rmse(PLAIN_SETTING, Fraction(1), Profile.of(20, n)) for n in (10**7, 1))
    assert empty == pytest.approx(full / math.sqrt(2), rel=0.02)


@pytest.mark.parametrize("count", [0, 3, 8, 1000])
def test_the_clip_is_as_integrated(count: int) -> None:
    """A tree of one tick has the variance of one node."""
    setting = Setting(1, Neighbors.ADD_REMOVE, 1, 0.95)
    noise = tree_rmse(setting, Fraction(1, 10), Profile.of(1, 10**9))
    z = np.linspace(-12, 12, 200_001)
    off = np.maximum(noise * z, -count)
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    wanted = math.sqrt(float(np.trapezoid(off**2 * density, z)))
    profile = Profile.of(1, count)
    assert tree_rmse(setting, Fraction(1, 10), profile) == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("form", [bins_hss, joint_hss])
def test_typical_errors_of_hss_grow_with_the_volume(form: Callable[[Demand], Any]) -> None:
    hss = form(PLAIN_DEMAND)
    errors = [hss_error(hss, PLAIN_SETTING, Profile.of(20, n)) for n in (1, 100, 10**4, 10**6)]
    assert errors == sorted(errors)
    assert errors[0] < 3  # 0 is released most of the time, and nearly right


def test_bursts_are_seen_at_once() -> None:
    """After a burst only the counter's noise is left."""
    hss = joint_hss(PLAIN_DEMAND)
    steady, bursts = (
        hss_error(hss, PLAIN_SETTING, Profile.of(20, 10**5, shape)) for shape in ("zipf", "bursts")
    )
    noise = [hss.counter.noise(update).spread for update in range(1, 9)]
    assert bursts < steady
    assert bursts == pytest.approx(math.sqrt(sum(noise) / len(noise)), rel=0.15)


@pytest.mark.parametrize("shape", ["even", "zipf", "bursts"])
@pytest.mark.parametrize(("width", "events"), [(1, 10), (105, 336_776), (5000, 10)])
def test_a_profile_has_all_categories_and_all_events(
    width: int, events: int, shape: ExpectedShape
) -> None:
    profile = Profile.of(width, events, shape)
    assert profile.weights.sum() == width
    assert profile.counts @ profile.weights == pytest.approx(events)
    assert (profile.counts[:-1] >= profile.counts[1:]).all()
    assert profile.bursts == (BURSTS if shape == "bursts" else None)


def test_even_categories_are_alike_and_zipf_like_ones_are_not() -> None:
    even, zipf = (Profile.of(10, 1000, shape) for shape in ("even", "zipf"))
    assert even.counts == pytest.approx(100)
    assert zipf.counts[0] == pytest.approx(1000 / sum(1 / i for i in range(1, 11)))
    assert zipf.counts[-1] == pytest.approx(zipf.counts[0] / 10)


@pytest.mark.parametrize(("ones", "entries"), [(1, 100), (3, 200), (20, 1050), (99, 1050)])
def test_events_set_half_of_what_they_may(ones: int, entries: int) -> None:
    profile = Profile.of(20, 100, "zipf", ones)
    assert profile.counts @ profile.weights == pytest.approx(entries)
    assert profile.counts.max() <= 100


@pytest.mark.parametrize("quantity", [None, MAXIMUM])
@pytest.mark.parametrize(
    ("ticks", "epsilon", "width", "ones"),
    [(240, Fraction(1, 2), 100, 1), (8_760, Fraction(1), 100, 5), (None, Fraction(1), 20, 1)],
)
def test_a_split_by_the_band_is_the_narrowest_and_costs_the_same(
    quantity: Quantity | None, ticks: int | None, epsilon: Fraction, width: int, ones: int
) -> None:
    shares = Setting(width, Neighbors.ADD_REMOVE, ticks, 0.95, ones=ones)
    demand = Demand(shares, quantity, epsilon, 800)
    shapes = (None,) if quantity else SUPPOSED

    def band(hss: HSS | PerBinHSS) -> float:
        each = [replace(demand, shape=shape) for shape in shapes]
        return max(
            hss.lag(shares.last + 1, predicted_intervals(hss, one, shares.last), 0.95)
            for one in each
        )

    usual, narrow = hss_for(demand), hss_for(replace(demand, split="band"))
    assert band(narrow) <= band(usual)
    assert narrow.guarantee == usual.guarantee
    assert all(
        band(narrow) <= band(joint_hss(demand, Fraction(tenths, 10))) for tenths in range(3, 9)
    )
    assert "split: band" in hss_choice(replace(demand, split="band")).why


@pytest.mark.parametrize("more", [{}, {"method": "tree"}, {"method": "hss", "counter": "gaussian"}])
def test_a_split_by_the_band_is_for_an_hss_of_trees(
    data: dict[str, Any], more: dict[str, Any]
) -> None:
    one = {"name": "one", "statistic": "maximum", "by": "airline", "epsilon": "1", "split": "band"}
    with pytest.raises(ValueError, match="band is for method hss"):
        PipelineSpec.model_validate(data | {"series": [one | more]})
