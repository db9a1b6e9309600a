"""Partitions of users: those of the clients' own partitioners."""

import sys
import zlib
from collections import Counter
from types import FrameType

import numpy as np
import pytest
from aiokafka.partitioner import murmur2 as by_key
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.pipeline.user_homes import Homes, murmur2

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
