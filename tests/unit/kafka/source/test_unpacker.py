"""What is in a batch: the fast way and the slow one agree, and a bad record harms none but itself."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import example, given
from hypothesis import strategies as st
from unit.kafka.source.record_worlds import APPENDED, batch, parsed, record, sized, varint

from stream_dp.journal.dead_letters import TOO_LARGE, UNREADABLE_BATCH, UNREADABLE_RECORD, Span
from stream_dp.kafka.client.tick_marks import TICK_HEADER
from stream_dp.kafka.source import unpacker
from stream_dp.kafka.source.record_batches import (
    HEADER,
    Kind,
    RecordBatch,
    Unpacked,
    WalkedRecord,
    walk,
)
from stream_dp.kafka.source.unpacker import LIMIT_BYTES, Unpacker
from stream_dp.records.cells import MOST_HEADERS, AllKeysAndHeaders, Reading

PACK = {1: gzip_encode, 2: snappy_encode, 3: lz4_encode, 4: zstd_encode}
TICK = TICK_HEADER.encode()
BAD = record(None, tail=varint(1_000) + b"x")
BASE = 50


def found(raw: bytes, *, marks: bool = False, limit: int = LIMIT_BYTES) -> Unpacked:
    return Unpacker(marks=marks, limit=limit).unpack(parsed(raw))


def shown(what: Unpacked) -> tuple[list[bytes], list[int], list[Span], dict[int, bytes]]:
    return [bytes(one) for one in what.values], list(what.offsets), what.refused, what.marks


def packed(codec: int, records: Sequence[bytes], base: int = BASE) -> bytes:
    joined = b"".join(records)
    body = bytes(PACK[codec](joined)) if codec else joined
    return batch(records, base, attributes=APPENDED | codec, body=body)


names = st.sampled_from([TICK, b"k", b"\xff", b""])
headers = st.lists(st.tuples(names, st.none() | st.binary(max_size=3)), max_size=3)
good = st.builds(
    record,
    st.none() | st.binary(max_size=80),
    st.integers(-3, 3),
    st.none() | st.binary(max_size=5),
    headers,
)
broken = st.binary(max_size=9).map(lambda junk: varint(len(junk)) + junk)


@given(
    st.lists(good | broken, min_size=1, max_size=6), st.booleans(), st.sampled_from([0, 1, 2, 3, 4])
)
def test_the_fast_way_and_the_slow_one_agree(records: list[bytes], marks: bool, codec: int) -> None:
    raw = packed(codec, records)
    body = memoryview(b"".join(records))
    slow = Unpacker(marks=marks)._walked(body, BASE, len(records))
    assert shown(found(raw, marks=marks)) == shown(slow)
    assert len(slow.values) + sum(one.records for one in slow.refused) == len(records)


OVERLONG = b"\x86" + b"\x80" * 8


@given(good, st.integers(0, 30), st.binary(max_size=2) | st.just(OVERLONG + b"\x02"))
@example(record(b"", key=b"kk"), 1, b"\xb1")
@example(record(b"abc"), 5, OVERLONG + b"\x02")
def test_what_the_library_makes_of_a_record_is_what_it_is_beside_one_that_it_refuses(
    whole: bytes, at: int, junk: bytes
) -> None:
    """Odd attributes, and numbers with more bytes than they need, are no reason to read a record in two ways."""
    for kept in (whole[1 : at + 1], whole[1:at]):
        body = kept + junk + whole[at + 1 :]
        odd = varint(len(body)) + body
        unpacker = Unpacker(marks=True, read=Reading(beside=AllKeysAndHeaders()))
        alone, beside = (unpacker.unpack(parsed(packed(0, all_))) for all_ in ([odd], [odd, BAD]))
        assert [beside.values, beside.marks] == [alone.values, alone.marks]
        assert [*beside.offsets] == [*alone.offsets]


@given(st.lists(good, min_size=1, max_size=6), st.binary(min_size=1, max_size=40), st.data())
def test_a_changed_byte_changes_only_what_it_must(
    records: list[bytes], junk: bytes, data: st.DataObject
) -> None:
    body = bytearray(b"".join(records))
    at = data.draw(st.integers(0, len(body)))
    body[at : at + len(junk)] = junk
    what = found(batch(records, BASE, body=bytes(body)))
    told = [*what.offsets]
    for one in what.refused:
        told += range(one.first, one.last + 1)
    assert sorted(told) == list(range(BASE, BASE + len(records)))


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("marks", [False, True])
def test_one_bad_record_is_one_refusal(codec: int, marks: bool) -> None:
    what = found(packed(codec, [record(b"a"), BAD, record(b"c")]), marks=marks)
    refused = [Span(UNREADABLE_RECORD, None, BASE + 1, BASE + 1)]
    assert shown(what) == ([b"a", b"c"], [BASE, BASE + 2], refused, {})


def test_behind_a_wrong_length_the_rest_is_one_refusal() -> None:
    what = found(packed(0, [record(b"a"), varint(10**6), record(b"c"), record(b"d")]))
    refused = [Span(UNREADABLE_RECORD, None, BASE + 1, BASE + 3)]
    assert shown(what) == ([b"a"], [BASE], refused, {})


@pytest.mark.parametrize("deltas", [(-5, -5, -5), (0, 100, 2)])
def test_records_have_the_offsets_of_their_places_whatever_they_say(deltas: Sequence[int]) -> None:
    what = found(packed(0, [record(b"%d" % n, delta) for n, delta in enumerate(deltas)]))
    assert shown(what) == ([b"0", b"1", b"2"], [BASE, BASE + 1, BASE + 2], [], {})


@pytest.mark.parametrize(
    "heads",
    [[(b"\xff\xfe", b"1")], [(b"\xed\xa0\x80", b"1")], [(b"k", b"v")] * 20_000, [(b"", None)]],
    ids=["not UTF-8", "surrogates", "20,000", "empty"],
)
@pytest.mark.parametrize("marks", [False, True])
def test_no_header_costs_a_record(heads: Any, marks: bool) -> None:
    what = found(packed(0, [record(b"a", headers=heads), record(b"b", 1)]), marks=marks)
    assert shown(what) == ([b"a", b"b"], [BASE, BASE + 1], [], {})


def test_null_is_an_empty_value() -> None:
    assert found(packed(0, [record(None), record(b"b", 1)])).values == [b"", b"b"]


def test_claims_to_be_a_mark_are_told_where_they_are_looked_for() -> None:
    bad_name = [(b"\xff", b"")]  # which takes the slow way
    for first in (record(b"a"), record(b"a", headers=bad_name)):
        records = [
            first,
            record(b"", 1, headers=[(TICK, b"one")]),
            record(b"value", 2, headers=[(TICK, b"two")]),
            record(None, 3, headers=[(TICK, None)]),
            record(b"", 4, headers=[(TICK, b"1"), (TICK, b"2")]),
            record(b"", 5, headers=[(b"other", b"1")]),
        ]
        what = found(packed(0, records), marks=True)
        assert what.marks == {1: b"one", 2: b"", 3: b"", 4: b""}
        assert len(what.values) == 6
        assert found(packed(0, records)).marks == {}


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_batch_that_expands_too_far_is_refused_whole(codec: int) -> None:
    raw = packed(codec, [record(b"x" * 5_000), record(b"y", 1)])
    size = len(record(b"x" * 5_000)) + len(record(b"y", 1))
    assert len(found(raw, limit=size).values) == 2
    refused = [Span(TOO_LARGE, None, BASE, BASE + 1)]
    assert shown(found(raw, limit=size - 1)) == ([], [], refused, {})


@pytest.mark.parametrize("codec", [1, 3, 5, 7])
def test_a_batch_that_cannot_be_unpacked_is_refused_whole(codec: int) -> None:
    raw = batch([b""] * 3, BASE, attributes=APPENDED | codec, body=b"junk that is no frame")
    refused = [Span(UNREADABLE_BATCH, None, BASE, BASE + 2)]
    assert shown(found(raw)) == ([], [], refused, {})


def test_what_the_client_library_has_unpacked_is_as_it_is() -> None:
    content = [SimpleNamespace(value=value, offset=at) for at, value in ((4, b"a"), (6, None))]
    made = RecordBatch(Kind.DATA, 4, 7, 0, APPENDED, None, 2, memoryview(b""), content)
    assert Unpacker(marks=False).unpack(made) == Unpacked([b"a", b""], [4, 6], [], {})


@pytest.mark.parametrize("count", [1, 10_000])
def test_a_count_that_is_wrong_raises_nothing(count: int) -> None:
    raw = batch([record(b"a"), record(b"b", 1), record(b"c", 2)], BASE, count=count, last=2)
    what = found(raw)
    assert [bytes(one) for one in what.values] == [b"a", b"b", b"c"][:count]
    assert all(one.last < BASE + max(3, count) for one in what.refused)


@pytest.mark.parametrize("marks", [False, True])
@pytest.mark.parametrize("most", [1, 30])
def test_a_large_batch_is_read_in_pieces_and_only_the_bad_ones_are_walked(
    marks: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacker, "_PARSED_BYTES", 10)
    monkeypatch.setattr(unpacker, "_PIECE_BYTES", most)
    mark = record(None, 3, tail=sized(None) + varint(1) + sized(b"stream-dp-tick") + sized(b"m"))
    records = [record(b"a"), BAD, record(b"c", 2), mark, record(b"e", 4)]
    what = found(packed(1, records), marks=marks)
    refused = [Span(UNREADABLE_RECORD, None, BASE + 1, BASE + 1)]
    offsets = [BASE, BASE + 2, BASE + 3, BASE + 4]
    assert shown(what) == ([b"a", b"c", b"", b"e"], offsets, refused, {2: b"m"} if marks else {})


def test_more_records_than_a_batch_may_hold_are_refused_together() -> None:
    count = unpacker.LIMIT_RECORDS
    for more in (0, 1):
        what = found(packed(1, [record(b"")] * (count + more)))
        told = [(one.reason, one.first, one.last) for one in what.refused]
        assert told == ([(TOO_LARGE, BASE, BASE + count)] if more else [])
        assert len(what.values) == (0 if more else count)


@pytest.mark.parametrize("marks", [False, True])
def test_headers_without_end_are_read_in_bounded_memory(
    marks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    parsed_as_ever = Unpacker._parsed

    def parsed(self: Unpacker, plain: bytes, base: int) -> Any:
        asked.append(len(plain))
        return parsed_as_ever(self, plain, base)

    monkeypatch.setattr(Unpacker, "_parsed", parsed)
    tail = sized(b"value") + varint(4_000_000) + b"\x00\x01" * 4_000_000
    raw = packed(1, [record(b"small"), record(None, tail=tail), record(b"small")])
    assert found(raw, marks=marks).values == [b"small", b"value", b"small"]
    assert len(asked) == 2
    assert max(asked) < 100


@pytest.mark.parametrize("first", [b"k", b"\xff"], ids=["the fast way", "the slow way"])
@pytest.mark.parametrize("before", [MOST_HEADERS - 1, MOST_HEADERS])
def test_a_claim_behind_too_many_headers_is_none_either_way(before: int, first: bytes) -> None:
    heads = [(first, b""), *[(b"k", b"")] * (before - 1), (TICK, b"m")]
    what = found(packed(0, [record(b"", headers=heads)]), marks=True)
    assert what.marks == ({0: b"m"} if before < MOST_HEADERS else {})


def test_a_name_with_junk_in_it_is_not_the_name_of_a_mark() -> None:
    for name in (b"stream-dp\xff-tick", b"\xff" + TICK, TICK + b"\xff"):
        assert found(packed(0, [record(b"", headers=[(name, b"m")])]), marks=True).marks == {}


texts = st.text(max_size=5).filter(lambda text: text < "\ud800" or text > "\udfff")
text_headers = st.lists(st.tuples(texts, st.none() | st.binary(max_size=5)), max_size=3)
content = st.tuples(
    st.none() | st.binary(max_size=90), st.none() | st.binary(max_size=90), text_headers
)


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


GOOD = record(b"good")
FINE = WalkedRecord(None, b"good")


@pytest.mark.parametrize(
    "bad",
    [
        record(None, tail=varint(1_000) + b"x"), record(None, tail=sized(b"x" * 9)[:4]), record(None, tail=b""),
        record(None, tail=b"\xff" * 11), varint(0), varint(1) + b"\0", varint(3) + b"\0\0\0", varint(4) + b"\0\0\0\x01",
    ],
    ids=["too long", "cut", "no value", "eleven bytes", "nothing", "attributes alone", "no key", "a key alone"],
)  # fmt: skip
@pytest.mark.parametrize("wanted", [False, True])
def test_a_record_that_cannot_be_read_harms_no_other(bad: bytes, wanted: bool) -> None:
    assert list(walk(GOOD + bad + GOOD, 3, wanted)) == [FINE, None, FINE]


def test_what_belongs_to_the_next_record_is_not_read_as_this_ones() -> None:
    behind = varint(1) + b"\x01"
    assert next(walk(varint(3) + b"\0\0\0" + b"\x01\x01\x00" + behind, 1, False)) is None


@pytest.mark.parametrize("length", [varint(-1), varint(10**6), b"\xff" * 11])
def test_behind_a_length_that_is_wrong_nothing_is_read(length: bytes) -> None:
    assert list(walk(GOOD + length + GOOD, 3, False)) == [FINE]


def test_negative_lengths_inside_are_null() -> None:
    assert list(walk(record(None, tail=varint(-5) + varint(0)), 1, True)) == [
        WalkedRecord(None, None)
    ]


def test_lengths_may_be_written_longer_than_they_need_to_be() -> None:
    overlong = bytes([0x80 | (len(GOOD) - 1) << 1, 0x80, 0x80, 0x00]) + GOOD[1:]
    assert list(walk(overlong, 1, False)) == [FINE]


@pytest.mark.parametrize("count", [-3, 3])
def test_a_number_of_headers_that_is_wrong_gives_those_that_can_be_read(count: int) -> None:
    raw = record(None, tail=sized(b"v") + varint(count) + sized(b"k") + sized(b"1"))
    (found,) = walk(raw, 1, True)
    assert found == WalkedRecord(None, b"v", () if count < 0 else (("k", b"1"),))
