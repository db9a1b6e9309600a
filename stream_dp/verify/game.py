"""The game of [HSV] Def 3.7: an adversary against V[f] o* I(b) o* M, for a secret bit b.

The identifier I(b) (Def 3.2) passes on message b of every pair; only games and audits know it. The mechanism is the
object that runs in production, a `Mechanism` or a `ConcurrentComposition`. `TracePlayer` plays an engine's recorded
messages again. Adversaries that wait for a failure show that tempting books are wrong ([HSV] Thm 5.2, 13.5); TOP has
there the role that it has in `randomized_response`. This file knows no statistics, no journal and no release.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from fractions import Fraction
from typing import Any, Final, Literal, Protocol, TypeVar

import numpy as np

from stream_dp.accounting.ledger import Ledger
from stream_dp.core.composition import Ask, CompositionMessage, ConcurrentComposition, Create
from stream_dp.core.guarantee import ApproxDP, Guarantee, Measure, RenyiDP
from stream_dp.core.mechanism import IntArray, Mechanism, Noise, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.relation import Relation
from stream_dp.core.sealed import inside_of
from stream_dp.errors import BudgetRefused, InvalidCost, RejectedMessage
from stream_dp.verify.exact.finite import Sampled
from stream_dp.verify.exact.randomized_response import LeakyBit, NoisyLeak, Symbol, bit_moment


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
        after = self.function.accept(*message) if pair else None
        return self if after is self.function else Verifier(after)


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


class Machine(Protocol[S]):
    """An interactive mechanism ([HSV] Def 2.6), or an adversary: its first message is None, its answers are pairs."""

    def init(self, noise: Noise) -> S:
        """Return the state before the first message."""
        ...

    def step(self, state: S, message: Any, noise: Noise) -> tuple[S, Any]:
        """Take one message; return the next state and the answer."""
        ...


class EndOfInteraction(Enum):
    HALT = auto()


HALT: Final = EndOfInteraction.HALT
"""An adversary's last message."""


class Side(Enum):
    LEFT = auto()
    RIGHT = auto()


@dataclass(frozen=True, slots=True)
class View:
    """The adversary's view ([HSV] Def 2.10) without its coins: all messages of a game, and the side that halted it.

    The adversary is on the left; `halted` is None where the rounds were over.
    """

    messages: tuple[Any, ...]
    halted: Side | None

    @property
    def last(self) -> Any:
        return self.messages[-1] if self.messages else None


@dataclass(frozen=True, slots=True)
class Game:
    """V[f] o* I(b) o* M for a `mechanism` M; `verifier` is the verification function f."""

    mechanism: Machine[Any]
    verifier: Relation

    def play(
        self, adversary: Machine[Any], b: Literal[0, 1], noise: Noise, rounds: int = 10_000
    ) -> View:
        """Return the adversary's view: its own pairs and the answers to their b-th messages, never b.

        A pair that is not f-valid, and a message that the mechanism refuses, halts the game unanswered.
        """
        mine, theirs = adversary.init(noise), self.mechanism.init(noise)
        verifier, answer = Verifier(self.verifier), None
        messages: list[Any] = []
        for _ in range(rounds):
            mine, pair = adversary.step(mine, answer, noise)
            if pair is HALT:
                return View(tuple(messages), Side.LEFT)
            messages.append(pair)
            verifier = verifier.verify(pair)
            if verifier.halted:
                return View(tuple(messages), Side.RIGHT)
            try:
                theirs, answer = self.mechanism.step(theirs, pair[b], noise)
            except RejectedMessage:
                return View(tuple(messages), Side.RIGHT)
            messages.append(answer)
        return View(tuple(messages), None)


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
        """Send the next message and return its answer (RejectedMessage: no mechanism takes it)."""
        draw = sent.draw
        if draw != self._open[0]:
            self._open = (
                draw,
                Undrawn() if draw is None else self._make_noise(draw.seed, draw.stream),
            )
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
class WaitingAdversary(ABC):
    """The deterministic adversary of [HSV] Thm 5.2 and Thm 13.5: it waits for a failure in at most `most` creations.

    It creates mechanisms and sends (0, 0) to each, until one fails (`Symbol.TOP`); only then it sends (0, 1), to that
    mechanism. So only one mechanism gets a pair of different messages, but its own answer chose it.
    """

    most: int = field(kw_only=True)

    @property
    @abstractmethod
    def mechanism(self) -> Mechanism[Any]:
        """The mechanism to create; it takes bits, answers TOP when it fails, and then TOP + 1 + bit."""

    def init(self, noise: Noise) -> tuple[int, int]:
        """Return the index of the mechanism, and the number of messages about it so far."""
        return 0, 0

    def step(self, state: tuple[int, int], message: Any, noise: Noise) -> tuple[Any, Any]:
        index, sent = state
        if sent == 3 and int(message[0]) != Symbol.TOP:
            index, sent = index + 1, 0
        if index == self.most or sent == 5:
            return state, HALT
        zero, one = (Ask(index, Update(np.array([bit], dtype=np.int64))) for bit in (0, 1))
        create, ask = Create(self.mechanism), Ask(index, Query())
        pairs = (create, create), (zero, zero), (ask, ask), (zero, one), (ask, ask)
        return (index, sent + 1), pairs[sent]

    def guess(self, view: View) -> int | None:
        """Return the bit that the view shows; None where no mechanism failed."""
        known = isinstance(view.last, np.ndarray) and int(view.last[0]) > Symbol.TOP
        return int(view.last[0]) - Symbol.TOP - 1 if known else None


@dataclass(frozen=True, slots=True)
class RenyiAdversary(WaitingAdversary):
    """A of [HSV] Thm 13.5, with at most `most` creations of `NoisyLeak(chance, odds)`.

    In the 1-sparse parallel composition of (alpha, eps)-RDP mechanisms the divergence between the adversary's views
    exceeds any eps' after enough creations. Whole orders only: moments e^((alpha-1) D) are then rational.

    Errata of the printed proof: (1) its last display averages (P/Q)^alpha over P = V^0; Def 13.1 averages over Q = V^1.
    So its q is too small for large eps': at alpha = 2, eps' = 8 the divergence (base 2) is 6.4. (2) Powers of 2 stand
    beside log(1 + x) <= x: bases 2 and e are mixed. (3) eps = 0 is false: (alpha, 0)-RDP mechanisms have equal laws,
    and so has their composition; the proof's p is then 0 and its adversary waits for ever. (4) The display's first line
    must have ((1-q)/q)^alpha in its second term.

    Example: each mechanism has moment 16/7 at order 2; the composition comes arbitrarily near to 43/7.
        >>> adversary = RenyiAdversary(2, Fraction(1, 4), Fraction(7), most=20)
        >>> adversary.mechanism_moment, round(float(adversary.moment), 2)
        (Fraction(16, 7), 6.13)
    """

    order: int
    chance: Fraction
    odds: Fraction

    @property
    def claim(self) -> RenyiDP:
        """The Renyi DP of each mechanism; ln(1 + x) <= x bounds its exact moment."""
        excess = (self.mechanism_moment - 1) / (self.order - 1)
        return RenyiDP(Fraction(self.order), excess)

    @property
    def mechanism(self) -> Sampled:
        """The mechanism, with its (0, delta) guarantee; delta is the mean leak."""
        delta = self.chance * (self.odds - 1) / (self.odds + 1)
        guarantee = Guarantee(ApproxDP(Fraction(0), delta), Neighbors.ADD_REMOVE)
        return Sampled(NoisyLeak(self.chance, self.odds), guarantee)

    @property
    def mechanism_moment(self) -> Fraction:
        """The exact moment of one mechanism: the charge of a book that counts touched mechanisms only."""
        return 1 + self.chance * (bit_moment(self.odds, self.order) - 1)

    @property
    def moment(self) -> Fraction:
        """The exact moment of the composition: 1 + (1 - (1 - chance)^most) (m - 1)."""
        return 1 + self.listening_probability * (bit_moment(self.odds, self.order) - 1)

    @property
    def listening_probability(self) -> Fraction:
        """1 - (1 - chance)^most: the probability that the adversary gets a noisy bit at all."""
        return 1 - (1 - self.chance) ** self.most


def leaky_mechanism(delta: Fraction) -> Sampled:
    """Return M_delta of the proof as a core mechanism, with its guarantee: (0, delta)-DP for one changed bit."""
    measure = ApproxDP(Fraction(0), delta)
    return Sampled(LeakyBit(delta), Guarantee(measure, Neighbors.ADD_REMOVE))


@dataclass(frozen=True, slots=True)
class MaxDeltaAdversary(WaitingAdversary):
    """A_delta of [HSV] Thm 5.2, with at most `most` creations.

    Example:
        >>> MaxDeltaAdversary(Fraction(1, 4), most=5).winning_probability
        Fraction(781, 1024)
    """

    delta: Fraction

    @property
    def mechanism(self) -> Sampled:
        return leaky_mechanism(self.delta)

    @property
    def winning_probability(self) -> Fraction:
        """1 - (1 - delta)^most: the probability that it knows the bit for certain."""
        return 1 - (1 - self.delta) ** self.most
