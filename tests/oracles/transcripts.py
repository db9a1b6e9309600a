"""Black-box enumeration of the transcripts of a real mechanism, with proven probability bounds.

Written against `stream_dp.core.mechanism` only. The mechanism runs unchanged with a noise source
that takes every value of a truncated support in turn. What was cut off is kept as mass that may go
to any transcript that starts with what was already answered; so `lower <= P <= lower + slack` holds
up to float rounding (1e-12).
"""

import io
import math
import pickle
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import numpy as np

from stream_dp.core.mechanism import IntArray, Mechanism, Message, Noise
from stream_dp.core.sealed import SealedState, inside_of
from stream_dp.errors import RejectedMessage

S = TypeVar("S")
R = TypeVar("R")
Kind: TypeAlias = Literal["laplace", "geometric", "gaussian"]
Entry: TypeAlias = tuple[int, ...] | str | None
Transcript: TypeAlias = tuple[Entry, ...]
Support: TypeAlias = int | Callable[[Kind, Fraction], int]
View: TypeAlias = Callable[[tuple[int, ...]], tuple[int, ...]]
REJECTED = "rejected"


class _Opening(pickle.Pickler):
    """Writes what is sealed as well: two states are told apart by all that they hold."""

    def reducer_override(self, value: Any) -> Any:
        """Open a seal; leave the rest to pickle."""
        return (SealedState, (inside_of(value),)) if type(value) is SealedState else NotImplemented


def state_bytes(state: object) -> bytes:
    """All that a state holds, that of sub-mechanisms too, as bytes."""
    written = io.BytesIO()
    _Opening(written).dump(state)
    return written.getvalue()


def tail_support(mass: float) -> Callable[[Kind, Fraction], int]:
    """The support that leaves at most about `mass` outside for each draw, whatever its scale."""

    def radius(kind: Kind, scale: Fraction) -> int:
        if kind == "gaussian":
            return max(1, math.ceil(math.sqrt(2 * float(scale) * math.log(1 / mass))))
        return max(1, math.ceil(float(scale) * math.log(1 / mass)))

    return radius


@lru_cache(maxsize=1 << 10)
def gaussian_masses(variance: Fraction) -> tuple[float, ...]:
    """P[X = 0], P[X = 1], ... of a discrete Gaussian, summed until nothing is added to a float."""
    v = float(variance)
    weights = [math.exp(-x * x / (2 * v)) for x in range(math.ceil(40 * math.sqrt(v)) + 1)]
    whole = 2 * math.fsum(weights) - 1
    return tuple(w / whole for w in weights)


@dataclass(slots=True)
class _Choice:
    """One scalar draw on the current path; `scale` is the variance where the kind is gaussian."""

    kind: Kind
    scale: Fraction
    radius: int
    value: int

    @property
    def decay(self) -> float:
        """Ratio of the probabilities of neighbouring values."""
        return math.exp(-1 / self.scale)

    @property
    def probability(self) -> float:
        """P[the draw is `value`]."""
        if self.kind == "gaussian":
            return gaussian_masses(self.scale)[abs(self.value)]
        a = self.decay
        norm = -math.expm1(-1 / self.scale) / (1 + a if self.kind == "laplace" else 1)
        return norm * a ** abs(self.value)

    @property
    def tail(self) -> float:
        """P[the draw lies outside the support]."""
        if self.kind == "gaussian":
            return 2 * math.fsum(gaussian_masses(self.scale)[self.radius + 1 :])
        a = self.decay
        beyond = a ** (self.radius + 1)
        return 2 * beyond / (1 + a) if self.kind == "laplace" else beyond


class _Path:
    """A noise source that follows the choices so far and opens a branch at each new draw."""

    def __init__(self, support: Support) -> None:
        self._support = support
        self._choices: list[_Choice] = []
        self._at = 0
        self.probability = 1.0
        self.tails = 0.0

    def rewind(self) -> None:
        """Before each run: draw the same choices again."""
        self._at, self.probability = 0, 1.0

    def advance(self) -> bool:
        """After each run: move the last choice that can move; False when all paths were taken."""
        if self._at != len(self._choices):
            raise AssertionError("the mechanism drew less noise on the same inputs and noise")
        while self._choices and self._choices[-1].value == self._choices[-1].radius:
            self._choices.pop()
        if self._choices:
            self._choices[-1].value += 1
        return bool(self._choices)

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        """Branch over [-K..K] for each of `size` draws."""
        return np.array([self._draw("laplace", scale) for _ in range(size)], dtype=np.int64)

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        """Branch over [0..K] for each of `size` draws."""
        return np.array([self._draw("geometric", scale) for _ in range(size)], dtype=np.int64)

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        """Branch over [-K..K] for each of `size` draws."""
        return np.array([self._draw("gaussian", variance) for _ in range(size)], dtype=np.int64)

    def _draw(self, kind: Kind, scale: Fraction) -> int:
        """The value of the next draw on this path."""
        if self._at == len(self._choices):
            radius = self._support if isinstance(self._support, int) else self._support(kind, scale)
            choice = _Choice(kind, scale, radius, 0 if kind == "geometric" else -radius)
            self._choices.append(choice)
            self.tails += self.probability * choice.tail
        choice = self._choices[self._at]
        if (choice.kind, choice.scale) != (kind, scale):
            raise AssertionError("the mechanism drew other noise on the same inputs and noise")
        self._at += 1
        self.probability *= choice.probability
        return choice.value


@dataclass(frozen=True, slots=True)
class Transcripts:
    """Bounds on a law of transcripts: `lower[o] <= P[o] <= lower[o] + slack(o)`."""

    lower: dict[Transcript, float]
    tails: dict[Transcript, float]  # by the prefix answered before the draw that was cut off

    def slack(self, transcript: Transcript) -> float:
        """The cut-off mass that may belong to this transcript."""
        prefixes = (transcript[:n] for n in range(len(transcript) + 1))
        return math.fsum(self.tails.get(p, 0.0) for p in prefixes)

    def bounds(self, transcript: Transcript) -> tuple[float, float]:
        """(lower, upper) of P[transcript]."""
        low = self.lower.get(transcript, 0.0)
        return low, low + self.slack(transcript)

    def as_dict(self) -> dict[Transcript, tuple[float, float]]:
        return {o: self.bounds(o) for o in self.lower}

    @property
    def missing(self) -> float:
        """All mass that was cut off."""
        return math.fsum(self.tails.values())


@dataclass(slots=True)
class _Layer(Generic[S]):
    """All (transcript, state) pairs after some messages, with their probabilities."""

    entries: dict[tuple[Transcript, Hashable], tuple[S, float]] = field(default_factory=dict)

    def add(self, transcript: Transcript, key: Hashable, state: S, probability: float) -> None:
        """Add mass; equal states after equal answers are one."""
        old = self.entries.get((transcript, key))
        self.entries[transcript, key] = (state, probability + (old[1] if old else 0.0))


def _branches(run: Callable[[Noise], R], path: _Path) -> Iterator[tuple[R, float]]:
    """Every result of `run` with its probability; what was cut off adds up in `path.tails`."""
    going = True
    while going:
        path.rewind()
        result = run(path)
        yield result, path.probability
        going = path.advance()


def _answered(
    mechanism: Mechanism[S], state: S, message: Message, view: View | None
) -> Callable[[Noise], tuple[S, Entry]]:
    """One step as a function of the noise; a refusal is part of the transcript."""

    def run(noise: Noise) -> tuple[S, Entry]:
        try:
            after, answer = mechanism.step(state, message, noise)
        except RejectedMessage:
            return state, REJECTED
        if answer is None:
            return after, None
        entry = tuple(int(v) for v in np.ravel(answer))
        return after, view(entry) if view else entry

    return run


def enumerate_transcripts(
    make_mechanism: Callable[[], Mechanism[S]],
    messages: Sequence[Message],
    support: Support,
    *,
    view: View | None = None,
    key: Callable[[S], Hashable] = state_bytes,
    limit: int = 1_000_000,
) -> Transcripts:
    """Run a mechanism on `messages` with every noise value of the support.

    Args:
        make_mechanism: builds the mechanism under test.
        messages: one copy's messages.
        support: K for every draw, or a function of the draw's kind and scale (`tail_support`).
        view: post-processing of each answer (say, clamping), to merge rare transcripts.
        key: equal keys must mean equal states; states are merged and checked for mutation by it.
        limit: the number of runs of `step` after which to give up.

    Raises:
        AssertionError: `step` mutated the state it was given, or did not replay.
        RuntimeError: more than `limit` branches.
    """
    mechanism = make_mechanism()
    tails: dict[Transcript, float] = defaultdict(float)
    layer: _Layer[S] = _Layer()
    path = _Path(support)
    for state, p in _branches(mechanism.init, path):
        layer.add((), key(state), state, p)
    tails[()] += path.tails
    left = limit
    for message in messages:
        after: _Layer[S] = _Layer()
        for (transcript, before), (state, p) in layer.entries.items():
            path = _Path(support)
            for (new, entry), q in _branches(_answered(mechanism, state, message, view), path):
                after.add((*transcript, entry), key(new), new, p * q)
                left -= 1
            tails[transcript] += p * path.tails
            _check(before == key(state), left)
        layer = after
    lower: dict[Transcript, float] = defaultdict(float)
    for (transcript, _), (_, p) in layer.entries.items():
        lower[transcript] += p
    return Transcripts(dict(lower), dict(tails))


def _check(unchanged: bool, left: int) -> None:
    """The two reasons to stop an enumeration."""
    if not unchanged:
        raise AssertionError("step mutated the state it was given")
    if left < 0:
        raise RuntimeError(
            "too many branches: use a larger epsilon, a shorter support or fewer messages"
        )


@dataclass(frozen=True, slots=True)
class LossBounds:
    """Bounds on the largest |ln(P_a / P_b)| over transcripts.

    `lower` is a loss that certainly occurs: above a claim it refutes the claim. `upper` holds for
    the covered transcripts, those whose slack is small against their probability; they carry at
    least mass `covered`.
    """

    lower: float
    upper: float
    covered: float


def loss_bounds(a: Transcripts, b: Transcripts, tolerance: float = 1e-3) -> LossBounds:
    """Compare two enumerations of the same mechanism on neighbouring messages, both ways.

    A transcript is covered when both slacks are at most `tolerance` times the lower bound.
    """
    lower, upper, covered = 0.0, 0.0, [0.0, 0.0]
    for transcript in {**a.lower, **b.lower}:
        low_a, high_a = a.bounds(transcript)
        low_b, high_b = b.bounds(transcript)
        lower = max(lower, _log(low_a, high_b), _log(low_b, high_a))
        if high_a <= (1 + tolerance) * low_a and high_b <= (1 + tolerance) * low_b:
            upper = max(upper, math.log(high_a / low_b), math.log(high_b / low_a))
            covered[0] += low_a
            covered[1] += low_b
    return LossBounds(lower, upper, min(covered))


def _log(numerator: float, denominator: float) -> float:
    """ln of a ratio of bounds; 0 in the numerator says nothing, 0 in the denominator everything."""
    if numerator == 0:
        return 0.0
    return math.inf if denominator == 0 else math.log(numerator / denominator)
