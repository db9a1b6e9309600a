"""Moments, whole milliseconds since 1970 in UTC, and the grid of ticks over them; all arithmetic on time is here.

The meaning of a spelling is decided only here, so all readers of a record get the same moment. A text is an RFC 3339
time with its offset, or a form that databases print (`2013-01-01 10:00:00.5+00`, `... UTC`), with any number of digits
after the seconds, or has a declared pattern; parts below a millisecond are floored. A text without an offset names a
moment only in a declared zone. No clock and no file here: the caller gives the zone.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from fractions import Fraction
from functools import lru_cache
from typing import Final, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream_dp.core.mechanism import IntArray

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_UNITS: Final[Mapping[str, tuple[int, int]]] = {
    "epoch_s": (1000, 1),
    "epoch_ms": (1, 1),
    "epoch_us": (1, 1000),
}
"""Multiplier and divisor that convert an integer of each form to milliseconds; the quotient is floored."""

EPOCH_FLOAT: Final = "epoch_float"
"""Seconds with a fraction: the shortest decimal that is read as the double, floored to the millisecond."""

_NAIVE_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - for times whose offset is subtracted by hand
_DAY = 86_400_000
_LAST_SECOND = 1e12
"""Beyond the year 9999."""
_SIX_PLACES = 2.0**33
"""Below so many seconds a double has at most one decimal with six places."""
_POINT, _SEVENTH = 19, 26
"""Index of the decimal point, and of the seventh digit after it."""
_SPELLING = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:[.,]([0-9]+))?"
    r"(?P<zone> ?(?:[Zz]|UTC|([+-])([0-9]{2})(?::?([0-9]{2})|:([0-9]{2}):([0-9]{2}))?))?"
)

_DIGITS = str.maketrans("123456789", "000000000")
_USUAL = re.compile(r"0000-00-00[T ]00:00:00(?:\.0{1,12})?(?:Z|[+-]00:00)?")
_MINUTES = "+00:00"
"""End of a shape whose offset is in hours and minutes, without its sign."""
_MANY = 32
"""With fewer texts of one length, each text is parsed by itself."""
_AS_ASCII = ord("0")


@dataclass(frozen=True, slots=True)
class TimeForm:
    """How records write their time, as a pipeline file declares it.

    `format` is iso, one of `EPOCH_UNITS`, `EPOCH_FLOAT`, or a pattern such as `%d.%m.%Y %H:%M`; `zone` is the zone of
    texts without an offset (None: these name no moment).
    """

    format: str = "iso"
    zone: tzinfo | None = None

    @property
    def patterned(self) -> bool:
        return "%" in self.format

    def parse(self, text: str) -> int | None:
        """Return the moment of a text under iso or a pattern; None for other texts.

        >>> TimeForm("%d.%m.%Y %I:%M %p", UTC).parse("1.1.1970 12:01 AM")
        60000
        """
        if self.patterned:
            return _by_pattern(compiled(self.format), text, self.zone)
        return parse_moment(text, self.zone)

    def parse_all(self, texts: Sequence[str]) -> list[int | None]:
        if self.patterned:
            return list(map(self.parse, texts))
        return parse_moments(texts, self.zone)


ISO: Final = TimeForm()
"""Texts with an offset."""


_PARTS: Final[Mapping[str, str]] = {
    "Y": "[0-9]{4}", "y": "[0-9]{2}", "m": "[0-9]{1,2}", "d": "[0-9]{1,2}", "b": "[A-Za-z]{3}", "B": "[A-Za-z]{3,9}",
    "H": "[0-9]{1,2}", "I": "[0-9]{1,2}", "p": "[AaPp][Mm]", "M": "[0-9]{1,2}", "S": "[0-9]{1,2}", "f": "[0-9]+",
    "z": "[Zz]|[+-][0-9]{2}:?[0-5][0-9]",
}  # fmt: skip
"""The parts of a pattern, named as in C's strftime; names of months are English."""
_MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_PIVOT = 69
"""The least year of two digits that is in the 20th century (POSIX)."""
_NOON = 12


@lru_cache(maxsize=16)
def compiled(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a pattern of times.

    Raises ValueError: it has an unknown part, one twice, no whole date, or half a time of day.
    """
    parts: list[str] = []

    def expression(letter: str) -> str:
        if letter not in _PARTS:
            known = " ".join(f"%{part}" for part in _PARTS)
            raise ValueError(f"has %{letter}, but only {known} are known")
        if letter in parts:
            raise ValueError(f"has %{letter} twice")
        parts.append(letter)
        return f"(?P<{letter}>{_PARTS[letter]})"

    pieces = re.split("%(.?)", pattern)
    text = "".join(
        expression(piece) if at % 2 else re.escape(piece) for at, piece in enumerate(pieces)
    )
    named = set(parts)
    one_of = (("Y", "y"), ("m", "b", "B"), ("d",))
    if any(len(named & set(some)) != 1 for some in one_of):
        raise ValueError(
            "needs a year (%Y or %y), a month (%m, %b or %B) and a day (%d), each once"
        )
    if ("I" in named) != ("p" in named) or named >= {"H", "I"}:
        raise ValueError("needs hours as %H, or as %I with %p")
    if ("M" in named and not named & {"H", "I"}) or ("S" in named and "M" not in named):
        raise ValueError("has a time of day without its hours or minutes")
    if "f" in named and "S" not in named:
        raise ValueError("has %f without %S")
    return re.compile(text, re.ASCII)


def _by_pattern(pattern: re.Pattern[str], text: str, zone: tzinfo | None) -> int | None:
    match = pattern.fullmatch(text)
    if match is None:
        return None
    found = match.groupdict()
    month = found.get("b") or found.get("B")
    try:
        year = int(found.get("Y") or found["y"])
        if "y" in found:
            year += 1900 if year >= _PIVOT else 2000
        hour = int(found.get("H") or 0)
        if "p" in found:
            hour = int(found["I"])
            if not 1 <= hour <= _NOON:
                return None
            hour = hour % _NOON + (_NOON if found["p"].lower() == "pm" else 0)
        local = datetime(  # noqa: DTZ001 - its offset is subtracted by hand
            year,
            int(found["m"]) if month is None else _month(month, short="b" in found),
            int(found["d"]),
            hour,
            int(found.get("M") or 0),
            int(found.get("S") or 0),
            int((found.get("f") or "0")[:3].ljust(3, "0")) * 1000,
        )
    except ValueError:
        return None
    offset = found.get("z")
    if offset is None:
        return _local(local, zone)
    shift = 0 if offset in "Zz" else int(offset[1:3]) * 60 + int(offset[-2:])
    if shift >= _DAY // 60_000:
        return None
    return _milliseconds(local - _NAIVE_EPOCH) - (-shift if offset[0] == "-" else shift) * 60_000


def _month(name: str, *, short: bool) -> int:
    names = [month[:3] for month in _MONTHS] if short else list(_MONTHS)
    return names.index(name.lower()) + 1


def parse_moment(text: str, zone: tzinfo | None = None) -> int | None:
    """Return the moment of a text with an offset, floored to the millisecond; None for other text.

    A text without an offset is a time in `zone`; without a zone the result is None. Where clocks are set back it is
    the first of the two possible times; where they are set forward the offset before the change applies (PEP 495,
    fold 0).

    >>> parse_moment("1970-01-01T00:00:01.9999999Z"), parse_moment("1970-01-01T00:00:01")
    (1999, None)
    """
    if len(text) > _SEVENTH and "0" <= text[_SEVENTH] <= "9" and text[_POINT] == ".":
        text = _to_microseconds(text)
    try:
        moment = msgspec.convert(text, datetime)
    except (msgspec.ValidationError, UnicodeEncodeError):
        return _other_spelling(text, zone)
    if moment.tzinfo is None:
        return _local(moment, zone)
    return _milliseconds(moment - EPOCH)


def parse_moments(texts: Sequence[str], zone: tzinfo | None = None) -> list[int | None]:
    """Return `parse_moment` of every text; many texts of one usual shape are parsed by columns, ten times as fast.

    >>> parse_moments(["1970-01-01T00:00:01.9999999Z", "1970-01-01T00:00:01"])
    [1999, None]
    """
    if len(set(map(len, texts))) == 1:
        return _as_long(texts, zone)
    places: dict[int, list[int]] = {}
    for at, text in enumerate(texts):
        places.setdefault(len(text), []).append(at)
    moments: dict[int, int | None] = {}
    for alike in places.values():
        moments |= zip(alike, _as_long([texts[at] for at in alike], zone), strict=True)
    return [moments[at] for at in range(len(texts))]


def _as_long(texts: Sequence[str], zone: tzinfo | None) -> list[int | None]:
    shape, joined = texts[0].translate(_DIGITS), "".join(texts)
    if len(texts) < _MANY or not joined.isascii() or not _USUAL.fullmatch(shape):
        return [parse_moment(text, zone) for text in texts]
    cells = np.frombuffer(joined.encode(), np.uint8).reshape(len(texts), len(shape))
    columns, known = _columns(cells, shape, zone)
    moments: list[int | None] = columns.tolist()
    for at in (~known).nonzero()[0].tolist():
        moments[at] = parse_moment(texts[at], zone)
    return moments


def _columns(
    cells: NDArray[np.uint8], shape: str, zone: tzinfo | None
) -> tuple[IntArray, NDArray[np.bool_]]:
    """Return the moments of texts in cells of shape (texts, characters), and which are known; digits as in `shape`."""
    like = np.frombuffer(shape.encode(), np.uint8)
    digit = like == _AS_ASCII
    values = cells - np.where(digit, _AS_ASCII, like).astype(np.uint8)  # wraps: larger than 9
    known = (values <= digit * np.uint8(9)).all(axis=1)
    numbers = (values[known].astype(np.float64) @ _weights(shape)).astype(np.int64)
    year, month, day, hour, minute, second, milli, hours, minutes = numbers.T
    months = (year - 1970) * 12 + month - 1
    first, following = _first_day(months), _first_day(months + 1)
    right = (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= following - first)
    right &= (hour <= 23) & (minute <= 59) & (second <= 59) & (hours <= 23) & (minutes <= 59)
    known[known] = right
    days, clock = (first + day - 1)[right], ((hour * 60 + minute) * 60 + second)[right]
    if shape.endswith(("Z", _MINUTES, _MINUTES.replace("+", "-"))):
        offset = (hours * 60 + minutes)[right] * (-60 if shape[-len(_MINUTES)] == "-" else 60)
    else:
        offset, settled = _offsets(days, clock, zone)
        days, clock, milli = days[settled], clock[settled], milli[right][settled]
        right = np.ones(len(days), np.bool_)
        offset = offset[settled]
        known[known] = settled
    moments = np.zeros(len(cells), np.int64)
    moments[known] = (days * 86_400 + clock - offset) * 1000 + milli[right]
    return moments, known


@lru_cache(maxsize=64)
def _weights(shape: str) -> NDArray[np.float64]:
    """Return the weight of each digit of a shape in year, month, day, hour, minute, second, ms and two offset parts."""
    weights = np.zeros((len(shape), 9))
    for column, place in enumerate(((0, 4), (5, 7), (8, 10), (11, 13), (14, 16), (17, 19))):
        weights[slice(*place), column] = [10**power for power in range(place[1] - place[0])][::-1]
    for at in range(_POINT + 1, min(_POINT + 4, len(shape))):
        if shape[_POINT] == "." and shape[_POINT : at + 1].count("0") == at - _POINT:
            weights[at, 6] = 10 ** (3 - (at - _POINT))
    if shape[-len(_MINUTES) :] in (_MINUTES, _MINUTES.replace("+", "-")):
        weights[-5:-3, 7], weights[-2:, 8] = (10, 1), (10, 1)
    return weights


def _first_day(months: IntArray) -> IntArray:
    """Return the first day of each month; days and months are counted from January 1970."""
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _offsets(
    days: IntArray, clock: IntArray, zone: tzinfo | None
) -> tuple[IntArray, NDArray[np.bool_]]:
    """Return the offsets in seconds of local times in a zone, and for which times the day alone determines them."""
    every, at = np.unique(days, return_inverse=True)
    known = [None if zone is None else _offset_of_day(zone, day) for day in every.tolist()]
    offsets = np.array([offset or 0 for offset in known], np.int64)[at]
    return offsets, np.array([offset is not None for offset in known], np.bool_)[at]


@lru_cache(maxsize=4096)
def _offset_of_day(zone: tzinfo, day: int) -> int | None:
    """Return the offset in seconds of all times of a local day; None where clocks are set on that day.

    Compares every full hour and the last second: no zone was ever set back and forth within an hour.
    """
    midnight = (_NAIVE_EPOCH + timedelta(days=day)).replace(tzinfo=zone)
    times = [midnight.replace(hour=hour) for hour in range(24)]
    last = midnight.replace(hour=23, minute=59, second=59)
    offsets = {time.utcoffset() for time in (*times, last)}
    offset = offsets.pop() if len(offsets) == 1 else None
    if offset is None or offset.microseconds:
        return None
    return offset.days * 86_400 + offset.seconds


def own_time(value: object, form: TimeForm = ISO) -> int | None:
    """Return the moment of a record's time: a text by `parse_moment`, an integer in units of the form (iso: ms).

    None for every other value, booleans included, and floats unless the form is `EPOCH_FLOAT`.

    >>> own_time(1500), own_time("1970-01-01T00:00:01.5Z"), own_time(1.5), own_time(1.0007, TimeForm(EPOCH_FLOAT))
    (1500, 1500, None, 1000)
    >>> own_time(-1, TimeForm("epoch_us"))
    -1
    """
    if form.format == EPOCH_FLOAT and type(value) in (int, float):
        number = cast("float", value)
        return math.floor(Fraction(repr(number)) * 1000) if math.isfinite(number) else None
    if type(value) is int and "%" not in form.format:
        times, over = EPOCH_UNITS.get(form.format, (1, 1))
        return value * times // over
    return form.parse(value) if isinstance(value, str) else None


def float_moments(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return `own_time` of each of some seconds with a fraction, as doubles; infinity where they are in no year that a
    grid can have.

    >>> float_moments(np.array([1.0007, -0.0001, 1357034400.123, 1e300])).tolist()
    [1000.0, -1.0, 1357034400123.0, inf]
    """
    outside = np.abs(seconds) >= _LAST_SECOND
    seconds = np.where(outside, 0, seconds)
    micros = np.rint(seconds * 1e6)
    moments: NDArray[np.float64] = np.floor(micros / 1000)
    # A decimal with six places is the shortest of its double if there is no other one.
    known = (np.abs(seconds) < _SIX_PLACES) & (micros / 1e6 == seconds)
    for at in np.flatnonzero(~known).tolist():
        moments[at] = own_time(float(seconds[at]), TimeForm(EPOCH_FLOAT))
    moments[outside] = np.inf
    return moments


@lru_cache(maxsize=16)  # every series releases the end of the same tick
def moment_text(moment: int) -> str:
    """Return the moment as an ISO 8601 time in UTC, with three digits after the seconds where they are not zero.

    >>> moment_text(1000), moment_text(-500)
    ('1970-01-01T00:00:01Z', '1969-12-31T23:59:59.500Z')

    Raises:
        OverflowError: the moment lies outside of the years 1 to 9999.
    """
    time = EPOCH + timedelta(milliseconds=moment)
    text = time.isoformat(timespec="milliseconds" if time.microsecond else "seconds")
    return text.removesuffix("+00:00") + "Z"


def written(moment: int, form: TimeForm) -> str | float:
    """Return the moment in this form: a number, or under iso and patterns a text in UTC as iso has it.

    >>> written(1500, TimeForm()), written(1500, TimeForm("epoch_s")), written(-1, TimeForm("epoch_us"))
    ('1970-01-01T00:00:01.500Z', 1, -1000)
    """
    text = moment_text(moment)
    if form.format == EPOCH_FLOAT:
        return moment / 1000
    if form.format not in EPOCH_UNITS:
        return text
    times, over = EPOCH_UNITS[form.format]
    return moment * over // times


def _to_microseconds(text: str) -> str:
    """Return the text with at most six digits after the seconds, because the decoder would round the seventh."""
    zone = text[_POINT + 1 :].lstrip("0123456789")
    return text[:_SEVENTH] + zone if len(text) - len(zone) > _SEVENTH else text


def _other_spelling(text: str, zone: tzinfo | None) -> int | None:
    """Return the moment of a text that the RFC 3339 decoder refuses, such as `2013-01-01 10:00:00,5 +0000`."""
    match = _SPELLING.fullmatch(text)
    if match is None:
        return None
    day, clock, digits = match.group(1, 2, 3)
    try:
        local = datetime.fromisoformat(f"{day}T{clock}.{(digits or '0')[:3]:0<3}")
    except ValueError:
        return None
    if match["zone"] is None:
        return _local(local, zone)
    offset = _offset(match)
    return None if offset is None else _milliseconds(local - _NAIVE_EPOCH) - offset


def _offset(match: re.Match[str]) -> int | None:
    hours, minutes, seconds = (
        int(part or 0) for part in (match[6], match[7] or match[8], match[9])
    )
    if hours > 23 or minutes > 59 or seconds > 59:
        return None
    offset = ((hours * 60 + minutes) * 60 + seconds) * 1000
    return -offset if match[5] == "-" else offset


def _local(local: datetime, zone: tzinfo | None) -> int | None:
    offset = None if zone is None else zone.utcoffset(local.replace(tzinfo=zone))
    if offset is None:
        return None
    return _milliseconds(local - _NAIVE_EPOCH) - (offset.days * _DAY + offset.seconds * 1000)


def _milliseconds(since: timedelta) -> int:
    # a third faster than // by a timedelta, and exact too
    return since.days * _DAY + since.seconds * 1000 + since.microseconds // 1000


@dataclass(frozen=True, slots=True)
class TickGrid:
    """Tick k is [origin + k*step, origin + (k+1)*step) in ms; `horizon` ticks, or endless where it is None.

    The arithmetic is exact. The grid is public and declared: it never depends on a record.

    >>> grid = TickGrid(origin=0, step=60_000, horizon=3)
    >>> grid.tick_of(59_999), grid.tick_of(60_000), grid.end_text(0), 3 in grid
    (0, 1, '1970-01-01T00:01:00Z', False)
    """

    origin: int
    step: int
    horizon: int | None = None

    def __post_init__(self) -> None:
        if self.step < 1 or (self.horizon is not None and self.horizon < 1):
            raise ValueError("a tick grid needs a step of 1 ms or more, and 1 tick or more")

    @classmethod
    def ending(cls, tick: int, end: int, step: int, horizon: int | None = None) -> "TickGrid":
        """Return the grid on which `tick` ends at the moment `end`."""
        return cls(end - (tick + 1) * step, step, horizon)

    def tick_of(self, moment: int) -> int:
        """Return the tick that contains a moment; it may be negative or beyond the horizon."""
        return (moment - self.origin) // self.step

    def find(self, moment: int) -> int | None:
        """Return the tick that contains a moment; None outside of the grid."""
        tick = self.tick_of(moment)
        return tick if tick in self else None

    def passed(self, moment: int) -> int:
        """Return the last tick that is over at a moment; negative where no tick is over."""
        return self.tick_of(moment) - 1

    def start(self, tick: int) -> int:
        return self.origin + tick * self.step

    def end(self, tick: int) -> int:
        """Return the first moment after a tick, which does not belong to it."""
        return self.origin + (tick + 1) * self.step

    def start_text(self, tick: int) -> str:
        return moment_text(self.start(tick))

    def end_text(self, tick: int) -> str:
        return moment_text(self.end(tick))

    def __contains__(self, tick: int) -> bool:
        """Say whether a tick lies on the grid: 0 or later, and before the horizon."""
        return tick >= 0 and (self.horizon is None or tick < self.horizon)
