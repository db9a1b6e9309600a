"""`check` on files: what fits, what does not and why; and a first start on records of which none fits."""

import json
from pathlib import Path
from typing import Any

import pytest
from unit.cli.conftest import HORIZON, ROWS, LiveSeriesService

from stream_dp.cli.main import code_of
from stream_dp.testing.__main__ import app as kit


def table(service: LiveSeriesService, rows: list[str], header: str = "time,page") -> None:
    (service.folder / "clicks.csv").write_text("\n".join([header, *rows, ""]))


def checked(service: LiveSeriesService, *arguments: str, code: int) -> dict[str, Any]:
    said = service.command("check", "--json", *arguments)
    assert (said.code, said.err) == (code, "")
    found: dict[str, Any] = json.loads(said.out)
    return found


def nothing_was_made(service: LiveSeriesService) -> bool:
    return not service.journal.exists() and service.releases == []


def test_a_sample_that_fits(
    live_series: LiveSeriesService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is not needed, and no journal is made."""
    monkeypatch.delenv("STREAM_DP_KEY_FILE")
    said = checked(live_series, code=0)
    (busy,) = said.pop("false_alarms")
    assert (busy["name"], busy["usual"], busy["keyed"]) == ("busy", 1, True)
    assert said == {
        "pipeline": "clicks", "private": False, "sample": "clicks.csv", "fits": True, "warn_dead": "1/10",
        "records": 24, "dead": 0, "late": 0, "other": 6,
        "shares": {"dead": 0.0, "late": 0.0, "other": 0.25},
        "reasons": [],
        "fields": [
            {"field": "time", "type": "time", "used": True, "fits": 24, "null": 0, "missing": 0,
             "wrong_type": 0, "other": 0},
            {"field": "page", "type": "category", "used": True, "fits": 24, "null": 0, "missing": 0,
             "wrong_type": 0, "other": 6},
        ],
        "hints": [],
    }  # fmt: skip
    assert nothing_was_made(live_series)
    assert checked(live_series, "--sample", "4", code=0)["records"] == 4


def test_a_source_that_holds_nothing_is_named(live_series: LiveSeriesService) -> None:
    """A table of zeros alone looks like a fault."""
    table(live_series, [])
    said = live_series.command("check")
    assert said.code == 0
    assert "There is nothing in clicks.csv yet, so nothing was learnt.\n" in said.out


def test_times_without_an_offset(live_series: LiveSeriesService) -> None:
    """All of them: nothing begins. Without the check the whole budget is spent on noise, exit 0."""
    table(live_series, [row.replace("Z,", ",") for row in ROWS])
    said = checked(live_series, code=2)
    assert (said["dead"], said["fits"]) == (24, False)
    assert said["reasons"] == [
        {"reason": "wrong_type", "field": "time", "records": 24, "example": "line 2"}
    ]
    assert said["hints"][0] == {
        "says": "time: times without an offset; declare their `zone:` (such as Europe/Berlin), or write the offset",
        "records": 24,
    }
    ended = live_series.command("run", "--until-end")
    assert (ended.code, ended.out, nothing_was_made(live_series)) == (2, "", True)
    assert (
        "clicks can use none of the records that were looked at (wrong_type in time)" in ended.err
    )
    assert "times without an offset" in ended.err
    assert "24" not in ended.err.replace(str(live_series.folder), "")

    noise = live_series.command("run", "--until-end", "--no-check")
    assert (noise.code, len(live_series.releases)) == (0, 3 * HORIZON)
    assert live_series.command("run", "--until-end").code == 0  # it has begun, so it goes on


def test_what_the_hint_says_helps(live_series: LiveSeriesService) -> None:
    live_series.write("time: {type: time}", "time: {type: time, zone: Etc/UTC}")
    table(live_series, [row.replace("Z,", ",") for row in ROWS])
    assert checked(live_series, code=0)["dead"] == 0
    assert live_series.command("run", "--until-end").code == 0


def test_one_record_that_fits_is_enough_to_begin(
    live_series: LiveSeriesService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However far behind it lies; the operator is warned, and the share and no count is told."""
    monkeypatch.setattr("stream_dp.operate.check_pipeline.RECORDS", 10)
    table(live_series, [*(row.replace("Z,", ",") for row in ROWS), ROWS[0]])
    said = live_series.command("run", "--until-end")
    assert said.code == 0
    assert said.err.count("Warning: more of the records than `warn_dead` allows") == 1
    assert "(wrong_type in time)" in said.err
    assert "NOT PRIVATE: " not in said.err
    assert "`stream-dp dead-letters " in said.err
    assert checked(live_series, "--sample", "100", code=2)["dead"] == 24


def test_a_declared_share(live_series: LiveSeriesService) -> None:
    live_series.write("path: clicks.csv", "path: clicks.csv, warn_dead: 0.5")
    table(live_series, [*ROWS, *["junk"] * 24])
    assert checked(live_series, code=0)["dead"] == 24
    assert "Warning" not in live_series.command("run", "--until-end").err
    live_series.write("path: clicks.csv", "path: clicks.csv, warn_dead: 2")
    assert "warn_dead: must lie between 0 and 1" in live_series.command("check").err


def test_the_end_of_a_run_names_records_on_request(live_series: LiveSeriesService) -> None:
    table(live_series, [*ROWS, "junk"])
    said = live_series.command("run", "--until-end", "--verbose")
    totals = "NOT PRIVATE: counted in this run: 24 records, 0 of them late; 1 could not be used"
    assert totals in said.err
    again = live_series.command("run", "--until-end").err
    assert "clicks: all its ticks are public already" in again
    assert "24" not in again.replace(str(live_series.folder), "")


def test_a_run_says_from_when_on_it_counts(live_series: LiveSeriesService) -> None:
    first = "clicks: a new ledger; counts what clicks.csv holds from 2024-05-01T00:00:00Z to 2024-05-01T06:00:00Z"
    assert first in live_series.command("run", "--until-end").err


def test_public_data_needs_no_request(live_series: LiveSeriesService) -> None:
    live_series.write("name: clicks\n", "name: clicks\npublic_data: true\n")
    assert "counted in this run: 24 records" in live_series.command("run", "--until-end").err


def test_what_a_person_reads(live_series: LiveSeriesService) -> None:
    table(live_series, [*ROWS, "2024-05-01T00:30:00Z,home,3", "2030-05-01T00:30:00Z,Home"])
    said = live_series.command("check", "--data", str(live_series.folder / "clicks.csv"))
    assert (said.code, said.err) == (0, "")
    assert said.out.count("NOT PRIVATE") == 2
    for text in (
        "time_out_of_range", "line 27", "1 x rows with more or fewer cells than the first line",
        "1 x time: after the range that the clock declares", "26 records of clicks.csv: 2 dead (7.7%), 0 late (0.0%)",
        "page: differs from the domain in upper and lower case",
    ):  # fmt: skip
        assert text in said.out


def test_how_likely_false_alarms_are_is_said_as_by_plan(live_series: LiveSeriesService) -> None:
    busy = "{name: busy, statistic: alerts, by: page, threshold: 3, epsilon: 0.25}"
    watches = "[{name: all, above: 9}, {name: by, by: page, above: 9}]"
    live_series.write(busy, f"{{name: m, statistic: monitor, epsilon: 0.25, watch: {watches}}}")
    planned = live_series.command("plan", "--json").out
    (monitor,) = [each for each in json.loads(planned)["series"] if each["name"] == "m"]
    assert checked(live_series, code=0)["false_alarms"] == monitor["false_alarms"]
    said = live_series.command("check").out
    assert "  all: a false alarm per day with a chance of at most" in said
    assert "  by: a false alarm per key and day with a chance of at most" in said
    assert nothing_was_made(live_series)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--data", "no.csv"), 2, "no.csv: no such file"),
        (("--data", "no.csv", "--topic", "t"), 2, "exclude each other"),
        (("--topic", "t"), 2, "--topic: this pipeline reads a file"),
    ],
)
def test_what_cannot_be_checked(
    live_series: LiveSeriesService, arguments: tuple[str, ...], code: int, says: str
) -> None:
    said = live_series.command("check", *arguments)
    assert (said.code, said.out) == (code, "")
    assert says in said.err


def test_a_column_with_another_name(live_series: LiveSeriesService) -> None:
    table(live_series, ROWS, header="Time,page")
    for command in (("check",), ("run", "--until-end")):
        said = live_series.command(*command)
        assert (said.code, nothing_was_made(live_series)) == (2, True)
        assert "did you mean Time?" in said.err
    table(live_series, ROWS, header="time,Page ")
    says = [one["says"] for one in checked(live_series, code=2)["hints"]]
    assert says == ["page: there is a 'Page '; did you mean that?"]


def test_the_kit_refuses_as_well(live_series: LiveSeriesService, tmp_path: Path) -> None:
    table(live_series, ["junk"])
    assert code_of(["run", str(live_series.pipeline), "--until-end"], kit) == 2
    assert nothing_was_made(live_series)
