"""A replaced event that moves to another tick, exact: what a file claims is met; it was half of that once.

On a replay clock an event's own time is part of its content. The machines are the product's own, as `build` chooses
them, with every noise value in turn (`Enumerated`); one unit of epsilon is -ln(BASE).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
from oracles.turns import BASE, Accepted, lost

from stream_dp.accounting.derive import derive
from stream_dp.accounting.rules.rule import leaf
from stream_dp.accounting.situations import Alive, Moved, Ticks
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.relation import Claim
from stream_dp.core.row_relations import Stream, event
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.serving import ServingMechanism
from stream_dp.pipeline.builder import Chosen, build
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.testing.noise import SeededNoise
from stream_dp.verify.exact.enumeration import Enumerated, Plain
from stream_dp.verify.exact.exact_delta import Bracket, delta_bracket, worst_ratio
from stream_dp.verify.exact.finite import Law, OnceEach
from stream_dp.verify.exact.randomized_response import NoisyBits, noisy_bit
from stream_dp.verify.exact_checks.alive import OneTick, TickComposition
from stream_dp.verify.lower_bound import Finding, audit_mechanism

ADD, REPLACE, ANY = Neighbors.ADD_REMOVE, Neighbors.REPLACE, Neighbors.REPLACE_ANY_TICK
HALF, ONE, TWO, THREE = Fraction(1, 2), Fraction(1), Fraction(2), Fraction(3)
UNITS = 2  # what every series asks for

COUNT = {"name": "all", "statistic": "count", "epsilon": str(UNITS)}
GROUPED = {"by": "kind", "epsilon": str(UNITS), "expected_events": "9"}
ALERTS = {"name": "busy", "statistic": "alerts", "by": "kind", "threshold": "1"}
EVERY = [
    COUNT,
    {"name": "kinds", "statistic": "histogram", "method": "tree", **GROUPED},
    {"name": "hss", "statistic": "histogram", "method": "hss", **GROUPED},
    {"name": "most", "statistic": "maximum", **GROUPED},
    {**ALERTS, "epsilon": str(UNITS)},
]


def chosen(*series: dict[str, str], ticks: int = 2, **privacy: str) -> tuple[Chosen, ...]:
    """What a file with a replay clock of so many ticks runs under `neighbors: replace`."""
    data: dict[str, Any] = {
        "version": "1",
        "name": "moving",
        "source": {"kind": "file", "path": "moving.csv"},
        "schema": {"time": {"type": "time"}, "kind": {"type": "category", "domain": ["a"]}},
        "privacy": {"neighbors": "replace", "epsilon": "20", **privacy},
        "clock": {
            "kind": "replay", "field": "time", "start": "2026-01-01T00:00:00Z", "step": "1h", "horizon": ticks,
        },
        "series": list(series),
    }  # fmt: skip
    return build(PipelineSpec.model_validate(data)).chosen


def moving(relation: Neighbors = ANY) -> Accepted:
    """An event is gone from one tick of the left stream, and comes to another tick of the right one."""
    return Accepted((((0,), (0,)), ((1,), (0,)), ((0,), (1,))), event(relation, 1))


def test_a_count_of_a_file_keeps_its_epsilon() -> None:
    """Two units are claimed, and exactly two can be lost: not one of them less."""
    (count,) = chosen(COUNT)
    assert count.derivation.guarantee == Guarantee(PureDP(TWO), ANY)
    assert lost(count.mechanism, moving(), UNITS, 2).upper < Fraction(1, 1_000)
    assert lost(count.mechanism, moving(), UNITS - 1, 2).lower > HALF


def test_a_count_that_is_charged_for_one_tick_loses_twice_its_epsilon() -> None:
    """0.4 where 0.2 is claimed: what such a file ran before, and runs where it vouches that no replacement moves."""
    (count,) = chosen(COUNT, moves="within_tick")
    assert count.derivation.guarantee == Guarantee(PureDP(TWO), REPLACE)
    assert lost(count.mechanism, moving(), UNITS, 2).lower > HALF
    assert lost(count.mechanism, moving(), 2 * UNITS - 1, 2).lower > HALF
    assert lost(count.mechanism, moving(), 2 * UNITS, 2).upper < Fraction(1, 1_000)
    assert lost(count.mechanism, moving(REPLACE), UNITS, 2).upper < Fraction(1, 1_000)


@pytest.mark.parametrize("series", EVERY, ids=[str(each["name"]) for each in EVERY])
def test_every_statistic_is_charged(series: dict[str, str]) -> None:
    """Whatever the statistic: half the epsilon against one event more or less, and twice that is claimed."""
    (one,) = chosen(series)
    assert one.mechanism.guarantee == Guarantee(PureDP(ONE), ADD)
    assert one.derivation.guarantee == Guarantee(PureDP(TWO), ANY)
    (vouched,) = chosen(series, moves="within_tick")
    assert vouched.mechanism.guarantee == vouched.derivation.guarantee == Guarantee(PureDP(TWO), REPLACE)  # fmt: skip


# --- the time rule: the two ticks may meet different mechanisms ----------------------------------


@dataclass(frozen=True)
class PerTick:
    """A real mechanism, updated and asked at each tick, as the engine does."""

    real: Enumerated

    def initial(self) -> Mapping[Any, Fraction]:
        return self.real.initial()

    def step(self, state: Any, query: Plain) -> Law[Any]:
        law: dict[tuple[Any, Any], Fraction] = {}
        for (_, updated), p in self.real.step(state, query).items():
            for key, q in self.real.step(updated, None).items():
                law[key] = law.get(key, Fraction(0)) + p * q
        return law


def one_after_the_other(mechanism: ServingMechanism[Any]) -> Bracket:
    """Mechanisms of two units, one alive at a time; created, ended and fed by an adversary with an event that moves."""
    price = BASE**-UNITS
    pairs = OneTick(
        (price,), price, ((0,),), (((1,), (0,)), ((0,), (1,))),
        ticks=2, creations=2, times=2, once_each=True,
    )  # fmt: skip
    machine = TickComposition((PerTick(Enumerated(mechanism, BASE, 2)),))
    return delta_bracket(machine, pairs, price, 6)


def test_a_mechanism_created_between_the_two_ticks_costs_its_half() -> None:
    (count,) = chosen(COUNT, ticks=1)
    assert one_after_the_other(count.mechanism).upper < Fraction(1, 1_000)


def test_a_time_rule_that_ignores_the_second_tick_is_caught() -> None:
    """Each mechanism keeps its claim for one event gone or come; the largest load is half of what is lost."""
    (count,) = chosen(COUNT, ticks=1, moves="within_tick")
    assert one_after_the_other(count.mechanism).lower > HALF


@dataclass(frozen=True)
class Once:
    """The noisy bit of its first row, and of no later one: it costs all of its claim however the event moves."""

    odds: Fraction

    def initial(self) -> Mapping[bool, Fraction]:
        return {False: ONE}

    def step(self, state: bool, query: int) -> Law[bool]:
        law = {0: ONE} if state else noisy_bit(query, self.odds)
        return {(bit, True): p for bit, p in law.items()}


def test_a_claim_that_one_of_the_two_ticks_may_cost_is_refused_by_the_time_rule() -> None:
    """ln 9 for every replacement, moved or not, and nothing less for a tick alone: the largest load is half."""
    nine = Fraction(9)
    pairs = OneTick((nine,), nine, (0,), ((0, 1), (1, 0)), 2, 2, times=2, once_each=True)
    assert worst_ratio(Once(nine), OnceEach((0,), ((0, 1), (1, 0))), 3) == 9
    assert worst_ratio(TickComposition((Once(nine),)), pairs, 6) == 81
    assert worst_ratio(TickComposition((NoisyBits(THREE),)), pairs, 6) == 9
    claim = leaf("once", Guarantee(PureDP(TWO), ANY), "this file")
    lives = (Alive(0, 0), Alive(1, None))
    with pytest.raises(NotDerivable, match="one of the two alone may cost the full price"):
        derive((claim, claim), Ticks("time", lives))
    step = leaf("bits", Guarantee(PureDP(ONE), ADD), "this file")
    moved = derive((step,), Moved("bits"))
    assert derive((moved, moved), Ticks("time", lives)).guarantee == Guarantee(PureDP(TWO), ANY)


@pytest.mark.parametrize(
    "guarantee", [Guarantee(PureDP(ONE), REPLACE), Guarantee(PureDP(ONE), ANY), Guarantee(PureDP(ONE), ADD, 2)]
)  # fmt: skip
def test_only_a_guarantee_for_one_event_more_or_less_is_doubled(guarantee: Guarantee) -> None:
    with pytest.raises(NotDerivable, match="one removed, one added"):
        derive((leaf("x", guarantee, "this file"),), Moved("x"))


@pytest.mark.parametrize("which", ["l0", "monotone"])
def test_no_mechanism_is_made_for_it(which: str) -> None:
    with pytest.raises(NotDerivable, match="half the epsilon"):
        getattr(ANY, which)(1)


# --- the audit plays it --------------------------------------------------------------------------


def played(
    mechanism: ServingMechanism[Any], claim: Claim | None, failure: float, runs: int = 1200
) -> Finding:
    """Games of two ticks on seeded noise, the same every time."""
    seeds = iter(range(1, 1_000_000))
    return audit_mechanism(
        mechanism,
        lambda: SeededNoise(next(seeds)),
        runs=runs,
        ticks=2,
        failure=failure,
        claim=claim,
    )


def test_the_audit_refutes_a_count_that_is_charged_for_one_tick() -> None:
    """Two units of epsilon 1 each are lost; the best event shows 1.5 of them, missed with probability below 1e-3."""
    claim = Claim(PureDP(ONE), Stream(event(ANY, 1)))
    assert played(Counter(1, ONE, REPLACE, 2), claim, 0.01).violated
    right = played(Counter(1, HALF, ADD, 2), claim, 1e-6, 2400)
    assert not right.violated
    assert right.lower > 0
    assert not played(Counter(1, ONE, REPLACE, 2), None, 1e-6).violated
