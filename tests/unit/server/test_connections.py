"""Deadlines and places of connections: who is dropped, when, and who is not. Real sockets on loopback."""

import asyncio
import resource
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from stream_dp.journal.commit import Release
from stream_dp.server.connections import MOST, Connections, Limits, _foreign
from stream_dp.server.server import _ACCEPTED_AT_ONCE, PageServer
from stream_dp.server.view import PublicView, ReleaseLog

MakeRelease = Callable[..., Release]
QUICK = Limits(request_seconds=0.3, stall_seconds=0.3)
NEVER = 1000.0
BYTES_PER_SECOND = 3e7  # of a client that reads: all of it takes longer than a client may stall
ASKED = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
POSTED = b"POST /api/queries HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def served(view: PublicView, limits: Limits) -> AsyncIterator[Callable[..., object]]:
    """A server; what is yielded connects to it and says something."""
    server, writers = PageServer(view, limits=limits), []
    await server.start(port=0)
    port = int(server.url.rstrip("/").rpartition(":")[2])

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
        await server.stop()


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
    """What comes until the server hangs up."""
    try:
        async with asyncio.timeout(60):
            return await reader.read()
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize(
    "said",
    [b"", ASKED[:20], ASKED[:-2], POSTED, POSTED + b"{"],
    ids=["nothing", "line", "head", "no body", "part of a body"],
)
async def test_a_request_that_does_not_come_whole_ends(view: PublicView, said: bytes) -> None:
    async with served(view, replace(QUICK, stall_seconds=NEVER)) as connect:
        reader, _ = await connect(said)  # type: ignore[misc]
        assert b" 200 " not in await left(reader)


async def test_a_body_of_two_lengths_is_refused_and_nothing_behind_it_is_read(
    view: PublicView,
) -> None:
    """A proxy that goes by the other length would take the rest for the next client's request."""
    two = b"POST /api/queries HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n"
    chunked = b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    async with served(view, replace(QUICK, stall_seconds=NEVER)) as connect:
        for host in (b"localhost", b"evil.example"):
            asked = two.replace(b"localhost", host) + chunked + ASKED
            with standing_still():
                reader, _ = await connect(asked)  # type: ignore[misc]
                said = await left(reader)
            assert said.startswith(b"HTTP/1.1 400")
            assert said.count(b"HTTP/1.1 ") == 1
        one = two.replace(b"Content-Length: 4\r\n", b"")
        with standing_still():
            reader, _ = await connect(one + chunked + ASKED)  # type: ignore[misc]
            for _ in range(2):
                await reader.readuntil(b"HTTP/1.1 ")
        assert b"HTTP/1.1 " not in await left(reader)


async def test_dribbling_does_not_move_the_deadline(view: PublicView) -> None:
    async with served(view, replace(QUICK, stall_seconds=NEVER)) as connect:
        reader, writer = await connect(ASKED[:-2])  # type: ignore[misc]
        ended = asyncio.create_task(left(reader))
        async with asyncio.timeout(60):
            while not ended.done():
                writer.write(b"X-More: 1\r\n")
                await asyncio.sleep(0.02)
        assert ended.result() == b""


async def test_neither_does_a_second_request_on_the_same_connection(view: PublicView) -> None:
    async with served(view, replace(QUICK, stall_seconds=NEVER)) as connect:
        with standing_still():
            reader, writer = await connect(ASKED)  # type: ignore[misc]
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        writer.write(ASKED[:-2])
        assert b" 200 " not in await left(reader)


async def test_a_whole_request_has_all_the_time_for_its_answer(
    view: PublicView, log: ReleaseLog, release: MakeRelease
) -> None:
    """A stream is an answer that does not end: it outlives the deadlines by far."""
    over = asyncio.Event()
    async with served(view, QUICK) as connect:
        with standing_still() as passes:
            reader, _ = await connect(b"GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")  # type: ignore[misc]
            await reader.readuntil(b"head")
            asyncio.get_running_loop().call_later(5, over.set)
            passes(5)
            await over.wait()  # timers go by their time: what was due before is done
        log.append(release(6))
        async with asyncio.timeout(60):
            assert b"id: 6" in await reader.readuntil(b"id: 6")


async def test_who_reads_nothing_is_dropped_and_who_reads_is_not(
    view: PublicView, log: ReleaseLog, release: MakeRelease
) -> None:
    for sequence in range(6, 6_000):
        log.append(release(sequence, value=1, padding="x" * 4_000))  # 24 MB: no buffer takes them
    asked = b"GET /api/stream?after=-1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with served(view, QUICK) as connect:
        with standing_still() as passes:
            deaf, reading = await connect(asked), await connect(asked)  # type: ignore[misc]
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
        stream, _ = await connect(streaming)  # type: ignore[misc]
        await stream.readuntil(b"head")
        oldest, _ = await connect()  # type: ignore[misc]
        await connect(ASKED[:5])  # type: ignore[misc]
        for _ in range(3):
            honest, writer = await connect(ASKED)  # type: ignore[misc]
            assert b" 200 " in await honest.readuntil(b"\r\n\r\n")
            writer.close()
        assert await left(oldest) == b""
        for _ in range(3):
            reader, _ = await connect(streaming)  # type: ignore[misc]
            await reader.readuntil(b"head")  # before, it is one that is still sending its request
        assert b"id:" not in await left(stream)


class Fake:
    """What a place is given to."""

    def __init__(self, peer: str | None, *, asking: bool = True) -> None:
        self.peer, self.asking, self.gone = peer, asking, False
        self.transport = self

    def abort(self) -> None:
        """Be dropped."""
        self.gone = True


def test_one_address_takes_its_share_and_no_more() -> None:
    room = Connections(Limits(connections=10, of_a_peer=2))
    mine, others = (
        [Fake("192.0.2.1") for _ in range(5)],
        [Fake("192.0.2.2"), Fake(None), Fake(None)],
    )
    for one in (*others, *mine):
        room.admit(one)  # type: ignore[arg-type]
    assert [one.gone for one in mine] == [True, True, True, False, False]
    assert not any(one.gone for one in others)
    assert len(room) == 5
    room.leave(mine[0])  # type: ignore[arg-type]
    assert len(room) == 5


@pytest.mark.parametrize(
    ("client", "peer"),
    [("127.0.0.1", None), ("::1", None), ("192.0.2.1", "192.0.2.1"), ("fe80::1%eth0", "fe80::1%eth0"), ("x", "x")],
)  # fmt: skip
def test_this_machine_is_no_peer(client: str, peer: str | None) -> None:
    assert _foreign((client, 1)) == peer
    assert _foreign(None) is None


@pytest.mark.parametrize(
    ("soft", "most", "of_a_peer"), [(1024, 448, 112), (256, 64, 16), (64, 8, 4), (-1, MOST, MOST // 4)]
)  # fmt: skip
def test_the_engine_keeps_its_files(
    monkeypatch: pytest.MonkeyPatch, soft: int, most: int, of_a_peer: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    limits = Limits.of_process()
    assert (limits.connections, limits.of_a_peer) == (most, of_a_peer)


async def test_a_process_without_files_says_so_once(view: PublicView) -> None:
    loop, said = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _, context: said.append(context))
    server = PageServer(view)
    await server.start(port=0)
    for _ in range(3):
        loop.call_exception_handler({"message": "socket.accept() out of system resource"})
        loop.call_exception_handler({"message": "another"})
    await server.stop()
    another = {"message": "another"}
    assert said == [
        {"message": "no file is left for another connection"},
        another,
        another,
        another,
    ]
    loop.set_exception_handler(None)


async def test_health_answers_whatever_readers_hold(
    view: PublicView, log: ReleaseLog, release: MakeRelease
) -> None:
    """All places are streams that nobody reads, and the next turn never comes: the loop's clock stands still."""
    for sequence in range(6, 600):
        log.append(release(sequence, value=1, padding="x" * 4_000))

    def costly() -> Mapping[str, Any]:
        passes(1)  # its pause is as long, or longer
        return pipeline()

    pipeline, slow, over = view.pipeline, Limits(NEVER, NEVER, connections=8), threading.Event()
    streaming = b"GET /api/stream?after=-1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with served(replace(view, pipeline=costly), slow) as connect:
        with standing_still() as passes:
            for _ in range(9):
                _, writer = await connect(streaming)  # type: ignore[misc]
                writer.transport.pause_reading()
            plan = ASKED.replace(b"/healthz", b"/api/pipeline")
            waiting = [left((await connect(plan))[0]) for _ in range(2)]  # type: ignore[misc]
            stuck = asyncio.gather(*waiting)
            health, _ = await connect(ASKED)  # type: ignore[misc]
            answer = asyncio.create_task(health.readuntil(b"\r\n\r\n"))
            answer.add_done_callback(lambda _: over.set())
            await asyncio.to_thread(over.wait, 20)
            assert answer.done()
            assert b" 200 " in answer.result()
            assert not stuck.done()
        stuck.cancel()


def test_those_that_came_just_now_are_spared() -> None:
    """Many are accepted at once, before any of them can say what it wants."""
    room = Connections(Limits(connections=200, of_a_peer=200))
    old = [Fake(None, asking=False) for _ in range(200)]
    new = [Fake(None) for _ in range(2 * _ACCEPTED_AT_ONCE)]
    for one in (*old, *new):
        room.admit(one)  # type: ignore[arg-type]
    assert not any(one.gone for one in new)
    assert [one.gone for one in old] == [True] * len(new) + [False] * (200 - len(new))
