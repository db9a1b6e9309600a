"""A trace: the messages to an engine's mechanisms, as messages to one concurrent composition, played once more.

Rules: messages and recorded seeds go in, answers come out; the engine's own code has no part in it. So equal
answers show that the engine, with its actors, cuts and restarts, was the composition of [HSV] Def 4.1, to which the
theorems apply. Rows and seeds are private. This file knows no journal and no release.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from stream_dp.core.composition import Ask, CompositionMessage, ConcurrentComposition, Create
from stream_dp.core.mechanism import IntArray, Noise, Update
from stream_dp.core.serial import inside_of


@dataclass(frozen=True, slots=True, repr=False)
class SeedUse:
    """The noise of a step: a recorded seed and the number of one of its streams."""

    seed: bytes
    stream: int


@dataclass(frozen=True, slots=True, repr=False)
class Sent:
    """A message to the composition, and the noise for its answer; consecutive uses of one draw continue it."""

    message: CompositionMessage
    draw: SeedUse | None = None


class TracePlayer:
    """Plays a trace through `ConcurrentComposition`; `make_noise(seed, stream)` opens a noise stream."""

    def __init__(self, make_noise: Callable[[bytes, int], Noise]) -> None:
        self._make_noise = make_noise
        self._composition = ConcurrentComposition()
        self._state = self._composition.init()
        self._open: tuple[SeedUse | None, Noise] = (None, Undrawn())

    def play(self, sent: Sent) -> IntArray | None:
        """Send the next message and return its answer.

        Raises:
            RejectedMessage: no mechanism takes the message.
        """
        if sent.draw != self._open[0]:
            draw = sent.draw
            noise = Undrawn() if draw is None else self._make_noise(draw.seed, draw.stream)
            self._open = draw, noise
        self._state, answer = self._composition.step(self._state, sent.message, self._open[1])
        return answer

    def state(self, index: int) -> Any:
        """Return the state of a live mechanism (private), for comparison with a recorded one."""
        return inside_of(self._state.live[index].state)

    @property
    def live(self) -> tuple[int, ...]:
        """The indices of the mechanisms that have not been halted."""
        return tuple(self._state.live)


class Undrawn:
    """The noise of a message that draws no noise."""

    def laplace(self, scale: Any, size: int) -> IntArray:
        """Refuse.

        Raises:
            ValueError: no seed was recorded with this message.
        """
        if size:
            raise ValueError("this message draws noise, and no seed was recorded with it")
        return np.zeros(0, dtype=np.int64)

    geometric = gaussian = laplace


@dataclass(slots=True)
class TraceCounts:
    """Numbers of messages of each kind in a trace; public, because they follow from ticks and series."""

    creations: int = 0
    asks: int = 0
    halts: int = 0

    def add(self, message: CompositionMessage) -> None:
        """Count one more message."""
        if isinstance(message, Create):
            self.creations += 1
        elif isinstance(message, Ask):
            self.asks += 1
        else:
            self.halts += 1


def same_tick(message: CompositionMessage, row: IntArray) -> CompositionMessage:
    """Return an update of the same mechanism with another row."""
    if not isinstance(message, Ask) or not isinstance(message.message, Update):
        raise TypeError("only an update has a row")
    return Ask(message.index, Update(row))
