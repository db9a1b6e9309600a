"""Checks of public sequences (releases and answers), and common parts of the checks.

Rules: those of port_checks.py. `samples(first, stop)` makes the durable entries with these numbers.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from stream_dp.engine.ports import PublicPort
from stream_dp.errors import FailClosed
from stream_dp.journal.commit import Answer, Release

MANY = 150
"""More entries than an adapter reads at a time."""
_D = TypeVar("_D", bound=Release | Answer)


class _Port(Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None: ...


_Opened = TypeVar("_Opened", bound=_Port)


def require_equal(found: object, wanted: object, rule: str) -> None:
    """Return if the two are equal.

    Raises:
        AssertionError: they differ; it names the rule.
    """
    if found != wanted:
        raise AssertionError(rule)


@asynccontextmanager
async def opened_port(make: Callable[[], _Opened]) -> AsyncIterator[_Opened]:
    """Open a new adapter, yield it, and close it."""
    port = make()
    try:
        await port.open()
        yield port
    finally:
        await port.close()


async def check_sequence(
    make: Callable[[], PublicPort[_D]], samples: Callable[[int, int], Sequence[_D]], first: int
) -> None:
    """Check that published entries become visible once, in order, unchanged, also after a partial publication."""
    async with opened_port(make) as port:
        require_equal(await port.last(), None, "of a new sequence nothing is visible last")
        require_equal(await _read(port), [], "a new sequence is empty")
        await port.publish([])
        await port.publish(samples(first, 4))
        await _check_visible(port, samples(first, 4))
    async with opened_port(make) as port:
        await _check_visible(port, samples(first, 4))
        await port.publish(samples(first, 4))
        await _check_visible(port, samples(first, 4))
        await port.publish(samples(first + 1, 7))
        await _check_visible(port, samples(first, 7))
    async with opened_port(make) as port:
        await port.publish(samples(6, MANY))
        await _check_visible(port, samples(first, MANY))
        beyond = [one.body for one in samples(101, MANY)]
        require_equal(await _read(port, 100), beyond, "reading begins behind a number")


async def check_one_version(
    make: Callable[[], PublicPort[_D]],
    samples: Callable[[int, int], Sequence[_D]],
    first: int,
    other: _D,
) -> None:
    """Check that the last visible entry is never published in another version; `other` has number 3."""
    async with opened_port(make) as port:
        await port.publish(samples(first, 4))
        try:
            await port.publish([other, *samples(4, 5)])
        except FailClosed:
            await _check_visible(port, samples(first, 4))
        else:
            raise AssertionError("a second version of what is visible is refused")


async def _check_visible(port: PublicPort[_D], durable: Sequence[_D]) -> None:
    bodies = [one.body for one in durable]
    require_equal(await port.last(), bodies[-1], "`last` is what is visible last")
    require_equal(await _read(port), bodies, "each is visible once, in order, unchanged")


async def _read(port: PublicPort[_D], beyond: int = -1) -> list[bytes]:
    return [each async for each in port.read(beyond)]
