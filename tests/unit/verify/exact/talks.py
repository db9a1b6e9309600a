"""All that an adversary may say to a mechanism between ticks, and all that it may answer: the largest odds, exact.

Rules: an adversary who chooses by the answers says, in each transcript, fixed messages. So for a pure claim the largest
odds over all messages and all answers are those of the best adversary; `loss` plays every choice at every turn. Noise
is cut at a radius, and what was cut off counts for the other side: odds that are found were certainly there.
"""

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

from stream_dp.verify.exact.enumeration import Enumerated

BASE = Fraction(1, 64)
NONE = Fraction(0)
NEAR = 0.05
"""What is cut off of noise hides less than this of a loss, at the radii that are used."""
Turn: TypeAlias = Callable[[int], Sequence[tuple[Any, Any, int]]]
"""By how many differences are left: what either copy is told (None: nothing), and how many that takes."""


@dataclass(frozen=True)
class Side:
    """One copy behind some answers: its states by their chances, and all that was cut off on the way there."""

    states: Mapping[Hashable, Fraction]
    missing: Fraction

    @property
    def least(self) -> Fraction:
        """The chance of these answers, at least."""
        return sum(self.states.values(), NONE)


@dataclass(frozen=True)
class Talk:
    """A mechanism, what may be said at each turn, and in how many events both copies differ at most."""

    mechanism: Any
    turns: Sequence[Turn]
    differences: int = 1
    radius: int = 3
    machine: Enumerated = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "machine", Enumerated(self.mechanism, BASE, self.radius))

    def loss(self) -> float:
        """The most that is certainly lost, either way, in units of -ln(BASE)."""
        return max(self.losses())

    def losses(self) -> tuple[float, float]:
        """The same, of the left copy over the right one and of the right over the left."""
        start = dict(self.machine.initial())
        side = Side(start, 1 - sum(start.values(), NONE))
        best = [Fraction(1), Fraction(1)]
        for left, right in self._heard(side, side, 0, self.differences):
            best = [max(best[0], odds(left, right)), max(best[1], odds(right, left))]
        return units(best[0]), units(best[1])

    def _heard(self, left: Side, right: Side, turn: int, rest: int) -> Iterator[tuple[Side, Side]]:
        yield left, right
        if turn == len(self.turns):
            return
        for one, other, used in self.turns[turn](rest):
            ours, missing = self._answers(left, one)
            theirs, also = self._answers(right, other)
            for answer in ours.keys() | theirs.keys():
                yield from self._heard(
                    Side(ours.get(answer, {}), missing), Side(theirs.get(answer, {}), also),
                    turn + 1, rest - used,
                )  # fmt: skip

    def _answers(
        self, side: Side, message: Any
    ) -> tuple[dict[Hashable, dict[Hashable, Fraction]], Fraction]:
        """What is heard, and what is cut off then."""
        if message is None:
            return {"": dict(side.states)}, side.missing
        result: dict[Hashable, dict[Hashable, Fraction]] = {}
        left = side.least
        for state, chance in side.states.items():
            for (answer, after), more in self.machine.step(state, message).items():
                states = result.setdefault(answer, {})
                states[after] = states.get(after, NONE) + chance * more
                left -= chance * more
        return result, side.missing + left


def odds(left: Side, right: Side) -> Fraction:
    """What is heard is at least so many times as likely on the left; the bound is weak for what is rare."""
    most = right.least + right.missing
    return left.least / most if most else Fraction(1)


def units(result: Fraction) -> float:
    return -math.log(result) / math.log(BASE)
