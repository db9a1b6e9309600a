"""The server: its port, its end, the caller's signals, and the missing extra. Real sockets on
loopback."""

import asyncio
import signal
import sys
from collections.abc import Callable

import httpx
import pytest
from free_ports import free_port

from stream_dp.errors import UsageError, WorldError
from stream_dp.journal.commit import Release
from stream_dp.server.server import PageServer
from stream_dp.server.view import PublicView, ReleaseLog

MakeRelease = Callable[..., Release]


def port_of(server: PageServer) -> int:
    """Where it listens."""
    return int(server.url.rstrip("/").rpartition(":")[2])


async def test_a_taken_port_means_the_next_one_and_a_freed_one_is_free(view: PublicView) -> None:
    first, second = PageServer(view), PageServer(view)
    await first.start(port=free_port())
    taken = port_of(first)
    await second.start(port=taken)
    assert port_of(second) > taken
    await first.stop()
    again = PageServer(view)
    await again.start(port=taken)
    assert port_of(again) == taken
    await again.stop()
    await second.stop()


async def test_it_streams_and_resumes_over_a_socket(
    view: PublicView, log: ReleaseLog, release: MakeRelease
) -> None:
    server = PageServer(view)
    await server.start(port=0)
    async with httpx.AsyncClient(base_url=server.url, timeout=100) as client:
        headers = {"Last-Event-ID": "3"}
        async with client.stream("GET", "/api/stream?after=0", headers=headers) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            log.append(release(6))
            names: list[str] = []
            async for line in answer.aiter_lines():
                names += [line.removeprefix("id: ")] if line.startswith("id: ") else []
                if names and names[-1] == "6":
                    break
    await server.stop()
    assert names == ["4", "5", "6"]


async def test_stop_is_quick_with_open_streams_and_a_client_that_does_not_read(
    view: PublicView, log: ReleaseLog, release: MakeRelease
) -> None:
    server = PageServer(view)
    await server.start(port=0)
    for sequence in range(6, 6_000):
        log.append(release(sequence, value=1, padding="x" * 4_000))  # 24 MB: no buffer takes them
    writers = []
    for after in (-1, 5_999):
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server), limit=1024)
        writer.write(b"GET /api/stream?after=%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % after)
        await reader.readline()
        writers.append(writer)
    await asyncio.sleep(0.1)

    async with asyncio.timeout(60):  # a server that waits for its clients waits for ever
        await server.stop()
        await server.stop()

    for writer in writers:
        writer.transport.abort()


async def test_signals_stay_the_callers(view: PublicView) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    server = PageServer(view)
    await server.start(port=0)
    async with httpx.AsyncClient(timeout=100) as client:
        assert (await client.get(f"{server.url}healthz")).status_code == 200
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    await server.stop()


async def test_only_known_names_reach_it(view: PublicView) -> None:
    server = PageServer(view, allowed_hosts=frozenset({"stats.example"}))
    await server.start(port=0)
    async with httpx.AsyncClient(base_url=server.url, timeout=100) as client:
        for host, status in (("stats.example", 200), ("localhost:1", 200), ("other.example", 421)):
            answer = await client.get("/healthz", headers={"Host": host})
            assert answer.status_code == status, host
    await server.stop()


@pytest.mark.parametrize("host", ["no.such.host.invalid", "192.0.2.1"])
async def test_an_address_that_is_not_ours_is_the_worlds_fault(view: PublicView, host: str) -> None:
    with pytest.raises(WorldError, match="cannot be served"):
        await PageServer(view).start(host=host)


async def test_order_of_use(view: PublicView) -> None:
    server = PageServer(view)
    with pytest.raises(UsageError, match="not started"):
        _ = server.url
    await server.start(port=0)
    with pytest.raises(UsageError, match="before"):
        await server.start(port=0)
    await server.stop()


@pytest.mark.parametrize("missing", ["uvicorn", "fastapi.sse"])
def test_the_missing_extra_is_named(
    view: PublicView, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UsageError, match=r"pip install 'stream_dp\[serve\]'"):
        PageServer(view)
