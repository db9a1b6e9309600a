"""The time rule, exact against every adaptive adversary: the bound is met with equality, broken twins exceed it."""

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import pytest

from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.watches.kinds import Alerts
from stream_dp.verify.exact.enumeration import Enumerated
from stream_dp.verify.exact.exact_delta import delta_bracket, exact_delta, worst_ratio
from stream_dp.verify.exact.finite import Law
from stream_dp.verify.exact.randomized_response import LeakyBit, NoisyBits, noisy_bit
from stream_dp.verify.exact_checks.alive import (
    Begin,
    End,
    OneTick,
    TickComposition,
    TickRow,
    TickState,
)

ONE, TWO, THREE = Fraction(1), Fraction(2), Fraction(3)
BITS, MOVED = (0, 1), ((0, 1), (1, 0))
QUIET: tuple[tuple[int, ...], ...] = ((0,),)


@dataclass(frozen=True)
class Late:
    """The noisy bit of the tick before: what it saw leaves one tick later, or never if it is ended first."""

    odds: Fraction

    def initial(self) -> Mapping[int, Fraction]:
        """As if a 0 had come."""
        return {0: ONE}

    def step(self, state: int, query: int) -> Law[int]:
        """Answer the row before."""
        return {(bit, query): p for bit, p in noisy_bit(state, self.odds).items()}


@dataclass(frozen=True)
class Moody:
    """Says at its first tick whether it will answer at its full odds later: 1 in 4 times, else a constant.

    Still ln(odds)-DP, but an adversary may look at the mood first, and end those that are not worth a difference.
    """

    odds: Fraction

    def initial(self) -> Mapping[str, Fraction]:
        """Unborn."""
        return {"new": ONE}

    def step(self, state: str, query: int) -> Law[str]:
        """Its mood first, then answers."""
        if state == "new":
            return {("good", "good"): Fraction(1, 4), ("bad", "bad"): Fraction(3, 4)}
        law = noisy_bit(query, self.odds) if state == "good" else {0: ONE}
        return {(bit, state): p for bit, p in law.items()}


def rr_delta(odds: Sequence[Fraction], ratio: Fraction) -> Fraction:
    """The delta of RR of these odds together, by enumeration."""
    found = Fraction(0)
    for answers in itertools.product(BITS, repeat=len(odds)):
        chances = [
            math.prod(noisy_bit(b, o)[a] for a, o in zip(answers, odds, strict=True)) for b in BITS
        ]
        found += max(Fraction(0), chances[0] - ratio * chances[1])
    return found


def worst_living(prices: Sequence[Fraction], budget: Fraction, ratio: Fraction) -> Fraction:
    """The largest delta of kinds that may live at one tick."""
    found = Fraction(0)
    for count in range(4):
        for odds in itertools.combinations_with_replacement(prices, count):
            if math.prod(odds) <= budget:
                found = max(found, rr_delta(odds, ratio))
    return found


def game(prices: tuple[Fraction, ...], budget: Fraction, **other: Any) -> OneTick:
    """Three ticks and three creations unless said otherwise."""
    settings: dict[str, Any] = {"ticks": 3, "creations": 3, **other}
    return OneTick(prices, budget, (0,), MOVED, **settings)


def rounds(pairs: OneTick) -> int:
    """Enough messages for every creation, its end and every tick."""
    return 2 * pairs.creations + pairs.ticks


def test_the_sum_alive_is_met_exactly_whatever_comes_and_goes() -> None:
    machine, pairs = (
        TickComposition((NoisyBits(THREE), NoisyBits(TWO))),
        game((THREE, TWO), Fraction(6)),
    )
    assert worst_ratio(machine, pairs, rounds(pairs)) == 6


@pytest.mark.parametrize("created", [1, 2, 3, 4])
def test_dashboards_one_after_the_other_cost_one(created: int) -> None:
    """No growth with their number: each is created when the one before has been ended, by what it said."""
    for kind in (NoisyBits(THREE), Late(THREE), Moody(THREE)):
        pairs = game((THREE,), THREE, ticks=3, creations=created)
        assert worst_ratio(TickComposition((kind,)), pairs, rounds(pairs)) == THREE


@pytest.mark.parametrize("ratio", [ONE, Fraction(3, 2), TWO, Fraction(4), Fraction(6)])
def test_the_whole_curve_is_that_of_the_worst_living_set(ratio: Fraction) -> None:
    """[HSV] Cor 5.5, not only the sum: delta at every epsilon is that of RR of the mechanisms alive at one tick."""
    machine, pairs = (
        TickComposition((NoisyBits(THREE), NoisyBits(TWO))),
        game((THREE, TWO), Fraction(6)),
    )
    expected = worst_living((THREE, TWO), Fraction(6), ratio)
    assert exact_delta(machine, pairs, ratio, rounds(pairs)) == expected
    assert (expected > 0) == (ratio < 6)


def test_mechanisms_that_speak_later_meet_it_too() -> None:
    machine, pairs = (
        TickComposition((Late(THREE), Moody(TWO))),
        game((THREE, TWO), Fraction(6), ticks=3),
    )
    pairs = replace(pairs, creations=2)
    assert worst_ratio(machine, pairs, 7) == 6


def test_a_budget_that_is_not_reached_is_not_spent() -> None:
    pairs = game((THREE, TWO), Fraction(5))
    machine = TickComposition((NoisyBits(THREE), NoisyBits(TWO)))
    assert worst_ratio(machine, pairs, rounds(pairs)) == 4  # two of price 2


# --- broken twins -------------------------------------------------------------------------------


def reading(*past: int, charges: bool) -> OneTick:
    """Mechanisms of price 3, one at a time, that may read the past."""
    return game((THREE,), THREE, ticks=2, backfill=past, charges_past=charges)


@pytest.mark.parametrize("created", [1, 2, 3])
def test_a_halt_that_frees_past_ticks_is_caught(created: int) -> None:
    """Backfill of a tick whose row was seen by one that has been ended: one more factor for each creation."""
    machine = TickComposition((NoisyBits(THREE),), kept=1)
    pairs = replace(reading(0, 1, charges=False), creations=created)
    assert worst_ratio(machine, pairs, rounds(pairs)) == THREE**created


def test_backfill_that_is_charged_to_the_ticks_it_reads_keeps_the_bound() -> None:
    machine, pairs = TickComposition((NoisyBits(THREE),), kept=1), reading(0, 1, charges=True)
    assert worst_ratio(machine, pairs, rounds(pairs)) == THREE
    wider = replace(pairs, budget=Fraction(9))
    assert worst_ratio(machine, wider, rounds(wider)) == 9


class Lingering(TickComposition):
    """Broken: one that is ended still sees the row of the tick under way, which its successor sees as well."""

    def step(self, state: TickState, query: Begin | End | TickRow) -> Law[TickState]:
        """Put the ended one aside, for one row."""
        living, leaving = state
        if isinstance(query, End):
            after = (*living[: query.place], *living[query.place + 1 :])
            return {(True, (after, (*leaving, living[query.place]))): ONE}
        if isinstance(query, Begin):
            begun = super().step((living, ()), query)
            return {(a, (after[0], leaving)): p for (a, after), p in begun.items()}
        gone = len(leaving)
        law: dict[tuple[Any, TickState], Fraction] = {}
        everyone: Any = (*leaving, *living)
        for (answer, after), p in self.answered(everyone, query.row).items():
            key = (answer, (after[gone:], ()))
            law[key] = law.get(key, Fraction(0)) + p
        return law


def test_a_start_before_the_freed_tick_is_caught() -> None:
    pairs = game((THREE,), THREE, creations=2)
    assert worst_ratio(Lingering((NoisyBits(THREE),)), pairs, 6) == 9
    assert worst_ratio(TickComposition((NoisyBits(THREE),)), pairs, 6) == THREE


@pytest.mark.parametrize("ticks", [2, 3, 4])
def test_deltas_do_not_follow_the_rule(ticks: int) -> None:
    """[HSV] Thm 5.2 over time: (ln 2, delta), one alive at a time, ended if it has not given up at its first tick."""
    delta = Fraction(1, 10)
    pairs = game((TWO,), TWO, ticks=ticks, creations=ticks)
    found = exact_delta(TickComposition((LeakyBit(delta),)), pairs, Fraction(5), 3 * ticks)
    assert found == 1 - (1 - delta) ** (ticks - 1)
    assert (found > delta) == (ticks > 2)


def test_two_ticks_of_one_user_cost_both() -> None:
    """Event level only; the same for a record whose tick depends on when it was read, so that two rows change."""
    machine = TickComposition((NoisyBits(THREE),))
    pairs = game((THREE,), THREE, times=2)
    assert worst_ratio(machine, pairs, rounds(pairs)) == 9


# --- the code that runs in production -----------------------------------------------------------


@dataclass(frozen=True)
class PerTick:
    """A real mechanism, updated and asked at each tick, as the engine does."""

    real: Enumerated

    def initial(self) -> Mapping[Hashable, Fraction]:
        """The law of its first state."""
        return self.real.initial()

    def step(self, state: Hashable, query: tuple[int, ...]) -> Law[Hashable]:
        """Update, then ask."""
        law: dict[tuple[Any, Hashable], Fraction] = {}
        for (_, updated), p in self.real.step(state, query).items():
            for key, q in self.real.step(updated, None).items():
                law[key] = law.get(key, Fraction(0)) + p * q
        return law


def alerts(
    backfill: tuple[int, ...] = (0,), *, charges: bool = True
) -> tuple[TickComposition, OneTick]:
    """Real alerts at one unit of epsilon, one at a time, created and ended at will."""
    base = Fraction(1, 8)
    kind = PerTick(Enumerated(Alerts(1, ONE, Neighbors.ADD_REMOVE, threshold=1), base, 5))
    pairs = OneTick(
        (1 / base,), 1 / base, QUIET, (((0,), (1,)), ((1,), (0,))), 2, 2, backfill, charges
    )
    return TickComposition((kind,), kept=max(backfill)), pairs


def test_real_alerts_one_after_the_other_cost_one() -> None:
    machine, pairs = alerts()
    assert delta_bracket(machine, pairs, pairs.budget, 6).upper < Fraction(1, 1_000)
    assert delta_bracket(machine, pairs, ONE, 6).lower > Fraction(1, 2)


def test_real_alerts_with_free_backfill_are_caught() -> None:
    machine, pairs = alerts((0, 1), charges=False)
    assert delta_bracket(machine, pairs, pairs.budget, 6).lower > Fraction(1, 20)
