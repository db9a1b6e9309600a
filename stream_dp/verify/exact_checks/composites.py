"""Composite mechanisms ([HSV] Thm 6.1, Cor 6.6): small forms of HSS: pure, with Gaussian counters, and of the paper."""

from fractions import Fraction

from stream_dp.accounting.derive import derive
from stream_dp.accounting.rules.leaf import leaf
from stream_dp.accounting.situations import Composite, Fixed, Parallel, Touched
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import ZCDP, Guarantee, Measure
from stream_dp.core.neighbors import Neighbors
from stream_dp.verify.exact.finite import DifferAtMost
from stream_dp.verify.exact.small_hss import SmallGaussianHSS, SmallHSS, SmallPaperHSS, whole_rows
from stream_dp.verify.exact_checks.instance import ADD, Instance, logarithm, private

HALF, FINE = Fraction(1, 2), Fraction(9, 10)
SMALL = SmallHSS(2, HALF, HALF, HALF, gamma=0, low=0, high=4)
ROWS = ((0, 0), (0, 1), (2, 0))
ADDED = (((0, 0), (1, 0)), ((0, 1), (1, 1)), ((1, 0), (2, 0)))
SUITE = "tests/unit/verify/exact/test_small_hss.py"


def once(pairs: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]) -> DifferAtMost:
    """Return equal rows at all times but one, where one of these pairs or its mirror image may come."""
    return DifferAtMost(ROWS, (*pairs, *((b, a) for a, b in pairs)))


def _part(name: str, measure: Measure, relation: Neighbors = ADD) -> Derivation:
    """Return a part with a claim that holds for it."""
    return leaf(name, Guarantee(measure, relation), "verify.exact_checks")


def _one_after_the_other(part: Derivation) -> Derivation:
    """Return any number of such parts, where an event lies in one of them."""
    one = Touched.intervals(part.guarantee.neighbors, "one at a time", SUITE)
    return derive((part,), Parallel(part.subject, one))


def _behind_hss(*parts: Derivation) -> tuple[tuple[Derivation, ...], Composite]:
    """Return all parts composed, and the composite situation around them."""
    why = "thresholds, intervals and releases depend on answers only"
    both = derive(parts, Fixed("parts"))
    return (both,), Composite("hss", why, "a row goes to each part as it is", SUITE)


def pure_hss() -> Instance:
    """Return two columns under add_remove; the price is attained."""
    vectors = _one_after_the_other(_part("sparse vectors", private(Fraction(4))))
    columns = Parallel("counters", Touched.columns(ADD, SMALL.width), (2,))
    counters = derive((_part("counters", private(Fraction(2))),), columns)
    words = "HSS on 2 columns, 2 ticks, all three noises of ln 2"
    return Instance(words, *_behind_hss(vectors, counters), SMALL, once(ADDED), 2)


def gaussian_inside() -> Instance:
    """Return one column with a Gaussian counter of rho = ln 2 behind pure sparse vectors, under add_remove."""
    machine = SmallGaussianHSS(1, FINE, FINE, HALF, gamma=0, low=-4, high=9)
    vectors = _one_after_the_other(_part("sparse vectors", private(1 / FINE**2)))
    counter = _part("a Gaussian counter", ZCDP(logarithm(1 / HALF)))
    pairs = (((0,), (1,)), ((2,), (3,)))
    there = DifferAtMost(((0,), (1,), (3,)), (*pairs, *((b, a) for a, b in pairs)))
    words = "HSS on 1 column, 2 ticks, sparse vectors of ln 1.23, a Gaussian counter of rho ln 2"
    return Instance(words, *_behind_hss(vectors, counter), machine, there, 2)


def paper_hss() -> Instance:
    """Return [HSV] Alg. 4 on one column under ~_H, two steps.

    In two steps a sparse vector alone cannot show all of its third of epsilon.
    """
    machine = SmallPaperHSS(
        1, max, HALF**2, HALF, HALF**4, HALF**4, lambda t, j: 1 + (t + j) // 2, lambda *_: 1, 0, 2
    )
    third = private(1 / HALF**4)
    parts = [_part(name, third, Neighbors.REPLACE) for name in ("instances", "checks", "counters")]
    made = (*map(_one_after_the_other, parts[:2]), parts[2])
    words = "HSS of [HSV] Alg. 4 under ~_H, 1 column, 2 steps, all thirds of ln 16"
    return Instance(words, *_behind_hss(*made), machine, DifferAtMost(*whole_rows(1)), 2)


def hss() -> tuple[Instance, ...]:
    """Return the instances of the composite rule."""
    return pure_hss(), gaussian_inside(), paper_hss()
