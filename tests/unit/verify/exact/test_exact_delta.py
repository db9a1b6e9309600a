"""`exact_delta` against closed forms and all adversaries listed, and the recursion's own corners."""

import itertools
import math
import random
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import pytest
from oracles.compositions import FiniteComposition, SparsePairs
from oracles.universal import composed_delta

from stream_dp.verify.exact.exact_delta import delta_bracket, exact_delta, worst_ratio
from stream_dp.verify.exact.finite import (
    BIT_PAIRS,
    DifferAtMost,
    FirstPair,
    Law,
)
from stream_dp.verify.exact.randomized_response import (
    ASK,
    InteractiveRandomizedResponse,
    LeakyBit,
    RandomizedResponse,
)

ONE = Fraction(1)
RATIOS = [ONE, Fraction(3, 2), Fraction(2), Fraction(5, 2), Fraction(3), Fraction(9), Fraction(10)]
ODDS = [ONE, Fraction(3), Fraction(7, 2)]
DELTAS = [Fraction(0), Fraction(1, 10), ONE]
ONE_PAIR = FirstPair(BIT_PAIRS)
ASKED = FirstPair(BIT_PAIRS, (ASK,))
LEAKY = DifferAtMost((0, 1), ((0, 1), (1, 0)))


@pytest.mark.parametrize("odds", ODDS)
@pytest.mark.parametrize("delta", DELTAS)
def test_rr_and_irr_meet_the_closed_form_at_every_epsilon(odds: Fraction, delta: Fraction) -> None:
    for ratio in RATIOS:
        expected = composed_delta([(odds, delta)], ratio)
        rr = exact_delta(RandomizedResponse(odds, delta), ONE_PAIR, ratio, 2)
        irr = exact_delta(InteractiveRandomizedResponse(odds, delta), ASKED, ratio, 4)
        assert rr == irr == expected


@pytest.mark.parametrize("delta", DELTAS[:2])
@pytest.mark.parametrize("k", [1, 3])
def test_fixed_composition_of_rr_is_exactly_the_closed_form(delta: Fraction, k: int) -> None:
    """[HSV] Thm 4.10 with equality; also for ratios that are no power of the odds."""
    odds = Fraction(3)
    machine = FiniteComposition((RandomizedResponse(odds, delta),))
    for ratio in RATIOS[:6:2]:
        result = exact_delta(machine, SparsePairs((ONE_PAIR,), (k,), k), ratio, 2 * k)
        assert result == composed_delta([(odds, delta)] * k, ratio)


def test_a_leaky_bit_alone_keeps_its_claim() -> None:
    assert exact_delta(LeakyBit(Fraction(1, 4)), LEAKY, ONE, 4) == Fraction(1, 4)
    twice = DifferAtMost((0,), ((0, 1),), times=2)
    assert exact_delta(LeakyBit(Fraction(1, 4)), twice, ONE, 4) == Fraction(1, 4)


def test_the_worst_ratio_is_where_delta_ends() -> None:
    assert worst_ratio(RandomizedResponse(Fraction(7, 2)), ONE_PAIR, 2) == Fraction(7, 2)
    assert worst_ratio(LeakyBit(Fraction(1, 4)), LEAKY, 2) == math.inf
    machine = FiniteComposition((RandomizedResponse(Fraction(3)),))
    assert worst_ratio(machine, SparsePairs((ONE_PAIR,), (2,), 2), 4) == 9


@dataclass(frozen=True)
class Asymmetric:
    """Answers "yes" with probability 1/2 under 1 and never under 0: the two directions differ."""

    missing: Fraction = Fraction(0)

    def initial(self) -> Mapping[int, Fraction]:
        return {0: ONE}

    def step(self, state: int, query: int) -> Law[int]:
        yes = Fraction(query, 2)
        return {("yes", 0): yes, ("no", 0): 1 - yes - self.missing}


def test_both_directions_count_and_a_short_law_only_gives_bounds() -> None:
    pairs = FirstPair(((0, 1),))
    assert exact_delta(Asymmetric(), pairs, Fraction(4), 1) == Fraction(1, 2)
    assert exact_delta(Asymmetric(), FirstPair(((1, 0),)), Fraction(4), 1) == Fraction(1, 2)
    short = Asymmetric(Fraction(1, 100))
    result = delta_bracket(short, pairs, Fraction(4), 1)
    assert result.lower <= Fraction(1, 2) <= result.upper < Fraction(52, 100)
    with pytest.raises(ValueError, match="leave out"):
        exact_delta(short, pairs, ONE, 1)
    with pytest.raises(ValueError, match="leave out"):
        worst_ratio(short, pairs, 1)
    with pytest.raises(ValueError, match="at least 1"):
        exact_delta(Asymmetric(), pairs, Fraction(1, 2), 1)


@dataclass(frozen=True)
class Rolled:
    """A machine with random laws: hidden states 0..2, bits as queries, answers 0 and 1."""

    laws: tuple[
        tuple[tuple[Fraction, ...], ...], ...
    ]  # [state][query] -> chances of (answer, state)

    @classmethod
    def of(cls, seed: int) -> "Rolled":
        """Laws with denominators of at most 60."""
        rng = random.Random(seed)
        weights = [[[rng.choice((0, 1, 2, 10)) for _ in range(6)] for _ in "ab"] for _ in "abc"]
        return cls(
            tuple(tuple(tuple(Fraction(w + 1, sum(r) + 6) for w in r) for r in q) for q in weights)
        )

    def initial(self) -> Mapping[int, Fraction]:
        return {0: Fraction(1, 3), 1: Fraction(2, 3)}

    def step(self, state: int, query: int) -> Law[int]:
        return {(i // 3, i % 3): chance for i, chance in enumerate(self.laws[state][query])}


def delta_of_strategy(
    machine: Rolled, first: tuple[int, int], then: tuple[tuple[int, int], ...], ratio: Fraction
) -> Fraction:
    """Forward, with no recursion: the worse direction of one deterministic adversary of two rounds."""
    chances: tuple[dict[tuple[Hashable, Hashable], Fraction], ...] = ({}, {})
    for b, law in enumerate(chances):
        for start, p in machine.initial().items():
            for (x, state), q in machine.step(start, first[b]).items():
                for (y, _), r in machine.step(state, then[1 if x else 0][b]).items():
                    law[x, y] = law.get((x, y), Fraction(0)) + p * q * r
    return max(
        sum((max(Fraction(0), a[o] - ratio * b[o]) for o in a), Fraction(0))
        for a, b in (chances, chances[::-1])
    )


@pytest.mark.parametrize("seed", range(4))
def test_the_recursion_is_the_maximum_over_all_adversaries(seed: int) -> None:
    """Every deterministic strategy of two rounds, enumerated: 4 first pairs, then one per answer."""
    machine, pairs = Rolled.of(seed), DifferAtMost((), BIT_PAIRS, times=2)
    for ratio in (ONE, Fraction(6, 5), Fraction(2)):
        best = max(
            delta_of_strategy(machine, first, then, ratio)
            for first in BIT_PAIRS
            for then in itertools.product(BIT_PAIRS, repeat=2)
        )
        assert exact_delta(machine, pairs, ratio, 2) == best


def test_some_machine_rewards_adaptivity() -> None:
    """So the test above sees it: the best adaptive adversary beats the best one that fixes both pairs."""
    gains = []
    for seed in range(12):
        machine = Rolled.of(seed)
        fixed = max(
            delta_of_strategy(machine, first, (second, second), ONE)
            for first in BIT_PAIRS
            for second in BIT_PAIRS
        )
        gains.append(exact_delta(machine, DifferAtMost((), BIT_PAIRS, times=2), ONE, 2) - fixed)
    assert min(gains) >= 0 < max(gains)
