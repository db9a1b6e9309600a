"""A lower bound on epsilon from plays of the distinguishing game ([HSV] Def 3.7), of one mechanism or several
together.

The mechanisms run inside one `ConcurrentComposition`, as in production, behind the halting verifier of a
verification function, with the caller's noise. Half of the plays choose an event, the other half judge it. Rules: a
bound below the claim proves nothing; one above it refutes the claim, wrongly with at most the stated probability.

A finding is compared with `strongest`, the result of the audit if the mechanism were the worst that its claim
allows: every (epsilon, delta)-DP continual mechanism is a post-processing of the interactive randomized response of
the same parameters ([HSV] Cor 5.7). It is computed from its laws, not played, at the expected counts, which a lucky
run may exceed. This file knows no pipeline.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from stream_dp.accounting.directed import Interval, floor_units
from stream_dp.accounting.rules.convert import DELTALESS, price
from stream_dp.core.composition import ConcurrentComposition, Create
from stream_dp.core.guarantee import ApproxDP, Measure, differential_privacy
from stream_dp.core.how_many import how_many
from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray
from stream_dp.core.relation import Claim, Relation
from stream_dp.errors import FailClosed, UsageError
from stream_dp.mechanisms.serving import ServingMechanism
from stream_dp.verify.exact.randomized_response import ASK, InteractiveRandomizedResponse
from stream_dp.verify.games.adversaries import OneEventAdversary, answers, mechanism_l0, moves
from stream_dp.verify.games.events import Event, evidence, labels, proven_epsilon, statistics
from stream_dp.verify.games.game import Game
from stream_dp.verify.relations.compositions import fixed_mechanisms
from stream_dp.verify.relations.creation import own_or

GRID = 1 << 16  # odds are multiples of 1 / GRID
MOST = Fraction(40)  # no audit can distinguish odds of e^40 from larger ones
FEWEST_RUNS = 100
STATED_AT = Fraction(1, 100)
"""The delta at which zCDP, tCDP, RDP and GDP are attacked: a few hundred plays do not resolve a smaller one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What the plays say about a mechanism, or about several together.

    `lower` is at most the epsilon, with probability at least 1 - `failure`; `event` describes the event that
    distinguishes the streams, and `rates` are its rates under the two, the larger first. `strongest` is the bound
    that equally many plays would give for the worst mechanism that the claim allows (`strongest`). All epsilons are
    at `delta`.
    """

    claimed: Fraction
    lower: float
    strongest: float
    event: str
    rates: tuple[float, float]
    failure: float
    delta: Fraction = Fraction(0)

    @property
    def violated(self) -> bool:
        """Whether the bound exceeds the claim."""
        return self.lower > self.claimed


def audit_mechanism(
    mechanism: ServingMechanism[Any],
    noise: Callable[[], Noise],
    *,
    runs: int,
    ticks: int,
    failure: float,
    claim: Claim | None = None,
) -> Finding:
    """Play `runs` games of `ticks` ticks, each on fresh noise, and bound the mechanism's epsilon from below.

    `claim` is the derived claim; None: its own guarantee.

    Raises what `audit_together` raises.
    """
    alone = fixed_mechanisms((Create(mechanism, claim),), own_or([claim]))
    measure = claim.measure if claim else mechanism.guarantee.measure
    return audit_together(
        {"": mechanism}, alone, measure, noise,
        runs=runs, ticks=ticks, failure=failure, claims=[claim],
    )  # fmt: skip


def audit_together(
    mechanisms: Mapping[str, ServingMechanism[Any]],
    verifier: Relation,
    claim: Measure,
    noise: Callable[[], Noise],
    *,
    runs: int,
    ticks: int,
    failure: float,
    claims: Sequence[Claim | None] | None = None,
) -> Finding:
    """Play `runs` games of `ticks` ticks against one composition of all `mechanisms`, created in their order.

    `claim` is the claim about these mechanisms together, against every adversary that `verifier` lets pass; each
    mechanism gets its own pair of streams ([HSV] Def 4.5). `claims` are the claims of the creations, None: the
    mechanism's own guarantee. The finding's words use the names. A claim without an epsilon is attacked at the one
    it implies at `STATED_AT`.

    Raises:
        UsageError: there are too few runs or ticks, or the failure probability is outside (0, 1).
        FailClosed: the verifier halted a game, because it refused the adversary or a creation.
    """
    if runs < FEWEST_RUNS or ticks < 1 or not 0 < failure < 1:
        raise UsageError(
            f"an audit needs {FEWEST_RUNS} runs or more, a tick or more and a failure probability inside (0, 1); "
            f"got {how_many(runs, 'run')}, {how_many(ticks, 'tick')}, failure probability {failure:g}"
        )
    measure = _stated(claim)
    adversary = OneEventAdversary.against(tuple(mechanisms.values()), ticks, claims)
    game, each = Game(ConcurrentComposition(), verifier), runs // 4
    left, right = (_played(game, adversary, b, noise, 2 * each) for b in (0, 1))
    found = evidence(np.hstack(left), np.hstack(right), float(measure.delta), failure)
    named = [
        label
        for (name, mechanism), part, claim in zip(
            mechanisms.items(), left, adversary.claims, strict=True
        )
        for label in _labels(
            name,
            ticks,
            labels(part.shape[1] // ticks, _raised(mechanism), changes=moves(claim)),
        )
    ]
    return Finding(
        measure.epsilon,
        found.lower,
        strongest(measure.epsilon, measure.delta, each, failure),
        described(found.event, [*named, f"likelihood score over {how_many(ticks, 'tick')}"]),
        found.rates,
        failure,
        measure.delta,
    )


def _stated(claim: Measure) -> ApproxDP:
    if isinstance(claim, DELTALESS):
        return ApproxDP(price(claim, STATED_AT) or Fraction(0), STATED_AT)
    return differential_privacy(claim)


def _played(
    game: Game,
    adversary: OneEventAdversary,
    b: Literal[0, 1],
    noise: Callable[[], Noise],
    plays: int,
) -> list[IntArray]:
    """Return the plain statistics of `plays` plays, for each mechanism an array of shape (plays, statistics).

    Raises:
        FailClosed: the verifier or a mechanism refused a message of an event-level stream, or a creation.
    """
    number, ticks = len(adversary.mechanisms), len(adversary.pairs)
    found = [answers(game.play(adversary, b, noise(), adversary.rounds)) for _ in range(plays)]
    if any(len(sample) < number * ticks for sample in found):
        raise FailClosed(
            "the game was halted: the audit's streams are no neighbours, a mechanism refused a row of counts, or the "
            "filter refused a mechanism; report this"
        )
    return [
        statistics(
            np.array([sample[place::number] for sample in found]),
            mechanism_l0(mechanism),
            _raised(mechanism),
            changes=moves(adversary.claims[place]),
        )
        for place, mechanism in enumerate(adversary.mechanisms)
    ]


def _raised(mechanism: ServingMechanism[Any]) -> int:
    """Return how many columns the adversary's event sets."""
    return min(mechanism.rows.ones, mechanism.width)


def _labels(name: str, ticks: int, entries: Sequence[str]) -> list[str]:
    """Return the names of a mechanism's statistics, with `entries` at each tick."""
    of = f"{name}, " if name else ""
    return [f"{of}tick {tick}, {entry}" for tick in range(ticks) for entry in entries]


def described(event: Event, named: list[str]) -> str:
    """Return the event in words; `named` are the names of the statistics."""
    side = f"at least {event.cut}" if event.above else f"below {event.cut}"
    return f"{named[event.statistic]} {side}"


def universal(epsilon: Fraction, delta: Fraction) -> InteractiveRandomizedResponse:
    """Return the interactive randomized response of this claim, its odds rounded down: never less private than
    claimed.

    >>> universal(Fraction(1), Fraction(0)).odds
    Fraction(178145, 65536)
    """
    odds = Interval.of(min(epsilon, MOST)).exp().lower
    return InteractiveRandomizedResponse(
        max(Fraction(1), Fraction(floor_units(odds, GRID), GRID)), delta
    )


def shows_one(machine: InteractiveRandomizedResponse, bit: int) -> Fraction:
    """Return the probability that its last answer is 1 for the bit `bit`: the most distinguishing event.

    >>> shows_one(InteractiveRandomizedResponse(Fraction(3)), 1)
    Fraction(3, 4)
    """
    ((_, holding),) = machine.step(("waiting",), bit)
    return sum(
        (
            first * chance
            for (_, chosen), first in machine.step(holding, ASK).items()
            for (answer, _), chance in machine.step(chosen, ASK).items()
            if answer == 1
        ),
        Fraction(0),
    )


def strongest(epsilon: Fraction, delta: Fraction, plays: int, failure: float) -> float:
    """Return the bound that `plays` judged games per stream prove for the universal mechanism, at expected counts.

    The bound grows towards `epsilon` with the number of games. Where it is far below, a finding of 0 says little:
    play more.
    """
    machine = universal(epsilon, delta)
    likely, rare = (round(plays * shows_one(machine, bit)) for bit in (1, 0))
    return proven_epsilon(likely, rare, plays, float(delta), failure)
