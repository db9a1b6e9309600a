"""Where the programs that feed a pipeline's topic put its records: `replay`, and an agent of an app.

Rules: where users are protected, a record lies in its user's partition, because the guard makes a dead letter of it
elsewhere. Otherwise, and where a record names nobody, its content decides. The partition is a function of the
record alone.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from stream_dp.core.mechanism import IntArray
from stream_dp.engine.ports import Placement, by_content
from stream_dp.errors import UsageError
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.records.cells import KeyAndHeaders
from stream_dp.records.decoder import Decoded, RecordDecoder
from stream_dp.records.endpoints import KafkaSourceSpec
from stream_dp.records.record_columns import BoolArray

LONGEST_NAME = 1024  # bytes of a user's name; a longer one would cost work, and names nobody


BLOCK = 16


class Alike(NamedTuple):
    """Texts that take the same number of blocks of 16 bytes, at least one: their places among others, their lengths,
    and their bytes, of shape (texts, bytes), with 0 behind each.
    """

    places: IntArray
    lengths: IntArray
    padded: NDArray[np.uint8]


class Texts(Sequence[bytes]):
    """Texts that are hashed more than once: `lengths` bytes of `joined` from `starts` on. Private."""

    def __init__(self, joined: bytes, starts: IntArray, lengths: IntArray) -> None:
        self._joined, self._starts, self.lengths = joined, starts, lengths

    @classmethod
    def of(cls, texts: Sequence[bytes]) -> "Texts":
        if isinstance(texts, cls):
            return texts
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        return cls(b"".join(texts), np.cumsum(lengths) - lengths, lengths)

    @classmethod
    def of_names(cls, names: Sequence[str]) -> "Texts":
        """Return the names in UTF-8; without an object for each if none has a line break."""
        joined = "\n".join(names).encode()
        breaks = np.flatnonzero(np.frombuffer(joined, np.uint8) == _BREAK)
        if len(breaks) != len(names) - 1:
            return cls.of(list(map(str.encode, names)))
        starts = np.concatenate([[0], breaks + 1])
        return cls(joined, starts, np.append(breaks, len(joined)) - starts)

    def without(self, some: BoolArray) -> "Texts":
        """Return the texts with empty ones in place of `some`."""
        return Texts(self._joined, self._starts, np.where(some, 0, self.lengths))

    @cached_property
    def alike(self) -> Sequence[Alike]:
        blocks = np.maximum(1, -(-self.lengths // BLOCK))
        numbers = np.flatnonzero(np.bincount(blocks)).tolist()
        data = self._joined + bytes(BLOCK)  # no text lacks more in its last block
        found = []
        for number in numbers:
            places = np.flatnonzero(blocks == number)
            width, lengths = number * BLOCK, self.lengths[places]
            each: NDArray[np.void] = np.ndarray(len(data) - width + 1, f"V{width}", data, strides=1)
            words = each[self._starts[places]].view(np.uint64).reshape(len(places), -1)
            words[:, -2:] &= _INSIDE.take(lengths - (width - BLOCK), axis=0)
            found.append(Alike(places, lengths, words.view(np.uint8)))
        return found

    @cached_property
    def _each(self) -> list[bytes]:
        ends = (self._starts + self.lengths).tolist()
        return [self._joined[at:end] for at, end in zip(self._starts.tolist(), ends, strict=True)]

    def __getitem__(self, at: Any) -> Any:
        return self._each[at]

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._each)

    def __repr__(self) -> str:
        return "<Texts>"


_BREAK = ord("\n")
_INSIDE = (np.tri(BLOCK + 1, BLOCK, -1, np.uint8) * np.uint8(255)).view(np.uint64)
"""By the number of a text's bytes in its last block: 255 in their places, and 0 behind them."""


@dataclass(frozen=True, slots=True, repr=False)
class UserNames:
    """The users of some records as text: an integer's digits, or any other value itself, in UTF-8. Private. The text is
    hashed, and it decides where a user's records lie. `long` marks names that are too long, whose text is empty.
    """

    texts: Texts
    long: BoolArray

    @classmethod
    def of(cls, values: Iterable[str | int]) -> "UserNames":
        names = list(values)
        try:
            texts = Texts.of_names(cast("list[str]", names))
        except TypeError:
            texts = Texts.of_names(list(map(str, names)))
        return cls._short(texts)

    @classmethod
    def in_records(cls, decoded: Decoded, attribute: str) -> "UserNames":
        column = decoded.columns.get(attribute)
        if column is None or not column.text:
            return cls.of(decoded.values(attribute))
        return cls._short(Texts(column.texts, column.values, column.extra))

    @classmethod
    def _short(cls, texts: Texts) -> "UserNames":
        long = texts.lengths > LONGEST_NAME
        return cls(texts.without(long) if long.any() else texts, long)


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
    keys of about one length: the work grows with the number of bytes.
    """
    hashes = np.empty(len(keys), np.int64)
    for alike in Texts.of(keys).alike:
        hashes[alike.places] = _murmur2(alike)
    return hashes


def _murmur2(keys: Alike) -> NDArray[np.uint32]:
    times, lengths = np.uint32(_TIMES), keys.lengths
    words = np.ascontiguousarray(keys.padded).view("<u4").astype(np.uint32, copy=False)
    mixed = words * times
    mixed = (mixed ^ (mixed >> np.uint32(_SHIFT))) * times
    whole = lengths // 4
    hashes = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    least = int(whole.min())
    for at in range(int(whole.max())):
        next_ones = (hashes * times) ^ mixed[:, at]
        hashes = next_ones if at < least else np.where(whole > at, next_ones, hashes)
    rest = words[np.arange(len(words)), np.minimum(whole, words.shape[1] - 1)]
    hashes = np.where(lengths % 4 > 0, (hashes ^ rest) * times, hashes)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * times
    return hashes ^ (hashes >> np.uint32(15))


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
            f"privacy.user: the source has {len(partitions)} partitions, but all records of a "
            f"user must be in one partition. If producers use the text of {field!r} as the key "
            f"of each record, declare source.keyed_by: {field}. Otherwise use a topic with one "
            "partition"
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
    decoder, beside = RecordDecoder(naming_field(spec, user)), KeyAndHeaders.of(spec.fields)
    user_of = decoder.attribute(user)

    def by_user(payloads: Sequence[bytes], partitions: Sequence[int]) -> list[int]:
        homes = homes_of(spec, partitions)
        placed = by_content(payloads, partitions)
        whole = payloads if beside is None else list(map(beside.placed, payloads))
        decoded = decoder.decode(whole)
        names = UserNames.in_records(decoded, user_of)
        users = homes.of(names.texts).tolist()
        for position, home, long in zip(decoded.positions, users, names.long.tolist(), strict=True):
            if not long:
                placed[position] = home
        return placed

    return by_user
