"""The moment that a text names, by an own grammar and an own calendar, in exact fractions; and many texts to try.

Nothing of the package, no `datetime`, no time zone database and no decoder: what is meant is RFC 3339 with an offset,
also as databases print it (`+00`, `+0000`, `+00:19:32`, `UTC`, a space before any of them, a comma), any number of
digits after the seconds, floored to the millisecond. Without an offset it is a time in a zone whose rule is written
down here.
"""

import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias

from hypothesis import strategies as st

Zone: TypeAlias = Callable[[int], int]
"""The offset in seconds that is in force at a number of seconds since 1970."""

_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})")
_FRACTION = re.compile(r"[.,]([0-9]+)")
_OFFSETS = (
    re.compile(r"([+-])([0-9]{2})()()"),
    re.compile(r"([+-])([0-9]{2}):?([0-9]{2})()"),
    re.compile(r"([+-])([0-9]{2}):([0-9]{2}):([0-9]{2})"),
)
_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def oracle(text: str, zone: Zone | None = None) -> int | None:
    """Return the milliseconds since 1970, floored; None for what is no such text."""
    date = _DATE.match(text)
    if date is None:
        return None
    year, month, day, hour, minute, second = map(int, date.groups())
    if year < 1 or not 1 <= month <= 12 or not 1 <= day <= _length(year, month):
        return None
    if hour > 23 or minute > 59 or second > 59:
        return None
    seconds = ((_day(year, month, day) * 24 + hour) * 60 + minute) * 60 + second
    fraction, rest = Fraction(0), text[date.end() :]
    if found := _FRACTION.match(rest):
        fraction, rest = Fraction(int(found[1]), 10 ** len(found[1])), rest[found.end() :]
    offset = _stated(rest) if rest else _first(seconds, zone)
    return None if offset is None else math.floor((seconds - offset + fraction) * 1000)


def _stated(rest: str) -> int | None:
    """The offset in seconds that the end of a text states."""
    rest = rest.removeprefix(" ")
    if rest in {"Z", "z", "UTC"}:
        return 0
    for form in _OFFSETS:
        if found := form.fullmatch(rest):
            hours, minutes, seconds = (int(each or 0) for each in found.groups()[1:])
            if hours > 23 or minutes > 59 or seconds > 59:
                return None
            return (-1 if found[1] == "-" else 1) * (hours * 3600 + minutes * 60 + seconds)
    return None


def _first(local: int, zone: Zone | None) -> int | None:
    """The offset of a local time: of two such times the first; of none, the offset before the clocks were set."""
    if zone is None:
        return None
    fits = [
        offset
        for offset in {zone(local - 86400), zone(local + 86400)}
        if zone(local - offset) == offset
    ]
    return max(fits) if fits else zone(local - 86400)


def paris(moment: int) -> int:
    """Return the offset in force in the EU, central time, after 1996: summer from 01:00 UTC of two last Sundays."""
    year = next(y for y in range(1996, 10000) if _day(y + 1, 1, 1) * 86400 > moment)
    summer = _last_sunday(year, 3) * 86400 + 3600 <= moment < _last_sunday(year, 10) * 86400 + 3600
    return 7200 if summer else 3600


def kolkata(_moment: int) -> int:
    """Return the one offset in force in India."""
    return 19800


def _last_sunday(year: int, month: int) -> int:
    last = _day(year, month, _length(year, month))
    return last - (last + 4) % 7  # 1970 began on a Thursday


def _day(year: int, month: int, day: int) -> int:
    """Days from 1970 to this one."""
    past = sum(_length(year, earlier) for earlier in range(1, month))
    return _days_before(year) - _days_before(1970) + past + day - 1


def _leaps(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _length(year: int, month: int) -> int:
    return 29 if month == 2 and _leaps(year) else _LENGTHS[month - 1]


def _days_before(year: int) -> int:
    """Days from the year 1 to the first day of `year`."""
    past = year - 1
    return 365 * past + past // 4 - past // 100 + past // 400


SPELLINGS = (
    "2024-05-01 00:59:59+00", "2024-05-01 00:59:59.123456+05:30", "2024-05-01 00:59:59-03:30",
    "1800-01-01 00:00:00+00:19:32", "1800-01-01 00:00:00.5-04:56:02", "2024-05-01 00:59:59 UTC",
    "2024-05-01 00:59:59.123456 UTC", "2024-05-01 00:59:59.9999999 +00:00",
    "2024-05-01 00:59:59.999 +0000", "2024-05-01 00:59:59.999 -0130", "2024-05-01 00:59:59.999 Z",
    "2024-05-01 00:59:59.000000+0000", "2024-05-01 00:59:59.123456", "2024-05-01T00:59:59,123Z",
    "2024-05-01T00:59:59,9999996+00:00", "2024-05-01t00:59:59,9999996z",
    "1969-12-31 23:59:59.9999999 UTC", "2024-05-01 00:59:59 utc", "2024-05-01 00:59:59  UTC",
    "2024-05-01 00:59:59 ", "2024-05-01 00:59:59 GMT", "2024-05-01 00:59:59 CET",
    "2024-05-01 00:59:59+5", "2024-05-01 00:59:59+05:3", "2024-05-01 00:59:59+0530:00",
    "2024-05-01 00:59:59+053000", "2024-05-01 00:59:59+00:00:60", "2024-05-01 00:59:59,",
    "2024-05-01 00:59:59,Z", "2024-05-01 00:59:59.,5Z", "2024-02-30 00:59:59 UTC",
    "2024-05-01 24:59:59 UTC", "0000-05-01 00:59:59 UTC", "0044-03-15 12:00:00 BC", "infinity",
    "01-MAY-24 12.59.59.000000 AM +00:00", "2024-05-01T00:59:59Z", "2024-05-01t00:59:59z",
    "2024-05-01T00:59:59z", "2024-05-01 00:59:59Z", "2024-05-01_00:59:59Z",
    "2024-05-01T00:59:59.1Z", "2024-05-01T00:59:59.999Z", "2024-05-01T00:59:59.9994999Z",
    "2024-05-01T00:59:59.9999994Z", "2024-05-01T00:59:59.9999995Z", "2024-05-01T00:59:59.9999996Z",
    "2024-05-01T00:59:59.9999999+00:00", "2024-05-01T05:29:59.999999999+0530",
    "2024-05-01T00:59:59.999999+00:00", "2024-05-01T00:59:59.12345+00:00",
    "2024-05-01T00:59:59.0009999Z", "2024-05-01T00:59:59." + "9" * 15 + "Z",
    "2024-05-01T00:59:59." + "9" * 60 + "Z", "2024-05-01T00:59:59." + "0" * 60 + "1-23:59",
    "2024-05-01T00:59:59.5+01:00", "2024-05-01T00:59:59-01:00", "2024-05-01T00:59:59-00:00",
    "2024-05-01T00:59:59+0000", "2024-05-01T00:59:59+0530", "2024-05-01T00:59:59+23:59",
    "1969-12-31T23:59:59.9999999Z", "1969-12-31T23:59:59.9990001Z", "1969-12-31T23:59:59.0005Z",
    "2000-02-29T12:00:00Z", "1900-02-28T23:59:59.9999999Z", "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59.9999999Z", "9999-12-31T23:59:59-23:59",
    "1900-02-29T12:00:00Z", "2023-02-29T12:00:00Z", "0000-01-01T00:00:00Z", "2024-05-01T00:59:59",
    "2024-05-01T00:59:59.9999996", "2024-05-01", "2024-05-01T00:59Z", "2024-05-01T00Z",
    "20240501T005959Z", "2024-W18-3T00:00:00Z", "2024-122T00:00:00Z", "2024-5-1T00:59:59Z",
    "2024-05-01T00:59:59.Z", "2024-05-01T00:59:59,5Z", "2024-05-01T00:59:59.5.5Z",
    "2024-05-01T00:59:59.1234567.5Z", "2024-05-01T00:59:59+00", "2024-05-01T00:59:59+24:00",
    "2024-05-01T00:59:59+23:60", "2024-05-01T00:59:59+00:00:30",
    "2024-05-01T00:59:59.1234567+00:00:30", "2024-05-01T24:00:00Z", "2024-05-01T23:59:60Z",
    "2024-05-01T00:60:00Z", "2024-13-01T00:00:00Z", "2024-00-01T00:00:00Z", "2024-04-31T00:00:00Z",
    " 2024-05-01T00:59:59Z", "2024-05-01T00:59:59Z ", "2024-05-01T00:59:59.9999996 Z",
    "2024-05-01T00:59:59 +01:00", "2024-05-01T00:59:59Z\n", "2024-05-01T00:59:59UTC",
    "2024-05-01T00:59:59.1234567Europe/Paris", "+2024-05-01T00:59:59Z", "02024-05-01T00:59:59Z",
    "2024-05-01T00:59:59\u221201:00", "\u0662024-05-01T00:59:59Z", "2024-05-01T00:59:59.\u0663Z",
    "2024-05-01T00:59:59.1234567\u0663Z", "2024-05-01T00:59:59\udce9Z", "yesterday", "",
)  # fmt: skip
"""Spellings of one hour and its neighbourhood; a third of them name no moment."""

_ZONES = (
    *("Z", "z", "", "+00:00", "-00:00", "+23:59", "-23:59", "+0530", "-0100", "+05", "+24:00"),
    *(" Z", " UTC", "UTC", " +0000", "-00", "+00:19:32", "-04:56:02", "+00:60", " ", "+053000"),
)


@st.composite
def local_times(draw: st.DrawFn) -> str:
    """Texts without an offset of the years 1997 to 2100, many near the hours at which clocks are set."""
    year = draw(st.integers(1997, 2100))
    month, hours = draw(st.sampled_from([(3, (0, 3)), (10, (0, 4)), (7, (0, 23))]))
    sunday = _last_sunday(year, month) - _day(year, month, 1) + 1
    day = draw(st.sampled_from([sunday, sunday - 1, 1]))
    hour, minute, second = (
        draw(st.integers(*hours)),
        draw(st.integers(0, 59)),
        draw(st.integers(0, 59)),
    )
    digits = draw(st.sampled_from(["", ".5", ",9999999", "." + "9" * 9]))
    between = draw(st.sampled_from("T t"))
    return f"{year}-{month:02}-{day:02}{between}{hour:02}:{minute:02}:{second:02}{digits}"


@st.composite
def texts(draw: st.DrawFn, near: str | None = None) -> str:
    """Texts that are times, or nearly; of the first hours of the day `near` if it is given."""
    likely = draw(st.booleans())
    year = draw(st.integers(0, 9999))
    tops = (12, 28, 3 if near else 23, 59, 59) if likely else (13, 32, 25, 61, 61)
    month, day, hour, minute, second = (
        draw(st.integers(low, top)) for low, top in zip((1, 1, 0, 0, 0), tops, strict=True)
    )
    between = "T" if likely else draw(st.sampled_from("Tt _,"))
    digits = draw(
        st.text("0123456789", max_size=30) | st.sampled_from(["9" * 7, "9" * 6 + "5", "0" * 9])
    )
    point = "." if digits and likely else draw(st.sampled_from(["", ".", ","]))
    zone = draw(st.sampled_from(_ZONES)) if draw(st.booleans()) else "Z"
    day_text = near or f"{year:04}-{month:02}-{day:02}"
    clock = f"{hour:02}:{minute:02}:{second:02}"
    return f"{day_text}{between}{clock}{point}{digits if point else ''}{zone}"
