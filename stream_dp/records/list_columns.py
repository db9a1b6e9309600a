"""A batch's lists as one column of entries, each with the record that it belongs to.

Rules: a list is a set here: an entry counts once in its record, however often it is listed, and all texts outside of
the domain are one entry together. So a record sets no entry of a row to more than 1, and no more of them than its list
is long. Columns are private, and what stands in one depends on its own record.
"""

from collections.abc import Callable, Sequence
from itertools import chain, repeat
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_dp.core.messages import IntArray
from stream_dp.records.conditions import Test

_NULL = ("",)  # no value of a domain is empty, so this is one of the others


class Entries(NamedTuple):
    """Codes of shape (entries,), and the place of the record that each belongs to; None: record i has entry i alone."""

    codes: IntArray
    records: IntArray | None = None

    def of(self, column: NDArray[Any]) -> NDArray[Any]:
        """Return the value of each entry's record, from a column of shape (records,)."""
        return column if self.records is None else column[self.records]


class Listed:
    """Entries by code: the place in the domain, or its length for all others and null."""

    def __init__(self, attribute: str, domain: Sequence[str], tests: Sequence[Test]) -> None:
        self._value_of: Callable[[Any], Sequence[str] | None] = attrgetter(attribute)
        self.codes = {value: code for code, value in enumerate(domain)}
        self._code = self.codes.get
        self._other = len(domain)
        self._wanted = [[self.codes[value] for value in test.values] for test in tests]

    def entries(self, records: Sequence[Any]) -> Entries:
        """The entries of all lists, each once in its record."""
        lists = [_NULL if one is None else one for one in map(self._value_of, records)]
        lengths = np.fromiter(map(len, lists), np.int64, len(lists))
        texts = chain.from_iterable(lists)
        codes = np.fromiter(map(self._code, texts, repeat(self._other)), np.int64, lengths.sum())
        places, codes = self._once(np.repeat(np.arange(len(lists)), lengths), codes)
        return Entries(codes, places)

    def _once(self, places: IntArray, codes: IntArray) -> tuple[IntArray, IntArray]:
        """Each code of a record once."""
        keys = self._other + 1
        cells = np.sort(places * keys + codes)  # np.unique takes ten times as long
        again = cells[1:] == cells[:-1]
        if again.any():
            cells = cells[np.append(True, ~again)]
        found = cells // keys
        return found, cells - found * keys

    def answer(self, entries: Entries, answers: NDArray[np.bool_]) -> None:
        """Write which records hold what each test wants, into shape (tests, records)."""
        answers[:] = False
        places = entries.of(np.arange(answers.shape[1]))
        for row, wanted in zip(answers, self._wanted, strict=True):
            row[places[np.isin(entries.codes, wanted)]] = True
