"""A record's own time puts it into one tick, whoever asks: file readers, router and the oracle agree."""

import json
import tempfile
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.moments import SPELLINGS, oracle, texts

from stream_dp.core.time import TickGrid
from stream_dp.engine.ports import Batch
from stream_dp.files import records as reader
from stream_dp.files.records import FieldType, load_records, ticked
from stream_dp.pipeline.router import Router
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.records import decoder as decoding

START = 1_714_521_600_000  # 2024-05-01T00:00:00Z
GRID = TickGrid(START, 3_600_000, 3)
OUTSIDE, NO_TIME = "time_out_of_range", "wrong_type"
TIES = [f"2024-05-01T00:59:59.{digits}Z" for digits in ("9999996", "9999994", "999", "9" * 50)]


@cache
def router_for(form: str) -> Router:
    spec = PipelineSpec.model_validate(
        {
            "version": 1,
            "name": "times",
            "public_data": True,
            "source": {"kind": "file", "path": "times.jsonl"},
            "schema": {"time": {"type": "time", "format": form}},
            "clock": {"kind": "replay", "field": "time", "start": START, "step": GRID.step, "horizon": 3},
            "privacy": {"unit": "event", "neighbors": "add_remove", "epsilon": "1"},
            "journal": {"kind": "sqlite", "path": "times.db"},
            "releases": {"path": "times-releases.jsonl"},
            "series": [{"name": "total", "statistic": "count", "epsilon": "1"}],
        }
    )  # fmt: skip
    return Router(spec, START)


def meant(moment: int | None) -> int | str:
    """The tick, or why there is none."""
    if moment is None:
        return NO_TIME
    tick = (moment - START) // GRID.step
    return tick if 0 <= tick < 3 else OUTSIDE


def read_ticks(path: Path) -> dict[int, int | str]:
    """What the file reader makes of each line, and checks where it files it."""
    records = load_records(path, {"time": FieldType.TIME}, "time")
    found = {record.line: meant(record.time_ms) for record in records}
    for tick, those in enumerate(ticked(records, GRID)):
        assert all(found[record.line] in {tick, OUTSIDE, NO_TIME} for record in those)
    return found


def routed_ticks(path: Path, form: str = "iso") -> dict[int, int | str]:
    """What the router makes of each record of the same file."""
    found: dict[int, int | str] = {}
    router = router_for(form)
    for record in load_records(path, {"time": FieldType.TIME}, "time"):
        routed = router.route(Batch(0, [record.payload], [record.line], 1))
        found |= {span.first: span.reason for span in routed.dead}
        found |= dict.fromkeys([record.line] * len(routed.rows), next(iter(routed.rows), 0))
    return found


def disagreements(path: Path, wanted: dict[int, int | str], form: str = "iso") -> list[int]:
    """The lines of a file on which reader, router and oracle do not say the same."""
    read, routed = read_ticks(path), routed_ticks(path, form)
    assert read.keys() == routed.keys() == wanted.keys()
    return [line for line in wanted if not read[line] == routed[line] == wanted[line]]


def lines(path: Path, spellings: list[str]) -> dict[int, int | str]:
    """Write them as JSON lines; return what each means."""
    path.write_text("".join(json.dumps({"time": text}) + "\n" for text in spellings))
    return {line: meant(oracle(text)) for line, text in enumerate(spellings, 1)}


def written(text: str) -> bool:
    """Whether JSON in UTF-8 can hold it."""
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
    [(reader, "own_time"), (decoding, "parse_moments")],
    ids=["reader", "router"],
)
def test_a_twin_that_rounds_up_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: object, name: str
) -> None:
    right = getattr(module, name)

    def rounding(text: object, *how: object) -> Any:
        if isinstance(text, list):
            return [rounding(each, *how) for each in text]
        found: int | None = right([text], *how)[0] if name == "parse_moments" else right(text, *how)
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
    records = load_records(tmp_path / "times.parquet", {"time": FieldType.TIME}, "time")
    floored = [each // 10**6 for each in nanoseconds]
    assert [record.time_ms for record in records] == floored
    assert [oracle(json.loads(record.payload)["time"]) for record in records] == floored
