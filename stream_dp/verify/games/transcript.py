"""Two interactive mechanisms that talk: interaction, transcript and view ([HSV] 2.2.1, Def 2.10), post-processing.

Rules: the left machine speaks first (it is stepped on nothing) and the two take turns until one sends HALT. A
message that a mechanism refuses halts the interaction, because it is outside the query space. This file knows no
bit and no pair.
"""

from dataclasses import dataclass, field
from enum import Enum, auto
from fractions import Fraction
from typing import Any, Final, Protocol, TypeVar

from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray
from stream_dp.errors import RejectedMessage

S = TypeVar("S")


class Side(Enum):
    """The left or the right mechanism of an interaction."""

    LEFT = auto()
    RIGHT = auto()


class EndOfInteraction(Enum):
    """The message that ends an interaction."""

    HALT = auto()


HALT: Final = EndOfInteraction.HALT


class Machine(Protocol[S]):
    """An interactive mechanism ([HSV] Def 2.6); every core `Mechanism` and `ConcurrentComposition` is one."""

    def init(self, noise: Noise) -> S:
        """Return the state before the first message."""
        ...

    def step(self, state: S, message: Any, noise: Noise) -> tuple[S, Any]:
        """Take one message; return the next state and the answer."""
        ...


class PostProcessor(Protocol[S]):
    """An interactive post-processing mechanism between a left and a right one ([HSV] Def 2.14)."""

    def init(self) -> S:
        """Return the state before the first message."""
        ...

    def step(self, state: S, side: Side, message: Any) -> tuple[S, Side, Any]:
        """Take a message from `side`; return the next state, a message and the side that receives it."""
        ...


@dataclass(frozen=True, slots=True)
class PostProcessed:
    """The machine P o* M ([HSV] Def 2.15, Algorithm 1): `processor` stands in front of `machine`."""

    processor: PostProcessor[Any]
    machine: Machine[Any]

    def init(self, noise: Noise) -> tuple[Any, Any]:
        """Return the states of the processor and of the machine."""
        return self.processor.init(), self.machine.init(noise)

    def step(
        self, state: tuple[Any, Any], message: Any, noise: Noise
    ) -> tuple[tuple[Any, Any], Any]:
        """Pass messages between processor and machine until one is for the left."""
        outer, inner = state
        outer, side, message = self.processor.step(outer, Side.LEFT, message)
        while side is Side.RIGHT:
            inner, answer = self.machine.step(inner, message, noise)
            if answer is HALT:
                return (outer, inner), HALT
            outer, side, message = self.processor.step(outer, Side.RIGHT, answer)
        return (outer, inner), message


@dataclass(frozen=True, slots=True)
class Chain:
    """The post-processor P1 o* P2 ([HSV] Def 2.17, Algorithm 2): `left` speaks to the left, `right` to the right."""

    left: PostProcessor[Any]
    right: PostProcessor[Any]

    def init(self) -> tuple[Any, Any]:
        """Return the states of both processors."""
        return self.left.init(), self.right.init()

    def step(
        self, state: tuple[Any, Any], side: Side, message: Any
    ) -> tuple[tuple[Any, Any], Side, Any]:
        """Pass messages between the two processors until one leaves the pair."""
        first, second = state
        at_left = side is Side.LEFT
        while True:
            if at_left:
                first, side, message = self.left.step(first, side, message)
                if side is Side.LEFT:
                    return (first, second), Side.LEFT, message
                side = Side.LEFT  # the other processor receives it from its left
            else:
                second, side, message = self.right.step(second, side, message)
                if side is Side.RIGHT:
                    return (first, second), Side.RIGHT, message
                side = Side.RIGHT
            at_left = not at_left


@dataclass(frozen=True, slots=True)
class Transcript:
    """The messages m_1, m_2, ... of an interaction, and the side that halted it (None: the rounds were over)."""

    messages: tuple[Any, ...]
    halted: Side | None

    @property
    def last(self) -> Any:
        """The last message, or None."""
        return self.messages[-1] if self.messages else None


@dataclass(frozen=True, slots=True)
class View:
    """The left machine's view: its own coins, and the transcript ([HSV] Def 2.10)."""

    coins: tuple[tuple[int, ...], ...]
    transcript: Transcript


@dataclass(slots=True)
class RecordedNoise:
    """Passes noise on and records the drawn samples."""

    noise: Noise
    drawn: list[tuple[int, ...]] = field(default_factory=list)

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        """Return samples of the inner noise."""
        return self._kept(self.noise.laplace(scale, size))

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        """Return samples of the inner noise."""
        return self._kept(self.noise.geometric(scale, size))

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        """Return samples of the inner noise."""
        return self._kept(self.noise.gaussian(variance, size))

    def _kept(self, samples: IntArray) -> IntArray:
        self.drawn.append(tuple(map(int, samples)))
        return samples


def interact(left: Machine[Any], right: Machine[Any], noise: Noise, rounds: int) -> View:
    """Return the view of `left` after at most `rounds` messages of its own, each answered by `right`."""
    coins = RecordedNoise(noise)
    mine, theirs = left.init(coins), right.init(noise)
    messages: list[Any] = []
    answer: Any = None
    halted = None
    for _ in range(rounds):
        mine, message = left.step(mine, answer, coins)
        if message is HALT:
            halted = Side.LEFT
            break
        messages.append(message)
        try:
            theirs, answer = right.step(theirs, message, noise)
        except RejectedMessage:
            answer = HALT
        if answer is HALT:
            halted = Side.RIGHT
            break
        messages.append(answer)
    return View(tuple(coins.drawn), Transcript(tuple(messages), halted))
