"""The reader of raw batches against bytes that a Kafka 4.3.1 stored, and what it does with damaged ones."""

import zlib

import pytest
from oracles.log_frames import COMMIT, Frame, FrameError, frames, marker, unpacked, values, varint

# Each of the first five: a value of 24 bytes under the key "k", a null, an empty value.
GOLDEN = {
    "plain": (
        "00000000000000000000005f0000000002ec5c784c000800000002000001a201a82ebe000001a201a82e"
        "c3ffffffffffffffffffff00000000000000033e000000026b306f6e656f6e656f6e656f6e656f6e656f"
        "6e656f6e656f6e65000c0000020101000c000004010000"
    ),
    "gzip": (
        "00000000000000030000005c0000000002cc601445000900000002000001a201a82ec9000001a201a82e"
        "d0ffffffffffffffffffff00000000000000031f8b0800e078026b02ffb363606060ca36c8cf4bc58a18"
        "7880d28c8c208a8591810100e2594dd72e000000"
    ),
    "snappy": (
        "000000000000000600000064000000000275df8b30000a00000002000001a201a82ed5000001a201a82e"
        "dbffffffffffffffffffff000000000000000382534e415050590000000001000000010000001f2e243e"
        "000000026b306f6e6552030038000c0000020101000c000004010000"
    ),
    "lz4": (
        "0000000000000009000000630000000002fd0a9c41000b00000002000001a201a82ee1000001a201a82e"
        "e7ffffffffffffffffffff000000000000000304224d187040ad1f000000af3e000000026b306f6e6503"
        "0002f000000c0000020101000c000004010000f2e6c67100000000"
    ),
    "zstd": (
        "000000000000000c0000005900000000027a70c48d000c00000002000001a201a82eec000001a201a82e"
        "f3ffffffffffffffffffff000000000000000328b52ffd202efd0000c83e000000026b306f6e65000c00"
        "00020101000c00000401000001007e0e09"
    ),
    "begun": (
        "000000000000000f0000003d0000000002b02bb5bd001800000000000001a201a82f07000001a201a82f"
        "0b000000000000000200000000000000000001160000000102760202680278"
    ),
    "commit": (
        "00000000000000100000004200000000028206bcb0003800000000000001a201a82f11000001a201a82f"
        "1100000000000000020000ffffffff000000012000000008000000010c00000000000000"
    ),
    "aborted": (
        "00000000000000110000003d0000000002cfd9f21c001800000000000001a201a82f0f000001a201a82f"
        "2b000000000000000200000000000100000001160000000102760202680278"
    ),
    "abort": (
        "000000000000001200000042000000000275650c36003800000000000001a201a82f31000001a201a82f"
        "3200000000000000020000ffffffff000000012000000008000000000c00000000000000"
    ),
}
LOG = bytes.fromhex("".join(GOLDEN.values()))
THREE = [b"one" * 8, None, b""]


def frame(packed: bytes, codec: int, count: int = 1) -> Frame:
    return Frame(0, codec, count - 1, 0, -1, -1, count, packed)


def test_a_log_of_a_broker() -> None:
    found = list(frames(LOG))
    assert [one.base for one in found] == [0, 3, 6, 9, 12, 15, 16, 17, 18]
    assert [one.last for one in found] == [2, 5, 8, 11, 14, 15, 16, 17, 18]
    assert [one.codec for one in found] == [0, 1, 2, 3, 4, 0, 0, 0, 0]
    assert [one.transactional for one in found] == [False] * 5 + [True] * 4
    assert [one.control for one in found] == [False] * 6 + [True, False, True]
    assert sorted(one.stamp for one in found) == [one.stamp for one in found]
    assert {one.producer for one in found[:5]} == {-1}
    assert len({one.producer for one in found[5:]}) == 1
    assert [values(one) for one in found[:5]] == [THREE] * 5
    assert values(found[5]) == values(found[7]) == [b"v"]  # behind it lies a header
    assert (marker(found[6]), marker(found[8])) == (COMMIT, 1 - COMMIT)


@pytest.mark.parametrize("cut", [1, 61, 70])
def test_a_cut_batch_at_the_end_is_left_out(cut: int) -> None:
    assert len(list(frames(LOG[:-cut]))) == 8


def test_another_format_is_told() -> None:
    with pytest.raises(FrameError, match="format 1"):
        list(frames(LOG[:16] + b"\x01" + LOG[17:]))


@pytest.mark.parametrize("codec", range(5))
def test_more_than_the_limit_is_not_unpacked(codec: int) -> None:
    one = next(one for one in frames(LOG) if one.codec == codec)
    size = len(unpacked(one))
    assert len(unpacked(one, size)) == size
    with pytest.raises(FrameError):
        unpacked(one, size - 1)


@pytest.mark.parametrize("codec", [1, 3, 4, 5])
def test_what_is_not_packed_so_is_told(codec: int) -> None:
    with pytest.raises(FrameError):
        values(frame(b"certainly not", codec))


def test_a_gzip_that_ends_in_the_middle_is_told_and_what_follows_it_is_not() -> None:
    writer = zlib.compressobj(wbits=31)
    member = writer.compress(bytes.fromhex("0e00000001027600")) + writer.flush()
    assert values(frame(member + b"trailing", 1)) == [b"v"]
    assert values(frame(member + member, 1, 2)) == [b"v", b"v"]
    with pytest.raises(FrameError, match="middle"):
        values(frame(member[:-3], 1))


def test_a_record_that_cannot_be_read_costs_itself_alone() -> None:
    good = bytes.fromhex("0e00000001027600")
    longer = bytes.fromhex("0e00000001407600")  # a value of 32 bytes in a record of 7
    assert values(frame(good + longer + good, 0, 3)) == [b"v", None, b"v"]
    assert values(frame(good + bytes.fromhex("01") + good, 0, 3)) == [b"v", None, None]
    assert values(frame(good + good[:-1], 0, 2)) == [b"v", None]


def test_numbers() -> None:
    for shown, number in (
        ("00", 0), ("01", -1), ("02", 1), ("8000", 0),
        ("feffffff0f", 2**31 - 1), ("ffffffff0f", -(2**31)),
    ):  # fmt: skip
        assert varint(bytes.fromhex(shown), 0) == (number, len(shown) // 2)
    for endless in ("", "80", "ff" * 11):
        with pytest.raises(FrameError):
            varint(bytes.fromhex(endless), 0)
