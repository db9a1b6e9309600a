"""Answers read into one buffer are those that a stream gives, however they are cut; and how connections end."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.kafka.source import batches as kafka_frames
from stream_dp.kafka.source.batches import Frames, buffered, hand_over


class Theirs:
    """The protocol before ours."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def eof_received(self) -> bool:
        self.told.append("eof")
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.told.append(exc)

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")


def give(frames: Frames, data: bytes, most: int) -> None:
    """Write as a transport does: into what the protocol offers, `most` bytes at a time."""
    while data:
        room = frames.get_buffer(-1)
        taken = min(len(room), most, len(data))
        assert taken
        room[:taken] = data[:taken]
        frames.buffer_updated(taken)
        data = data[taken:]


async def read(frames: Frames, sizes: list[int]) -> list[bytes]:
    return [bytes(await frames.readexactly(size)) for size in sizes]


SIZES = st.lists(st.sampled_from([0, 1, 4, 100, 70_000, 300_000, 2_500_000]), max_size=6)
CHUNKS = st.lists(st.integers(1, 800_000), min_size=1, max_size=5)


@settings(max_examples=40, deadline=None)
@given(SIZES, CHUNKS, st.integers(0, 3), st.sampled_from([4, 200_000, 8 * 2**20]))
def test_what_is_read_is_what_came(
    sizes: list[int], chunks: list[int], early: int, kept: int
) -> None:
    """Some of it before anybody waits; buffers of every age and size."""
    data = bytes(i * 31 % 251 for i in range(997)) * (sum(sizes) // 997 + 1)
    data = data[: sum(sizes)]

    async def run() -> list[bytes]:
        frames, at = Frames(Theirs()), 0  # type: ignore[arg-type]
        reading: asyncio.Task[list[bytes]] | None = None
        for turn in range(10**6):
            if turn == early:
                reading = asyncio.create_task(read(frames, sizes))
            if reading is not None:
                await asyncio.sleep(0)
            size = chunks[turn % len(chunks)]
            give(frames, data[at : at + size], 65_536)
            at += size
            if at >= len(data) and reading is not None:
                break
        assert reading is not None
        return await reading

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka_frames, "_KEPT", kept)
        found = asyncio.run(run())
    assert list(map(len, found)) == sizes
    assert b"".join(found) == data


async def test_a_connection_that_ends_or_breaks_says_so() -> None:
    theirs = Theirs()
    frames = Frames(theirs)  # type: ignore[arg-type]
    give(frames, b"abc", 2)
    waiting = asyncio.create_task(frames.readexactly(4))
    await asyncio.sleep(0)
    assert not frames.at_eof()
    assert frames.eof_received()
    with pytest.raises(asyncio.IncompleteReadError) as ended:
        await waiting
    assert ended.value.partial == b"abc"
    assert await frames.readexactly(3) == b"abc"
    assert frames.at_eof()
    broken = Frames(theirs)  # type: ignore[arg-type]
    waiting = asyncio.create_task(broken.readexactly(4))
    await asyncio.sleep(0)
    lost = ConnectionResetError()
    broken.connection_lost(lost)
    with pytest.raises(ConnectionResetError):
        await waiting
    broken.pause_writing()
    broken.resume_writing()
    assert theirs.told == ["eof", lost, "pause", "resume"]
    with pytest.raises(ValueError, match="less than zero"):
        await broken.readexactly(-1)


async def test_a_large_buffer_goes_with_its_answer_and_a_usual_one_stays() -> None:
    frames = Frames(Theirs())  # type: ignore[arg-type]
    for size, kept in ((4 * 2**20, True), (9 * 2**20, False)):
        reading = asyncio.create_task(frames.readexactly(size))
        await asyncio.sleep(0)
        give(frames, bytes(size), 2**20)
        await reading
        assert (len(frames._buffer) >= size) == kept
    assert len(frames._buffer) == kafka_frames._ROOM


@pytest.mark.parametrize("busy", ["requests", "bytes", "ended", "closing", "another inside"])
async def test_a_connection_in_use_or_of_another_make_stays_as_it_is(busy: str) -> None:
    reader = asyncio.StreamReader()
    if busy == "bytes":
        reader.feed_data(b"x")
    if busy == "ended":
        reader.feed_eof()
    transport = SimpleNamespace(is_closing=lambda: busy == "closing")
    connection = SimpleNamespace(
        _reader=reader, _protocol=Theirs(), _writer=SimpleNamespace(transport=transport),
        _read_task=None, _requests=[1] if busy == "requests" else [], _create_reader_task=None,
    )  # fmt: skip
    if busy == "another inside":
        del connection._create_reader_task
    hand_over(connection)
    assert connection._reader is reader
    buffered(SimpleNamespace())  # a client of another make
