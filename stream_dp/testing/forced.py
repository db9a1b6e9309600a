"""A composition that forces the answers of its sub-mechanisms and records their messages.

Two copies of a composite over it get equal answers for any input, so their messages show whether neighbouring
inputs become neighbouring inputs of the parts ([HSV] Def 6.2, f to f'). An instrument for tests.
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
    """A composition that records its messages and replaces every answer.

    Answers to comparisons with public thresholds cycle through `bits`; other answers are made-up counts.
    """

    def __init__(self, bits: Sequence[int]) -> None:
        super().__init__()
        self.trace: list[CompositionMessage] = []
        self._bits = cycle(bits)

    def __setattr__(self, name: str, value: object) -> None:
        """Allow changes: this is an instrument, not a value."""
        object.__setattr__(self, name, value)

    def step(
        self, state: CompositionState, message: CompositionMessage, noise: Noise
    ) -> tuple[CompositionState, IntArray | None]:
        """Record the message, pass it on, and replace the answer."""
        self.trace.append(message)
        after, answer = ConcurrentComposition.step(self, state, message, noise)
        if not isinstance(message, Ask) or answer is None:
            return after, answer
        asked = message.message
        if not isinstance(asked, LevelsQuery) and getattr(asked, "threshold", None) is None:
            return after, np.arange(answer.size, dtype=np.int64) + len(self.trace)
        live = {**after.live, message.index: state.live[message.index]}  # stays live
        return CompositionState(after.created, live), np.array(
            list(islice(self._bits, answer.size)), dtype=np.int64
        )
