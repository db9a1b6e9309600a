"""Decomposition of a finite (eps, delta)-DP mechanism: a construction of the universality of randomized response.

[Lyu] Thm 3, with r = e^eps: M^b = delta E^b + (1 - delta) (r/(1+r) N^b + 1/(1+r) N^(1-b)), for four systems E^b, N^b.
The post-processor T of [HSV] Lemma 4.7 answers as E^b after TOP and b, as N^a after BOTTOM and a. delta E^b has a
mass D_b at each transcript. D_b is at least the control function L^b (`exact_delta`), D_b - D_(1-b) / r is at most
mu_b - mu_(1-b) / r, and the answers' D adds up to that of their transcript ([HSV] section 10.2, I to III). At a
transcript these are polygons with four fixed directions, so their Minkowski sum has the summed bounds, and the code
finds an exact point of each polygon in turn.

Lemma 5.6 adds that T need not hear the bit while the laws under b = 0 and b = 1 are equal. Then D_0 = D_1 is needed,
so the sum of max(L^0, L^1) over the answers must be at most delta. This holds where pairs may be exchanged: equal
pairs leave the states equal, so L^0 = L^1 (Cor 5.7 for our relations). As printed, for any interactive mechanism, the
lemma is false: one first answer may prepare a leak under b = 0 and another one under b = 1
(`randomized_response.TornLeak`). Rules: rationals only; laws must add up to 1.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import combinations
from typing import Any, TypeAlias

from stream_dp.verify.exact.exact_delta import ONE, ZERO, Control, Joint, by_answer, mass_of
from stream_dp.verify.exact.finite import FiniteMachine, Pairs
from stream_dp.verify.exact.randomized_response import (
    ASK,
    InteractiveRandomizedResponse,
    IRRState,
    Symbol,
)

Two: TypeAlias = tuple[Fraction, Fraction]
Answered: TypeAlias = tuple[tuple[Any, Any], ...]  # pairs of (pair of queries, answer)
_Line: TypeAlias = tuple[Fraction, Fraction, Fraction]  # a x + b y <= c


@dataclass(frozen=True, slots=True)
class Masses:
    """Masses of a transcript under b = 0 and b = 1: of M, of delta E and of (1 - delta) N."""

    whole: Two
    bad: Two
    good: Two


@dataclass(slots=True)
class Decomposition:
    """The four systems of `machine` w.r.t. `pairs` over `rounds` messages, as masses of their transcripts.

    Raises:
        ValueError: `ratio` is not above 1, or the machine is not (ln ratio, delta)-DP.
    """

    machine: FiniteMachine[Any, Any]
    pairs: Pairs
    ratio: Fraction
    delta: Fraction
    rounds: int
    masses: dict[Answered, Masses] = field(default_factory=dict)
    _behind: dict[Answered, dict[Any, list[Any]]] = field(default_factory=dict)
    _controls: tuple[Control, Control] = field(init=False)

    def __post_init__(self) -> None:
        if self.ratio <= 1:
            raise ValueError(f"e^eps is above 1 here, got {self.ratio}")
        self._controls = (
            Control(self.machine, self.ratio, 0),
            Control(self.machine, self.ratio, 1),
        )
        start = dict(self.machine.initial())
        joint = start, dict(start)
        if max(self._least(joint, self.pairs, self.rounds)) > self.delta:
            raise ValueError("the machine is not (eps, delta)-DP")
        self._grow((), joint, self.pairs, self.rounds, (self.delta, self.delta))

    def _least(self, joint: Joint, pairs: Pairs, rounds: int) -> Two:
        first, second = (each.value(joint, pairs, rounds).delta for each in self._controls)
        return first, second

    def _grow(
        self, transcript: Answered, joint: Joint, pairs: Pairs, rounds: int, bad: Two
    ) -> None:
        whole = mass_of(joint[0]), mass_of(joint[1])
        self.masses[transcript] = Masses(whole, bad, self._good(whole, bad))
        if rounds == 0:
            return
        for pair, after in pairs.moves():
            parts = by_answer(self.machine, joint, pair)
            bounds = [
                Bounds(
                    self._least(p, after, rounds - 1), (mass_of(p[0]), mass_of(p[1])), self.ratio
                )
                for p in parts.values()
            ]
            shares = shared(bad, bounds)
            self._behind.setdefault(transcript, {})[pair] = list(parts)
            for (answer, part), share in zip(parts.items(), shares, strict=True):
                self._grow((*transcript, (pair, answer)), part, after, rounds - 1, share)

    def _good(self, whole: Two, bad: Two) -> Two:
        rest = whole[0] - bad[0], whole[1] - bad[1]
        first, second = ((self.ratio * rest[b] - rest[1 - b]) / (self.ratio - 1) for b in (0, 1))
        return first, second

    def queries(self, transcript: Answered) -> Iterator[Any]:
        return iter(self._behind.get(transcript, ()))

    def answers(self, transcript: Answered, pair: Any) -> Iterator[tuple[Any, Masses]]:
        """Yield each answer to a pair of queries after a transcript, with its masses."""
        for answer in self._behind[transcript][pair]:
            yield answer, self.masses[*transcript, (pair, answer)]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds on D at an answer: D_b >= `least`_b, and D_b - D_(1-b) / ratio is at most that of `whole`."""

    least: Two
    whole: Two
    ratio: Fraction

    @property
    def tilted(self) -> Two:
        """whole_b - whole_(1-b) / ratio."""
        first, second = (self.whole[b] - self.whole[1 - b] / self.ratio for b in (0, 1))
        return first, second


def shared(total: Two, bounds: list[Bounds]) -> list[Two]:
    """Split D of a transcript among the answers that follow it; equally for both b where that is possible.

    Raises:
        ValueError: no split exists, so some bound is wrong.
    """
    equal = _equally(total, bounds)
    if equal is not None:
        return equal
    left, found = total, []
    for place, here in enumerate(bounds):
        share = _corner(left, here, bounds[place + 1 :])
        found.append(share)
        left = left[0] - share[0], left[1] - share[1]
    return found


def _equally(total: Two, bounds: list[Bounds]) -> list[Two] | None:
    """Return D_0 = D_1 at every answer, between max(L^0, L^1) and the mass; None unless all laws are equal."""
    if total[0] != total[1] or any(b.whole[0] != b.whole[1] for b in bounds):
        return None
    low, high = [max(b.least) for b in bounds], [b.whole[0] for b in bounds]
    room, need = sum(high, ZERO) - sum(low, ZERO), total[0] - sum(low, ZERO)
    if not 0 <= need <= room:
        return None
    part = need / room if room else ZERO
    return [(x := a + part * (b - a), x) for a, b in zip(low, high, strict=True)]


def _corner(left: Two, here: Bounds, rest: list[Bounds]) -> Two:
    """Return the lexicographically largest point of `here` that leaves the other answers a feasible split."""
    r = 1 / here.ratio
    lines: list[_Line] = []
    for b in (0, 1):
        unit = (ONE - b, Fraction(b))
        tilt = (ONE, -r) if b == 0 else (-r, ONE)
        least = sum((other.least[b] for other in rest), ZERO)
        most = sum((other.tilted[b] for other in rest), ZERO)
        lines += [
            (-unit[0], -unit[1], -here.least[b]),
            (*tilt, here.tilted[b]),
            (*unit, left[b] - least),
            (-tilt[0], -tilt[1], most - (tilt[0] * left[0] + tilt[1] * left[1])),
        ]
    points = [p for one, two in combinations(lines, 2) if (p := _crossing(one, two)) is not None]
    inside = [p for p in points if all(a * p[0] + b * p[1] <= c for a, b, c in lines)]
    if not inside:
        raise ValueError("no share of the bad mass is left for an answer")
    return max(inside)


def _crossing(one: _Line, two: _Line) -> Two | None:
    determinant = one[0] * two[1] - one[1] * two[0]
    if determinant == 0:
        return None
    x = (one[2] * two[1] - one[1] * two[2]) / determinant
    return x, (one[0] * two[2] - one[2] * two[0]) / determinant


@dataclass(frozen=True, slots=True)
class Branch:
    """The transcript so far with its probability, and what IRR has answered to `asked` questions."""

    transcript: Answered
    chance: Fraction
    response: IRRState
    symbol: Symbol | None = None
    bit: int | None = None
    asked: int = 0


@dataclass(frozen=True, slots=True)
class ResponsePostProcessor:
    """T of [HSV] Lemma 4.7 and 5.6, executed: in front of IRR_(eps, delta)(b) it is M^b, by transcript.

    It asks IRR once before its first answer (TOP or BOTTOM), and for the bit only when an answer's law depends on it.
    """

    parts: Decomposition

    def runs(self, bit: int) -> Iterator[Branch]:
        """Yield every branch of T with IRR(bit) behind it, at every length; a branch comes before its extensions."""
        irr = InteractiveRandomizedResponse(self.parts.ratio, self.parts.delta)
        (((_, holding), _),) = irr.step(("waiting",), bit).items()
        yield from self._behind(irr, Branch((), Fraction(1), holding))

    def law(self, bit: int) -> dict[Answered, Fraction]:
        """Return the probability of every transcript, given its queries, with IRR(bit) behind."""
        found: dict[Answered, Fraction] = {}
        for run in self.runs(bit):
            found[run.transcript] = found.get(run.transcript, ZERO) + run.chance
        return found

    def asked(self) -> dict[Answered, int]:
        """Return the most questions to IRR up to the last answer of each transcript."""
        found: dict[Answered, int] = {}
        for bit in (0, 1):
            for run in self.runs(bit):
                found[run.transcript] = max(found.get(run.transcript, 0), run.asked)
        return found

    def _behind(self, irr: InteractiveRandomizedResponse, run: Branch) -> Iterator[Branch]:
        yield run
        for pair in self.parts.queries(run.transcript):
            answers = list(self.parts.answers(run.transcript, pair))
            for heard in self._heard(irr, run, answers):
                yield from self._answered(irr, heard, pair, answers)

    def _answered(
        self,
        irr: InteractiveRandomizedResponse,
        run: Branch,
        pair: Any,
        answers: list[tuple[Any, Masses]],
    ) -> Iterator[Branch]:
        b = run.bit or 0  # where the bit was not asked for, the laws are equal
        whole = self._of(run, self.parts.masses[run.transcript])[b]
        for answer, masses in answers:
            share = self._of(run, masses)[b]
            if share:
                transcript = (*run.transcript, (pair, answer))
                after = replace(run, transcript=transcript, chance=run.chance * share / whole)
                yield from self._behind(irr, after)

    def _heard(
        self,
        irr: InteractiveRandomizedResponse,
        run: Branch,
        answers: list[tuple[Any, Masses]],
    ) -> Iterator[Branch]:
        if run.symbol is None:
            for one in self._ask(irr, run):
                yield from self._heard(irr, one, answers)
        elif run.bit is None and self._matters(run, answers):
            yield from self._ask(irr, run)
        else:
            yield run

    def _matters(self, run: Branch, answers: list[tuple[Any, Masses]]) -> bool:
        """Say whether E^0 and E^1, or N^0 and N^1, differ in the next answer."""
        here = self._of(run, self.parts.masses[run.transcript])
        each = [self._of(run, masses) for _, masses in answers]
        return any(a * here[1] != b * here[0] for a, b in each)

    @staticmethod
    def _ask(irr: InteractiveRandomizedResponse, run: Branch) -> Iterator[Branch]:
        for (answer, after), chance in irr.step(run.response, ASK).items():
            if not chance or not isinstance(answer, int):
                continue
            heard = replace(run, chance=run.chance * chance, response=after, asked=run.asked + 1)
            if run.symbol is None:
                yield replace(heard, symbol=Symbol(answer))
            else:
                yield replace(heard, bit=int(answer))

    @staticmethod
    def _of(run: Branch, masses: Masses) -> tuple[Fraction, Fraction]:
        return masses.bad if run.symbol is Symbol.TOP else masses.good
