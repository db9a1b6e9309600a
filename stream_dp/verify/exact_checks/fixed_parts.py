"""Concurrent composition of fixed mechanisms and of fixed parameters ([HSV] Thm 4.10, 4.12; Cor 13.4, 14.7)."""

from fractions import Fraction

from stream_dp.accounting.directed import Interval
from stream_dp.accounting.gaussian_curve import pure_to_gaussian
from stream_dp.accounting.situations import Fixed
from stream_dp.core.guarantee import (
    GaussianDP,
    PureDP,
    RenyiDP,
    TruncatedZCDP,
    differential_privacy,
)
from stream_dp.verify.counterexamples.renyi_parallel import bit_moment
from stream_dp.verify.exact.randomized_response import RareAnswer
from stream_dp.verify.exact_checks.instance import (
    ZERO,
    Instance,
    Part,
    composed,
    irr,
    known,
    logarithm,
    related,
    rr,
    sent,
)
from stream_dp.verify.relations.compositions import fixed_mechanisms, fixed_parameters
from stream_dp.verify.relations.static import single_pair

TINY = Fraction(1, 10**9)
TWO, THREE, TENTH = Fraction(2), Fraction(3), Fraction(1, 10)
ORDER = 2


def renyi_claim(odds: Fraction) -> RenyiDP:
    """Return the Renyi DP of RR_(ln odds, 0) at order 2, rounded up."""
    return RenyiDP(Fraction(ORDER), Interval.of(bit_moment(odds, ORDER)).ln().upper)


def gaussian_claim(odds: Fraction) -> GaussianDP:
    """Return the GDP of RR_(ln odds, 0), rounded up."""
    return pure_to_gaussian(PureDP(logarithm(odds)))


def _all_at_once(words: str, parts: tuple[Part, ...], delta: Fraction = ZERO) -> Instance:
    relation = fixed_mechanisms(tuple(p.create for p in parts), truth=known)
    rounds = sum(4 if part.name == "IRR" else 2 for part in parts)
    situation = Fixed("fixed", delta)
    leaves = tuple(part.leaf for part in parts)
    return Instance(words, leaves, situation, composed(), sent(relation, parts, len(parts)), rounds)


def summed() -> tuple[Instance, ...]:
    """Return the instances of the rule that adds epsilons up."""
    return (
        _all_at_once("RR(ln 3), RR(ln 2) at once", (rr(THREE), rr(TWO))),
        _all_at_once(
            "two IRR(ln 3, 0.1), queries interleaved",
            (irr(THREE, TENTH), irr(THREE, TENTH)),
            Fraction(19, 100),
        ),
    )


def best() -> tuple[Instance, ...]:
    """Return the instances of the rule that takes the least epsilon at a granted delta."""
    parts = rr(THREE), rr(THREE), rr(TWO)
    measures = tuple(part.measure for part in parts)
    allowed = [(m.epsilon, m.delta) for m in map(differential_privacy, measures)]
    relation = fixed_parameters(allowed, truth=known)
    return (
        _all_at_once(
            "RR(ln 3, 0.1), RR(ln 2) at once, delta 0.4",
            (rr(THREE, TENTH), rr(TWO)),
            Fraction(2, 5),
        ),
        Instance(
            "any of the parameters ln 3, ln 3, ln 2, in any order (Thm 4.12), delta 0.2",
            (parts[0].leaf,),
            Fixed("parameters", Fraction(1, 5), parameters=measures),
            composed(),
            sent(relation, parts, len(parts)),
            6,
        ),
    )


def summed_zcdp() -> tuple[Instance, ...]:
    """Return the instances of the sum of rhos (zCDP), compared at whole orders only."""
    return (_all_at_once("RR(ln 3), RR(ln 2) at once", (rr(THREE), rr(TWO))),)


def truncated_claim(part: RareAnswer, omega: Fraction) -> TruncatedZCDP:
    """Return (rho, omega)-tCDP of a rare answer: its divergence over the order grows up to 5/2 (checked by a test)."""
    return TruncatedZCDP(Fraction(part.divergence(float(omega)) / float(omega)) + TINY, omega)


def summed_truncated() -> tuple[Instance, ...]:
    """Return the instances of the sum of rhos below the least omega; one part rarely has a large loss."""
    rare = RareAnswer(Fraction(1, 10**4), Fraction(1, 100))
    part = Part("rare", rare, truncated_claim(rare, Fraction(5, 2)), single_pair(related))
    return (_all_at_once("a rare answer (tCDP below 5/2), RR(ln 3/2)", (part, rr(Fraction(3, 2)))),)


def summed_renyi() -> tuple[Instance, ...]:
    """Return the instances of the sum of epsilons at one Renyi order."""
    part = rr(THREE).claiming(renyi_claim(THREE))
    return (_all_at_once("two RR(ln 3) at once, order 2", (part, part)),)


def summed_gaussian() -> tuple[Instance, ...]:
    """Return the instances of the sum of squares in Gaussian DP."""
    parts = tuple(rr(odds).claiming(gaussian_claim(odds)) for odds in (THREE, TWO))
    return (_all_at_once("RR(ln 3), RR(ln 2), each as GDP", parts),)
