"""The statistic `mean`: the average of a clamped number, so far, over windows or in each, over all or by key.

Sums of how far records are from the middle of the clamp, and counts beside them, each noisy; the division of what is
noisy already is post-processing ([HSV] 2.14). From the middle no amount is farther than half the clamp's width, so the
noise is made for that, however large the amounts are. Within a total of users, of which a difference of either sign
would use up nothing, sums are of how far records are above the lower end of the clamp, of those that fit into it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from stream_dp.core.mechanism import IntArray
from stream_dp.core.wording import how_many
from stream_dp.engine.series import Tell
from stream_dp.journal.release import name_bytes
from stream_dp.mechanisms.linear.pairs import (
    MeansWithinTotal,
    SumsAndCounts,
    sums_share,
)
from stream_dp.mechanisms.quotients import Quotient, Widths, quotient
from stream_dp.mechanisms.serving import Answer, Bands, Contrasts, WidthsAt
from stream_dp.records.amount_units import Addend, Centred, Fitting, Known, plain_number
from stream_dp.records.conditions import Where
from stream_dp.records.groupings import By, decimal_text
from stream_dp.statistics.parts.choice import Choice, Floats, Setting
from stream_dp.statistics.parts.series_spec import quotient_values
from stream_dp.statistics.parts.verdicts import Guess, Judged, Seen, of_quotients
from stream_dp.statistics.parts.windows import ANEW, ONCE, of_units, shared_choice, sum_counter
from stream_dp.statistics.sum import AmountSeries

PLACES = 2  # digits behind those of the grid
RECORDS = 1_000  # that a predicted error is told for
_TOLD_BYTES = 90
_NONE = Fraction(0)


class MeanPart(NamedTuple):
    """A half of what a mean counts: the sums, or how many records have an amount."""

    name: str
    by: By | None
    amount: Addend
    where: Where = ()


class MeanSeries(AmountSeries):
    """The mean of the field `of`, so far, over windows or in each, each value within `clamp`, on a grid of `step`.

    With `shared_total` a record counts if it fits wholly into what is left of its user's total.
    """

    numbers: ClassVar[int] = 2

    statistic: Literal["mean"] = "mean"

    @property
    def about(self) -> str:
        fitting = ", of records that fit into what is left of their user's total"
        return super().about + (fitting if self.shared_total else "")

    @property
    def amount(self) -> Centred | Fitting:
        return Fitting(self.whole) if self.shared_total else Centred(self.whole)

    @property
    def parts(self) -> tuple[MeanPart, MeanPart]:
        counted = Fitting(self.whole, counted=True) if self.shared_total else Known(self.of)
        return MeanPart("sum", self.by, self.amount), MeanPart("count", self.by, counted)

    @property
    def digits(self) -> int:
        return PLACES + next(n for n in range(7) if (self.step * 10**n).denominator == 1)

    @property
    def parameters(self) -> dict[str, int | str]:
        return {**super().parameters, "digits": self.digits}

    def entries(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Return the keys; the rows have a sum and a count of each."""
        if self.by is None:
            return ("",)
        return tuple(key.removeprefix("sum/") for key in keys[: len(keys) // 2])

    def choose(self, setting: Setting) -> Choice:
        """Choose sums and counts on the same windows, and the shares with which the mean is best on the average."""
        half = replace(setting, width=setting.width // 2, weight=1, signed=False)
        share = self._share(half)
        mechanism = self._both(half, self.epsilon * share, self.epsilon * (1 - share))
        errors = {
            name: self._expected(self._widths(mechanism, place, setting.confidence))
            for name, place in self._places.items()
        }
        why, supposing = self._why(share, mechanism, setting), f"for {how_many(RECORDS, 'record')}"
        first, windows = next(iter(errors.values())), errors if self.views else {}
        return Choice(mechanism, why, first, windows, supposing=supposing)

    def _share(self, half: Setting) -> Fraction:
        """Return the sums' share of the epsilon."""
        lowest, highest = self.amount.units
        if half.users is not None:
            return sums_share(half.total, half.users.cap, Fraction(highest))
        probe = sum_counter(replace(half, horizon=1), Fraction(1), (lowest, highest))
        touched = half.neighbors.l0(half.width, half.ones)
        return sums_share(probe.l1, touched, Fraction(highest - lowest, 2))

    def _both(self, half: Setting, sums: Fraction, counts: Fraction) -> SumsAndCounts:
        spans, users = self.spans, half.users
        if users is None:
            added = of_units(half, sums, spans, self.amount.units, "sums")
            counted = of_units(half, counts, spans, None, "counts")
            return SumsAndCounts(added.mechanism, counted.mechanism)  # type: ignore[arg-type]
        added = shared_choice(half, sums, spans, self.step)
        counted = of_units(half, counts / users.cap, spans, None, "counts")
        return MeansWithinTotal(added.mechanism, counted.mechanism)  # type: ignore[arg-type]

    @property
    def _middle(self) -> int:
        """How many units the middle of the clamp is from what amounts are counted from."""
        return sum(self.amount.units) // 2 if self.shared_total else 0

    def _at(self, units: int) -> Fraction:
        return self.amount.centre + units * self.step

    @property
    def _places(self) -> Mapping[str, int | None]:
        return {name: place for place, name in enumerate(self.views)} or {"": None}

    def _widths(self, mechanism: SumsAndCounts, place: int | None, confidence: float) -> WidthsAt:
        """How far sums less a mean of them times counts are from 0; from the middle no mean is farther."""
        halves: tuple[Any, Any] = (mechanism.sums, mechanism.counts)
        sums, counts = (Answer(half, place) for half in halves)
        reach = max(map(abs, self.amount.units))
        return Contrasts(sums, counts, confidence, Fraction(reach), (self.step, Fraction(1)))

    def _expected(self, widths: WidthsAt) -> Callable[[int], float]:
        """How far the ends are from the middle of the clamp at a tick, where `RECORDS` records count."""
        above = self._middle

        def error(tick: int) -> float:
            middle = self._mean(above * RECORDS, RECORDS, widths(tick))
            return plain_number(Fraction(middle.high or 0) - self._at(above))

        return error

    def _why(self, share: Fraction, mechanism: SumsAndCounts, setting: Setting) -> str:
        centre, shown = decimal_text(self.amount.centre), []
        halves: tuple[Any, Any] = (mechanism.sums, mechanism.counts)
        for name, place in self._places.items():
            bands = [Bands(Answer(half, place), setting.confidence) for half in halves]
            sums, counts = (band(setting.last, None) for band in bands)
            window = f"{name}: " if name else ""
            above = decimal_text(sums * self.step)
            shown.append(f"{window}sqrt({above}^2 + ({counts} (r - {centre}))^2) / (n - {counts})")
        once = f"; {ANEW if self.running else ONCE}" if self.every else ""
        if setting.users is not None:
            most, records = setting.total * self.step, how_many(setting.users.cap, "record")
            once += (
                "; only records that fit wholly into the total count: a user changes the sums, together with all "
                f"other series that share the total, by up to {decimal_text(most)}, and the counts by up to "
                f"{records}"
            )
        return (
            f"sums of (amount - {centre}), with {share} of the epsilon, are divided by counts, with the rest of "
            f"the epsilon{once}; at tick {setting.last}, for a mean r of n records, the distance of `low` and "
            f"`high` from r is at most about {', '.join(shown)}; the errors shown are for r = "
            f"{decimal_text(self._at(self._middle))} and n = {RECORDS:,}"
        )

    def teller(self, mechanism: Any, place: int | None, confidence: float) -> Tell:
        widths_at = self._widths(mechanism, place, confidence)

        def tell(names: Sequence[str], answer: IntArray, tick: int, state: Any) -> dict[str, Any]:
            sums, counts = answer.reshape(2, -1)
            widths = widths_at(tick)
            pairs = zip(sums.tolist(), counts.tolist(), strict=True)
            means = [self._mean(added, counted, widths) for added, counted in pairs]
            return quotient_values(means, None if self.by is None else names)

        return tell

    def _mean(self, added: int, counted: int, widths: Widths) -> Quotient:
        """The mean of so many noisy units beyond the middle over so many noisy records."""
        (low, high), centre = self.clamp, self.amount.centre
        of, over = (added * self.step, Fraction(counted)) if counted > 0 else (_NONE, _NONE)
        within = (low - centre, high - centre)
        return quotient(of, over, widths, self.digits, signed=True, within=within, plus=centre)

    def guessed_totals(self, guess: Guess) -> Floats | str:
        """Return sums and counts, where both the mean and the number of records were guessed."""
        if guess.typical is None:
            return guess.needs("typical")
        if guess.records is None:
            return guess.lacking
        (low, high), counts = self.clamp, np.full(guess.width // 2, float(guess.records))
        mean = min(max(guess.typical, low), high)
        counts /= len(counts)
        return np.concatenate([counts * float((mean - self.amount.centre) / self.step), counts])

    def judged(self, seen: Seen) -> Judged:
        tell = self.teller(seen.choice.mechanism, seen.place, seen.confidence)
        return of_quotients(tell(seen.names, seen.whole, seen.tick, None))

    def told_bytes(self, names: Sequence[str]) -> int:
        return sum(map(name_bytes, names)) + _TOLD_BYTES * len(names)

    def shown_totals(self, totals: IntArray) -> list[Any]:
        """Return the mean of each key; None where nothing counts."""
        sums, counts = (half.tolist() for half in np.split(totals, 2))
        centre, step = self.amount.centre, self.step
        return [
            plain_number(centre + Fraction(added, counted) * step) if counted else None
            for added, counted in zip(sums, counts, strict=True)
        ]
