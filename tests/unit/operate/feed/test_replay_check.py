"""What is examined before a replay: the same records are refused that the engine would make dead letters."""

from pathlib import Path

import pytest

from stream_dp.errors import UsageError
from stream_dp.files.records import Record, load_records
from stream_dp.operate.replay_feed import Unusable, examine
from stream_dp.operate.run.settings import fields_of
from stream_dp.pipeline.spec import PipelineSpec

CLOCK = {"kind": "replay", "field": "time", "start": 0, "step": 1000, "horizon": 10}
GOOD, BAD = b'{"time":5,"shop":"a"}', b'{"time":5,"shop":7}'


def spec(**changed: object) -> PipelineSpec:
    return PipelineSpec.model_validate(
        {
            "version": 1,
            "name": "shops",
            "source": {"kind": "kafka", "topic": "shops", "bootstrap": "127.0.0.1:9092"},
            "schema": {
                "time": {"type": "time", "format": "epoch_ms"},
                "shop": {"type": "category", "domain": ["a"]},
                "unused": {"type": "integer"},
            },
            "privacy": {"epsilon": "1"},
            "clock": CLOCK,
            "series": [
                {
                    "name": "by",
                    "statistic": "histogram",
                    "by": "shop",
                    "method": "tree",
                    "epsilon": "1",
                }
            ],
        }
        | changed
    )


def records(*payloads: bytes) -> list[Record]:
    return [Record(line, 5, payload) for line, payload in enumerate(payloads, 1)]


def test_reasons_fields_numbers_and_the_first_line() -> None:
    payloads = [GOOD, BAD, b"{", b'{"shop":"a"}', b'{"time":-1,"shop":"a"}', BAD, b"[]", GOOD]
    found = examine(spec(), records(*payloads))
    assert [record.line for record in found.good] == [1, 8]
    assert sorted(found.bad, key=lambda kind: kind.line) == [
        Unusable("wrong_type", "shop", 2, 2),
        Unusable("not_json", None, 1, 3),
        Unusable("missing_field", "time", 1, 4),
        Unusable("time_out_of_range", "time", 1, 5),
        Unusable("wrong_type", None, 1, 7),
    ]
    assert found.refused == 6
    said = list(found.report(spec(), Path("folder/data.csv")))
    assert said[0] == "NOT PRIVATE: shops cannot use 6 of the 8 records of data.csv:"
    assert said[1:3] == [
        "  wrong_type in shop: 2, the first in line 2",
        "  not_json: 1, the first in line 3",
    ]


@pytest.mark.parametrize(
    ("declared", "hint"),
    [
        ({}, "a time needs an offset, or `zone:` in the schema, or the `format:` of its numbers"),
        ({"zone": "Europe/Paris"}, "a time is text such as 2013-01-01 10:00:00, and never null"),
        ({"format": "epoch_ms"}, "a time is a whole number, as `format:` says, and never null"),
    ],
)
def test_the_hint_does_not_ask_for_what_is_declared(declared: dict[str, str], hint: str) -> None:
    schema = {
        "time": {"type": "time", **declared},
        "shop": {"type": "category", "domain": ["a"]},
    }
    made = spec(schema=schema)
    found = examine(made, records(b'{"time":null,"shop":"a"}'))
    _, said = found.report(made, Path("data.csv"))
    assert said == f"  wrong_type in time: 1, the first in line 1 ({hint})"


def test_a_field_that_no_series_uses_may_hold_anything() -> None:
    found = examine(spec(), records(GOOD, b'{"time":5,"shop":"a","unused":"x"}'))
    assert found.bad == []
    assert list(found.report(spec(), Path("data.csv"))) == []


def test_long_files_are_examined_whole() -> None:
    payloads = [GOOD] * 20_000
    payloads[8191] = payloads[8192] = payloads[19_999] = BAD
    found = examine(spec(), records(*payloads))
    assert found.bad == [Unusable("wrong_type", "shop", 3, 8192)]
    assert len(found.good) == 19_997


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b"\n".join([GOOD, b"", b"  ", BAD, b"", b"not json"]))
    declared = spec()
    found = examine(declared, load_records(path, fields_of(declared), "time", declared.own_times))
    assert [(kind.reason, kind.line) for kind in found.bad] == [("wrong_type", 4), ("not_json", 6)]


def test_a_wall_clock_has_no_file() -> None:
    with pytest.raises(UsageError, match="ReplayClock"):
        examine(spec(clock={"kind": "wall", "step": 1000}), records(GOOD))


def test_a_record_that_names_no_user_is_a_dead_letter() -> None:
    user = {"unit": "user", "user": "unused", "overall": "1", "epsilon": "1"}
    known = b'{"time":5,"shop":"a","unused":3}'
    found = examine(spec(privacy=user), records(known, GOOD, known))
    assert [(each.reason, each.field, each.line) for each in found.bad] == [
        ("missing_field", "unused", 2)
    ]
    assert len(found.good) == 2  # also beyond the cap, which is not the record's fault
