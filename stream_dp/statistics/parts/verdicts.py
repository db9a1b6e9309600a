"""Whether a number is worth publishing: the half-width of its band beside what the number typically is.

Rules: `Judged.verdict` is the one place that judges, whatever the typical value comes from: public guesses, a sample, a
simulation. A statistic says by `judged` what its readers compare, and by `guessed_totals` what follows from guesses.
This file knows no statistic. A verdict is as public as what it is made of.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from stream_dp.core.mechanism import IntArray
from stream_dp.mechanisms.serving import Bands, Differences
from stream_dp.records.privacy import GUESSES
from stream_dp.statistics.parts.choice import TOLERATED, Choice, ExpectedShape, Floats, Profile

USEFUL, NOISE = "useful", "noise"
ROUGH = "rough"
USEFUL_SHARE = 0.2  # a band of at most this part of the typical value
NOISE_SHARE = 1.0  # a band from here on holds 0, and any number as often


class Judged(NamedTuple):
    """What a reader compares: a `typical` number and its half-width; `what` says which number, where that is not plain.

    `chance` is that of a false alarm per key and day: one that is just tolerated weighs as a band that is just useful.
    """

    typical: float
    band: float
    what: str = ""
    chance: float = 0.0

    @property
    def share(self) -> float:
        """The band as a part of the typical value; infinite for a band around 0."""
        size = abs(self.typical)
        own = self.band / size if size else (float("inf") if self.band else 0.0)
        return max(own, self.chance / TOLERATED * USEFUL_SHARE)

    @property
    def verdict(self) -> str:
        """Return `useful`, `rough` or `noise`.

        >>> [Judged(100, band).verdict for band in (20, 21, 99, 100)], Judged(0, 1).verdict
        (['useful', 'rough', 'rough', 'noise'], 'noise')
        >>> [Judged(9, 0, "", chance).verdict for chance in (0.05, 0.06, 0.25)]
        ['useful', 'rough', 'noise']
        """
        if self.share <= USEFUL_SHARE:
            return USEFUL
        return ROUGH if self.share < NOISE_SHARE else NOISE


@dataclass(frozen=True)
class Seen:
    """What a window of a series holds at a tick: the `totals` of its rows, shape (width,), in units.

    `names` are those of its entries, `place` is that of the window among its views (None: it has none).
    """

    totals: Floats
    names: Sequence[str]
    choice: Choice
    window: str
    place: int | None
    tick: int
    confidence: float

    @cached_property
    def whole(self) -> IntArray:
        rounded: IntArray = np.rint(self.totals).astype(np.int64)
        return rounded

    @property
    def band(self) -> float:
        return (self.choice.windows.get(self.window) or self.choice.expected)(self.tick)

    @property
    def apart(self) -> float:
        """The least difference of two of its numbers that shows their order."""
        both = Differences(self.choice.mechanism, self.place)
        if both.mechanism.noise(both.public(self.tick + 1), self.place) is None:
            return 2 * self.band
        return Bands(both, self.confidence)(self.tick, None)


class Guess(NamedTuple):
    """What public guesses say of a window of a series with rows of `width` entries; None where nothing was guessed.

    `records`: how many records count in it; `typical`: what the series shows of it, or what stands for that (docs);
    `amount`: what a record adds; `users`: how many users of the cap there are. `lacking` is the guess without which
    there are no `records`.
    """

    width: int
    name: str
    lacking: str
    records: Fraction | None = None
    typical: Fraction | None = None
    amount: Fraction | None = None
    users: Fraction | None = None

    def needs(self, key: str) -> str:
        return f"{GUESSES}.{key}.{self.name}"

    def evenly(self, units: Fraction) -> Floats:
        return np.full(self.width, float(units))


def spread(width: int, total: Fraction, shape: ExpectedShape | None) -> Floats:
    """Return so many events by category, the most frequent first: as a Zipf law has them unless another is declared."""
    profile = Profile.of(width, 10**9, shape or "zipf")
    counts = np.repeat(profile.counts, profile.weights.astype(np.int64))
    spread_out: Floats = counts * float(total) / float(counts.sum())
    return spread_out


def leading(guess: Guess, shape: ExpectedShape | None = None) -> Floats | str:
    """Return totals by category of which the largest is the typical value, or that add up to the records."""
    if guess.typical is None:
        return guess.lacking if guess.records is None else spread(guess.width, guess.records, shape)
    counts = spread(guess.width, Fraction(1), shape)
    return counts * float(guess.typical) / float(counts.max())


def of_quotients(fields: Mapping[str, Any]) -> Judged:
    """Judge released quotients with their ends: of several, the one in the middle by its band's share."""
    many = "lows" in fields
    values = list(fields["values"].values()) if many else [fields["value"]]
    ends = (
        zip(fields["lows"], fields["highs"], strict=True)
        if many
        else [(fields["low"], fields["high"])]
    )
    cells = [_quotient(value, *end) for value, end in zip(values, ends, strict=True)]
    ordered = sorted(cells, key=lambda cell: cell.share)
    return ordered[len(ordered) // 2]._replace(what=_cell(len(cells)))


def _quotient(value: Any, low: Any, high: Any) -> Judged:
    if None in (value, low, high):
        return Judged(0.0 if value is None else float(value), float("inf"))
    return Judged(float(value), float(max(high - value, value - low)))


def finite(number: float) -> float | None:
    return number if number < float("inf") else None


class Outcome(NamedTuple):
    """A true number, by how much what was released is off, and whether its band holds the truth."""

    truth: float
    error: float
    held: bool


def of_release(shown: Mapping[str, Any], truth: Sequence[Any]) -> Iterator[Outcome]:
    """Yield the outcomes of released numbers, which have one band or ends of their own; a null has none."""
    values = list(shown["values"].values()) if "values" in shown else [shown["value"]]
    band = shown.get("band")
    lows = shown.get("lows", [shown.get("low")] * len(values))
    highs = shown.get("highs", [shown.get("high")] * len(values))
    for value, true, low, high in zip(values, truth, lows, highs, strict=True):
        if value is not None and true is not None:
            number, error = float(true), float(value) - float(true)
            inside = (low is None or low <= number) and (high is None or number <= high)
            yield Outcome(number, error, inside if band is None else abs(error) <= band)


def of_cells(cells: Floats, band: float) -> Judged:
    """Judge numbers that have the same band: of several, the median one."""
    return Judged(float(np.median(np.abs(cells))), band, _cell(len(cells)))


def _cell(many: int) -> str:
    return f"the median of {many:,}" if many > 1 else ""
