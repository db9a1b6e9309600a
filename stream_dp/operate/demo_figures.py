"""The demo's last report: totals of the journal, the last private values, and exact values for comparison.

Rules: exact figures come from the journal and are made for sources declared public only; the caller checks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from stream_dp.accounting.amounts import number
from stream_dp.core.messages import IntArray
from stream_dp.engine.recovery.journal_summary import JournalSummary, read_summary
from stream_dp.journal.release import Released, read
from stream_dp.operate.audit.journal_access import sealed_commits
from stream_dp.operate.demo import DemoRun
from stream_dp.pipeline.builder import Built
from stream_dp.pipeline.derivations import dp_at
from stream_dp.statistics.parts.series_spec import SeriesSpec
from stream_dp.statistics.parts.windows import EVER


@dataclass(frozen=True, slots=True)
class DemoFigures:
    """The demo's last report: `events` of this run, `summary` of all runs, `final` and `exact` values by series.

    `exact` is None if exact values were not asked for.
    """

    broker: str
    seconds: float
    events: int
    summary: JournalSummary
    final: dict[str, dict[str, Any]]
    exact: dict[str, Any] | None = None

    def json(self, built: Built) -> dict[str, Any]:
        """Return the figures and the guarantee of `built` as plain values."""
        measure = dp_at(built.derivation, built.spec.privacy.delta)
        summary = self.summary
        content = {
            "broker": self.broker,
            "events": summary.events,
            "dead_letters": summary.dead_letters,
            "ticks": summary.ticks,
            "releases": summary.releases,
            "seconds": round(self.seconds, 3),
            "events_per_second": round(self.events / max(self.seconds, 1e-9)),
            "epsilon": number(measure.epsilon),
            "delta": number(measure.delta),
            "final": self.final,
        }
        return content if self.exact is None else {**content, "exact": self.exact}


async def figures_of(done: DemoRun, *, compare_exact: bool) -> DemoFigures:
    """Read the journal's totals and the last release of each series."""
    built, latest = done.built, done.run.log.latest()
    through = max((release.tick for release in latest.values()), default=-1)
    name = built.spec.name
    summary = await read_summary(sealed_commits(built.spec), done.sealer, name, through)
    return DemoFigures(
        done.broker,
        done.seconds,
        summary.events - done.before,
        summary,
        {name: _final(read(release.body)) for name, release in latest.items()},
        _exact(built, summary) if compare_exact else None,
    )


ENDS = ("band", "low", "high", "lows", "highs")
"""Keys that state the error of a value: one half-width, or the ends of an interval (quotients)."""


def _final(last: Released) -> dict[str, Any]:
    """Return the tick and the published values of a series' last release, with its band or interval ends."""
    whole = msgspec.to_builtins(last)
    return {
        key: whole[key]
        for key in (*("name", "value", "values", "fired", "ranks", "windows"), *ENDS, "tick")
        if key in whole
    }


def _exact(built: Built, summary: JournalSummary) -> dict[str, Any]:
    """Return the exact totals, by name, of all series that have one."""
    rows = summary.rows
    if rows is None:
        return {}
    known = {
        c.spec.name: _exact_of(
            c.spec, rows[built.layout.slice(c.spec.name)], built.layout.keys(c.spec.name)
        )
        for c in built.chosen
    }
    return {name: total for name, total in known.items() if total is not None}


def _exact_of(spec: SeriesSpec, totals: IntArray, keys: Sequence[str]) -> Any:
    """Return the exact total of a series, for windows the exact total so far, or None if the series has neither."""
    if EVER not in spec.views:
        return spec.exact(totals, keys)
    so_far = spec.model_copy(update={"window": None, "windows": ()}).exact(totals, keys)
    return None if so_far is None else {EVER: so_far}
