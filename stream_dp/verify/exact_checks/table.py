"""All rules of `accounting.derive`, each with its instances or with the reason why there is none.

Rules: the rule's name is the key of its instances, so a changed rule is judged on the same ones. A rule without
instances is listed as not certified, never left out.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from stream_dp.accounting.derive import RULES
from stream_dp.accounting.rules.fixed import concurrent, filtered, optimal
from stream_dp.accounting.rules.gaussian import gaussian, gaussian_first_pair
from stream_dp.accounting.rules.groups import (
    first_arrivals,
    group,
    moved,
    of_users,
    shared_totals,
    user_totals,
)
from stream_dp.accounting.rules.parallel import (
    first_pair,
    first_pair_renyi,
    first_pair_zcdp,
    local,
    sparse_delta,
    sparse_pure,
)
from stream_dp.accounting.rules.renyi import renyi, truncated, zcdp
from stream_dp.accounting.rules.rule import composite
from stream_dp.accounting.rules.time import ticks
from stream_dp.core.guarantee import Measure
from stream_dp.verify.exact.exact_delta import (
    ZERO,
    Answered,
    Decomposition,
    ResponsePostProcessor,
    by_answer,
)
from stream_dp.verify.exact.finite import BIT_PAIRS, DifferAtMost, FiniteMachine, FirstPair, Pairs
from stream_dp.verify.exact.randomized_response import (
    ASK,
    InteractiveRandomizedResponse,
    LateResponse,
    LeakyBit,
    NoisyBits,
    RandomizedResponse,
    TornLeak,
)
from stream_dp.verify.exact_checks import alive, compositions, live, protocols
from stream_dp.verify.exact_checks.instance import Comparison, Instance, Verdict, compare

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
        return Decomposition(self.machine, self.pairs, self.ratio, self.delta, self.rounds)

    def law(self, b: int) -> dict[Answered, Fraction]:
        """Return the probability of every transcript that is possible under b, given its queries."""
        return dict(self._played(dict(self.machine.initial()), self.pairs, b, self.rounds, ()))

    def _played(
        self, states: dict[Any, Fraction], pairs: Pairs, b: int, rounds: int, before: Answered
    ) -> Iterator[tuple[Answered, Fraction]]:
        yield before, sum(states.values(), ZERO)
        for pair, later in pairs.moves() if rounds else ():
            for answer, (part, _) in by_answer(self.machine, (states, {}), (pair[b],) * 2).items():
                yield from self._played(part, later, b, rounds - 1, (*before, (pair, answer)))


@dataclass(frozen=True, slots=True)
class Constructed:
    """`decomposed`: the four systems are valid, nowhere negative, and add up to the mechanism ([Lyu] Thm 3).

    `equal`: IRR behind the post-processor has exactly the mechanism's law over all transcripts. `asked`: the most
    questions to IRR while pairs are equal.
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


def adds_up(parts: Decomposition) -> bool:
    """Say whether the four systems are valid, with no negative mass, and add up to the mechanism."""
    true, false = parts.ratio / (1 + parts.ratio), 1 / (1 + parts.ratio)
    for transcript, masses in parts.masses.items():
        for b in (0, 1):
            here = masses.bad[b] + true * masses.good[b] + false * masses.good[1 - b]
            if min(masses.bad[b], masses.good[b]) < 0 or here != masses.whole[b]:
                return False
            for pair in parts.queries(transcript):
                behind = [m for _, m in parts.answers(transcript, pair)]
                bad, good = sum(m.bad[b] for m in behind), sum(m.good[b] for m in behind)
                if (bad, good) != (masses.bad[b], masses.good[b]):
                    return False
    return True


def constructed() -> Iterator[Constructed]:
    """Decompose every mechanism and reconstruct it from IRR ([Lyu] Thm 3; [HSV] Lemma 4.7, 5.6).

    Every theorem of concurrent composition rests on this reduction to randomized response.
    """
    for universal in MACHINES:
        parts = universal.taken_apart()
        processor = ResponsePostProcessor(parts)
        equal = all(processor.law(b) == universal.law(b) for b in (0, 1))
        asked = [n for t, n in processor.asked().items() if all(a == b for (a, b), _ in t)]
        yield Constructed(universal.words, adds_up(parts), equal, max(asked))


INSTANCES: Mapping[str, Callable[[], tuple[Instance, ...]]] = {
    concurrent.name: compositions.summed,
    optimal.name: compositions.best,
    zcdp.name: compositions.summed_zcdp,
    renyi.name: compositions.summed_renyi,
    gaussian.name: compositions.summed_gaussian,
    truncated.name: compositions.summed_truncated,
    sparse_pure.name: lambda: (*compositions.touched_pure(), protocols.coordinates()),
    sparse_delta.name: compositions.touched_deltas,
    first_pair.name: compositions.first_pair,
    first_pair_zcdp.name: compositions.first_pair_concentrated,
    first_pair_renyi.name: compositions.first_pair_renyi,
    gaussian_first_pair.name: compositions.first_pair_gaussian,
    composite.name: compositions.hss,
    local.name: protocols.local,
    filtered.name: lambda: (*compositions.admitted(), *live.instances()),
    group.name: alive.events,
    moved.name: alive.moved_events,
    of_users.name: alive.users,
    first_arrivals.name: alive.arrived,
    user_totals.name: alive.totals,
    shared_totals.name: alive.shared,
    ticks.name: alive.ticks,
}

NO_INSTANCE = "no instance that is small enough has been written"
GAPS: Mapping[str, str] = {
    "zCDP and GDP as a whole": (
        "zCDP is compared at the orders 2, 3 and 5 (tCDP: those below omega), GDP at four epsilons: no oracle here "
        "covers all of them at once"
    ),
    "zCDP, RDP or GDP to (epsilon, delta)": (
        "a statement on numbers with no adversary in it; the tests of the accounting compare it with other computations"
    ),
    "proven mechanisms": (
        "the leaves of a derivation, no composition: stream-dp audit PIPELINE.yaml attacks those of a pipeline"
    ),
}


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """An instance of a rule, the amount that the rule derives, and the comparison; or `why` there is no instance."""

    rule: str
    source: str
    words: str = ""
    booked: Measure | None = None
    compared: Comparison | None = None
    why: str = ""

    @property
    def violated(self) -> bool:
        """Whether the exact worst case is above the amount that the rule derives."""
        return self.compared is not None and self.compared.verdict is Verdict.VIOLATED


def findings() -> Iterator[RuleFinding]:
    """Yield every rule of `RULES` on each of its instances, then `GAPS`."""
    for rule in (rule for rules in RULES.values() for rule in rules):
        if rule.name not in INSTANCES:
            yield RuleFinding(rule.name, rule.source, why=NO_INSTANCE)
            continue
        for instance in INSTANCES[rule.name]():
            booked = rule(instance.premises, instance.situation).guarantee.measure
            compared = compare(booked, instance)
            yield RuleFinding(rule.name, rule.source, instance.words, booked, compared)
    yield from (RuleFinding(name, "", why=why) for name, why in GAPS.items())
