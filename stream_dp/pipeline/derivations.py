"""The derivation of each mechanism's guarantee from the rules of the accounting.

Rules: the derived guarantee must equal the one the mechanism claims; a mechanism without a derivation here
cannot be built. This file charges nothing.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import singledispatch
from typing import Any

from stream_dp.accounting.amounts import text
from stream_dp.accounting.conversions import renyi_budget, zcdp_budget
from stream_dp.accounting.derive import derive as tightest
from stream_dp.accounting.filters.filter import Filter
from stream_dp.accounting.filters.pure import PURE
from stream_dp.accounting.rules.convert import RENYI
from stream_dp.accounting.rules.leaf import leaf
from stream_dp.accounting.situations import (
    Alive,
    Composite,
    Filtered,
    Fixed,
    Parallel,
    Ticks,
    Touched,
)
from stream_dp.accounting.subledgers import analyst_entry
from stream_dp.core.derivation import Condition, Derivation, require
from stream_dp.core.guarantee import ZCDP, ApproxDP, Guarantee, PureDP, RenyiDP
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.alerts import Alerts
from stream_dp.mechanisms.counter import Counter
from stream_dp.mechanisms.hss import HSS
from stream_dp.mechanisms.hybrid_counter import HybridCounter
from stream_dp.mechanisms.sparse_vector import SparseVector

TREE = "odd k-ary tree with subtraction, l1 sensitivity = height (arXiv 2408.07021)"
HYBRID = "hybrid of trees (Chan, Shi, Song 2011)"
SUITE = "tests/conformance"  # taint, and two copies on neighbouring inputs
REARMED = "tests/unit/audit/test_exact_mechanisms.py"  # exact, against every adversary
TIME = "at each tick its own filter covers what is alive then (docs/time.md)"
STATED = "budget at a delta"
NONE = Fraction(0)
SVT = "[HSV] Lemma 7.4 with one-sided geometric noise (arXiv 2407.20068)"


def fixed_block(
    pipeline: str, premises: tuple[Derivation, ...], delta: Fraction = NONE
) -> Derivation:
    """All series of the first start, run concurrently on the same events, at the delta that is granted.

    Raises:
        NotDerivable: no series, or no rule covers them.
    """
    return tightest(premises, Fixed(f"{pipeline}: series of the first start", delta))


def whole(
    pipeline: str, filter_: Filter, parts: Sequence[tuple[Derivation, Alive]], target: ApproxDP
) -> Derivation:
    """What holds for everything that is ever asked: the filter's promise, for parts alive at these ticks.

    Under the pure filter what is alive at one tick adds up; under another one all parts do, whenever they live. What
    zCDP and RDP filters promise is said as the `target` for which their budgets were made.

    Raises:
        NotDerivable: the parts were not admitted by the filter, or it is not proven for them.
    """
    premises = tuple(part for part, _ in parts)
    if filter_.name == PURE and len(parts) > 1:
        alive = tuple(time for _, time in parts)
        premises = (tightest(premises, Ticks(f"{pipeline}: what is alive at one tick", alive)),)
    found = tightest(premises, Filtered(f"{pipeline}: all that is asked, now and later", filter_))
    return _as_stated(found, target)


def _as_stated(premise: Derivation, target: ApproxDP) -> Derivation:
    """The (epsilon, delta) that a zCDP or RDP budget implies; others state their own."""
    like, implied = premise.guarantee, False
    match like.measure:
        case ZCDP(rho):
            implied = rho <= zcdp_budget(target)
        case RenyiDP(alpha, epsilon):
            implied = epsilon <= renyi_budget(target, alpha).epsilon
        case _:
            return premise
    stated = Condition("budget", implied, "it is the largest that implies this, rounded down")
    require(premise.subject, STATED, RENYI, (stated,))
    guarantee = Guarantee(target, like.neighbors, like.group)
    return Derivation(premise.subject, guarantee, STATED, RENYI, (stated,), (premise,))


def analyst_ledger(name: str, promise: PureDP, neighbors: Neighbors) -> Derivation:
    """An analyst's ledger, paid for in full: whatever its own filter admits is within the promise."""
    paid = Condition(
        "paid in full", True, f"charged to the main ledger before its first question; {TIME}"
    )
    return Derivation(
        analyst_entry(name), Guarantee(promise, neighbors), "filter inside a filter", "[HSV] Thm 12.4", (paid,)
    )  # fmt: skip


def derive(mechanism: Any, name: str) -> Derivation:
    """Derive what `mechanism`, serving series `name`, guarantees.

    Raises:
        NotDerivable: no derivation is known, or it does not give what the mechanism claims.
    """
    derivation = replace(_derive(mechanism), subject=name)
    if derivation.guarantee != mechanism.guarantee:
        raise NotDerivable(f"{name}: the derived guarantee differs from what the mechanism claims")
    return derivation


@singledispatch
def _derive(mechanism: Any) -> Derivation:
    raise NotDerivable(f"no derivation is known for a {type(mechanism).__name__}")


@_derive.register
def _(mechanism: Counter) -> Derivation:
    noise = _noise([(mechanism.tree.shape.height, mechanism.tree.scale)], mechanism.column_epsilon)
    return _columns(mechanism, f"one counter, {mechanism.horizon} updates", TREE, noise)


@_derive.register
def _(mechanism: HybridCounter) -> Derivation:
    inner, totals = mechanism.inner(0), mechanism.totals
    trees = [(inner.shape.height, inner.scale), (totals.shape.height, totals.scale)]
    noise = _noise(trees, mechanism.column_epsilon)
    return _columns(mechanism, "one counter, any number of updates", HYBRID, noise)


def _noise(trees: list[tuple[int, Fraction]], epsilon: Fraction) -> Condition:
    """The noise the mechanism will draw: l1 sensitivity over scale, summed over its trees."""
    paid = sum((height / scale for height, scale in trees), NONE)
    sums = " + ".join(f"{height} / {text(scale)}" for height, scale in trees)
    return Condition("noise", paid <= epsilon, f"height / scale = {sums}, at most {text(epsilon)}")


def _columns(
    mechanism: Counter | HybridCounter, subject: str, source: str, noise: Condition
) -> Derivation:
    """One column's counter at epsilon / L0, all columns in parallel."""
    relation, width = mechanism.neighbors, mechanism.width
    each = Guarantee(PureDP(mechanism.column_epsilon), relation)
    one = leaf(subject, each, source, (noise,))
    touched = Touched.columns(relation, width)
    return tightest((one,), Parallel(f"{width} column(s)", touched, (width,)))


@_derive.register
def _(mechanism: SparseVector) -> Derivation:
    monotone = mechanism.neighbors.monotone(mechanism.width)
    need, why = (
        (1, "all changes have one sign: scale 1/e2")
        if monotone
        else (2, "changes may have either sign: scale 2/e2")
    )
    drawn = (
        mechanism.query_scale * mechanism.query_epsilon,
        mechanism.lift_scale * mechanism.threshold_epsilon,
    )
    scale = Condition("query noise", drawn[0] >= need, why)
    lift = Condition("threshold noise", drawn[1] >= 1, "scale 1/e1")
    return leaf("one sparse vector instance", mechanism.guarantee, SVT, (scale, lift))


@_derive.register
def _(mechanism: Alerts) -> Derivation:
    relation, width = mechanism.neighbors, mechanism.width
    touched = Touched.columns(relation, width, "key")
    epsilon = mechanism.epsilon / touched.k
    shift = Condition(
        "constant shift",
        mechanism.scale * epsilon >= 1,
        "one event shifts one key's count by the same amount until its halt: cost max(e1, e2), both at scale "
        f"{text(mechanism.scale)}",
    )
    one = leaf("one alert instance of one key", Guarantee(PureDP(epsilon), relation), SVT, (shift,))
    why = f"an event reaches one live instance per key; {touched.why}; checked by {REARMED}"
    live = replace(touched, why=why)
    return tightest((one,), Parallel(f"{width} keys, re-armed for ever", live))


@_derive.register
def _(mechanism: HSS) -> Derivation:
    intervals = Touched.intervals(
        mechanism.neighbors,
        "intervals are disjoint and their ends are released: an event reaches one instance",
        SUITE,
    )
    watchers = tightest(
        (_derive(mechanism.instance()),), Parallel("sparse vector instances", intervals)
    )
    parts = (watchers, _derive(mechanism.counter))
    whole = Composite(
        "HSS",
        "rows and interval sums are only added and forwarded; crossings, released values and indices decide",
        "one event changes one row of one instance and one entry set of one interval sum",
        SUITE,
    )
    return tightest((tightest(parts, Fixed("sub-mechanisms")),), whole)
