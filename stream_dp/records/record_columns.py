"""The fields of a batch's records as numpy columns, and which records pass which conditions.

Rules: a batch reads each field once and answers each distinct condition once. Integers are compared as 64-bit
integers, numbers as doubles, so a comparison says exactly what it says of the value itself; texts and booleans are
told apart by codes. Null passes no comparison and no `not` of one. Columns are private, and what stands in one depends
on its own record.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import repeat
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream_dp.core.mechanism import IntArray
from stream_dp.records.conditions import OPERATORS, AnyOf, Fails, Needs, Test
from stream_dp.records.decoder import Decoded
from stream_dp.records.list_columns import Entries
from stream_dp.records.schema import (
    BooleanField,
    CategoryField,
    IntegerField,
    ListField,
    NumberField,
)

BoolArray: TypeAlias = NDArray[np.bool_]


class Numbers(NamedTuple):
    """The values of an integer or number field, and which of them are there; None: all are."""

    values: NDArray[Any]
    known: BoolArray | None

    def or_null(self) -> "Numbers":
        """Return these with null told apart from every number: NaN is not there."""
        missing = np.isnan(self.values) if self.values.dtype.kind == "f" else None
        if missing is None or not missing.any():
            return self
        return Numbers(self.values, ~missing)


class Columns(NamedTuple):
    """Codes of categories, lists and texts, and values of numbers, by field; what passes, of shape (sets, records)."""

    codes: dict[str, Entries]
    numbers: dict[str, Numbers]
    passing: BoolArray


class RecordColumns:
    """Reads the columns that features need: `columns(decoded)`."""

    def __init__(
        self,
        by: Collection[str],
        wheres: Sequence[Needs],
        fields: Mapping[str, Any],
        attribute: Callable[[str], str],
        named: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        """Columns for these categories and numbers, and for sets of conditions, of which none is empty.

        `fields` is the schema, `attribute(name)` the attribute of decoded records that holds a field. `named` are
        fields whose codes are wanted, each with the values that have one; a category's or a list's are its domain.
        """
        named = named or {}
        tests = dict.fromkeys(test for where in wheres for test in _compared(where))
        self._coded: list[tuple[str, _Coded | _Listed, slice]] = []
        self._ordered: list[tuple[str, _Ordered, slice]] = []
        self._valued = frozenset(by)
        rows: dict[Test, int] = {}
        for name in dict.fromkeys([*by, *named, *(test.field for test in tests)]):
            asked = sorted(
                (test for test in tests if test.field == name),
                key=lambda test: OPERATORS.index(test.operator),
            )
            part = slice(len(rows), len(rows) + len(asked))
            rows |= {test: part.start + at for at, test in enumerate(asked)}
            column = _column(fields[name], attribute(name), asked, named.get(name, ()))
            if isinstance(column, _Coded | _Listed):
                self._coded.append((name, column, part))
            else:
                self._ordered.append((name, column, part))
                if name in named:
                    coded = _Coded(attribute(name), named[name], ())
                    self._coded.append((name, coded, slice(0, 0)))
        self._known: dict[str, str] = {}
        self._steps: list[tuple[Callable[..., None], int, str]] = []
        places: dict[Any, int] = {**rows}

        def place(need: Test | Fails | AnyOf) -> int:
            """Return the row of answers to this; what is made of other rows has a step behind theirs."""
            if need in places:
                return places[need]
            name, step = next(need.fields), partial(_null, True in getattr(need, "values", ()))
            if isinstance(need, AnyOf):
                step = partial(_any, [list(map(place, each)) for each in need.alternatives])
            else:
                self._known[name] = attribute(name)
                if isinstance(need, Fails):
                    step = partial(_fails, places[need.test])
            places[need] = row = len(places)
            self._steps.append((step, row, name))
            return row

        self._rounds = _rounds([list(map(place, where)) for where in wheres])
        self._tests = len(places)

    def codes_of(self, name: str) -> Mapping[Any, int]:
        """Return the code of each value of a field that is coded; all others have one more together."""
        return next(column.codes for coded, column, _ in self._coded if coded == name)

    def __call__(self, decoded: Decoded) -> Columns:
        """Return the columns of a batch; a category's code is its place in the domain, or the domain's length."""
        answers = np.empty((self._tests, len(decoded.records)), np.bool_)
        codes: dict[str, Entries] = {}
        numbers: dict[str, Numbers] = {}
        for name, coded, part in self._coded:
            codes[name] = column = coded.entries(decoded)
            if part.start < part.stop:
                coded.answer(column, answers[part])
        for name, ordered, part in self._ordered:
            read = ordered.read(decoded)
            ordered.answer(read, answers[part])
            if name in self._valued:
                numbers[name] = read.or_null()
        known = {name: _there(decoded, of) for name, of in self._known.items()}
        for write, row, name in self._steps:
            write(answers, row, known.get(name))
        if not self._rounds:
            return Columns(codes, numbers, answers)
        (_, first), *later = self._rounds
        passing = answers[first]
        for sets, rows in later:
            passing[sets] &= answers[rows]
        return Columns(codes, numbers, passing)


# Answers that are made of others, and of which records have a value of the field at all.


def _compared(where: Needs) -> Iterator[Test]:
    """Yield the comparisons that are behind some conditions."""
    for need in where:
        if isinstance(need, AnyOf):
            for each in need.alternatives:
                yield from _compared(each)
        elif isinstance(need, Fails):
            yield need.test
        elif need.operator != "is_null":
            yield need


def _there(decoded: Decoded, attribute: str) -> BoolArray:
    if attribute in decoded.columns:
        return decoded.columns[attribute].known
    values, null = decoded.values(attribute), msgspec.Raw(b"null")  # a list that is not read yet
    return np.array([value is not None and value != null for value in values], np.bool_)


def _fails(test: int, answers: BoolArray, row: int, known: BoolArray) -> None:
    np.greater(known, answers[test], out=answers[row])


def _null(wanted: bool, answers: BoolArray, row: int, known: BoolArray) -> None:
    np.not_equal(known, wanted, out=answers[row])


def _any(each: Sequence[Sequence[int]], answers: BoolArray, row: int, known: object) -> None:
    answers[row] = False
    for rows in each:
        answers[row] |= answers[rows].all(axis=0)


class _Coded:
    """Texts or booleans by code: the place among the values that the pipeline names, one more for others and null."""

    def __init__(self, attribute: str, values: Sequence[Any], tests: Sequence[Test]) -> None:
        self._attribute = attribute
        self.codes = {value: code for code, value in enumerate(values)}
        self._code = self.codes.get
        self._other = len(values)
        self._passes = np.zeros((len(tests), len(values) + 1), np.bool_)
        for row, test in zip(self._passes, tests, strict=True):
            row[:-1] = [value in test.values for value in values]

    def entries(self, decoded: Decoded) -> Entries:
        column = decoded.columns.get(self._attribute)
        if column is not None and column.coded:
            return Entries(column.values)
        codes = map(self._code, decoded.values(self._attribute), repeat(self._other))
        return Entries(np.fromiter(codes, np.int64, len(decoded.records)))

    def answer(self, entries: Entries, answers: BoolArray) -> None:
        # "raise", the default, would write to a buffer first.
        np.take(self._passes, entries.codes, axis=1, out=answers, mode="clip")


class _Listed:
    """The column of a list field, and which records hold what tests want."""

    def __init__(self, attribute: str, domain: Sequence[str], tests: Sequence[Test]) -> None:
        self._attribute = attribute
        self.codes = {value: code for code, value in enumerate(domain)}
        self._wanted = [[self.codes[value] for value in test.values] for test in tests]

    def entries(self, decoded: Decoded) -> Entries:
        return decoded.lists[self._attribute]

    def answer(self, entries: Entries, answers: BoolArray) -> None:
        answers[:] = False
        places = entries.of(np.arange(answers.shape[1]))
        for row, wanted in zip(answers, self._wanted, strict=True):
            row[places[np.isin(entries.codes, wanted)]] = True


class _Ordered:
    """Integers or numbers, as their bounds: `dtype` is int64 or float64. The tests are sorted by their operators."""

    def __init__(self, attribute: str, dtype: Any, tests: Sequence[Test]) -> None:
        self._attribute = attribute
        self._dtype = dtype
        self._least, self._most = (
            np.array([list(t.values) for t in tests if t.operator == operator], dtype)
            for operator in ("at_least", "at_most")
        )
        others = [test for test in tests if test.operator not in ("at_least", "at_most")]
        self._among = [np.array([[value] for value in test.values], dtype) for test in others]

    def answer(self, numbers: Numbers, answers: BoolArray) -> None:
        """Write which records pass each test, into shape (tests, records)."""
        values, known = numbers
        most = len(self._least)
        among = most + len(self._most)
        if most:
            np.greater_equal(values, self._least, out=answers[:most])
        if among > most:
            np.less_equal(values, self._most, out=answers[most:among])
        for answer, wanted in zip(answers[among:], self._among, strict=True):
            np.equal(values, wanted).any(axis=0, out=answer)
        if known is not None:
            np.logical_and(answers, known, out=answers)

    def read(self, decoded: Decoded) -> Numbers:
        """The values, and which of them are there; None also where null is NaN, which passes no test either."""
        if (column := decoded.columns.get(self._attribute)) is None:
            return self.of(decoded.values(self._attribute))
        known = column.known if column.nullable else None
        return Numbers(column.values, None if known is None or known.all() else known)

    def of(self, values: list[Any]) -> Numbers:
        try:
            return Numbers(np.array(values, self._dtype), None)
        except TypeError:  # a null among integers
            known = np.array([value is not None for value in values])
            return Numbers(np.array([value or 0 for value in values], self._dtype), known)


def numbers_of(field: Any, attribute: str) -> Callable[[Sequence[Any]], Numbers]:
    """Return what reads an integer or number field, which is this attribute of decoded records."""
    column = _Ordered(attribute, np.int64 if isinstance(field, IntegerField) else np.float64, ())
    return lambda records: column.of(list(map(attrgetter(attribute), records))).or_null()


def _column(
    field: Any, attribute: str, tests: Sequence[Test], named: Sequence[Any]
) -> _Coded | _Listed | _Ordered:
    match field:
        case IntegerField():
            return _Ordered(attribute, np.int64, tests)
        case NumberField():
            return _Ordered(attribute, np.float64, tests)
        case CategoryField(domain=domain):
            return _Coded(attribute, domain, tests)
        case ListField(domain=domain):
            return _Listed(attribute, domain, tests)
        case BooleanField():
            return _Coded(attribute, (False, True), tests)
    values = dict.fromkeys([*named, *(v for t in tests for v in t.values)])
    return _Coded(attribute, list(values), tests)


def _rounds(sets: Sequence[Sequence[int]]) -> list[tuple[list[int], list[int]]]:
    """Return the sets that have a first test with that test, those that have a second one with it, and so on."""
    longest = max(map(len, sets), default=0)
    rounds = []
    for turn in range(longest):
        places = [at for at, tests in enumerate(sets) if len(tests) > turn]
        rounds.append((places, [sets[at][turn] for at in places]))
    return rounds


# What a series of identifiers counts. A record says its identifier by itself; which ones were there before is for the
# engine's memory to say. Null is none.

ACTIVE, CUT = "active", "cut"


class Summed(NamedTuple):
    """Users as text in UTF-8, and how many units the records of each add in one tick and column, at least 1."""

    texts: Sequence[bytes]
    units: IntArray


Texts: TypeAlias = dict[int, dict[int, Sequence[bytes] | Summed]]
"""The different identifiers of records as text in UTF-8, by tick and column; of a column of totals with amounts."""
_LONG = 1024  # bytes; a longer identifier stands for itself by its SHA-256, so that it is no more work than others
_DIGESTED = b"\xff"  # begins a digest; no text in UTF-8 begins like that


@dataclass(frozen=True, slots=True)
class Identified:
    """The values of `field`, each once in every window of `span` ms, counted from tick 0; None: once for ever."""

    field: str
    span: int | None = None

    units: ClassVar[tuple[int, int]] = (0, 1)
    keys: ClassVar[tuple[str, ...]] = ("",)

    def counts(self, user: str | None) -> bool:
        """Whether it counts those who are protected, whom the field `user` names."""
        return self.field == user


@dataclass(frozen=True, slots=True)
class CapUse:
    """The users who are protected: who was active and who was cut off, each once in every window of `span` ms.

    The guard says who had an event, and of whom one did not count because the cap was used up: any, or that of the
    name `cap`. A window is the cap's.
    """

    span: int | None = None
    cap: str | None = None

    field: ClassVar[str] = "user"  # what is remembered, in a word
    units: ClassVar[tuple[int, int]] = (0, 1)
    keys: ClassVar[tuple[str, ...]] = (ACTIVE, CUT)

    def counts(self, user: str | None) -> bool:
        return True


def texts_of(values: Iterable[Any]) -> list[bytes]:
    """Return each value as text; a long one by its digest."""
    texts = [str(value).encode() for value in values]
    return [t if len(t) <= _LONG else _DIGESTED + sha256(t).digest() for t in texts]
