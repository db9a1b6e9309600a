"""The verification functions of the paper's compositions: suitability and their numbered conditions.

Rules: each function here is one definition. `parameters` chooses the version: `approximate` for (epsilon, delta),
`Renyi(alpha)` for [HSV] section 13, `privacy_function` for f-DP (section 14). A relation states what an adversary
may send, never its price: the theorems are in the accounting, and 5.1 has no theorem for a delta (Thm 5.2, 13.5).
"""

from collections.abc import Callable, Hashable, Iterable
from fractions import Fraction

from stream_dp.core.composition import Create
from stream_dp.core.relation import All
from stream_dp.verify.relations.creation import Parameters, Truth, approximate, epsilon, own
from stream_dp.verify.relations.pair_conditions import (
    CreatedFirst,
    CreatedThroughFilter,
    CreatedWithin,
    DeltaBudget,
    FirstPairConsistent,
    OnlyKind,
    ParameterFilter,
    TouchedWithin,
)
from stream_dp.verify.relations.suitable import Suitable


def fixed_mechanisms(queries: Iterable[Create], truth: Truth = own) -> All:
    """f^(alpha_1..alpha_k) ([HSV] Def 4.9): these creation queries first, then only queries to these mechanisms."""
    return All((CreatedFirst(tuple(queries)), Suitable(truth)))


def fixed_parameters(
    allowed: Iterable[Hashable], parameters: Parameters = approximate, truth: Truth = own
) -> All:
    """f^(eps_1, delta_1..) ([HSV] Def 4.11): the parameters of all created mechanisms are a sub-multiset."""
    return All((Suitable(truth), CreatedWithin.of(allowed, parameters)))


def k_sparse(
    allowed: Iterable[Hashable], parameters: Parameters = approximate, truth: Truth = own
) -> All:
    """f_infinity ([HSV] Def 5.1): any number of mechanisms, the touched ones' parameters are a sub-multiset."""
    return All((Suitable(truth), TouchedWithin.of(allowed, parameters)))


def k_sparse_with_delta_budget(
    epsilons: Iterable[Fraction], budget: Fraction, truth: Truth = own
) -> All:
    """f_(infinity, delta') ([HSV] Def 5.3): the touched ones' epsilons, and a budget for the deltas of all created."""
    return All((Suitable(truth), TouchedWithin.of(epsilons, epsilon), DeltaBudget(budget)))


def k_sparse_first_pair(
    allowed: Iterable[Hashable], parameters: Parameters = approximate, truth: Truth = own
) -> All:
    """f_(infinity, FPC) ([HSV] Def 5.13): k-sparse over first-pair consistent mechanisms, such as static data sets."""
    return All((Suitable(truth), FirstPairConsistent(), TouchedWithin.of(allowed, parameters)))


def randomized_response_only(
    kind: Callable[[Create], bool], budget: Fraction, truth: Truth = own
) -> All:
    """f_RR ([HSV] Def 5.8): each creation is RR_(0, delta_j) by `kind`; a budget for the deltas of all created."""
    return All((Suitable(truth), OnlyKind(kind), DeltaBudget(budget)))


def filtered(
    filter_: ParameterFilter, parameters: Parameters = approximate, truth: Truth = own
) -> All:
    """f^Filt ([HSV] Def 12.2): the filter admits the parameters of all created mechanisms, in their order."""
    return All((Suitable(truth), CreatedThroughFilter(filter_, parameters)))
