"""The published releases of a pipeline, read from outside the engine: from its topic or its file.

Rules: no key is needed and no lease is taken. Records of open or aborted transactions are not returned. Bodies are
returned as they were written; the caller checks that their sequence numbers grow.
"""

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable
from pathlib import Path

from stream_dp.core.time import TickGrid
from stream_dp.errors import FailClosed, UsageError
from stream_dp.files.system_clock import system_ms
from stream_dp.journal.public_sequence import RELEASES
from stream_dp.journal.release import ReleaseReader, read, read_head, release_of
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.log.reader import PartitionLog, reading
from stream_dp.operate.run.settings import settings_for, settled
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.records.endpoints import KafkaSourceSpec, SqliteJournalSpec, WallClock
from stream_dp.server.view import Behind, ReleaseLog


class TickTimes:
    """When each tick of a pipeline begins, for `start` and `end` of a series; looked up once, as it never changes.

    Times are public: they follow from the declared origin of the clock, or from the end time in a published release.
    A series covers the ticks from `start` on, up to and not including `end`; in time: [start_time, end_time).
    """

    def __init__(self, spec: PipelineSpec, log: ReleaseLog) -> None:
        self._step = spec.clock.step
        self._grid = None if spec.clock.start is None else TickGrid(spec.clock.start, self._step)
        self._log = log

    @property
    def grid(self) -> TickGrid | None:
        """The grid; None if a wall clock declares no start and there is no release yet."""
        if self._grid is None and (latest := self._log.latest()):
            release = next(iter(latest.values()))
            end_ms = read_head(release.body).end_ms
            self._grid = TickGrid.ending(release.tick, end_ms, self._step)
        return self._grid

    def __call__(self, tick: int) -> str | None:
        """Return when `tick` begins, in UTC; None if there is no grid yet."""
        return None if self.grid is None else self.grid.start_text(tick)


_BEHIND_MS, _SPAN_MS, _SHORTEST_MS = 10_000, 30_000, 2000


class Backlog:
    """How far the public ticks of a wall clock in `log` are behind the clock, and how soon they will not be.

    Computed from the grid, the clock, and when ticks became public while this was asked for: what every reader of the
    releases can see. It knows nothing of records that wait.
    """

    def __init__(
        self, spec: PipelineSpec, log: ReleaseLog, now: Callable[[], int] = system_ms
    ) -> None:
        self._clock, self._log, self._now = spec.clock, log, now
        self._times = TickTimes(spec, log)
        self._seen: deque[tuple[int, int]] = deque()

    def __call__(self) -> Behind | None:
        """Return None if the next tick has been due for less than ten seconds, or is not due yet."""
        clock, grid, ticks, now = self._clock, self._times.grid, self._log.ticks, self._now()
        if not isinstance(clock, WallClock) or grid is None or ticks == clock.horizon:
            return None
        late = now - grid.end(ticks) - clock.delay
        if late < max(_BEHIND_MS, 2 * clock.step):
            self._seen.clear()
            return None
        seen = self._seen
        if not seen or ticks != seen[-1][1]:
            seen.append((now, ticks))
        while len(seen) > 1 and seen[1][0] <= now - _SPAN_MS:
            seen.popleft()
        span, made = now - seen[0][0], ticks - seen[0][1]
        due, new = grid.passed(now - clock.delay) + 1, span // clock.step
        if clock.horizon is not None and due >= clock.horizon:
            due, new = clock.horizon, 0
        known = span >= _SHORTEST_MS and made > new
        return Behind(late // 1000, (due - ticks) * span // (made - new) // 1000 if known else None)


def behind_text(behind: Behind | None) -> str:
    """Return how late public ticks are, as the end of a line.

    >>> behind_text(Behind(5400, 61)), behind_text(Behind(20, None)), behind_text(None)
    (', 1.5 h behind, caught up in 1 min', ', 20 s behind', '')
    """
    if behind is None:
        return ""
    there = "" if behind.caught_up_in is None else f", caught up in {_roughly(behind.caught_up_in)}"
    return f", {_roughly(behind.behind)} behind{there}"


def _roughly(seconds: int) -> str:
    units = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    size, unit = next(((size, unit) for size, unit in units if seconds >= size), (1, "s"))
    return f"{round(seconds / size, int(seconds < 10 * size and size > 60)):g} {unit}"


_CHUNK = 1 << 20


def published(
    spec: PipelineSpec,
    beyond: int = -1,
    every: float | None = None,
    bootstrap: str = "",
    ticks: int | None = None,
) -> AsyncIterator[list[bytes]]:
    """Return the bodies of releases after sequence number `beyond`, in groups.

    With `every`, wait for new releases and look again after that many seconds. Some older bodies may come first;
    the caller can check by them that the releases continue the ones it knows. An empty group means that there are
    no more releases for now. `bootstrap` replaces the brokers that the file names. With `ticks`, start at the first
    of the newest `ticks` ticks, or a little before.

    Raises UsageError (there are no releases yet, and `every` is None), FailClosed (this version cannot read the
    releases, or the topic or file was replaced), or WorldError.
    """
    if isinstance(spec.journal, SqliteJournalSpec):
        return of_file(settled(spec.releases_path, Path), every, ticks)
    settings = settings_for(settled(spec.source, KafkaSourceSpec), bootstrap)
    return of_topic(settings, f"{spec.name}.{RELEASES.name}", beyond, every, ticks)


async def find_keys(reader: ReleaseReader, body: bytes, bodies: AsyncIterable[bytes]) -> None:
    """Read the first release of the series of `body`, of its version, among `bodies` from the first one on."""
    wanted = read(body)
    async for each in bodies:
        if read_head(each).series == wanted.series and read(each).version == wanted.version:
            reader.read(each)
            return


async def all_published(spec: PipelineSpec, bootstrap: str = "") -> AsyncIterator[bytes]:
    """Return the bodies of all releases so far, one by one; arguments and errors as of `published`."""
    async for bodies in published(spec, bootstrap=bootstrap):
        for body in bodies:
            yield body


async def of_topic(
    settings: KafkaSettings, topic: str, beyond: int, every: float | None, ticks: int | None = None
) -> AsyncIterator[list[bytes]]:
    """Return the bodies in a topic of releases, from a little before the first one after `beyond`.

    If `beyond` is negative and `ticks` is given, start a little before the first of the newest `ticks` ticks.
    """
    async with reading(settings, topic) as log:
        begin, (end, _) = await log.begin(), await log.ends()
        if beyond >= 0:
            begin = await log.start_of(begin, end, lambda body: RELEASES.after(body, beyond, topic))
        elif ticks is not None and (last := await _last(log, begin, end)) is not None:
            first = _tick_of(last) - ticks
            begin = await log.start_of(begin, end, lambda body: _tick_of(body) > first)
        while True:
            async for records in log.records(begin, end):
                yield [record.value for record in records]
            yield []
            if every is None:
                return
            await asyncio.sleep(every)
            begin, (end, _) = end, await log.ends()
            if end < begin:
                raise FailClosed(
                    f"topic {topic!r} was deleted and created again: restart with the files of the new "
                    "topic"
                )


async def _last(log: PartitionLog, begin: int, end: int) -> bytes | None:
    """Return the last body before offset `end`, or None."""
    start, last = await log.start_of(begin, end, lambda _: False), None
    async for records in log.records(start, end):
        last = records[-1].value
    return last


def _tick_of(body: bytes) -> int:
    return release_of(body).tick


async def of_file(path: Path, every: float | None, ticks: int | None) -> AsyncIterator[list[bytes]]:
    if every is None and not await asyncio.to_thread(path.exists):
        raise UsageError(f"{path}: there are no releases yet; run the pipeline first")
    position = 0 if ticks is None else await asyncio.to_thread(_start_of, path, ticks)
    while True:
        bodies, position = await asyncio.to_thread(_lines, path, position)
        yield bodies
        if not bodies:
            if every is None:
                return
            await asyncio.sleep(every)


def _start_of(path: Path, ticks: int) -> int:
    """Return the position of a line at or before the first of the newest `ticks` ticks; searches backwards."""
    try:
        end = path.stat().st_size
    except FileNotFoundError:
        return 0
    size, last = _CHUNK, None
    while size < end:
        with path.open("rb") as file:
            file.seek(end - size)
            file.readline()
            start, lines = file.tell(), file.read(min(size, _CHUNK)).splitlines(keepends=True)
        whole = [line.rstrip(b"\n") for line in lines if line.endswith(b"\n")]
        if whole:
            last = _tick_of(whole[-1]) if last is None else last
            if _tick_of(whole[0]) <= last - ticks:
                return start
        size *= 2
    return 0


def _lines(path: Path, position: int) -> tuple[list[bytes], int]:
    """Return the whole lines from `position` on, about one chunk of them, and the position after them."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < position:
                raise FailClosed(
                    f"{path}: is shorter than before. Restore the releases, or restart with the files that belong "
                    "to this file"
                )
            file.seek(position)
            read = file.read(_CHUNK)
            read += file.readline() if len(read) == _CHUNK else b""
    except FileNotFoundError:
        return [], position
    whole = read[: read.rfind(b"\n") + 1]
    return whole.splitlines(), position + len(whole)
