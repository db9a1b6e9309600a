"""Series made of others' releases: a function of their bytes, exact, in their commit and their sequence."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from stream_dp.core.time import TickGrid
from stream_dp.engine.series import MadeSeries, with_made
from stream_dp.journal.commit import Release
from stream_dp.journal.release import Released, Shape, WindowPart, read

GRID = TickGrid(0, 1000, 5)


def added(tick: int, window: str, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    total = parts[0]["value"] + parts[1]["value"]
    return {"value": total, "low": None, "high": total + tick}


MADE = MadeSeries("total", ("a", "b"), ("",), (), (added,), 0.95)


def body(series: str, content: Mapping[str, Any], sequence: int = 1) -> bytes:
    return json.dumps(
        {"v": 1, "sequence": sequence, "series": series, "tick": 2, **content}
    ).encode()


def test_a_body_is_made_of_bytes_and_its_numbers_are_exact() -> None:
    bodies = {"a": b'{"value":0.1}', "b": b'{"value":0.20}', "c": b"nothing"}
    found = MADE.body(GRID, 9, 2, bodies)
    assert found == (
        b'{"v":1,"sequence":9,"series":"total","tick":2,"end":"1970-01-01T00:00:03Z","value":0.30,"low":null,'
        b'"high":2.30,"confidence":0.95}'
    )
    said = read(found)
    assert (said.shape, said.low, said.high, said.band) == (Shape.SCALAR, None, 2.3, msgspec.UNSET)


def test_noise_of_the_test_kit_shows_in_what_is_made_of_it() -> None:
    bodies = {"a": b'{"value":1}', "b": b'{"value":2}'}
    assert read(replace(MADE, private=False).body(GRID, 9, 2, bodies)).not_private


def test_each_window_is_made_of_those_of_its_name() -> None:
    made = replace(MADE, windows=("tick", "1h"))
    windows = {"1h": {"value": 10}, "tick": {"value": 1}}
    found = json.loads(
        made.body(
            GRID, 9, 2, {"a": body("a", {"windows": windows}), "b": body("b", {"windows": windows})}
        )
    )
    assert {name: part["value"] for name, part in found["windows"].items()} == {"tick": 2, "1h": 20}
    assert list(found["windows"]) == ["tick", "1h"]


def test_what_is_made_stands_behind_its_inputs() -> None:
    told = [Release(n, name, 2, body(name, {"value": n}, n)) for n, name in ((5, "a"), (6, "b"))]
    found = with_made(told, (MADE, replace(MADE, name="again")), GRID)
    assert [(r.sequence, r.series, r.tick) for r in found] == [
        (5, "a", 2), (6, "b", 2), (7, "total", 2), (8, "again", 2),
    ]  # fmt: skip
    assert [read(r.body).sequence for r in found[2:]] == [7, 8]
    assert read(found[2].body).value == 11
    assert with_made(told, (), GRID) == tuple(told)


def test_without_an_input_nothing_is_made() -> None:
    with pytest.raises(KeyError):
        MADE.body(GRID, 9, 2, {"a": b'{"value":1}'})


HEAD: dict[str, Any] = {
    "v": 1,
    "sequence": 1,
    "series": "s",
    "tick": 0,
    "end": "1970-01-01T00:00:01Z",
    "confidence": 0.9,
}
BROKEN: list[dict[str, Any]] = [
    {"value": 1},
    {"value": 1, "band": 2, "low": 0, "high": 2},
    {"value": 1, "low": 0},
    {"value": 1, "lows": (0,), "highs": (2,)},
    {"values": {"a": 1}, "low": 0, "high": 2},
    {"values": {"a": 1}, "lows": (0,), "highs": (2, 3)},
]  # fmt: skip


@pytest.mark.parametrize("content", BROKEN)
def test_a_release_has_a_band_or_both_ends_of_each_value(content: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a low and a high end"):
        WindowPart(**content)
    with pytest.raises(ValueError, match="a low and a high end"):
        Released(**HEAD, **content)


def test_windows_have_their_own_ends() -> None:
    part = WindowPart(value=None, low=0, high=None)
    assert msgspec.json.encode(part) == b'{"value":null,"low":0,"high":null}'
    with pytest.raises(ValueError, match="may have no other band"):
        Released(**HEAD, windows={"tick": part}, low=0, high=1)
    keyed = WindowPart(values={"a": Decimal("0.10"), "b": None}, lows=(0, None), highs=(1, None))  # type: ignore[dict-item]
    assert keyed.lows == (0, None)
