"""Long histories: the published bytes, a part at a time, and no more than parts in memory however slowly one reads."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import httpx
import pytest

from stream_dp.journal.commit import Release
from stream_dp.server import routes
from stream_dp.server.broadcast import (
    LARGEST_PART,
    Overtaken,
    Turns,
    first_part,
    history,
    in_one_part,
)
from stream_dp.server.connections import BoundedProtocol
from stream_dp.server.server import PageServer
from stream_dp.server.view import PublicView, ReleaseLog

MakeRelease = Callable[..., Release]
WIDE, TICKS = 8_000, 2_500  # 20 MB
LARGEST_SHARE = 1 / 8
ASKED = b"GET /api/series/total HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def long_log(release: MakeRelease, ticks: int = TICKS, keep: int | None = None) -> ReleaseLog:
    """A log of one series that was released so often, each time in `WIDE` bytes or so."""
    log = ReleaseLog(keep)
    for tick in range(ticks):
        log.append(release(tick, value=tick, padding="x" * WIDE))
    return log


def joined(log: ReleaseLog) -> bytes:
    """What a history is, all at once."""
    return b'{"series":"total","releases":[%s]}' % b",".join(one.body for one in log.since(-1))


@pytest.mark.parametrize("ticks", [0, 1, 7, 8, 9, 100])
async def test_a_history_is_the_published_bytes(
    view: PublicView, release: MakeRelease, ticks: int
) -> None:
    from stream_dp.server.api import create_app

    log = long_log(release, ticks)
    app = create_app(replace(view, log=log), frozenset({"localhost"}))
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://localhost"
    ) as client:
        answer = await client.get("/api/series/total")
    assert answer.content == joined(log)
    assert answer.headers["content-type"] == "application/json"
    assert ("content-length" in answer.headers) == (ticks * WIDE < LARGEST_PART)


async def test_parts_are_bounded_and_one_release_at_least(release: MakeRelease) -> None:
    log = long_log(release, 100)
    parts = [part async for part in history(log, "total", range(100))]
    assert b"".join(parts) == joined(log)
    assert max(map(len, parts)) < LARGEST_PART + WIDE
    assert len(parts) > 100 * WIDE // LARGEST_PART
    wide = release(0, padding="x" * 2 * LARGEST_PART)
    assert first_part([wide, wide]) == [wide]
    assert first_part([]) == []


async def test_what_is_released_meanwhile_is_not_in_it(release: MakeRelease) -> None:
    log = long_log(release, 20)
    before, parts = joined(log), history(log, "total", log.places_between("total", 0, 99))
    found = await anext(parts)
    log.append(release(20))
    assert found + b"".join([part async for part in parts]) == before


async def test_a_client_that_is_slower_than_the_series_sees_that_it_has_not_all(
    release: MakeRelease,
) -> None:
    """A hole would look like a whole answer."""
    log = long_log(release, 25, keep=20)
    places = log.places_between("total", 0, 99)
    assert (places, in_one_part(log, "total", places)) == (range(5, 25), None)
    parts = history(log, "total", places)
    found = await anext(parts)
    for tick in range(25, 40):
        log.append(release(tick))
    assert b'"tick":5' in found.replace(b" ", b"")
    with pytest.raises(Overtaken):
        await anext(parts)


async def overtaken(view: PublicView, release: MakeRelease, version: str) -> str:
    """What a client over a real socket sees that reads too late: how its connection ends, and with what."""
    log = long_log(release, keep=TICKS)
    server = PageServer(replace(view, log=log))
    await server.start(port=0)
    try:
        port = int(server.url.rstrip("/").rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(ASKED.replace(b"HTTP/1.1", version.encode()))
        found = await reader.readexactly(1000)
        assert b" 200 OK" in found
        for tick in range(TICKS, 2 * TICKS):
            log.append(release(tick))
        async with asyncio.timeout(60):
            try:
                while part := await reader.read(1 << 20):
                    found += part
            except ConnectionResetError:
                return "reset"
        writer.close()
        return "closed, with an end" if found.endswith(b"0\r\n\r\n") else "closed"
    finally:
        await server.stop()


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
async def test_an_answer_that_was_overtaken_is_reset_and_nothing_is_logged(
    view: PublicView, release: MakeRelease, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without chunks (HTTP/1.0) a body ends with its connection: only a reset tells it from a whole one."""
    assert await overtaken(view, release, version) == "reset"
    assert caplog.records == []


async def test_a_library_says_that_the_answer_is_not_whole(
    view: PublicView, release: MakeRelease
) -> None:
    log = long_log(release, keep=TICKS)
    server = PageServer(replace(view, log=log))
    await server.start(port=0)
    try:
        path = f"{server.url}api/series/total"
        async with httpx.AsyncClient() as client, client.stream("GET", path) as answer:
            assert answer.status_code == 200
            for tick in range(TICKS, 2 * TICKS):
                log.append(release(tick))
            with pytest.raises(httpx.TransportError):
                await answer.aread()
    finally:
        await server.stop()


@pytest.mark.parametrize(
    ("version", "seen"), [("HTTP/1.1", "closed, with an end"), ("HTTP/1.0", "closed")]
)
async def test_an_end_in_the_middle_is_caught(
    view: PublicView,
    release: MakeRelease,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    seen: str,
) -> None:
    """Half of a JSON document in a whole answer: a client that stores it has no reason to ask again."""

    async def ending(*asked: Any) -> AsyncIterator[bytes]:
        with suppress(Overtaken):
            async for part in history(*asked):
                yield part

    monkeypatch.setattr(routes, "history", ending)
    assert await overtaken(view, release, version) == seen


async def read(port: int) -> int:
    """How many bytes come, of which none is kept."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(ASKED)
    found = 0
    async with asyncio.timeout(120):
        while part := await reader.read(1 << 16):
            found += len(part)
    writer.close()
    return found


async def most_memory(view: PublicView, clients: int) -> int:
    """The most bytes that a server and its clients take beside the log."""
    server = PageServer(view)
    await server.start(port=0)
    port = int(server.url.rstrip("/").rpartition(":")[2])
    await read(port)
    tracemalloc.start()
    try:
        size = len(joined(view.log))
        tracemalloc.reset_peak()
        assert min(await asyncio.gather(*(read(port) for _ in range(clients)))) > size
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        await server.stop()


async def test_a_history_takes_a_part_of_memory_for_each_reader(
    view: PublicView, release: MakeRelease
) -> None:
    log = long_log(release)
    most = await most_memory(replace(view, log=log), clients=3)
    assert most < LARGEST_SHARE * len(joined(log))


async def test_all_at_once_would_not(
    view: PublicView, release: MakeRelease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "in_one_part", lambda log, name, places: log.at(name, places))
    log = long_log(release)
    most = await most_memory(replace(view, log=log), clients=1)
    assert most > len(joined(log))


async def turns_of_an_answer(
    view: PublicView, release: MakeRelease, monkeypatch: pytest.MonkeyPatch
) -> int:
    taken = 0
    taking = Turns.take

    async def counted(self: Turns, wanted: Callable[[], bool]) -> object:
        nonlocal taken
        taken += 1
        return await taking(self, wanted)

    monkeypatch.setattr(Turns, "take", counted)
    await most_memory(replace(view, log=long_log(release, 100)), clients=1)
    return taken


async def test_each_part_has_its_turn(
    view: PublicView, release: MakeRelease, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many readers of histories leave the loop to the engine, as so many requests do (`test_turns.py`)."""
    parts = 100 * WIDE // LARGEST_PART
    assert await turns_of_an_answer(view, release, monkeypatch) > 2 * parts


async def test_without_turns_for_parts_it_would_not(
    view: PublicView, release: MakeRelease, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(self: BoundedProtocol, message: object, send: Callable[..., object]) -> None:
        await send(message)  # type: ignore[misc]

    monkeypatch.setattr(BoundedProtocol, "_part_in_turn", at_once)
    assert await turns_of_an_answer(view, release, monkeypatch) == 2
