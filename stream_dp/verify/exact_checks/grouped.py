"""Group privacy: streams that differ in up to k events (Dwork, Roth 2014, Thm 2.2), possibly of one user."""

from dataclasses import replace
from fractions import Fraction

from stream_dp.accounting.conversions import pure_to_zcdp
from stream_dp.accounting.rules.leaf import leaf
from stream_dp.accounting.situations import Group, OfUsers
from stream_dp.core.guarantee import Guarantee, Measure, PureDP
from stream_dp.core.users import Users
from stream_dp.verify.exact.exact_sparse_vector import AboveThreshold
from stream_dp.verify.exact.finite import BIT_PAIRS, DifferAtMost, FirstPair
from stream_dp.verify.exact.randomized_response import Ladder
from stream_dp.verify.exact_checks.alive import bits
from stream_dp.verify.exact_checks.fixed_parts import gaussian_claim
from stream_dp.verify.exact_checks.instance import ADD, Instance, logarithm, private

TWO, THREE = Fraction(2), Fraction(3)
LOW = 6  # a threshold that the events of one group cross


def ladder(size: int, odds: Fraction = TWO, delta: Fraction = Fraction(1, 1000)) -> Instance:
    """Return 0 events against `size`, for the least private (ln odds, delta)-DP answer."""
    return Instance(
        f"(ln 2, 0.001)-DP answer to {size} events against none",
        (leaf("ladder", Guarantee(private(odds, delta), ADD), "verify.exact_checks"),),
        Group("user", size),
        Ladder(odds, delta),
        FirstPair(((0, size),)),
        1,
    )


def one_interval(size: int, odds: Fraction = Fraction(11, 10)) -> Instance:
    """Return all events of a user in one tick, so in one interval of a sparse vector; with two thresholds."""
    moved = tuple((((0,), level), ((size,), level)) for level in (LOW, size))
    return Instance(
        f"one alert of ln 1.1; {size} events of a user in one tick",
        (leaf("alert", Guarantee(private(odds), ADD), "audit.sparse_vector"),),
        Group("user", size),
        AboveThreshold(1 / odds, 1 / odds),
        FirstPair(moved),
        1,
    )


def two_bits(measure: Measure, words: str) -> Instance:
    """Return two of the bits that RR answers one by one."""
    part = bits(THREE).claiming(measure)
    pairs = DifferAtMost((), BIT_PAIRS[1:3], times=2)
    return Instance(words, (part.leaf,), Group("user", 2), part.machine, pairs, 2)


def of_a_user(instance: Instance, users: Users) -> Instance:
    """Return the instance with all its events belonging to one user."""
    words = f"{instance.words}; {users}"
    return replace(instance, words=words, situation=OfUsers("user", users))


def users() -> tuple[Instance, ...]:
    """Return the instances of the rule for users."""
    rho = pure_to_zcdp(PureDP(logarithm(THREE)))
    return (
        of_a_user(ladder(2), Users(2)),
        of_a_user(one_interval(20), Users(20, 1)),
        of_a_user(two_bits(private(THREE), "RR(ln 3) of each bit"), Users(2, 2)),
        of_a_user(two_bits(rho, "RR(ln 3) of each bit as zCDP"), Users(2, 2)),
    )


def events() -> tuple[Instance, ...]:
    """Return the instances of the group rule."""
    rho, mu = pure_to_zcdp(PureDP(logarithm(THREE))), gaussian_claim(THREE)
    return (
        ladder(2),
        one_interval(20),
        two_bits(rho, "RR(ln 3) of each bit as zCDP; 2 bits of a user"),
        two_bits(mu, "RR(ln 3) of each bit as GDP; 2 bits of a user"),
    )
