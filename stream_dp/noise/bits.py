"""The key stream of ChaCha20 under a 32-byte seed, as 64-bit words.

Rules: word i of (seed, stream, lane) is bytes 8i..8i+7 of the key stream, little-endian, whatever block sizes were
asked for: a recorded seed gives the same words for ever. The key is the seed; of the 16 bytes the cipher takes as its
nonce, 0..3 are the block counter (from 0), 4..7 the lane and 8..15 the stream number, both little-endian; so streams
and lanes under one seed never share a block. A stream ends before the counter can wrap. This file knows no
distribution; the seed appears in no `repr`. Reference: RFC 8439, section 2.4.
"""

import struct
from os import urandom
from typing import Protocol, TypeAlias

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms
from numpy.typing import NDArray

from stream_dp.errors import FailClosed

IntArray: TypeAlias = NDArray[np.int64]

SEED_BYTES = 32
WORD_BYTES = 8
MAX_WORDS = 1 << 34  # 2^31 blocks of 64 bytes: half of what the 32-bit counter reaches

_FIRST_BLOCK = 16  # words; most streams serve one step and need only a few
_LARGEST_BLOCK = 1 << 9


def fresh_seed() -> bytes:
    """Return 32 new bytes from the operating system's cryptographic source; the only use of it in the product."""
    return urandom(SEED_BYTES)


class Words(Protocol):
    """A source of independent uniform 64-bit words."""

    def word(self) -> int:
        """Return the next word, 0 <= word < 2^64."""
        ...


class BitStream:
    """The words of one (seed, stream, lane), in order; the first draw computes the first block.

    The caller must make sure that the 32 bytes of the seed are secret and fresh.

    Raises:
        ValueError: the seed has another length, the stream is not in [0, 2^64), or the lane not in [0, 2^32).
    """

    __slots__ = ("_block", "_context", "_drawn", "_held", "_nonce", "_position", "_seed")

    def __init__(self, seed: bytes, stream: int, lane: int = 0) -> None:
        if len(seed) != SEED_BYTES:
            raise ValueError(f"a seed must have {SEED_BYTES} bytes, this one has {len(seed)}")
        if not 0 <= stream < 1 << 64:
            raise ValueError("a stream number must lie in [0, 2^64)")
        if not 0 <= lane < 1 << 32:
            raise ValueError("a lane number must lie in [0, 2^32)")
        self._seed = seed
        self._nonce = struct.pack("<IIQ", 0, lane, stream)
        self._context: CipherContext | None = None
        self._held: tuple[int, ...] = ()
        self._position = 0
        self._block = _FIRST_BLOCK
        self._drawn = 0

    def word(self) -> int:
        return self.take(1)[0]

    def take(self, count: int) -> tuple[int, ...]:
        """Return the next `count` words as Python integers; for few words (`array` is for many)."""
        end = self._position + count
        if end > len(self._held):
            self._refill(count)
            end = count
        words = self._held[self._position : end]
        self._position = end
        return words

    def array(self, count: int) -> NDArray[np.uint64]:
        held = self._held[self._position : self._position + count]
        self._position += len(held)
        rest = np.frombuffer(self._key_stream(count - len(held)), dtype="<u8")
        fresh: NDArray[np.uint64] = rest.astype(np.uint64, copy=False)
        if not held:
            return fresh
        return np.concatenate([np.array(held, dtype=np.uint64), fresh])

    def _refill(self, count: int) -> None:
        """Keep the unread words and append new ones, so that at least `count` words follow `_position` 0."""
        left = self._held[self._position :]
        size = max(self._block, count - len(left))
        self._held = left + struct.unpack(f"<{size}Q", self._key_stream(size))
        self._position = 0
        self._block = min(2 * self._block, _LARGEST_BLOCK)

    def _key_stream(self, words: int) -> bytes:
        if self._drawn + words > MAX_WORDS:
            raise FailClosed("this noise stream is used up; use another stream number")
        self._drawn += words
        if self._context is None:
            cipher = Cipher(algorithms.ChaCha20(self._seed, self._nonce), mode=None)
            self._context = cipher.encryptor()
        return self._context.update(bytes(WORD_BYTES * words))
