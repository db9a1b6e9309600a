"""Checks of journals and sinks, for adapters of this project and others.

Rules: `make` returns a new, unopened adapter over the same storage each time; the storage is empty at first. A check
raises an AssertionError that names the broken rule, and closes what it opened. It uses only the ports.
"""

from collections.abc import Callable
from typing import Any

from stream_dp.core.time import TickGrid
from stream_dp.engine.ports import Journal, Sink
from stream_dp.errors import FailClosed
from stream_dp.journal.commit import Commit, DeadLetter, Release
from stream_dp.journal.release import VERSION, Released, write
from stream_dp.testing.sequence_checks import (
    MANY,
    check_one_version,
    check_sequence,
    opened_port,
    require_equal,
)


def sample_commit(sequence: int) -> tuple[Commit, bytes]:
    """Return a commit with positions and dead letters, and bytes in place of its sealed form."""
    letters = (DeadLetter(0, "missing_field", "time", 1, ((sequence, sequence),)),)
    positions = {0: 2 * sequence, 1: 3}
    commit = Commit(sequence=sequence, previous=b"", positions=positions, dead_letters=letters)
    return commit, b"\x00sealed\n" + sequence.to_bytes(8, "big") + bytes(200)


def sample_release(
    sequence: int, series: str = "clicks", tick: int | None = None, **content: Any
) -> Release:
    """Return a release with its body as the engine writes it; its tick is its sequence unless given.

    `content` is one of value, values, fired, ranks and windows (default: the sequence's square), and may override
    the band 7, the confidence 0.95 and the end, `tick` + 1 seconds after 1970 began.
    """
    tick = sequence if tick is None else tick
    content.setdefault("end", TickGrid(0, 1000).end_text(tick))
    content.setdefault("confidence", 0.95)
    if not {"value", "values", "fired", "ranks", "windows"} & content.keys():
        content["value"] = sequence * sequence
    if "windows" not in content:
        content.setdefault("band", 7)
    released = Released(v=VERSION, sequence=sequence, series=series, tick=tick, **content)
    return Release(sequence, series, tick, write(released))


def sample_releases(first: int, stop: int) -> list[Release]:
    return [sample_release(sequence) for sequence in range(first, stop)]


async def check_journal(make: Callable[[], Journal]) -> None:
    """Check that appended commits are read in order, now and by the next engine, and that there is one writer."""
    async with opened_port(make) as journal:
        require_equal(await _read(journal), [], "a new journal is empty")
        await _append(journal, 0, 3)
        require_equal(await _read(journal), _sealed(3), "a journal reads what it appended")
    async with opened_port(make) as journal:
        require_equal(await _read(journal), _sealed(3), "commits outlive the engine")
        await _append(journal, 3, MANY)
        require_equal(await _read(journal), _sealed(MANY), "a long journal is whole and in order")
    await _check_one_writer(make)
    async with opened_port(make) as journal:
        require_equal(await _read(journal), _sealed(MANY + 1), "one history, whoever wrote it")


async def check_journal_order(make: Callable[[], Journal]) -> None:
    """Check that a commit that is not the next one is refused and leaves nothing behind."""
    async with opened_port(make) as journal:
        await _append(journal, 0, 2)
        for wrong in (0, 1, 3):
            if not await _refused(journal, wrong):
                raise AssertionError("a journal takes the next commit only")
        await _append(journal, 2, 3)
        require_equal(await _read(journal), _sealed(3), "a refused commit leaves nothing behind")


async def check_sink(make: Callable[[], Sink]) -> None:
    """Check that releases become visible once, in order, with the same bytes, also after a partial publication."""
    await check_sequence(make, sample_releases, 0)


async def check_sink_versions(make: Callable[[], Sink]) -> None:
    """Check that the last visible release is never published in another version."""
    await check_one_version(make, sample_releases, 0, sample_release(3, value=-1))


async def _check_one_writer(make: Callable[[], Journal]) -> None:
    """Check that the second engine is kept out or fences the first, and that one of the two can continue."""
    first, second = make(), make()
    try:
        await first.open()
        try:
            await second.open()
        except FailClosed:
            await _append(first, MANY, MANY + 1)
            return
        if not await _refused(first, MANY):
            raise AssertionError("a journal has one writer")
        await _append(second, MANY, MANY + 1)
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


async def _read(journal: Journal) -> list[bytes]:
    return [sealed async for sealed in journal.read()]


def _sealed(stop: int) -> list[bytes]:
    return [sample_commit(sequence)[1] for sequence in range(stop)]
