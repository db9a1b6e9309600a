"""Releases that nobody gets: a pipeline's mechanisms on data that may be looked at, at several budgets, caps and steps.

Rules: rows are those of the pipeline's own guard, router and memories, mechanisms and releases are the product's, and
noise is fresh in every run. No journal, no ledger, no sink: nothing is charged and nothing is published, so nothing of
what is returned is private. Whoever tunes a pipeline by data that are to be protected makes a release of them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from pydantic import ValidationError

from stream_dp.client.frames import library
from stream_dp.core.mechanism import Query, Update
from stream_dp.core.time import TickGrid
from stream_dp.core.wording import Progress, percent, shown_number, unseen
from stream_dp.engine.series import Series
from stream_dp.errors import UsageError, WorldError
from stream_dp.journal.release import read_by_key
from stream_dp.noise import NoiseStream, fresh_seed
from stream_dp.operate.fitting import Sample, file_sample
from stream_dp.operate.sampled_rows import Rows, Sampled, rows_of
from stream_dp.pipeline.builder import Built, Chosen, build, chosen_for, made_of_releases
from stream_dp.pipeline.layout import RowLayout
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.verdicts import Row, judged
from stream_dp.pipeline.yaml import load
from stream_dp.records.scalars import duration_text, exact, milliseconds
from stream_dp.statistics.parts.verdicts import (
    USEFUL_SHARE,
    Outcome,
    finite,
    of_quotients,
    of_release,
)

_N = TypeVar("_N", int, Fraction)
LOOKS = 60  # ticks at which releases are compared with the truth


@dataclass(frozen=True)
class Observed:
    """What was seen of a window of a series in all runs: how many `numbers`, the median size of the true ones (for a
    quantile: of the ranks below it), the median half-width, errors, and how many of the bands hold the truth.
    """

    numbers: int
    typical: float
    band: float
    rmse: float
    error: float
    coverage: float


@dataclass(frozen=True)
class Point:
    """A window of a series at one budget, with its verdict; `epsilon` is the series' own. NOT PRIVATE.

    `spec` is the file with the cap and the step that were tried. `observed` is None of flags. `cut_off`: the share of
    what it counts that caps of users cut off (None: not known).
    """

    row: Row
    spec: PipelineSpec
    budget: Fraction
    epsilon: Fraction
    observed: Observed | None
    cut_off: float | None

    @property
    def cap(self) -> int | None:
        """How many records of a user count; None: each record is protected by itself."""
        return self.spec.privacy.cap if self.spec.privacy.user is not None else None

    @property
    def step(self) -> str:
        return duration_text(self.spec.clock.step)

    @property
    def share(self) -> float | None:
        """The 95 % error and what caps cut off, as a part of the typical number without caps, where it is known."""
        judged, seen, cut = self.row.judged, self.observed, self.cut_off or 0
        if not (seen and judged and judged.typical):
            return None
        return cut + (1 - cut) * seen.error / judged.typical

    @property
    def words(self) -> tuple[str, ...]:
        """Return window, cut-off share, typical number, budget, epsilon, half-width, errors, coverage, verdict."""
        row, seen = self.row, self.observed
        typically, band, _ = row.words
        errors = ("", "", "")
        if seen is not None:
            band = f"± {shown_number(seen.band)}"
            typically = shown_number(seen.typical) if row.judged is None else typically
            errors = shown_number(seen.rmse), shown_number(seen.error), f"{seen.coverage:.3f}"
        cut = "" if self.cut_off is None else f"{self.cut_off:.1%}"
        epsilon = f"{float(self.epsilon):.6g}" if self.epsilon else "free"
        return (
            row.window,
            cut,
            typically,
            f"{float(self.budget):.6g}",
            epsilon,
            band,
            *errors,
            row.verdict or "?",
        )

    def json(self) -> dict[str, Any]:
        seen = self.observed
        observed = None if seen is None else {**asdict(seen), "band": finite(seen.band)}
        return {
            **self.row.json(), "cap": self.cap, "step": self.step, "budget": float(self.budget),
            "epsilon": float(self.epsilon), "observed": observed, "cut_off": self.cut_off,
        }  # fmt: skip


@dataclass(slots=True)
class _Seen:
    """The outcomes of one window of one series, and the half-widths that were told."""

    outcomes: list[Outcome] = field(default_factory=list)
    bands: list[float] = field(default_factory=list)

    @property
    def observed(self) -> Observed | None:
        if not self.outcomes:
            return None
        truths, errors, held = np.abs(np.array(self.outcomes, dtype=np.float64)).T
        return Observed(
            len(errors),
            typical=float(np.median(truths)),
            band=float(np.median(self.bands)),
            rmse=float(np.sqrt(np.mean(errors**2))),
            error=float(np.quantile(errors, 0.95)),
            coverage=float(np.mean(held)),
        )


def simulate(
    pipeline: Path,
    data: Path,
    epsilon: str,
    runs: int,
    most: int,
    progress: Progress = unseen,
    caps: str = "",
    steps: str = "",
) -> list[Point]:
    """Return what a pipeline would show of a data file at each budget, such as "0.5,1" ("": half of its own, its own,
    twice that), with each cap ("3,10") and each step ("1h,1d"; "" is the file's own).

    Each series has the same share of every budget. Raises UsageError where no record of the file says a tick.
    """
    budgets = _list("--epsilon", epsilon, exact)
    spec = load(pipeline)
    variants = _variants(spec, _list("--cap", caps, int), _list("--step", steps, milliseconds))
    progress(f"Reading {data.name}")
    sample = file_sample(spec, data, most)
    own = spec.privacy.epsilon
    points: list[Point] = []
    for built in variants:
        rows = rows_of(built.spec, sample)
        if not len(rows.rows):
            raise UsageError(
                f"{data}: none of its records lies in a tick of {spec.name}. `simulate` needs records that "
                "contain their time, and a pipeline file with a replay clock whose range contains these times"
            )
        cut_off = _cut_off(built, rows, sample)
        for budget in budgets or (own / 2, own, 2 * own):
            trial = _Trial.at(built, budget / own, rows)
            for run in range(runs):
                progress(f"Simulating a budget of {float(budget):g}", *percent(run, runs))
                trial.run()
            points += trial.points(budget, cut_off)
    rows_in_order = [(point.row.series, point.row.window) for point in points]
    return sorted(points, key=lambda p: rows_in_order.index((p.row.series, p.row.window)))


def _list(option: str, text: str, read: Callable[[str], _N]) -> list[_N]:
    try:
        numbers = [read(part) for part in text.split(",")] if text else []
    except ValueError as wrong:
        raise UsageError(f"{option}: {wrong}") from None
    if any(number <= 0 for number in numbers):
        raise UsageError(f"{option}: must be greater than 0")
    return numbers


def _variants(spec: PipelineSpec, caps: Sequence[int], steps: Sequence[int]) -> list[Built]:
    """Return the pipeline with each cap and each step, over the same time; raise UsageError where one cannot be."""
    if caps and spec.privacy.user is None:
        raise UsageError(
            "--cap: each record is protected by itself here (unit: event), so no cap applies"
        )
    kept = {
        field.alias or name: getattr(spec, name)
        for name, field in PipelineSpec.model_fields.items()
    }
    built: list[Built] = []
    for cap, step in product(caps or [0], steps or [0]):
        privacy, clock = spec.privacy, spec.clock
        if cap:
            privacy = privacy.capped({privacy.cap_name: cap}) or privacy
        if step:
            horizon = clock.horizon and clock.horizon * clock.step // step
            clock = clock.model_copy(update={"step": step, "horizon": horizon})
        try:
            other = PipelineSpec.model_validate({**kept, "privacy": privacy, "clock": clock})
        except ValidationError as error:
            wrong = error.errors()[0]
            place = ".".join(map(str, wrong["loc"]))
            raise UsageError(f"{_tried(cap, step)}: {place}: {wrong['msg']}") from None
        built.append(build(other))
    return built


def _tried(cap: int, step: int) -> str:
    caps = [f"--cap {cap}"] if cap else []
    return " ".join([*caps, f"--step {duration_text(step)}"] if step else caps)


def plot(points: Sequence[Point], path: Path) -> None:
    """Draw the errors of each series against what was tried: budgets, or else caps, or else steps."""
    pyplot = library("matplotlib.pyplot", "plot")
    pyplot.switch_backend("agg")
    shown = [point for point in points if point.share is not None]
    names = list(dict.fromkeys(point.row.series for point in shown))
    tried: dict[str, Callable[[Point], float]] = {
        "epsilon": lambda p: float(p.budget),
        "cap": lambda p: float(p.cap or 0),
        "step in hours": lambda p: p.spec.clock.step / 3_600_000,
    }
    several = [what for what in tried if len({*map(tried[what], shown)}) > 1]
    across = several[0] if several else next(iter(tried))
    figure, panels = pyplot.subplots(
        max(1, len(names)),
        squeeze=False,
        figsize=(7, 3.2 * max(1, len(names))),
        layout="constrained",
    )
    for name, axes in zip(names, panels[:, 0], strict=False):
        lines: dict[str, list[tuple[float, float]]] = {}
        for point in (point for point in shown if point.row.series == name):
            others = [f"{what} {tried[what](point):g}" for what in several if what != across]
            label = ", ".join([*filter(None, [point.row.window]), *others]) or name
            at = tried[across](point), 100 * (point.share or 0)
            lines.setdefault(label, []).append(at)
        for label, line in lines.items():
            axes.plot(*zip(*sorted(line), strict=True), marker="o", label=label)
        axes.axhline(100 * float(USEFUL_SHARE), color="gray", linestyle=":", label="useful below")
        axes.set(title=name, xlabel=across, ylabel="95 % error and cut off, %", yscale="log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
        axes.legend(fontsize="small")
    figure.suptitle("NOT PRIVATE", fontsize="small")
    try:
        figure.savefig(path)
    except ValueError:
        raise UsageError(f"{path}: the name must end in .svg, .png or .pdf") from None
    except OSError as error:
        raise WorldError(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        pyplot.close(figure)


def _cut_off(built: Built, counted: Rows, sample: Sample) -> dict[str, float]:
    """Return by series the share that caps and totals cut off, where a record without them adds the same whatever came
    before.
    """
    whole = tuple(
        series.model_copy(update={"user_total": None, "shared_total": False})
        if series.totals
        else series
        for series in built.spec.series
    )
    spec = built.spec.model_copy(update={"series": whole})
    layout, every = RowLayout.of(spec), rows_of(spec, sample, guarded=False)
    shares: dict[str, float] = {}
    for chosen in built.chosen:
        name, own = chosen.spec.name, chosen.spec
        net = own.totals and (own.signed or bool(own.parts))
        kept, all_of_it = (
            int(np.abs(rows.rows[:, of.slice(name)]).sum())
            for rows, of in ((counted, built.layout), (every, layout))
        )
        if chosen.spec.identifier is None and not net and all_of_it:
            shares[name] = 1 - kept / all_of_it
    return shares


@dataclass
class _Trial:
    """The series of a pipeline at one budget, and what was seen of them in all runs; ledgers are the file's."""

    built: Built
    rows: Rows
    chosen: Sequence[tuple[Chosen, Series]]
    seen: dict[tuple[str, str], _Seen] = field(default_factory=dict)

    @classmethod
    def at(cls, built: Built, share: Fraction, rows: Rows) -> "_Trial":
        spec, layout = built.spec, built.layout
        chosen = []
        for series in spec.counted:
            columns = layout.slice(series.name)
            choice = chosen_for(spec, series.at_share(share), columns)
            chosen.append((choice, choice.series(spec, columns, layout.keys(series.name))))
        choices = tuple(choice for choice, _ in chosen)
        made = made_of_releases(spec, layout, choices)
        return cls(replace(built, chosen=choices, made=made), rows, chosen)

    def run(self) -> None:
        """Run every tick once with fresh noise, and compare releases with the truth at some of them."""
        noise, first = NoiseStream(fresh_seed(), 0), self.rows.first
        grid = TickGrid(self.built.spec.clock.start or 0, self.built.spec.clock.step, None)
        ticks = first + len(self.rows.rows)
        looks = {*np.linspace(first, ticks - 1, LOOKS).astype(int).tolist()}
        states = [series.mechanism.init(noise) for _, series in self.chosen]
        empty = np.zeros(self.rows.rows.shape[1], np.int64)
        for tick in range(ticks):
            row = empty if tick < first else self.rows.rows[tick - first]
            bodies: dict[str, bytes] = {}
            for at, (_, series) in enumerate(self.chosen):
                states[at], _ = series.mechanism.step(states[at], Update(row[series.rows]), noise)
                states[at], answer = series.ask(states[at], Query(), noise)
                if tick in looks:
                    bodies[series.name] = series.body(grid, 0, tick, states[at], answer)
            if bodies:
                self._compare(grid, tick, bodies)

    def _compare(self, grid: TickGrid, tick: int, bodies: Mapping[str, bytes]) -> None:
        truths: dict[tuple[str, str], dict[str, Any]] = {}
        for chosen, series in self.chosen:
            spec, name = chosen.spec, series.name
            for window, shown in _parts(bodies[name], series.keys):
                totals = self._totals(chosen, series, window, tick)
                if totals is None:
                    continue
                self._note(name, window, shown, spec.outcomes(shown, totals, series.keys))
                truths[name, window] = _exactly(spec.true_numbers(totals), series.keys)
        for made in (made.series for made in self.built.made):
            for window, shown in _parts(made.body(grid, 0, tick, bodies), made.keys):
                if all((name, window) in truths for name in made.inputs):
                    parts = [truths[name, window] for name in made.inputs]
                    true = made.makes[0](tick, window, parts)
                    numbers = list(true["values"].values()) if "values" in true else [true["value"]]
                    self._note(made.name, window, shown, of_release(shown, numbers))

    def _totals(self, chosen: Chosen, series: Series, window: str, tick: int) -> Any:
        """Return the exact totals that a window counts at a tick; None where it has no end yet."""
        ticks = chosen.spec.covered(window, tick, self.built.spec.clock.step)
        if not ticks:
            return None
        first = self.rows.first
        inside = self.rows.rows[
            max(0, ticks.start - first) : max(0, ticks.stop - first), series.rows
        ]
        return inside.sum(axis=0)

    def _note(
        self, name: str, window: str, shown: Mapping[str, Any], outcomes: Iterable[Outcome]
    ) -> None:
        seen = self.seen.setdefault((name, window), _Seen())
        seen.outcomes += outcomes
        seen.bands.append(float(shown["band"]) if "band" in shown else of_quotients(shown).band)

    def points(self, budget: Fraction, cut_off: Mapping[str, float]) -> Iterator[Point]:
        prices = {chosen.spec.name: chosen.spec.price for chosen, _ in self.chosen}
        for row in judged(self.built, Sampled(self.built.spec, self.rows)):
            seen = self.seen.get((row.series, row.window), _Seen())
            price, cut = prices.get(row.series, Fraction(0)), cut_off.get(row.series)
            yield Point(row, self.built.spec, budget, price, seen.observed, cut)


def _parts(body: bytes, keys: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """Return the windows of a release with what it says of each; "" where it has none."""
    whole: dict[str, Any] = msgspec.to_builtins(read_by_key(body, keys))
    windows: dict[str, dict[str, Any]] = whole.get("windows") or {"": whole}
    return [*windows.items()]


def _exactly(numbers: Sequence[Any], keys: Sequence[str]) -> dict[str, Any]:
    """Return true numbers in the form of a release, of which others are made."""
    if not any(keys):
        return {"value": numbers[0]}
    return {"values": dict(zip(keys, numbers, strict=False))}
