"""The server: its port and end, deadlines, places and turns of connections. Real sockets on loopback."""

import asyncio
import resource
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import httpx
import pytest
from free_ports import free_port
from unit.server.conftest import listening, port_of

from stream_dp.errors import UsageError, WorldError
from stream_dp.journal.commit import Release
from stream_dp.server.access import Access
from stream_dp.server.broadcast import SHARE, Turns
from stream_dp.server.connections import MOST, BoundedProtocol, Connections, Limits, _foreign
from stream_dp.server.server import _ACCEPTED_AT_ONCE, PageServer, listening_at
from stream_dp.server.view import PublicView, ReleaseLog

MakeRelease = Callable[..., Release]
QUICK = Limits(request_seconds=0.3, stall_seconds=0.3)
NEVER = 1000.0
SLOWLY = replace(QUICK, stall_seconds=NEVER)
BYTES_PER_SECOND = 3e7  # of a client that reads: all of it takes longer than a client may stall
ASKED = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
POSTED = b"POST /api/queries HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def served(view: PublicView, limits: Limits) -> AsyncIterator[Callable[..., Any]]:
    writers = []
    async with listening(view, limits=limits) as port:

        async def connect(said: bytes = b"") -> Streams:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writers.append(writer)
            writer.write(said)
            return reader, writer

        try:
            yield connect
        finally:
            for writer in writers:
                writer.transport.abort()


@contextmanager
def standing_still() -> Iterator[Callable[[float], None]]:
    """The loop's clock stands still, so no deadline passes on a slow machine; what is yielded lets seconds pass."""
    loop = asyncio.get_running_loop()
    real, now = loop.time, loop.time()

    def passes(seconds: float) -> None:
        nonlocal now
        now += seconds

    loop.time = lambda: now  # type: ignore[method-assign]
    try:
        yield passes
    finally:
        loop.time = real  # type: ignore[method-assign]


async def left(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(60):
            return await reader.read()
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize(
    "said", [b"", ASKED[:-2], POSTED + b"{"], ids=["nothing", "head", "part of a body"]
)
async def test_a_request_that_does_not_come_whole_ends(view: PublicView, said: bytes) -> None:
    async with served(view, SLOWLY) as connect:
        reader, _ = await connect(said)
        assert b" 200 " not in await left(reader)


async def test_a_body_of_two_lengths_is_refused_and_nothing_behind_it_is_read(
    view: PublicView,
) -> None:
    """A proxy that goes by the other length would take the rest for the next client's request."""
    two = b"POST /api/queries HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n"
    chunked = b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    async with served(view, SLOWLY) as connect:
        for host in (b"localhost", b"evil.example"):
            asked = two.replace(b"localhost", host) + chunked + ASKED
            with standing_still():
                reader, _ = await connect(asked)
                said = await left(reader)
            assert said.startswith(b"HTTP/1.1 400")
            assert said.count(b"HTTP/1.1 ") == 1
        one = two.replace(b"Content-Length: 4\r\n", b"")
        with standing_still():
            reader, _ = await connect(one + chunked + ASKED)
            for _ in range(2):
                await reader.readuntil(b"HTTP/1.1 ")
        assert b"HTTP/1.1 " not in await left(reader)


async def test_dribbling_does_not_move_the_deadline(view: PublicView) -> None:
    async with served(view, SLOWLY) as connect:
        reader, writer = await connect(ASKED[:-2])
        ended = asyncio.create_task(left(reader))
        async with asyncio.timeout(60):
            while not ended.done():
                writer.write(b"X-More: 1\r\n")
                await asyncio.sleep(0.02)
        assert ended.result() == b""


async def test_who_reads_nothing_is_dropped_and_who_reads_is_not(
    view: PublicView, log: ReleaseLog, release: MakeRelease
) -> None:
    for sequence in range(6, 6_000):
        log.append(release(sequence, value=1, padding="x" * 4_000))  # 24 MB: no buffer takes them
    asked = b"GET /api/stream?after=-1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with served(view, QUICK) as connect:
        with standing_still() as passes:
            deaf, reading = await connect(asked), await connect(asked)
            deaf[1].transport.pause_reading()
            await reading[0].readuntil(b"id: 6\n")
            found = b""
            while b"id: 5999\n" not in found:
                part = await reading[0].read(1 << 16)
                assert part
                found = found[-20:] + part
                passes(len(part) / BYTES_PER_SECOND)
                await asyncio.sleep(0)
        deaf[1].transport.resume_reading()
        assert b"id: 5999\n" not in await left(deaf[0])


async def test_a_new_connection_finds_a_place(view: PublicView) -> None:
    """The oldest that is still sending its request goes, and an answer under way only where there is none."""
    slow = Limits(request_seconds=NEVER, stall_seconds=NEVER, connections=3)
    streaming = b"GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with served(view, slow) as connect:
        stream, _ = await connect(streaming)
        await stream.readuntil(b"head")
        oldest, _ = await connect()
        await connect(ASKED[:5])
        for _ in range(3):
            honest, writer = await connect(ASKED)
            assert b" 200 " in await honest.readuntil(b"\r\n\r\n")
            writer.close()
        assert await left(oldest) == b""
        for _ in range(3):
            reader, _ = await connect(streaming)
            await reader.readuntil(b"head")  # before, it is one that is still sending its request
        assert b"id:" not in await left(stream)


@pytest.mark.parametrize(
    ("soft", "most", "of_a_peer"), [(1024, 448, 112), (64, 8, 4), (-1, MOST, MOST // 4)]
)  # fmt: skip
def test_the_engine_keeps_its_files(
    monkeypatch: pytest.MonkeyPatch, soft: int, most: int, of_a_peer: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    limits = Limits.of_process()
    assert (limits.connections, limits.of_a_peer) == (most, of_a_peer)


async def test_health_answers_whatever_readers_hold(
    view: PublicView, log: ReleaseLog, release: MakeRelease
) -> None:
    """All places are streams that nobody reads, and the next turn never comes: the loop's clock stands still."""
    for sequence in range(6, 600):
        log.append(release(sequence, value=1, padding="x" * 4_000))

    def costly() -> Mapping[str, Any]:
        passes(0.1)  # its pause is as long, or longer
        return pipeline()

    pipeline, slow, over = view.pipeline, Limits(NEVER, NEVER, connections=8), threading.Event()
    streaming = b"GET /api/stream?after=-1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with served(replace(view, pipeline=costly), slow) as connect:
        with standing_still() as passes:
            for _ in range(9):
                _, writer = await connect(streaming)
                writer.transport.pause_reading()
            plan = ASKED.replace(b"/healthz", b"/api/pipeline")
            waiting = [left((await connect(plan))[0]) for _ in range(2)]
            stuck = asyncio.gather(*waiting)
            health, _ = await connect(ASKED)
            answer = asyncio.create_task(health.readuntil(b"\r\n\r\n"))
            answer.add_done_callback(lambda _: over.set())
            await asyncio.to_thread(over.wait, 20)
            assert answer.done()
            assert b" 200 " in answer.result()
            assert not stuck.done()
        stuck.cancel()


class Fake:
    """What a place is given to."""

    def __init__(self, peer: str | None, *, asking: bool = True) -> None:
        self.peer, self.asking, self.gone = peer, asking, False
        self.transport = self

    def abort(self) -> None:
        self.gone = True


def test_one_address_takes_its_share_and_no_more() -> None:
    room: Any = Connections(Limits(connections=10, of_a_peer=2))
    mine = [Fake("192.0.2.1") for _ in range(5)]
    others = [Fake("192.0.2.2"), Fake(None), Fake(None)]
    for one in (*others, *mine):
        room.admit(one)
    assert [one.gone for one in mine] == [True, True, True, False, False]
    assert not any(one.gone for one in others)
    assert len(room) == 5
    room.leave(mine[0])
    assert len(room) == 5
    hosts = ("127.0.0.1", "::1", "192.0.2.1")
    assert [_foreign((host, 1)) for host in hosts] == [None, None, "192.0.2.1"]


def test_those_that_came_just_now_are_spared() -> None:
    """Many are accepted at once, before any of them can say what it wants."""
    room: Any = Connections(Limits(connections=200, of_a_peer=200))
    old = [Fake(None, asking=False) for _ in range(200)]
    new = [Fake(None) for _ in range(2 * _ACCEPTED_AT_ONCE)]
    for one in (*old, *new):
        room.admit(one)
    assert not any(one.gone for one in new)
    assert [one.gone for one in old] == [True] * len(new) + [False] * (200 - len(new))


async def test_an_answer_does_not_wait_until_the_reader_says_that_it_has_the_first_half() -> None:
    """Nagle's algorithm held each answer, of headers and a body, back for 40 ms."""
    off = asyncio.get_running_loop().create_future()

    async def seen(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket")
        off.set_result(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    listener = listening_at(socket.AF_INET, ("127.0.0.1", 0))
    async with await asyncio.start_server(seen, sock=listener):
        _, writer = await asyncio.open_connection(*listener.getsockname())
        assert await off
        writer.close()
        await writer.wait_closed()


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
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    async with (
        listening(view, access=Access(names=frozenset({"stats.example"}))) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=100) as client,
    ):
        for host, status in (("stats.example", 200), ("localhost:1", 200), ("other.example", 421)):
            told = await client.get("/healthz", headers={"Host": host})
            assert told.status_code == status, host
        headers = {"Last-Event-ID": "3"}
        async with client.stream("GET", "/api/stream?after=0", headers=headers) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            log.append(release(6))
            names: list[str] = []
            async for line in answer.aiter_lines():
                names += [line.removeprefix("id: ")] if line.startswith("id: ") else []
                if names and names[-1] == "6":
                    break
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
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


@pytest.mark.parametrize("host", ["no.such.host.invalid", "192.0.2.1"])
async def test_an_address_that_is_not_ours_is_the_worlds_fault(view: PublicView, host: str) -> None:
    with pytest.raises(WorldError, match="cannot be served"):
        await PageServer(view).start(host=host)


@pytest.mark.parametrize("missing", ["uvicorn", "fastapi.sse"])
def test_the_missing_extra_is_named(
    view: PublicView, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UsageError, match=r"pip install 'stream_dp\[serve\]'"):
        PageServer(view)


BURNT_S = 0.004
LONGEST_S = 1.0
EARLY_S = 0.002  # the loop's clock may be read a moment before a turn begins


class Span(NamedTuple):
    """When a piece of work began and ended, by the loop's clock."""

    began: float
    ended: float


def burn(seconds: float) -> Span:
    now = asyncio.get_running_loop().time
    began = now()
    while now() < began + seconds:
        pass
    return Span(began, now())


def owed(spans: list[Span]) -> list[float]:
    """By how much each pause falls short of what the work before it took; above EARLY_S is too short.

    No pause is longer than LONGEST_S, which a machine that stands still for a moment would call for.
    """
    pauses = ((two.began - one.ended, one.ended - one.began) for one, two in pairwise(spans))
    return [min(took * (1 / SHARE - 1), LONGEST_S) - pause for pause, took in pauses]


async def flood(port: int, clients: int, requests: int) -> None:
    """Ask so often over so many connections, all at once and without waiting for answers."""

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(ASKED * requests)
        for _ in range(requests):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            await reader.readuntil(b"}")
        writer.close()

    await asyncio.gather(*(one() for _ in range(clients)))


async def spans_of_a_flood(view: PublicView) -> list[Span]:
    """The work of requests that cost some milliseconds each, from clients who do not wait."""
    spans: list[Span] = []

    def catching_up() -> bool:
        spans.append(burn(BURNT_S))
        return False

    async with listening(replace(view, catching_up=catching_up)) as port:
        await flood(port, clients=5, requests=6)
    return spans


@pytest.mark.parametrize("in_turn", [True, False])
async def test_a_flood_of_requests_leaves_the_loop_to_the_engine(
    view: PublicView, monkeypatch: pytest.MonkeyPatch, in_turn: bool
) -> None:
    async def at_once(self: BoundedProtocol, *asked: object) -> None:
        await self._answer(*asked)

    if not in_turn:
        monkeypatch.setattr(BoundedProtocol, "_in_turn", at_once)
    spans = await spans_of_a_flood(view)
    assert len(spans) == 30
    assert (max(owed(spans)) < EARLY_S) == in_turn


async def test_turns_are_taken_in_order_one_at_a_time() -> None:
    turns, order = Turns(), []

    async def one(number: int) -> None:
        turn = await turns.take(lambda: True)
        assert turn is not None
        order.append(number)
        await asyncio.sleep(0)
        order.append(number)
        turn.end()
        turn.end()

    await asyncio.gather(*map(one, range(5)))
    assert order == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
