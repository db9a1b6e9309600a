"""The time rule, exact against every adaptive adversary: the bound is met with equality, broken twins exceed it."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from stream_dp.verify.exact.exact_delta import exact_delta, worst_ratio
from stream_dp.verify.exact.finite import Law
from stream_dp.verify.exact.randomized_response import LeakyBit, NoisyBits
from stream_dp.verify.exact_checks.alive import (
    Begin,
    End,
    OneTick,
    TickComposition,
    TickRow,
    TickState,
)

ONE, TWO, THREE = Fraction(1), Fraction(2), Fraction(3)
MOVED = ((0, 1), (1, 0))


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


@pytest.mark.parametrize("created", [1, 4])
def test_dashboards_one_after_the_other_cost_one(created: int) -> None:
    """No growth with their number: each is created when the one before has been ended, by what it said."""
    pairs = game((THREE,), THREE, ticks=3, creations=created)
    assert worst_ratio(TickComposition((NoisyBits(THREE),)), pairs, rounds(pairs)) == THREE


def test_a_budget_that_is_not_reached_is_not_spent() -> None:
    pairs = game((THREE, TWO), Fraction(5))
    machine = TickComposition((NoisyBits(THREE), NoisyBits(TWO)))
    assert worst_ratio(machine, pairs, rounds(pairs)) == 4  # two of price 2


# --- broken twins -------------------------------------------------------------------------------


def reading(*past: int, charges: bool) -> OneTick:
    """Mechanisms of price 3, one at a time, that may read the past."""
    return game((THREE,), THREE, ticks=2, backfill=past, charges_past=charges)


@pytest.mark.parametrize("created", [1, 3])
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


@pytest.mark.parametrize("ticks", [2, 4])
def test_deltas_do_not_follow_the_rule(ticks: int) -> None:
    """[HSV] Thm 5.2 over time: (ln 2, delta), one alive at a time, ended if it has not given up at its first tick."""
    delta = Fraction(1, 10)
    pairs = game((TWO,), TWO, ticks=ticks, creations=ticks)
    result = exact_delta(TickComposition((LeakyBit(delta),)), pairs, Fraction(5), 3 * ticks)
    assert result == 1 - (1 - delta) ** (ticks - 1)
    assert (result > delta) == (ticks > 2)


def test_two_ticks_of_one_user_cost_both() -> None:
    """Event level only; the same for a record whose tick depends on when it was read, so that two rows change."""
    machine = TickComposition((NoisyBits(THREE),))
    pairs = game((THREE,), THREE, times=2)
    assert worst_ratio(machine, pairs, rounds(pairs)) == 9
