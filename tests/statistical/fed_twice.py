"""What two twins have in common: the row of the tick that crosses is counted again in the instance after it."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray, Message, Update


@dataclass(frozen=True, slots=True)
class TwiceState:
    """The state of the right mechanism, and the row of the tick."""

    inner: Any
    row: IntArray


class FedTwice:
    """Beside a right mechanism whose state has a `count` and whose answer says which columns crossed."""

    width: int

    def init(self, noise: Noise) -> Any:
        """Nothing yet."""
        right: Any = super()
        return TwiceState(right.init(noise), np.zeros(self.width, dtype=np.int64))

    def step(self, state: Any, message: Message, noise: Noise) -> tuple[Any, IntArray | None]:
        """Adds the last row to the new instances."""
        right: Any = super()
        inner, answer = right.step(state.inner, message, noise)
        if isinstance(message, Update):
            return TwiceState(inner, message.row), None
        if answer is None:
            return TwiceState(inner, state.row), None
        return TwiceState(replace(inner, count=inner.count + answer * state.row), state.row), answer
