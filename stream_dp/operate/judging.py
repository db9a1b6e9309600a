"""Verdicts by a sample, and what would make numbers useful: for the operator's own terminal, NOT PRIVATE.

Rules: a verdict is that of `pipeline.verdicts`, of the totals of `sampled_rows`. A change of the file by what a sample
shows tells about the sample: the lines are for whoever may look at the data.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

from stream_dp.core.wording import shown_number
from stream_dp.errors import NotDerivable, UsageError
from stream_dp.journal.release import Shape
from stream_dp.operate.fitting import Sample
from stream_dp.operate.sampled_rows import Rows, Sampled, rows_of, usable
from stream_dp.pipeline.builder import Built, chosen_for
from stream_dp.pipeline.layout import RowLayout
from stream_dp.pipeline.spec import PipelineSpec, series_problems
from stream_dp.pipeline.verdicts import Row, judged, judged_alone, summary
from stream_dp.records.scalars import duration_text
from stream_dp.statistics import Series
from stream_dp.statistics.parts.choice import two_digits
from stream_dp.statistics.parts.verdicts import USEFUL, USEFUL_SHARE, Judged

STEPS = tuple(1000 * s for s in (60, 600, 3600, 21600, 86400, 604800))
DELTA = Fraction(1, 10**6)  # that is tried beside noise that needs one
MOST_EPSILON = 10  # beyond which there is little privacy
TRIES = 6
TOGETHER = 3  # changes
WINDOWS = "every", "windows", "window", "running"
WAYS = 4  # told of each series
DAY = 86_400_000  # ms, within which a rate comes and goes
WORTH_MORE = (
    0.9  # of the epsilon that fewer changes need, at most, is what more of them are told for
)


class Way(NamedTuple):
    """A change of a pipeline file, as `lines` to paste, with which a series is useful from `epsilon` on, or at best
    what its verdict says.
    """

    lines: tuple[str, ...]
    epsilon: Fraction
    window: str
    judged: Judged

    @property
    def needs(self) -> float:
        """About how much epsilon would make it useful."""
        if self.judged.verdict == USEFUL:
            return float(self.epsilon)
        return float(self.epsilon) * self.judged.share / USEFUL_SHARE

    @property
    def words(self) -> str:
        over = f" over {self.window}" if self.window else ""
        band, typical = map(shown_number, (self.judged.band, self.judged.typical))
        shown = f"{self.judged.verdict}: ± {band} of {typical}{over}"
        needs = f"epsilon: {_decimal(self.epsilon)}"
        return f"{', '.join((*self.lines, needs))}  ({shown})"

    def json(self) -> dict[str, Any]:
        return {
            "change": [*self.lines], "epsilon": float(self.epsilon),
            "verdict": self.judged.verdict, "typical": self.judged.typical,
            "band": self.judged.band, **({"window": self.window} if self.window else {}),
        }  # fmt: skip


@dataclass(frozen=True)
class Judgement:
    """Verdicts by a sample, and by series of which no window is useful the ways to one. NOT PRIVATE.

    `part`: how many ms of a day the sample has, where longer windows are judged at its rate; else 0.
    """

    rows: Sequence[Row]
    ways: dict[str, list[Way]]
    part: int = 0

    @property
    def table(self) -> list[tuple[str, ...]]:
        """Series, window, typical number, half-width and verdict of each row, as people read them."""
        return [(row.series, row.window, *row.words) for row in self.rows]

    @property
    def lines(self) -> Iterator[str]:
        """The verdicts counted, then the ways, series by series."""
        yield summary(self.rows)
        for name, ways in self.ways.items():
            useful = any(way.judged.verdict == USEFUL for way in ways)
            yield (
                f"{name} would be useful with the keys of one of these lines:"
                if useful
                else f"{name} is useful with none of the changes that were tried{'; the nearest:' if ways else ''}"
            )
            for way in ways:
                yield f"    {way.words}"


def judgement_of(built: Built, sample: Sample) -> Judgement:
    """Return verdicts of a pipeline by a sample, and for each series that is not useful in any window what would be."""
    totals = Sampled(built.spec, rows_of(built.spec, sample))
    rows = judged(built, totals)
    ways: dict[str, list[Way]] = {}
    counted = usable(built.spec, sample)  # a series alone would take what the others' fields refuse
    for chosen in built.chosen:
        own = [row for row in rows if row.series == chosen.spec.name and row.judged is not None]
        if own and all(row.verdict != USEFUL for row in own):
            ways[chosen.spec.name] = _Search(_Change((), built.spec, chosen.spec), counted).ways()
    part = len(totals.rows.rows) * built.spec.clock.step
    rated = any(row.judged is not None and totals.rated(row.window) for row in rows)
    return Judgement(rows, ways, part if rated and part < DAY else 0)


class _Change(NamedTuple):
    """A series and its file as they would be changed by these `lines`, each of which changes another key."""

    lines: tuple[str, ...]
    spec: PipelineSpec
    series: Series

    def more(
        self, line: str, spec: PipelineSpec | None = None, series: Series | None = None
    ) -> "_Change | None":
        key = line.partition(":")[0]
        if any(other.partition(":")[0] == key for other in self.lines):
            return None
        return _Change((*self.lines, line), spec or self.spec, series or self.series)


@dataclass(frozen=True)
class _Search:
    """Tries changes of one series, or of the file around it.

    What a changed series loses of what the file's own would show of the same windows is an error, as its band is.
    """

    now: _Change
    sample: Sample
    _rows: dict[Any, Rows] = field(default_factory=dict)

    def ways(self) -> list[Way]:
        """Return more epsilon alone, if that does, and the changes that need least; where none does, the nearest.

        Several changes are tried together by adding to the best two so far, until no more epsilon is needed.
        """
        alone, best, ways = self._way(self.now), [self.now], list[Way]()
        for _ in range(TOGETHER):
            changes = [more for change in best for more in self._changes(change) if more]
            tried = [(way, change) for change in changes if (way := self._way(change))]
            tried.sort(key=lambda pair: pair[0].needs)
            ways += [way for way, _ in tried]
            best = [change for _, change in tried[:2]]
            if not tried or tried[0][0].needs <= self.now.series.epsilon:
                break
        kept = list[Way]([alone] if alone else [])
        for way in sorted(ways, key=lambda way: (len(way.lines), way.needs)):
            fewer = [other for other in kept if {*other.lines} <= {*way.lines}]
            if all(way.needs < WORTH_MORE * other.needs for other in fewer):
                kept.append(way)
        kept.sort(key=lambda way: way.needs)
        useful = [way for way in kept if way.judged.verdict == USEFUL and way is not alone][:WAYS]
        if alone is not None and alone.judged.verdict == USEFUL:
            return [alone, *useful]
        return useful or [
            way for way in kept[:1] if way.lines or way.epsilon != self.now.series.epsilon
        ]

    def _changes(self, at: _Change) -> Iterator[_Change | None]:
        """Yield other forms of the series, and other caps and steps of the file."""
        spec, privacy, clock = at.spec, at.spec.privacy, at.spec.clock
        granting = privacy.granting(DELTA)
        for line, changed in at.series.variants():
            if granting is None or not series_problems(changed, spec):
                yield at.more(line, series=changed)
            else:
                line = f"{line}, privacy.filter: {granting.filter}, privacy.delta: {float(DELTA):g}"
                yield at.more(line, spec.model_copy(update={"privacy": granting}), changed)
        caps = {privacy.cap // 2, privacy.cap // 4, 1} - {0, privacy.cap}
        for cap in sorted(caps, reverse=True) if at.series.form is not Shape.FLAGS else ():
            if privacy.unit == "user" and (less := privacy.capped({privacy.cap_name: cap})):
                capped = spec.model_copy(update={"privacy": less})
                yield at.more(f"privacy.{privacy.cap_name}: {cap}", capped)
        for step in [step for step in STEPS if step > clock.step and not step % clock.step][:3]:
            horizon = clock.horizon and clock.horizon * clock.step // step
            if horizon != 0:
                slower = clock.model_copy(update={"step": step, "horizon": horizon})
                ends = f", clock.horizon: {horizon}" if horizon else ""
                line = f"clock.step: {duration_text(step)}{ends}"
                yield at.more(line, spec.model_copy(update={"clock": slower}))

    def _way(self, change: _Change) -> Way | None:
        """Return from which epsilon on the changed series is useful in a window, or else how near it comes.

        None where nothing is known of it, or where it cannot be.
        """
        epsilon, whole = change.series.epsilon, self._whole(change)
        for _ in range(TRIES):
            series = change.series.at_share(epsilon / change.series.epsilon)
            best = min(
                (_less(row, whole) for row in self._judged(change.spec, series)),
                key=lambda row: row.judged.share if row.judged else math.inf,
                default=None,
            )
            if best is None or best.judged is None:
                return None
            needed = float(epsilon) * max(1.05, best.judged.share / USEFUL_SHARE)
            if best.verdict == USEFUL or needed > MOST_EPSILON:
                return Way(change.lines, epsilon, best.window, best.judged)
            epsilon = Fraction(f"{two_digits(needed):.12g}")
        return None

    def _whole(self, change: _Change) -> dict[str, float]:
        """Return what the file's own series would typically show of the windows of the changed one."""
        keys = (*WINDOWS, "method", "hop") if getattr(change.series, "every", ()) else WINDOWS
        windows = {key: of for key, of in change.series if key in keys}
        spec = self.now.spec.model_copy(update={"clock": change.spec.clock})
        rows = self._judged(spec, self.now.series.model_copy(update=windows))
        return {row.window: row.judged.typical for row in rows if row.judged is not None}

    def _judged(self, spec: PipelineSpec, series: Series) -> Sequence[Row]:
        """Return the verdicts on a series in a file where it is alone; none where it cannot be."""
        alone = spec.model_copy(update={"series": (series,)})
        if series.own_problems() or series_problems(series, alone):
            return ()
        layout = RowLayout.of(alone)
        seen = layout.series[series.name], spec.clock.step, spec.privacy.cap
        try:
            chosen = chosen_for(alone, series, layout.slice(series.name))
            if seen not in self._rows:
                self._rows[seen] = rows_of(alone, self.sample)
        except (NotDerivable, UsageError):
            return ()
        sampled = Sampled(alone, self._rows[seen])
        return judged_alone(alone, chosen, layout.keys(series.name), sampled)


def _less(row: Row, whole: Mapping[str, float]) -> Row:
    if row.judged is None or row.window not in whole:
        return row
    typical, loss = whole[row.window], abs(whole[row.window] - row.judged.typical)
    return row._replace(judged=row.judged._replace(typical=typical, band=row.judged.band + loss))


def _decimal(number: Fraction) -> str:
    return f"{float(number):.12g}"
