"""What a spelling means, against an oracle that shares nothing with it: own grammar, own calendar, exact fractions."""

import importlib
import re
from datetime import datetime, timedelta, timezone, tzinfo
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.moments import SPELLINGS, kolkata, local_times, oracle, paris, texts

from stream_dp.core import time
from stream_dp.core.time import (
    TickGrid,
    TimeForm,
    moment_text,
    own_time,
    parse_moment,
    parse_moments,
)


def test_every_spelling_means_what_the_oracle_says() -> None:
    assert {text: parse_moment(text) for text in SPELLINGS} == {
        text: oracle(text) for text in SPELLINGS
    }


@given(texts())
def test_made_up_spellings_mean_what_the_oracle_says(text: str) -> None:
    assert parse_moment(text) == oracle(text)


PARIS, INDIA = ZoneInfo("Europe/Paris"), timezone(timedelta(hours=5, minutes=30))


@given(local_times())
def test_a_time_without_an_offset_is_one_of_the_declared_zone(text: str) -> None:
    assert parse_moment(text, PARIS) == oracle(text, paris)
    assert parse_moment(text, INDIA) == oracle(text, kolkata)
    assert parse_moment(text) is None


@given(texts())
def test_an_offset_counts_before_the_zone(text: str) -> None:
    if oracle(text) is not None:
        assert parse_moment(text, PARIS) == oracle(text)
    assert parse_moment(text, INDIA) == oracle(text, kolkata)


@pytest.mark.parametrize(
    ("text", "zone", "moment"),
    [
        ("2013-01-01 10:00:00", "UTC", 1_357_034_400_000),
        ("2013-01-01 10:00:00", "Europe/Paris", 1_357_030_800_000),
        ("2024-03-31 01:59:59.9999", "Europe/Paris", 1_711_846_799_999),
        ("2024-03-31 02:30:00", "Europe/Paris", 1_711_848_600_000),  # skipped: 01:30 UTC
        ("2024-10-27 02:30:00", "Europe/Paris", 1_729_989_000_000),  # twice: the first, 00:30 UTC
        ("2024-11-03 01:30:00", "America/New_York", 1_730_611_800_000),
        ("1800-01-01 00:09:21.0009", "Europe/Paris", -5_364_662_400_000),  # by the sun: +00:09:21
        ("1969-12-31 23:59:59.9999", "UTC", -1),
        ("9999-12-31 23:59:59.9999999", "America/New_York", 253_402_318_799_999),
    ],
)
def test_local_times_by_hand(text: str, zone: str, moment: int) -> None:
    assert parse_moment(text, ZoneInfo(zone)) == moment


def test_a_twin_that_takes_the_second_of_two_times_is_caught() -> None:
    class Later(tzinfo):
        def utcoffset(self, moment: datetime | None) -> timedelta | None:
            return None if moment is None else moment.replace(tzinfo=PARIS, fold=1).utcoffset()

        def dst(self, _: datetime | None) -> timedelta | None:
            return None

        def tzname(self, _: datetime | None) -> str | None:
            return None

    both = [parse_moment("2024-10-27 02:30:00", zone) for zone in (PARIS, Later())]
    assert both == [oracle("2024-10-27 02:30:00", paris), 1_729_992_600_000]


@pytest.mark.parametrize(
    ("unit", "value", "moment"),
    [
        ("iso", 1_357_034_400_123, 1_357_034_400_123),
        ("epoch_s", 1_357_034_400, 1_357_034_400_000),
        ("epoch_s", -1, -1000),
        ("epoch_ms", -1, -1),
        ("epoch_us", 1_357_034_400_123_999, 1_357_034_400_123),
        ("epoch_us", -1000, -1),
        ("epoch_us", -1001, -2),
        ("epoch_s", 1.5, None),
        ("epoch_s", True, None),
    ],
)
def test_integers_count_what_is_declared(unit: str, value: Any, moment: int | None) -> None:
    assert own_time(value, TimeForm(unit)) == moment


def test_a_parser_that_rounds_up_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "_to_microseconds", lambda text: text)
    wrong = [text for text in SPELLINGS if parse_moment(text) != oracle(text)]
    assert "2024-05-01T00:59:59.9999996Z" in wrong


def test_a_fraction_may_be_as_long_as_one_likes() -> None:
    assert parse_moment(f"1970-01-01T00:00:00.{'9' * 10**6}Z") == 999
    assert parse_moment("2" * 10**6) is None


@pytest.mark.parametrize("value", [1.0, True, None, [], b"1970-01-01T00:00:00Z", "1357041600000"])
def test_other_values_name_no_moment(value: Any) -> None:
    assert own_time(value) is None


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_text_is_read_back(moment: int) -> None:
    assert oracle(moment_text(moment)) == parse_moment(moment_text(moment)) == moment


_MOMENTS, _STEPS = st.integers(-(10**20), 10**20), st.integers(1, 10**12)


@given(_MOMENTS, _STEPS, _MOMENTS)
def test_a_tick_holds_its_start_and_not_its_end(origin: int, step: int, moment: int) -> None:
    grid = TickGrid(origin, step)
    tick = grid.tick_of(moment)
    assert tick == Fraction(moment - origin, step).__floor__()
    assert grid.start(tick) <= moment < grid.end(tick) == grid.start(tick + 1)
    assert grid.end(grid.passed(moment)) <= moment < grid.end(grid.passed(moment) + 1)
    assert TickGrid.ending(tick, grid.end(tick), step) == grid


@given(_MOMENTS, st.none() | st.integers(1, 50), st.integers(-60, 60))
def test_inside_is_from_0_up_to_the_horizon(origin: int, horizon: int | None, tick: int) -> None:
    declared = range(10**6 if horizon is None else horizon)
    assert (tick in TickGrid(origin, 10, horizon)) == (tick in declared)


@pytest.mark.parametrize(("step", "horizon"), [(0, None), (-1, 5), (10, 0)])
def test_no_grid_without_a_step_and_a_tick(step: int, horizon: int | None) -> None:
    with pytest.raises(ValueError, match="a step of 1 ms"):
        TickGrid(0, step, horizon)


ALL_ZONES = sorted(available_timezones() - {"localtime"})
PythonZone = importlib.import_module("zoneinfo._zoneinfo").ZoneInfo
NAIVE = datetime(1970, 1, 1)  # noqa: DTZ001 - for local times
FIRST, LAST = -62_135_000_000, 253_402_000_000
"""Seconds since 1970 a few days inside of the years that have names."""


@given(st.lists(texts() | local_times(), max_size=80), st.sampled_from(ALL_ZONES))
def test_many_texts_mean_what_each_means(some: list[str], name: str) -> None:
    """Those of one length are repeated, so that they are read by columns."""
    zone = ZoneInfo(name)
    for together in (some, SPELLINGS * 2, *(each for each in ([text] * 33 for text in some[:3]))):
        for where in (zone, None):
            assert parse_moments(together, where) == [
                parse_moment(text, where) for text in together
            ]


STEPS = (-1, 0, 3_599)


@pytest.mark.long
@pytest.mark.parametrize("letter", sorted({name[0] for name in ALL_ZONES}))
def test_times_around_all_changes_of_all_zones_mean_by_columns_what_each_means(letter: str) -> None:
    """The changes as Python's own reader of the database lists them, and by the rule for later years."""
    for name in (each for each in ALL_ZONES if each[0] == letter):
        slow = PythonZone.no_cache(name)
        changes = {*slow._trans_local[0], *slow._trans_local[1]}
        if hasattr(slow._tz_after, "transitions"):
            changes |= {
                each for year in (2038, 2400, 9998) for each in slow._tz_after.transitions(year)
            }
        some = [
            (NAIVE + timedelta(seconds=change + step)).isoformat(" ")
            for change in sorted(changes)
            for step in STEPS
            if FIRST < change < LAST
        ]
        some += ["0001-01-01 00:00:00", "9999-12-31 23:59:59"] * 32
        zone = ZoneInfo(name)
        assert parse_moments(some, zone) == [parse_moment(text, zone) for text in some], name


def test_a_twin_that_looks_at_midnights_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(zone: tzinfo, day: int) -> int:
        midnight = (NAIVE + timedelta(days=day)).replace(tzinfo=zone)
        return round((midnight.utcoffset() or timedelta()).total_seconds())

    some = [f"2024-03-31 0{hour}:30:00" for hour in range(6)] * 6
    right = [parse_moment(text, PARIS) for text in some]
    assert parse_moments(some, PARIS) == right
    monkeypatch.setattr(time, "_offset_of_day", careless)
    assert parse_moments(some, PARIS) != right


PATTERNS = [
    "%d.%m.%Y %H:%M", "%m/%d/%y %I:%M:%S %p", "%Y%m%d%H%M%S", "%d-%b-%Y", "%B %d, %Y at %H:%M:%S.%f",
    "%Y-%m-%dT%H:%M:%S%z", "[%d/%b/%Y:%H:%M:%S %z]", "%d.%m.%Y (%H:%M)",
]  # fmt: skip
AWAY = timezone(timedelta(hours=-3))
MOMENTS = st.integers(-30_000_000, 3_123_000_000).map(
    lambda second: datetime.fromtimestamp(second, AWAY)
)


@given(
    st.sampled_from(PATTERNS),
    MOMENTS,
    st.integers(0, 40),
    st.sampled_from(["", "0", "9", " ", "P", ":", "%"]),
)
def test_a_pattern_means_what_strptime_says(
    pattern: str, moment: datetime, at: int, other: str
) -> None:
    """A text that is spoilt at one place is no time, or the one that it is for strptime, which takes more texts."""
    text = moment.strftime(pattern)
    assert TimeForm(pattern, INDIA).parse(text) == by_strptime(text, pattern)
    spoilt = text[:at] + other + text[at + 1 :]
    assert TimeForm(pattern, INDIA).parse(spoilt) in (None, by_strptime(spoilt, pattern))


def by_strptime(text: str, pattern: str) -> int | None:
    text = re.sub(r"(\.[0-9]{6})[0-9]+", r"\1", text)  # of which it takes no more digits
    try:
        read = datetime.strptime(text, pattern)  # noqa: DTZ007 - as the zone says, below
    except ValueError:
        return None
    aware = read if read.tzinfo is not None else read.replace(tzinfo=INDIA)
    return (aware - time.EPOCH) // timedelta(milliseconds=1)


@pytest.mark.parametrize(
    "text",
    [
        "31.02.2024 10:00", "1.1.2024 24:00", "1.1.2024 10:60", "\u0661.1.2024 10:00", "1.1.2024  10:00",
        "1.1.2024 10:00 ",
    ],
)  # fmt: skip
def test_what_no_time_of_a_pattern_is(text: str) -> None:
    form = TimeForm("%d.%m.%Y %H:%M", INDIA)
    assert form.parse("01.1.2024 9:05") is not None
    assert form.parse(text) is None
    assert TimeForm("%d.%m.%Y %H:%M").parse("01.1.2024 9:05") is None  # no zone, no moment
    assert TimeForm("%d.%m.%Y %I:%M %p", INDIA).parse("1.1.2024 0:10 PM") is None
    assert own_time(20_240_101, TimeForm("%Y%m%d", INDIA)) is None  # a number is no text
    away = TimeForm("%d.%m.%Y%z")
    assert [away.parse(f"1.1.1970{z}") for z in ("+0059", "+0060", "+24:00")] == [
        -59 * 60_000,
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("pattern", "wrong"),
    [
        ("%d.%m.%Y %H:%M %q", "%q, but only"), ("%d.%m.%m.%Y", "%m twice"), ("%m.%Y", "needs a year"),
        ("%d.%m.%Y %I:%M", "needs hours"), ("%d.%m.%Y %M", "without its hours"), ("%d.%m.%Y %H:%M.%f", "without %S"),
        ("100%", "but only"),
    ],
)  # fmt: skip
def test_a_pattern_that_is_none(pattern: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        time.compiled(pattern)
