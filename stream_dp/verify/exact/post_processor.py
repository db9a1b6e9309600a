"""The post-processor of [HSV] Lemma 4.7 and 5.6, executed: on IRR_(eps, delta)(b) it is M^b, by transcript.

It asks IRR once before its first answer (TOP or BOTTOM), and for the bit only when an answer's law depends on it.
Rules: everything exact; IRR is the one of the audit (`randomized_response`). This file knows no control function.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from stream_dp.verify.exact.decomposition import Answered, Decomposition, Masses
from stream_dp.verify.exact.joint import ZERO
from stream_dp.verify.exact.randomized_response import (
    ASK,
    InteractiveRandomizedResponse,
    IRRState,
    Symbol,
)


@dataclass(frozen=True, slots=True)
class Branch:
    """One branch: the transcript so far with its probability, and what IRR has answered to `asked` questions."""

    transcript: Answered
    chance: Fraction
    response: IRRState
    symbol: Symbol | None = None
    bit: int | None = None
    asked: int = 0


@dataclass(frozen=True, slots=True)
class ResponsePostProcessor:
    """T for one decomposition; `runs(b)` yields all branches of T with IRR(b) behind it."""

    parts: Decomposition

    def runs(self, bit: int) -> Iterator[Branch]:
        """Yield every branch at every length; a branch comes before its extensions."""
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
        """Ask IRR what the law of the next answer needs."""
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
