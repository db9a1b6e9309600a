"""Unpacking against the codecs themselves, at the limit and beyond it, and of junk."""

import gzip
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache

import cramjam
import pytest
from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.kafka.source.unpacker import (
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    DamagedError,
    TooLargeError,
    inflate,
)

MIB = 2**20
JUNK = b"\xde\xad\xbe\xef\xde\xad\xbe\xef"
PACK: dict[int, Callable[[bytes], bytes]] = {
    GZIP: gzip_encode,
    SNAPPY: snappy_encode,
    LZ4: lz4_encode,
    ZSTD: zstd_encode,
}
CODECS = sorted(PACK)


def packed(codec: int, data: bytes) -> bytes:
    return bytes(PACK[codec](data))


@given(st.sampled_from(CODECS), st.binary(max_size=2_000), st.integers(1, 40))
def test_what_the_client_library_packs_is_unpacked(codec: int, data: bytes, times: int) -> None:
    data *= times
    assert inflate(codec, memoryview(packed(codec, data)), len(data)) == data


@cache
def filled(how: str, size: int) -> bytes:
    """So many bytes, which shrink well or not at all."""
    if how == "random":
        return b"".join(zlib.crc32(b"%d" % n).to_bytes(4) for n in range(size // 4 + 1))[:size]
    fill = b"\0" if how == "zeros" else b"0123456789abcdef"
    return (fill * (size // len(fill) + 1))[:size]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [1, 65_535, 65_536, 65_537, 300_000])
@pytest.mark.parametrize("fill", ["zeros", "digits", "random"])
def test_the_limit_is_exact(codec: int, size: int, fill: str) -> None:
    data = filled(fill, size)
    raw = packed(codec, data)
    for limit in (size, size + 1):
        assert inflate(codec, raw, limit) == data
    with pytest.raises(TooLargeError):
        inflate(codec, raw, size - 1)


def bomb(codec: int, megabytes: int) -> bytes:
    if codec == GZIP:
        return gzip.compress(bytes(megabytes * MIB))
    if codec == SNAPPY:
        return bytes(cramjam.snappy.compress_raw(bytes(megabytes * MIB)))
    return packed(codec, bytes(megabytes * MIB))


GROWTH = """
import resource, sys
sys.path[:0] = {path!r}
from contextlib import suppress
from stream_dp.kafka.source.unpacker import DamagedError, TooLargeError, inflate, _codecs
_codecs()
packed = bytes.fromhex(sys.stdin.read())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with suppress({suppressed}):
    inflate({codec}, packed, 16 * 2**20)
    {behind}
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def growth(codec: int, raw: bytes, suppressed: str, behind: str = "pass") -> int:
    """The MiB that unpacking adds to a process of its own: the codecs allocate by themselves."""
    script = GROWTH.format(path=sys.path, codec=codec, suppressed=suppressed, behind=behind)
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, input=raw.hex().encode(), capture_output=True, check=True)
    return int(done.stdout)


MOST_MIB = 48  # sixteen, what a codec looks back upon, and slices of the input


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_within_little_memory(codec: int) -> None:
    refused = "raise SystemExit('it was unpacked')"
    assert growth(codec, bomb(codec, 200), "TooLargeError", refused) <= MOST_MIB


@pytest.mark.parametrize("exponent", [21, 27, 31])
def test_a_zstd_frame_that_asks_for_a_huge_window_gets_none(exponent: int) -> None:
    # a header may ask for terabytes to look back upon; a frame of nothing is enough
    frame = b"\x28\xb5\x2f\xfd\x00" + bytes([exponent << 3]) + b"\x01\x00\x00"
    assert growth(ZSTD, frame, "TooLargeError, DamagedError") <= MOST_MIB


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("limit", [0, 1, 100])
def test_nothing_is_unpacked_to_nothing(codec: int, limit: int) -> None:
    assert inflate(codec, packed(codec, b""), limit) == b""


@pytest.mark.parametrize("behind", [JUNK, bytes(512), b"\x04"])
def test_bytes_behind_the_last_frame_are_ignored_or_damage(behind: bytes) -> None:
    for codec in (GZIP, LZ4):
        assert inflate(codec, packed(codec, b"records") + behind, 7) == b"records"
    for codec in (SNAPPY, ZSTD):
        with pytest.raises(DamagedError):
            inflate(codec, packed(codec, b"records") + behind, 1000)


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_frames_follow_each_other_within_one_limit(codec: int) -> None:
    one, two = b"first " * 100, b"second " * 100
    raw = packed(codec, one) + packed(codec, b"") + packed(codec, two)
    assert inflate(codec, raw, len(one + two)) == one + two
    with pytest.raises(TooLargeError):
        inflate(codec, raw, len(one + two) - 1)


def test_a_thousand_empty_frames_are_damage_at_once() -> None:
    with pytest.raises(DamagedError):
        inflate(GZIP, gzip.compress(b"") * 1_000, 100)
    assert inflate(GZIP, gzip.compress(b"a") * 64, 100) == b"a" * 64
    with pytest.raises(DamagedError):
        inflate(GZIP, gzip.compress(b"a") * 65, 100)


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_cut_is_damage(codec: int) -> None:
    raw = packed(codec, b"0123456789" * 1_000)
    for end in range(len(raw)):
        if codec == SNAPPY and 8 <= end <= 16:
            continue  # a framing without a block holds nothing
        with pytest.raises(DamagedError):
            inflate(codec, raw[:end], MIB)


def xerial(*blocks: bytes) -> bytes:
    framing = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    shrunk = [bytes(cramjam.snappy.compress_raw(one)) for one in blocks]
    return framing + b"".join(struct.pack(">i", len(one)) + one for one in shrunk)


def test_snappy_comes_as_one_block_or_in_the_framing_of_java() -> None:
    assert inflate(SNAPPY, bytes(cramjam.snappy.compress_raw(b"raw")), 3) == b"raw"
    assert inflate(SNAPPY, xerial(b"one", b"", b"three"), 8) == b"onethree"
    with pytest.raises(TooLargeError):
        inflate(SNAPPY, xerial(b"one", b"", b"three"), 7)
    for size in (-1, 10**6):
        with pytest.raises(DamagedError):
            inflate(SNAPPY, xerial() + struct.pack(">i", size) + b"x", 100)


def test_a_snappy_length_that_is_a_lie_is_refused_unread() -> None:
    with pytest.raises(TooLargeError):
        inflate(SNAPPY, b"\xff\xff\xff\xff\x0f" + b"x" * 20, 16 * MIB)


@pytest.mark.parametrize("codec", [-1, 0, 5])
def test_other_codecs_are_not_known(codec: int) -> None:
    with pytest.raises(DamagedError):
        inflate(codec, b"x", 100)


@given(st.sampled_from(CODECS), st.binary(max_size=300), st.integers(0, 1_000))
def test_junk_is_refused_in_one_of_two_ways(codec: int, junk: bytes, limit: int) -> None:
    with suppress(TooLargeError, DamagedError):
        assert len(inflate(codec, junk, limit)) <= limit


@given(st.sampled_from(CODECS), st.data())
def test_so_are_packed_bytes_with_some_of_them_changed(codec: int, data: st.DataObject) -> None:
    raw = bytearray(packed(codec, data.draw(st.binary(max_size=60)) * 9))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with suppress(TooLargeError, DamagedError):
        assert len(inflate(codec, bytes(raw), 1_000)) <= 1_000
