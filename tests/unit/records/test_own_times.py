"""A record's own time puts it into one tick, whoever asks: file readers, router and the oracle agree."""

import json
import math
import tempfile
from decimal import Decimal
from fractions import Fraction
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.moments import SPELLINGS, oracle, texts
from pydantic import ValidationError

from stream_dp.core.time import TickGrid, TimeForm, float_moments, own_time
from stream_dp.core.time import written as as_written
from stream_dp.engine.ports import Batch
from stream_dp.files import records as reader
from stream_dp.files.records import load_records, ticked
from stream_dp.pipeline.router import Router
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.records import decoder
from stream_dp.records.decoder import NO_TIME as IS_NO_TIME
from stream_dp.records.decoder import OUTSIDE as IS_OUTSIDE
from stream_dp.records.decoder import OwnTicks
from stream_dp.records.leaf_values import instant
from stream_dp.records.schema import TimeField

START = 1_714_521_600_000  # 2024-05-01T00:00:00Z
GRID = TickGrid(START, 3_600_000, 3)
OUTSIDE, NO_TIME = "time_out_of_range", "wrong_type"
TIES = [f"2024-05-01T00:59:59.{digits}Z" for digits in ("9999996", "9999994", "999", "9" * 50)]


@cache
def router_for(form: str) -> Router:
    spec = PipelineSpec.model_validate(
        {
            "version": 1, "name": "times", "source": {"kind": "file", "path": "times.jsonl"},
            "schema": {"time": {"type": "time", "format": form}}, "privacy": {"epsilon": "1"},
            "clock": {"kind": "replay", "field": "time", "start": START, "step": GRID.step, "horizon": 3},
            "series": [{"name": "total", "statistic": "count", "epsilon": "1"}],
        }
    )  # fmt: skip
    return Router(spec, START)


def meant(moment: int | None) -> int | str:
    if moment is None:
        return NO_TIME
    tick = (moment - START) // GRID.step
    return tick if 0 <= tick < 3 else OUTSIDE


def read_ticks(path: Path) -> dict[int, int | str]:
    """What the file reader makes of each line, and checks where it files it."""
    records = load_records(path, {"time": TimeField()}, "time")
    found = {record.line: meant(record.time_ms) for record in records}
    for tick, those in enumerate(ticked(records, GRID)):
        assert all(found[record.line] in {tick, OUTSIDE, NO_TIME} for record in those)
    return found


def routed_ticks(path: Path, form: str = "iso") -> dict[int, int | str]:
    """What the router makes of each record of the same file."""
    found: dict[int, int | str] = {}
    router = router_for(form)
    for record in load_records(path, {"time": TimeField()}, "time"):
        routed = router.route(Batch(0, [record.payload], [record.line], 1))
        found |= {span.first: span.reason for span in routed.dead}
        found |= dict.fromkeys([record.line] * len(routed.rows), next(iter(routed.rows), 0))
    return found


def disagreements(path: Path, wanted: dict[int, int | str], form: str = "iso") -> list[int]:
    read, routed = read_ticks(path), routed_ticks(path, form)
    assert read.keys() == routed.keys() == wanted.keys()
    return [line for line in wanted if not read[line] == routed[line] == wanted[line]]


def lines(path: Path, spellings: list[str]) -> dict[int, int | str]:
    path.write_text("".join(json.dumps({"time": text}) + "\n" for text in spellings))
    return {line: meant(oracle(text)) for line, text in enumerate(spellings, 1)}


def written(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


SPELT = [text for text in [*SPELLINGS, *TIES] if written(text)]


def test_every_spelling_has_one_tick(tmp_path: Path) -> None:
    wanted = lines(tmp_path / "times.jsonl", SPELT)
    assert {0, OUTSIDE, NO_TIME} <= set(wanted.values())
    assert len(wanted) >= 40
    assert disagreements(tmp_path / "times.jsonl", wanted) == []


def test_so_it_is_in_csv(tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    plain = [text for text in SPELT if text.strip() == text and "," not in text and text]
    path.write_text("\n".join(["time", *plain]) + "\n")
    wanted = {line: meant(oracle(text)) for line, text in enumerate(plain, 2)}
    assert disagreements(path, wanted) == []


@settings(max_examples=40, deadline=None)
@given(st.lists(texts("2024-05-01"), min_size=1, max_size=20))
def test_made_up_spellings_have_one_tick(spellings: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "times.jsonl"
        assert disagreements(path, lines(path, spellings)) == []


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(START - 10**8, START + 10**8) | st.just(START), min_size=1, max_size=20)
)
def test_integers_count_milliseconds_for_both(moments: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "times.jsonl"
        path.write_text("".join(json.dumps({"time": moment}) + "\n" for moment in moments))
        wanted = {line: meant(moment) for line, moment in enumerate(moments, 1)}
        assert disagreements(path, wanted, "epoch_ms") == []


@pytest.mark.parametrize(
    ("module", "name"),
    [(reader, "own_time"), (TimeForm, "parse_all")],
    ids=["reader", "router"],
)
def test_a_twin_that_rounds_up_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: object, name: str
) -> None:
    right = getattr(module, name)

    def rounding(*what: Any) -> Any:
        if name == "parse_all":
            form, times = what
            return [up(text, found) for text, found in zip(times, right(form, times), strict=True)]
        return up(what[0], right(*what))

    def up(text: object, found: int | None) -> int | None:
        near = isinstance(text, str) and "59.999999" in text
        return found + 1 if near and found is not None else found

    router_for.cache_clear()  # it remembers times
    wanted = lines(tmp_path / "times.jsonl", TIES)
    monkeypatch.setattr(module, name, rounding)
    assert len(disagreements(tmp_path / "times.jsonl", wanted)) == 3
    router_for.cache_clear()


def test_parquet_floors_also_before_1970(tmp_path: Path) -> None:
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    nanoseconds = [1, -1, -999_999, -1_000_000, 1_999_999]
    column = arrow.array(nanoseconds, arrow.timestamp("ns", "Europe/Paris"))
    parquet.write_table(arrow.table({"time": column}), tmp_path / "times.parquet")
    records = load_records(tmp_path / "times.parquet", {"time": TimeField()}, "time")
    floored = [each // 10**6 for each in nanoseconds]
    assert [record.time_ms for record in records] == floored
    assert [oracle(json.loads(record.payload)["time"]) for record in records] == floored


SMALL = TickGrid(origin=10_000, step=2_000, horizon=2)  # ticks of 10 s to 12 s and to 14 s


ENDS = ("1970-01-01T00:00:10Z", "1970-01-01T00:00:11.999999Z", "1970-01-01T00:00:12Z")
"""The first and the last moment of a tick, and the first of the next."""


@pytest.mark.parametrize(
    ("form", "per_s"), [("epoch_ms", 1000), ("epoch_s", 1), ("epoch_us", 10**6)]
)
def test_integers_lie_in_their_ticks_and_outside_of_the_grid(form: str, per_s: int) -> None:
    """Asked twice, for what is remembered is told as it was found."""
    moments = (10 * per_s, 12 * per_s - 1, 12 * per_s, 10 * per_s - 1, 14 * per_s)
    ticks = OwnTicks(SMALL, TimeForm(form))
    for _ in range(2):
        assert ticks.of(moments, 5).tolist() == [0, 0, 1, IS_OUTSIDE, IS_OUTSIDE]
        assert OwnTicks(SMALL, TimeForm()).of(ENDS, 3).tolist() == [0, 0, 1]


def test_what_is_no_time_is_told_apart_from_what_lies_outside() -> None:
    ticks = OwnTicks(SMALL, TimeForm())
    assert ticks.of(["never", "1970-01-01T00:00:13Z", "2070-01-01T00:00:13Z"], 3).tolist() == [
        IS_NO_TIME, 1, IS_OUTSIDE,
    ]  # fmt: skip


def test_grids_and_zones_remember_for_themselves() -> None:
    """The same text on another grid, and in another zone."""
    text = ["1970-01-01T00:00:13"]
    later = TickGrid(SMALL.origin, SMALL.step * 2, 9)
    paris = TimeForm(zone=ZoneInfo("Europe/Paris"))
    there = TickGrid(SMALL.origin - 3_600_000, SMALL.step, 2)
    told = [
        (SMALL, TimeForm(zone=ZoneInfo("UTC"))),
        (later, TimeForm(zone=ZoneInfo("UTC"))),
        (there, paris),
    ]
    assert [OwnTicks(*one).of(text, 1).tolist() for one in told] == [[1], [0], [1]]


def test_what_is_remembered_is_bounded_whatever_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short texts alone, so many of them, and no integers."""
    monkeypatch.setattr(decoder, "_CACHED_TIMES", 4)
    ticks, found = OwnTicks(SMALL, TimeForm()), list[int]()
    remembered = ticks._tick_of
    for n in range(20):
        assert ticks.of([f"1970-01-01T00:00:11.{n:03d}Z", "x" * 41, "x" * 10**5], 3).tolist() == [
            0, IS_NO_TIME, IS_NO_TIME,
        ]  # fmt: skip
        found.append(len(remembered))
        assert max(map(len, remembered)) <= 40
    assert max(found) == 4
    for form in ("epoch_ms", "epoch_s", "epoch_us"):
        counted = OwnTicks(SMALL, TimeForm(form))
        counted.of(range(100), 100)
        assert len(counted._tick_of) == 0


@pytest.mark.parametrize(("cached", "at_once"), [(1, 5), (3, 1), (1 << 14, 1 << 12)])
def test_many_times_have_the_ticks_of_each_alone(
    monkeypatch: pytest.MonkeyPatch, cached: int, at_once: int
) -> None:
    """New ones, repeated ones, those of other lengths and no times, in readings and memories of every size."""
    monkeypatch.setattr(decoder, "_CACHED_TIMES", cached)
    monkeypatch.setattr(decoder, "_AT_ONCE", at_once)
    form = TimeForm(zone=ZoneInfo("UTC"))
    times = [
        f"1970-01-01 00:00:{second:02d}.{n % 4:03d}" for n in range(7) for second in range(8, 16)
    ]
    times += ["never", "1970-01-01T00:00:13", "x" * 50, "1970-01-01T00:00:11.9+00:00"] * 2
    alone = [OwnTicks(SMALL, form).of([time], 1).item() for time in times]
    ticks = OwnTicks(SMALL, form)
    for _ in range(2):
        assert ticks.of(iter(times), len(times)).tolist() == alone
        assert len(ticks._tick_of) <= cached
        assert min(ticks._tick_of.values()) >= IS_NO_TIME
    assert set(alone) == {0, 1, IS_OUTSIDE, IS_NO_TIME}
    assert ticks.of([], 0).tolist() == []


def test_a_reading_that_breaks_off_leaves_no_false_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = OwnTicks(SMALL, TimeForm())
    with monkeypatch.context() as patch:
        patch.setattr(TimeForm, "parse_all", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            ticks.of(ENDS, 3)
    assert ticks.of(ENDS, 3).tolist() == [0, 0, 1]


# Seconds with a fraction: what a double means is the shortest decimal that is read as it.

HOURS = [(START + GRID.step * tick) / 1000 for tick in range(4)]
SECONDS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(START - 10, START + 4 * GRID.step).map(lambda moment: moment / 1000),
    st.tuples(st.sampled_from(HOURS), st.integers(-9, 9)).map(lambda at: at[0] + at[1] * 2.0**-22),
    st.tuples(st.sampled_from(HOURS), st.integers(-(10**6), 10**6)).map(lambda at: at[0] + at[1] / 1e7),
    st.integers(-(2**70), 2**70),
    st.sampled_from([1e300, -1e300, 9007199254.740993, 2.5e11, 1e12, -0.0, 5e-324, -1e-9]),
)  # fmt: skip


def exactly(number: float) -> int:
    return math.floor(Decimal(repr(float(number))) * 1000)


def misread(seconds: list[float]) -> list[float]:
    """Those of which some reader makes another tick than the decimal says."""
    form = TimeForm("epoch_float")
    ticks = OwnTicks(GRID, form).of(list(map(float, seconds)), len(seconds)).tolist()
    wanted = [GRID.find(exactly(number)) for number in seconds]
    payloads = [json.dumps({"time": number}).encode() for number in seconds]
    dead = router_for("epoch_float").route(Batch(0, payloads, range(len(payloads)), 1)).dead
    out = {at for span in dead for at in range(span.first, span.last + 1)}
    return [
        number
        for at, number in enumerate(seconds)
        if not (
            own_time(float(number), form) == exactly(number)
            and ticks[at] == (IS_OUTSIDE if wanted[at] is None else wanted[at])
            and (at in out) == (wanted[at] is None)
        )
    ]


@given(st.lists(SECONDS, max_size=6))
def test_seconds_with_a_fraction_are_their_shortest_decimal(seconds: list[float]) -> None:
    assert misread(seconds) == []


def test_the_twin_that_takes_a_double_for_what_it_is_exactly_is_caught() -> None:
    seconds = np.array([end + part / 1000 for end in HOURS for part in range(-100, 100)])
    right = list(map(exactly, seconds.tolist()))
    assert float_moments(seconds).tolist() == right
    late = [8650058579.696, 2.0**33 - 0.001]  # two decimals of six places may be one double
    assert float_moments(np.array(late)).tolist() == list(map(exactly, late))
    twin = [math.floor(Fraction(number) * 1000) for number in seconds.tolist()]
    assert sum(map(int.__ne__, twin, right)) > 100


def test_seconds_with_a_fraction_are_refused_as_text_and_read_in_a_table(tmp_path: Path) -> None:
    fields = {"time": TimeField(format="epoch_float")}
    rows = ["1714521600.5", "1714521600", "1714525200.25", "x", "", "1.7145216005e9"]
    (tmp_path / "t.csv").write_text("\n".join(["time", *rows]))
    found = load_records(tmp_path / "t.csv", fields, "time", TimeForm("epoch_float"))
    assert [record.time_ms for record in found] == [
        START + 500, START, START + 3_600_250, None, START + 500,
    ]  # fmt: skip
    routed = router_for("epoch_float").route(
        Batch(0, [record.payload for record in found], range(5), 9)
    )
    assert [(span.reason, span.first) for span in routed.dead] == [(NO_TIME, 3)]
    for value in ('"1714521600.5"', "null", "true"):
        dead = router_for("epoch_float").route(Batch(0, [b'{"time":%s}' % value.encode()], [0], 1)).dead  # fmt: skip
        assert [span.reason for span in dead] == [NO_TIME]
    with pytest.raises(ValidationError, match="counts from 1970 in UTC"):
        TimeField(format="epoch_float", zone="UTC")


@given(st.integers(-(10**15), 10**15), st.sampled_from([1000, 10**6, 10**9]))
def test_instants_of_avro_and_protobuf_are_seconds_with_a_fraction(count: int, per: int) -> None:
    made = instant(TimeField(format="epoch_float"), per)(count)
    assert Fraction(Decimal(bytes(made).decode())) == Fraction(count, per)
    moment = count // 10
    if abs(moment) < 6 * 10**13:
        form = TimeForm("epoch_float")
        assert own_time(as_written(moment, form), form) == moment
