"""How a sample of records fits (`stream-dp check`), what its numbers are worth, and when a new ledger is refused.

Rules: all figures about a sample are exact and NOT PRIVATE; the probabilities of false alarms are public, as in
`plan`. No journal is opened or made, nothing is charged or published. A ledger is refused if no record of its source
can be used, because it would release noise alone; this is checked only if there is no journal yet. A refused start
reveals one bit about the data: that records exist, and that none of the inspected ones fits. The error names reasons
and fields, but no count, no place and no content. If the source cannot be read, the engine reports it later.

A verdict is that of `pipeline.verdicts`, of the totals of `sampled_rows`. A change of the file by what a sample shows
tells about the sample: the lines are for whoever may look at the data.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from stream_dp.core.wording import Progress, shown_number, unseen
from stream_dp.errors import NotDerivable, StreamDPError, UsageError
from stream_dp.journal.keys import Sealer
from stream_dp.journal.release import Shape
from stream_dp.operate.budget_view import budget_json
from stream_dp.operate.fitting import (
    UNSIGNED,
    FieldFit,
    Fitting,
    Hint,
    Sample,
    file_sample,
    file_samples,
    fitting_of,
    topic_sample,
)
from stream_dp.operate.keys import sealer_for
from stream_dp.operate.run.settings import settled, source_there
from stream_dp.operate.sampled_rows import Rows, Sampled, out_of_order, rows_of, usable
from stream_dp.pipeline.builder import Built, build, chosen_for
from stream_dp.pipeline.layout import RowLayout
from stream_dp.pipeline.spec import PipelineSpec, series_problems
from stream_dp.pipeline.verdicts import Row, judged, judged_alone, noise_by_guesses, summary
from stream_dp.pipeline.yaml import load
from stream_dp.records.endpoints import FileSourceSpec, KafkaSourceSpec, ReplayClock
from stream_dp.records.scalars import duration_text, milliseconds
from stream_dp.statistics import Series
from stream_dp.statistics.parts.choice import FalseAlarm, two_digits
from stream_dp.statistics.parts.verdicts import USEFUL, USEFUL_SHARE, Judged

STEPS = tuple(1000 * s for s in (60, 600, 3600, 21600, 86400, 604800))
DELTA = Fraction(1, 10**6)  # that is tried beside noise that needs one
MOST_EPSILON = 10  # beyond which there is little privacy
TRIES = 6
TOGETHER = 3  # changes
WINDOWS = "every", "windows", "window", "running"
OF_THE_FILE = "privacy.", "clock."  # begin lines that change more than a series
EXACT = "epsilon", "clamp", "at", "edges", "user_total", "at_least", "at_most", "step"
WAYS = 4  # told of each series
DAY = 86_400_000  # ms, within which a rate comes and goes
WORTH_MORE = (
    0.9  # of the epsilon that fewer changes need, at most, is what more of them are told for
)


class Way(NamedTuple):
    """A change of a pipeline file: `lines` say it; `series` is useful with it, or at best what its verdict says."""

    lines: tuple[str, ...]
    series: Series
    window: str
    judged: Judged

    @property
    def epsilon(self) -> Fraction:
        return self.series.epsilon

    @property
    def needs(self) -> float:
        """About how much epsilon would make it useful."""
        if self.judged.verdict == USEFUL:
            return float(self.epsilon)
        return float(self.epsilon) * self.judged.share / USEFUL_SHARE

    @property
    def entry(self) -> str:
        """The series as an entry of the file, in one line; without its words for readers, which need no change."""
        given = self.series.model_dump(
            mode="json", by_alias=True, exclude_unset=True, exclude_defaults=True,
            exclude={*self.series.words},
        )  # fmt: skip
        head = {"name": self.series.name, "statistic": self.series.statistic}
        plain = {key: _plain(key, value) for key, value in (head | given).items()}
        return yaml.safe_dump(
            plain, default_flow_style=True, sort_keys=False, width=math.inf, allow_unicode=True
        ).rstrip()

    def words(self, left: Fraction, now: Fraction) -> str:
        """Return the entry, and behind it what else the file needs where it cost `now` and `left` is left."""
        over = f" over {self.window}" if self.window else ""
        band, typical = map(shown_number, (self.judged.band, self.judged.typical))
        parts = [part for line in self.lines for part in line.split(", ")]
        others = [part for part in parts if part.startswith(OF_THE_FILE)]
        if self.epsilon > now + left:
            others.append("a larger privacy.epsilon, or less epsilon for other series")
        needs = f"; needs {', '.join(others)}" if others else ""
        return f"- {self.entry}  # {self.judged.verdict}: ± {band} of {typical}{over}{needs}"

    def json(self) -> dict[str, Any]:
        return {
            "change": [*self.lines], "epsilon": float(self.epsilon), "entry": self.entry,
            "verdict": self.judged.verdict, "typical": self.judged.typical,
            "band": self.judged.band, **({"window": self.window} if self.window else {}),
        }  # fmt: skip


@dataclass(frozen=True)
class Judgement:
    """Verdicts by a sample, and by series of which no window is useful the ways to one. NOT PRIVATE.

    `part`: how many ms of a day the sample has, where longer windows are judged at its rate; else 0. `left`: epsilon
    for one more series; `prices`: those of the file's.
    """

    rows: Sequence[Row]
    ways: dict[str, list[Way]]
    part: int = 0
    left: Fraction = Fraction(0)
    prices: Mapping[str, Fraction] = field(default_factory=dict)

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
                f"{name} would be useful with one of these entries instead{_kept(ways)}:"
                if useful
                else f"No change that was tried makes {name} useful{'. The nearest:' if ways else ''}"
            )
            for way in ways:
                yield f"    {way.words(self.left, self.prices[name])}"


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
    return Judgement(
        rows, ways, part if rated and part < DAY else 0,
        Fraction(budget_json(built.spec, built.subledgers())["left"]),
        {chosen.spec.name: chosen.spec.epsilon for chosen in built.chosen},
    )  # fmt: skip


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
            if not tried or tried[0][0].needs <= float(self.now.series.epsilon):
                break
        kept = list[Way]([alone] if alone else [])
        ways = self._shortest(ways)
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

    def _shortest(self, ways: Sequence[Way]) -> list[Way]:
        """Leave out windows that end later than one that is useful with the same other changes and no more epsilon."""
        enough: dict[frozenset[str], int] = {}
        for way in ways:
            window, others = _ending(way)
            if window and way.needs <= float(self.now.series.epsilon):
                enough[others] = min(window, enough.get(others, window))
        return [way for way in ways if (end := _ending(way))[0] <= enough.get(end[1], end[0])]

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
            slower = clock.model_copy(update={"step": step, "horizon": horizon})
            other = spec.model_copy(update={"clock": slower})
            if horizon != 0 and not any(series_problems(of, other) for of in spec.series):
                ends = f", clock.horizon: {horizon}" if horizon else ""
                line = f"clock.step: {duration_text(step)}{ends}"
                yield at.more(line, other)

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
                return Way(change.lines, series, best.window, best.judged)
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


def _kept(ways: Sequence[Way]) -> str:
    words = [word for word in ways[0].series.words if getattr(ways[0].series, word)]
    return f" (keep its {', '.join(words)})" if words else ""


def _ending(way: Way) -> tuple[int, frozenset[str]]:
    """Return how long the windows are that end by a way's own change (0: it changes none), and its other changes."""
    every = [line for line in way.lines if line.startswith("every: ")]
    window = milliseconds(way.window) if every and way.window else 0
    return window, frozenset(way.lines) - {*every}


def _plain(key: str, value: Any) -> Any:
    """Return what a person writes: numbers without quotes, where they are exact, and one of a list without brackets."""
    if isinstance(value, list) and len(value) == 1 and key in WINDOWS:
        return value[0]
    if isinstance(value, list):
        return [_plain(key, each) for each in value]
    if isinstance(value, dict):
        return {inner: _plain(inner, each) for inner, each in value.items()}
    if not isinstance(value, str) or key not in EXACT:
        return value
    number = float(Fraction(value))
    if Fraction(f"{number:.12g}") != Fraction(value):
        return value
    return int(number) if number.is_integer() else float(f"{number:.12g}")


_THIN = (
    "{field}: the lines are not in the order of this time. If the file is longer than the sample, windows of the "
    "sample hold only a part of their records, and the verdicts are too bad: use a --sample as large as the file"
)

_SHORT = (
    "the sample covers {part}, and longer windows are judged at its rate. If it covers a busy time, the verdicts "
    "are too good; if it covers a quiet time, they are too bad. A larger --sample gives better verdicts"
)


class Checked(NamedTuple):
    """How a sample fits a pipeline, and what its series are worth by it. NOT PRIVATE."""

    built: Built
    fitting: Fitting
    judgement: Judgement


async def check_pipeline(
    pipeline: Path,
    data: Path | None,
    topic: str,
    most: int,
    key_file: Path | None,
    tell: Callable[[str], None],
    progress: Progress = unseen,
) -> Checked:
    """Check a sample of `data`, of `topic`, or of the pipeline's own source, waiting for its brokers.

    `progress` receives what is looked at.
    """
    if data is not None and topic:
        raise UsageError("--data and --topic cannot be combined; name one of them")
    spec = load(pipeline)
    built = build(spec)
    if data is None:
        await source_there(spec, tell)
    if data is None and not topic and isinstance(spec.source, FileSourceSpec):
        data = spec.source.path
    if data is not None:
        sample = await asyncio.to_thread(file_sample, spec, data, most)
    else:
        topic = topic or settled(spec.source, KafkaSourceSpec).topic
        sample = await topic_sample(spec, topic, most, lambda: sealer_for(spec, key_file))
    fitting = await asyncio.to_thread(fitting_of, spec, sample)
    cut, clock, poor = data is None or sample.records == most, spec.clock, ""
    if (
        cut
        and data is not None
        and isinstance(clock, ReplayClock)
        and await asyncio.to_thread(out_of_order, spec, sample)
    ):
        poor = _THIN.format(field=clock.field)
    progress("Judging how useful the series would be")
    judgement = await asyncio.to_thread(judgement_of, built, sample)
    if cut and judgement.part:
        poor = poor or _SHORT.format(part=duration_text(judgement.part))
    if poor:
        fitting = replace(fitting, hints=[*fitting.hints, Hint(poor, 0)])
    return Checked(built, fitting, judgement)


def within_limit(fitting: Fitting, limit: Fraction) -> bool:
    return fitting.dead <= limit * fitting.records


def false_alarms(built: Built) -> list[FalseAlarm]:
    return [alarm for chosen in built.chosen for alarm in chosen.choice.alarms]


def checked_json(checked: Checked) -> dict[str, Any]:
    """Return the check as plain values. NOT PRIVATE."""
    built, fitting, judgement = checked
    spec, alarms = built.spec, [alarm.json() for alarm in false_alarms(built)]
    counts = {"dead": fitting.dead, "late": fitting.late, "other": fitting.other}
    return {
        "pipeline": spec.name,
        "private": False,
        "sample": fitting.origin,
        "fits": within_limit(fitting, spec.source.warn_dead),
        "warn_dead": str(spec.source.warn_dead),
        "records": fitting.records,
        **counts,
        "shares": {name: fitting.share(records) for name, records in counts.items()},
        "reasons": [asdict(reason) for reason in fitting.reasons],
        "fields": [_field(fit) for fit in fitting.fields],
        "hints": [asdict(hint) for hint in fitting.hints],
        **({"false_alarms": alarms} if alarms else {}),
        "verdicts": [row.json() for row in judgement.rows],
        "ways": {name: [way.json() for way in ways] for name, ways in judgement.ways.items()},
    }


def _field(fit: FieldFit) -> dict[str, Any]:
    return {
        "field": fit.name, "type": fit.type, "used": fit.used,
        "fits": len(fit.fits), "null": len(fit.null), "missing": len(fit.missing),
        "wrong_type": len(fit.wrong), "other": len(fit.other),
    }  # fmt: skip


RECORDS = 1000
"""Records per sample: the newest and the oldest of each partition; a file is read on until one record fits."""
_NAMED = 3


async def require_fitting(spec: PipelineSpec, sealer: Sealer, file: str = "FILE") -> None:
    """Raise UsageError if the source has records but none that can be used, or tick marks and none of this key.

    An empty source is accepted. `stream-dp check` shows details. A file is read on until one record fits.
    """
    refused: list[Fitting] = []
    unsigned: list[bool] = []
    try:
        async for sample in _samples(spec, sealer):
            unsigned.append(sample.unsigned > 0)
            fitting = await asyncio.to_thread(fitting_of, spec, sample)
            if not fitting.wholly_refused and not sample.unsigned:
                return
            refused.append(fitting)
    except UsageError:
        raise
    except StreamDPError:
        return
    if unsigned and all(unsigned):
        raise UsageError(
            f"{refused[0].origin}: {UNSIGNED}. Nothing was charged, created or published"
        )
    if refused and all(fitting.wholly_refused for fitting in refused):
        raise UsageError(_why(spec, refused[0], file))


def require_wanted(
    built: Built, file: str, wanted: Callable[[str], bool], tell: Callable[[str], None]
) -> None:
    """Raise UsageError if by the file's guesses a ledger would mostly pay for noise, and that is not `wanted`; `tell`
    where there are no guesses.
    """
    if built.spec.privacy.expect is None:
        tell(
            f"{built.spec.name}: the file has no guesses (privacy.expect), so it is not known whether its numbers "
            f"would be useful. `stream-dp check {file}` finds out from a sample, and spends nothing"
        )
    if not (warning := noise_by_guesses(built)):
        return
    why = (
        f"{warning}. `stream-dp plan {file}` shows each number, and `stream-dp check {file}` shows which changes "
        "would help"
    )
    if not wanted(why):
        raise UsageError(
            "not started: nothing was charged, created or published. --yes starts without asking"
        )


async def _samples(spec: PipelineSpec, sealer: Sealer) -> AsyncIterator[Sample]:
    """Yield samples of the file, or the newest and then the oldest records of the topic."""
    source = spec.source
    if isinstance(source, FileSourceSpec):
        samples = iter(file_samples(spec, source.path, RECORDS))
        while (sample := await asyncio.to_thread(next, samples, None)) is not None:
            yield sample
    elif isinstance(source, KafkaSourceSpec):
        for newest in (True, False):
            yield await topic_sample(spec, source.topic, RECORDS, lambda: sealer, newest=newest)


def _why(spec: PipelineSpec, fitting: Fitting, file: str) -> str:
    reasons = ", ".join(sorted(reason.name for reason in fitting.reasons[:_NAMED]))
    hint = f" Perhaps: {fitting.hints[0].says}." if fitting.hints else ""
    return (
        f"{fitting.origin}: {spec.name} can use none of the records that were looked at ({reasons}).{hint} A new "
        "ledger would spend its budget on noise alone. Nothing was charged, made or published. `stream-dp check "
        f"{file}` shows what does not fit; --no-check (in Python: check=False) starts all the same"
    )
