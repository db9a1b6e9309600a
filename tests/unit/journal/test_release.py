"""The form of a release, with windows or without: its exact bytes, what is read from them, and what is refused."""

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.core.time import TickGrid
from stream_dp.engine.cut_changes import selected
from stream_dp.engine.series import Series, SeriesView
from stream_dp.errors import FailClosed, UsageError
from stream_dp.journal.commit import Release
from stream_dp.journal.release import (
    VERSION,
    Numbers,
    Released,
    Shape,
    content,
    read,
    read_head,
    release_of,
    told_number,
    write,
)
from stream_dp.mechanisms.linear.counter import Counter

GRID = TickGrid(1_357_034_400_000, 3_600_000)
KEYS = ("ATL", "Å b", "other")
ONE = {"v": 1, "sequence": 12, "series": "s", "tick": 4, "end": "2013-01-01T15:00:00Z"}
REST = {"band": 37, "confidence": 0.95}


def body(shape: Shape, keys: tuple[str, ...], answer: list[int], *, private: bool = True) -> bytes:
    mechanism: Counter = None  # type: ignore[assignment]  # a body is made without it
    series = Series("s", mechanism, slice(0, 3), keys, shape, lambda tick, state: 37, 0.95, private)
    return series.body(GRID, 12, 4, None, np.array(answer))


@pytest.mark.parametrize(
    ("shape", "keys", "answer", "shown"),
    [
        (Shape.SCALAR, ("",), [7], '"value":7'),
        (Shape.SCALAR, ("",), [-7], '"value":0'),
        (Shape.HISTOGRAM, KEYS, [3, -1, 0], '"values":{"ATL":3,"Å b":0,"other":0}'),
        (Shape.FLAGS, KEYS, [1, 0, 1], '"fired":["ATL","other"]'),
        (Shape.FLAGS, KEYS, [0, 0, 0], '"fired":[]'),
    ],
)
def test_the_bytes_of_each_shape(
    shape: Shape, keys: tuple[str, ...], answer: list[int], shown: str
) -> None:
    """To the byte: what was published once is never written in another form."""
    begin = '{"v":1,"sequence":12,"series":"s","tick":4,"end":"2013-01-01T15:00:00Z"'
    text = f'{begin},{shown},"band":37,"confidence":0.95'
    assert body(shape, keys, answer) == (text + "}").encode()
    assert body(shape, keys, answer, private=False) == (text + ',"not_private":true}').encode()
    assert read(body(shape, keys, answer)).shape is shape


def counted(answer: list[int]) -> bytes:
    mechanism: Counter = None  # type: ignore[assignment]  # a body is made without it
    series = Series(
        "s", mechanism, slice(0, 3), KEYS, Shape.FLAGS, lambda *_: 37, 0.95, counts_band=9
    )
    return series.body(GRID, 12, 4, None, np.array(answer))


def test_counts_stand_beside_what_fired() -> None:
    begin = '{"v":1,"sequence":12,"series":"s","tick":4,"end":"2013-01-01T15:00:00Z"'
    end = '"band":37,"counts_band":9,"confidence":0.95}'
    told = counted([1, 0, 1, 57, 0, -4])
    assert told.decode() == f'{begin},"fired":["ATL","other"],"counts":{{"ATL":57,"other":0}},{end}'
    none = counted([0, 0, 0, 0, 0, 0])
    assert none.decode() == f'{begin},"fired":[],"counts":{{}},{end}'
    assert (read(told).shape, read(told).counts) == (Shape.FLAGS, {"ATL": 57, "other": 0})


@pytest.mark.parametrize(
    "wrong",
    [
        {"fired": ["a"], "counts": {"a": 3}},
        {"fired": ["a"], "counts": {"b": 3}, "counts_band": 3},
        {"fired": ["a", "b"], "counts": {"b": 3, "a": 1}, "counts_band": 3},
        {"value": 3, "counts": {}, "counts_band": 3},
    ],
)
def test_counts_are_those_of_what_fired(wrong: dict[str, Any]) -> None:
    with pytest.raises(FailClosed, match="is no release"):
        read(json.dumps({**ONE, **REST, **wrong}).encode())


@pytest.mark.parametrize("shape", Shape)
@pytest.mark.parametrize("entries", [2, 4])
def test_an_answer_of_another_length_is_no_release(shape: Shape, entries: int) -> None:
    with pytest.raises(ValueError, match="one entry for each key"):
        content(shape, KEYS, np.ones(entries, np.int64))


WIDE = tuple(f'k"{at}é' for at in range(300))
COUNTS = st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=300, max_size=300) | st.lists(
    st.integers(-12, 120), min_size=300, max_size=300
)


@given(
    COUNTS, COUNTS, st.sampled_from([Fraction(1), Fraction(5), Fraction(10**17), Fraction(1, 50)])
)
def test_many_numbers_are_written_as_the_encoder_writes_each(
    first: list[int], second: list[int], unit: Fraction
) -> None:
    """By key and in order, one answer after the other: what the first left behind shows in no other."""
    named, listed = Numbers(WIDE, array=False, unit=unit), Numbers(WIDE, array=True, unit=unit)
    for counts in (first, second, first):
        answer = np.array(counts, dtype=np.int64)
        told = [told_number(count, unit) for count in counts]
        texts = [str(number) for number in told]
        assert bytes(listed.text(answer)).decode() == f"[{','.join(texts)}]"
        by_key = [
            f"{json.dumps(key, ensure_ascii=False)}:{text}"
            for key, text in zip(WIDE, texts, strict=True)
        ]
        assert bytes(named.text(answer)).decode() == f"{{{','.join(by_key)}}}"


def test_the_bytes_of_a_wide_release() -> None:
    """With as many entries as are written in one pass: the form is that of few."""
    answer = [at * at - 50 for at in range(300)]
    found = body(Shape.HISTOGRAM, WIDE, answer)
    values = {key: max(0, count) for key, count in zip(WIDE, answer, strict=True)}
    whole = {**ONE, "values": values, **REST}
    assert found == json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode()
    with pytest.raises(ValueError, match="one entry for each key"):
        body(Shape.HISTOGRAM, WIDE, answer[1:])


_CONTENT = st.one_of(
    st.integers(-(10**30), 10**30).map(lambda value: {"value": value}),
    st.dictionaries(st.text(), st.integers()).map(lambda values: {"values": values}),
    st.lists(st.text()).map(lambda fired: {"fired": tuple(fired)}),
)


@given(_CONTENT, st.text(), st.integers(0, 2**63), st.booleans())
def test_what_is_written_is_read(shown: dict[str, Any], name: str, n: int, mark: bool) -> None:
    released = Released(
        v=VERSION, sequence=n, series=name, tick=4, end=GRID.end_text(4), **shown, band=37, confidence=0.95,
        not_private=mark,
    )  # fmt: skip
    written = write(released)
    assert read(written) == released
    plain = json.loads(written)
    assert plain.items() >= {**ONE, "sequence": n, "series": name, **REST}.items()
    assert plain.keys() - ONE.keys() - REST.keys() == shown.keys() | (
        {"not_private"} if mark else set()
    )
    assert release_of(written) == Release(n, name, 4, written)
    assert read_head(written).end_ms == GRID.end(4)


def told(what: dict[str, Any]) -> bytes:
    return json.dumps(what).encode()


@pytest.mark.parametrize(
    "bad",
    [
        b"hello",
        told({}),
        told({key: value for key, value in ONE.items() if key != "v"} | {"value": 1} | REST),
        told(ONE | REST),
        told(ONE | REST | {"value": 1, "fired": []}),
        told(ONE | REST | {"value": True}),
        told(ONE | REST | {"values": {"secret": True}}),
        told(ONE | REST | {"fired": {"secret": True}}),
        told(ONE | REST | {"value": 1, "end": "2013-01-01T15:00:00"}),
        told(ONE | REST | {"value": 1, "sequence": -1}),
        told(ONE | {"value": 1, "band": 37}),
    ],
)
def test_what_is_no_release_is_refused_and_not_repeated(bad: bytes) -> None:
    with pytest.raises(FailClosed, match="the last line is no release; bring it back") as refused:
        read(bad, "the last line")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("reading", [read, read_head, release_of])
@pytest.mark.parametrize(
    "later", [{"v": 2}, {"v": 0, "values": [1]}, {**ONE, "v": 2, "value": 1} | REST]
)
def test_another_form_is_refused_with_what_to_do(reading: Any, later: dict[str, Any]) -> None:
    with pytest.raises(FailClosed, match=r"form \d of releases.*reads form 1: use the version"):
        reading(told(later))


def test_a_field_that_is_added_is_passed_over() -> None:
    assert read(told(ONE | REST | {"value": 1, "later": [1]})).value == 1


BEGIN = '{"v":1,"sequence":12,"series":"s","tick":4,"end":"2013-01-01T15:00:00Z","windows":'


def windowed(keys: tuple[str, ...], *, private: bool = True) -> Series:
    """A single tick and a day; bands of 3 and 9, and 1 more with each tick."""
    mechanism: Counter = None  # type: ignore[assignment]  # a body is made without it
    views = (
        SeriesView("tick", keys, lambda tick, state: 3 + tick),
        SeriesView("24h", keys, lambda tick, state: 9 + tick),
    )
    return Series(
        "s", mechanism, slice(0, len(keys)), keys, Shape.WINDOWS, lambda *_: 0, 0.95, private, views=views
    )  # fmt: skip


def test_the_bytes_of_windows_of_one_value() -> None:
    """To the byte, each with its band; no count is below 0."""
    body = windowed(("",)).body(GRID, 12, 4, None, np.array([-7, 40]))
    shown = '{"tick":{"value":0,"band":7},"24h":{"value":40,"band":13}}'
    assert body.decode() == f'{BEGIN}{shown},"confidence":0.95}}'
    assert read(body).shape is Shape.WINDOWS
    marked = windowed(("",), private=False).body(GRID, 12, 4, None, np.array([-7, 40]))
    assert marked.decode() == f'{BEGIN}{shown},"confidence":0.95,"not_private":true}}'


def test_the_bytes_of_windows_by_key() -> None:
    body = windowed(KEYS).body(GRID, 12, 4, None, np.array([1, 2, -3, 10, 20, 30]))
    tick = '"tick":{"values":{"ATL":1,"Å b":2,"other":0},"band":7}'
    day = '"24h":{"values":{"ATL":10,"Å b":20,"other":30},"band":13}'
    assert body.decode() == f'{BEGIN}{{{tick},{day}}},"confidence":0.95}}'


def test_how_much_room_releases_take_is_known_beforehand() -> None:
    """Commits are made no larger than they may be: large values of all keys in all windows."""
    for keys in (("",), KEYS):
        answer = np.full(2 * len(keys), 10**15)
        assert len(windowed(keys).body(GRID, 12, 4, None, answer)) <= windowed(keys).most_bytes


@pytest.mark.parametrize(
    "wrong",
    [
        {"windows": {"tick": {"value": 3, "band": 1}}, "band": 3},
        {"windows": {"tick": {"value": 3}}},
        {"windows": {"tick": {"band": 3}}},
        {"windows": {"tick": {"value": 3, "values": {}, "band": 1}}},
        {"windows": {}},
        {"value": 3},
    ],
)
def test_windows_have_one_value_and_one_band_each(wrong: dict[str, Any]) -> None:
    with pytest.raises(FailClosed, match="is no release"):
        read(json.dumps({**ONE, "confidence": 0.95, **wrong}).encode())


def test_who_asks_is_told_the_keys_of_every_window() -> None:
    one, many = windowed(("",)), windowed(KEYS)
    scalar = one.body(GRID, 12, 4, None, np.array([-7, 40]))
    told = selected(one, scalar, {})
    assert told["windows"] == {"tick": {"value": 0, "band": 7}, "24h": {"value": 40, "band": 13}}
    assert "band" not in told
    body = many.body(GRID, 12, 4, None, np.array([1, 2, -3, 10, 20, 30]))
    assert selected(many, body, {"keys": ["other", "ATL"]})["windows"] == {
        "tick": {"values": {"ATL": 1, "other": 0}, "band": 7},
        "24h": {"values": {"ATL": 10, "other": 30}, "band": 13},
    }
    with pytest.raises(UsageError, match="one value and no keys"):
        selected(one, scalar, {"keys": ["ATL"]})
    with pytest.raises(ValueError, match="one entry for each key"):
        one.body(GRID, 12, 4, None, np.ones(3, np.int64))
    assert selected(one, scalar, {"window": "24h"})["windows"] == {"24h": {"value": 40, "band": 13}}
    assert selected(many, body, {"window": "tick", "from": "Å b"})["windows"] == {
        "tick": {"values": {"Å b": 2, "other": 0}, "band": 7}
    }
    for window in ("7d", 24):
        with pytest.raises(
            UsageError, match="window: this series has no such window; its windows are tick, 24h"
        ):
            selected(one, scalar, {"window": window})


def test_a_series_without_windows_is_asked_for_none() -> None:
    plain = replace(windowed(("",)), shape=Shape.SCALAR, views=())
    body = plain.body(GRID, 12, 4, None, np.array([7]))
    with pytest.raises(UsageError, match="window: this series has no windows"):
        selected(plain, body, {"window": "tick"})


def test_a_release_that_is_not_public_yet_shows_nothing() -> None:
    released = read(windowed(("",)).body(GRID, 12, 4, None, np.array([41, 40])))
    assert "41" not in repr(released)
    assert isinstance(released.windows, dict)
    assert repr(released.windows["tick"]) == "<WindowPart>"
