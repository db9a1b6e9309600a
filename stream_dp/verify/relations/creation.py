"""Creation queries ([HSV] Def 4.1): the claim, its truth, the mechanism's query space, the parameters.

Rules: this file proves no claim. A mechanism's own guarantee is derived, never typed in; any other claim is true
where the relation's `Truth` says so. A parameter is None where a composition theorem does not take the measure.
"""

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from stream_dp.core.composition import Ask, ConcurrentComposition, Create, Halt
from stream_dp.core.guarantee import ApproxDP, GaussianDP, PureDP, RenyiDP
from stream_dp.core.mechanism import Query, Update
from stream_dp.core.relation import Claim
from stream_dp.core.row_law import RowLaw
from stream_dp.core.row_relations import COUNTS, Stream

Truth: TypeAlias = Callable[[Create], bool]
Parameters: TypeAlias = Callable[[Claim], Hashable | None]


def claim_of(create: Create) -> Claim | None:
    """Return the claim about the mechanism: that of the query, else its own guarantee; None where it has none."""
    mechanism = create.mechanism
    if create.claim is not None or isinstance(mechanism, ConcurrentComposition):
        return create.claim
    guarantee = getattr(mechanism, "guarantee", None)  # a creation query may hold any object
    if guarantee is None:
        return None
    law = law_of(mechanism) or RowLaw(mechanism.width, guarantee.neighbors)
    rows = law.relation(guarantee.neighbors)
    return Claim(guarantee.measure, Stream(rows))


def law_of(mechanism: object) -> RowLaw | None:
    """Return the law of the mechanism's rows; None where it states none."""
    law: RowLaw | None = getattr(mechanism, "rows", None)
    return law


def own(create: Create) -> bool:
    """Say whether the claim is the mechanism's own guarantee, which is derived and needs no further proof."""
    return create.claim is None


def own_or(claims: Collection[Claim | None]) -> Truth:
    """Return the truth that also accepts `claims`; the caller must have derived them."""
    return lambda create: own(create) or create.claim in claims


def takes(mechanism: object, message: object) -> bool:
    """Say whether the message is in the mechanism's query space ([HSV] Def 4.5 iii).

    A mechanism that refuses some rows of counts has a method `takes`: to refuse one of two neighbouring rows and
    answer the other would reveal which row it got.
    """
    if isinstance(mechanism, ConcurrentComposition):
        return isinstance(message, Create | Ask | Halt)
    narrower = getattr(mechanism, "takes", None)
    if narrower is not None:
        return bool(narrower(message))
    if isinstance(message, Update):
        wide = getattr(mechanism, "width", None)
        return COUNTS.holds(message.row) and wide in (None, message.row.size)
    return isinstance(message, Query)


def approximate(claim: Claim) -> tuple[Fraction, Fraction] | None:
    """Return (epsilon, delta) of DP; None for another measure."""
    measure = claim.measure
    return (measure.epsilon, measure.delta) if isinstance(measure, PureDP | ApproxDP) else None


def epsilon(claim: Claim) -> Fraction | None:
    """Return epsilon of DP, whatever its delta ([HSV] Def 5.3 ii)."""
    return claim.measure.epsilon if isinstance(claim.measure, PureDP | ApproxDP) else None


@dataclass(frozen=True, slots=True)
class Renyi:
    """Epsilon of Renyi DP at this one order; another order or measure is refused ([HSV] section 13)."""

    alpha: Fraction

    def __call__(self, claim: Claim) -> Fraction | None:
        measure = claim.measure
        mine = isinstance(measure, RenyiDP) and measure.alpha == self.alpha
        return measure.epsilon if mine else None  # type: ignore[union-attr]


def privacy_function(claim: Claim) -> GaussianDP | ApproxDP | None:
    """Return the privacy function of f-DP, for finite communication only ([HSV] section 14); f_(eps, delta) of DP."""
    match claim.measure:
        case GaussianDP() as gaussian if claim.finite:
            return gaussian
        case (PureDP() | ApproxDP()) as dp if claim.finite:
            return ApproxDP(dp.epsilon, dp.delta)
        case _:
            return None
