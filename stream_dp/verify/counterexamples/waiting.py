"""The adversary that waits for a failure; [HSV] Thm 5.2 and Thm 13.5 both use it.

It creates mechanisms and asks each the pair (0, 0), until one fails (`Symbol.TOP`); only then it sends the pair (0,
1), to that mechanism. So only one mechanism gets a pair of different messages, but which one was chosen by its
answer. Rules: deterministic. This file knows only the bit that it guesses.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import numpy as np

from stream_dp.core.composition import Ask, Create
from stream_dp.core.mechanism import Mechanism, Noise
from stream_dp.core.messages import Query, Update
from stream_dp.verify.exact.randomized_response import Symbol
from stream_dp.verify.games.transcript import HALT, View


class Phase(Enum):
    """The adversary's next kind of message."""

    CREATE = auto()
    SAME = auto()
    LOOK = auto()
    JUDGE = auto()
    LISTEN = auto()
    DONE = auto()


@dataclass(frozen=True, slots=True)
class WaitingAdversary(ABC):
    """Waits for a failure in at most `most` creations of the mechanism that a subclass names."""

    most: int = field(kw_only=True)

    @property
    @abstractmethod
    def mechanism(self) -> Mechanism[Any]:
        """The mechanism to create; it takes bits, answers TOP when it fails, and then TOP + 1 + bit."""

    def init(self, noise: Noise) -> tuple[Phase, int]:
        """Return the first state: nothing created."""
        return Phase.CREATE, 0

    def step(self, state: tuple[Phase, int], message: Any, noise: Noise) -> tuple[Any, Any]:
        """Return the next state and the next pair of messages, or HALT."""
        phase, created = state
        if phase is Phase.JUDGE:
            gave_up = int(message[0]) == Symbol.TOP
            if gave_up:
                return (Phase.LISTEN, created), (_bit(created, 0), _bit(created, 1))
            phase = Phase.CREATE if created < self.most else Phase.DONE
        match phase:
            case Phase.CREATE:
                return (Phase.SAME, created + 1), (Create(self.mechanism),) * 2
            case Phase.SAME:
                return (Phase.LOOK, created), (_bit(created, 0),) * 2
            case Phase.LOOK:
                return (Phase.JUDGE, created), (Ask(created - 1, Query()),) * 2
            case Phase.LISTEN:
                return (Phase.DONE, created), (Ask(created - 1, Query()),) * 2
            case _:
                return (Phase.DONE, created), HALT

    def guess(self, view: View) -> int | None:
        """Return the bit that the view shows; None where no mechanism failed."""
        last = view.transcript.last
        known = isinstance(last, np.ndarray) and int(last[0]) > Symbol.TOP
        return int(last[0]) - Symbol.TOP - 1 if known else None


def _bit(created: int, bit: int) -> Ask:
    return Ask(created - 1, Update(np.array([bit], dtype=np.int64)))
