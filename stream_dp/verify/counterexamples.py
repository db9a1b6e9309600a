"""Tempting but wrong ways to account, each with an adversary that exceeds the booked loss, and our rules' answer.

The largest delta ([HSV] Thm 5.2): in the 1-sparse parallel composition of (0, delta)-DP continual mechanisms an
adversary learns the secret bit with probability 1 - (1 - delta)^l after l creations, though only one mechanism ever
gets a pair of different messages.

A loss bounded by (epsilon, delta)-DP ([WRRW] App. F): a mechanism rarely answers 1, and more often where the bit is
1. It may be (epsilon, delta)-DP while its loss exceeds epsilon with a probability far above delta. An odometer
([WRRW] Thm 3) that takes it for (epsilon, delta)-pDP fails after one step where delta' is far below delta: exact
.0231 where .0100 is allowed (`RARE`). [WRRW] conjecture that such a break exists.

Rules: "exactly" means exact arithmetic, over all adaptive adversaries where stated; the code computes our refusals.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from stream_dp.accounting.amounts import Interval
from stream_dp.accounting.derive import derive
from stream_dp.accounting.optimal import least_epsilon
from stream_dp.accounting.rules.parallel import first_pair_renyi, sparse_delta
from stream_dp.accounting.rules.rule import Rule, epsilon_of
from stream_dp.accounting.situations import Parallel, Touched
from stream_dp.core.guarantee import ApproxDP, ProbabilisticDP
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.relation import All
from stream_dp.errors import BudgetRefused, NotDerivable
from stream_dp.verify.exact.enumeration import Verified
from stream_dp.verify.exact.exact_delta import exact_delta, exact_moment
from stream_dp.verify.exact.randomized_response import NoisyLeak, RareAnswer
from stream_dp.verify.exact_checks.alive import one_interval
from stream_dp.verify.exact_checks.compositions import at_most, leaky, measure_of
from stream_dp.verify.exact_checks.instance import OneBitDiffers, Part, composed, known, ratio, sent
from stream_dp.verify.game import MaxDeltaAdversary, RenyiAdversary
from stream_dp.verify.odometers import FilterBoundary, Odometer
from stream_dp.verify.relations import k_sparse

ODDS, DELTA, CHANCE = Fraction(11, 10), Fraction(99, 10_000), Fraction(231, 10_000)
RARE = RareAnswer((CHANCE - DELTA) / ODDS, CHANCE)
"""Exactly (ln ODDS, DELTA)-DP: an answer 1 has the chance CHANCE for the bit 1."""
CREATED, MORE = 3, 20
TENTH = Fraction(1, 10)
_END = re.compile(r"(?<!App|Cor|Def|Thm)\. (?=[A-Z])")


@dataclass(frozen=True, slots=True)
class NaiveBook:
    """`promised` and `exact` are values of `quantity`; `ours` is our rule's refusal (first sentence) or price."""

    title: str
    source: str
    quantity: str
    promised: Fraction
    exact: Fraction
    adversary: str
    ours: str


def books() -> tuple[NaiveBook, ...]:
    return largest_delta(), touched_renyi(), approximate_loss(), events_as_responses()


def largest_delta() -> NaiveBook:
    """Return [HSV] Thm 5.2: one mechanism is touched, and the naive book charges its delta once."""
    part = leaky(TENTH)
    waiting = MaxDeltaAdversary(TENTH, most=MORE)
    return NaiveBook(
        "parallel composition, only the largest delta booked",
        "[HSV] Thm 5.2",
        "delta at epsilon 0",
        TENTH,
        exact_delta(composed(), _one_touched(part), Fraction(1), 2 * CREATED + 1),
        f"{CREATED} created, all adversaries; an adversary that waits for {MORE} creations knows the event with "
        f"probability {float(waiting.winning_probability):.3f}",
        _refused(part, sparse_delta),
    )


def touched_renyi() -> NaiveBook:
    """Return [HSV] Thm 13.5: one mechanism is touched, and the naive book charges its Renyi epsilon once."""
    waiting = RenyiAdversary(2, Fraction(1, 5), Fraction(7), most=MORE)
    machine = NoisyLeak(waiting.chance, waiting.odds)
    part = Part("noisy leak", machine, waiting.claim, OneBitDiffers())
    moment = exact_moment(composed(), _one_touched(part), waiting.order, 2 * CREATED + 1)
    limit = Interval.of(waiting.moment).ln().lower
    return NaiveBook(
        "parallel composition in Renyi DP, only the touched part booked",
        "[HSV] Thm 13.5",
        "epsilon at order 2",
        Interval.of(waiting.mechanism_moment).ln().upper,
        Interval.of(Fraction(moment)).ln().lower,
        f"{CREATED} created, all adversaries; an adversary that waits for {MORE} creations reaches {float(limit):.3f}",
        _refused(part, first_pair_renyi),
    )


def approximate_loss() -> NaiveBook:
    """Return [WRRW] App. F: (epsilon, delta)-DP is mistaken for a bound on the privacy loss."""
    slack, epsilon = Fraction(1, 10_000), Fraction(1, 10)  # RARE is (ln 1.1, DELTA)-DP
    odometer = Odometer.of(FilterBoundary.tuned(Fraction(45, 100), slack), DELTA)
    bound = odometer.observe(ProbabilisticDP(epsilon, DELTA)).bound()
    if bound is None:
        raise RuntimeError("this odometer states no bound that could be broken")
    return NaiveBook(
        "an odometer that is given (epsilon, delta)-DP instead of pDP",
        "[WRRW] App. F",
        "probability of a loss above its bound",
        slack + DELTA,
        RARE.exceeds(Interval.of(bound).exp().upper),
        "one step of one mechanism",
        first_sentence(lambda: odometer.observe(ApproxDP(epsilon, DELTA))),
    )


def events_as_responses() -> NaiveBook:
    """Return k events of one user in one interval, booked as k randomized responses (Kairouz, Oh, Viswanath)."""
    size, delta, instance = 20, Fraction(1, 400), one_interval(20)
    (part,) = instance.premises
    booked = least_epsilon([epsilon_of(part.guarantee.measure)] * size, delta)
    ours = derive(instance.premises, instance.situation).guarantee.measure
    return NaiveBook(
        f"{size} events in one interval, booked as {size} randomized responses",
        "Kairouz, Oh, Viswanath",
        f"delta at epsilon {float(booked):.3g}",
        delta,
        exact_delta(instance.machine, instance.pairs, ratio(booked), instance.rounds),
        "one alert, all events in one tick",
        f"not refused, but booked as epsilon {float(epsilon_of(ours)):.4g}, delta 0: the group rule",
    )


def first_sentence(call: Callable[[], Any]) -> str:
    """Return the first sentence of the refusal that `call` raises; RuntimeError where it raises none."""
    try:
        call()
    except (NotDerivable, BudgetRefused) as refusal:
        return _END.split(str(refusal))[0]
    raise RuntimeError("this mechanism should have been refused")


def _one_touched(part: Part) -> Verified:
    """Return the naive verifier: at most one part may be touched, and at most `CREATED` are created."""
    relation = All((k_sparse([part.measure], measure_of, truth=known), at_most(part, CREATED)))
    return sent(relation, (part,), CREATED)


def _refused(part: Part, rule: Rule[Any]) -> str:
    """Return this rule's refusal of such parts, one of them touched, created without bound."""
    touched = Touched(1, Neighbors.ADD_REMOVE, "one gets the event")
    situation = Parallel(part.name, touched)
    first_sentence(lambda: derive((part.leaf,), situation))
    return first_sentence(lambda: rule((part.leaf,), situation))
