"""What `method: auto` compares is near what the mechanisms do, and what it takes is near the best of them.

On small streams of every declared shape, with exact integer noise under known seeds, so that nothing here is chance.
`tests/benchmarks/auto_cells.py` has the large ones.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from benchmarks.hss_blocks import (
    Errors,
    Truth,
    bins_errors,
    bins_run,
    counter_path,
    joint_errors,
    joint_run,
    path_errors,
)
from benchmarks.hss_streams import bursty, even, lists, nearly_empty, skewed

from stream_dp.core.mechanism import Noise
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.statistics.parts.choice import ExpectedShape, Setting, gaussian_counter
from stream_dp.statistics.parts.choose_hss import (
    BINS,
    JOINT,
    Demand,
    all_forms,
    bins_hss,
    form_errors,
    joint_hss,
    taken,
    with_gaussian_counter,
)
from stream_dp.statistics.parts.predicted_errors import GAUSSIAN, GAUSSIAN_HSS, TREE
from stream_dp.testing.noise import SeededNoise

WIDTH, TICKS, RUNS = 20, 1 << 11, 8
STREAMS = {
    "even": (even, 4_000, "even"),
    "zipf": (skewed, 4_000, "zipf"),
    "nearly empty": (nearly_empty, 50, "zipf"),
    "bursty": (bursty, 8_000, "bursts"),
    "lists of 5": (lists, 2_000, "even"),
}
ONES = {"lists of 5": 5}  # of the others one
MILLIONTH = Fraction(1, 10**6)


@cache
def measured(name: str, epsilon: Fraction) -> dict[str, float]:
    """The RMSE of each form."""
    make, events, _ = STREAMS[name]
    truth = Truth(make(TICKS, WIDTH, events).rows)
    demand = demanded(name, epsilon)
    bins, joint, mixed = bins_hss(demand), joint_hss(demand), with_gaussian_counter(demand)
    tree = Counter(WIDTH, epsilon, Neighbors.ADD_REMOVE, TICKS, demand.setting.ones)
    gaussian = gaussian_counter(demand.setting, epsilon)
    one_run: dict[str, Callable[[Noise], Errors]] = {
        TREE: lambda noise: path_errors(counter_path(tree, noise), truth),
        GAUSSIAN: lambda noise: path_errors(counter_path(gaussian, noise), truth),
        BINS: lambda noise: bins_errors(bins_run(bins, truth, noise), truth),
        JOINT: lambda noise: joint_errors(joint_run(joint, truth, noise), truth),
        GAUSSIAN_HSS: lambda noise: joint_errors(joint_run(mixed, truth, noise), truth),
    }
    found = {form: [run(SeededNoise(s)) for s in range(RUNS)] for form, run in one_run.items()}
    return {
        form: math.sqrt(float(np.mean([one.rmse**2 for one in runs])))
        for form, runs in found.items()
    }


def demanded(name: str, epsilon: Fraction, shape: ExpectedShape | None = None) -> Demand:
    """What a specification would say, under a zCDP filter."""
    setting = Setting(
        WIDTH, Neighbors.ADD_REMOVE, TICKS, 0.95, MILLIONTH, by_rho=True, ones=ONES.get(name, 1)
    )
    return Demand(setting, None, epsilon, STREAMS[name][1], shape)


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2)])
@pytest.mark.parametrize("name", STREAMS)
def test_what_is_predicted_is_near_what_is_measured(name: str, epsilon: Fraction) -> None:
    shape: ExpectedShape = STREAMS[name][2]  # type: ignore[assignment]
    forms = (TREE, BINS, JOINT, GAUSSIAN, GAUSSIAN_HSS)
    predicted = form_errors(demanded(name, epsilon, shape), forms)
    for form, error in measured(name, epsilon).items():
        assert predicted[form][0] == pytest.approx(error, rel=0.3)


@pytest.mark.parametrize("delta", [Fraction(0), MILLIONTH])
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2)])
@pytest.mark.parametrize("name", STREAMS)
def test_what_is_taken_is_near_the_best(name: str, epsilon: Fraction, delta: Fraction) -> None:
    """Of those that come into question: where no delta is granted, no Gaussian one does."""
    shape: ExpectedShape = STREAMS[name][2]  # type: ignore[assignment]
    demand = demanded(name, epsilon, shape)
    forms = all_forms(
        replace(demand, setting=replace(demand.setting, delta=delta, by_rho=delta > 0))
    )
    errors = measured(name, epsilon)
    chosen = taken(form_errors(demand, forms))
    assert errors[chosen] <= 1.1 * min(errors[form] for form in forms)


def test_no_rule_without_a_shape_is_near_the_best_everywhere() -> None:
    """Two streams of as many events, whose best forms differ by more: why a shape is declared."""
    epsilon = Fraction(2)
    even_ones, bursts = measured("even", epsilon), measured("bursty", epsilon)
    worst = {
        form: max(even_ones[form] / min(even_ones.values()), bursts[form] / min(bursts.values()))
        for form in even_ones
    }
    assert min(worst.values()) > 1.1
