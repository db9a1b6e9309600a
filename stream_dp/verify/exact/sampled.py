"""A finite machine over bits as a core `Mechanism`, sampled exactly: what games and compositions can run.

An `Update` of one column carries the bit, and a `Query` asks for the answer to it. Rules: probabilities are
rationals and are sampled exactly, with fair bits from the signs of discrete Laplace noise. This file knows no
finite machine by name.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any, TypeVar

import numpy as np

from stream_dp.core.guarantee import Guarantee
from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray, Message, Query, Update
from stream_dp.core.row_relations import RowSpace
from stream_dp.errors import FailClosed, RejectedMessage
from stream_dp.mechanisms.row_check import checked
from stream_dp.verify.exact.finite import FiniteMachine

T = TypeVar("T", bound=Hashable)
_TRIES = 10_000


@dataclass(frozen=True, slots=True, repr=False)
class SampledState:
    """`inner`: the machine's state. `answer`: its answer to the last bit, None before the first."""

    inner: Any
    answer: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Sampled:
    """`machine` as a mechanism with this `guarantee`, which is a claim that `exact_delta` can certify."""

    machine: FiniteMachine[Any, Any]
    guarantee: Guarantee

    @property
    def width(self) -> int:
        """One column, for the bit."""
        return 1

    def takes(self, message: object) -> bool:
        """Say whether a message is in the query space: a bit, or a query for the answer."""
        return isinstance(message, Query) or (
            isinstance(message, Update) and RowSpace(1, 0, 1).holds(message.row)
        )

    def init(self, noise: Noise) -> SampledState:
        """Return the first state: nothing taken."""
        return SampledState(draw_from(self.machine.initial(), noise), None)

    def step(
        self, state: SampledState, message: Message, noise: Noise
    ) -> tuple[SampledState, IntArray | None]:
        """Take a bit, or answer the last one.

        Raises:
            RejectedMessage: the message is not a bit, the machine has halted, or there is nothing to answer yet.
        """
        if isinstance(message, Query):
            if state.answer is None:
                raise RejectedMessage("nothing to answer yet; send a bit first")
            return state, np.array(state.answer, dtype=np.int64)
        bit = int(checked(message.row, 1)[0])
        if bit > 1:
            raise RejectedMessage("this mechanism takes bits")
        answer, inner = draw_from(self.machine.step(state.inner, bit), noise)
        if answer is None:
            raise RejectedMessage("this mechanism has halted; create a new one")
        plain = answer if isinstance(answer, tuple) else (answer,)
        return SampledState(inner, tuple(map(int, plain))), None


def draw_from(law: Mapping[T, Fraction], noise: Noise) -> T:
    """Return one outcome with exactly the probabilities of `law`.

    Raises:
        FailClosed: rejection sampling never ends, because the noise is not random.
    """
    whole = lcm(*(chance.denominator for chance in law.values()))
    for _ in range(_TRIES):
        drawn = 0
        for _ in range((whole - 1).bit_length()):
            drawn = 2 * drawn + fair_bit(noise)
        for outcome, chance in law.items():
            drawn -= int(chance * whole)
            if drawn < 0:
                return outcome
    raise FailClosed("this noise is not random: no sample after 10,000 tries")


def fair_bit(noise: Noise) -> int:
    """Return the sign of a discrete Laplace sample that is not 0.

    Raises:
        FailClosed: all samples are 0.
    """
    for _ in range(_TRIES):
        sample = int(noise.laplace(Fraction(4), 1)[0])
        if sample:
            return int(sample > 0)
    raise FailClosed("this noise is not random: 10,000 samples are 0")
