"""What alerts and watches say of themselves beforehand: their window, and the chance of a false alarm per key and day.

A count that stays at its `usual` level is no reason to fire; the chance that noise makes it fire all the same is a
function of the specification. Rules: a window is a whole number of ticks and not longer than the horizon. This file
knows no statistic.
"""

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple, TypeAlias

from pydantic import Field
from pydantic_core import InitErrorDetails

from stream_dp.mechanisms.watches.block import LARGEST_THRESHOLD, WatchNoise, WatchTerms
from stream_dp.records.amount_units import Amount, Clamp, clamp_problems
from stream_dp.records.endpoints import Clock
from stream_dp.records.groupings import Place, decimal_text
from stream_dp.records.scalars import problem
from stream_dp.statistics.parts.choice import TOLERATED, Compared, FalseAlarm, Floats
from stream_dp.statistics.parts.verdicts import Guess, Judged, Outcome, Seen
from stream_dp.statistics.parts.windows import length_of, length_problems

DAY = 86_400_000  # ms
SignedThreshold: TypeAlias = Annotated[int, Field(ge=-LARGEST_THRESHOLD, le=LARGEST_THRESHOLD)]


def window_terms(
    threshold: int, places: int, window: int, *, below: bool, rearm: bool
) -> WatchTerms:
    """Return the terms of a watch over so many ticks: a single one has noise of its own, which is less."""
    if window == 1:
        return WatchTerms(threshold, places, True, below, rearm)
    return WatchTerms(threshold, places, below=below, rearm=rearm, window=window)


def usual_count(threshold: int, below: bool, usual: int | None) -> int:
    """Return the level at which a count is no reason to fire: half the threshold, or twice where it fires below it.

    >>> usual_count(60, True, None), usual_count(-60, True, None)  # below a negative sum: half the way from 0
    (120, -30)
    """
    if usual is not None:
        return usual
    if below:
        return 2 * threshold if threshold > 0 else -(-threshold // 2)
    return threshold // 2


class Looking(NamedTuple):
    """How alarms look: at each tick of `step` ms, `comparisons` times in all; bands hold with `confidence`."""

    step: int
    comparisons: int
    confidence: float

    @property
    def ticks(self) -> int:
        """How many ticks begin in a day, at least one."""
        return max(1, -(-DAY // self.step))


def alarm_of(
    name: str,
    watches: WatchNoise,
    terms: WatchTerms,
    level: tuple[int, int | None],
    grain: Fraction,
    looking: Looking,
    *,
    keyed: bool,
    of: str | None,
) -> FalseAlarm:
    """Return how likely a watch fires by noise on a day.

    `terms` are those of one place; `level` the threshold and the usual count, where one is given, in numbers of which
    `grain` is a unit. Between two units the chance is that at the one that is nearer the threshold.
    """
    threshold, given = level
    usual = usual_count(threshold, terms.below, given)
    units = math.floor(usual / grain) if terms.below else math.ceil(usual / grain)
    band = watches.band_of(terms, looking.comparisons, looking.confidence) * grain
    margin = watches.enough_margin(terms, looking.ticks, TOLERATED) + 1  # a unit for rounding
    distance = math.ceil(margin * grain)
    compared = Compared(threshold, float(band), distance, terms.below, given is None, grain)
    chance = watches.false_alarm(terms, units, looking.ticks)
    return FalseAlarm(name, usual, chance, keyed, of, compared)


def usual_problems(threshold: int, below: bool, usual: int | None) -> list[InitErrorDetails]:
    if usual is None or (usual >= threshold) == below:
        return []
    limit = f"{threshold:,} or more" if below else f"less than {threshold:,}"
    return [problem(("usual",), f"must be {limit}: at another count an alarm is not false")]


def level_problems(
    at: Place, level: int | None, *, below: bool, step: Fraction, signed: bool
) -> list[InitErrorDetails]:
    if level is None:
        return []
    if level < 1 and not (below and signed):
        why = ": a sum begins at 0; below a level it fires with `below`" if signed else ""
        return [problem(at, f"must be greater than or equal to 1{why}")]
    if (level / step).denominator != 1:
        return [problem(at, f"must be a multiple of the step {decimal_text(step)}")]
    if abs(level / step) > LARGEST_THRESHOLD:
        return [problem(at, "is more than 10^15 steps: give a wider step")]
    return []


def sign_problems(at: Place, usual: int | None, *, signed: bool) -> list[InitErrorDetails]:
    if usual is not None and usual < 0 and not signed:
        return [problem((*at, "usual"), "must be greater than or equal to 0")]
    return []


def over_problems(at: Place, over: str | None, clock: Clock) -> list[InitErrorDetails]:
    return length_problems((*at, "over"), over, clock) if over and length_of(over) else []


class OnSums:
    """What alerts and monitors say of the sums that they may look at, by their keys `of`, `clamp` and `step`."""

    if TYPE_CHECKING:
        of: str | None
        clamp: Clamp | None
        step: Fraction

    views: ClassVar[tuple[str, ...]] = ()
    """No window of its releases: flags show none."""

    @property
    def amount(self) -> Amount | None:
        if self.of is None or self.clamp is None:
            return None
        return Amount(self.of, *self.clamp, self.step)

    @property
    def grain(self) -> Fraction:
        return self.step

    @property
    def signed(self) -> bool:
        return self.amount is not None and self.amount.lowest < 0

    @property
    def perhaps_signed(self) -> bool:
        """Whether a sum may be below 0; so may one without a clamp, which is a problem by itself."""
        return self.of is not None and (self.clamp is None or self.clamp[0] < 0)

    @property
    def error_unit(self) -> str:
        return "events" if self.of is None else f"of {self.of}"

    def outcomes(self, shown: object, totals: object, names: object) -> tuple[Outcome, ...]:
        """Return none: when it fires by noise is told beforehand."""
        return ()

    def guessed_totals(self, guess: Guess) -> Floats:
        """Return zeros: what it may fire by noise follows from the file alone."""
        return guess.evenly(Fraction(0))

    def judged(self, seen: Seen) -> Judged:
        """Return the threshold, its band and the chance of a false alarm, of the watch where these weigh most."""
        watches = [
            Judged(alarm.compared.threshold, alarm.compared.band, "the threshold", alarm.chance)
            for alarm in seen.choice.alarms
        ]
        return max(watches, key=lambda watch: watch.share)

    def sum_problems(self) -> list[InitErrorDetails]:
        if self.of is None:
            given = (("clamp", self.clamp is not None), ("step", self.step != 1))
            why = "is for sums only: name the field to add up with of"
            return [problem((key,), why) for key, is_there in given if is_there]
        if self.clamp is None:
            why = "needs a clamp, such as clamp: [0, 240]: it says how much one event can add"
            return [problem(("of",), why)]
        return clamp_problems(self.clamp, self.step)
