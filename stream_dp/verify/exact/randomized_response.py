"""The universal mechanisms: randomized response, its interactive form, and the leaky bit of the counterexample.

Rules: `odds` is e^eps, an exact rational, so that every law is exact. TOP always means that the secret is revealed,
as in [HSV] Def 2.3. Def 2.9 and section 5.1, as printed, exchange the two symbols; the joint law of IRR's two answers
would then not be that of RR.
"""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from typing import TypeAlias

from stream_dp.verify.exact.finite import Law

ONE = Fraction(1)
HALTED: Law[str] = {(None, "halted"): ONE}


class Symbol(IntEnum):
    """The first half of a randomized response."""

    BOTTOM = 0  # what follows is noisy
    TOP = 1  # what follows is the secret itself


def noisy_bit(bit: int, odds: Fraction) -> dict[int, Fraction]:
    """Return RR_(ln odds, 0): the bit with probability odds / (1 + odds), else the other bit."""
    return {bit: odds / (1 + odds), 1 - bit: 1 / (1 + odds)}


def bit_moment(odds: Fraction, order: int) -> Fraction:
    """Return e^((order-1) D) of a noisy bit: the sum of P^order Q^(1-order) over its values; symmetric."""
    return (odds**order + odds ** (1 - order)) / (1 + odds)


@dataclass(frozen=True, slots=True)
class RandomizedResponse:
    """RR_(eps, delta) ([HSV] Def 2.3): answers a bit with (TOP, bit), or with (BOTTOM, noisy bit); then halts.

    TOP has probability delta. Privacy claim: (ln odds, delta)-DP, exactly.
    """

    odds: Fraction
    delta: Fraction = Fraction(0)

    def initial(self) -> Mapping[str, Fraction]:
        return {"waiting": ONE}

    def step(self, state: str, query: int) -> Law[str]:
        if state == "halted":
            return HALTED
        law: dict[tuple[Hashable, str], Fraction] = {}
        law[(Symbol.TOP, query), "halted"] = self.delta
        for bit, chance in noisy_bit(query, self.odds).items():
            law[(Symbol.BOTTOM, bit), "halted"] = (1 - self.delta) * chance
        return law


IRRState: TypeAlias = tuple[str] | tuple[str, int] | tuple[str, int, Symbol]
ASK = "q*"


@dataclass(frozen=True, slots=True)
class InteractiveRandomizedResponse:
    """IRR_(eps, delta) ([HSV] Def 2.9) as a continual mechanism; the first message is its initial state, a bit.

    The answer to the first q* is TOP (probability delta) or BOTTOM, the answer to the second q* the bit itself after
    TOP and a noisy bit after BOTTOM; the third q* halts.

    Errata: the symbols have the roles of Def 2.3, and the second bullet of Def 2.9 is the second q*, not the first.
    Privacy claim: (ln odds, delta)-DP, exactly; its two answers together have the law of RR's answer.
    """

    odds: Fraction
    delta: Fraction = Fraction(0)

    def initial(self) -> Mapping[IRRState, Fraction]:
        return {("waiting",): ONE}

    def step(self, state: IRRState, query: int | str) -> Law[IRRState]:
        match state, query:
            case ("waiting",), int(bit):
                return {(True, ("holding", bit)): ONE}
            case ("holding", int(bit)), "q*":
                return {
                    (Symbol.TOP, ("chosen", bit, Symbol.TOP)): self.delta,
                    (Symbol.BOTTOM, ("chosen", bit, Symbol.BOTTOM)): 1 - self.delta,
                }
            case ("chosen", int(bit), symbol), "q*":
                law = {bit: ONE} if symbol is Symbol.TOP else noisy_bit(bit, self.odds)
                return {(answer, ("halted",)): chance for answer, chance in law.items()}
            case _:
                return {(None, ("halted",)): ONE}


@dataclass(frozen=True, slots=True)
class LateResponse:
    """RR of its second bit, after the answer TOP or BOTTOM to the first bit, whatever that bit was.

    Privacy claim: (ln odds, delta)-DP for one changed bit, exactly. An adversary learns of the failure before it
    decides where to put the change, so k-sparse composition pays for the delta of every creation ([HSV] Thm 5.4 with
    equality).
    """

    odds: Fraction
    delta: Fraction

    def initial(self) -> Mapping[str, Fraction]:
        return {"new": ONE}

    def step(self, state: str, query: int) -> Law[str]:
        if state == "halted":
            return HALTED
        if state == "new":
            return {(Symbol.TOP, "top"): self.delta, (Symbol.BOTTOM, "bottom"): 1 - self.delta}
        law = {query: ONE} if state == "top" else noisy_bit(query, self.odds)
        return {(bit, "halted"): chance for bit, chance in law.items()}


@dataclass(frozen=True, slots=True)
class NoisyBits:
    """Answers every bit by randomized response: (ln odds)-DP for one changed bit, with no memory."""

    odds: Fraction

    def initial(self) -> Mapping[None, Fraction]:
        return {None: ONE}

    def step(self, state: None, query: int) -> Law[None]:
        return {(bit, None): chance for bit, chance in noisy_bit(query, self.odds).items()}


@dataclass(frozen=True, slots=True)
class Ladder:
    """Answers "yes" with probability p_x to x events: p_0 = 0, p_(x+1) = odds p_x + delta.

    Privacy claim: (ln odds, delta)-DP for one event more or less, met at every x; the group rule is met by x = k.
    """

    odds: Fraction
    delta: Fraction

    def initial(self) -> Mapping[None, Fraction]:
        return {None: ONE}

    def step(self, state: None, query: int) -> Law[None]:
        yes = Fraction(0)
        for _ in range(query):
            yes = self.odds * yes + self.delta
        return {("yes", None): yes, ("no", None): 1 - yes}


@dataclass(frozen=True, slots=True)
class TornLeak:
    """Answers its first bit by a coin, whatever the bit; the second bit may leak: a 0 after tails, or a 1 after heads.

    With probability 2 delta it answers "zero" to a 0 after tails and "one" to a 1 after heads, else "nothing".

    Privacy claim: (ln odds, delta)-DP where the second pair may be (0, 1) and not (1, 0), for odds (1 - 2 delta) >=
    1. "zero" can only come from a failure of IRR (probability delta) under b = 0. So tails alone must follow that
    failure, and heads alone under b = 1: a post-processor needs the bit for the coin, though no pair has differed.
    [HSV] Lemma 5.6 says that it does not. Where (1, 0) is allowed too, the claim is (ln odds, 2 delta), and a
    post-processor does not need the bit.
    """

    delta: Fraction

    def initial(self) -> Mapping[str, Fraction]:
        return {"new": ONE}

    def step(self, state: str, query: int) -> Law[str]:
        if state == "new":
            return {("tails", "tails"): ONE / 2, ("heads", "heads"): ONE / 2}
        if state == "halted":
            return HALTED
        leak = {("tails", 0): "zero", ("heads", 1): "one"}.get((state, query))
        if leak is None:
            return {("nothing", "halted"): ONE}
        return {("nothing", "halted"): 1 - 2 * self.delta, (leak, "halted"): 2 * self.delta}


@dataclass(frozen=True, slots=True)
class RareAnswer:
    """Takes a bit and answers 1 with probability `first` to 0 and `second` to 1, else 0; then halts.

    Privacy claim: tCDP where 1 is rare and much rarer for one bit: the loss is large, but rarely.
    """

    first: Fraction
    second: Fraction

    def initial(self) -> Mapping[str, Fraction]:
        return {"waiting": ONE}

    def step(self, state: str, query: int) -> Law[str]:
        if state == "halted":
            return HALTED
        return {(answer, "halted"): self.chance(answer, query) for answer in (0, 1)}

    def chance(self, answer: int, bit: int) -> Fraction:
        heads = self.second if bit else self.first
        return heads if answer else 1 - heads

    def exceeds(self, ratio: Fraction) -> Fraction:
        """Return the exact probability, given the bit 1, that the privacy loss exceeds ln(ratio)."""
        chances = [(self.chance(answer, 1), self.chance(answer, 0)) for answer in (0, 1)]
        return sum((p for p, q in chances if p > ratio * q), Fraction(0))

    def divergence(self, order: float) -> float:
        """Return the Renyi divergence at an order, the larger of both directions, as a float."""
        laws = [(float(p), 1 - float(p)) for p in (self.first, self.second)]
        moments = (
            math.fsum(p**order * q ** (1 - order) for p, q in zip(left, right, strict=True))
            for left, right in (laws, laws[::-1])
        )
        return math.log(max(moments)) / (order - 1)


LeakyState: TypeAlias = tuple[int, Symbol]


@dataclass(frozen=True, slots=True)
class LeakyBit:
    """M_delta of [HSV] Thm 5.2 takes at most two bits, and answers TOP with probability delta, else BOTTOM.

    That answer does not depend on the bit. After TOP it answers with the bit itself, as TOP + 1 + bit.

    Privacy claim: (0, delta)-DP where the two sequences of bits differ in at most one place.
    """

    delta: Fraction

    def initial(self) -> Mapping[LeakyState, Fraction]:
        return {(0, Symbol.BOTTOM): ONE}

    def step(self, state: LeakyState, query: int) -> Law[LeakyState]:
        taken, symbol = state
        if taken == 2:
            return {(None, state): ONE}
        if symbol is Symbol.TOP:
            law = self.leaked(query)
            return {(Symbol.TOP + 1 + bit, (2, symbol)): chance for bit, chance in law.items()}
        chances = {Symbol.TOP: self.delta, Symbol.BOTTOM: 1 - self.delta}
        return {(int(s), (taken + 1, s)): chance for s, chance in chances.items()}

    def leaked(self, bit: int) -> Mapping[int, Fraction]:
        """Return the law of the bit that is answered after TOP."""
        return {bit: ONE}


@dataclass(frozen=True, slots=True)
class NoisyLeak(LeakyBit):
    """M of [HSV] Thm 13.5: a leaky bit that answers a noisy bit after TOP, right with probability odds / (1 + odds).

    Privacy claim: moment 1 + delta * (m - 1) at every order, where m is the moment of the noisy bit, for one
    changed bit; also (0, delta * (odds - 1) / (odds + 1))-DP, and pure ln(odds)-DP.
    """

    odds: Fraction

    def leaked(self, bit: int) -> Mapping[int, Fraction]:
        return noisy_bit(bit, self.odds)
