"""Where records of users lie: names as text, partitions as the clients choose them, and what is fed lies there."""

import json
import sys
import zlib
from collections import Counter, defaultdict
from random import Random
from types import FrameType
from typing import Any

import numpy as np
import pytest
from aiokafka.partitioner import murmur2 as by_key
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.cmac import CMAC
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.pipeline.routing.user_worlds import KEYED, specification

from stream_dp.engine.ports import Batch, Placement, by_content
from stream_dp.errors import UsageError
from stream_dp.pipeline import user_homes
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_guard import UserGuard, UserHash
from stream_dp.pipeline.user_homes import (
    BLOCK,
    LONGEST_NAME,
    Homes,
    Texts,
    UserNames,
    murmur2,
    placement_of,
)

PARTITIONS = (0, 1, 2, 5)
RECORDS = [
    json.dumps({"time": 1000 * (at % 5), "customer": f"user {at % 40}", "key": "a"}).encode()
    for at in range(400)
]


def keyed(partitioner: str = "murmur2") -> PipelineSpec:
    source = KEYED | {"partitioner": partitioner}
    privacy = {"unit": "user", "user": "customer", "overall": "1000", "epsilon": "100"}
    return specification(source=source, journal={"kind": "kafka"}, releases=None, privacy=privacy)


def dead_of(spec: PipelineSpec, place: Placement, payloads: list[bytes]) -> int:
    """How many records a guard refuses where they were put."""
    guard = UserGuard(spec, 0, bytes(32))
    guard.begin(PARTITIONS)
    lanes = defaultdict[int, list[bytes]](list)
    for payload, partition in zip(payloads, place(payloads, PARTITIONS), strict=True):
        lanes[partition].append(payload)
    dead = 0
    for partition, lane in lanes.items():
        batch = Batch(partition, lane, range(len(lane)), len(lane))
        dead += sum(span.records for span in guard.admit(batch, -1).refused)
    return dead


@pytest.mark.parametrize("partitioner", ["murmur2", "crc32"])
def test_what_is_fed_lies_where_the_guard_looks_for_it(partitioner: str) -> None:
    spec = keyed(partitioner)
    assert dead_of(spec, placement_of(spec), RECORDS) == 0
    assert dead_of(spec, by_content, RECORDS) > len(RECORDS) / 2  # where it was put before


def test_what_names_nobody_is_put_by_its_content() -> None:
    spec = keyed()
    nobody = [
        b"{",
        b"[]",
        b'{"time":0}',
        json.dumps({"customer": "x" * (LONGEST_NAME + 1)}).encode(),
    ]
    assert placement_of(spec)(nobody, PARTITIONS) == by_content(nobody, PARTITIONS)
    mixed = [nobody[0], RECORDS[0], nobody[3], RECORDS[1]]
    alone = [placement_of(spec)([each], PARTITIONS)[0] for each in mixed]
    assert placement_of(spec)(mixed, PARTITIONS) == alone


def test_without_a_declared_key_several_partitions_are_refused_and_one_is_not() -> None:
    spec = specification()
    with pytest.raises(UsageError, match=r"source\.keyed_by: customer"):
        placement_of(spec)((), PARTITIONS)
    assert placement_of(spec)(RECORDS, (3,)) == [3] * len(RECORDS)


def test_events_without_users_are_put_by_their_content() -> None:
    assert placement_of(specification(privacy={"epsilon": "100"})) is by_content


TEXTS = st.lists(st.text(max_size=90).map(str.encode) | st.binary(max_size=80), max_size=20)


@settings(max_examples=50, deadline=None)
@given(TEXTS)
def test_murmur2_is_the_client_librarys(texts: list[bytes]) -> None:
    assert murmur2(texts).tolist() == [by_key(text) & 0xFFFFFFFF for text in texts]


@settings(max_examples=50, deadline=None)
@given(TEXTS, st.integers(2, 50))
def test_a_user_has_one_home(texts: list[bytes], partitions: int) -> None:
    found = Homes(range(partitions), "murmur2").of(texts)
    assert found.tolist() == [(by_key(text) & 0x7FFFFFFF) % partitions for text in texts]
    assert [
        int(Homes(range(partitions), "murmur2").of([text])[0]) for text in texts
    ] == found.tolist()
    other = Homes(range(partitions), "crc32").of(texts)
    assert other.tolist() == [zlib.crc32(text) % partitions for text in texts]


@pytest.mark.parametrize("partitioner", [None, "murmur2", "crc32"])
def test_the_only_partition_is_everybodys(partitioner: str | None) -> None:
    found = Homes((3,), partitioner).of([b"a", b"b", b""])
    assert np.array_equal(found, [3, 3, 3])


def test_names_of_all_lengths_are_no_more_work_than_their_words() -> None:
    """Were each length or each long name hashed for itself, a record would cost dozens of calls, each for one name."""
    keys = [b"x" * length for length in range(64, 1025)] * 4
    calls = Counter[str]()

    def count(_frame: FrameType, event: str, _called: object) -> None:
        calls[event] += 1

    sys.setprofile(count)
    try:
        murmur2(keys)
    finally:
        sys.setprofile(None)
    assert calls["c_call"] < 6 * len(keys)
    assert calls["call"] < len(keys)


def test_every_name_is_its_own_text() -> None:
    names = [
        "ann",
        "Ann",
        " ann",
        "ann ",
        "",
        "é",
        "e\N{COMBINING ACUTE ACCENT}",
        "\0",
        "\0\0",
        "07",
    ]
    found = UserNames.of(names)
    assert list(found.texts) == [name.encode() for name in names]
    assert not found.long.any()
    assert list(UserNames.of([7, -7, 0]).texts) == [b"7", b"-7", b"0"]


def test_a_name_is_too_long_by_its_bytes() -> None:
    longest = "é" * (LONGEST_NAME // 2)
    found = UserNames.of([longest, longest + "a", "b"])
    assert list(found.texts) == [longest.encode(), b"", b"b"]
    assert found.long.tolist() == [False, True, False]


ODD = ("", "\n", "\n\n", "a\nb", "\0", "a\0", "é", "日本", "x" * 15, "x" * 16, "x" * 17, "x" * 64)
KEY = bytes(range(32))


def names_of(draw: Random) -> list[str | int]:
    """Names of one batch: of one kind, or hostile ones among others."""
    kind = draw.randrange(4)
    if kind == 0:
        return [draw.choice((7, -7, 0, 10 ** draw.randrange(19))) for _ in range(draw.randrange(9))]
    longest = "é" * (LONGEST_NAME // 2)
    odd = (*ODD, *((longest, longest + "a") if kind == 3 else ()))
    every = [draw.choice(odd if kind > 1 else odd[4:]) for _ in range(draw.randrange(9))]
    return [name * draw.choice((1, 1, 2)) for name in every]


def names_are_read_as_each_alone(batches: int) -> None:
    for seed in range(batches):
        names = names_of(Random(seed))
        texts = [str(name).encode() for name in names]
        long = [len(text) > LONGEST_NAME for text in texts]
        texts = [b"" if too_long else text for text, too_long in zip(texts, long, strict=True)]
        found = UserNames.of(names)
        assert list(found.texts) == texts
        assert found.long.tolist() == long
        assert murmur2(found.texts).tolist() == [by_key(text) & 0xFFFFFFFF for text in texts]
        hashes = UserHash(KEY).of(found.texts).astype("<u8")
        for text, one in zip(texts, hashes, strict=True):
            alone = CMAC(AES(KEY))
            alone.update(text)
            assert one.tobytes() == alone.finalize()


def test_names_read_together_are_those_read_alone() -> None:
    names_are_read_as_each_alone(1000)


def parted(names: Any) -> Texts:
    return Texts.of("\n".join(names).encode().split(b"\n")[: len(names)])


@pytest.mark.parametrize(
    ("owner", "name", "broken"),
    [
        (Texts, "of_names", parted),
        (Texts, "without", lambda self, _: self),
        (user_homes, "_INSIDE", np.full((BLOCK + 1, 2), 2**64 - 1, np.uint64)),
        (user_homes, "LONGEST_NAME", LONGEST_NAME + 1),
    ],
    ids=["a line break parts a name", "long names are hashed", "what follows is hashed too", "one byte more"],
)  # fmt: skip
def test_broken_readers_of_names_are_caught(
    owner: Any, name: str, broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises((AssertionError, ValueError)):
        names_are_read_as_each_alone(300)
