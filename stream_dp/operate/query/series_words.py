"""Answers about created and halted series, as plain public values: for messages and the HTTP API.

Rules: every value is public: names, ticks, times, amounts, derivations. Answers are made at the cut, before the
commit that records them. A series covers the ticks from `start` on, up to and not including `end`.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, TypeAlias

import msgspec

from stream_dp.accounting.amounts import text
from stream_dp.accounting.ledger import Preview
from stream_dp.accounting.loads import join
from stream_dp.accounting.subledgers import MAIN
from stream_dp.engine.admission import Admission, Halting
from stream_dp.engine.memories import OF_RELEASES
from stream_dp.engine.proposals import Proposal
from stream_dp.engine.run_config import FileChange
from stream_dp.engine.series import LiveSeries, Registry, version_of
from stream_dp.engine.tick_assembler import ClosedTick, Cut
from stream_dp.journal.commit import Commit, Created, Release, part, part_in
from stream_dp.journal.release import read
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.operate.budget_view import fits, freed, freed_everywhere, spent, whole_budget
from stream_dp.operate.run.file_change import changed_now
from stream_dp.pipeline.builder import Built
from stream_dp.pipeline.derivations import dp_at
from stream_dp.pipeline.report import derivation_json
from stream_dp.statistics.parts.watch_roster import Placed, WatchRoster

_Life: TypeAlias = tuple[str, int | None]
_FEW = 100


_SAVED = msgspec.msgpack.Decoder(tuple[int, list[tuple[str, str, int | None, dict[str, int]]]])


class FiredWatches:
    """Ends of fired watches: for each key of a watch that fires once, the first tick after its firing.

    The ends are computed from public releases alone, taken in order, so they are the same after a restart. A key fires
    once in the life of the watch. A name of a watch may have several lives. As an `engine.memories.Memory` it needs no
    commits: a checkpoint holds what the releases showed that were public then.
    """

    kind: ClassVar[str] = OF_RELEASES

    def __init__(self) -> None:
        self._ends: dict[str, dict[_Life, dict[str, int]]] = {}
        self._taken = 0

    def record(self, ticks: Sequence[ClosedTick]) -> tuple[Sequence[ClosedTick], None]:
        return ticks, None

    def rewind(self, cut: Cut) -> Cut:
        return cut

    def replay(self, commit: Commit) -> None: ...

    def save(self) -> bytes:
        """Return the last tick of which releases were taken, and the ends by series and life."""
        ends = [
            (series, *life, keys) for series, lives in self._ends.items() for life, keys in lives.items()
        ]  # fmt: skip
        return part((self._taken, ends))

    def load(self, commit: Commit) -> None:
        """Become what was saved; not in a later attempt, which knows more."""
        saved = part_in(commit, self.kind, _SAVED, "ends of watches that this engine did not write")
        if saved is None or self._taken:
            return
        self._taken = saved[0]
        for series, name, start, keys in saved[1]:
            self._ends.setdefault(series, {})[name, start] = keys

    def take(self, release: Release, registry: Registry) -> None:
        """Take the firings of a release if its series has watches that fire once."""
        self._taken = max(self._taken, release.tick)
        live = registry.named(release.series)
        roster = None if live is None else live.series.asking
        if not isinstance(roster, WatchRoster) or not roster.once:
            return
        if live is None or release.tick < live.start:  # of the one that had the name before
            return
        for key in read(release.body).fired or ():
            for watch in roster.lives(key):
                if watch.saw(release.tick):
                    if release.series not in self._ends:
                        self._forget_halted(registry)
                    lives = self._lives(live, roster)
                    lives.setdefault(_life(live, watch), {})[key] = release.tick + 1

    def since(self, registry: Registry) -> int | None:
        """Return the first tick of which releases are still to be taken, if any watch fires once."""
        starts = (
            live.start if watch.start is None else watch.start
            for live in registry.live
            if isinstance(live.series.asking, WatchRoster)
            for watch in chain.from_iterable(live.series.asking.once.values())
        )
        first = min(starts, default=None)
        return None if first is None else max(first, self._taken)

    def ends(self, live: LiveSeries, watch: Placed) -> Mapping[str, int]:
        """Return the end tick of each key of a watch that has fired, in a release or in an answer to a query."""
        lives = self._ends.get(live.series.name, {})
        return {**lives.get(_life(live, watch), {}), **watch.asked}

    def _forget_halted(self, registry: Registry) -> None:
        for name in [name for name in self._ends if registry.named(name) is None]:
            del self._ends[name]

    def _lives(self, live: LiveSeries, roster: WatchRoster) -> dict[_Life, dict[str, int]]:
        """Return the lives of a series' watches; once most are no longer on the roster, forget those."""
        lives = self._ends.setdefault(live.series.name, {})
        if len(lives) > 2 * len(roster.once) + _FEW:
            kept = {_life(live, watch) for watch in chain.from_iterable(roster.once.values())}
            for life in lives.keys() - kept:
                del lives[life]
        return lives


def _life(live: LiveSeries, watch: Placed) -> _Life:
    """Return which life of its name a watch has: one of its series' definition begins with the series, so a later
    series of the same name has another.
    """
    later = watch.start is None and live.series.version > 1
    return watch.watch.name, live.start if later else watch.start


LISTED = 100
"""At most this many watches of a monitor are listed: the newest."""
LISTED_BYTES = 1_000_000
"""About the largest size of all listed watches, split evenly over monitors: a list must fit into one record."""


@dataclass(frozen=True, slots=True)
class SeriesWords:
    """Answers about the series of `planner`; `begins` returns the time when a tick begins, if known.

    `fired` knows which watches have fired for good. It implements `engine.messages.answering.Wording`.
    """

    built: Built
    planner: LiveSeriesPlanner
    begins: Callable[[int], str | None]
    fired: FiredWatches

    def created(self, admission: Admission, created: Created, analyst: str) -> Mapping[str, Any]:
        planned = self.planner.running[created.number]
        _, entry = admission.subledgers.running[planned.name]
        return {
            "name": planned.name,
            **self._start(created.start),
            "epsilon": text(entry.epsilon),
            "rule": entry.rule,
            "left": _left(admission, analyst),
            **self._expected(planned),
        }

    def halted(self, halting: Halting) -> Mapping[str, Any]:
        given_back = freed(halting.ledger, halting.entry)
        return {"name": halting.name, **self._end(halting.end), **given_back}

    def halting(self, halting: Halting) -> Mapping[str, Any]:
        """Return what the halt would give back, at the earliest from `end` on."""
        ledger, halted = halting.ledger, self.halted(halting)
        return {
            **halted,
            "freed_everywhere": freed_everywhere(ledger, halted["left"]),
            "budget": whole_budget(self.built.spec, ledger, halting.analyst),
        }

    def changed(
        self, admission: Admission, text: bytes, at: int
    ) -> tuple[FileChange | None, Mapping[str, Any]]:
        return changed_now(self.built, admission, text, at)

    def previewed(
        self, admission: Admission, proposal: Proposal, preview: Preview, analyst: str
    ) -> Mapping[str, Any]:
        """Return the answer about a series that might be created, with its earliest start."""
        ledger, left = admission.subledgers.ledgers[analyst], _left(admission, analyst)
        windows, alarms = proposal.windows(), proposal.alarms
        after = join(ledger.used, preview.met + preview.asked)
        return {
            "name": proposal.name,
            "fits": preview.fits,
            "asked": text(dp_at(proposal.derivation, self.built.spec.privacy.delta).epsilon),
            "spent": spent(ledger),
            "unit": ledger.filter.unit,
            "left": left,
            "largest": text(fits(ledger, preview.met)),
            **({"after": text(fits(ledger, after))} if preview.fits else {}),
            **self._start(proposal.start),
            **self._expected(proposal),
            "error_unit": proposal.error_unit,
            **({"windows": dict(windows)} if windows else {}),
            **({"verdicts": [*verdicts]} if (verdicts := proposal.verdicts) else {}),
            **({"false_alarms": [*alarms]} if alarms else {}),
            **({"noise": noise} if (noise := proposal.noise) else {}),
            "derivation": derivation_json(proposal.derivation),
        }

    def listed(
        self, admission: Admission, payers: Collection[str] | None
    ) -> Sequence[Mapping[str, Any]]:
        """Return the running series, the file's first, then the last halted ones; `end` is None while one runs.

        A monitor's entry lists its watches, with their filters if `payers` is None or contains the monitor's payer.
        """
        specs = {c.spec.name: c.spec for c in self.built.chosen}
        monitors = sum(isinstance(e.series.asking, WatchRoster) for e in admission.registry.live)
        rows = []
        for live in admission.registry.live:
            planned = self.planner.running.get(live.number)
            series = specs[live.series.name] if planned is None else planned.series
            analyst, _ = admission.subledgers.running.get(series.name, (MAIN, None))
            listed = {**series.listed, **version_of(live.series)}
            row = self._row(series.name, analyst, listed, live.start, None, live.created)
            if isinstance(live.series.asking, WatchRoster):
                filters = payers is None or analyst in payers
                most = LISTED_BYTES // monitors
                row |= self._watches(live, live.series.asking, filters, most)
            rows.append(row)
        runs = {made.name for made in admission.registry.made}
        made = [series for series in self.built.spec.series if series.name in runs]
        rows += [self._row(m.name, MAIN, m.listed, 0, None, False) for m in made]
        ended = [(admission.first_ended.get(m.name), m) for m in self.built.spec.series]
        rows += [
            self._row(m.name, MAIN, m.listed, 0, end, False) for end, m in ended if end is not None
        ]
        rows += [
            self._row(e.name, e.analyst, e.shown, e.start, e.end, True) for e in admission.ended
        ]
        return rows

    def _watches(
        self, live: LiveSeries, roster: WatchRoster, filters: bool, most: int
    ) -> dict[str, Any]:
        """Return a monitor's watches in at most `most` bytes: the newest present ones, then the last ended ones."""
        kept, left = list[list[dict[str, Any]]](), most
        for watches in (roster.placed[-LISTED:], roster.gone):
            newest = deque[dict[str, Any]]()
            for watch in reversed(watches):
                row = self._watch(watch, live, filters)
                left -= len(msgspec.json.encode(row))
                if left < 0:
                    break
                newest.appendleft(row)
            kept.append([*newest])
        present, gone = kept
        more = len(roster.placed) - len(present)
        return {"watches": [*present, *gone], **({"more_watches": more} if more > 0 else {})}

    def _watch(self, watch: Placed, live: LiveSeries, filters: bool) -> dict[str, Any]:
        where = {"where": watch.watch.filter} if filters else {}
        start = live.start if watch.start is None else watch.start
        end, fired = watch.end, dict[str, int]()
        if not watch.watch.rearm:
            ends = self.fired.ends(live, watch)
            end = max(ends.values()) if len(ends) == watch.places else end
            fired = {"fired": len(ends)}
        return {
            "name": watch.watch.name, **where, **watch.watch.when, "analyst": watch.analyst,
            **self._start(start), **self._end(end), **fired, "created": watch.added,
        }  # fmt: skip

    def _row(
        self, name: str, analyst: str, about: Mapping[str, Any], start: int, end: int | None, created: bool
    ) -> dict[str, Any]:  # fmt: skip
        times = {**self._start(start), **self._end(end)}
        return {"name": name, "analyst": analyst, **about, **times, "created": created}

    def _start(self, tick: int) -> dict[str, Any]:
        return {"start": tick, "start_time": self.begins(tick)}

    def _end(self, tick: int | None) -> dict[str, Any]:
        return {"end": tick, "end_time": None if tick is None else self.begins(tick)}

    def _expected(self, proposal: Proposal) -> dict[str, Any]:
        """Return the expected half-width at the last tick, or without a horizon at the farthest predicted tick."""
        tick, error = proposal.predicted()
        confidence = float(self.built.spec.confidence)
        supposing = {"supposing": proposal.supposing} if proposal.supposing else {}
        return {"error": error, "error_tick": tick, "confidence": confidence, **supposing}


def _left(admission: Admission, analyst: str) -> str:
    return text(fits(admission.subledgers.ledgers[analyst]))
