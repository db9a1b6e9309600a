"""A lower bound on epsilon from plays of the distinguishing game ([HSV] Def 3.7), for one mechanism or several.

The mechanisms run inside one `ConcurrentComposition`, as in production, behind the halting verifier of a verification
function, with the caller's noise. Half of the plays choose an event, the other half judge it by its two rates alone.
Rules: a bound below the claim proves nothing; a bound above it refutes the claim, wrongly with at most the stated
probability. A badly chosen event costs power, never correctness. This file knows no pipeline.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stream_dp.accounting.amounts import Interval, floor_units
from stream_dp.accounting.rules.rule import DELTALESS, price
from stream_dp.core.composition import Ask, ConcurrentComposition, Create
from stream_dp.core.guarantee import ApproxDP, Measure, differential_privacy
from stream_dp.core.mechanism import IntArray, Noise, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.relation import Claim, Relation
from stream_dp.core.row_law import RowLaw
from stream_dp.core.row_relations import (
    AmountRows,
    EventRows,
    HalvedRows,
    MovedRows,
    ShapedRows,
    Stream,
)
from stream_dp.core.wording import how_many
from stream_dp.errors import FailClosed, UsageError
from stream_dp.mechanisms.serving import ServingMechanism
from stream_dp.verify.exact.randomized_response import ASK, InteractiveRandomizedResponse
from stream_dp.verify.game import HALT, Game, View
from stream_dp.verify.relations import fixed_mechanisms, own_or

RowPair: TypeAlias = tuple[IntArray, IntArray]


@dataclass(frozen=True, slots=True)
class OneEventAdversary:
    """The deterministic adversary of `stream-dp audit`: rows that are equal except for one event per mechanism.

    It creates `mechanisms` in a composition. At each tick it sends `pairs[tick][i]` to mechanism i, for every i, then
    asks every mechanism. `claims[i]` is the claim in the creation query (None: the mechanism's own guarantee). Where
    the claim is for users, the difference is all counted events of one user, in one tick. The verifier decides
    whether the pairs are neighbours.
    """

    mechanisms: tuple[ServingMechanism[Any], ...]
    pairs: tuple[tuple[RowPair, ...], ...]
    claims: tuple[Claim | None, ...]

    @classmethod
    def against(
        cls,
        mechanisms: Sequence[ServingMechanism[Any]],
        ticks: int,
        claims: Sequence[Claim | None] | None = None,
    ) -> "OneEventAdversary":
        """Return the adversary with the event in the first of `ticks` ticks; the later rows are empty.

        Where the claim lets a replacement move to another tick, the other stream has the event in the second tick.
        Every second mechanism gets its pair with sides exchanged: noise that two mechanisms share cancels in the
        difference of their answers, but an equal change in both would cancel with it.
        """
        stated = tuple(claims or [None] * len(mechanisms))
        parts = list(zip(mechanisms, stated, strict=True))
        begun = _turned([worst_pair(m, events_of(m, claim)) for m, claim in parts])
        quiet = tuple((np.zeros_like(left),) * 2 for left, _ in begun)
        moved = _turned([_second_pair(mechanism, claim) for mechanism, claim in parts])
        later = (moved, *[quiet] * (ticks - 2)) if ticks > 1 else ()
        return cls(tuple(mechanisms), (begun, *later), stated)

    @property
    def rounds(self) -> int:
        """How many messages the adversary sends, HALT included."""
        return len(self.mechanisms) * (1 + 2 * len(self.pairs)) + 1

    def init(self, noise: Noise) -> int:
        return 0

    def step(self, sent: int, message: Any, noise: Noise) -> tuple[int, Any]:
        number = len(self.mechanisms)
        if sent < number:
            return sent + 1, (Create(self.mechanisms[sent], self.claims[sent]),) * 2
        tick, place = divmod(sent - number, 2 * number)
        if tick == len(self.pairs):
            return sent, HALT
        if place >= number:
            return sent + 1, (Ask(place - number, Query()),) * 2
        left, right = self.pairs[tick][place]
        return sent + 1, (Ask(place, Update(left)), Ask(place, Update(right)))


def answers(view: View) -> list[IntArray]:
    return [m for m in view.messages if isinstance(m, np.ndarray)]


def moves(claim: Claim | None) -> bool:
    """Say whether the claim is for replacements that may move to another tick."""
    rows = _rows(claim)
    return isinstance(rows, MovedRows) or (isinstance(rows, AmountRows) and rows.moves)


def events_of(mechanism: ServingMechanism[Any], claim: Claim | None) -> int:
    """Return how many events of one user the claim is for; 1 for claims about events.

    For rows that count identifiers at their first tick, return the units by which neighbours differ.
    """
    rows = _rows(claim) or mechanism.rows.relation(mechanism.guarantee.neighbors)
    if isinstance(rows, EventRows) or (isinstance(rows, AmountRows) and not rows.moves):
        return rows.most
    if isinstance(rows, ShapedRows):  # of one tick, and in one entry
        return min(rows.events.most, rows.per_tick, rows.per_entry)
    return 1


def _rows(claim: Claim | None) -> Relation | None:
    rows = claim.relation.rows if claim and isinstance(claim.relation, Stream) else None
    return rows.first if isinstance(rows, HalvedRows) else rows


def _turned(pairs: Sequence[RowPair]) -> tuple[RowPair, ...]:
    """Return the pairs, with left and right exchanged in every second pair."""
    return tuple(pair[::-1] if place % 2 else pair for place, pair in enumerate(pairs))


def _second_pair(mechanism: ServingMechanism[Any], claim: Claim | None) -> RowPair:
    """Return the rows of the second tick: the left row has the event if it may have moved; otherwise both are empty."""
    left, right = np.zeros((2, mechanism.width), dtype=np.int64)
    left[: mechanism.rows.ones] = int(moves(claim)) * mechanism.rows.contents[1]
    return left, right


def worst_pair(mechanism: ServingMechanism[Any], events: int = 1) -> RowPair:
    """Return the rows of the tick with the event, each of shape (width,).

    The right row has the event in the first columns, as many as one event may set. The left row has it in the next
    columns where the relation allows that, otherwise not at all. All `events` of a user are equal. Each mechanism
    states the best rows before the event (`opening`), from public structure: noise protects a decision least where it
    is nearly taken, so counts that decide are filled up to their threshold first.
    """
    halves = [_worst_half(mechanism, law, events) for law in mechanism.rows.halves]
    left, right = (np.concatenate(sides) for sides in zip(*halves, strict=True))
    return left, right


def _worst_half(mechanism: ServingMechanism[Any], law: RowLaw, events: int) -> RowPair:
    """Return the part of these rows that this law is for."""
    left = np.zeros(law.width, dtype=np.int64)
    neighbors = mechanism.guarantee.neighbors
    set_, touched = min(law.ones, law.width), neighbors.l0(law.width, law.ones)
    here, beside = mechanism.opening()
    left[:set_] = here
    left[set_ : max(touched, set_ + 1)] = beside
    right = left.copy()
    lesser, larger = law.contents
    right[:set_] += larger * events
    if touched > set_:
        left[set_:touched] += larger * events
    elif neighbors is Neighbors.REPLACE:
        left[:set_] += lesser * events
    return left, right


FloatArray = NDArray[np.float64]
CUTS = 40  # most cuts per statistic
COLUMNS = 4  # most touched columns that are used one by one
CAUTION = 0.01  # failure probability of the bounds by which an event is chosen
GRAIN = 1000  # log-likelihood ratios are kept as integers of 1/1000


@dataclass(frozen=True, slots=True)
class Event:
    """`statistic` >= `cut`, or < `cut` where not `above`. `swapped`: more likely under the left stream."""

    statistic: int
    cut: int
    above: bool
    swapped: bool

    def count(self, values: IntArray) -> int:
        """Return in how many plays the event happened; `values` has shape (plays, statistics)."""
        return int(((values[:, self.statistic] >= self.cut) == self.above).sum())


@dataclass(frozen=True, slots=True)
class Score:
    """Naive Bayes over the indicators value >= cut: integer weights for yes and for no, each of shape (statistics,)."""

    cuts: IntArray
    yes: IntArray
    no: IntArray

    @classmethod
    def fit(cls, left: IntArray, right: IntArray) -> "Score":
        """Cut each statistic where the two samples differ most, and weigh it by the log-likelihood ratios there."""
        cuts = np.array([_best_cut(a, b) for a, b in zip(left.T, right.T, strict=True)])
        p, q = (
            ((sample >= cuts).sum(axis=0) + 0.5) / (len(sample) + 1) for sample in (right, left)
        )
        ratios = np.log(p / q), np.log((1 - p) / (1 - q))
        return cls(cuts, *(np.rint(ratio * GRAIN).astype(np.int64) for ratio in ratios))

    def extended(self, values: IntArray) -> IntArray:
        score = np.where(values >= self.cuts, self.yes, self.no).sum(axis=1, keepdims=True)
        return np.concatenate([values, score], axis=1)


def statistics(
    answers: IntArray, columns: int, raised: int = 1, *, changes: bool = False
) -> IntArray:
    """Return plain statistics; `answers` has shape (plays, ticks, entries), the result (plays, statistics).

    One event touches the first `columns` entries and raises the first `raised` of them. Statistics of a tick: the
    touched entries, at most `COLUMNS`, and the sum of the raised ones less the sum of the others. With `changes`,
    where an event may move between ticks: the sum of the raised entries, and its change since the tick before.
    """
    touched = answers[:, :, :columns]
    up, down = (
        part.sum(axis=2, keepdims=True) for part in (touched[:, :, :raised], touched[:, :, raised:])
    )
    if changes:
        shown = np.concatenate([up, np.diff(up, axis=1, prepend=0)], axis=2)
    elif touched.shape[2] > 1:
        shown = np.concatenate([touched[:, :, :COLUMNS], up - down], axis=2)
    else:
        shown = touched
    return shown.reshape(len(answers), -1)


def labels(number: int, raised: int = 1, *, changes: bool = False) -> list[str]:
    """Return the names of the `number` statistics of a tick, in the order of `statistics`."""
    if changes:
        return ["entry 0" if raised == 1 else f"sum of entries 0 to {raised - 1}", "change"]
    entries = [f"entry {place}" for place in range(number - 1 or 1)]
    both = "difference" if (number, raised) == (3, 1) else "signed sum of what one event sets"
    return entries if number == 1 else [*entries, both]


def choose_event(left: IntArray, right: IntArray, delta: float) -> Event:
    """Return the event with the best cautious estimate on these samples, each of shape (plays, statistics).

    The candidates: every statistic at or above a cut, or below it, more likely under either stream.
    """
    best, most = Event(0, 0, above=True, swapped=False), -math.inf
    for statistic, (a, b) in enumerate(zip(left.T, right.T, strict=True)):
        cuts = _cuts(a, b)
        low, high = ((sample[:, None] >= cuts).sum(axis=0) for sample in (a, b))
        for above, swapped in ((True, False), (True, True), (False, False), (False, True)):
            x, y = (high, low) if above else (len(b) - high, len(a) - low)
            if swapped:
                x, y = y, x
            bounds = epsilon_bound(x, y, len(a), delta, CAUTION)
            at = int(bounds.argmax())
            if bounds[at] > most:
                best, most = Event(statistic, int(cuts[at]), above, swapped), float(bounds[at])
    return best


@dataclass(frozen=True, slots=True)
class Evidence:
    """`event` was chosen on one half of the plays; `rates` are its two rates in the other half, the larger first.

    `lower` is the lower bound of epsilon that the rates prove, rounded down to four digits and at least 0.
    """

    event: Event
    rates: tuple[float, float]
    lower: float


def evidence(left: IntArray, right: IntArray, delta: float, failure: float) -> Evidence:
    """Return the best event on samples of shape (plays, statistics); their naive Bayes score is one more statistic.

    Where the plays are (epsilon, delta)-indistinguishable, `lower` exceeds epsilon with probability at most
    `failure`.
    """
    half = len(left) // 2
    score = Score.fit(left[:half], right[:half])
    left, right = score.extended(left), score.extended(right)
    event = choose_event(left[:half], right[:half], delta)
    counts = [event.count(sample[half:]) for sample in (right, left)]
    likely, rare = counts[::-1] if event.swapped else counts
    judged = len(left) - half
    lower = proven_epsilon(likely, rare, judged, delta, failure)
    return Evidence(event, (likely / judged, rare / judged), lower)


def proven_epsilon(likely: int, rare: int, plays: int, delta: float, failure: float) -> float:
    """Return `epsilon_bound` of one event, rounded down to four digits; 0 where it proves nothing."""
    bound = float(epsilon_bound(np.array([likely]), np.array([rare]), plays, delta, failure)[0])
    return max(0.0, math.floor(bound * 1e4) / 1e4) if math.isfinite(bound) else 0.0


def epsilon_bound(
    likely: IntArray, rare: IntArray, plays: int, delta: float, failure: float
) -> FloatArray:
    """Return a lower bound of epsilon, maybe negative, from an event's counts in `plays` plays under each stream.

    P <= e^eps Q + delta, with Clopper-Pearson bounds: P from below and Q from above, each failing with probability at
    most failure / 2.
    """
    from scipy.special import (
        betaincinv,  # imported here: no other command needs it, and it takes longer than their imports together
    )

    p = np.where(likely > 0, betaincinv(np.maximum(likely, 1), plays - likely + 1, failure / 2), 0)
    spare = np.maximum(plays - rare, 1)
    q = np.where(rare < plays, betaincinv(rare + 1, spare, 1 - failure / 2), 1)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(p - delta, 0)) - np.log(q), dtype=np.float64)


def _cuts(a: IntArray, b: IntArray) -> IntArray:
    """Return the values that occur, reduced to CUTS quantiles."""
    values = np.unique(np.concatenate([a, b]))
    places = np.unique(np.linspace(0, len(values) - 1, CUTS).astype(int))
    return np.asarray(values[places], dtype=np.int64)


def _best_cut(a: IntArray, b: IntArray) -> int:
    cuts = _cuts(a, b)
    gap = np.abs((a[:, None] >= cuts).mean(axis=0) - (b[:, None] >= cuts).mean(axis=0))
    return int(cuts[gap.argmax()])


GRID = 1 << 16  # odds are multiples of 1 / GRID
MOST = Fraction(40)  # no audit can distinguish odds of e^40 from larger ones
FEWEST_RUNS = 100
STATED_AT = Fraction(1, 100)
"""The delta at which zCDP, tCDP, RDP and GDP are attacked: a few hundred plays do not resolve a smaller one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What the plays say about a mechanism, or about several together. All epsilons are at `delta`.

    `lower` is at most the true epsilon, with probability at least 1 - `failure`. `event` describes the event that
    distinguishes the streams; `rates` are its rates under the two, the larger first. `strongest` is the bound that
    equally many plays would give for the worst mechanism that the claim allows.
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

    `claim` is the derived claim; None: the mechanism's own guarantee. Raises what `audit_together` raises.
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
    mechanism gets its own pair of streams ([HSV] Def 4.5). `claims` are those of the creations (None: the mechanism's
    own guarantee). The finding's words use the names. A claim without an epsilon is attacked at the epsilon that it
    implies at `STATED_AT`.

    Raises:
        UsageError: there are too few runs or ticks, or the failure probability is outside (0, 1).
        FailClosed: the verifier halted a game, because it refused the adversary or a creation.
    """
    if runs < FEWEST_RUNS or ticks < 1 or not 0 < failure < 1:
        raise UsageError(
            f"an audit needs at least {FEWEST_RUNS} runs, at least one tick and a failure "
            f"probability strictly between 0 and 1; got {how_many(runs, 'run')}, "
            f"{how_many(ticks, 'tick')}, failure probability {failure:g}"
        )
    if isinstance(claim, DELTALESS):
        measure = ApproxDP(price(claim, STATED_AT) or Fraction(0), STATED_AT)
    else:
        measure = differential_privacy(claim)
    adversary = OneEventAdversary.against(tuple(mechanisms.values()), ticks, claims)
    game, judged = Game(ConcurrentComposition(), verifier), runs // 4
    left, right = (_played(game, adversary, b, noise, 2 * judged) for b in (0, 1))
    proof = evidence(np.hstack(left), np.hstack(right), float(measure.delta), failure)
    parts = zip(mechanisms.items(), left, adversary.claims, strict=True)
    names = [
        f"{name}, tick {tick}, {label}" if name else f"tick {tick}, {label}"
        for (name, mechanism), part, claimed in parts
        for tick in range(ticks)
        for label in labels(part.shape[1] // ticks, _raised(mechanism), changes=moves(claimed))
    ]
    names.append(f"likelihood score over {how_many(ticks, 'tick')}")
    event = proof.event
    return Finding(
        measure.epsilon,
        proof.lower,
        strongest(measure.epsilon, measure.delta, judged, failure),
        f"{names[event.statistic]} {'at least' if event.above else 'below'} {event.cut}",
        proof.rates,
        failure,
        measure.delta,
    )


def _played(
    game: Game,
    adversary: OneEventAdversary,
    b: Literal[0, 1],
    noise: Callable[[], Noise],
    plays: int,
) -> list[IntArray]:
    """Return the plain statistics of `plays` plays, for each mechanism an array of shape (plays, statistics)."""
    number, ticks = len(adversary.mechanisms), len(adversary.pairs)
    samples = [answers(game.play(adversary, b, noise(), adversary.rounds)) for _ in range(plays)]
    if any(len(sample) < number * ticks for sample in samples):
        raise FailClosed(
            "the game stopped: the audit's two streams are not neighbours, a mechanism refused "
            "a row of counts, or the filter refused a mechanism. Report this"
        )
    return [
        statistics(
            np.array([sample[place::number] for sample in samples]),
            mechanism.guarantee.neighbors.l0(mechanism.rows.width, mechanism.rows.ones),
            _raised(mechanism),
            changes=moves(claim),
        )
        for place, (mechanism, claim) in enumerate(
            zip(adversary.mechanisms, adversary.claims, strict=True)
        )
    ]


def _raised(mechanism: ServingMechanism[Any]) -> int:
    """Return how many columns the adversary's event sets."""
    return min(mechanism.rows.ones, mechanism.width)


def universal(epsilon: Fraction, delta: Fraction) -> InteractiveRandomizedResponse:
    """Return the interactive randomized response of this claim, odds rounded down: never less private than claimed.

    >>> universal(Fraction(1), Fraction(0)).odds
    Fraction(178145, 65536)
    """
    odds = Interval.of(min(epsilon, MOST)).exp().lower
    rounded = Fraction(floor_units(odds, GRID), GRID)
    return InteractiveRandomizedResponse(max(Fraction(1), rounded), delta)


def shows_one(machine: InteractiveRandomizedResponse, bit: int) -> Fraction:
    """Return the probability that the machine's last answer is 1 for this bit: the most distinguishing event.

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
    """Return the bound that `plays` judged games per stream prove for the worst mechanism that the claim allows.

    Every (epsilon, delta)-DP continual mechanism is a post-processing of the interactive randomized response of the
    same parameters ([HSV] Cor 5.7). The bound is computed from its laws at the expected counts, which a lucky run may
    exceed. It grows towards `epsilon` with the number of games. Where it is far below, a finding of 0 says little:
    play more.
    """
    machine = universal(epsilon, delta)
    likely, rare = (round(plays * shows_one(machine, bit)) for bit in (1, 0))
    return proven_epsilon(likely, rare, plays, float(delta), failure)


def least_seen(plays: int, failure: float) -> float:
    """Return the least epsilon, up to a hundredth, of which `plays` judged games per stream can show anything.

    Of a smaller claim without a delta even the worst mechanism has a bound of 0 at the expected counts.

    >>> least_seen(750, 0.01 / 7), least_seen(25_000, 0.01 / 7)
    (0.24, 0.05)
    """
    most = int(MOST * 100)
    hundredths = bisect_left(
        range(most),
        True,
        key=lambda n: strongest(Fraction(n, 100), Fraction(0), plays, failure) > 0,
    )
    return hundredths / 100
