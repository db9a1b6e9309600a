"""The derivation of each mechanism's guarantee from the rules of the accounting.

Rules: the derived guarantee must equal the one the mechanism claims; a mechanism without a derivation here
cannot be built. This file knows no budget.
"""

from dataclasses import replace
from functools import singledispatch
from typing import Any

from stream_dp.accounting.rules.composite import composite
from stream_dp.accounting.rules.concurrent import concurrent_pure
from stream_dp.accounting.rules.leaf import leaf
from stream_dp.accounting.rules.parallel import parallel_pure
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.alerts import Alerts
from stream_dp.mechanisms.counter import Counter
from stream_dp.mechanisms.hss import HSS
from stream_dp.mechanisms.hybrid_counter import HybridCounter
from stream_dp.mechanisms.sparse_vector import SparseVector

TREE = "odd k-ary tree with subtraction, l1 sensitivity = height (arXiv 2408.07021)"
HYBRID = "hybrid of trees (Chan, Shi, Song 2011)"
SVT = "[HSV] Lemma 7.4 with one-sided geometric noise (arXiv 2407.20068)"


def fixed_block(pipeline: str, premises: tuple[Derivation, ...]) -> Derivation:
    """All series of the first start, run concurrently on the same events."""
    return concurrent_pure(f"{pipeline}: series of the first start", premises)


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
    return _columns(mechanism, f"one counter, {mechanism.horizon} updates", TREE)


@_derive.register
def _(mechanism: HybridCounter) -> Derivation:
    return _columns(mechanism, "one counter, any number of updates", HYBRID)


def _columns(mechanism: Counter | HybridCounter, subject: str, source: str) -> Derivation:
    """One column's counter at epsilon / L0, all columns in parallel."""
    relation, width = mechanism.neighbors, mechanism.width
    one = leaf(subject, Guarantee(PureDP(mechanism.column_epsilon), relation), source)
    touched = relation.l0(width)
    why = (
        f"one event under {relation} touches at most {touched} of {width} column(s) (one-hot rows)"
    )
    return parallel_pure(f"{width} column(s)", one, touched, why)


@_derive.register
def _(mechanism: SparseVector) -> Derivation:
    monotone = mechanism.neighbors.monotone(mechanism.width)
    why = (
        "all changes have one sign: scale 1/e2"
        if monotone
        else "changes may have either sign: scale 2/e2"
    )
    scale = Condition("query noise", True, why)
    return leaf("one sparse vector instance", mechanism.guarantee, SVT, (scale,))


@_derive.register
def _(mechanism: Alerts) -> Derivation:
    relation, touched = mechanism.neighbors, mechanism.neighbors.l0(mechanism.width)
    shift = Condition(
        "constant shift",
        True,
        "one event shifts one key's count by the same amount until its halt: cost max(e1, e2)",
    )
    each = Guarantee(PureDP(mechanism.epsilon / touched), relation)
    one = leaf("one alert instance of one key", each, SVT, (shift,))
    why = (
        f"an event reaches one live instance per key; one event under {relation} touches at most {touched} of "
        f"{mechanism.width} keys"
    )
    return parallel_pure(f"{mechanism.width} keys, re-armed for ever", one, touched, why)


@_derive.register
def _(mechanism: HSS) -> Derivation:
    intervals = "intervals are disjoint and their ends are released: an event reaches one instance"
    watchers = parallel_pure("sparse vector instances", _derive(mechanism.instance()), 1, intervals)
    parts = concurrent_pure("sub-mechanisms", (watchers, _derive(mechanism.counter)))
    return composite(
        "HSS",
        parts,
        "rows and interval sums are only added and forwarded; crossings, released values and indices decide",
        "one event changes one row of one instance and one entry set of one interval sum",
    )
