"""Hints of `check`: each known mistake is told, and what a record holds is not."""

import json
from pathlib import Path
from typing import Any

import pytest

from stream_dp.errors import UsageError
from stream_dp.journal.dead_letters import UNREADABLE_BATCH, Span
from stream_dp.operate.fitting import Fitting, Piece, Sample, file_sample, fitting_of
from stream_dp.pipeline.spec import PipelineSpec

GOOD: dict[str, Any] = {
    "time": "2024-05-01T00:30:00Z", "page": "home", "size": 3, "part": 0.5, "paid": True, "who": "one",
}  # fmt: skip
HIDDEN = "secret-of-a-record"


def spec(tmp_path: Path, clock: str = "replay", form: str = "iso") -> PipelineSpec:
    replay = {
        "kind": "replay", "field": "time", "start": "2024-05-01T00:00:00Z", "step": "1h", "horizon": 6,
    }  # fmt: skip
    made = PipelineSpec.model_validate(
        {
            "version": 1,
            "name": "clicks",
            "source": {"kind": "kafka", "topic": "t", "bootstrap": "127.0.0.1:9092"},
            "schema": {
                "time": {"type": "time", "format": form},
                "page": {"type": "category", "domain": ["home", "help"]},
                "size": {"type": "integer"},
                "part": {"type": "number"},
                "paid": {"type": "boolean"},
                "who": {"type": "text"},
                "unused": {"type": "integer"},
            },
            "privacy": {"epsilon": 1},
            "clock": replay if clock == "replay" else {"kind": "wall", "step": "1s"},
            "series": [
                {
                    "name": "by_page", "statistic": "histogram", "by": "page", "method": "tree", "epsilon": 1,
                    "where": [
                        {"field": "size", "at_least": 0}, {"field": "part", "at_least": 0},
                        {"field": "paid", "equals": True}, {"field": "who", "equals": "one"},
                    ],
                }
            ],
        }
    )  # fmt: skip
    assert isinstance(made, PipelineSpec)
    return made


def of(made: PipelineSpec, *payloads: bytes) -> Fitting:
    return fitting_of(made, Sample("topic t", [Piece(1, payloads, range(7, 7 + len(payloads)))]))


def record(**changes: Any) -> bytes:
    kept = {name: value for name, value in (GOOD | changes).items() if value is not ...}
    return json.dumps(kept).encode()


def test_a_good_record_has_no_hint(tmp_path: Path) -> None:
    for clock in ("replay", "wall"):
        found = of(spec(tmp_path, clock), record())
        assert (found.dead, found.hints, found.reasons) == (0, [], [])


@pytest.mark.parametrize(
    ("changes", "reason", "says"),
    [
        ({"time": "2024-05-01 00:30:00"}, "wrong_type in time", "time: times without an offset"),
        ({"time": 1714523400}, "wrong_type in time", "declare `format: epoch_s`"),
        ({"time": 1714523400000}, "wrong_type in time", "declare `format: epoch_ms`"),
        ({"time": "1714523400"}, "wrong_type in time", "time: numbers in quotes"),
        ({"time": 1.5}, "wrong_type in time", "time: numbers with a fraction"),
        ({"time": HIDDEN}, "wrong_type in time", "time: texts that are no time with an offset"),
        ({"time": None}, "wrong_type in time", "time: no time (null)"),
        ({"time": ...}, "missing_field in time", "time: absent"),
        ({"time": "2024-06-01T00:30:00Z"}, "time_out_of_range in time", "time: after the range"),
        ({"time": "2023-06-01T00:30:00Z"}, "time_out_of_range in time", "time: before the range"),
        ({"size": "60"}, "wrong_type in size", "size: numbers in quotes"),
        ({"size": HIDDEN}, "wrong_type in size", "size: texts, where numbers are declared"),
        ({"size": 60.0}, "wrong_type in size", "size: numbers with a fraction (60.0)"),
        ({"size": None}, "wrong_type in size", "size: null; declare `nullable: true`"),
        ({"part": "0.5"}, "wrong_type in part", "part: numbers in quotes"),
        ({"paid": "true"}, "wrong_type in paid", "paid: texts or numbers, where true or false"),
        ({"who": 3}, "wrong_type in who", "who: numbers or true and false"),
        ({"page": [HIDDEN]}, "wrong_type in page", "page: values of another type than `category`"),
        ({"size": ..., "Size": 3}, "missing_field in size", "size: there is a 'Size'"),
        ({"size": ...}, "missing_field in size", "size: absent; declare `nullable: true`"),
    ],
)
def test_a_mistake_in_a_field(
    tmp_path: Path, changes: dict[str, Any], reason: str, says: str
) -> None:
    found = of(spec(tmp_path), record(), record(**changes))
    assert [(each.name, each.records, each.example) for each in found.reasons] == [
        (reason, 1, "partition 1, offset 8")
    ]
    assert [each.records for each in found.hints] == [1]
    assert says in found.hints[0].says
    assert HIDDEN not in str(found.hints)


def test_a_cell_has_no_quotes_to_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "clicks.csv"
    path.write_text("time,page,size,part,paid,who\n2024-05-01T00:30:00Z,home,12.5, 1,true,one\n")
    made = spec(tmp_path)
    said = str(fitting_of(made, file_sample(made, path, 10)).hints)
    assert "size: numbers that are no whole ones (12.5)" in said
    assert "quotes" not in said


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (b"", "without a value (tombstones)"),
        (b"\0\0\0\0\x07\x08home\x06", "Confluent's wire format: Avro or Protobuf"),
        (b'\0\0\0\0\x07{"page":"home"}', "Confluent JSON Schema"),
        (b"Obj\x01\x04", "Avro container files"),
        (b"\x1f\x8b\x08\0", "compressed by their producer"),
        (b"\x08home\x06", "binary values"),
        (b"\xff\xfe", "binary values"),
        (b"home,3", "text that is not JSON"),
        (b'"{}"', "JSON, but no object"),
        (b"[" * 100_000, "text that is not JSON"),
    ],
)
def test_a_payload_that_is_no_object(tmp_path: Path, payload: bytes, says: str) -> None:
    found = of(spec(tmp_path, "wall"), payload)
    assert (found.dead, found.wholly_refused) == (1, True)
    assert [says in each.says for each in found.hints] == [True]


@pytest.mark.parametrize(
    ("form", "time", "says"),
    [
        ("epoch_ms", "2024-05-01T00:30:00Z", "texts, where `format: epoch_ms` is declared"),
        ("epoch_ms", 1714523400000000, "in the clock's range if `format: epoch_us` is declared"),
    ],
)
def test_other_forms_of_time(tmp_path: Path, form: str, time: object, says: str) -> None:
    found = of(spec(tmp_path, form=form), record(time=time))
    assert says in found.hints[0].says


def test_seconds_where_milliseconds_are_declared(tmp_path: Path) -> None:
    found = of(spec(tmp_path, form="epoch_ms"), record(time=1714523400))
    assert found.reasons[0].name == "time_out_of_range in time"
    assert "in the clock's range if `format: epoch_s` is declared" in found.hints[0].says


def test_what_no_reader_can_read_and_what_is_late(tmp_path: Path) -> None:
    """Marks count within the sample; a batch that cannot be unpacked is as many records as its header says."""
    late, soon = record(), record(time="2024-05-01T02:30:00Z")
    pieces = [
        Piece(0, [late], [1], mark=1),
        Piece(0, [late, soon], [3, 4], [Span(UNREADABLE_BATCH, None, 5, 9)]),
        Piece(1, [late], [1]),
    ]
    found = fitting_of(spec(tmp_path), Sample("topic t", pieces))
    assert (found.records, found.late, found.dead) == (9, 1, 5)
    assert [(each.name, each.records, each.example) for each in found.reasons] == [
        ("unreadable_batch", 5, "partition 0, offset 5")
    ]


def test_values_outside_of_the_domain(tmp_path: Path) -> None:
    found = of(spec(tmp_path), record(page="Home "), record(page=HIDDEN), record())
    assert (found.dead, found.other) == (0, 2)
    (hint,) = found.hints
    assert "differs from the domain in upper and lower case" in hint.says
    assert HIDDEN not in hint.says


def test_unused_fields_make_no_record_dead(tmp_path: Path) -> None:
    found = of(spec(tmp_path), record(unused=HIDDEN))
    (unused,) = [fit for fit in found.fields if not fit.used]
    assert (found.dead, unused.name, list(unused.wrong)) == (0, "unused", [0])


@pytest.mark.parametrize(
    ("name", "content", "lines"),
    [
        ("sample.csv", "page,size\nhome,3\nhelp,x\n", [2, 3]),
        ("sample.jsonl", '{"page":"home","size":3}\n{"page":"home"}\n', [1, 2]),
    ],
)
def test_a_file_as_a_sample_for_a_wall_clock(
    tmp_path: Path, name: str, content: str, lines: list[int]
) -> None:
    """There is no time to look for; a cell that is no number stays text."""
    path = tmp_path / name
    path.write_text(content)
    sample = file_sample(spec(tmp_path, "wall"), path, 10)
    assert [place for _, place in sample.places] == lines
    (size,) = [
        fit for fit in fitting_of(spec(tmp_path, "wall"), sample).fields if fit.name == "size"
    ]
    assert (list(size.fits), [*size.wrong, *size.missing]) == ([0], [1])


def test_a_table_without_any_declared_field(tmp_path: Path) -> None:
    path = tmp_path / "sample.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match="none of its columns is a field of the schema"):
        file_sample(spec(tmp_path, "wall"), path, 10)
    path.write_text("")
    assert file_sample(spec(tmp_path), empty(path), 10).records == 0


def empty(path: Path) -> Path:
    path.write_text("time,page\n")
    return path
