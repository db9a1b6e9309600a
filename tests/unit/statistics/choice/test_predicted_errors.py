"""Typical errors are predicted from noise as it is drawn: they scale, they grow, and the clip at 0 is as integrated."""

import math
from fractions import Fraction

import numpy as np
import pytest

from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.noise_law import NoiseLaw
from stream_dp.mechanisms.noise_quantiles import Term
from stream_dp.statistics.parts.choice import Profile, Setting, tree_counter
from stream_dp.statistics.parts.choose_hss import Demand, bins_hss, joint_hss
from stream_dp.statistics.parts.predicted_errors import counter_error, hss_error

SETTING = Setting(20, Neighbors.ADD_REMOVE, 1000, 0.95)
DEMAND = Demand(SETTING, None, Fraction(1))


def tree_rmse(setting: Setting, epsilon: Fraction, profile: Profile) -> float:
    """What is predicted for the tree of a setting."""
    return counter_error(tree_counter(setting, epsilon), setting, profile)


def test_a_tree_of_half_the_epsilon_errs_twice_as_much() -> None:
    full = Profile.of(20, 10**7)
    one = tree_rmse(SETTING, Fraction(1), full)
    assert tree_rmse(SETTING, Fraction(1, 2), full) == pytest.approx(2 * one, rel=1e-3)


def test_empty_columns_have_half_the_variance() -> None:
    """What is published is not below 0."""
    full, empty = (tree_rmse(SETTING, Fraction(1), Profile.of(20, n)) for n in (10**7, 1))
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
def test_typical_errors_of_hss_grow_with_the_volume(form: object) -> None:
    hss = bins_hss(DEMAND) if form is bins_hss else joint_hss(DEMAND)
    errors = [hss_error(hss, SETTING, Profile.of(20, n)) for n in (1, 100, 10**4, 10**6)]
    assert errors == sorted(errors)
    assert errors[0] < 3  # 0 is released most of the time, and nearly right


def test_bursts_are_seen_at_once() -> None:
    """After a burst only the counter's noise is left."""
    hss = joint_hss(DEMAND)
    steady, bursts = (
        hss_error(hss, SETTING, Profile.of(20, 10**5, shape)) for shape in ("zipf", "bursts")
    )
    noise = [hss.counter.noise(update).spread for update in range(1, 9)]
    assert bursts < steady
    assert bursts == pytest.approx(math.sqrt(sum(noise) / len(noise)), rel=0.15)


def test_a_variance_by_hand() -> None:
    assert NoiseLaw(((Fraction(3), 2),)).spread == 36
    assert NoiseLaw((Term(Fraction(3), 2, 5.0),), 4.0).spread == 904
