"""`check` on files, a first start on records of which none fits, and `dead-letters`: exact, for the operator alone."""

import json
from typing import Any

import pytest
from unit.cli.conftest import HORIZON, ROWS, Site

from stream_dp.journal.commit import DeadLetter
from stream_dp.operate.audit import journal_access
from stream_dp.operate.audit.journal_access import _Kind


def table(service: Site, rows: list[str], header: str = "time,page") -> None:
    (service.folder / "clicks.csv").write_text("\n".join([header, *rows, ""]))


def checked(service: Site, *arguments: str, code: int) -> dict[str, Any]:
    said = service.command("check", "--json", *arguments)
    assert (said.code, said.err) == (code, "")
    found: dict[str, Any] = json.loads(said.out)
    return found


def nothing_was_made(service: Site) -> bool:
    return not service.journal.exists() and service.releases == []


def test_a_sample_that_fits(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key is not needed, and no journal is made."""
    monkeypatch.delenv("STREAM_DP_KEY_FILE")
    said = checked(site, code=0)
    verdicts, ways = said.pop("verdicts"), said.pop("ways")
    assert [(row["series"], row["verdict"]) for row in verdicts] == [
        ("clicks", "rough"), ("by_page", "noise"), ("busy", "noise"),
    ]  # fmt: skip
    assert verdicts[0]["typical"] == 24
    assert ways.keys() == {"clicks", "by_page", "busy"}
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
    assert nothing_was_made(site)
    assert checked(site, "--sample", "4", code=0)["records"] == 4


def test_times_without_an_offset(site: Site) -> None:
    """All of them: nothing begins. Without the check the whole budget is spent on noise, exit 0."""
    table(site, [row.replace("Z,", ",") for row in ROWS])
    said = checked(site, code=2)
    assert (said["dead"], said["fits"]) == (24, False)
    assert said["reasons"] == [
        {"reason": "wrong_type", "field": "time", "records": 24, "example": "line 2"}
    ]
    assert said["hints"][0] == {
        "says": "time: times without an offset; declare their `zone:` (such as Europe/Berlin), or write the offset",
        "records": 24,
    }
    ended = site.command("run", "--until-end")
    assert (ended.code, ended.out, nothing_was_made(site)) == (2, "", True)
    assert (
        "clicks can use none of the records that were looked at (wrong_type in time)" in ended.err
    )
    assert "times without an offset" in ended.err
    assert "24" not in ended.err.replace(str(site.folder), "")

    noise = site.command("run", "--until-end", "--no-check")
    assert (noise.code, len(site.releases)) == (0, 3 * HORIZON)
    assert site.command("run", "--until-end").code == 0  # it has begun, so it goes on
    (site.folder / "clicks.csv").unlink()
    missing = site.command("check", "--data", "no.csv")
    assert (missing.code, "no.csv: no such file" in missing.err) == (2, True)


def test_one_record_that_fits_is_enough_to_begin(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However far behind it lies; the operator is warned, and the share and no count is told."""
    monkeypatch.setattr("stream_dp.operate.check_pipeline.RECORDS", 10)
    table(site, [*(row.replace("Z,", ",") for row in ROWS), ROWS[0]])
    said = site.command("run", "--until-end")
    assert said.code == 0
    assert said.err.count("Warning: more records than `warn_dead` allows") == 1
    assert "(wrong_type in time)" in said.err
    assert "NOT PRIVATE: " not in said.err
    assert "`stream-dp dead-letters " in said.err
    assert checked(site, "--sample", "100", code=2)["dead"] == 24


def test_the_end_of_a_run_names_records_on_request(site: Site) -> None:
    table(site, [*ROWS, "junk"])
    said = site.command("run", "--until-end", "--verbose")
    totals = "NOT PRIVATE: 24 records counted in this run, 0 of them late; 1 could not be used"
    assert totals in said.err
    again = site.command("run", "--until-end").err
    assert "clicks: all its ticks are published already" in again
    assert "24" not in again.replace(str(site.folder), "")


def test_what_a_person_reads(site: Site) -> None:
    table(site, [*ROWS, "2024-05-01T00:30:00Z,home,3", "2030-05-01T00:30:00Z,Home"])
    said = site.command("check", "--data", str(site.folder / "clicks.csv"))
    assert (said.code, said.err) == (0, "")
    assert said.out.count("NOT PRIVATE") == 4
    for text in (
        "time_out_of_range", "line 27", "1 x rows with more or fewer cells than the first line",
        "1 x time: after the range that the clock declares", "26 records of clicks.csv: 2 dead (7.7%), 0 late (0.0%)",
        "page: values that differ from the domain only in upper and lower case",
    ):  # fmt: skip
        assert text in said.out


def test_a_column_with_another_name(site: Site) -> None:
    table(site, ROWS, header="Time,page")
    for command in (("check",), ("run", "--until-end")):
        said = site.command(*command)
        assert (said.code, nothing_was_made(site)) == (2, True)
        assert "did you mean Time?" in said.err
    table(site, ROWS, header="time,Page ")
    says = [one["says"] for one in checked(site, code=2)["hints"]]
    assert says == ["page: the records have 'Page '; did you mean that?"]


JUNK = ["too,many,cells", "too,few,cells", "2024-05-01T00:30:00Z,", "2030-05-01T00:30:00Z,home", "one"]  # fmt: skip


def test_what_was_refused_is_listed(site: Site) -> None:
    data = site.folder / "clicks.csv"
    first = len(data.read_text().splitlines()) + 1
    data.write_text(data.read_text() + "".join(f"{line}\n" for line in JUNK))
    assert site.command("run", "--until-end").code == 0
    shown = json.loads(site.command("dead-letters", "--json").out)
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
    said = site.command("dead-letters")
    assert said.code == 0
    assert said.out.count("NOT PRIVATE") == 2
    assert f"{first}-{first + 1}, {first + 4}" in said.out
    assert "24 records counted, 0 of them late; 5 could not be used." in said.out


def test_too_long_lists_are_refused_and_counted(site: Site) -> None:
    data, pipeline = site.folder / "clicks.csv", site.pipeline
    first = len(data.read_text().splitlines()) + 1
    listed = 'page: {type: list, domain: [home, help], most: 2, separator: "|"}'
    category = "page: {type: category, domain: [home, help]}"
    pipeline.write_text(pipeline.read_text().replace(category, listed))
    lists = ["home|help", "home|home", "home|help|elsewhere", "home|home|home", ""]
    lines = "".join(f"2024-05-01T00:30:00Z,{each}\n" for each in lists)
    data.write_text(data.read_text() + lines)
    assert site.command("run", "--until-end").code == 0
    shown = json.loads(site.command("dead-letters", "--json").out)
    assert (shown["records"], shown["dead"]) == (24 + 3, 2)
    assert shown["dead_letters"] == [
        {"partition": 0, "reason": "too_many_entries", "field": "page", "records": 2,
         "ranges": [[first + 2, first + 3]], "elsewhere": 0},
    ]  # fmt: skip


def test_no_journal_and_a_damaged_one(site: Site) -> None:
    said = site.command("dead-letters")
    assert (said.code, "no journal here" in said.err) == (2, True)
    site.command("run", "--until-end")
    assert json.loads(site.command("dead-letters", "--json").out)["dead_letters"] == []
    site.journal.write_bytes(site.journal.read_bytes()[:5000])
    assert site.command("dead-letters").code == 4


def test_the_newest_ranges_are_kept_and_all_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_access, "RANGES", 2)
    kind = _Kind()
    for ranges in (((1, 2), (4, 4)), ((5, 9),), ((20, 20),)):
        kind.take(DeadLetter(0, "not_json", None, 10, ranges))
    assert kind.shown(30) == {"records": 30, "ranges": [[4, 9], [20, 20]], "elsewhere": 23}


def test_what_the_series_are_worth_is_for_the_operators_eyes(site: Site) -> None:
    """24 clicks, of which 12 are of home and 6 of each other page; nothing of it stands in releases or the journal."""
    said = site.command("check")
    assert said.code == 0
    table, _, ways = said.out.partition("Verdicts: 1 rough, 2 noise\n")
    assert "How useful the series are, judged by this sample, NOT PRIVATE" in table
    assert "rough (58%)" in table
    assert "false alarms 94.2% a day" in table
    more = "; needs a larger privacy.epsilon, or less epsilon for other series"
    assert ways.splitlines()[:3] == [
        "clicks would be useful with one of these entries instead:",
        "    - {name: clicks, statistic: count, epsilon: 1.5}  # useful: ± 4 of 24" + more,
        "    - {name: clicks, statistic: count, epsilon: 0.67, every: 6h}  # useful: ± 4 of 24 over 6h"
        + more,
    ]
    assert "No change that was tried makes busy useful. The nearest:" in ways
    assert "NOT PRIVATE: these verdicts are computed from exact figures of the sample" in ways
    assert nothing_was_made(site)


@pytest.mark.parametrize(
    ("rows", "sample", "said"),
    [
        (ROWS, 8, ["the sample covers 1h"]),
        (ROWS[::-1], 8, ["time: the lines are not in the order of this time"]),
        (ROWS[::5] + ROWS, 8, ["time: the lines are not in the order of this time"]),
        (ROWS[::-1], 100, []),
    ],
)
def test_what_the_beginning_of_a_file_cannot_say_of_its_windows_is_said(
    site: Site, rows: list[str], sample: int, said: list[str]
) -> None:
    """Lines in no order have a part of each window; an hour of six has a rate that may be a burst's."""
    table(site, rows)
    hints = checked(site, "--sample", str(sample), code=0)["hints"]
    assert [hint["says"].split(", ")[0].split(". ")[0] for hint in hints] == said
    assert {hint["records"] for hint in hints} <= {
        0
    }  # printed without a number: they are about the whole sample


def test_a_simulation_spends_nothing_and_says_what_tuning_is(site: Site) -> None:
    data = str(site.folder / "clicks.csv")
    said = site.command("simulate", "--data", data, "--epsilon", "1,4", "--runs", "2", "--json")
    assert (said.code, said.err, nothing_was_made(site)) == (0, "", True)
    found = json.loads(said.out)
    assert (found["private"], found["runs"]) == (False, 2)
    points = [(point["series"], point["budget"], point["epsilon"]) for point in found["points"]]
    assert points == [
        ("clicks", 1.0, 0.5), ("clicks", 4.0, 2.0), ("by_page", 1.0, 0.25), ("by_page", 4.0, 1.0),
        ("busy", 1.0, 0.25), ("busy", 4.0, 1.0),
    ]  # fmt: skip
    seen = found["points"][0]["observed"]
    assert (seen["numbers"], seen["typical"]) == (12, 14.0)  # of 4, 8, ... 24
    assert found["points"][4]["observed"] is None
    shown = site.command("simulate", "--data", data, "--runs", "1")
    assert (shown.code, nothing_was_made(site)) == (0, True)
    assert shown.out.count("clicks") == 1
    assert "reveals something about these data, and no budget covers this loss" in shown.out
    assert "Alerts are not simulated" in shown.out
    wrong = site.command("simulate", "--data", data, "--epsilon", "1,x")
    assert (wrong.code, wrong.out, "--epsilon: " in wrong.err) == (2, "", True)
    table(site, ["2030-05-01T00:30:00Z,home"])
    outside = site.command("simulate", "--data", data)
    assert (outside.code, "none of its records lies in a tick of clicks" in outside.err) == (
        2,
        True,
    )
