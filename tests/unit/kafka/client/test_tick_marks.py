"""Tick marks: made by the operator's key for one topic, partition and grid, and by nobody else."""

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.core.time import TickGrid
from stream_dp.kafka.client.tick_marks import TICK_HEADER, UNNAMED, TickMarks, claimed

KEY = bytes(range(32))
GRID = TickGrid(origin=1_000, step=60_000, horizon=500)
FEED = "0123456789abcdef" * 2
MARKS = TickMarks(KEY, "flights", GRID, FEED)


def by_hand(key: bytes, said: str) -> bytes:
    """The signature as docs/replay.md describes it."""
    return hmac.new(key, said.encode(), hashlib.sha256).hexdigest().encode()


def test_a_mark_names_its_feed() -> None:
    assert MARKS.read_whole(3, MARKS.sign(3, 17)) == (17, FEED)
    other = TickMarks(KEY, "flights", GRID)
    assert other.read_whole(3, MARKS.sign(3, 17)) == (17, FEED)
    assert MARKS.read_whole(3, other.sign(3, 17)) == (17, UNNAMED)
    assert MARKS.read_whole(2, MARKS.sign(3, 17)) is None
    swapped = MARKS.sign(3, 17).replace(FEED.encode(), UNNAMED.encode())
    assert MARKS.read_whole(3, swapped) is None


def test_the_form_is_the_published_one() -> None:
    said = f"stream-dp tick mark 1\nflights\n3\n1000\n60000\n17\n{FEED}"
    assert MARKS.sign(3, 17) == b"1.17.%s.%s" % (FEED.encode(), by_hand(KEY, said))


@given(partition=st.integers(0, 2**31 - 1), tick=st.integers(0, 499))
def test_a_mark_is_read_in_its_own_place_only(partition: int, tick: int) -> None:
    mark = MARKS.sign(partition, tick)
    assert TickMarks(KEY, "flights", GRID).read(partition, mark) == tick
    assert MARKS.read(partition + 1, mark) is None
    for other in (
        TickMarks(bytes(32), "flights", GRID),
        TickMarks(KEY, "flights2", GRID),
        TickMarks(KEY, "flights", TickGrid(1_001, 60_000, 500)),
        TickMarks(KEY, "flights", TickGrid(1_000, 60_001, 500)),
    ):
        assert other.read(partition, mark) is None


def test_a_mark_beyond_the_horizon_is_none_and_is_not_made() -> None:
    longer = TickMarks(KEY, "flights", TickGrid(1_000, 60_000), FEED)
    assert MARKS.read(0, longer.sign(0, 499)) == 499
    assert MARKS.read(0, longer.sign(0, 500)) is None
    for tick in (-1, 500):
        with pytest.raises(ValueError, match="tick of the clock"):
            MARKS.sign(0, tick)


@given(at=st.integers(0, 200), change=st.integers(1, 255))
def test_no_byte_of_a_mark_can_be_changed(at: int, change: int) -> None:
    mark = bytearray(MARKS.sign(0, 17))
    mark[at % len(mark)] ^= change
    assert MARKS.read(0, bytes(mark)) is None


@pytest.mark.parametrize(
    "value",
    [
        b"", b"17", b"soon", b"9" * 18, b"1.17", b"\xff" * 101,
        MARKS.sign(0, 17) + b"\n", b" " + MARKS.sign(0, 17), MARKS.sign(0, 17).upper(),
        MARKS.sign(0, 17)[:-1], b"2" + MARKS.sign(0, 17)[1:],
        MARKS.sign(0, 17).replace(b"1.17.", b"1.017."),
        MARKS.sign(0, 17).replace(b"1.17.", b"1.%d." % 10**18),
        MARKS.sign(0, 17).replace(b"1.17.", b"1.+17."),
    ],
)  # fmt: skip
def test_what_is_malformed_or_absurd_is_no_mark(value: bytes) -> None:
    assert MARKS.read(0, value) is None


def test_a_record_claims_to_be_a_mark_by_one_header_and_no_value() -> None:
    assert claimed((), None) is None
    assert claimed((("trace", b"x"),), b"{}") is None
    for empty in (b"", None):
        assert claimed((("trace", b"x"), (TICK_HEADER, b"m")), empty) == b"m"
        assert claimed(((TICK_HEADER, None),), empty) == b""
        assert claimed(((TICK_HEADER, b"m"), (TICK_HEADER, b"m")), empty) == b""
    assert claimed(((TICK_HEADER, b"m"),), b"{}") == b""


def test_neither_key_nor_signature_is_shown() -> None:
    assert KEY.hex() not in repr(MARKS) + repr(vars(MARKS))
    assert "\\x" not in repr(MARKS)
