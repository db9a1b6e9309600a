"""Margins of noisy ranks against the exact laws of the very sums: never below, and hardly above."""

from fractions import Fraction

import numpy as np
import pytest

from stream_dp.mechanisms.noise_quantiles import Term, laplace_quantile
from stream_dp.mechanisms.quantiles.sliding_quantiles import rank_margins
from stream_dp.mechanisms.quantiles.value_tree import ValueLevels

TIMES: list[tuple[Term | tuple[Fraction, int], ...]] = [
    ((Fraction(10), 1),),
    ((Fraction(100), 24),),
    ((Fraction(1, 3), 5),),
    ((Fraction(20), 3), (Fraction(7), 9)),
    (Term(Fraction(40), 3, 0.4), Term(Fraction(9), 11, 0.8)),
]


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize(("leaves", "arity"), [(5, 5), (22, 8), (202, 24)])
@pytest.mark.parametrize("failure", [0.05, 0.05 / 3, 0.001])
def test_a_margin_is_the_exact_quantile_and_hardly_more(
    times: tuple[Term | tuple[Fraction, int], ...], leaves: int, arity: int, failure: float
) -> None:
    levels, at = ValueLevels(leaves, arity), (Fraction(1, 2), Fraction(99, 100))
    margins = rank_margins(times, *levels.spread(at), failure)
    through = np.cumsum(levels.weights, axis=0)
    for place, quantile in enumerate((0.5, 0.99)):
        for bucket in sorted({0, leaves // 4, leaves // 2, leaves - 2}):
            weights = np.abs(through[bucket] - quantile * through[-1])
            law = tuple(summed(times, weights))
            exact, found = laplace_quantile(law, failure), int(margins[place, bucket])
            assert exact <= found <= 1.06 * exact + 3


def summed(
    times: tuple[Term | tuple[Fraction, int], ...],
    weights: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> list[Term]:
    """The noises of a weighted sum of nodes, each of which has those of `times`."""
    found = []
    for weight, number in zip(*np.unique(np.round(weights, 5), return_counts=True), strict=True):
        if weight:
            found += [
                Term(scale, int(number) * each, float(weight) * (rest[0] if rest else 1.0))
                for scale, each, *rest in times
            ]
    return found


def test_a_normal_margin_is_too_narrow_where_one_noise_decides() -> None:
    """The twin: as if every sum of noises were normal."""
    squares = np.ones((1, 1))
    scale = Fraction(1_000)
    (found,) = rank_margins([(scale, 1)], squares, squares, 0.001)[0]
    exact = laplace_quantile(((scale, 1),), 0.001)
    assert exact <= found
    (normal,) = rank_margins([(scale, 1)], squares, 0 * squares, 0.001)[0]
    assert normal < 0.7 * exact
