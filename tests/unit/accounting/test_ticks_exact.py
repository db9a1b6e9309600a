"""Time: the largest load of a tick against the exact privacy of mechanisms with lives of their own.

An adversary creates three mechanisms, sends each a bit per tick of its life, and lets one tick of its choice, seen what
came before, differ for every mechanism alive then.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from stream_dp.accounting.derive import derive
from stream_dp.accounting.directed import Interval
from stream_dp.accounting.rules.leaf import leaf
from stream_dp.accounting.situations import Alive, Ticks
from stream_dp.audit.exact_delta import worst_ratio
from stream_dp.audit.finite import FiniteComposition, Law, Make, Send
from stream_dp.audit.randomized_response import noisy_bit
from stream_dp.core.guarantee import Guarantee, PureDP, differential_privacy
from stream_dp.core.neighbors import Neighbors

ODDS = (Fraction(3), Fraction(2), Fraction(5, 2))
LIVES = (Alive(0, 1), Alive(1, 2), Alive(2, None))
LAST = 2


@dataclass(frozen=True)
class NoisyBits:
    """Answers every bit by randomized response: (ln odds)-DP where one bit differs."""

    odds: Fraction

    def initial(self) -> Mapping[int, Fraction]:
        """No state."""
        return {0: Fraction(1)}

    def step(self, state: int, query: int) -> Law[int]:
        """Answer a bit."""
        return {(answer, state): p for answer, p in noisy_bit(query, self.odds).items()}


def schedule() -> tuple[tuple[int, Make | int], ...]:
    """(tick, creation or index of the mechanism asked), in order."""
    steps: list[tuple[int, Make | int]] = []
    for tick in range(LAST + 1):
        steps += [(tick, Make(i)) for i, life in enumerate(LIVES) if life.first == tick]
        steps += [
            (tick, i)
            for i, life in enumerate(LIVES)
            if life.first <= tick and (life.last is None or tick <= life.last)
        ]
    return tuple(steps)


@dataclass(frozen=True)
class OneTick:
    """Messages by schedule; pairs may differ in one tick only."""

    steps: tuple[tuple[int, Make | int], ...]
    differs: int | None = None

    def moves(self) -> Iterator[tuple[tuple[Any, Any], "OneTick"]]:
        """The pairs allowed next."""
        if not self.steps:
            return
        (tick, what), after = self.steps[0], replace(self, steps=self.steps[1:])
        if isinstance(what, Make):
            yield (what, what), after
            return
        yield (Send(what, 0), Send(what, 0)), after
        if self.differs in (None, tick):
            yield (Send(what, 0), Send(what, 1)), replace(after, differs=tick)


def test_the_largest_load_is_the_exact_privacy_loss() -> None:
    """Loads 3, 3 x 2 = 6, 2 x 5/2 = 5 as odds: exactly 6, and neither their product nor what is alive at the end."""
    machine = FiniteComposition(tuple(NoisyBits(o) for o in ODDS))
    exact = worst_ratio(machine, OneTick(schedule()), len(schedule()))
    assert exact == 6
    relation = Neighbors.ADD_REMOVE
    parts = tuple(
        leaf("bits", Guarantee(PureDP(Interval.of(o).ln().upper), relation), "proof") for o in ODDS
    )
    found = differential_privacy(derive(parts, Ticks("time", LIVES)).guarantee.measure)
    claimed = Interval.of(found.epsilon).exp()
    assert exact <= claimed.upper <= exact * (1 + Fraction(1, 10**40))


def test_a_halt_that_frees_past_ticks_is_caught() -> None:
    """The twin drops a halted mechanism from the books: at tick 2 it says 2 x 5/2 = 5, and 6 was lost at tick 1."""
    machine = FiniteComposition(tuple(NoisyBits(o) for o in ODDS))
    exact = worst_ratio(machine, OneTick(schedule()), len(schedule()))
    still = [
        o for o, life in zip(ODDS, LIVES, strict=True) if life.last is None or life.last >= LAST
    ]
    assert still[0] * still[1] == 5 < exact
