"""The form of a release: its exact bytes, what is read from them, and what is refused."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.core.time import TickGrid
from stream_dp.engine.series import Series
from stream_dp.errors import FailClosed
from stream_dp.journal.commit import Release
from stream_dp.journal.release import (
    VERSION,
    Released,
    Shape,
    content,
    read,
    read_head,
    release_of,
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
        {"fired": ["a"], "counts_band": 3},
        {"fired": ["a"], "counts": {"b": 3}, "counts_band": 3},
        {"fired": ["a", "b"], "counts": {"b": 3, "a": 1}, "counts_band": 3},
        {"value": 3, "counts": {}, "counts_band": 3},
    ],
)
def test_counts_are_those_of_what_fired(wrong: dict[str, Any]) -> None:
    with pytest.raises(FailClosed, match="is no release"):
        read(json.dumps({**ONE, **REST, **wrong}).encode())


def test_keys_fired_come_in_the_order_of_the_keys() -> None:
    keys = tuple(f"k{number}" for number in reversed(range(1000)))
    fired = content(Shape.FLAGS, keys, np.arange(1000) % 3)["fired"]
    assert fired == tuple(key for at, key in enumerate(keys) if at % 3)


@pytest.mark.parametrize("shape", Shape)
@pytest.mark.parametrize("entries", [0, 2, 4])
def test_an_answer_of_another_length_is_no_release(shape: Shape, entries: int) -> None:
    with pytest.raises(ValueError, match="one entry for each key"):
        content(shape, KEYS, np.ones(entries, np.int64))


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
        b"\xff",
        b"[]",
        told({}),
        told({key: value for key, value in ONE.items() if key != "v"} | {"value": 1} | REST),
        told(ONE | REST),
        told(ONE | REST | {"value": 1, "fired": []}),
        told(ONE | REST | {"value": 1, "values": {}}),
        told(ONE | REST | {"value": True}),
        told(ONE | REST | {"value": "1.5"}),
        told(ONE | REST | {"values": {"secret": True}}),
        told(ONE | REST | {"fired": {"secret": True}}),
        told(ONE | REST | {"value": 1, "end": "2013-01-01T15:00:00"}),
        told(ONE | REST | {"value": 1, "end": "secret"}),
        told(ONE | REST | {"value": 1, "sequence": -1}),
        told(ONE | REST | {"value": 1, "tick": -1}),
        told(ONE | REST | {"value": 1, "sequence": "secret"}),
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
    with pytest.raises(
        FailClosed, match=r"form \d of releases.*reads form 1: use the version that"
    ):
        reading(told(later))


def test_a_field_that_is_added_is_passed_over() -> None:
    assert read(told(ONE | REST | {"value": 1, "later": [1]})).value == 1


def test_a_published_body_is_one_line() -> None:
    with pytest.raises(FailClosed, match="more than one line"):
        release_of(told(ONE | REST | {"value": 1}).replace(b', "tick"', b',\n"tick"'))
