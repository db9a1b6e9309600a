"""The partition that holds a user's records: producers choose it by the record's key, which is the user's text.

Rules: the partition is a function of the user and of the number of partitions at the first start. So all records of
a user that count come from one partition, in its order, whatever producers really do and however many partitions
are added. Both functions are the defaults of clients: `murmur2` of the Java client and those that follow it,
`crc32` of librdkafka.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from stream_dp.core.messages import IntArray
from stream_dp.errors import UsageError
from stream_dp.pipeline.file.spec import PipelineSpec
from stream_dp.records.endpoints import KafkaSourceSpec

_SEED, _TIMES, _SHIFT = 0x9747B28C, 0x5BD1E995, 24
_POSITIVE = 0x7FFFFFFF


def murmur2(keys: Sequence[bytes]) -> IntArray:
    """Return the 32-bit hash of each key, by which the Java client chooses partitions.

    One step mixes one word of all keys that have it: the work grows with the number of words, whatever the lengths.
    """
    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    whole = lengths // 4
    padded = b"".join([key.ljust(len(key) // 4 * 4 + 4, b"\0") for key in keys])
    words: NDArray[np.uint32] = np.frombuffer(padded, "<u4").astype(np.uint32)
    times, rests = np.uint32(_TIMES), np.cumsum(whole + 1) - 1
    mixed = words * times
    mixed = (mixed ^ (mixed >> np.uint32(_SHIFT))) * times
    order = np.argsort(-whole, kind="stable")
    begins = (rests - whole)[order]
    found = np.uint32(_SEED) ^ lengths[order].astype(np.uint32)
    places = np.arange(int(whole.max(initial=0)))
    for at, some in enumerate(np.searchsorted(-whole[order], -places).tolist()):
        found[:some] = (found[:some] * times) ^ mixed[begins[:some] + at]
    rest = words[rests[order]]
    found = np.where(lengths[order] % 4 > 0, (found ^ rest) * times, found)
    found = (found ^ (found >> np.uint32(13))) * times
    hashed = np.empty(len(keys), np.int64)
    hashed[order] = found ^ (found >> np.uint32(15))
    return hashed


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
"""From keys to partitions, by the name in a pipeline file."""


class Homes:
    """The partition of each user, out of the `partitions` at the first start.

    A single partition is everybody's, and nothing need be known of the producers: `partitioner` may be None.
    """

    def __init__(self, partitions: Sequence[int], partitioner: str | None) -> None:
        self._partitions = np.array(sorted(partitions), np.int64)
        self._place = PARTITIONERS.get(partitioner or "")

    def of(self, users: Sequence[bytes]) -> IntArray:
        """Return the partition of each user, given as text in UTF-8."""
        if self._place is None or len(self._partitions) == 1:
            return np.full(len(users), self._partitions[0])
        return self._partitions[self._place(users, len(self._partitions))]


def homes_of(spec: PipelineSpec, partitions: Sequence[int]) -> Homes:
    """Return the homes of this pipeline's users; its source had these partitions at the first start.

    Raises:
        UsageError: there are several, and nothing says which one is a user's.
    """
    source, field = spec.source, spec.privacy.user
    keyed = isinstance(source, KafkaSourceSpec) and source.keyed_by is not None
    if len(partitions) > 1 and not keyed:
        raise UsageError(
            f"privacy.user: the source has {len(partitions)} partitions, and all records of a user must come from one "
            f"of them. If producers give each record the text of {field!r} as its key, say so: source.keyed_by: "
            f"{field}; else use a topic of one partition"
        )
    return Homes(partitions, source.partitioner if isinstance(source, KafkaSourceSpec) else None)


def grown(first: int, now: int) -> str:
    """Return the warning for an operator whose source has `now` partitions, and had `first` at the first start."""
    return (
        f"the source has {now} partitions, and had {first} at the first start: users count in the partitions of the "
        "first start alone, and producers now put many of them elsewhere, whose records are dead letters "
        f"(wrong_partition). Let producers place records by key over partitions 0 to {first - 1}, or begin a new "
        "pipeline on a new topic"
    )
