"""Exact Renyi moments against closed forms, and [HSV] Thm 13.5 as a running counterexample."""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Literal

import pytest
from oracles.compositions import FiniteComposition, SparsePairs

from stream_dp.core.composition import ConcurrentComposition
from stream_dp.core.guarantee import differential_privacy
from stream_dp.testing.noise import SeededNoise
from stream_dp.verify.exact.exact_delta import exact_delta, exact_moment, worst_ratio
from stream_dp.verify.exact.finite import (
    BIT_PAIRS,
    DifferAtMost,
    FirstPair,
)
from stream_dp.verify.exact.randomized_response import (
    ASK,
    InteractiveRandomizedResponse,
    LeakyBit,
    NoisyLeak,
    RandomizedResponse,
    bit_moment,
)
from stream_dp.verify.game import Game, RenyiAdversary
from stream_dp.verify.relations import k_sparse

ONE, THREE, SEVEN = Fraction(1), Fraction(3), Fraction(7)
ONE_PAIR, ASKED = FirstPair(BIT_PAIRS), FirstPair(BIT_PAIRS, (ASK,))
ONE_BIT = DifferAtMost((0, 1), ((0, 1), (1, 0)))
ADVERSARY = RenyiAdversary(2, Fraction(1, 5), SEVEN, most=12)
BITS: tuple[Literal[0, 1], ...] = (0, 1)


@pytest.mark.parametrize("order", [2, 7])
def test_the_moment_of_rr_is_the_sum_over_its_answers(order: int) -> None:
    p, q = Fraction(3, 4), Fraction(1, 4)
    by_hand = p**order / q ** (order - 1) + q**order / p ** (order - 1)
    assert exact_moment(RandomizedResponse(THREE), ONE_PAIR, order, 2) == by_hand
    assert exact_moment(InteractiveRandomizedResponse(THREE), ASKED, order, 4) == by_hand
    assert bit_moment(THREE, order) == by_hand


@pytest.mark.parametrize("k", [1, 2, 3])
def test_fixed_composition_adds_up_at_one_order(k: int) -> None:
    """[HSV] Cor 13.4 with equality on RR; unlimited creations cost nothing for RR, which is pure."""
    machine = FiniteComposition((RandomizedResponse(THREE),))
    for made in (k, 3):
        pairs = SparsePairs((ONE_PAIR,), (made,), k)
        assert exact_moment(machine, pairs, 2, 2 * made) == bit_moment(THREE, 2) ** k


def test_a_revealed_bit_has_an_infinite_moment() -> None:
    assert exact_moment(LeakyBit(Fraction(1, 100)), ONE_BIT, 2, 2) == math.inf
    assert exact_moment(LeakyBit(Fraction(1, 100)), ONE_BIT, 2, 1) == 1


def test_orders_below_two_are_refused() -> None:
    with pytest.raises(ValueError, match="order must be 2 or more"):
        exact_moment(LeakyBit(ONE), ONE_BIT, 1, 1)


@pytest.mark.parametrize("order", [2, 3])
def test_a_noisy_leak_alone_keeps_its_claims(order: int) -> None:
    machine, adversary = NoisyLeak(Fraction(1, 5), SEVEN), replace(ADVERSARY, order=order)
    assert exact_moment(machine, ONE_BIT, order, 4) == adversary.mechanism_moment
    assert math.exp((order - 1) * adversary.claim.epsilon) >= adversary.mechanism_moment
    assert (
        exact_delta(machine, ONE_BIT, ONE, 4)
        == differential_privacy(adversary.mechanism.guarantee.measure).delta
    )
    assert worst_ratio(machine, ONE_BIT, 4) == SEVEN


@pytest.mark.parametrize("created", [1, 2, 3])
def test_touched_mechanisms_are_not_the_price_of_renyi_composition(created: int) -> None:
    """[HSV] Thm 13.5, exact over all adversaries: one touched mechanism, and the moment grows with the creations."""
    adversary = replace(ADVERSARY, most=created)
    machine = FiniteComposition((NoisyLeak(adversary.chance, adversary.odds),))
    result = exact_moment(machine, SparsePairs((ONE_BIT,), (created,), 1), 2, 2 * created + 1)
    assert result == adversary.moment
    assert (result > adversary.mechanism_moment) == (created > 1)


def test_the_printed_constants_do_not_do() -> None:
    """Erratum: q = 1 - 3/4 2^(-2 - eps' (alpha-1)/alpha) at alpha = 2, eps' = 8, in base 2."""
    wrong = Fraction(3, 4) * Fraction(1, 2**6)
    assert bit_moment((1 - wrong) / wrong, 2) < 2**8


def test_first_pair_consistency_saves_the_rule() -> None:
    """[HSV] Thm 13.6 with equality: IRR, whose first pair decides, costs the touched one only."""
    machine = FiniteComposition((InteractiveRandomizedResponse(THREE),))
    assert exact_moment(machine, SparsePairs((ASKED,), (2,), 1), 2, 8) == bit_moment(THREE, 2)


# --- played -------------------------------------------------------------------------------------

PLAYS = 400
TOUCHED = (Fraction(0), differential_privacy(ADVERSARY.mechanism.guarantee.measure).delta)


def guesses(game: Game) -> list[tuple[int, int | None]]:
    noise = SeededNoise(13)
    return [
        (b, ADVERSARY.guess(game.play(ADVERSARY, b, noise))) for b in BITS for _ in range(PLAYS)
    ]


def test_the_adversary_beats_the_bookkeeping_by_touched_mechanisms() -> None:
    """All mechanisms have one claim, so f_(inf,RDP) accepts where at most one is touched, as f_inf does.

    Heard with 1 - .8^12 = .931, right with 7/8 of that. Off by .05 on 800 plays: probability below 1e-3 each.
    """
    result = guesses(Game(ConcurrentComposition(), k_sparse((TOUCHED,))))
    heard = sum(guess is not None for _, guess in result) / len(result)
    right = sum(guess == b for b, guess in result) / len(result)
    assert heard == pytest.approx(float(ADVERSARY.listening_probability), abs=0.05)
    assert right == pytest.approx(float(ADVERSARY.listening_probability) * 7 / 8, abs=0.05)
    booked = float(ADVERSARY.claim.epsilon)
    assert math.log(ADVERSARY.moment) > 1.3 * booked
