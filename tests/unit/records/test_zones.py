"""Declared zones: which names are accepted, and what of a zone belongs to a pipeline."""

from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from stream_dp.core.time import TickGrid, TimeForm
from stream_dp.pipeline import fingerprints as meanings
from stream_dp.pipeline.fingerprints import fingerprint
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.records import schema
from stream_dp.records.schema import TimeField, offsets

Data = dict[str, Any]
DAY = 86_400_000
START = 1_704_067_200_000  # 2024-01-01T00:00:00Z


@pytest.mark.parametrize("name", ["Europe/Paris", "UTC", "America/Argentina/Ushuaia", "Etc/GMT+3"])
def test_names_of_the_database_are_accepted(name: str) -> None:
    assert TimeField(zone=name).form == TimeForm(zone=ZoneInfo(name))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Europe/Pari", "did you mean Europe/Paris"),
        ("+01:00", "IANA name of a time zone"),
        ("CEST, summer", "IANA name of a time zone"),
        ("localtime", "IANA name of a time zone"),
        ("posix/Europe/Paris", "did you mean Europe/Paris"),
        ("../../etc/passwd", "IANA name of a time zone"),
        ("", "IANA name of a time zone"),
    ],
)
def test_other_names_are_refused(name: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TimeField(zone=name)


def test_a_machine_without_a_database_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "available_timezones", set)
    with pytest.raises(ValidationError, match="pip install tzdata"):
        TimeField(zone="Europe/Paris")


@pytest.mark.parametrize("form", ["epoch_s", "epoch_ms", "epoch_us"])
def test_numbers_have_no_zone(form: str) -> None:
    with pytest.raises(ValidationError, match="has no zone: leave it out"):
        TimeField.model_validate({"format": form, "zone": "UTC"})


def test_the_offsets_of_a_year() -> None:
    """Central Europe sets its clocks at 01:00 UTC of the last Sundays of March and October."""
    found = offsets(ZoneInfo("Europe/Paris"), TickGrid(START, DAY, 366))
    assert found == [
        (START // 1000 - 2 * 86400, 3600),
        (1_711_846_800, 7200),
        (1_729_990_800, 3600),
    ]
    assert len(offsets(ZoneInfo("UTC"), TickGrid(START, DAY, 366))) == 1


@given(
    st.sampled_from(["Europe/Dublin", "America/St_Johns", "Australia/Lord_Howe", "Africa/Casablanca"]),
    st.integers(-(10**12), 4 * 10**12),
)  # fmt: skip
def test_offsets_are_those_of_every_moment_of_the_range(name: str, moment: int) -> None:
    zone, grid = ZoneInfo(name), TickGrid(moment - DAY, DAY, 3)
    in_force = [o for at, o in offsets(zone, grid) if at * 1000 <= moment][-1]
    assert timedelta(seconds=in_force) == datetime.fromtimestamp(moment // 1000, zone).utcoffset()


@pytest.mark.parametrize("start", [-62_135_596_800_000, 253_402_128_000_000])
def test_ranges_at_the_ends_of_the_calendar(start: int) -> None:
    assert offsets(ZoneInfo("America/New_York"), TickGrid(start, DAY, 2))


def zoned(data: Data, **time: str) -> str:
    schema = data["schema"] | {"time": {"type": "time", **time}}
    return fingerprint(PipelineSpec.model_validate(data | {"schema": schema}))


def test_a_fingerprint_without_a_zone_is_what_it_was(data: Data) -> None:
    assert zoned(data) == zoned(data, format="iso")
    assert zoned(data) == "0e20d799bce65f7065f29276c9452b6b9878bf43ea7155e7a5aafebfdaec31dd"
    epoch = "20ed26262f44074fda820f21f010935337482f978acaffed9926104e4e306042"
    assert zoned(data, format="epoch_ms") == epoch


def test_a_fingerprint_covers_the_form_and_the_zone(data: Data) -> None:
    forms = [{}, *({"format": f"epoch_{unit}"} for unit in ("s", "ms", "us"))]
    forms += [{"zone": zone} for zone in ("UTC", "Europe/Paris", "Europe/Berlin")]
    assert len({zoned(data, **form) for form in forms}) == len(forms)


def test_a_database_that_changed_within_the_range_is_another_pipeline(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ticks that are published already would count other records."""
    before = zoned(data, zone="Europe/Paris")
    assert zoned(data, zone="Europe/Paris") == before
    changed: tzinfo = timezone(timedelta(hours=2))
    monkeypatch.setattr(meanings, "ZoneInfo", lambda _: changed)
    assert zoned(data, zone="Europe/Paris") != before
