"""A watch as THEORY and docs/monitors.md describe it, one place, and ways to get it wrong.

It fires where count + nu >= threshold + tau (`below`: threshold - count - 1 in the place of count - threshold), with
one-sided geometric noise: tau of its own scale drawn when it begins, nu afresh. It then begins anew, with nothing.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from stream_dp.core.mechanism import IntArray, Message, Query, Update


@dataclass(frozen=True)
class Watching:
    """What it has seen since it began, and its draw on the threshold."""

    seen: tuple[int, ...]
    lift: int


@dataclass(frozen=True)
class TheoryWatch:
    """`shares` are the epsilons of tau, of nu and of the told count; `wrong` what is done wrong."""

    threshold: int
    shares: tuple[Fraction, Fraction, Fraction]
    window: int = 0
    below: bool = False
    wrong: str = ""

    def init(self, noise: Any) -> Watching:
        """Nothing seen."""
        return Watching((), self._lift(noise))

    def _lift(self, noise: Any) -> int:
        return int(noise.geometric(1 / self.shares[0], 1)[0])

    def step(self, state: Watching, message: Message, noise: Any) -> tuple[Watching, Any]:
        """Take a tick, or compare."""
        if isinstance(message, Update):
            seen = (*state.seen, int(message.row[0]))
            return Watching(seen[-self.window :] if self.window else seen, state.lift), None
        if self.below and len(state.seen) < self.window:
            return state, self._told(0, 0)
        asked = self.threshold if message.threshold is None else message.threshold
        count, fresh = sum(state.seen), int(noise.geometric(1 / self.shares[1], 1)[0])
        margin = count - asked + 1 if self.below else asked - count
        if fresh < margin + state.lift:
            return state, self._told(0, 0)
        seen = state.seen if self.wrong == "kept window" else ()
        lift = state.lift if self.wrong == "kept threshold" else self._lift(noise)
        after = state if self.wrong == "went on" else Watching(seen, lift)
        return after, self._told(1, self._count(count, fresh, noise))

    def _count(self, count: int, fresh: int, noise: Any) -> int:
        if not self.shares[2]:
            return 0
        if self.wrong == "told what was compared":
            return count + (-fresh if self.below else fresh)
        return count + int(noise.laplace(1 / self.shares[2], 1)[0])

    def _told(self, fired: int, count: int) -> IntArray:
        return np.array([fired, count] if self.shares[2] else [fired], np.int64)


QUERY = Query()
