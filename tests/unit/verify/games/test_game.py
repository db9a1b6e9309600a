"""Games: halting, one side of every pair, real mechanisms and compositions; the adversary of [HSV] Thm 5.2 wins."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pytest

from stream_dp.core.composition import Ask, ConcurrentComposition, Create
from stream_dp.core.guarantee import ApproxDP, Guarantee
from stream_dp.core.mechanism import IntArray, Noise, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_relations import Stream, event
from stream_dp.errors import FailClosed, RejectedMessage
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.testing.noise import SeededNoise, ZeroNoise
from stream_dp.verify.exact.finite import Sampled, draw_from
from stream_dp.verify.exact.randomized_response import RandomizedResponse
from stream_dp.verify.game import HALT, Game, MaxDeltaAdversary, Side, View, leaky_mechanism
from stream_dp.verify.relations import k_sparse, k_sparse_with_delta_budget

ADD, ONE, QUARTER = Neighbors.ADD_REMOVE, Fraction(1), Fraction(1, 4)
BITS: tuple[Literal[0, 1], ...] = (0, 1)


def row(*entries: int) -> Update:
    return Update(np.array(entries, dtype=np.int64))


@dataclass(frozen=True)
class Recited:
    """An adversary that sends these messages whatever it hears."""

    messages: Sequence[Any]

    def init(self, noise: Noise) -> int:
        return 0

    def step(self, state: int, message: Any, noise: Noise) -> tuple[int, Any]:
        return state + 1, self.messages[state] if state < len(self.messages) else HALT


def values(view: View) -> list[list[int]]:
    return [m.tolist() for m in view.messages if isinstance(m, np.ndarray)]


def test_the_secret_bit_picks_one_side_of_every_pair() -> None:
    game = Game(Counter(1, ONE, ADD, 9), Stream(event(ADD)))
    pairs = [(row(2), row(2)), (row(3), row(4)), (Query(), Query())]
    views = [game.play(Recited(pairs), b, ZeroNoise()) for b in BITS]
    assert [values(v) for v in views] == [[[5]], [[6]]]
    assert all(v.halted is Side.LEFT for v in views)
    assert [m for m in views[0].messages if isinstance(m, tuple)] == pairs


@pytest.mark.parametrize(
    "refused",
    [
        (row(0), row(2)),  # two events
        (row(1), Query()),
        (Query(), Query(3)),
        row(1),  # no pair
        (row(1, 0), row(1)),
        "nonsense",
    ],
)
def test_a_pair_that_is_not_valid_halts_and_shows_nothing(refused: Any) -> None:
    game = Game(Counter(1, ONE, ADD, 9), Stream(event(ADD)))
    for b in BITS:
        view = game.play(Recited([(row(1), row(1)), refused, (Query(), Query())]), b, ZeroNoise())
        assert view.halted is Side.RIGHT
        assert view.last is refused
        assert values(view) == []


def test_a_message_the_mechanism_refuses_halts() -> None:
    game = Game(Counter(1, ONE, ADD, 1), Stream(event(ADD)))
    view = game.play(Recited([(row(1), row(1))] * 3), 0, ZeroNoise())
    assert len(view.messages) == 3
    assert view.halted is Side.RIGHT


def test_a_composition_is_played_like_any_mechanism() -> None:
    leaky = leaky_mechanism(QUARTER)
    game = Game(ConcurrentComposition(), k_sparse([(Fraction(0), QUARTER)]))
    same = (Ask(1, row(0)),) * 2
    created = [(Create(leaky),) * 2] * 2
    ok = [*created, same, (Ask(0, row(0)), Ask(0, row(1)))]
    assert game.play(Recited(ok), 0, SeededNoise(1)).halted is Side.LEFT
    for refused in (
        (Ask(1, row(0)), Ask(1, row(1))),  # a second mechanism would be touched
        (Ask(0, row(0)), Ask(1, row(0))),
        (Ask(2, row(0)),) * 2,
        (Ask(-1, row(0)),) * 2,
        (Create(leaky), Create(leaky_mechanism(ONE / 2))),
        (Create(leaky), Ask(0, row(0))),
    ):
        view = game.play(Recited([*ok, refused]), 0, SeededNoise(1))
        assert view.halted is Side.RIGHT
    other = Game(ConcurrentComposition(), k_sparse([(ONE, QUARTER)]))
    assert other.play(Recited(ok), 0, SeededNoise(1)).last == ok[-1]


PLAYS = 400


def wins(game: Game, adversary: MaxDeltaAdversary) -> list[tuple[int, int | None]]:
    noise = SeededNoise(7)
    return [
        (b, adversary.guess(game.play(adversary, b, noise))) for b in BITS for _ in range(PLAYS)
    ]


def test_the_adversary_beats_the_largest_delta() -> None:
    """Booked at (0, 1/4) by the largest delta, won with 1 - (3/4)^5 = .763; never wrong. Off by .05: below 1e-3."""
    adversary = MaxDeltaAdversary(QUARTER, most=5)
    game = Game(ConcurrentComposition(), k_sparse([(Fraction(0), QUARTER)]))
    result = wins(game, adversary)
    assert all(guess in (None, b) for b, guess in result)
    for secret in BITS:
        rate = sum(guess == b == secret for b, guess in result) / PLAYS
        assert rate == pytest.approx(float(adversary.winning_probability), abs=0.07)


def test_our_bookkeeping_stops_the_adversary_at_its_second_creation() -> None:
    """[HSV] Def 5.3 with a budget of delta: what is won stays within delta."""
    adversary = MaxDeltaAdversary(QUARTER, most=5)
    game = Game(ConcurrentComposition(), k_sparse_with_delta_budget((Fraction(0),), QUARTER))
    result = wins(game, adversary)
    rate = sum(guess is not None for _, guess in result) / len(result)
    assert rate == pytest.approx(0.25, abs=0.06)
    seen = [game.play(adversary, 0, SeededNoise(s)) for s in range(20)]
    assert any(view.halted is Side.RIGHT for view in seen)
    for view in seen:
        answered = view.messages[1::2]
        created = view.messages[0 : 2 * len(answered) : 2]
        assert sum(isinstance(m[0], Create) for m in created) == 1


def test_samples_have_exactly_the_given_chances() -> None:
    noise, law = SeededNoise(3), {"a": Fraction(1, 3), "b": Fraction(1, 6), "c": Fraction(1, 2)}
    drawn = [draw_from(law, noise) for _ in range(3_000)]
    for outcome, chance in law.items():
        assert drawn.count(outcome) / 3_000 == pytest.approx(float(chance), abs=0.04)
    assert draw_from({"only": ONE}, ZeroNoise()) == "only"
    with pytest.raises(FailClosed, match="not random"):
        draw_from(law, ZeroNoise())


def test_a_sampled_machine_is_a_mechanism() -> None:
    guarantee = Guarantee(ApproxDP(ONE, QUARTER), ADD)
    mechanism, noise = Sampled(RandomizedResponse(Fraction(3), QUARTER), guarantee), SeededNoise(5)
    assert (mechanism.width, mechanism.guarantee) == (1, guarantee)
    counts = {(s, b): 0 for s in (0, 1) for b in (0, 1)}
    for _ in range(1_000):
        state, nothing = mechanism.step(mechanism.init(noise), row(1), noise)
        assert nothing is None
        answer = mechanism.step(state, Query(), noise)[1]
        assert answer is not None
        counts[pair_of(answer)] += 1
    assert counts[1, 0] == 0
    for answered, chance in {(1, 1): 0.25, (0, 1): 0.5625, (0, 0): 0.1875}.items():
        assert counts[answered] / 1_000 == pytest.approx(chance, abs=0.06)
    for message in (row(1), row(2), row(0, 0)):
        with pytest.raises(RejectedMessage):
            mechanism.step(state, message, noise)
    with pytest.raises(RejectedMessage, match="send a bit first"):
        mechanism.step(mechanism.init(noise), Query(), noise)


def pair_of(answer: IntArray) -> tuple[int, int]:
    """The two entries of an answer."""
    symbol, bit = answer.tolist()
    return symbol, bit
