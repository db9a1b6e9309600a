"""What every journal and every sink must do: checks for adapters, ours and other people's.

Rules: `make` returns a new, unopened adapter over the same storage each time it is called, and the
storage is empty at first. A check raises AssertionError that names the broken rule, and closes what it
opened. It looks only through the ports.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from stream_dp.core.tick_grid import TickGrid
from stream_dp.errors import FailClosed
from stream_dp.runtime.commit import Commit, DeadLetter, Release
from stream_dp.runtime.ports import Journal, Sink
from stream_dp.runtime.release import VERSION, Released, write

_Port = TypeVar("_Port", Journal, Sink)
_ALL = 150  # more than an adapter reads at a time


def sample_commit(sequence: int) -> tuple[Commit, bytes]:
    """A commit with positions and dead letters, and bytes that stand for its sealed form."""
    letters = (DeadLetter(0, "missing_field", "time", 1, ((sequence, sequence),)),)
    commit = Commit(
        sequence=sequence, previous=b"", positions={0: 2 * sequence, 1: 3}, dead_letters=letters
    )
    return commit, b"\x00sealed\n" + sequence.to_bytes(8, "big") + bytes(200)


def sample_release(
    sequence: int, series: str = "clicks", tick: int | None = None, **content: Any
) -> Release:
    """A release with its body as it leaves the engine; its tick is its sequence unless given.

    `content` is one of value, values, fired and windows (default: the sequence's square), and what else differs of the
    band 7, the confidence 0.95 and the end, `tick` + 1 seconds after 1970 began.
    """
    tick = sequence if tick is None else tick
    shown = {"value", "values", "fired", "windows"} & content.keys()
    content = {
        "end": TickGrid(0, 1000).end_text(tick),
        **({} if "windows" in content else {"band": 7}),
        "confidence": 0.95,
        **({} if shown else {"value": sequence * sequence}),
        **content,
    }
    released = Released(v=VERSION, sequence=sequence, series=series, tick=tick, **content)
    return Release(sequence, series, tick, write(released))


def sample_releases(first: int, stop: int) -> list[Release]:
    """Releases `first`..`stop`-1 with bodies as they leave the engine."""
    return [sample_release(sequence) for sequence in range(first, stop)]


async def check_journal(make: Callable[[], Journal]) -> None:
    """What was appended is read in order, now and by the next engine; there is one writer."""
    async with _opened(make) as journal:
        _same(await _read(journal), [], "a new journal is empty")
        await _append(journal, 0, 3)
        _same(await _read(journal), _sealed(3), "a journal reads what it appended")
    async with _opened(make) as journal:
        _same(await _read(journal), _sealed(3), "commits outlive the engine")
        await _append(journal, 3, _ALL)
        _same(await _read(journal), _sealed(_ALL), "a long journal is read whole and in order")
    await _check_one_writer(make)
    async with _opened(make) as journal:
        _same(await _read(journal), _sealed(_ALL + 1), "one history, whoever wrote it")


async def check_journal_order(make: Callable[[], Journal]) -> None:
    """A commit that is not the next one is refused and leaves nothing behind."""
    async with _opened(make) as journal:
        await _append(journal, 0, 2)
        for wrong in (0, 1, 3):
            if not await _refused(journal, wrong):
                raise AssertionError("a journal takes the next commit only")
        await _append(journal, 2, 3)
        _same(await _read(journal), _sealed(3), "a refused commit leaves nothing behind")


async def check_sink(make: Callable[[], Sink]) -> None:
    """Releases become visible once, in order, with the same bytes, also after a partial publication."""
    async with _opened(make) as sink:
        _same(await sink.last(), None, "a new sink has no last release")
        _same(await _read(sink), [], "a new sink is empty")
        await sink.publish([])
        await sink.publish(sample_releases(0, 3))
        await _check_visible(sink, 3)
    async with _opened(make) as sink:
        await _check_visible(sink, 3)
        await sink.publish(sample_releases(0, 3))
        await _check_visible(sink, 3)
        await sink.publish(sample_releases(1, 6))
        await _check_visible(sink, 6)
    async with _opened(make) as sink:
        await sink.publish(sample_releases(5, _ALL))
        await _check_visible(sink, _ALL)


async def check_sink_versions(make: Callable[[], Sink]) -> None:
    """The last visible release is never published in another version."""
    async with _opened(make) as sink:
        await sink.publish(sample_releases(0, 3))
        try:
            await sink.publish([sample_release(2, value=-1), *sample_releases(3, 4)])
        except FailClosed:
            await _check_visible(sink, 3)
        else:
            raise AssertionError("a sink refuses a second version of a release")


async def _check_one_writer(make: Callable[[], Journal]) -> None:
    """The second engine is kept out, or it fences the first; one of the two can go on."""
    first, second = make(), make()
    try:
        await first.open()
        try:
            await second.open()
        except FailClosed:
            await _append(first, _ALL, _ALL + 1)
            return
        if not await _refused(first, _ALL):
            raise AssertionError("a journal has one writer")
        await _append(second, _ALL, _ALL + 1)
    finally:
        await second.close()
        await first.close()


async def _refused(journal: Journal, sequence: int) -> bool:
    try:
        await _append(journal, sequence, sequence + 1)
    except FailClosed:
        return True
    return False


async def _append(journal: Journal, first: int, stop: int) -> None:
    for sequence in range(first, stop):
        await journal.append(*sample_commit(sequence))


async def _check_visible(sink: Sink, stop: int) -> None:
    bodies = [release.body for release in sample_releases(0, stop)]
    _same(await sink.last(), bodies[-1], "`last` is the last visible release")
    _same(await _read(sink), bodies, "each release is visible once, in order, unchanged")


async def _read(port: Journal | Sink) -> list[bytes]:
    return [each async for each in port.read()]


def _sealed(stop: int) -> list[bytes]:
    return [sample_commit(sequence)[1] for sequence in range(stop)]


def _same(found: object, wanted: object, rule: str) -> None:
    if found != wanted:
        raise AssertionError(rule)


@asynccontextmanager
async def _opened(make: Callable[[], _Port]) -> AsyncIterator[_Port]:
    port = make()
    try:
        await port.open()
        yield port
    finally:
        await port.close()
