"""Verdicts on every window of every series: by public guesses for `plan`, or by whatever else says typical totals.

Rules: what a series counts in a window comes as the totals of its rows, from guesses, a sample or a simulation; what
becomes of them is the same everywhere. Without totals there is no verdict but the name of the guess that is missing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

from stream_dp.core.wording import how_many, shown_number
from stream_dp.pipeline.builder import Built, Chosen
from stream_dp.pipeline.report import Capped, span_of
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_guard import guessed_records
from stream_dp.records.amount_units import UserTotal
from stream_dp.records.privacy import GUESSES, Guesses
from stream_dp.statistics.parts.choice import ENDLESS, Floats
from stream_dp.statistics.parts.series_spec import MadeOf
from stream_dp.statistics.parts.verdicts import (
    NOISE,
    ROUGH,
    USEFUL,
    Guess,
    Judged,
    Seen,
    finite,
    of_quotients,
)

Totals: TypeAlias = Callable[[Chosen, str, int], Floats | str]
"""Returns the totals of a series' rows, of so many entries, in a window of this name; or why nothing says them."""


class Row(NamedTuple):
    """The verdict on a window of a series ("": it has none); without `judged`, `missing` is what is not known."""

    series: str
    window: str
    judged: Judged | None
    missing: str = ""

    @property
    def verdict(self) -> str:
        return "" if self.judged is None else self.judged.verdict

    def json(self) -> dict[str, Any]:
        named = {"series": self.series, **({"window": self.window} if self.window else {})}
        if self.judged is None:
            return {**named, "verdict": None, "missing": self.missing}
        typical, band, what, chance = self.judged
        about = {"of": what} if what else {}
        false = {"false_alarm": chance} if chance else {}
        return {
            **named,
            "verdict": self.verdict,
            "typical": typical,
            "band": finite(band),
            **about,
            **false,
        }

    @property
    def words(self) -> tuple[str, str, str]:
        """Return the typical number, its half-width and the verdict, as people read them."""
        if self.judged is None:
            return "?", "", f"not known without {self.missing}"
        typical, band, what, chance = self.judged
        about = shown_number(typical) + (f", {what}" if what else "")
        width = f"± {shown_number(band)}" if band < float("inf") else "no end"
        alarms = f", false alarms {chance:.1%} a day" if chance >= 0.001 else ""
        return about, width, f"{self.verdict}{_share(band, typical)}{alarms}"


def _share(band: float, typical: float) -> str:
    """Return in brackets what part of a number its band is, or how many times as large; empty where that says nothing.

    >>> _share(20, 100), _share(99, 100), _share(682, 183), _share(1, 0)
    (' (20%)', ' (99%)', ' (3.7 times the number)', '')
    """
    if not typical or band == float("inf"):
        return ""
    share = band / abs(typical)
    return f" ({share:.0%})" if share < 2 else f" ({float(f'{share:.2g}'):,g} times the number)"


def judged(built: Built, totals: Totals) -> tuple[Row, ...]:
    """Return a row for every window of every series, at the last tick or the farthest predicted one."""
    spec, layout = built.spec, built.layout
    seen: dict[tuple[str, str], Seen | str] = {}
    rows: dict[str, list[Row]] = {}
    for chosen in built.chosen:
        name = chosen.spec.name
        windows = seen_windows(spec, chosen, layout.keys(name), totals)
        seen |= {(name, window): held for window, held in windows.items()}
        rows[name] = list(_rows(chosen, windows))
    for made in built.made:
        rows[made.series.name] = list(_made(built, made, seen))
    return tuple(row for series in spec.series for row in rows[series.name])


def judged_alone(
    spec: PipelineSpec, chosen: Chosen, keys: Sequence[str], totals: Totals
) -> tuple[Row, ...]:
    """Return the rows of one series, whose rows have these keys."""
    return tuple(_rows(chosen, seen_windows(spec, chosen, keys, totals)))


def seen_windows(
    spec: PipelineSpec, chosen: Chosen, keys: Sequence[str], totals: Totals
) -> dict[str, Seen | str]:
    """Return what each window of a series holds by these totals, or what is not known."""
    names, last = chosen.spec.entries(keys), (spec.clock.horizon or ENDLESS) - 1
    windows: dict[str, Seen | str] = {}
    for place, window in enumerate(chosen.spec.views or ("",)):
        held, at = totals(chosen, window, len(keys)), place if chosen.spec.views else None
        windows[window] = (
            held
            if isinstance(held, str)
            else Seen(held, names, chosen.choice, window, at, last, float(spec.confidence))
        )
    return windows


def _rows(chosen: Chosen, windows: Mapping[str, Seen | str]) -> Iterator[Row]:
    for window, seen in windows.items():
        if isinstance(seen, str):
            yield Row(chosen.spec.name, window, None, seen)
        else:
            yield Row(chosen.spec.name, window, chosen.spec.judged(seen))


def _made(built: Built, made: MadeOf, seen: Mapping[tuple[str, str], Seen | str]) -> Iterator[Row]:
    """Yield the rows of a series that is made of the releases of others, by what makes it."""
    series, units = made.series, {c.spec.name: c.spec.grain for c in built.chosen}
    for window in series.windows or ("",):
        inputs = [(name, seen[name, window]) for name in series.inputs]
        missing = [held for _, held in inputs if isinstance(held, str)]
        if missing:
            yield Row(series.name, window, None, missing[0])
            continue
        parts = [_part(held, units[name]) for name, held in inputs if not isinstance(held, str)]
        last = (built.spec.clock.horizon or ENDLESS) - 1
        yield Row(series.name, window, of_quotients(series.makes[0](last, window, parts)))


def _part(seen: Seen, unit: Fraction) -> dict[str, Any]:
    numbers = [units * unit for units in seen.whole.tolist()]
    if not any(seen.names):
        return {"value": numbers[0]}
    return {"values": dict(zip(seen.names, numbers, strict=True))}


@dataclass(frozen=True)
class Guessed:
    """The totals that the file's public guesses say; `privacy.expect` may be missing."""

    spec: PipelineSpec

    def __call__(self, chosen: Chosen, window: str, width: int) -> Floats | str:
        spec, series = self.spec, chosen.spec
        guesses, last = spec.privacy.expect or Guesses(), (spec.clock.horizon or ENDLESS) - 1
        span = span_of(window, spec.clock.step, last)
        cap = spec.privacy.window_ticks(spec.clock) or last + 1
        a_tick = guessed_records(spec, series)
        typical = guesses.typical.get(series.name, {})
        identifier = series.identifier
        whole = identifier is not None and identifier.counts(spec.privacy.user) and span == cap
        users = guesses.users if whole and not series.where else None
        guess = Guess(
            width,
            series.name,
            a_tick if isinstance(a_tick, str) else "",
            None if isinstance(a_tick, str) else a_tick * span,
            typical.get(window, typical.get("")),
            self._amount(chosen, guesses, cap),
            None if users is None else users * (spec.privacy.share or Fraction(1)),
        )
        return series.guessed_totals(guess)

    def _amount(self, chosen: Chosen, guesses: Guesses, cap: int) -> Fraction | None:
        """Return what a record adds on average: less where a user's total leaves no room for more. A shared one is used
        by records that do not pass, too.
        """
        series, amount = chosen.spec, guesses.amounts.get(chosen.spec.name)
        total, each = series.amount, None if amount is None else series.typical(amount)
        if each is None or guesses.users is None:
            return amount
        passing = guesses.passing.get(series.name, Fraction(1))
        if isinstance(total, UserTotal):
            most = total.most * series.grain
        elif (shared := self.spec.privacy.total_of(series.shares)) is not None:
            most, passing = shared.at_most, Fraction(1)
        else:
            return amount
        added = [n * passing * each for n in Capped("", self.spec.privacy, guesses, cap).counting]
        kept = sum((min(abs(of_one), most) for of_one in added), Fraction(0))
        whole = abs(sum(added, Fraction(0)))
        return each * kept / whole if whole else each


def summary(rows: Sequence[Row]) -> str:
    """Return in one line how many rows have which verdict, and which guesses are missing.

    >>> summary([Row("a", "", Judged(9, 1)), Row("b", "", Judged(1, 9)), Row("c", "", None, "privacy.expect.records")])
    'Verdicts: 1 useful, 1 noise; 1 not known without privacy.expect.records'
    """
    counts = [(sum(row.verdict == word for row in rows), word) for word in (USEFUL, ROUGH, NOISE)]
    known = ", ".join(f"{many:,} {word}" for many, word in counts if many)
    missing = dict.fromkeys(row.missing for row in rows if row.judged is None)
    some = [*missing][:3] + (["..."] if len(missing) > 3 else [])
    unknown = sum(row.judged is None for row in rows)
    lacking = f"{unknown:,} not known without {', '.join(some)}" if unknown else ""
    return f"Verdicts: {'; '.join(filter(None, (known, lacking)))}"


def only_noise(rows: Sequence[Row]) -> str:
    """Return that by the file's guesses a series shows nothing but noise; empty where some window may be worth it."""
    known = [(row, row.judged) for row in rows if row.judged is not None]
    if not known or any(row.verdict != NOISE for row, _ in known):
        return ""
    row, (typical, band, *_) = min(known, key=lambda pair: pair[1].share)
    over = f" over {row.window}" if row.window else ""
    width = f"± {shown_number(band)}" if band < float("inf") else "an unlimited band"
    return (
        f"mostly noise according to the guesses of {GUESSES}: {width} for a number of about "
        f"{shown_number(typical)}{over}"
    )


def noise_by_guesses(built: Built) -> str:
    """Return a warning where the file has guesses, and by these most numbers would be noise; else an empty text."""
    if built.spec.privacy.expect is None:
        return ""
    known = [row for row in judged(built, Guessed(built.spec)) if row.judged is not None]
    noisy = [row for row in known if row.verdict == NOISE]
    if 2 * len(noisy) <= len(known):
        return ""
    names = [*dict.fromkeys(row.series for row in noisy)]
    listed = ", ".join(names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")
    return (
        f"according to the guesses of {GUESSES}, {len(noisy):,} of {how_many(len(known), 'number')} would be "
        f"noise ({listed}): their bands are wider than the typical numbers"
    )
