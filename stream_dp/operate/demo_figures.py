"""The last report of a demo: what it read and released, and the final values beside the exact ones.

Rules: exact values come from the journal, only of sources that are declared public.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from stream_dp.accounting.amounts import number
from stream_dp.core.mechanism import IntArray
from stream_dp.engine.history import JournalSummary, read_summary
from stream_dp.journal.release import Released, read_by_key
from stream_dp.operate.audit.journal_access import sealed_commits
from stream_dp.operate.demo import DemoRun
from stream_dp.pipeline.builder import Built
from stream_dp.pipeline.derivations import dp_at
from stream_dp.statistics.parts.series_spec import SeriesSpec
from stream_dp.statistics.parts.windows import EVER


@dataclass(frozen=True, slots=True)
class DemoFigures:
    """The demo's last report: `events` of this run, `summary` of all runs, `final` and `exact` values by series.

    `final` are the last released values. `exact` values come from the journal, only of sources declared public, which
    the caller checks; None if they were not asked for.
    """

    broker: str
    seconds: float
    events: int
    summary: JournalSummary
    final: dict[str, dict[str, Any]]
    exact: dict[str, Any] | None = None

    def json(self, built: Built) -> dict[str, Any]:
        measure = dp_at(built.derivation, built.spec.privacy.delta)
        summary = self.summary
        content = {
            "broker": self.broker,
            "events": summary.totals.records,
            "dead_letters": summary.dead_letters,
            "ticks": summary.totals.ticks,
            "releases": summary.totals.releases,
            "seconds": round(self.seconds, 3),
            "events_per_second": round(self.events / max(self.seconds, 1e-9)),
            "epsilon": number(measure.epsilon),
            "delta": number(measure.delta),
            "final": self.final,
        }
        return content if self.exact is None else {**content, "exact": self.exact}


async def figures_of(done: DemoRun, *, compare_exact: bool) -> DemoFigures:
    built, latest = done.built, done.run.log.latest()
    through = max((release.tick for release in latest.values()), default=-1)
    name = built.spec.name
    journal = await sealed_commits(built.spec)
    summary = await read_summary(journal.commits, done.sealer, name, through)
    return DemoFigures(
        done.broker,
        done.seconds,
        summary.totals.records - done.before,
        summary,
        {
            name: _final(read_by_key(release.body, built.keys.get(name, ())))
            for name, release in latest.items()
        },
        _exact(built, summary) if compare_exact else None,
    )


_FINAL = (
    "name", "value", "values", "fired", "ranks", "windows", "band", "low", "high", "lows", "highs", "ends", "tick",
)  # fmt: skip


def _final(last: Released) -> dict[str, Any]:
    """Return the tick and the published values of a series' last release, with its band or interval ends."""
    whole = msgspec.to_builtins(last)
    return {key: whole[key] for key in _FINAL if key in whole}


def _exact(built: Built, summary: JournalSummary) -> dict[str, Any]:
    rows = summary.rows
    if rows is None:
        return {}
    totals = {}
    for chosen in built.chosen:
        name = chosen.spec.name
        columns, keys = built.layout.slice(name), built.layout.keys(name)
        totals[name] = _exact_of(chosen.spec, rows[columns], keys)
    return {name: total for name, total in totals.items() if total is not None}


def _exact_of(spec: SeriesSpec, totals: IntArray, keys: Sequence[str]) -> Any:
    """Return the exact total of a series, for windows the exact total so far, or None if the series has neither."""
    if EVER not in spec.views:
        return spec.exact(totals, keys)
    so_far = spec.model_copy(update={"window": None, "windows": ()}).exact(totals, keys)
    return None if so_far is None else {EVER: so_far}
