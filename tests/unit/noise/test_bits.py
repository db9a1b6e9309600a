"""The word stream against ChaCha20 written out from RFC 8439."""

import struct
import subprocess
import sys

import numpy as np
import pytest
from unit.noise.words import SEED

from stream_dp.errors import FailClosed
from stream_dp.noise import bits
from stream_dp.noise.bits import BitStream, fresh_seed

MASK = 0xFFFFFFFF
QUARTERS = (
    (0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
    (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14),
)  # fmt: skip


def rotated(value: int, by: int) -> int:
    return (value << by | value >> (32 - by)) & MASK


def quarter(s: list[int], a: int, b: int, c: int, d: int) -> None:
    for x, y, z, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        s[x] = (s[x] + s[y]) & MASK
        s[z] = rotated(s[z] ^ s[x], by)


def chacha_block(seed: bytes, counter: int, nonce: bytes) -> bytes:
    """RFC 8439, 2.3: one block for a 32-bit counter and a 12-byte nonce."""
    start = [
        *struct.unpack("<4I", b"expand 32-byte k"),
        *struct.unpack("<8I", seed),
        counter,
        *struct.unpack("<3I", nonce),
    ]
    state = list(start)
    for _ in range(10):
        for a, b, c, d in QUARTERS:
            quarter(state, a, b, c, d)
    return struct.pack("<16I", *((x + y) & MASK for x, y in zip(state, start, strict=True)))


def oracle_words(seed: bytes, stream: int, lane: int, count: int) -> list[int]:
    nonce = struct.pack("<IQ", lane, stream)
    raw = b"".join(chacha_block(seed, block, nonce) for block in range(-(-count // 8)))
    return list(struct.unpack(f"<{len(raw) // 8}Q", raw))[:count]


def test_the_oracle_gives_the_block_of_the_standard() -> None:
    """RFC 8439, 2.3.2."""
    block = chacha_block(SEED, 1, bytes.fromhex("000000090000004a00000000"))
    assert block.hex().startswith("10f1e7e4d13b5915500fdd1fa32071c4")


@pytest.mark.parametrize(("stream", "lane"), [(0, 0), (0, 1), (1, 0), (2**64 - 1, 7)])
def test_words_are_the_key_stream(stream: int, lane: int) -> None:
    words = BitStream(SEED, stream, lane).array(300)
    assert words.dtype == np.uint64
    assert words.tolist() == oracle_words(SEED, stream, lane, 300)


def test_words_do_not_depend_on_how_they_are_asked_for() -> None:
    source = BitStream(SEED, 5)
    found: list[int] = []
    for count in (1, 3, 0, 40, 2, 600, 1, 17):
        found += source.take(count)
        found += source.array(count).tolist()
        found.append(source.word())
    assert found == oracle_words(SEED, 5, 0, len(found))


def test_a_stream_ends_before_its_counter_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bits, "MAX_WORDS", 20)
    source = BitStream(SEED, 0)
    source.array(20)
    with pytest.raises(FailClosed, match="another stream"):
        source.word()


def test_refused_arguments() -> None:
    for seed, stream, lane in (
        (b"short", 0, 0), (SEED, -1, 0), (SEED, 2**64, 0), (SEED, 0, -1), (SEED, 0, 2**32),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"seed|number") as refusal:
            BitStream(seed, stream, lane)
        assert "short" not in str(refusal.value)


def test_fresh_seeds_are_new() -> None:
    seeds = {fresh_seed() for _ in range(100)}
    assert len(seeds) == 100
    assert {len(seed) for seed in seeds} == {bits.SEED_BYTES}


def test_seeds_come_from_the_operating_system() -> None:
    """In a process of its own: this one's noise is fixed."""
    code = "import os; from stream_dp.noise import bits; assert bits.urandom is os.urandom"
    subprocess.run([sys.executable, "-c", code], check=True)
