"""Where batches begin and end, and what their headers say."""

import struct
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c
from hypothesis import given
from hypothesis import strategies as st
from unit.kafka.source.record_worlds import (
    ABORT,
    APPENDED,
    COMMIT,
    CONTROL,
    batch,
    marker,
    old,
    parsed,
    record,
)

from stream_dp.journal.dead_letters import UNREADABLE_RECORD, Span
from stream_dp.kafka.source import record_batches as batches_of_format_2
from stream_dp.kafka.source.record_batches import Kind, Unpacked, record_batches
from stream_dp.kafka.source.unpacker import LIMIT_RECORDS, Unpacker


def built(values: list[bytes], codec: int = 0, **how: int) -> bytes:
    """A batch by the client library's own builder."""
    made = DefaultRecordBatchBuilder(
        magic=2, compression_type=codec, is_transactional=how.get("producer", -1) >= 0,
        producer_id=how.get("producer", -1), producer_epoch=-1, base_sequence=-1, batch_size=10**6,
    )  # fmt: skip
    for at, value in enumerate(values):
        made.append(at, 5, None, value, [])
    return bytes(made.build())


def test_a_header_says_what_lies_where() -> None:
    raw = batch([record(b"a"), record(b"b", 1)], base=17, stamp=1_234)
    found = parsed(raw)
    assert (found.kind, found.base, found.next, found.stamp) == (Kind.DATA, 17, 19, 1_234)
    assert (found.appended, found.codec, found.producer, found.records) == (True, 0, None, 2)
    assert bytes(found.raw) == raw


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=5), st.sampled_from([0, 1, 2, 3, 4]))
def test_what_the_client_library_writes_is_read(values: list[bytes], codec: int) -> None:
    found = parsed(built(values, codec))
    assert (found.base, found.next, found.stamp) == (0, len(values), 5)
    assert (found.appended, found.codec, found.records) == (False, codec, len(values))
    assert found.producer is None
    assert parsed(built(values, codec, producer=77)).producer == 77


def test_a_producer_that_only_numbers_its_batches_is_in_no_transaction() -> None:
    raw = batch([record(b"a")], producer=77, attributes=APPENDED)
    plain = bytearray(raw)
    plain[21:23] = struct.pack(">h", APPENDED)
    plain[17:21] = struct.pack(">I", calc_crc32c(bytes(plain[21:])))
    assert parsed(raw).producer == 77
    assert parsed(bytes(plain)).producer is None


def test_batches_follow_each_other_and_the_cut_one_at_the_end_is_left() -> None:
    raw = [batch([record(b"a")], base) for base in range(4)]
    whole = b"".join(raw)
    for end in range(len(whole) + 1):
        found = list(record_batches(whole[:end], 0))
        assert [one.base for one in found] == list(range(end // len(raw[0])))


def test_what_lies_before_the_position_is_left_out_and_a_batch_around_it_is_whole() -> None:
    raw = batch([record(b"a")], 0) + batch([record(b"%d" % n, n) for n in range(5)], 1)
    assert [(one.base, one.next) for one in record_batches(raw, 3)] == [(1, 6)]
    assert list(record_batches(raw, 6)) == []


def test_a_hole_that_compaction_left_is_part_of_its_batch() -> None:
    raw = batch([record(b"a")], 4, count=1, last=9) + batch([record(b"b")], 14)
    assert [(one.base, one.next) for one in record_batches(raw, 2)] == [(4, 14), (14, 15)]


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (marker(9, 1_000, 7, ABORT), Kind.ABORT),
        (marker(9, 1_000, 7, COMMIT), Kind.COMMIT),
        (marker(9, 1_000, 7, 2), Kind.OTHER),
        (batch([], 9, count=1, attributes=CONTROL, producer=7), Kind.OTHER),
        (batch([record(b"", key=b"\0")], 9, count=1, attributes=CONTROL, producer=7), Kind.OTHER),
        (batch([b"\xff" * 20], 9, count=1, attributes=CONTROL, producer=7), Kind.OTHER),
    ],
)
def test_control_batches_say_what_they_end(raw: bytes, kind: Kind) -> None:
    what = parsed(raw)
    assert (what.kind, what.producer, what.base, what.next) == (kind, 7, 9, 10)


def test_older_formats_are_told_with_their_offsets() -> None:
    for magic in (0, 1):
        raw = old(5, b"x" * 200, magic) + batch([record(b"a")], 6)
        assert [(one.kind, one.base, one.next) for one in record_batches(raw, 3)] == [
            (Kind.FOREIGN, 3, 6),
            (Kind.DATA, 6, 7),
        ]
        assert [one.kind for one in record_batches(raw, 6)] == [Kind.DATA]


@pytest.mark.parametrize("magic", [0, 1])
def test_the_smallest_message_of_an_older_format_is_told_too(magic: int) -> None:
    (found,) = record_batches(old(5, b"", magic), 5)
    assert (found.kind, found.base, found.next) == (Kind.FOREIGN, 5, 6)


def castagnoli(data: bytes) -> int:
    rest = 0xFFFFFFFF
    for byte in data:
        rest ^= byte
        for _ in range(8):
            rest = (rest >> 1) ^ (0x82F63B78 if rest & 1 else 0)
    return rest ^ 0xFFFFFFFF


@pytest.fixture(params=["by instruction", "by table"])
def checked_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Checksums with the package for them, which takes bytes alone, and without it."""

    def value(data: bytes) -> int:
        assert type(data) is bytes
        return castagnoli(data)

    package = SimpleNamespace(value=value) if request.param == "by instruction" else None
    monkeypatch.setitem(sys.modules, "google_crc32c.cext", package)
    monkeypatch.setitem(sys.modules, "google_crc32c", package)
    batches_of_format_2._checksum.cache_clear()
    yield
    batches_of_format_2._checksum.cache_clear()


@given(st.binary(max_size=300), st.integers(0, 20))
def test_the_checksum_that_is_installed_is_crc_32c(data: bytes, at: int) -> None:
    assert batches_of_format_2._checksum()(memoryview(data)[at:]) == castagnoli(data[at:])


@pytest.mark.usefixtures("checked_by")
def test_a_batch_that_was_changed_is_an_error() -> None:
    raw = batch([record(b"a")])
    assert parsed(raw).records == 1
    for at in range(21, len(raw)):  # what the checksum is of
        changed = bytearray(raw)
        changed[at] ^= 1
        with pytest.raises(ValueError, match="damaged"):
            list(record_batches(bytes(changed), 0))


TENS = 10


def tens(stamp: int) -> range:
    return range(stamp // TENS * TENS, stamp // TENS * TENS + TENS)


def joined(*raw: bytes, position: int = 0) -> list[tuple[int, int, int]]:
    """The places and stamps of what is read; each one must be whole by the client library's own measure."""
    found = list(record_batches(b"".join(raw), position, tens))
    for one in found:
        if one.kind is Kind.DATA:
            theirs = DefaultRecordBatch(bytes(one.raw))
            assert one.records == one.next - one.base == len(list(theirs))
            assert (theirs.base_offset, theirs.next_offset) == (one.base, one.next)
            assert theirs.max_timestamp == one.stamp
    return [(one.base, one.next, one.stamp) for one in found]


def two(base: int, stamp: int, **how: int) -> bytes:
    return batch([record(b"%d" % base), record(b"b", 1)], base, stamp, **how)  # type: ignore[arg-type]


def test_plain_batches_of_one_cell_are_joined_in_their_order() -> None:
    raw = [two(0, 20), two(2, 25), two(4, 21), two(6, 30)]
    assert joined(*raw) == [(0, 6, 25), (6, 8, 30)]
    (first, _) = record_batches(b"".join(raw), 0, tens)
    values = [one.value for one in DefaultRecordBatch(bytes(first.raw))]
    assert values == [b"0", b"b", b"2", b"b", b"4", b"b"]


@pytest.mark.parametrize(
    "other",
    [
        two(2, 20, producer=7), two(2, 20, attributes=0), two(2, 20, attributes=APPENDED | 0x40), two(2, 30),
        two(2, 19), marker(2, 20, 7), old(2, b"x" * 80), batch([record(b"a")], 2, 20, last=4),
    ],
    ids=["transaction", "times", "a bit", "later", "earlier", "marker", "old", "compacted"],
)  # fmt: skip
def test_what_is_not_plain_or_of_another_cell_stands_alone(other: bytes) -> None:
    raw = two(0, 20) + other + two(7, 20) + two(9, 20)
    alone, apart = [list(record_batches(raw, 0, cell)) for cell in (tens, None)]
    assert alone[:2] == apart[:2]
    assert alone[2].base == 7  # nothing is joined to it either


def test_a_batch_around_the_position_is_not_joined() -> None:
    assert joined(two(0, 20), two(2, 20), two(4, 20), position=1) == [(0, 2, 20), (2, 6, 20)]


def test_batches_behind_a_hole_are_not_joined() -> None:
    assert joined(two(0, 20), two(3, 20)) == [(0, 2, 20), (3, 5, 20)]


def test_joined_batches_are_bounded() -> None:
    raw = [batch([record(b"x" * 60_000)], base, 20) for base in range(10)]
    found = list(record_batches(b"".join(raw), 0, tens))
    assert [one.next - one.base for one in found] == [5, 5]


def test_a_large_batch_is_not_copied_into_another() -> None:
    large = batch([record(b"x" * 70_000), record(b"y", 1)], 2, 20)
    assert joined(two(0, 20), large, two(4, 20), two(6, 20)) == [
        (0, 2, 20), (2, 4, 20), (4, 8, 20),
    ]  # fmt: skip
    assert joined(large, two(4, 20), position=2) == [(2, 4, 20), (4, 6, 20)]


@pytest.mark.parametrize("more", [0, 1])
def test_no_batch_is_refused_for_the_records_of_another_one(more: int) -> None:
    crowd = [record(None)] * (LIMIT_RECORDS + more)
    raw = two(0, 20) + batch(crowd, 2, 20) + two(2 + len(crowd), 20)
    found = [Unpacker(marks=False).unpack(one) for one in record_batches(raw, 0, tens)]
    told = [(len(one.values), sum(span.records for span in one.refused)) for one in found]
    assert told == [(2, 0), (0, len(crowd)) if more else (len(crowd), 0), (2, 0)]


def test_batches_are_joined_up_to_a_number_of_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches_of_format_2, "_JOINED_RECORDS", 4)
    raw = [two(base, 20) for base in (0, 2, 4)]
    assert joined(*raw) == [(0, 4, 20), (4, 6, 20)]


@pytest.mark.parametrize(
    "junk",
    [
        *[struct.pack(">qi", 2, length) + bytes(60) for length in (-(2**31), -62, -12, -1, 0, 4)],
        *[struct.pack(">qiib", 2, length, 0, 2) + bytes(80) for length in (5, 48)],
        batch([record(b"a")], 2, last=-1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("before", [b"", two(0, 20)], ids=["alone", "behind a run"])
def test_a_length_that_leads_nowhere_is_an_error(before: bytes, junk: bytes) -> None:
    with pytest.raises(ValueError, match=r"header|damaged"):
        list(record_batches(before + junk, 0, tens))


@given(st.binary(max_size=300), st.integers(0, 10))
def test_junk_gives_batches_or_an_error_and_always_ends(junk: bytes, position: int) -> None:
    raw = batch([record(b"a")], 0) + junk
    try:
        found = list(record_batches(raw, position, tens))
    except ValueError:
        return
    assert all(one.next > position for one in found)
    places = [one.next for one in found]
    assert places == sorted(set(places))


def test_a_batch_that_is_kept_lets_its_fetch_go() -> None:
    found = parsed(batch([record(b"a")]))
    assert isinstance(found.raw, memoryview)
    kept = found.kept()
    assert kept.raw == found.raw
    assert kept.raw.obj is not found.raw.obj
    assert kept._replace(raw=found.raw) == found


def test_what_lies_behind_an_offset() -> None:
    refused = [Span(UNREADABLE_RECORD, None, 2, 2), Span(UNREADABLE_RECORD, None, 5, 9)]
    whole = Unpacked([b"1", b"3", b"4"], [1, 3, 4], refused, {0: b"x", 2: b"y"})
    assert whole.behind(0) == whole
    assert whole.behind(4) == Unpacked([b"4"], [4], [refused[1]], {0: b"y"})
    assert whole.behind(7) == Unpacked([], [], [refused[1]._replace(first=7)], {})
    assert whole.behind(10) == Unpacked([], [], [], {})
