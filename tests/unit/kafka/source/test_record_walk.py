"""Records read one by one: the same as the client library's parser where nothing is amiss, and no error elsewhere."""

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st
from unit.kafka.source.record_worlds import record, sized, varint

from stream_dp.kafka.source.record_batches import HEADER, MOST_HEADERS, WalkedRecord, walk

texts = st.text(max_size=5).filter(lambda text: text < "\ud800" or text > "\udfff")
headers = st.lists(st.tuples(texts, st.none() | st.binary(max_size=5)), max_size=3)
content = st.tuples(st.none() | st.binary(max_size=90), st.none() | st.binary(max_size=90), headers)


@given(st.lists(content, min_size=1, max_size=6), st.booleans())
def test_it_reads_what_the_client_library_writes_and_reads(
    contents: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]], wanted: bool
) -> None:
    made = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=False, producer_id=-1, producer_epoch=-1,
        base_sequence=-1, batch_size=10**6,
    )  # fmt: skip
    for at, (key, value, heads) in enumerate(contents):
        made.append(at, 1_000 * at, key, value, heads)
    raw = bytes(made.build())
    found = list(walk(memoryview(raw)[HEADER.size :], len(contents), wanted))
    theirs = list(DefaultRecordBatch(raw))
    assert found == [
        WalkedRecord(one.key, one.value, tuple(one.headers) if wanted else ()) for one in theirs
    ]
    assert found == [
        WalkedRecord(key, value, tuple(heads) if wanted else ()) for key, value, heads in contents
    ]


@given(st.binary(max_size=60), st.integers(0, 6), st.booleans())
def test_junk_gives_records_or_none_and_no_error(junk: bytes, count: int, wanted: bool) -> None:
    assert len(list(walk(junk, count, wanted))) <= count


@given(st.data())
def test_a_batch_that_is_cut_gives_what_lies_before_the_cut(data: st.DataObject) -> None:
    raw = [record(b"v" * size) for size in (3, 0, 200)]
    cut = data.draw(st.integers(0, sum(map(len, raw))))
    whole = sum(sum(map(len, raw[: n + 1])) <= cut for n in range(3))
    found = list(walk(b"".join(raw)[:cut], 3, False))
    assert found == [WalkedRecord(None, b"v" * size) for size in (3, 0, 200)][:whole]


GOOD = record(b"good")
FINE = WalkedRecord(None, b"good")


@pytest.mark.parametrize(
    "bad",
    [
        record(None, tail=varint(1_000) + b"x"),
        record(None, tail=sized(b"x" * 9)[:4]),
        record(None, tail=b""),
        record(None, tail=b"\xff" * 11),
        varint(0),
        varint(1) + b"\0",
        varint(3) + b"\0\0\0",
        varint(4) + b"\0\0\0\x01",
    ],
    ids=[
        "a value beyond its end", "a value cut", "no value", "a length of eleven bytes",
        "nothing", "attributes alone", "no key", "a key alone",
    ],
)  # fmt: skip
@pytest.mark.parametrize("wanted", [False, True])
def test_a_record_that_cannot_be_read_harms_no_other(bad: bytes, wanted: bool) -> None:
    assert list(walk(GOOD + bad + GOOD, 3, wanted)) == [FINE, None, FINE]


def test_what_belongs_to_the_next_record_is_not_read_as_this_ones() -> None:
    """Bytes that would do as null key and null value lie behind its end."""
    behind = varint(1) + b"\x01"
    assert next(walk(varint(3) + b"\0\0\0" + b"\x01\x01\x00" + behind, 1, False)) is None


@pytest.mark.parametrize("length", [varint(-1), varint(-(2**40)), varint(10**6), b"\xff" * 11])
def test_behind_a_length_that_is_wrong_nothing_is_read(length: bytes) -> None:
    assert list(walk(GOOD + length + GOOD, 3, False)) == [FINE]


def test_negative_lengths_inside_are_null() -> None:
    assert list(walk(record(None, tail=varint(-5) + varint(0)), 1, True)) == [
        WalkedRecord(None, None)
    ]


def test_lengths_may_be_written_longer_than_they_need_to_be() -> None:
    overlong = bytes([0x80 | (len(GOOD) - 1) << 1, 0x80, 0x80, 0x00]) + GOOD[1:]
    assert list(walk(overlong, 1, False)) == [FINE]


def test_names_of_headers_need_not_be_text() -> None:
    raw = record(b"v", headers=[(b"\xff\xfe", b"1"), (b"\xed\xa0\x80", None), (b"fine", b"2")])
    (found,) = walk(raw, 1, True)
    assert found is not None
    assert found.value == b"v"
    assert found.headers[2] == ("fine", b"2")
    assert list(walk(raw, 1, False)) == [WalkedRecord(None, b"v")]


def test_twenty_thousand_headers_are_passed_over_or_read() -> None:
    raw = record(b"v", headers=[(b"k", b"v")] * 20_000)
    assert list(walk(raw + GOOD, 2, False)) == [WalkedRecord(None, b"v"), FINE]
    (found,) = walk(raw, 1, True)
    assert found == WalkedRecord(None, b"v", (("k", b"v"),) * MOST_HEADERS)


@pytest.mark.parametrize("count", [-3, 3, 2**40])
def test_a_number_of_headers_that_is_wrong_gives_those_that_can_be_read(count: int) -> None:
    raw = record(None, tail=sized(b"v") + varint(count) + sized(b"k") + sized(b"1"))
    (found,) = walk(raw, 1, True)
    assert found == WalkedRecord(None, b"v", () if count < 0 else (("k", b"1"),))
