"""The game of [HSV] Def 3.7: an adversary against V[f] o* I(b) o* M, for a secret bit b.

The identifier I(b) (Def 3.2) passes on message b of every pair; only games and audits know it. The mechanism is the
object that runs in production, a `Mechanism` or a `ConcurrentComposition`. `TracePlayer` plays an engine's recorded
messages again. This file knows no statistics, no journal and no release.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from fractions import Fraction
from typing import Any, Final, Literal, Protocol, TypeVar

import numpy as np

from stream_dp.accounting.ledger import Ledger
from stream_dp.core.composition import Ask, CompositionMessage, ConcurrentComposition, Create
from stream_dp.core.guarantee import Measure
from stream_dp.core.mechanism import IntArray, Noise, Update
from stream_dp.core.relation import Relation
from stream_dp.core.sealed import inside_of
from stream_dp.errors import BudgetRefused, InvalidCost, RejectedMessage


@dataclass(frozen=True, slots=True)
class Verifier:
    """V[f] ([HSV] Def 3.5): it halts at the first message that is not an f-valid pair; `function` is then None.

    In production `engine.series.Guard` does this work.
    """

    function: Relation | None

    @property
    def halted(self) -> bool:
        return self.function is None

    def verify(self, message: Any) -> "Verifier":
        if self.function is None:
            return self
        pair = isinstance(message, tuple) and len(message) == 2
        return Verifier(self.function.accept(*message) if pair else None)


@dataclass(frozen=True, slots=True)
class LedgerFilter:
    """A ledger as the filter of f^Filt ([HSV] Def 12.2), for `pair_conditions.filtered`: a creation's charge must fit.

    `finite`: all mechanisms of the game have finite communication; some measures need it.
    """

    ledger: Ledger
    finite: bool = False

    def charge(self, measure: Measure) -> "LedgerFilter | None":
        """Return the filter after one more mechanism; None where the ledger refuses it, also for a cost of 0."""
        try:
            entry = self.ledger.ask("created", measure, "[HSV] Def 12.2", finite=self.finite)
            return LedgerFilter(self.ledger.charge(entry), self.finite)
        except (BudgetRefused, InvalidCost):
            return None


S = TypeVar("S")


class Side(Enum):
    LEFT = auto()
    RIGHT = auto()


class EndOfInteraction(Enum):
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
        return self._kept(self.noise.laplace(scale, size))

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        return self._kept(self.noise.geometric(scale, size))

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        return self._kept(self.noise.gaussian(variance, size))

    def _kept(self, samples: IntArray) -> IntArray:
        self.drawn.append(tuple(map(int, samples)))
        return samples


def interact(left: Machine[Any], right: Machine[Any], noise: Noise, rounds: int) -> View:
    """Return the view of `left` ([HSV] 2.2.1) after at most `rounds` messages of its own, each answered by `right`.

    `left` speaks first: its first step takes None. HALT ends the interaction. So does a message that `right` refuses,
    because it is outside the query space.
    """
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


@dataclass(frozen=True, slots=True, repr=False)
class SeedUse:
    """The noise of a step: a recorded seed (private) and the number of one of its streams."""

    seed: bytes
    stream: int


@dataclass(frozen=True, slots=True, repr=False)
class Sent:
    """A message to the composition (its row is private), and its noise; consecutive uses of one draw continue it."""

    message: CompositionMessage
    draw: SeedUse | None = None


class TracePlayer:
    """Plays an engine's messages and recorded seeds through one `ConcurrentComposition`, without the engine's code.

    Equal answers show that the engine, with its actors, cuts and restarts, was the composition of [HSV] Def 4.1, to
    which the theorems apply. `make_noise(seed, stream)` opens a noise stream.
    """

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
    """The noise of a message without a recorded seed; raises ValueError at the first sample."""

    def laplace(self, scale: Any, size: int) -> IntArray:
        if size:
            raise ValueError("this message draws noise, and no seed was recorded with it")
        return np.zeros(0, dtype=np.int64)

    geometric = gaussian = laplace


@dataclass(slots=True)
class TraceCounts:
    """How many messages of each kind a trace has; public, because they follow from ticks and series."""

    creations: int = 0
    asks: int = 0
    halts: int = 0

    def add(self, message: CompositionMessage) -> None:
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


@dataclass(frozen=True, slots=True)
class Identifier:
    """The post-processor I(b): from the left (m_0, m_1), to the right m_b; answers go back unchanged."""

    b: Literal[0, 1]

    def init(self) -> None:
        """Return None: the identifier has no state."""

    def step(self, state: None, side: Side, message: Any) -> tuple[None, Side, Any]:
        if side is Side.LEFT:
            return None, Side.RIGHT, message[self.b]
        return None, Side.LEFT, message


@dataclass(frozen=True, slots=True)
class HaltingVerifier:
    """V[f] as a post-processor: an f-valid pair goes to the right; any other message halts."""

    function: Relation

    def init(self) -> Verifier:
        return Verifier(self.function)

    def step(self, state: Verifier, side: Side, message: Any) -> tuple[Verifier, Side, Any]:
        if side is Side.RIGHT:
            return state, Side.LEFT, message
        after = state.verify(message)
        return (after, Side.LEFT, HALT) if after.halted else (after, Side.RIGHT, message)


@dataclass(frozen=True, slots=True)
class Game:
    """`mechanism` behind V[f]; `verifier` is the verification function f."""

    mechanism: Machine[Any]
    verifier: Relation

    def challenger(self, b: Literal[0, 1]) -> PostProcessed:
        """Return V[f] o* I(b) o* M."""
        chain = Chain(HaltingVerifier(self.verifier), Identifier(b))
        return PostProcessed(chain, self.mechanism)

    def play(
        self, adversary: Machine[Any], b: Literal[0, 1], noise: Noise, rounds: int = 10_000
    ) -> View:
        """Return the adversary's view: its own pairs and the answers to their b-th messages, never b."""
        return interact(adversary, self.challenger(b), noise, rounds)
