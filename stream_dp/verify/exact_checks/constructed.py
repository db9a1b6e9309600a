"""Construction of the reduction to randomized response: [Lyu] Thm 3 and [HSV] Lemma 4.7, 5.6 for mechanisms of the
audit.

Every theorem of concurrent composition rests on this reduction. This file computes the four systems of each
mechanism, and compares IRR behind its post-processor with the mechanism itself: the laws over all transcripts must
be exactly equal.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from stream_dp.verify.exact.decomposition import Answered, Decomposition
from stream_dp.verify.exact.finite import BIT_PAIRS, DifferAtMost, FiniteMachine, FirstPair, Pairs
from stream_dp.verify.exact.joint import ZERO
from stream_dp.verify.exact.post_processor import ResponsePostProcessor
from stream_dp.verify.exact.randomized_response import (
    ASK,
    InteractiveRandomizedResponse,
    LateResponse,
    LeakyBit,
    NoisyBits,
    RandomizedResponse,
    TornLeak,
)

TWO, THREE, TENTH = Fraction(2), Fraction(3), Fraction(1, 10)
ONE_BIT = DifferAtMost((0,), BIT_PAIRS[1:3])
ONE_WAY = DifferAtMost((0,), BIT_PAIRS[1:2])


@dataclass(frozen=True, slots=True)
class Universal:
    """A mechanism that is (ln ratio, delta)-DP w.r.t. `pairs`; `words` describe it."""

    words: str
    machine: FiniteMachine[Any, Any]
    pairs: Pairs
    ratio: Fraction
    delta: Fraction
    rounds: int

    def taken_apart(self) -> Decomposition:
        """Return its four systems."""
        return Decomposition(self.machine, self.pairs, self.ratio, self.delta, self.rounds)

    def law(self, b: int) -> dict[Answered, Fraction]:
        """Return the probability of every transcript of the mechanism, given its queries."""
        start = dict(self.machine.initial())
        return dict(played(self.machine, start, self.pairs, b, self.rounds))


@dataclass(frozen=True, slots=True)
class Constructed:
    """`decomposed`: the four systems are valid, nowhere negative, and add up to the mechanism ([Lyu] Thm 3).

    `equal`: IRR behind the post-processor is the mechanism. `asked`: the most questions to IRR while pairs are
    equal.
    """

    words: str
    decomposed: bool
    equal: bool
    asked: int


MACHINES: tuple[Universal, ...] = (
    Universal("RR(ln 3, 0.1)", RandomizedResponse(THREE, TENTH), FirstPair(BIT_PAIRS), THREE, TENTH, 1),
    Universal(
        "IRR(ln 3, 0.1)", InteractiveRandomizedResponse(THREE, TENTH), FirstPair(BIT_PAIRS, (ASK,)), THREE, TENTH, 3
    ),
    Universal("a failure told before the bit differs", LateResponse(TWO, TENTH), ONE_BIT, TWO, TENTH, 2),
    Universal("the leaky bit of Thm 5.2, at ln 2", LeakyBit(TENTH), ONE_BIT, TWO, TENTH, 2),
    Universal("three bits by RR(ln 3)", NoisyBits(THREE), ONE_BIT, THREE, ZERO, 3),
    Universal("the same at (ln 2, 1/4)", NoisyBits(THREE), ONE_BIT, TWO, Fraction(1, 4), 3),
    Universal("a coin before a leak, both ways", TornLeak(TENTH), ONE_BIT, TWO, 2 * TENTH, 2),
    Universal("a coin before a leak, one way (erratum of Lemma 5.6)", TornLeak(TENTH), ONE_WAY, TWO, TENTH, 2),
)  # fmt: skip


def played(
    machine: FiniteMachine[Any, Any], states: dict[Any, Fraction], pairs: Pairs, b: int, rounds: int,
    before: Answered = (),
) -> Iterator[tuple[Answered, Fraction]]:  # fmt: skip
    """Yield every transcript of the machine that is possible under b, with its probability."""
    yield before, sum(states.values(), ZERO)
    for pair, later in pairs.moves() if rounds else ():
        split: dict[Any, dict[Any, Fraction]] = {}
        for state, mass in states.items():
            for (answer, after), chance in machine.step(state, pair[b]).items():
                if chance:
                    part = split.setdefault(answer, {})
                    part[after] = part.get(after, ZERO) + mass * chance
        for answer, part in split.items():
            here = (*before, (pair, answer))
            yield from played(machine, part, later, b, rounds - 1, here)


def adds_up(found: Decomposition) -> bool:
    """Say whether the four systems are valid, with no negative mass, and add up to the mechanism."""
    true, false = found.ratio / (1 + found.ratio), 1 / (1 + found.ratio)
    for transcript, masses in found.masses.items():
        for b in (0, 1):
            here = masses.bad[b] + true * masses.good[b] + false * masses.good[1 - b]
            if min(masses.bad[b], masses.good[b]) < 0 or here != masses.whole[b]:
                return False
            for pair in found.queries(transcript):
                behind = [m for _, m in found.answers(transcript, pair)]
                bad, good = (
                    sum((m.bad[b] for m in behind), ZERO),
                    sum((m.good[b] for m in behind), ZERO),
                )
                if (bad, good) != (masses.bad[b], masses.good[b]):
                    return False
    return True


def constructed() -> Iterator[Constructed]:
    """Decompose every mechanism, and reconstruct it from IRR."""
    for one in MACHINES:
        found = one.taken_apart()
        processor = ResponsePostProcessor(found)
        equal = all(processor.law(b) == one.law(b) for b in (0, 1))
        asked = [n for t, n in processor.asked().items() if all(a == b for (a, b), _ in t)]
        yield Constructed(one.words, adds_up(found), equal, max(asked))
