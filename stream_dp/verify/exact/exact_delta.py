"""The exact privacy of a finite mechanism against every adaptive adversary, by backward recursion over transcripts.

L_t of a transcript is the supremum over the next f-valid pair of queries of the sum over its answers of L_(t+1), and
at the end max(0, mu_b - e^eps mu_(1-b)) ([HSV] Def 10.2, 10.3; Claim 10.5 and Lemma 5.6: sup L_1 is the least delta).
The supremum is taken after each answer, so deterministic adversaries suffice. Hidden states are carried as the joint
measure, an exact mass per state under b = 0 and under b = 1. The value is homogeneous in it, so it is memoised on the
measure scaled to mass 1.

`Decomposition` takes a finite (eps, delta)-DP mechanism apart, as the universality of randomized response says.
[Lyu] Thm 3, with r = e^eps: M^b = delta E^b + (1 - delta) (r/(1+r) N^b + 1/(1+r) N^(1-b)), for four systems E^b, N^b.
The post-processor T of [HSV] Lemma 4.7 answers as E^b after TOP and b, as N^a after BOTTOM and a. delta E^b has a
mass D_b at each transcript. D_b is at least the control function L^b, D_b - D_(1-b) / r is at most mu_b - mu_(1-b) / r,
and the answers' D adds up to that of their transcript ([HSV] section 10.2, I to III). At a transcript these are
polygons with four fixed directions, so their Minkowski sum has the summed bounds, and the code finds an exact point of
each polygon in turn.

Lemma 5.6 adds that T need not hear the bit while the laws under b = 0 and b = 1 are equal. Then D_0 = D_1 is needed,
so the sum of max(L^0, L^1) over the answers must be at most delta. This holds where pairs may be exchanged: equal
pairs leave the states equal, so L^0 = L^1 (Cor 5.7 for our relations). As printed, for any interactive mechanism, the
lemma is false: one first answer may prepare a leak under b = 0 and another one under b = 1
(`randomized_response.TornLeak`).

Rules: rationals only, nothing is rounded; laws must add up to 1; noise is never truncated silently. This file knows no
mechanism.
"""

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import combinations
from typing import Any, TypeAlias

from stream_dp.verify.exact.finite import FiniteMachine, Pairs
from stream_dp.verify.exact.randomized_response import (
    ASK,
    InteractiveRandomizedResponse,
    IRRState,
    Symbol,
)

Measure: TypeAlias = dict[Any, Fraction]
Joint: TypeAlias = tuple[Measure, Measure]
Two: TypeAlias = tuple[Fraction, Fraction]
Amount: TypeAlias = Fraction | float  # inf where one copy can answer what the other cannot
ZERO, ONE = Fraction(0), Fraction(1)


def by_answer(
    machine: FiniteMachine[Any, Any], joint: Joint, pair: tuple[Any, Any]
) -> Mapping[Hashable, Joint]:
    """Return the joint measure after `pair`, split by the answer."""
    split: dict[Hashable, Joint] = {}
    for b in (0, 1):
        for state, mass in joint[b].items():
            for (answer, after), chance in machine.step(state, pair[b]).items():
                if chance:
                    part = split.setdefault(answer, ({}, {}))[b]
                    part[after] = part.get(after, ZERO) + mass * chance
    return split


def masses(joint: Joint) -> Two:
    return sum(joint[0].values(), ZERO), sum(joint[1].values(), ZERO)


def beginning(machine: FiniteMachine[Any, Any]) -> Joint:
    start = machine.initial()
    return dict(start), dict(start)


@dataclass(slots=True)
class Worst:
    """Suprema over all adversaries; each of the figures that `end` reads off a transcript's two masses by itself.

    `additive`: figures add up over the answers and are homogeneous of degree 1 in the masses; else the largest
    answer counts, and the degree is 0. `cut`: the laws may leave out some mass (else ValueError where one does).
    """

    machine: FiniteMachine[Any, Any]
    end: Callable[[Two], tuple[Any, ...]]
    additive: bool = True
    cut: bool = False
    memo: dict[Hashable, tuple[Any, ...]] = field(default_factory=dict)

    def value(self, joint: Joint, pairs: Pairs, rounds: int) -> tuple[Any, ...]:
        """Return the suprema at a joint measure before `rounds` more messages."""
        mass = masses(joint)
        if rounds == 0 or ZERO in mass:  # no further message can add to the value
            return self.end(mass)
        total = mass[0] + mass[1]
        zero, one = ({state: m / total for state, m in measure.items()} for measure in joint)
        key = (frozenset(zero.items()), frozenset(one.items()), pairs, rounds)
        if key not in self.memo:
            self.memo[key] = self._best((zero, one), pairs, rounds)
        if not self.additive:
            return self.memo[key]
        return tuple(figure * total for figure in self.memo[key])

    def _best(self, joint: Joint, pairs: Pairs, rounds: int) -> tuple[Any, ...]:
        """Return the suprema over the next pair; stopping is never better, and forced where no pair is left."""
        best = self.end(masses(joint))
        for pair, after in pairs.moves():
            parts = by_answer(self.machine, joint, pair).values()
            if not self.cut and sum(sum(masses(part)) for part in parts) != 1:
                raise ValueError("the machine's laws leave out some mass")
            figures = [self.value(part, after, rounds - 1) for part in parts]
            if self.additive:
                figures = [tuple(map(sum, zip(self.end((ZERO, ZERO)), *figures, strict=True)))]
            best = tuple(map(max, zip(best, *figures, strict=True)))
        return best


def exact_moment(machine: FiniteMachine[Any, Any], pairs: Pairs, order: int, rounds: int) -> Amount:
    """Return e^((order-1) eps) for the least eps with which `machine` is (order, eps)-RDP w.r.t. `pairs`.

    The game has `rounds` messages. The moment e^((order-1) D) of two laws is the sum over transcripts of P^order
    Q^(1-order) ([HSV] Def 13.1). That term is homogeneous of degree 1 in the joint measure (P, Q), so the recursion
    of delta gives the supremum over adversaries (Def 13.3). Whole orders only, so moments are rational.

    Raises:
        ValueError: the order is below 2, or the laws leave out some mass.
    """
    if order < 2:
        raise ValueError(f"the order must be 2 or more, got {order}")

    def moment(p: Fraction, q: Fraction) -> Amount:
        if p == 0 or q == 0:
            return math.inf if p else ZERO
        return p**order / q ** (order - 1)

    worst = Worst(machine, lambda mass: (moment(*mass), moment(*mass[::-1])))
    moments: tuple[Amount, ...] = worst.value(beginning(machine), pairs, rounds)
    return max(moments)


@dataclass(frozen=True, slots=True)
class Bracket:
    """lower <= least delta <= upper."""

    lower: Fraction
    upper: Fraction


def exact_delta(
    machine: FiniteMachine[Any, Any], pairs: Pairs, ratio: Fraction, rounds: int
) -> Fraction:
    """Return the least delta with which `machine` is (ln ratio, delta)-DP w.r.t. `pairs` over `rounds` messages.

    Both directions of [HSV] Def 3.7 count. `ratio` is e^eps, an exact rational.

    Raises:
        ValueError: `ratio` < 1, or the laws do not add up to 1 (use `delta_bracket`).
    """
    bracket = delta_bracket(machine, pairs, ratio, rounds)
    if bracket.lower != bracket.upper:
        raise ValueError("the machine's laws leave out some mass; use delta_bracket")
    return bracket.upper


def delta_bracket(
    machine: FiniteMachine[Any, Any], pairs: Pairs, ratio: Fraction, rounds: int
) -> Bracket:
    """Return bounds of the least delta where the laws leave out some mass.

    An adversary's delta grows by at most the mass left out under b, and shrinks by at most e^eps times the mass
    left out under 1 - b.
    """
    if ratio < 1:
        raise ValueError(f"e^eps must be at least 1, got {ratio}")
    *deltas, gone0, gone1 = control(machine, ratio).value(beginning(machine), pairs, rounds)
    gone = 1 + gone0, 1 + gone1
    lower = max(ZERO, *(deltas[b] - ratio * gone[1 - b] for b in (0, 1)))
    return Bracket(lower, min(ONE, max(deltas[b] + gone[b] for b in (0, 1))))


def control(machine: FiniteMachine[Any, Any], ratio: Fraction) -> Worst:
    """Return the control functions L^0 and L^1 of [HSV] Def 10.3, then the least masses that the laws keep, negated."""

    def end(mass: Two) -> tuple[Fraction, ...]:
        p, q = mass
        return max(ZERO, p - ratio * q), max(ZERO, q - ratio * p), -p, -q

    return Worst(machine, end, cut=True)


def worst_ratio(machine: FiniteMachine[Any, Any], pairs: Pairs, rounds: int) -> Amount:
    """Return e^eps of the least eps with which the machine is eps-DP: the largest ratio of a transcript, maybe inf.

    Raises:
        ValueError: the laws do not add up to 1.
    """

    def end(mass: Two) -> tuple[Amount]:
        p, q = mass
        return (math.inf if ZERO in mass else max(p / q, q / p),)

    worst = Worst(machine, end, additive=False)
    ratios: tuple[Amount, ...] = worst.value(beginning(machine), pairs, rounds)
    return max(ratios)


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
    _control: Worst = field(init=False)

    def __post_init__(self) -> None:
        if self.ratio <= 1:
            raise ValueError(f"e^eps must be above 1 here, got {self.ratio}")
        self._control = control(self.machine, self.ratio)
        joint = beginning(self.machine)
        if max(self._least(joint, self.pairs, self.rounds)) > self.delta:
            raise ValueError("the machine is not (eps, delta)-DP")
        self._grow((), joint, self.pairs, self.rounds, (self.delta, self.delta))

    def _least(self, joint: Joint, pairs: Pairs, rounds: int) -> Two:
        first, second, *_ = self._control.value(joint, pairs, rounds)
        return first, second

    def _grow(
        self, transcript: Answered, joint: Joint, pairs: Pairs, rounds: int, bad: Two
    ) -> None:
        whole = masses(joint)
        self.masses[transcript] = Masses(whole, bad, self._good(whole, bad))
        if rounds == 0:
            return
        for pair, after in pairs.moves():
            parts = by_answer(self.machine, joint, pair)
            bounds = [
                Bounds(self._least(part, after, rounds - 1), masses(part), self.ratio)
                for part in parts.values()
            ]
            shares = shared(bad, bounds)
            self._behind.setdefault(transcript, {})[pair] = list(parts)
            for (answer, part), share in zip(parts.items(), shares, strict=True):
                self._grow((*transcript, (pair, answer)), part, after, rounds - 1, share)

    def _good(self, whole: Two, bad: Two) -> Two:
        p, q = whole[0] - bad[0], whole[1] - bad[1]
        r = self.ratio
        return (r * p - q) / (r - 1), (r * q - p) / (r - 1)

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
        p, q = self.whole
        return p - q / self.ratio, q - p / self.ratio


def shared(total: Two, bounds: list[Bounds]) -> list[Two]:
    """Split D of a transcript among the answers that follow it; equally for both b where that is possible."""
    if (equal := _equally(total, bounds)) is not None:
        return equal
    left, shares = total, []
    for place, here in enumerate(bounds):
        share = _corner(left, here, bounds[place + 1 :])
        shares.append(share)
        left = left[0] - share[0], left[1] - share[1]
    return shares


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
    points = [
        p for first, second in combinations(lines, 2) if (p := _crossing(first, second)) is not None
    ]
    inside = [p for p in points if all(a * p[0] + b * p[1] <= c for a, b, c in lines)]
    if not inside:
        raise ValueError("no share of the bad mass is left for an answer")
    return max(inside)


def _crossing(first: _Line, second: _Line) -> Two | None:
    determinant = first[0] * second[1] - first[1] * second[0]
    if determinant == 0:
        return None
    x = (first[2] * second[1] - first[1] * second[2]) / determinant
    return x, (first[0] * second[2] - first[2] * second[0]) / determinant


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
        (((_, holding), _),) = self._irr.step(("waiting",), bit).items()
        waiting = [Branch((), ONE, holding)]
        while waiting:
            run = waiting.pop()
            yield run
            for pair in self.parts.queries(run.transcript):
                answers = list(self.parts.answers(run.transcript, pair))
                for heard in self._heard(run, answers):
                    waiting += self._answered(heard, pair, answers)

    def law(self, bit: int) -> dict[Answered, Fraction]:
        """Return the probability of every transcript, given its queries, with IRR(bit) behind."""
        chances: dict[Answered, Fraction] = {}
        for run in self.runs(bit):
            chances[run.transcript] = chances.get(run.transcript, ZERO) + run.chance
        return chances

    def asked(self) -> dict[Answered, int]:
        """Return the most questions to IRR up to the last answer of each transcript."""
        most: dict[Answered, int] = {}
        for run in (*self.runs(0), *self.runs(1)):
            most[run.transcript] = max(most.get(run.transcript, 0), run.asked)
        return most

    @property
    def _irr(self) -> InteractiveRandomizedResponse:
        return InteractiveRandomizedResponse(self.parts.ratio, self.parts.delta)

    def _answered(
        self, run: Branch, pair: Any, answers: list[tuple[Any, Masses]]
    ) -> Iterator[Branch]:
        b = run.bit or 0  # where the bit was not asked for, the laws are equal
        whole = self._of(run, self.parts.masses[run.transcript])[b]
        for answer, parts in answers:
            if share := self._of(run, parts)[b]:
                transcript = (*run.transcript, (pair, answer))
                yield replace(run, transcript=transcript, chance=run.chance * share / whole)

    def _heard(self, run: Branch, answers: list[tuple[Any, Masses]]) -> Iterator[Branch]:
        """Yield the branches in which T has asked IRR all that the next answer needs."""
        if run.symbol is None:
            for asked in self._ask(run):
                yield from self._heard(asked, answers)
        elif run.bit is None and self._matters(run, answers):
            yield from self._ask(run)
        else:
            yield run

    def _matters(self, run: Branch, answers: list[tuple[Any, Masses]]) -> bool:
        """Say whether E^0 and E^1, or N^0 and N^1, differ in the next answer."""
        here = self._of(run, self.parts.masses[run.transcript])
        shares = [self._of(run, parts) for _, parts in answers]
        return any(a * here[1] != b * here[0] for a, b in shares)

    def _ask(self, run: Branch) -> Iterator[Branch]:
        for (answer, after), chance in self._irr.step(run.response, ASK).items():
            if chance and isinstance(answer, int):
                chance *= run.chance
                answered = replace(run, chance=chance, response=after, asked=run.asked + 1)
                if run.symbol is None:
                    yield replace(answered, symbol=Symbol(answer))
                else:
                    yield replace(answered, bit=int(answer))

    @staticmethod
    def _of(run: Branch, parts: Masses) -> Two:
        return parts.bad if run.symbol is Symbol.TOP else parts.good
