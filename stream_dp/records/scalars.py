"""The values of a pipeline file: exact numbers, durations, times, names, and how a problem is told.

Rules: numbers that touch the guarantee are exact (`Fraction`, integers); a float is refused. Every value is accepted as
text, because YAML hands over text only. A path is relative to the pipeline file's folder (validation context `folder`).
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Context, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    PlainSerializer,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from stream_dp.accounting.conversions import MOST_ORDER
from stream_dp.core.time import parse_moment

OTHER = "other"
UNDECLARED = "declare this"
"""Where `stream-dp init` leaves open what only the operator can say: a domain, the start of a clock, a zone.

Taken from data it would tell of the data. No key takes it: a file with it is refused ("declare the domain of country").
"""
SMALLEST_EPSILON, LARGEST_EPSILON = Fraction(1, 10**6), Fraction(100)
LARGEST_DELTA = Fraction(1, 1000)
SMALLEST_SHARE = Fraction(1, 10**6)
_NUMBER = re.compile(
    r"[+-]?\d{1,30}(\.\d{1,30})?([eE][+-]?\d{1,2})?|[+-]?\d{1,30}/\d{1,30}", re.ASCII
)
_LONG = re.compile(r"[+-]?\d{1,30}\.\d{10,60}([eE][+-]?\d{1,2})?", re.ASCII)
_SHORT = 8  # digits that somebody would write
_BITS = 4  # units in the last place that a float may be off
_FINER = re.compile(r"\.\d{3}\d*[1-9]", re.ASCII)
_DURATION = re.compile(r"(\d{1,15})(ms|s|m|h|d)", re.ASCII)
_SIZE = re.compile(r"(\d{1,9})([KM])iB", re.ASCII)
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Frozen(BaseModel):
    """Base of every model of the file: frozen, no unknown keys, defaults checked as well."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, hide_input_in_errors=True
    )


def problem(
    loc: tuple[str | int, ...], message: str, names: Iterable[str] = ()
) -> InitErrorDetails:
    """Make one error at a place of the file, for `refuse`; the nearest of the possible `names` is suggested."""
    kind = PydanticCustomError("pipeline", "{message}", {"message": message, "names": names})
    return InitErrorDetails(type=kind, loc=loc, input=None)


def refuse(problems: list[InitErrorDetails]) -> None:
    if problems:
        raise ValidationError.from_exception_data("pipeline", problems)


def exact(value: object) -> Fraction:
    """Read a decimal ("0.2", "1e-6") or a fraction ("1/3") without ever making a float.

    >>> exact("0.2"), exact("1/3")
    (Fraction(1, 5), Fraction(1, 3))
    """
    if isinstance(value, Fraction | int) and not isinstance(value, bool):
        return Fraction(value)
    if not isinstance(value, str) or _NUMBER.fullmatch(value) is None:
        raise ValueError('must be a decimal such as 0.2 or a fraction such as "1/3"')
    try:
        return Fraction(value)
    except ZeroDivisionError:
        raise ValueError("must not divide by zero") from None


def _noiseless(value: object) -> object:
    """Refuse what a float's arithmetic has left of a short decimal: the guarantee would have a price nobody named."""
    if isinstance(value, str) and (plain := without_noise(value)) is not None:
        raise ValueError(f"contains a float's rounding error, as 0.1 + 0.2 does: write {plain}")
    return value


def without_noise(text: str) -> str | None:
    """Return the short decimal that a float missed by its last bits; None where a text is no such float.

    >>> without_noise("0.30000000000000004"), without_noise("0.3333333333333333"), without_noise("0.3")
    ('0.3', None, None)
    """
    if _LONG.fullmatch(text) is None:
        return None
    short = Context(prec=_SHORT).plus(Decimal(text)).normalize()
    near, written = float(short), float(text)
    missed = short != Decimal(text) and abs(near - written) <= _BITS * math.ulp(near)
    return f"{short:f}" if missed else None


def _counted(value: object, form: re.Pattern[str], units: Mapping[str, int], says: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = form.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"must be a whole number with a unit: {says}")
    return int(match[1]) * units[match[2]]


def milliseconds(value: object) -> int:
    """Read a duration such as "500ms" or "1h"; an `int` already counts milliseconds.

    >>> milliseconds("2m")
    120000
    """
    return _counted(value, _DURATION, _UNITS, "500ms, 1s, 5m, 1h or 1d")


def duration_text(length: int) -> str:
    """Write a duration in ms in the largest unit that it is a whole number of.

    >>> duration_text(5_400_000), duration_text(86_400_000)
    ('90m', '1d')
    """
    unit = max((u for u in _UNITS if length % _UNITS[u] == 0), key=lambda u: _UNITS[u])
    return f"{length // _UNITS[unit]}{unit}"


def size(value: object) -> int:
    """Read a number of bytes such as "64KiB" or "16MiB"; an `int` is already that.

    >>> size("16MiB")
    16777216
    """
    return _counted(value, _SIZE, {"K": 2**10, "M": 2**20}, "64KiB or 16MiB")


def moment(value: object) -> int:
    """Read a time with its offset as milliseconds since 1970; an `int` is already that.

    >>> moment("1970-01-01T01:00:00Z")
    3600000
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    parsed = parse_moment(value) if isinstance(value, str) else None
    if parsed is None:
        raise ValueError("must be a time with its offset, such as 2013-01-01T10:00:00Z")
    if _FINER.search(str(value)):
        raise ValueError("must not be finer than a millisecond")
    return parsed


def must(holds: Callable[[Any], bool], why: str) -> AfterValidator:
    """Return the validator of a value for which this holds; `why` says what the value must be."""

    def check(value: Any) -> Any:
        if not holds(value):
            raise ValueError(why)
        return value

    return AfterValidator(check)


def _distinct(domain: tuple[str, ...]) -> tuple[str, ...]:
    first: dict[str, int] = {}
    problems = []
    for position, value in enumerate(domain):
        if value == OTHER:
            problems.append(problem((position,), f"'{OTHER}' is reserved for all other values"))
        elif first.setdefault(value, position) != position:
            problems.append(problem((position,), f"'{value}' is listed twice"))
    refuse(problems)
    return domain


def _below(path: Path, info: ValidationInfo) -> Path:
    folder = (info.context or {}).get("folder")
    return path if folder is None else Path(folder) / path


def _written(path: object) -> object:
    if path == "":
        raise ValueError("must not be empty")
    return path


def _printable(text: str) -> str:
    plain = " ".join(text.split())
    if not plain.isprintable():
        raise ValueError("must be plain text: no control characters, no marks of direction")
    return plain


def _text(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | Fraction) else value


def _form(pattern: re.Pattern[str], *examples: str) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^({pattern.pattern})$", "examples": [*examples]}


DURATION_FORM = _form(_DURATION, "500ms", "1m", "1h", "1d")  # its JSON Schema

# a decimal or a fraction
Exact: TypeAlias = Annotated[
    InstanceOf[Fraction],
    BeforeValidator(exact),
    PlainSerializer(str),
    WithJsonSchema({"anyOf": [{"type": "number"}, _form(_NUMBER, "0.2", "1e-6", "1/3")]}),
]
# one that somebody has named, and no float that was computed
Named: TypeAlias = Annotated[Exact, BeforeValidator(_noiseless)]

Epsilon: TypeAlias = Annotated[
    Named,
    must(lambda epsilon: epsilon > 0, "must be greater than 0"),
    must(
        lambda epsilon: SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON,
        "must lie between 0.000001 (no use) and 100 (no privacy)",
    ),
]
Delta: TypeAlias = Annotated[
    Named,
    must(
        lambda delta: 0 <= delta <= LARGEST_DELTA,
        "must lie between 0 and 0.001: well below one over the number of people",
    ),
]
Order: TypeAlias = Annotated[
    Named,
    must(
        lambda order: 1 < order <= MOST_ORDER, "must be greater than 1, and no more than a million"
    ),
]
Confidence: TypeAlias = Annotated[
    Named, must(lambda value: 0 < value < 1, "must lie strictly between 0 and 1")
]
Size: TypeAlias = Annotated[
    int, Field(ge=2**10, le=2**30), BeforeValidator(size), WithJsonSchema(_form(_SIZE, "64KiB"))
]
Share: TypeAlias = Annotated[
    Exact, must(lambda value: 0 <= value <= 1, "must lie between 0 and 1, such as 0.1")
]
PublicShare: TypeAlias = Annotated[
    Exact,
    must(lambda value: SMALLEST_SHARE <= value <= 1, "must lie between 1e-6 and 1, such as 1/4"),
]
Duration: TypeAlias = Annotated[
    int, Field(gt=0, le=10**12), BeforeValidator(milliseconds), WithJsonSchema(DURATION_FORM)
]
Moment: TypeAlias = Annotated[
    int,
    BeforeValidator(moment),
    WithJsonSchema({"type": "string", "examples": ["2013-01-01T00:00:00Z"]}),
]
LocalPath: TypeAlias = Annotated[Path, BeforeValidator(_written), AfterValidator(_below)]
_NAME, _FIELD = r"^[a-z0-9][a-z0-9_.-]{0,62}$", r'^[^\x00-\x1f\x7f"\\]{1,200}$'
HOOK = r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$"
TOPIC = r"^[A-Za-z0-9._-]{1,249}$"
PATTERNS = {
    TOPIC: "must be 1 to 249 of the characters A-Z a-z 0-9 . _ -",
    HOOK: "must be package.module:function, the name of a function and never the secret itself",
    _NAME: "must be a lower-case letter or a digit, then at most 62 of those or of _ . -",
    _FIELD: "must be 1 to 200 characters, none of them a control character, a double quote or a backslash",
}
"""What a text must be, by the pattern that it does not match."""

Name: TypeAlias = Annotated[str, Field(pattern=_NAME)]
Line: TypeAlias = Annotated[str, Field(max_length=120), AfterValidator(_printable)]
Prose: TypeAlias = Annotated[str, Field(max_length=2000), AfterValidator(_printable)]
UnitName: TypeAlias = Annotated[str, Field(max_length=24), AfterValidator(_printable)]
FieldName: TypeAlias = Annotated[str, Field(pattern=_FIELD)]
Value: TypeAlias = Annotated[str, Field(max_length=1000), BeforeValidator(_text)]
Domain: TypeAlias = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=200)], ...],
    Field(min_length=1, max_length=10**6),
    AfterValidator(_distinct),
]
