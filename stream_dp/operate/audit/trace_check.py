"""A journal checked against the theory: its trace, played through the concurrent composition, gives the same bytes.

The trace is also compared with its neighbours (`journal_trace.Neighbourhood`).

Rules: no content of a journal is shown, only how much was compared, which follows from ticks and series; errors
name ticks and series.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stream_dp.core.neighbors import Users
from stream_dp.core.time import TickGrid
from stream_dp.core.wording import Progress, unseen
from stream_dp.engine.history import require_same, unsealed
from stream_dp.errors import FailClosed, RejectedMessage, UsageError
from stream_dp.journal.commit import (
    Commit,
    Header,
)
from stream_dp.journal.keys import Sealer
from stream_dp.journal.release import is_recorded
from stream_dp.mechanisms.states import STATES, same_states
from stream_dp.noise import NoiseStream
from stream_dp.operate.audit.journal_access import (
    Sealed,
    archived,
    built_of,
    sealed_commits,
    sealed_commits_of,
)
from stream_dp.operate.audit.journal_trace import JournalTrace, MadeStep, Neighbourhood, TraceStep
from stream_dp.operate.keys import sealer_for
from stream_dp.pipeline.builder import Built
from stream_dp.pipeline.yaml import load
from stream_dp.verify.game import TraceCounts, TracePlayer

_SQLITE = b"SQLite format 3\0"
_ADVICE = (
    "The journal was altered, or written by another version of the code: run the version that wrote it, or stop using "
    "it and report this"
)


@dataclass(slots=True)
class TraceReport:
    """How much was compared, all equal. `apart`: whether the verifier refused two events (None: too few ticks).

    With `users`, `apart` says whether one event more than count of one user was refused. `made` is the number of
    releases that were computed again from the bytes of other releases alone.
    """

    pipeline: str
    relation: str
    users: Users | None = None
    counts: TraceCounts = field(default_factory=TraceCounts)
    ticks: int = 0
    releases: int = 0
    made: int = 0
    answers: int = 0
    snapshots: int = 0
    apart: bool | None = None

    def json(self) -> dict[str, Any]:
        neighbours: dict[str, Any]
        if self.users is None:
            neighbours = {"one_event_passes": self.ticks > 0, "two_events_are_refused": self.apart}
        else:
            neighbours = {
                "users": str(self.users),
                "events_of_one_user_pass": self.ticks > 0,
                "one_more_is_refused": self.apart,
            }
        return {
            "pipeline": self.pipeline, "neighbors": self.relation, "ticks": self.ticks,
            "creations": self.counts.creations, "asks": self.counts.asks, "halts": self.counts.halts,
            "releases": self.releases, "answers": self.answers, "snapshots": self.snapshots, "equal": True,
            **({"made_of_releases": self.made} if self.made else {}),
            **neighbours,
        }  # fmt: skip


async def check_trace(
    pipeline: Path | None,
    trace: Path,
    key_file: Path | None,
    copy: Path | None = None,
    progress: Progress = unseen,
) -> TraceReport:
    """Play the journal `trace` of `pipeline`, or the journal of the pipeline file `trace`, and compare it.

    The engine may run meanwhile. With `copy`, the journal of a pipeline file is first copied to that file, which is
    then read: for inquiries and checks elsewhere, no engine may ever run on it (docs/operations.md); it is deleted if
    the check fails. Raises FailClosed if the journal is damaged or belongs to
    another pipeline, or its trace differs from the composition's.
    """
    if pipeline is None and _is_sqlite(trace):
        raise UsageError(
            f"--trace: {trace.name} is a journal, so name its pipeline file too: "
            f"stream-dp audit PIPELINE.yaml --trace {trace.name}"
        )
    spec = load(trace if pipeline is None else pipeline)
    if pipeline is not None and _is_sqlite(trace) is False:
        raise UsageError(f"--trace: {trace.name} is not a journal (an SQLite file)")
    if pipeline is not None and copy is not None:
        raise UsageError(
            f"--copy: copies the journal of a pipeline file, but {trace.name} is itself a "
            f"journal. Write --trace {pipeline.name}, and name no other file"
        )
    sealer = sealer_for(spec, key_file)
    if copy is not None and await asyncio.to_thread(copy.exists):
        raise UsageError(f"--copy: {copy} is there already; name a new file")
    try:
        if copy is not None:
            await archived(spec, sealer, copy, progress)
        file = copy if pipeline is None else trace

        async def journal() -> Sealed:
            if file is None:
                return await sealed_commits(spec, progress)
            return await sealed_commits_of(file, progress)

        here = await journal()
        _require_all(here.begin, spec.name)
        built, _ = await built_of(spec, sealer, journal)
        return await compared(built, sealer, here.commits)
    except BaseException:
        if copy is not None:
            await asyncio.to_thread(copy.unlink, missing_ok=True)
        raise


def _require_all(begin: int, name: str) -> None:
    if begin:
        raise UsageError(
            f"--trace: {name} begins with commit {begin}, because earlier commits were pruned, "
            "but the check needs all commits. As FILE, name an archive of this journal that "
            "`stream-dp journal archive` made before"
        )


async def compared(built: Built, sealer: Sealer, blobs: AsyncIterator[bytes]) -> TraceReport:
    """Play the trace of all sealed commits of a journal of `built` and compare it."""
    check: TraceCheck | None = None
    async for commit, _ in unsealed(blobs, sealer, built.spec.name):
        if commit.header is not None:
            check = TraceCheck(built, commit.header, sealer.key_id)
        if check is not None:
            check.take(commit)
    if check is None:
        raise FailClosed(f"the journal of {built.spec.name} is empty: this pipeline never ran")
    return check.report


def _is_sqlite(path: Path) -> bool | None:
    """Return whether the file is an SQLite file; None if there is no file."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


class TraceCheck:
    """Plays the trace of one journal, commit by commit, and compares the results with the recorded ones."""

    def __init__(self, built: Built, header: Header, key_id: str) -> None:
        config = built.run_config(0)
        require_same(header, config.header(header.source, header.partitions, header.origin, key_id))
        self._grid: TickGrid = config.grid(header.origin)
        self._trace = JournalTrace(built)
        self._player = TracePlayer(NoiseStream)
        protection = built.spec.protection
        self._bodies: dict[str, bytes] = {}
        self._beside = Neighbourhood(self._trace)
        self.report = TraceReport(built.spec.name, str(protection.relation), protection.users)

    def take(self, commit: Commit) -> None:
        """Play the next commit; raise FailClosed if a release or a state differs, or a message is not accepted."""
        for step in self._trace.steps(commit):
            if isinstance(step, MadeStep):
                self._make(step)
                continue
            self.report.counts.add(step.sent.message)
            self._play(step)
            self._beside.take(step)
        self.report.ticks += len(commit.ticks)
        self.report.apart = self._beside.apart
        if commit.snapshot is not None:
            self._snapshot(commit.snapshot.states, commit.sequence)

    def _play(self, step: TraceStep) -> None:
        band = self._band(step)
        try:
            answer = self._player.play(step.sent)
        except RejectedMessage:
            raise self._differs(
                step, "a mechanism refuses a message that the engine sent it"
            ) from None
        if step.release is None and step.asked is None:
            return
        if answer is None:
            raise self._differs(step, "a question has no answer")
        if step.asked is not None:
            again = step.asked.body(self._grid, step.live.series, answer, band)
            if again != step.asked.recorded.body:
                raise self._differs(
                    step, "the composition gives other bytes than the recorded answer"
                )
            self.report.answers += 1
            return
        state = self._player.state(step.live.number)
        body = step.live.series.body(self._grid, self.report.releases + 1, step.tick, state, answer)
        if step.release is None or not is_recorded(step.release.body, body):
            raise self._differs(step, "the composition gives other bytes than the recorded release")
        self.report.releases += 1
        self._bodies[step.release.series] = step.release.body

    def _make(self, step: MadeStep) -> None:
        """Compute a release from the bytes of the same tick's other releases, and compare it."""
        release, number = step.release, self.report.releases + 1
        if not step.series.gives(release.body, self._grid, number, release.tick, self._bodies):
            raise FailClosed(
                f"the trace of {self.report.pipeline}, series {step.series.name}, tick {release.tick}: the releases of "
                f"{' and '.join(step.series.inputs)} give other bytes than the recorded release. {_ADVICE}"
            )
        self.report.releases += 1
        self.report.made += 1

    def _band(self, step: TraceStep) -> int | None:
        """Return the half-width of an analyst's query, from the state before it."""
        if step.asked is None:
            return None
        state = self._player.state(step.live.number)
        return step.live.series.ask_band(step.asked.asked.at, step.asked.query, state)

    def _snapshot(self, states: dict[int, bytes], sequence: int) -> None:
        played = {index: STATES.encode(self._player.state(index)) for index in self._player.live}
        if not same_states(played, states):
            raise FailClosed(
                f"the trace of {self.report.pipeline}: the state of the composition differs from the "
                f"snapshot in commit {sequence} of the journal. {_ADVICE}"
            )
        self.report.snapshots += 1

    def _differs(self, step: TraceStep, what: str) -> FailClosed:
        where = f"series {step.live.series.name}" + (
            f", tick {step.tick}" if step.tick >= 0 else ""
        )
        return FailClosed(f"the trace of {self.report.pipeline}, {where}: {what}. {_ADVICE}")
