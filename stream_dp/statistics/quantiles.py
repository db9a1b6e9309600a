"""The statistic `quantiles`: which values have a given share of the records below them.

Over sliding windows and so far, at every tick or at the end of each hop of several, each with the values that it may
be; or by `every`, of windows that follow one another without a gap. The first hop, and the first window of `every`,
begins with the series' first tick: what is told at an end stays until the next one.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import AfterValidator, Field, PrivateAttr, WithJsonSchema
from pydantic_core import InitErrorDetails

from stream_dp.core.mechanism import IntArray
from stream_dp.engine.series import Tell
from stream_dp.errors import NotDerivable
from stream_dp.journal.release import Quantile, Shape
from stream_dp.mechanisms.linear.noisy_forest import FLAT_IS_BEST
from stream_dp.mechanisms.linear.pairs import ever_share
from stream_dp.mechanisms.quantiles.bucket_windows import (
    UNTOLD,
    RankWindow,
    TumblingQuantiles,
    best_rank_levels,
    tuples_of,
)
from stream_dp.mechanisms.quantiles.value_tree import (
    EACH,
    PARTS,
    SlidingQuantiles,
    ValueLevels,
    ValueTree,
    best_levels,
)
from stream_dp.records.amount_units import plain_number
from stream_dp.records.groupings import Edge, Edges, by_problems, decimal_text
from stream_dp.records.scalars import (
    DURATION_FORM,
    FieldName,
    duration_text,
    milliseconds,
    must,
    problem,
)
from stream_dp.records.schema import Fields, FieldSpec
from stream_dp.statistics.parts.choice import (
    Choice,
    Floats,
    Setting,
    largest_rho,
    steady,
    tree_counter,
)
from stream_dp.statistics.parts.choose_hss import ExpectedEvents
from stream_dp.statistics.parts.series_spec import Rest, SeriesSpec
from stream_dp.statistics.parts.verdicts import Guess, Judged, Outcome, Seen
from stream_dp.statistics.parts.windowed import CORRELATED, ended
from stream_dp.statistics.parts.windows import (
    EVER,
    WHEN_ENDED,
    Every,
    Windows,
    every_problems,
    first_end,
    following,
    length_of,
    length_problems,
    over_windows,
    sliding,
    window_lengths,
    window_problems,
    windowed,
)

BUCKETS, MOST_BUCKETS = 200, 999


def _clamp(value: tuple[Fraction, Fraction]) -> tuple[Fraction, Fraction]:
    if value[0] >= value[1]:
        raise ValueError(
            f"is an empty range: {decimal_text(value[0])} is not below {decimal_text(value[1])}"
        )
    return value


Clamp = Annotated[tuple[Edge, Edge], AfterValidator(_clamp)]
Ends = Annotated[tuple[Edge, ...], Field(min_length=2, max_length=MOST_BUCKETS + 1)]


@dataclass(frozen=True)
class ValueGrid:
    """A public grid over the values of a number field: the `ends` of its buckets, from the lowest value to the highest.

    A value below the grid counts at its lower end, one above at its upper end; each end is a bucket by itself, first
    and last.
    """

    ends: tuple[Fraction, ...]

    @classmethod
    def within(cls, clamp: tuple[Fraction, Fraction], buckets: int) -> "ValueGrid":
        low, high = clamp
        return cls(tuple(low + (high - low) * n / buckets for n in range(buckets + 1)))

    @cached_property
    def buckets(self) -> tuple[tuple[Fraction, Fraction], ...]:
        """The two ends of each, those of the values beyond the grid among them."""
        low, high = self.ends[0], self.ends[-1]
        return ((low, low), *pairwise(self.ends), (high, high))

    def bucket(self, place: int) -> Quantile:
        low, high = self.buckets[place]
        ends = plain_number(low), plain_number(high)
        return Quantile(value=plain_number((low + high) / 2), bucket=ends)

    def between(self, place: int, below: int, above: int) -> Quantile:
        """Return what is told of a place in parts of buckets, where so many buckets are ruled out on either side."""
        at, part = divmod(place, PARTS)
        low, high = self.buckets[at]
        value = plain_number(low + (high - low) * Fraction(part, PARTS))
        first, last = self.buckets[below][0], self.buckets[-1 - above][1]
        return Quantile(value=value, low=plain_number(first), high=plain_number(last))


Buckets = Annotated[
    int,
    Field(le=MOST_BUCKETS),
    must(lambda n: n >= 2, "must be 2 or more: one bucket tells no value from another"),
]


def bin_problems(
    bins: Edges, clamp: tuple[Fraction, Fraction] | None, fields: Fields
) -> list[InitErrorDetails]:
    problems = by_problems((), bins, fields)
    of_field: list[InitErrorDetails] = [
        {**wrong, "loc": ("of",)} for wrong in problems if wrong.get("loc") == ("field",)
    ]
    of_edges = [wrong for wrong in problems if wrong.get("loc") != ("field",)]
    if clamp is None:
        return [*of_field, *of_edges]
    return of_field or (_bucket_problems(bins, clamp) if of_edges else [])


def default_buckets(field: FieldSpec | None, clamp: tuple[Fraction, Fraction]) -> int:
    """Return into how many buckets the clamp is cut by default: of an integer field (None: no field), at integers."""
    whole = field is not None and field.type == "integer"
    return (_fitting(clamp, BUCKETS) if whole else None) or BUCKETS


def _fitting(clamp: tuple[Fraction, Fraction], wanted: int) -> int | None:
    """The number of equal buckets nearest to what is `wanted`, by ratio, that begin at integers; None: there is none.

    >>> [_fitting((Fraction(low), Fraction(400)), BUCKETS) for low in (0, -20, 393, -1, "1/2", -609)]
    [200, 210, 7, 401, None, None]
    """
    low, span = clamp[0], clamp[1] - clamp[0]
    if low.denominator != 1 or span.denominator != 1:
        return None
    counts = (many for many in range(2, min(MOST_BUCKETS, int(span)) + 1) if span % many == 0)
    return min(
        counts, key=lambda many: max(Fraction(many, wanted), Fraction(wanted, many)), default=None
    )


def _bucket_problems(bins: Edges, clamp: tuple[Fraction, Fraction]) -> list[InitErrorDetails]:
    low, high = map(decimal_text, clamp)
    many, fits = len(bins.edges) - 1, _fitting(clamp, len(bins.edges) - 1)
    if fits is None:
        why = (
            f"the range {low} to {high} has no 2 to {MOST_BUCKETS} equal buckets that begin at values of "
            f"'{bins.field}': give another range, or edges"
        )
        return [problem(("clamp",), why)]
    why = (
        f"{many} equal buckets from {low} to {high} do not begin at values of '{bins.field}': choose a number of "
        f"buckets that divides the range, such as buckets: {fits}, or leave it out"
    )
    return [problem(("buckets",), why)]


BEYOND, UNRANKED = 2, 1
"""Entries of a row beside those between the ends: values at the ends and beyond, and what has no value."""
FEWER = (5, 7, 10, 14, 20, 30, 50, 80, 125)
"""Numbers of buckets that `plan` compares with those of a file."""
MUCH = 0.1
"""The part of a window's records from which on an error in ranks is much."""
IN_RANKS = "errors are in ranks, that is, in events"
TUPLES_OF_AN_ENTRY = 50
"""As many tuples as a window's end looks at while a live series' entry is told, some 2 µs."""
MOST_TUPLES = 1 << 21
"""Tuples of buckets among which all quantiles are chosen together: a window's end takes a tenth of a second."""


def tumbling_choice(
    setting: Setting,
    epsilon: Fraction,
    lengths: Sequence[str],
    at: tuple[Fraction, ...],
    *,
    together: bool = False,
) -> Choice:
    """Choose noisy maxima for each window as it ends, at equal shares of the epsilon: of each quantile, or one of all.

    The reason names the error of the other way where that is less.
    """
    ticks = tuple(milliseconds(name) // setting.step for name in lengths)
    apart = TumblingQuantiles(setting.width, epsilon, setting.neighbors, ticks, at, UNRANKED)
    joint, less = replace(apart, together=True), ""
    if not together and 1 < tuples_of(apart.buckets, len(at)) <= MOST_TUPLES:
        bands = [each.band(None, setting.confidence) for each in (joint, apart)]
        less = (
            f"; with method: together, the band would be {bands[0]} instead of {bands[1]}"
            if bands[0] < bands[1]
            else ""
        )
    mechanism = joint if together and len(at) > 1 else apart
    whole = (
        "the choice of all quantiles together"
        if mechanism.together
        else "the choice of each quantile"
    )
    why = f"{whole} has epsilon {mechanism.choice_epsilon}{less}; {IN_RANKS}"
    chosen = steady(mechanism, why, setting)
    windows = dict.fromkeys(lengths, chosen.expected)
    return replace(chosen, windows=windows, supposing="in ranks")


def sliding_choice(
    setting: Setting,
    epsilon: Fraction,
    views: Sequence[str],
    at: tuple[Fraction, ...],
    hop: str | None = None,
    method: str = "apart",
) -> Choice:
    """Choose a tree over the values, counted over the windows among `views` and so far where `ever` is.

    Counts are those of ticks, or of hops: a window is then a sum of fewer noisy counts. The reason names the error of
    `CORRELATED` where that is less.
    """
    if method == CORRELATED:
        return correlated_choice(setting, epsilon, views, at, hop)
    levels = best_levels(setting.width - UNRANKED, at)
    ticks = 1 if hop is None else milliseconds(hop) // setting.step
    horizon = setting.horizon and max(1, setting.horizon // ticks)
    nodes = replace(
        setting,
        width=levels.nodes,
        ones=levels.height,
        step=setting.step * ticks,
        horizon=horizon,
    )
    spans = tuple(milliseconds(name) // nodes.step for name in views if name != EVER)
    share = ever_share(len(spans)) if spans and EVER in views else Fraction(0)
    windows = over_windows(nodes, epsilon, spans, share) if spans else None
    tree = ValueTree(levels, windows or tree_counter(nodes, epsilon), UNRANKED, ticks)
    mechanism = SlidingQuantiles(tree, at, Fraction(str(setting.confidence)))
    over = f"; the counts so far get {share} of the epsilon" if share else ""
    hops = "" if hop is None else f"; counts are released at the end of each {hop}"
    why = f"{_tree_words(levels)}{over}{hops}; {IN_RANKS}"
    choice = replace(windowed(mechanism, setting, views, why), supposing="in ranks")
    if (
        not setting.advise
        or not setting.delta
        or setting.gdp
        or (*spans,) != (*spans[:1],)
        or share
    ):
        return choice
    return _beside_correlated(choice, setting, epsilon, views, at, hop)


def _beside_correlated(
    choice: Choice, setting: Setting, epsilon: Fraction, views: Sequence[str], *own: Any
) -> Choice:
    try:
        other = correlated_choice(setting, epsilon, views, *own)
        bands = [each.windows[views[0]](setting.last) for each in (other, choice)]
    except NotDerivable:
        return choice
    if bands[0] >= bands[1]:
        return choice
    return choice.saying(
        f"with method: {CORRELATED}, the band would be {bands[0]:,.0f} instead of {bands[1]:,.0f}"
    )


def correlated_choice(
    setting: Setting,
    epsilon: Fraction,
    views: Sequence[str],
    at: tuple[Fraction, ...],
    hop: str | None = None,
) -> Choice:
    """Choose Gaussian noise for the ranks of one window, correlated over values and ticks, or hops."""
    if setting.gdp:
        raise NotDerivable(
            f"method {CORRELATED} of quantiles has a zCDP guarantee, which filter gdp cannot add "
            "up: use filter zcdp"
        )
    rho = largest_rho(setting, epsilon, f"method {CORRELATED}")
    levels = best_rank_levels(setting.width - UNRANKED, at)
    hop_ticks = 1 if hop is None else milliseconds(hop) // setting.step
    window = milliseconds(views[0]) // setting.step // hop_ticks
    counts = RankWindow(levels.leaves, rho, setting.neighbors, window, levels)
    tree = ValueTree(levels, counts, UNRANKED, hop_ticks)
    mechanism = SlidingQuantiles(tree, at, Fraction(str(setting.confidence)))
    hops = "" if hop is None else f"; counts are released at the end of each {hop}"
    why = f"method: {CORRELATED}, Gaussian noise for ranks, correlated over values and ticks{hops}; {IN_RANKS}"
    return replace(windowed(mechanism, setting, views, why), supposing="in ranks")


def _tree_words(levels: ValueLevels) -> str:
    if levels.height == 1:
        return f"ranks add up the counts of {levels.leaves} buckets"
    sizes = ", ".join(map(str, levels.sizes))
    return f"ranks from a tree over the values; its levels have {sizes} counts and equal shares of the budget"


def _share(value: Fraction) -> Fraction:
    if not 0 < value < 1:
        raise ValueError(f"'{decimal_text(value)}' must be between 0 and 1, both excluded")
    return value


Shares = Annotated[
    tuple[Annotated[Edge, AfterValidator(_share)], ...], Field(min_length=1, max_length=20)
]


Hop = Annotated[
    str,
    must(lambda name: length_of(name) > 0, "must be a duration such as 1h or 12h"),
    WithJsonSchema(DURATION_FORM),
]


class QuantilesSeries(SeriesSpec):
    """Quantiles of the number `of` on a grid, over sliding `windows`, of each window of `every`, or so far."""

    shape = Shape.HISTOGRAM
    later = ("clamp", "edges", "buckets", "windows", "every", "hop", "method", "expected_events")
    unmeant = ("expected_events",)

    error_unit: ClassVar[str] = "events in rank"

    statistic: Literal["quantiles"] = "quantiles"
    of: FieldName
    clamp: Clamp | None = None
    buckets: Buckets | None = None
    edges: Ends | None = None
    at: Shares
    windows: Windows = ()
    every: Every = ()
    hop: Hop | None = None
    method: Literal["apart", "together", "correlated"] = "apart"
    expected_events: ExpectedEvents = None
    _fitted: bool = PrivateAttr(False)
    _whole: bool = PrivateAttr(False)

    def fitted(self, fields: Mapping[str, Any]) -> "QuantilesSeries":
        field = fields.get(self.of)
        if self.clamp is None or field is None or field.type != "integer":
            return self
        known = self.model_copy()
        known._whole = True  # noqa: SLF001 - a copy
        buckets = default_buckets(field, self.clamp)
        if self.buckets is not None or buckets == BUCKETS:
            return known
        known = known.model_copy(update={"buckets": buckets})
        known._fitted = True  # noqa: SLF001 - a copy
        return known

    @property
    def grid(self) -> ValueGrid:
        if self.clamp is None:
            return ValueGrid(self.edges or ())
        return ValueGrid.within(self.clamp, self.buckets or BUCKETS)

    @property
    def grouped_by(self) -> Edges:
        return Edges(field=self.of, edges=self.grid.ends)

    @property
    def views(self) -> tuple[str, ...]:
        if self.every:
            return self.every
        spans = tuple(name for name in self.windows if name != EVER)
        return (*spans, EVER) if EVER in self.windows or not spans else spans

    def entries(self, keys: Sequence[str]) -> tuple[str, ...]:
        return tuple(map(decimal_text, self.at))

    @property
    def numbers(self) -> int:
        """Numbers of a quantile: one bucket with `every`, else a value with the two ends of its range."""
        return 1 if self.every else EACH

    def teller(self, mechanism: Any, place: int | None, confidence: float) -> Tell:
        """Tell the one bucket of a window that ended, until the next one ends; or places and what is not ruled out.

        Nothing is told before the first end.
        """
        grid, numbers = self.grid, self.numbers
        first = 0 if self.every else mechanism.tree.hop - 1
        told: Callable[..., Quantile] = cache(grid.bucket) if self.every else grid.between

        def tell(names: Sequence[str], answer: IntArray, tick: int, state: Any) -> dict[str, Any]:
            if tick < first:
                return {"quantiles": {}}
            rows = zip(names, answer.reshape(-1, numbers).tolist(), strict=True)
            return {"quantiles": {name: told(*row) for name, row in rows if row != [UNTOLD]}}

        return tell

    @property
    def about(self) -> str:
        asked = ", ".join(map(decimal_text, self.at))
        if self.every:
            return f"quantiles {asked} of {self.of} in each {', '.join(self.every)}"
        spans = [name for name in self.views if name != EVER]
        over = f"over {', '.join(spans)}" if spans else ""
        parts = [part for part in (over, "so far" if EVER in self.views else "") if part]
        hops = f", told every {self.hop}" if self.hop else ""
        return f"quantiles {asked} of {self.of} {' and '.join(parts)}{hops}"

    @property
    def nonnegative(self) -> bool:
        return self.grid.ends[0] >= 0

    @property
    def parameters(self) -> dict[str, int | str]:
        ends = self.grid.ends
        return {
            "of": self.of,
            "clamp": f"{decimal_text(ends[0])} to {decimal_text(ends[-1])}",
            "buckets": len(ends) - 1,
            **({"hop": self.hop} if self.hop else {}),
            "told": self._told,
        }

    @property
    def _told(self) -> str:
        if self.hop:
            return f"at the end of each {self.hop}"
        return WHEN_ENDED if self.every else "at every tick"

    def variants(self) -> Iterator[tuple[str, Self]]:
        """Yield the series over tumbling windows, and with all quantiles of a window in one choice."""
        slides = self.method == CORRELATED
        there = {"windows": self.windows, "hop": self.hop, "method": slides}
        alone = {"windows": (), "hop": None, "method": "apart" if slides else self.method}
        for line, name in ended(self.every, there):
            yield line, self.model_copy(update={**alone, "every": (name,)})
        if self.every and self.method == "apart" and len(self.at) > 1:
            yield "method: together", self.model_copy(update={"method": "together"})

    def own_problems(self) -> list[InitErrorDetails]:
        problems = [
            *super().own_problems(),
            *window_problems(self.windows),
            *every_problems(self.every, self.windows),
        ]
        if self.clamp is None and self.edges is None:
            why = "is missing: name a range such as [0, 600], or edges"
            problems.append(problem(("clamp",), why))
        elif self.clamp is not None and self.edges is not None:
            why = "cannot stand beside clamp: the first and the last edge are the clamp"
            problems.append(problem(("edges",), why))
        elif self.edges is not None and self.buckets is not None:
            why = "cannot stand beside edges: the edges define the buckets"
            problems.append(problem(("buckets",), why))
        problems += self._hop_problems()
        if self.method == "together" and not self.every:
            why = "is for tumbling windows: name every, or leave method out"
            problems.append(problem(("method",), why))
        if self.method == CORRELATED and (
            self.every or len(self.windows) != 1 or EVER in self.views
        ):
            why = "correlated is the noise of one window that slides: name one in windows, or leave method out"
            problems.append(problem(("method",), why))
        for place, (before, share) in enumerate(pairwise(self.at)):
            if share <= before:
                problems.append(problem(("at", place + 1), "must be greater than the one before"))
        return problems

    def _hop_problems(self) -> list[InitErrorDetails]:
        """Return what is wrong with the hop beside the windows: each is a whole number of hops."""
        if self.hop is None:
            return []
        if self.every:
            return [problem(("hop",), "cannot stand beside every: give windows in its place")]
        why = f"must be a whole number of hops of {self.hop}"
        return [
            problem(("windows", place), f"'{name}' {why}")
            for place, name in enumerate(self.windows)
            if length_of(name) % length_of(self.hop)  # of `ever` 0
        ]

    def problems(self, rest: Rest) -> list[InitErrorDetails]:
        return [
            *super().problems(rest),
            *([] if self.hop is None else length_problems(("hop",), self.hop, rest.clock)),
            *bin_problems(self.grouped_by, self.clamp, rest.fields),
            *window_lengths(rest.clock, self.windows),
            *window_lengths(rest.clock, self.every, key="every"),
            *self._too_many(),
        ]

    def first_told(self, place: int, step: int) -> int:
        if self.hop:
            return milliseconds(self.hop) // step - 1
        return first_end(self.every, place, step)

    @property
    def work(self) -> int:
        if self.method != "together":
            return 0
        return (
            len(self.every) * tuples_of(len(self.grid.buckets), len(self.at)) // TUPLES_OF_AN_ENTRY
        )

    def _too_many(self) -> list[InitErrorDetails]:
        """Return the problem of a choice among too many tuples of buckets; the values beyond the grid have two."""
        buckets, many = len(self.grid.buckets), len(self.at)
        if self.method != "together" or tuples_of(buckets, many) <= MOST_TUPLES:
            return []
        fits = next(b for b in range(buckets, 0, -1) if tuples_of(b, many) <= MOST_TUPLES) - 2
        why = (
            f"{many} quantiles of {buckets - 2} buckets have {tuples_of(buckets, many):,} tuples, and a choice of all "
            f"takes {MOST_TUPLES:,}: at most {fits} buckets, fewer quantiles, or method: apart"
        )
        return [problem(("method",), why)]

    def choose(self, setting: Setting) -> Choice:
        if self.every:
            together = self.method == "together"
            choice = tumbling_choice(setting, self.epsilon, self.every, self.at, together=together)
        else:
            own = setting, self.epsilon, self.views, self.at, self.hop
            choice = sliding_choice(*own, self.method)
        events, ticks = self.expected_events, setting.last + 1
        expected = setting.records if events is None else Fraction(events, ticks)
        if expected:
            said, much = self._of_expected(choice, setting, expected)
            choice = replace(choice.saying(said), advice=said if much else "")
        if not self._fitted:
            return choice
        return choice.saying(
            f"{self.buckets} buckets, the number nearest to {BUCKETS} that divides the clamp into integers"
        )

    def covered(self, window: str, tick: int, step: int) -> range:
        if self.every:
            return following(window, tick, step, running=False)
        hop = milliseconds(self.hop) // step if self.hop else 1
        end = (tick + 1) // hop * hop
        return sliding(window, end - 1, step)

    def outcomes(
        self, shown: Mapping[str, Any], totals: IntArray, names: Sequence[str]
    ) -> Iterator[Outcome]:
        """Yield for each quantile the records below it, and how many ranks the released bucket is away from there."""
        below = np.concatenate([[0], totals[:-UNRANKED].cumsum()])
        buckets = self.grid.buckets
        for name, quantile in (shown.get("quantiles") or {}).items():
            wanted = float(Fraction(name) * int(below[-1]))
            held = [
                place
                for place, (low, high) in enumerate(buckets)
                if low <= quantile["value"] <= high
            ]
            first, last = float(below[held[0]]), float(below[held[-1] + 1])
            error = min(max(wanted, first), last) - wanted
            yield Outcome(wanted, error, abs(error) <= shown["band"])

    def guessed_totals(self, guess: Guess) -> Floats | str:
        """Return how many records a window has, the typical value of a release whose errors are in ranks."""
        records = guess.records if guess.typical is None else guess.typical
        if records is None:
            return guess.lacking
        totals = np.zeros(guess.width)
        totals[0] = float(records)
        return totals

    def judged(self, seen: Seen) -> Judged:
        """Return how many records lie beyond the quantile that is nearest to an end, and the error in ranks."""
        share = min(min(at, 1 - at) for at in self.at)
        beyond = float(seen.totals[:-UNRANKED].sum()) * float(share)
        return Judged(beyond, seen.band, f"{decimal_text(share)} of the records in a window")

    def _of_expected(
        self, choice: Choice, setting: Setting, expected: Fraction
    ) -> tuple[str, bool]:
        """Return what part of the records `expected` in each window the error is, so many a tick, and if it is much.

        `every`, `hop` and fewer `buckets` are proposed where windows slide and the error is more than `MUCH` of one.
        """
        ticks, last = setting.last + 1, setting.last
        spans = {
            name: ticks if name == EVER else min(milliseconds(name) // setting.step, ticks)
            for name in self.views
        }
        windows = choice.windows or dict.fromkeys(self.views, choice.expected)
        records = {name: expected * span for name, span in spans.items()}
        parts = {name: windows[name](last) / float(many) for name, many in records.items()}
        shown = ", ".join(
            f"{part:.1%} {'so far' if name == EVER else f'in {name}'}"
            for name, part in parts.items()
        )
        said = f"as parts of the expected records, the errors are {shown}"
        much = tuple(name for name, part in parts.items() if part > MUCH and name != EVER)
        if self.every or not much:
            return said, False
        records = {name: records[name] for name in much}
        ended, keys = self._ended(setting, much)
        less = {
            name: ended / float(many)
            for name, many in records.items()
            if ended < windows[name](last)
        }
        ending = f"; with {keys} instead of windows {_in_windows(less)}" if less else ""
        hop, buckets = self._with_hop(setting, records), self._with_buckets(setting, records)
        return f"{said}{ending}{hop}{buckets}", bool(ending or hop or buckets)

    def _ended(self, setting: Setting, lengths: Sequence[str]) -> tuple[float, str]:
        """Return the error of windows that end, by the method with the least, and the keys that ask for it."""
        ways = {"every": False}
        if 1 < tuples_of(setting.width - UNRANKED, len(self.at)) <= MOST_TUPLES:
            ways["every and method: together"] = True
        choices = (
            tumbling_choice(setting, self.epsilon, lengths, self.at, together=together)
            for together in ways.values()
        )
        return min(zip((choice.expected(setting.last) for choice in choices), ways, strict=True))

    def _with_hop(self, setting: Setting, records: Mapping[str, Fraction]) -> str:
        """Return the part that the error is of the `records` of windows with a hop, and with which; empty: with none.

        It is the shortest hop with `MUCH` at most of all of them, or else the longest one.
        """
        lengths = [milliseconds(name) // setting.step for name in self.views if name != EVER]
        whole, now = math.gcd(*lengths), milliseconds(self.hop) // setting.step if self.hop else 1
        said = ""
        for many in range(FLAT_IS_BEST * whole // max(lengths), 0, -1):
            if whole % many or whole // many <= now:
                continue
            hop = duration_text(whole // many * setting.step)
            parts = self._parts(setting, records, hop)
            said = f"; with hop: {hop} {_in_windows(parts)}"
            if max(parts.values()) <= MUCH:
                break
        return said

    def _with_buckets(self, setting: Setting, records: Mapping[str, Fraction]) -> str:
        """Return the part that the error is with fewer buckets, and with how many; empty: fewer are no better.

        The place that is told is off by as many ranks as its bucket is, and by what the bucket holds, which is one of
        as many parts as there are buckets where values lie evenly: these have the least sum.
        """
        if self.clamp is None:
            return ""
        now = len(self.grid.buckets) - BEYOND
        numbers = {
            _fitting(self.clamp, number) or now if self._whole else number for number in FEWER
        }
        parts = {
            number: self._parts(
                replace(setting, width=number + BEYOND + UNRANKED), records, self.hop
            )
            for number in {now, *(number for number in numbers if number < now)}
        }
        best = min(parts, key=lambda number: (max(parts[number].values()) + 1 / number, number))
        if best == now:
            return ""
        own = f"a bucket has {1 / best:.1%} on average"
        return f"; with buckets: {best} {_in_windows(parts[best])} ({own})"

    def _parts(
        self, setting: Setting, records: Mapping[str, Fraction], hop: str | None
    ) -> dict[str, float]:
        """Return by window what part of its `records` the error is in this setting, with this hop."""
        choice = sliding_choice(setting, self.epsilon, self.views, self.at, hop, self.method)
        return {
            name: choice.windows[name](setting.last) / float(many) for name, many in records.items()
        }


def _in_windows(parts: Mapping[str, float]) -> str:
    return ", ".join(f"{part:.1%} in {name}" for name, part in parts.items())
