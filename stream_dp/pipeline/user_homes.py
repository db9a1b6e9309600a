"""In which partition of a topic the records of a user lie: where producers put a record by its key, the user's text.

Rules: it is a function of the user and of the number of partitions at the first start. So all records of a user that
count come from one partition, in its order, whatever producers really do and however many partitions are added. Both
ways are the defaults of clients: `murmur2` of the Java client and those that follow it, `crc32` of librdkafka.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from stream_dp.core.messages import IntArray

_SEED, _TIMES, _SHIFT, _ALL = 0x9747B28C, 0x5BD1E995, 24, 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF
_AT_ONCE = 64


def murmur2(keys: Sequence[bytes]) -> IntArray:
    """Return the 32-bit hash by which the Java client chooses partitions, of each key."""
    found = np.empty(len(keys), np.int64)
    short = [at for at, key in enumerate(keys) if len(key) <= _AT_ONCE]
    found[short] = _together([keys[at] for at in short])
    for at, key in enumerate(keys):
        if len(key) > _AT_ONCE:
            found[at] = _together([key])[0]
    return found


def _together(keys: Sequence[bytes]) -> IntArray:
    """The hashes of keys that are as long as the longest one, about."""
    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    width = 4 * (int(lengths.max(initial=0)) // 4 + 1)
    padded = b"".join([key.ljust(width, b"\0") for key in keys])
    words: NDArray[np.uint32] = np.frombuffer(padded, "<u4").reshape(len(keys), width // 4)
    words = words.astype(np.uint32)
    times, shift = np.uint32(_TIMES), np.uint32(_SHIFT)
    found = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    for at in range(words.shape[1]):
        word = words[:, at] * times
        word = (word ^ (word >> shift)) * times
        whole, rest = lengths // 4 > at, (lengths // 4 == at) & (lengths % 4 > 0)
        found = np.where(whole, (found * times) ^ word, found)
        found = np.where(rest, (found ^ words[:, at]) * times, found)
    found = (found ^ (found >> np.uint32(13))) * times
    return (found ^ (found >> np.uint32(15))).astype(np.int64)


def crc32(keys: Sequence[bytes]) -> IntArray:
    """Return the CRC-32 of each key."""
    return np.fromiter(map(zlib.crc32, keys), np.int64, len(keys))


def _java(keys: Sequence[bytes], partitions: int) -> IntArray:
    return (murmur2(keys) & _POSITIVE) % partitions


def _librdkafka(keys: Sequence[bytes], partitions: int) -> IntArray:
    return crc32(keys) % partitions


PARTITIONERS: Mapping[str, Callable[[Sequence[bytes], int], IntArray]] = {
    "murmur2": _java,
    "crc32": _librdkafka,
}
"""From keys to partitions, by the name that a pipeline file has for it."""


class Homes:
    """The partition of each user, of the `partitions` that there were at the first start.

    Where there is one only it is everybody's, and nothing need be known of the producers: `partitioner` may be None.
    """

    def __init__(self, partitions: Sequence[int], partitioner: str | None) -> None:
        self._partitions = np.array(sorted(partitions), np.int64)
        self._place = PARTITIONERS.get(partitioner or "")

    def of(self, users: Sequence[bytes]) -> IntArray:
        """Return the partition of each user, given as text in UTF-8."""
        if self._place is None or len(self._partitions) == 1:
            return np.full(len(users), self._partitions[0])
        return self._partitions[self._place(users, len(self._partitions))]
