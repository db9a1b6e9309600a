"""A file of JSON lines as a sink: once, in order, whole after a crash."""

# ruff: noqa: ASYNC240 - tests look at files while nothing else wants the loop

import errno
import os
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockBuster, blockbuster_ctx

from stream_dp.engine.ports import Sink
from stream_dp.errors import FailClosed, WorldError
from stream_dp.files.files import FileSink
from stream_dp.journal.commit import Release
from stream_dp.testing.port_checks import check_sink, check_sink_versions, sample_releases

BODIES = [release.body for release in sample_releases(0, 5)]


@pytest.fixture(autouse=True)
def blockbuster() -> Iterator[BlockBuster]:
    with blockbuster_ctx("stream_dp") as guard:
        yield guard


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "releases.jsonl"


async def _published(path: Path, releases: list[Release]) -> list[bytes]:
    sink = FileSink(path)
    await sink.open()
    try:
        await sink.publish(releases)
        return [body async for body in sink.read()]
    finally:
        await sink.close()


@pytest.mark.parametrize("check", [check_sink, check_sink_versions])
async def test_contract(
    path: Path, check: Callable[[Callable[[], Sink]], Coroutine[Any, Any, None]]
) -> None:
    await check(lambda: FileSink(path))


@pytest.mark.parametrize("cut", range(1, len(BODIES[2]) + 1))
async def test_a_torn_line_is_written_again(path: Path, cut: int) -> None:
    path.write_bytes(BODIES[0] + b"\n" + BODIES[1] + b"\n" + BODIES[2][:cut])
    assert await _published(path, sample_releases(1, 5)) == BODIES
    assert path.read_bytes() == b"".join(body + b"\n" for body in BODIES)


async def test_a_torn_first_line_is_written_again(path: Path) -> None:
    path.write_bytes(BODIES[0][:3])
    assert await _published(path, sample_releases(0, 5)) == BODIES


async def test_a_full_disk_can_be_tried_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, room = os.pwrite, [100, 7]

    def pwrite(descriptor: int, data: bytes, position: int) -> int:
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data[: room.pop()], position)

    sink = FileSink(path)
    await sink.open()
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", pwrite)
        with pytest.raises(WorldError, match="No space left"):
            await sink.publish(sample_releases(0, 3))
    assert await sink.last() is None
    await sink.publish(sample_releases(0, 5))
    assert [body async for body in sink.read()] == BODIES
    await sink.close()
    assert path.read_bytes().count(b"\n") == 5


async def test_a_long_file_reads_whole(path: Path) -> None:
    releases = [
        Release(n, "x", n, b'{"sequence":%d,"pad":"%s"}' % (n, b"p" * 9000)) for n in range(500)
    ]
    assert await _published(path, releases) == [release.body for release in releases]


async def test_a_file_that_was_cut_is_noticed(path: Path) -> None:
    sink = FileSink(path)
    await sink.open()
    await sink.publish(sample_releases(0, 5))
    os.truncate(path, 20)
    with pytest.raises(FailClosed, match="was cut"):
        _ = [body async for body in sink.read()]
    await sink.close()


async def test_a_foreign_file_is_not_appended_to(path: Path) -> None:
    path.write_text("hello\n")
    with pytest.raises(FailClosed, match="no release"):
        await _published(path, sample_releases(0, 1))
    assert path.read_text() == "hello\n"


async def test_a_missing_folder(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "no" / "releases.jsonl")
    with pytest.raises(WorldError, match=r"releases\.jsonl"):
        await sink.open()
    await sink.close()


async def test_closed_sinks(path: Path) -> None:
    sink = FileSink(path)
    with pytest.raises(WorldError, match="not open"):
        await sink.publish([])
    await sink.close()
    await sink.open()
    await sink.close()
    await sink.close()
