"""The keyed hash under which a user is remembered: AES-CMAC of the user's text, of many users at once.

Rules: the hash is a function of the text and the key, so a user has the same hash after every start. Without the
key nobody can compute a hash or look for two texts that share one. A hash has 128 bits: two of n users share one
with a chance below n^2 / 2^128 (CMAC is a pseudorandom function: Iwata and Kurosawa 2003). Two users with one hash
would share a cap, and each could displace up to k events of the other: twice what the guarantee is for, so shorter
hashes will not do. Source: NIST SP 800-38B, RFC 4493.
"""

from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from numpy.typing import NDArray

from stream_dp.core.messages import IntArray
from stream_dp.engine.memories.user_table import Hashes

_BLOCK = 16
_REDUCTION = 0x87


class UserHash:
    """Hashes under a key of 32 bytes."""

    def __init__(self, key: bytes) -> None:
        # single blocks: the mode is CMAC's own, below
        self._cipher = Cipher(AES(key), ECB()).encryptor()  # noqa: S305
        once = _doubled(self._cipher.update(bytes(_BLOCK)))
        self._whole, self._padded = _bytes(once), _bytes(_doubled(once))

    def of(self, texts: Sequence[bytes]) -> Hashes:
        """Return the hash of each text, of shape (texts, 2)."""
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        blocks = np.maximum(1, -(-lengths // _BLOCK))
        found = np.empty((len(texts), _BLOCK), np.uint8)
        for number in np.unique(blocks).tolist():
            those = np.flatnonzero(blocks == number)
            chosen = [texts[at] for at in those.tolist()] if len(those) < len(texts) else texts
            found[those] = self._alike(chosen, lengths[those], number * _BLOCK)
        return found.view("<u8").astype(np.uint64)

    def _alike(self, texts: Sequence[bytes], lengths: IntArray, width: int) -> NDArray[np.uint8]:
        """Return the hashes of texts with the same number of blocks, `width` bytes together."""
        padded = np.array(texts, f"S{width}").view(np.uint8).reshape(len(texts), width)
        short = np.flatnonzero(lengths < width)
        padded[short, lengths[short]] = 0x80
        padded[:, -_BLOCK:] ^= self._whole
        padded[short, -_BLOCK:] ^= self._whole ^ self._padded
        state = np.zeros((len(texts), _BLOCK), np.uint8)
        for at in range(0, width, _BLOCK):
            mixed = (state ^ padded[:, at : at + _BLOCK]).tobytes()
            state = _bytes(self._cipher.update(mixed)).reshape(-1, _BLOCK)
        return state


def _bytes(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


def _doubled(block: bytes) -> bytes:
    """Return twice the block in the field of 2^128 elements."""
    value = int.from_bytes(block)
    doubled = (value << 1) & ((1 << 8 * _BLOCK) - 1)
    return (doubled ^ (_REDUCTION if value >> (8 * _BLOCK - 1) else 0)).to_bytes(_BLOCK)
