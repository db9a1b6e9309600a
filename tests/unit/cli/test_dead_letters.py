"""`dead-letters`: exact numbers and places for the operator, from the journal alone, and nothing where nothing is."""

import json

import pytest
from unit.cli.conftest import LiveSeriesService

from stream_dp.journal.commit import DeadLetter
from stream_dp.operate.audit import journal_access
from stream_dp.operate.audit.journal_access import _Kind

JUNK = [
    "too,many,cells",
    "too,few,cells",
    "2024-05-01T00:30:00Z,",
    "2030-05-01T00:30:00Z,home",
    "one",
]


def test_what_was_refused_is_listed(live_series: LiveSeriesService) -> None:
    data = live_series.folder / "clicks.csv"
    first = len(data.read_text().splitlines()) + 1
    data.write_text(data.read_text() + "".join(f"{line}\n" for line in JUNK))
    assert live_series.command("run", "--until-end").code == 0
    shown = json.loads(live_series.command("dead-letters", "--json").out)
    assert shown == {
        "pipeline": "clicks", "private": False, "places": "lines", "records": 24, "late": 0, "capped": 0,
        "dead": 5,
        "dead_letters": [
            {"partition": 0, "reason": "time_out_of_range", "field": "time", "records": 1,
             "ranges": [[first + 3, first + 3]], "elsewhere": 0},
            {"partition": 0, "reason": "wrong_type", "field": None, "records": 3,
             "ranges": [[first, first + 1], [first + 4, first + 4]], "elsewhere": 0},
            {"partition": 0, "reason": "wrong_type", "field": "page", "records": 1,
             "ranges": [[first + 2, first + 2]], "elsewhere": 0},
        ],
    }  # fmt: skip
    said = live_series.command("dead-letters")
    assert said.code == 0
    assert said.out.count("NOT PRIVATE") == 2
    assert f"{first}-{first + 1}, {first + 4}" in said.out
    assert "24 records counted, 0 of them late; 5 could not be used." in said.out


def test_a_list_that_is_too_long_is_refused_and_counted_never_clipped(
    live_series: LiveSeriesService,
) -> None:
    data, pipeline = live_series.folder / "clicks.csv", live_series.pipeline
    first = len(data.read_text().splitlines()) + 1
    listed = 'page: {type: list, domain: [home, help], most: 2, separator: "|"}'
    category = "page: {type: category, domain: [home, help]}"
    pipeline.write_text(pipeline.read_text().replace(category, listed))
    lists = ["home|help", "home|home", "home|help|elsewhere", "home|home|home", ""]
    lines = "".join(f"2024-05-01T00:30:00Z,{each}\n" for each in lists)
    data.write_text(data.read_text() + lines)
    assert live_series.command("run", "--until-end").code == 0
    shown = json.loads(live_series.command("dead-letters", "--json").out)
    assert (shown["records"], shown["dead"]) == (24 + 3, 2)
    assert shown["dead_letters"] == [
        {"partition": 0, "reason": "too_many_entries", "field": "page", "records": 2,
         "ranges": [[first + 2, first + 3]], "elsewhere": 0},
    ]  # fmt: skip


def test_nothing_was_refused(live_series: LiveSeriesService) -> None:
    live_series.command("run", "--until-end")
    assert json.loads(live_series.command("dead-letters", "--json").out)["dead_letters"] == []
    assert "0 could not be used" in live_series.command("dead-letters").out


def test_no_journal_and_a_damaged_one(live_series: LiveSeriesService) -> None:
    said = live_series.command("dead-letters")
    assert (said.code, "no journal here" in said.err) == (2, True)
    live_series.command("run", "--until-end")
    live_series.journal.write_bytes(live_series.journal.read_bytes()[:5000])
    assert live_series.command("dead-letters").code == 4


def test_the_newest_ranges_are_kept_and_all_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_access, "RANGES", 2)
    kind = _Kind()
    for ranges in (((1, 2), (4, 4)), ((5, 9),), ((20, 20),)):
        kind.take(DeadLetter(0, "not_json", None, 10, ranges))
    assert kind.shown == {"records": 30, "ranges": [[4, 9], [20, 20]], "elsewhere": 23}
