"""Where the programs that feed a pipeline's topic put its records: `replay`, and an agent of an app.

Rules: where users are protected, a record lies in its user's partition, because the guard makes a dead letter of it
elsewhere. Otherwise, and where a record names nobody, its content decides. The partition is a function of the
record alone.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_dp.core.mechanism import IntArray
from stream_dp.engine.ports import Placement, by_content
from stream_dp.errors import UsageError
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.records.decoder import RecordDecoder
from stream_dp.records.endpoints import KafkaSourceSpec
from stream_dp.records.record_columns import BoolArray

LONGEST_NAME = 1024  # bytes of a user's name; a longer one would cost work, and names nobody


@dataclass(frozen=True, slots=True, repr=False)
class UserNames:
    """The users of some records as text: an integer's digits, or any other value itself, in UTF-8. Private. The text is
    hashed, and it decides where a user's records lie. `long` marks names that are too long, whose text is empty.
    """

    texts: list[bytes]
    long: BoolArray

    @classmethod
    def of(cls, values: Iterable[str | int]) -> "UserNames":
        texts = list(map(str.encode, map(str, values)))
        long = np.fromiter(map(len, texts), np.int64, len(texts)) > LONGEST_NAME
        for at in np.flatnonzero(long).tolist():
            texts[at] = b""
        return cls(texts, long)


def naming_field(spec: PipelineSpec, user: str) -> dict[str, Any]:
    """Return the field `user` for a decoder: not nullable, because null names nobody."""
    return {user: spec.fields[user].model_copy(update={"nullable": False})}


# The partition that holds a user's records: producers choose it by the record's key, which is the user's text. It is
# a function of the user and of the number of partitions at the first start. So all records of a user that count come
# from one partition, in its order, whatever producers really do and however many partitions are added. Both functions
# are the defaults of clients: `murmur2` of the Java client and those that follow it, `crc32` of librdkafka.

_SEED, _TIMES, _SHIFT = 0x9747B28C, 0x5BD1E995, 24
_POSITIVE = 0x7FFFFFFF


def murmur2(keys: Sequence[bytes]) -> IntArray:
    """Return the 32-bit hash of each key, by which the Java client chooses partitions. One step mixes one word of all
    keys that have it: the work grows with the number of words, whatever the lengths.
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
    hashes = np.uint32(_SEED) ^ lengths[order].astype(np.uint32)
    places = np.arange(int(whole.max(initial=0)))
    for at, some in enumerate(np.searchsorted(-whole[order], -places).tolist()):
        hashes[:some] = (hashes[:some] * times) ^ mixed[begins[:some] + at]
    rest = words[rests[order]]
    hashes = np.where(lengths[order] % 4 > 0, (hashes ^ rest) * times, hashes)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * times
    hashed = np.empty(len(keys), np.int64)
    hashed[order] = hashes ^ (hashes >> np.uint32(15))
    return hashed


PARTITIONERS: Mapping[str, Callable[[Sequence[bytes]], IntArray]] = {
    "murmur2": lambda keys: murmur2(keys) & _POSITIVE,
    "crc32": lambda keys: np.fromiter(map(zlib.crc32, keys), np.int64, len(keys)),
}


class Homes:
    """The partition of each user, out of the `partitions` at the first start. A single partition is everybody's, and
    nothing need be known of the producers: `partitioner` may be None.
    """

    def __init__(self, partitions: Sequence[int], partitioner: str | None) -> None:
        self._partitions = np.array(sorted(partitions), np.int64)
        self._place = PARTITIONERS.get(partitioner or "")

    def of(self, users: Sequence[bytes]) -> IntArray:
        if self._place is None or len(self._partitions) == 1:
            return np.full(len(users), self._partitions[0])
        return self._partitions[self._place(users) % len(self._partitions)]


def homes_of(spec: PipelineSpec, partitions: Sequence[int]) -> Homes:
    """Return the homes of this pipeline's users; UsageError: of several partitions nothing says which is a user's."""
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


def placement_of(spec: PipelineSpec) -> Placement:
    user = spec.privacy.user
    if user is None:
        return by_content
    decoder = RecordDecoder(naming_field(spec, user))
    user_of = attrgetter(decoder.attribute(user))

    def by_user(payloads: Sequence[bytes], partitions: Sequence[int]) -> list[int]:
        homes = homes_of(spec, partitions)
        placed = by_content(payloads, partitions)
        decoded = decoder.decode(payloads)
        names = UserNames.of(map(user_of, decoded.records))
        users = homes.of(names.texts).tolist()
        for position, home, long in zip(decoded.positions, users, names.long.tolist(), strict=True):
            if not long:
                placed[position] = home
        return placed

    return by_user
