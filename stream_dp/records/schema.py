"""What a record looks like: the fields of `schema:`, and numbers made of its numbers, such as `from: price * quantity`.

Rules: every model is frozen and refuses unknown keys. A number that a record holds means the shortest decimal that is
read as its double, so 0.1 is a tenth. The value of a formula is the double nearest to its exact value, depends on its
record alone, and is null where one of its fields is null. A value beyond all doubles is the largest or the least one.
"""

import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from fractions import Fraction
from functools import lru_cache
from operator import add, mul, sub
from typing import Annotated, Any, ClassVar, Literal, TypeAlias
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, model_validator
from pydantic_core import InitErrorDetails

from stream_dp.core.time import EPOCH, EPOCH_FLOAT, EPOCH_UNITS, TickGrid, TimeForm, compiled
from stream_dp.core.wording import meant
from stream_dp.records.scalars import Domain, FieldName, Frozen, problem, refuse

Floats: TypeAlias = NDArray[np.float64]
# Numbers of integers and places behind the point, and where they are exact.
_Scaled: TypeAlias = tuple[Floats, int, NDArray[np.bool_]]

_ALLOWED = (
    "a formula has names of fields, decimals, + - * and parentheses, such as price * quantity"
)
_TOKEN = re.compile(r'\s*("[^"]+"|[^\W\d]\w*|\d+(?:\.\d+)?|\S)')
_DECIMAL = re.compile(r"\d{1,15}(\.\d{1,15})?", re.ASCII)
_NAME = re.compile(r'"[^"]+"|[^\W\d]\w*')
_OPERATIONS: Mapping[str, Callable[[Any, Any], Any]] = {"+": add, "-": sub, "*": mul}
_MOST = 2.0**53  # below, every integer is a double
_PLACES, _DIGITS = (
    (0, 2, 4, 6),
    10.0**15,
)  # of decimals that columns have: 15 digits name one double
_MOST_PLACES = 22  # the largest power of ten that is a double
_TEN = np.float64(10)  # its powers end in infinity, not in an error


@dataclass(frozen=True, slots=True)
class Formula:
    """`steps` in postfix form: names, decimals and operations; `text` is the formula in one spelling."""

    text: str
    steps: tuple[str | Fraction | Callable[[Any, Any], Any], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(step for step in self.steps if isinstance(step, str)))

    def of(self, columns: Mapping[str, Sequence[float | None]], number: int) -> list[float | None]:
        """Return the value of each of `number` records, whose fields are in these columns."""
        some = {name: columns[name] for name in self.names}
        with np.errstate(all="ignore"):
            doubles = {name: np.array(column, np.float64) for name, column in some.items()}
            null = np.any([np.isnan(column) for column in doubles.values()], axis=0)
            whole, places, right = self._run(
                lambda step: (
                    _whole(doubles[step]) if isinstance(step, str) else _constant(step, number)
                ),
                _together,
            )
            values: list[float | None] = (whole / _TEN**places + 0.0).tolist()
        right &= places <= _MOST_PLACES
        for at in np.flatnonzero(null).tolist():
            values[at] = None
        for at in np.flatnonzero(~(right | null)).tolist():
            values[at] = self._exactly({name: column[at] for name, column in some.items()})
        return values

    def _exactly(self, record: Mapping[str, float | None]) -> float:
        value: Fraction = self._run(
            lambda step: Fraction(repr(record[step])) if isinstance(step, str) else step,
            lambda operation, left, right: operation(left, right),
        )
        try:
            return value.numerator / value.denominator + 0.0  # of -0.0
        except OverflowError:
            return sys.float_info.max if value > 0 else -sys.float_info.max

    def _run(self, load: Callable[[Any], Any], apply: Callable[[Any, Any, Any], Any]) -> Any:
        stack: list[Any] = []
        for step in self.steps:
            if isinstance(step, str | Fraction):
                stack.append(load(step))
            else:
                right = stack.pop()
                stack.append(apply(step, stack.pop(), right))
        return stack[0]


def _whole(values: Floats) -> _Scaled:
    """Return doubles as integers and places; exact where so many places, and 15 digits, name the double."""
    for places in _PLACES:
        scale = 10.0**places
        whole = np.rint(values * scale)
        right = (np.abs(whole) < _DIGITS) & (whole / scale == values)
        if right.all():
            break
    return whole, places, right


def _constant(value: Fraction, number: int) -> _Scaled:
    places = next(places for places in range(16) if (value * 10**places).denominator == 1)
    whole = float(value * 10**places)
    return np.full(number, whole), places, np.full(number, whole < _MOST)


def _together(operation: Any, left: _Scaled, right: _Scaled) -> _Scaled:
    """Return the result where every integer on the way is a double."""
    (first, places, known), (second, others, also) = left, right
    right_of = known & also
    if operation is mul:
        result, places = first * second, places + others
    else:
        most = max(places, others)
        first, second = first * _TEN ** (most - places), second * _TEN ** (most - others)
        right_of &= (np.abs(first) < _MOST) & (np.abs(second) < _MOST)
        result, places = operation(first, second), most
    return result, places, right_of & (np.abs(result) < _MOST)


@lru_cache(1024)
def formula(text: str) -> Formula:
    """Read a formula; ValueError says what cannot be read, and where."""
    reading = _Reading([(match[1], match.start(1) + 1) for match in _TOKEN.finditer(text)])
    spelled = " ".join(token for token, _ in reading.tokens)
    reading.total()
    if reading.tokens:
        raise reading.wrong()
    if not any(isinstance(step, str) for step in reading.steps):
        raise ValueError(f"names no field: {_ALLOWED}")
    return Formula(spelled, tuple(reading.steps))


class _Reading:
    """What is left of a formula, with the place of each token, and the steps so far."""

    def __init__(self, tokens: list[tuple[str, int]]) -> None:
        self.tokens = tokens
        self.steps: list[str | Fraction | Callable[[Any, Any], Any]] = []

    def wrong(self) -> ValueError:
        if not self.tokens:
            return ValueError(f"ends too early: {_ALLOWED}")
        token, at = self.tokens[0]
        return ValueError(f"'{token}' at character {at} cannot be read: {_ALLOWED}")

    def total(self) -> None:
        self._row(self._product, "+-")

    def _product(self) -> None:
        self._row(self._single, "*")

    def _row(self, part: Callable[[], None], operations: str) -> None:
        part()
        while operation := self._taken(operations):
            part()
            self.steps.append(_OPERATIONS[operation])

    def _taken(self, wanted: str) -> str:
        return self.tokens.pop(0)[0] if self.tokens and self.tokens[0][0] in wanted else ""

    def _single(self) -> None:
        token = self.tokens[0][0] if self.tokens else ""
        if self._taken("("):
            self.total()
            if not self._taken(")"):
                raise self.wrong()
        elif self._taken("-"):
            self.steps.append(Fraction(0))
            self._single()
            self.steps.append(sub)
        elif _NAME.fullmatch(token) or _DECIMAL.fullmatch(token):
            named = not token[0].isdecimal()
            self.steps.append(token.strip('"') if named else Fraction(token))
            del self.tokens[0]
        else:
            raise self.wrong()


# Time zones by their IANA names, as the database of this machine (or the package tzdata) knows them. A zone is
# declared, never taken from a record or from the machine's own setting. What a local time means is settled by the
# database, so the `offsets` of the declared range are in the pipeline's fingerprint: a database that says something
# else there makes another pipeline, not another count.

_OF_THE_MACHINE = "localtime"
_DAY = timedelta(days=1)
MOST_OF_PATH = 1_000  # characters
ENTRIES = "[]"
"""Ends the key of a list of which a path goes on within each entry."""
# The places of key and headers among a record's members. A name has no control character, and a path parts at points,
# so no field lies there otherwise.
KEY_PLACE, HEADER_PLACE = "\x7f.key", "\x7f.header "
_MOST_DAYS = 200_000  # that are looked through; later a zone repeats the rule that it has by then


def _known(name: str) -> str:
    names = available_timezones() - {_OF_THE_MACHINE}
    if name in names:
        return name
    if not names:
        raise ValueError(
            "needs a time zone database, but this machine has none: pip install tzdata"
        )
    near = meant(name, sorted(names)) or ", such as Europe/Paris or UTC"
    raise ValueError(f"must be the IANA name of a time zone{near}")


ZoneName: TypeAlias = Annotated[str, AfterValidator(_known)]


def offsets(zone: tzinfo, grid: TickGrid) -> list[tuple[int, int]]:
    """Return the offsets that local times of the grid may have: (moment, offset) at each change, both in seconds.

    The first entry is two days before the grid, and the last change at most two days after it, for no offset is longer.

    Raises:
        ValueError: the grid has no horizon.
    """
    if grid.horizon is None:
        raise ValueError("a zone needs a grid with a horizon")
    at, end = _clipped(grid.origin), _clipped(grid.end(grid.horizon - 1))
    before = _offset(zone, at)
    changes = [(_seconds(at), before)]
    for _ in range(_MOST_DAYS):
        if at > end:
            break
        day_before, at = at, at + _DAY
        if _offset(zone, at) != before:
            before = _offset(zone, at)
            changes.append((_seconds(_change(zone, day_before, at)), before))
    return changes


def _clipped(moment: int) -> datetime:
    """A moment as a time in UTC that has room for a zone and for two days on either side."""
    days = min(max(moment // 86_400_000 - 2, -719_000), 2_932_000)
    return EPOCH + timedelta(days=days)


def _change(zone: tzinfo, low: datetime, high: datetime) -> datetime:
    """The first second after `low`, and not after `high`, with the offset of `high`."""
    final = _offset(zone, high)
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) // 2
        middle -= timedelta(microseconds=middle.microsecond)
        low, high = (low, middle) if _offset(zone, middle) == final else (middle, high)
    return high


def _offset(zone: tzinfo, moment: datetime) -> int:
    local = moment.astimezone(zone)
    return round((local.replace(tzinfo=UTC) - moment).total_seconds())


def _seconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(seconds=1)


def _of_times(form: str) -> str:
    forms = ("iso", *EPOCH_UNITS, EPOCH_FLOAT)
    if "%" in form:
        compiled(form)
    elif form not in forms:
        near = meant(form, forms)
        raise ValueError(f"must be {', '.join(forms)} or a pattern such as %d.%m.%Y %H:%M{near}")
    return form


def _of_keys(path: str) -> str:
    if not all(path.split(".")):
        raise ValueError("must be keys separated by single points, such as payment.amount")
    return path


class _Placed(Frozen):
    path: Annotated[str, Field(max_length=MOST_OF_PATH), AfterValidator(_of_keys)] | None = None
    """The keys to the value in the record, with a point between them; without it, the field's name is its key."""
    from_key: bool = False
    """The value is the key of the Kafka record, a text."""
    from_header: FieldName | None = None
    """The value is the record's header of this name, a text; of several, the last."""

    @property
    def beside(self) -> bool:
        """Whether the field lies beside the record's value: in its key, or in a header."""
        return self.from_key or self.from_header is not None

    @model_validator(mode="after")
    def _lists_are_lists(self) -> "_Placed":
        keys = [] if self.path is None else self.path.split(".")
        lists = [key for key in keys if key.endswith(ENTRIES)]
        wrong = ""
        if lists and not isinstance(self, ListField):
            wrong = (
                f"`{lists[0]}` is all entries of a list: only a field of `type: list` reads them"
            )
        elif len(lists) > 1:
            wrong = f"`{lists[1]}` is a list within the entries of another: a field reads one list"
        elif keys and (keys[-1] in lists or ENTRIES in lists):
            wrong = "must name a list and a member of its entries, such as items[].sku; of a list of texts leave [] out"
        refuse([problem(("path",), wrong)] if wrong else [])
        return self

    @model_validator(mode="after")
    def _lies_once(self) -> "_Placed":
        given = ("path", self.path is not None), ("from_header", self.from_header is not None)
        named = [("from_key", self.from_key), *given]
        there = [key for key, there in named if there]
        wrong = f"says where the value lies, as {there[0] if there else ''} does: leave one out"
        refuse([problem((key,), wrong) for key in there[1:]])
        return self


class _Field(_Placed):
    nullable: bool = False


class TimeField(_Placed):
    """The record's own time: text with an offset (or in `zone`), as iso has it or of a pattern such as
    `%d.%m.%Y %H:%M`; or whole seconds, ms or µs since 1970, or seconds with a fraction (`epoch_float`).
    """

    nullable: ClassVar = False
    type: Literal["time"] = "time"
    format: Annotated[str, Field(max_length=100), AfterValidator(_of_times)] = "iso"
    zone: ZoneName | None = None

    @model_validator(mode="after")
    def _zone_of_texts(self) -> "TimeField":
        if self.zone is not None and self.format in (*EPOCH_UNITS, EPOCH_FLOAT):
            wrong = f"{self.format} counts from 1970 in UTC and has no zone: leave it out"
            refuse([problem(("zone",), wrong)])
        if self.zone is None and "%" in self.format and "%z" not in self.format:
            wrong = "a pattern without %z (the offset) needs `zone:`, such as Europe/Paris or UTC"
            refuse([problem(("format",), wrong)])
        return self

    @property
    def form(self) -> TimeForm:
        return TimeForm(self.format, None if self.zone is None else ZoneInfo(self.zone))


class CategoryField(_Field):
    """Text from a declared domain; every other text (and null, where allowed) counts in `other`.

    A text in the table `map` is read as the value that stands beside it there.
    """

    type: Literal["category"] = "category"
    domain: Domain
    map: Annotated[Mapping[str, str], Field(min_length=1, max_length=100_000)] | None = None

    @model_validator(mode="after")
    def _into_the_domain(self) -> "CategoryField":
        table = self.map or {}
        wrong = ((text, value) for text, value in table.items() if value not in self.domain)
        refuse([problem(("map", text), f"'{value}' is not in the domain") for text, value in wrong])
        return self


class ListField(_Field):
    """At most `most` texts, of which those from a declared domain count, each once however often it is listed. With a
    path such as `items[].sku` they are that member of a list's entries, which are objects.

    All other texts together count once in `other`, and so does null, where allowed; an empty list counts nowhere. A
    list with more entries, as written, is a dead letter. JSON and Parquet have lists; a cell of text in a file holds
    one where the `separator` between its entries is declared.
    """

    type: Literal["list"] = "list"
    domain: Domain
    most: Annotated[int, Field(ge=1, le=10_000)]
    separator: Annotated[str, Field(min_length=1, max_length=10)] | None = None

    @model_validator(mode="after")
    def _whole_entries(self) -> "ListField":
        if (apart := self.separator) is not None:
            wrong = "'{}' holds the separator, so no cell can hold it"
            held = [(at, text) for at, text in enumerate(self.domain) if apart in text]
            refuse([problem(("domain", at), wrong.format(text)) for at, text in held])
        elif self.beside:
            refuse([problem(("separator",), "is missing: a key or a header is one text")])
        if self.separator is not None and self.inner:
            why = "parts one text, and this list is one of objects: leave it out"
            refuse([problem(("separator",), why)])
        return self

    @property
    def inner(self) -> tuple[str, ...]:
        """The keys to the text in each entry; none where the entries are texts."""
        return _parted(self.path)[1]

    @property
    def ones(self) -> int:
        """The most entries of a row that one record sets: `most`, or all that there are, `other` included."""
        return min(self.most, len(self.domain) + 1)


class TextField(_Field):
    """Any text."""

    type: Literal["text"] = "text"


class IntegerField(_Field):
    """A 64-bit integer; 60.0 is not one."""

    type: Literal["integer"] = "integer"


class NumberField(_Field):
    """A number, read as an IEEE double; bounds in conditions are rounded to one too. Or it is made of the record's
    numbers, by a formula. A cell of a CSV has a `decimal` point or comma; where it is a comma, points group thousands.
    """

    type: Literal["number"] = "number"
    decimal: Literal[".", ","] = "."
    from_: Annotated[
        Annotated[str, Field(max_length=200), AfterValidator(lambda text: formula(text).text)]
        | None,
        Field(alias="from"),
    ] = None

    @model_validator(mode="after")
    def _lies_nowhere(self) -> "NumberField":
        if self.from_ is not None:
            given = [("path", self.path is not None), ("decimal", self.decimal != ".")]
            given += [("from_key", self.from_key), ("from_header", self.from_header is not None)]
            wrong = "is of a number that lies in the record, and this one is made of others: leave it out"
            refuse([problem((key,), wrong) for key, there in given if there])
        return self


class BooleanField(_Field):
    """True or false; a series by it has an entry for either, and `other` for null."""

    type: Literal["boolean"] = "boolean"
    domain: ClassVar = ("false", "true")


FieldSpec: TypeAlias = Annotated[
    TimeField | CategoryField | ListField | TextField | IntegerField | NumberField | BooleanField,
    Field(discriminator="type"),
]
Fields: TypeAlias = Mapping[str, FieldSpec]


def held_as(field: FieldSpec) -> str:
    """Return the type of a field's value in its record, which for a time depends on its format.

    >>> held_as(TimeField(format="epoch_ms")), held_as(TimeField()), held_as(NumberField())
    ('integer', 'text', 'number')
    """
    if not isinstance(field, TimeField):
        return field.type
    if field.format == EPOCH_FLOAT:
        return "number"
    return "integer" if field.format in EPOCH_UNITS else "text"


def key_path(name: str, field: FieldSpec) -> tuple[str, ...]:
    """Return the keys to a field's value in a record, from the outside.

    >>> key_path("amount", IntegerField(path="payment.total.cents"))
    ('payment', 'total', 'cents')
    >>> key_path("skus", ListField(path="cart.items[].sku", domain=("a",), most=2))
    ('cart', 'items')
    """
    if field.from_key:
        return (KEY_PLACE,)
    if field.from_header is not None:
        return (f"{HEADER_PLACE}{field.from_header}",)
    return (name,) if field.path is None else _parted(field.path)[0]


def _parted(path: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the keys to a value, and the keys within each entry where it is a list of objects."""
    keys = () if path is None else tuple(path.split("."))
    at = next((at for at, key in enumerate(keys, 1) if key.endswith(ENTRIES)), None)
    if at is None:
        return keys, ()
    return (*keys[: at - 1], keys[at - 1].removesuffix(ENTRIES)), keys[at:]


def place_words(name: str, field: FieldSpec) -> str:
    """Return where a field lies, for people.

    >>> place_words("region", TextField(from_key=True)), place_words("cents", IntegerField(path="pay.cents"))
    ('key', '`pay.cents`')
    """
    if field.from_key:
        return "key"
    if field.from_header is not None:
        return f"header `{field.from_header}`"
    return f"`{field.path or name}`"


def beside_problems(fields: Fields) -> Iterator[InitErrorDetails]:
    """Yield which fields lie in a key or a header, for a source that has none."""
    for name, field in fields.items():
        if field.beside:
            key = "from_key" if field.from_key else "from_header"
            why = "a file has no keys and headers: leave it out, and the field is the column or member of its name"
            yield problem(("schema", name, key), why)


def formula_of(field: FieldSpec) -> Formula | None:
    """Return of what a field is made; None: it lies in the record."""
    text = field.from_ if isinstance(field, NumberField) else None
    return None if text is None else formula(text)


def formula_problems(fields: Fields) -> Iterator[InitErrorDetails]:
    """Yield which fields cannot be made of what their formulas name."""
    made = {name: of for name, field in fields.items() if (of := formula_of(field)) is not None}
    for name, of in made.items():
        at = ("schema", name, "from")
        for source in of.names:
            wrong = ", not a number or an integer"
            yield from field_problems(at, source, fields, ("number", "integer"), wrong)
            if source in made:
                yield problem(at, f"'{source}' is made of others itself: name what it is made of")
        nullable = [each for each in of.names if getattr(fields.get(each), "nullable", False)]
        if nullable and not getattr(fields[name], "nullable", False):
            why = f"'{nullable[0]}' may be null, and so may this: it needs `nullable: true`"
            yield problem(at, why)


def _whole_path(name: str, field: FieldSpec) -> tuple[str, ...]:
    inner = field.inner if isinstance(field, ListField) else ()
    return (*key_path(name, field), *((ENTRIES, *inner) if inner else ()))


def path_problems(fields: Fields) -> list[InitErrorDetails]:
    """Return which fields cannot lie where they are declared: beside another at one place, or within its value."""
    lying = ((name, field) for name, field in fields.items() if formula_of(field) is None)
    paths = {name: _whole_path(name, field) for name, field in lying}
    first: dict[tuple[str, ...], str] = {}
    for name, path in paths.items():
        first.setdefault(path, name)
    problems = []
    for name, path in paths.items():
        above = (first.get(path[:depth], name) for depth in range(1, len(path) + 1))
        other = next((other for other in above if other != name), None)
        if other is not None:
            field = fields[name]
            keys = {
                "path": field.path,
                "from_key": field.from_key,
                "from_header": field.from_header,
            }
            at = ("schema", name, *(key for key, there in keys.items() if there))
            problems.append(
                problem(at, f"is the place of field '{other}', or lies within its value")
            )
    return problems


def field_problems(
    at: tuple[str | int, ...], name: str, fields: Fields, types: Collection[str], wrong: str
) -> list[InitErrorDetails]:
    """Return that `name`, which stands `at` this place, is no field, or one of another type than `types`.

    `wrong` says what is wrong with another type; it stands behind "'delay' is an integer".
    """
    if name not in fields:
        return [problem(at, f"'{name}' is not in the schema", fields)]
    kind = fields[name].type
    article = "an" if kind == "integer" else "a"
    return [] if kind in types else [problem(at, f"'{name}' is {article} {kind}{wrong}")]
