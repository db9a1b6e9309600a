"""A composition whose sub-mechanisms answer as they are told, and which remembers what they were sent.

Two copies of a composite over it get equal answers whatever their input, so that what they send shows whether
neighbouring inputs become neighbouring inputs of the parts ([HSV] Def 6.2, f to f'). A test-time instrument.
"""

from collections.abc import Sequence
from itertools import cycle, islice

import numpy as np

from stream_dp.core.composition import (
    Ask,
    CompositionMessage,
    CompositionState,
    ConcurrentComposition,
)
from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray
from stream_dp.mechanisms.watches.watch_messages import LevelsQuery


class Forced(ConcurrentComposition):
    """A composition that remembers its messages and answers every query itself.

    Answers to a comparison with public thresholds follow `bits` over and over; others are made-up counts.
    """

    def __init__(self, bits: Sequence[int]) -> None:
        super().__init__()
        self.trace: list[CompositionMessage] = []
        self._bits = cycle(bits)

    def __setattr__(self, name: str, value: object) -> None:
        """An instrument, not a value: it may change."""
        object.__setattr__(self, name, value)

    def step(
        self, state: CompositionState, message: CompositionMessage, noise: Noise
    ) -> tuple[CompositionState, IntArray | None]:
        """Record, pass on, and replace the answer."""
        self.trace.append(message)
        after, answer = ConcurrentComposition.step(self, state, message, noise)
        if not isinstance(message, Ask) or answer is None:
            return after, answer
        asked = message.message
        if not isinstance(asked, LevelsQuery) and getattr(asked, "threshold", None) is None:
            return after, np.arange(answer.size, dtype=np.int64) + len(self.trace)
        live = {**after.live, message.index: state.live[message.index]}  # it did not halt by itself
        return CompositionState(after.created, live), np.array(
            list(islice(self._bits, answer.size)), dtype=np.int64
        )
