"""What is written hangs on kinds, versions and field names, never on the names of classes."""

from dataclasses import dataclass, field, make_dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pytest

from stream_dp.core.neighbors import Neighbors
from stream_dp.core.serial import Codec, canonical
from stream_dp.core.wire import wire
from stream_dp.errors import FailClosed, UnknownFormat


@wire("count", 1)
@dataclass(frozen=True, slots=True)
class Count:
    """A state as it was once written."""

    total: int
    scale: Fraction


VALUE = Count(5, Fraction(1, 3))
BYTES = Codec([Count]).encode(VALUE)


def codec(version: int, *fields: Any, kind: str = "count", **options: Any) -> Codec:
    """A codec of one type of another name, with these fields."""
    made: type = make_dataclass("Renamed", fields, frozen=True)
    return Codec([wire(kind, version)(made)], **options)


def test_another_class_name_changes_no_byte() -> None:
    later = codec(1, ("scale", Fraction), ("total", int))  # and another order
    restored = later.decode(BYTES)
    assert (type(restored).__name__, restored.total, restored.scale) == ("Renamed", 5, VALUE.scale)
    assert later.encode(restored) == BYTES
    assert b"Count" not in BYTES
    assert Codec([Count]).decode(BYTES) == VALUE


def test_a_field_added_with_a_default_reads_old_bytes_and_writes_the_same() -> None:
    fields = [("total", int), ("scale", Fraction), ("offset", tuple, field(default=()))]
    later = codec(1, *fields)
    assert later.decode(BYTES).offset == ()
    assert later.encode(later.decode(BYTES)) == BYTES


def test_a_field_that_is_used_is_not_read_by_a_version_without_it() -> None:
    fields = [("total", int), ("scale", Fraction), ("offset", int, field(default=0))]
    later = codec(1, *fields)
    [made] = later.types
    with pytest.raises(UnknownFormat, match=r"kind 'count' has other fields.*reads scale, total:"):
        Codec([Count]).decode(later.encode(made(5, Fraction(1), offset=2)))


def test_a_field_without_a_default_must_be_there() -> None:
    with pytest.raises(UnknownFormat, match="other fields"):
        codec(1, ("total", int), ("scale", Fraction), ("more", int)).decode(BYTES)


@pytest.mark.parametrize(("written", "reads"), [(2, 1), (1, 2), (9, 1)])
def test_another_version_is_refused_and_says_what_to_do(written: int, reads: int) -> None:
    fields = [("total", int), ("scale", Fraction)]
    [made] = (writer := codec(written, *fields)).types
    message = f"has version {written}, and .* reads version {reads}: use the version that wrote it"
    with pytest.raises(UnknownFormat, match=message) as caught:
        codec(reads, *fields).decode(writer.encode(made(5, VALUE.scale)))
    assert isinstance(caught.value, FailClosed)
    assert caught.value.exit_code == 4


def test_an_old_version_goes_through_its_upgrades() -> None:
    def split(old: dict[str, Any]) -> dict[str, Any]:
        return {
            "total": old["total"],
            "top": old["scale"].numerator,
            "low": old["scale"].denominator,
        }

    def doubled(old: dict[str, Any]) -> dict[str, Any]:
        return old | {"total": 2 * old["total"]}

    fields = [("total", int), ("top", int), ("low", int)]
    later = codec(3, *fields, upgrades={"count": {1: split, 2: doubled}})
    restored = later.decode(BYTES)
    assert (restored.total, restored.top, restored.low) == (10, 1, 3)
    for upgrades in ({1: split}, {2: doubled}, {}):  # a gap is no way
        with pytest.raises(UnknownFormat, match=r"has version [12], and .* reads version 3"):
            codec(3, *fields, upgrades={"count": upgrades}).decode(BYTES)


def test_an_unknown_kind_is_refused() -> None:
    """And what the bytes name is looked up in the list, never anywhere else."""
    with pytest.raises(
        UnknownFormat, match=r"a part of the kind 'count'.* reads other: use the ver"
    ):
        codec(1, ("total", int), ("scale", Fraction), kind="other").decode(BYTES)
    for name in ("Fraction", "builtins.list", "fractions.Fraction", "Count"):
        forged = msgspec.msgpack.encode({"$": name, "version": 1, "fields": {}})
        with pytest.raises(UnknownFormat):
            Codec([Count]).decode(forged)


def test_an_unknown_member_of_an_enumeration_is_refused() -> None:
    @wire("neighbors", 1)
    class Later(StrEnum):
        ADD_REMOVE = "add_remove"
        USER = "user"

    reader, writer = Codec([Neighbors]), Codec([Later])
    assert reader.decode(writer.encode(Later.ADD_REMOVE)) is Neighbors.ADD_REMOVE
    with pytest.raises(UnknownFormat, match="neighbors' has an unknown value"):
        reader.decode(writer.encode(Later.USER))


def test_a_type_needs_a_label_of_its_own_and_a_kind_of_its_own() -> None:
    @dataclass(frozen=True)
    class Heir(Count):
        pass

    with pytest.raises(TypeError, match=r"Heir has no kind and version.*@wire"):
        Codec([Heir])
    with pytest.raises(TypeError, match="Heir"):
        Codec([Count]).encode(Heir(1, Fraction(1)))
    with pytest.raises(ValueError, match="two types are registered for the kind 'count'"):
        Codec([Count, *codec(1, ("total", int)).types])


def test_canonical_bytes_say_what_it_rests_on() -> None:
    def made(version: int, value: int = 3) -> bytes:
        @wire("below", version)
        class Below:
            pass

        @wire("middle", 1, rests_on=(Below,))
        class Middle:
            pass

        @wire("above", 1, rests_on=(Middle,))
        @dataclass(frozen=True)
        class Above:
            value: int

        return canonical(Above(value))

    assert made(1) == made(1)
    assert len({made(1), made(2), made(1, value=4)}) == 3
    assert b"Above" not in made(1)
    assert canonical(np.arange(3)) == canonical(np.arange(3))
    with pytest.raises(TypeError, match="object has no kind"):
        canonical(object())


def test_every_kind_of_value_is_kept_exactly() -> None:
    value = (None, True, -5, 2**200, "text", b"bytes", Fraction(-7, 3), {3: (1, 2)}, ())
    assert Codec([]).decode(Codec([]).encode(value)) == value
    array = np.arange(6, dtype=np.int64).reshape(2, 3) - 2**62
    back = Codec([]).decode(Codec([]).encode(array))
    np.testing.assert_array_equal(back, array)
    assert back.dtype == np.int64
    back += 1  # a restored array is one's own
