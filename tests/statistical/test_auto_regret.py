"""What `method: auto` compares is near what the mechanisms do, and what it takes is near the best of them.

On small streams of every declared shape, with exact integer noise under known seeds, so that nothing here is chance.
`tests/benchmarks/auto_cells.py` has the large ones.
"""

import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from benchmarks.hss_blocks import (
    Truth,
    bins_errors,
    bins_run,
    counter_path,
    joint_errors,
    joint_run,
    path_errors,
)
from benchmarks.hss_streams import bursty, even, nearly_empty, skewed

from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.counter import Counter
from stream_dp.pipeline.choice import Setting
from stream_dp.pipeline.choose_hss import (
    BINS,
    JOINT,
    TREE,
    Demand,
    bins_hss,
    form_errors,
    joint_hss,
    least_regret,
)
from stream_dp.pipeline.profiles import ExpectedShape
from stream_dp.testing.noise import SeededNoise

WIDTH, TICKS, RUNS = 20, 1 << 11, 8
STREAMS = {
    "even": (even, 4_000, "even"),
    "zipf": (skewed, 4_000, "zipf"),
    "many": (skewed, 100_000, "zipf"),
    "nearly empty": (nearly_empty, 50, "zipf"),
    "bursty": (bursty, 8_000, "bursts"),
}


@cache
def measured(name: str, epsilon: Fraction) -> dict[str, float]:
    """The RMSE of each form."""
    make, events, _ = STREAMS[name]
    truth = Truth(make(TICKS, WIDTH, events).rows)
    demand = demanded(name, epsilon)
    tree, bins, joint = (
        Counter(WIDTH, epsilon, Neighbors.ADD_REMOVE, TICKS),
        bins_hss(demand),
        joint_hss(demand),
    )
    noises = [SeededNoise(seed) for seed in range(RUNS)]
    found = {
        TREE: [path_errors(counter_path(tree, noise), truth) for noise in noises],
        BINS: [bins_errors(bins_run(bins, truth, noise), truth) for noise in noises],
        JOINT: [joint_errors(joint_run(joint, truth, noise), truth) for noise in noises],
    }
    return {
        form: math.sqrt(float(np.mean([one.rmse**2 for one in runs])))
        for form, runs in found.items()
    }


def demanded(name: str, epsilon: Fraction, shape: ExpectedShape | None = None) -> Demand:
    """What a specification would say."""
    setting = Setting(WIDTH, Neighbors.ADD_REMOVE, TICKS, 0.95)
    return Demand(setting, None, epsilon, STREAMS[name][1], shape)


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2)])
@pytest.mark.parametrize("name", STREAMS)
def test_what_is_predicted_is_near_what_is_measured(name: str, epsilon: Fraction) -> None:
    shape: ExpectedShape = STREAMS[name][2]  # type: ignore[assignment]
    predicted = form_errors(demanded(name, epsilon, shape), (TREE, BINS, JOINT))
    for form, error in measured(name, epsilon).items():
        assert predicted[form][0] == pytest.approx(error, rel=0.3)


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2)])
@pytest.mark.parametrize("name", STREAMS)
def test_what_is_taken_is_near_the_best(name: str, epsilon: Fraction) -> None:
    shape: ExpectedShape = STREAMS[name][2]  # type: ignore[assignment]
    errors = measured(name, epsilon)
    taken = least_regret(form_errors(demanded(name, epsilon, shape), (TREE, BINS, JOINT)))
    assert errors[taken] <= 1.1 * min(errors.values())


def test_no_rule_without_a_shape_is_near_the_best_everywhere() -> None:
    """Two streams of as many events, whose best forms differ by more: why a shape is declared."""
    epsilon = Fraction(2)
    even_ones, bursts = measured("even", epsilon), measured("bursty", epsilon)
    worst = {
        form: max(even_ones[form] / min(even_ones.values()), bursts[form] / min(bursts.values()))
        for form in even_ones
    }
    assert min(worst.values()) > 1.1
