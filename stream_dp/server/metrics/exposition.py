"""The text of `/metrics`: made anew when something public has changed, on a thread, and the same bytes until then.

Rules: a scrape shows what the public view shows at that moment and nothing of who scrapes, how often, or how long it
takes. A series that was halted is told no more. One scrape at a time makes the text, and pauses follow as after any
other work of the server, so that however many ask, the engine keeps its share of the process.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stream_dp.journal.commit import Release
from stream_dp.journal.release import read
from stream_dp.server.metrics.configured_facts import CONFIGURED, add_budget, add_configured
from stream_dp.server.metrics.fired_so_far import FiredSoFar
from stream_dp.server.metrics.gauges import Gauges, content_type
from stream_dp.server.metrics.released import RELEASED, ReleaseGauges
from stream_dp.server.turns import pause_after
from stream_dp.server.view import PublicView

_FAMILIES = {**RELEASED, **CONFIGURED}


@dataclass(frozen=True, slots=True)
class Shown:
    """All that the text is made of, but for what was counted."""

    sequence: int
    pipeline: Mapping[str, Any]
    budget: Mapping[str, Any]
    catching_up: bool

    @classmethod
    def of(cls, view: PublicView) -> "Shown":
        """Return what is public now."""
        return cls(view.log.last_sequence, view.pipeline(), view.budget(), view.catching_up())


class Exposition:
    """What `/metrics` of one view answers."""

    def __init__(self, view: PublicView) -> None:
        self._view = view
        self._fired = FiredSoFar()
        self._shown: Shown | None = None
        self._texts: dict[str, bytes] = {}
        self._making = asyncio.Lock()
        self._rested = 0.0

    async def text(self, accepted: str) -> tuple[bytes, str]:
        """Return the text in a form that a request with this `Accept` header reads, and what the form is called.

        Raises:
            FailClosed: a release is of a form that this version does not read.
        """
        form = content_type(accepted)
        async with self._making:
            if self._shown != Shown.of(self._view) or self._fired.behind(self._view.log.latest()):
                self._texts.clear()
            if form not in self._texts:
                clock = asyncio.get_running_loop().time
                await asyncio.sleep(self._rested - clock())
                began = clock()
                await self._make(form)
                self._rested = clock() + pause_after(clock() - began)
            return self._texts[form], form

    async def _make(self, form: str) -> None:
        """Write the text of what is public now, on a thread."""
        shown, latest = Shown.of(self._view), self._view.log.latest()
        unread = self._fired.unread(self._view.log)
        if shown != self._shown or unread:
            self._texts.clear()
        self._fired = await asyncio.to_thread(self._fired.counting, unread, latest)
        self._texts[form] = await asyncio.to_thread(_text, shown, latest, self._fired, form)
        self._shown = shown


def _text(shown: Shown, latest: Mapping[str, Release], fired: FiredSoFar, form: str) -> bytes:
    name = shown.pipeline["name"]
    gauges = Gauges(_FAMILIES)
    add_configured(gauges, shown.pipeline, shown.catching_up, shown.sequence)
    add_budget(gauges, name, shown.budget)
    releases = ReleaseGauges(gauges, name)
    for series in shown.pipeline["series"]:
        if (newest := latest.get(series["name"])) is not None:
            released = read(newest.body)
            releases.add(released, series.get("domain", ()), fired.of(released.series))
    return gauges.written(form)
