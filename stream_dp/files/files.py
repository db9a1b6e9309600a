"""A data file as a finite source; a file of JSON lines as a sink.

Rules: the source has one partition and makes a batch with a mark for every tick of the declared range, also for
empty ticks; the grid never comes from the data. Its position counts records and marks in reading order: after tick
k it is (records of ticks 0..k) + k + 1, so a seek resumes exactly, even inside a tick. The sink only appends; after
a crash it completes a cut line with the same bytes.
"""

import asyncio
import hashlib
import mmap
import os
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar

from stream_dp.core.time import ISO, TickGrid, TimeForm
from stream_dp.engine.ports import NOTHING_BEHIND, Batch, Behinds, Positions
from stream_dp.errors import FailClosed, WorldError
from stream_dp.files.records import RepeatedTicks, TickedRecords, load_records, ticked
from stream_dp.files.threads import OneThread, sync_folder
from stream_dp.journal.commit import Release
from stream_dp.journal.public_sequence import RELEASES
from stream_dp.records.schema import Fields

_P = ParamSpec("_P")
_T = TypeVar("_T")
_TICKS_PER_READ = 100
_CHUNK_BYTES = 1 << 20


class FileSource:
    """The records of one file, on the grid of a replay clock. Its identity is a digest of its bytes: a position counts
    records, and would be another place in a file that was changed. After `every` ticks the records come again, later.
    """

    def __init__(
        self, path: Path, fields: Fields, time_field: str, grid: TickGrid, form: TimeForm = ISO,
        encoding: str = "utf-8", every: int | None = None,
    ) -> None:  # fmt: skip
        self.name, self.identity, self.grows = path.name, "", False
        self._path, self._grid = path, grid
        self._fields, self._time_field, self._form = fields, time_field, form
        self._encoding, self._every = encoding, every
        self._ticks = TickedRecords({}, 0)
        self._position = 0

    async def open(self, origin: int) -> tuple[int, ...]:
        if origin != self._grid.origin:
            raise FailClosed(f"{self._path}: tick 0 does not begin at the declared start")
        self._ticks = await asyncio.to_thread(self._load)
        self._position = 0
        return (0,)

    async def seek(self, positions: Positions, behind: Behinds = NOTHING_BEHIND) -> None:
        position = positions.get(0, 0)
        if not 0 <= position <= self._end(len(self._ticks) - 1):
            raise FailClosed(
                f"{self._path}: this is not the file that was read before; bring that file back"
            )
        self._position = position

    async def read(self) -> Sequence[Batch]:
        """Return a batch for each tick up to the next full hundred; empty at the end."""
        await asyncio.sleep(0)
        horizon = len(self._ticks)
        tick = bisect_right(range(horizon), self._position, key=self._end)
        stop = min(horizon, (tick // _TICKS_PER_READ + 1) * _TICKS_PER_READ)
        return [self._batch(number) for number in range(tick, stop)]

    async def close(self) -> None:
        self._ticks = TickedRecords({}, 0)

    def _load(self) -> TickedRecords:
        how = self._fields, self._time_field, self._form, self._encoding
        records = load_records(self._path, *how)
        with self._path.open("rb") as file:
            self.identity = hashlib.file_digest(file, "sha256").hexdigest()
        ticks = ticked(records, self._grid)
        step = self._grid.step
        return ticks if self._every is None else RepeatedTicks(ticks, self._every, step)

    def _end(self, tick: int) -> int:
        return self._ticks.before(tick + 1) + tick + 1

    def _batch(self, tick: int) -> Batch:
        records, end = self._ticks[tick], self._end(tick)
        begin = end - len(records) - 1
        left = records[max(self._position - begin, 0) :]
        self._position = end
        payloads, labels = [record.payload for record in left], [record.line for record in left]
        return Batch(0, payloads, labels, position=end, mark=tick)


class FileSink:
    """A sink with one release body per line. Lines may appear one by one; after `open` each is complete."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = OneThread("stream-dp-sink", WorldError(f"{path}: the sink is not open"))
        self._descriptor: int | None = None
        self._size = 0
        self._last: bytes | None = None

    async def open(self) -> None:
        """Open or create the file, and cut off a line that a crash left incomplete; `WorldError` if that fails."""
        self._thread.start()
        await self._run(self._open)

    async def last(self) -> bytes | None:
        return self._last

    async def read(self, beyond: int = -1) -> AsyncIterator[bytes]:
        """Return the lines after `beyond` that were complete when `open` or the last `publish` returned."""
        position, stop, begun = 0, self._size, False
        if beyond >= 0:
            position = await self._run(self._start_of, beyond, stop)
        while position < stop:
            lines = await self._run(self._lines, position, stop)
            position += sum(len(line) + 1 for line in lines)
            for line in lines:
                begun = begun or RELEASES.after(line, beyond, str(self._path))
                if begun:
                    yield line

    async def publish(self, releases: Sequence[Release]) -> None:
        """Append the releases that are not in the file yet; durable on return."""
        await self._run(self._publish, tuple(releases))

    async def close(self) -> None:
        await self._thread.stop(self._close)

    async def _run(self, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return await self._thread.run(call, *args, **kwargs)
        except OSError as error:
            what = f"{error.strerror}; check its folder, permissions and free space"
            raise WorldError(f"{self._path}: {what}") from None

    def _open(self) -> None:
        self._close()
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        sync_folder(self._path.parent)
        self._size, self._last = _whole_lines(self._descriptor)
        os.ftruncate(self._descriptor, self._size)
        os.fsync(self._descriptor)

    def _publish(self, releases: Sequence[Release]) -> None:
        fresh = RELEASES.not_yet_visible(releases, self._last, str(self._path))
        if not fresh or self._descriptor is None:
            return
        view = memoryview(b"".join(release.body + b"\n" for release in fresh))
        end = self._size + len(view)
        while view:
            view = view[os.pwrite(self._descriptor, view, end - len(view)) :]
        os.fsync(self._descriptor)
        self._size, self._last = end, fresh[-1].body

    def _start_of(self, beyond: int, stop: int) -> int:
        """Return the position of a line at or before the first one after `beyond`, by bisection."""
        low, high = 0, stop
        with self._path.open("rb") as file:
            while high - low > _CHUNK_BYTES:
                middle = (low + high) // 2
                file.seek(middle)
                begin = middle + len(file.readline())
                line = file.readline()
                if begin >= high or RELEASES.after(line[:-1], beyond, str(self._path)):
                    high = middle
                else:
                    low = begin
        return low

    def _lines(self, position: int, stop: int) -> list[bytes]:
        with self._path.open("rb") as file:
            file.seek(position)
            # readlines ends with the first line that passes its hint
            lines = file.readlines(min(_CHUNK_BYTES, stop - position - 1))
        if not lines or not lines[-1].endswith(b"\n"):
            raise FailClosed(f"{self._path}: the file was cut while it was read; bring it back")
        return [line[:-1] for line in lines]

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _whole_lines(descriptor: int) -> tuple[int, bytes | None]:
    if os.fstat(descriptor).st_size == 0:
        return 0, None
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as content:
        end = content.rfind(b"\n")
        if end < 0:
            return 0, None
        return end + 1, content[content.rfind(b"\n", 0, end) + 1 : end]
