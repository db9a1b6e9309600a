"""The moment that a text names, by an own grammar and an own calendar, in exact fractions; and many texts to try.

Nothing of the package, no `datetime` and no decoder: what is meant is RFC 3339 with an offset (its colon may be left
out), any number of digits after the seconds, floored to the millisecond.
"""

import math
import re
from fractions import Fraction

from hypothesis import strategies as st

_GRAMMAR = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]+)?"
    r"(?:[Zz]|([+-])([0-9]{2}):?([0-9]{2}))"
)
_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def oracle(text: str) -> int | None:
    """Return the milliseconds since 1970, floored; None for what is no such text."""
    match = _GRAMMAR.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = map(int, match.groups()[:6])
    away = (int(match[9] or 0), int(match[10] or 0))
    if year < 1 or not 1 <= month <= 12 or not 1 <= day <= _length(year, month):
        return None
    if hour > 23 or minute > 59 or second > 59 or away[0] > 23 or away[1] > 59:
        return None
    offset = (-1 if match[8] == "-" else 1) * (60 * away[0] + away[1])
    days = _days_before(year) - _days_before(1970) + day - 1
    days += sum(_length(year, earlier) for earlier in range(1, month))
    seconds = Fraction(((days * 24 + hour) * 60 + minute - offset) * 60 + second)
    if match[7]:
        seconds += Fraction(int(match[7][1:]), 10 ** (len(match[7]) - 1))
    return math.floor(seconds * 1000)


def _leaps(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _length(year: int, month: int) -> int:
    return 29 if month == 2 and _leaps(year) else _LENGTHS[month - 1]


def _days_before(year: int) -> int:
    """Days from the year 1 to the first day of `year`."""
    past = year - 1
    return 365 * past + past // 4 - past // 100 + past // 400


SPELLINGS = (
    "2024-05-01T00:59:59Z",
    "2024-05-01t00:59:59z",
    "2024-05-01T00:59:59z",
    "2024-05-01 00:59:59Z",
    "2024-05-01_00:59:59Z",
    "2024-05-01T00:59:59.1Z",
    "2024-05-01T00:59:59.999Z",
    "2024-05-01T00:59:59.9994999Z",
    "2024-05-01T00:59:59.9999994Z",
    "2024-05-01T00:59:59.9999995Z",
    "2024-05-01T00:59:59.9999996Z",
    "2024-05-01T00:59:59.9999999+00:00",
    "2024-05-01T05:29:59.999999999+0530",
    "2024-05-01T00:59:59.999999+00:00",
    "2024-05-01T00:59:59.12345+00:00",
    "2024-05-01T00:59:59.0009999Z",
    "2024-05-01T00:59:59." + "9" * 15 + "Z",
    "2024-05-01T00:59:59." + "9" * 60 + "Z",
    "2024-05-01T00:59:59." + "0" * 60 + "1-23:59",
    "2024-05-01T00:59:59.5+01:00",
    "2024-05-01T00:59:59-01:00",
    "2024-05-01T00:59:59-00:00",
    "2024-05-01T00:59:59+0000",
    "2024-05-01T00:59:59+0530",
    "2024-05-01T00:59:59+23:59",
    "1969-12-31T23:59:59.9999999Z",
    "1969-12-31T23:59:59.9990001Z",
    "1969-12-31T23:59:59.0005Z",
    "2000-02-29T12:00:00Z",
    "1900-02-28T23:59:59.9999999Z",
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59.9999999Z",
    "9999-12-31T23:59:59-23:59",
    "1900-02-29T12:00:00Z",
    "2023-02-29T12:00:00Z",
    "0000-01-01T00:00:00Z",
    "2024-05-01T00:59:59",
    "2024-05-01T00:59:59.9999996",
    "2024-05-01",
    "2024-05-01T00:59Z",
    "2024-05-01T00Z",
    "20240501T005959Z",
    "2024-W18-3T00:00:00Z",
    "2024-122T00:00:00Z",
    "2024-5-1T00:59:59Z",
    "2024-05-01T00:59:59.Z",
    "2024-05-01T00:59:59,5Z",
    "2024-05-01T00:59:59.5.5Z",
    "2024-05-01T00:59:59.1234567.5Z",
    "2024-05-01T00:59:59+00",
    "2024-05-01T00:59:59+24:00",
    "2024-05-01T00:59:59+23:60",
    "2024-05-01T00:59:59+00:00:30",
    "2024-05-01T00:59:59.1234567+00:00:30",
    "2024-05-01T24:00:00Z",
    "2024-05-01T23:59:60Z",
    "2024-05-01T00:60:00Z",
    "2024-13-01T00:00:00Z",
    "2024-00-01T00:00:00Z",
    "2024-04-31T00:00:00Z",
    " 2024-05-01T00:59:59Z",
    "2024-05-01T00:59:59Z ",
    "2024-05-01T00:59:59.9999996 Z",
    "2024-05-01T00:59:59 +01:00",
    "2024-05-01T00:59:59Z\n",
    "2024-05-01T00:59:59UTC",
    "2024-05-01T00:59:59.1234567Europe/Paris",
    "+2024-05-01T00:59:59Z",
    "02024-05-01T00:59:59Z",
    "2024-05-01T00:59:59\u221201:00",
    "\u0662024-05-01T00:59:59Z",
    "2024-05-01T00:59:59.\u0663Z",
    "2024-05-01T00:59:59.1234567\u0663Z",
    "2024-05-01T00:59:59\udce9Z",
    "yesterday",
    "",
)
"""Spellings of one hour and its neighbourhood; a third of them name no moment."""

_ZONES = ("Z", "z", "", "+00:00", "-00:00", "+23:59", "-23:59", "+0530", "-0100", "+05", "+24:00")


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
