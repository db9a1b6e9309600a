"""A batch's lists as one column of entries, each with the record that it belongs to.

Rules: a list is a set here: an entry counts once in its record, however often it is listed, and all texts outside of
the domain are one entry together. So a record sets no entry of a row to more than 1, and no more of them than its list
is long. Columns are private, and what stands in one depends on its own record.

Plain lists are read from raw JSON, many together, without an object for each text: UTF-8 without escapes, and no white
space but a space before a text. The JSON must be sound. All other lists are left to the strict decoder.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream_dp.core.mechanism import IntArray
from stream_dp.records.schema import ListField

_NULL = ("",)  # no value of a domain is empty, so this is one of the others
_TOGETHER = 1 << 17  # bytes of lists read together: their columns stay in the processor's cache
_BRACKET, _SPACE, _QUOTE = b'[ "'
_EMPTY = msgspec.Raw(b"[]")
_LETTERS = re.compile(r"[\w ]+", re.ASCII)
_WORD, _WORDS = 8, 4  # bytes of a word, and words of the longest text compared by columns
_ROOM = 4  # places in the table for each text, so that few meet in one
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd, 2^64 over the golden ratio


class Entries(NamedTuple):
    """Codes of shape (entries,), and the records, in order, that they belong to; None: record i has entry i alone."""

    codes: IntArray
    records: IntArray | None = None

    def of(self, column: NDArray[Any]) -> NDArray[Any]:
        return column if self.records is None else column[self.records]

    def at(self, places: IntArray) -> "Entries":
        """Return the entries of the records at these places, as the records 0, 1, ..."""
        if self.records is None:
            return Entries(self.codes[places])
        if not len(places):
            return Entries(self.codes[:0], self.records[:0])
        numbers = np.bincount(self.records, minlength=places.max() + 1)
        begins, numbers = (np.cumsum(numbers) - numbers)[places], numbers[places]
        records = np.repeat(np.arange(len(places)), numbers)
        shifts = begins - (np.cumsum(numbers) - numbers)
        return Entries(self.codes[np.arange(len(records)) + shifts[records]], records)


class TextCodes:
    """The code of a text: its place in the domain, or the domain's length for all others.

    A hash of a text says where its code may stand in a table; that all its words are the same decides.
    """

    def __init__(self, domain: Sequence[str]) -> None:
        self._by_text = {text: code for code, text in enumerate(domain)}
        self._other = len(domain)
        self.keys = len(domain) + 1
        texts = [text.encode() for text in domain]
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        self._longest = min(int(lengths.max()), _WORD * _WORDS)
        self._longer = bool((lengths > self._longest).any())
        # Which bytes of which word a text of some length has; one that is too long has none.
        sizes = np.append(np.arange(self._longest + 1), 0)
        before = np.arange(0, self._longest, _WORD)
        masks = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], np.uint64)
        self._masks = masks[np.clip(sizes - before[:, None], 0, _WORD)]
        words = self._words(b"".join(texts), np.cumsum(lengths) - lengths, lengths)
        self._known = [np.append(word, np.uint64(0)) for word in words]
        bits = (_ROOM * len(texts)).bit_length()
        self._shift = np.uint64(64 - bits)
        self._table = np.full(1 << bits, self._other)
        # NUL never stands in a plain text, and looks like what fills up words.
        pending = np.flatnonzero([len(t) <= self._longest and 0 not in t for t in texts])
        slots = self._slots(words)
        while len(pending):
            free = pending[self._table[slots[pending]] == self._other]
            self._table[slots[free]] = free
            pending = pending[self._table[slots[pending]] != pending]
            slots[pending] = self._next(slots[pending])

    def of(self, texts: Iterable[str], number: int) -> IntArray:
        return np.fromiter(map(self._by_text.get, texts, repeat(self._other)), np.int64, number)

    def inside(self, buffer: bytes, begins: IntArray, lengths: IntArray) -> IntArray:
        words = self._words(buffer, begins, lengths)
        slots = self._slots(words)
        codes = self._table.take(slots)
        astray = self._astray(codes, words)
        rest = np.arange(len(codes))
        while len(astray):  # their place in the table is taken by another text: look into the next
            rest, slots = rest[astray], self._next(slots[astray])
            words = [word[astray] for word in words]
            codes[rest] = self._table[slots]
            astray = self._astray(codes[rest], words)
        if self._longer:
            for at in np.flatnonzero(lengths > self._longest).tolist():
                text = buffer[begins[at] : begins[at] + lengths[at]].decode()
                codes[at] = self._by_text.get(text, self._other)
        return codes

    def _astray(self, codes: IntArray, words: Sequence[NDArray[np.uint64]]) -> IntArray:
        """Return where the code is that of another text of the domain."""
        differ = self._known[0].take(codes) != words[0]
        for known, word in zip(self._known[1:], words[1:], strict=True):
            differ |= known.take(codes) != word
        places: IntArray = np.flatnonzero(differ)
        astray: IntArray = places[codes[places] != self._other]
        return astray

    def _words(
        self, buffer: bytes, begins: IntArray, lengths: IntArray
    ) -> list[NDArray[np.uint64]]:
        """Return the texts' bytes as columns of words, filled up with zeros."""
        padded = buffer + bytes(_WORD * _WORDS)
        windows: NDArray[np.uint64] = np.ndarray(
            (len(padded) - _WORD + 1,), "<u8", padded, strides=(1,)
        )
        return [
            windows[begins + at * _WORD] & masks.take(lengths, mode="clip")
            for at, masks in enumerate(self._masks)
        ]

    def _slots(self, words: Sequence[NDArray[np.uint64]]) -> IntArray:
        mixed = words[0] * _MULTIPLIER
        for word in words[1:]:
            mixed = (mixed ^ word) * _MULTIPLIER
        slots: IntArray = (mixed >> self._shift).view(np.int64)
        return slots

    def _next(self, slots: IntArray) -> IntArray:
        return (slots + 1) & (len(self._table) - 1)


# All routers of a schema share them: a domain of 100,000 texts takes 0.1 s.
_CODES: WeakKeyDictionary[ListField, TextCodes] = WeakKeyDictionary()


class ListReader:
    def __init__(self, name: str, field: ListField) -> None:
        self._most, self._nullable = field.most, field.nullable
        self._key = b'"%b"' % name.encode()
        # How else this key can be written: a letter as \u00.., other characters in several ways.
        self._escaped = re.compile(rb"\\u00[2-7]" if _LETTERS.fullmatch(name) else rb"\\")
        codes = _CODES.get(field)
        if codes is None:
            codes = _CODES[field] = TextCodes(field.domain)
        self._codes = codes

    def texts(self, lists: Sequence[Sequence[str] | None]) -> Entries:
        known = [_NULL if texts is None else texts for texts in lists]
        numbers = np.fromiter(map(len, known), np.int64, len(known))
        codes = self._codes.of(chain.from_iterable(known), int(numbers.sum()))
        return _once(numbers, codes, self._codes.keys)

    def plain(
        self, lists: Sequence[msgspec.Raw | None], payloads: Sequence[bytes]
    ) -> tuple[Entries, set[int]]:
        """The entries of lists of raw JSON, and the places of those that are not plain, whose entries mean nothing.

        These may be no lists of texts, or too long, or not the only ones of their payload under this name.
        """
        null = msgspec.Raw(msgspec.json.encode(_NULL))
        raw = [null if text is None else text for text in lists]
        if self._nullable:
            raw = [null if len(text) == 4 and bytes(text) == b"null" else text for text in raw]
        lengths = np.fromiter(map(len, raw), np.int64, len(raw))
        parts = int(lengths.sum()) // _TOGETHER + 1
        step = -(-len(raw) // parts) or 1
        odd: set[int] = set()
        numbers, codes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for first in range(0, len(raw), step):
            part = slice(first, first + step)
            twice = self._perhaps_twice(lists[part], payloads[part])
            numbers_here, codes_here, strange = self._read(raw[part], lengths[part])
            numbers.append(numbers_here)
            codes.append(codes_here)
            odd.update(first + at for at in twice | strange)
        return _once(np.concatenate(numbers), np.concatenate(codes), self._codes.keys), odd

    def _read(
        self, lists: Sequence[msgspec.Raw], lengths: IntArray
    ) -> tuple[IntArray, IntArray, set[int]]:
        """Return the number of entries of each list, the codes of all, and the places of lists that are not plain."""
        odd: set[int] = set()
        whole = b"".join(lists)
        if not _is_simple(whole):
            odd = {at for at, text in enumerate(lists) if not _is_simple(bytes(text))}
            lists = [_EMPTY if at in odd else text for at, text in enumerate(lists)]
            lengths = np.fromiter(map(len, lists), np.int64, len(lists))
            whole = b"".join(lists)
        characters = np.frombuffer(whole, np.uint8)
        quotes = np.flatnonzero(characters == _QUOTE)
        begins = quotes[::2] + 1
        sizes = quotes[1::2] - begins
        stops = np.append(0, np.cumsum(lengths))
        ends = np.searchsorted(quotes, stops) >> 1
        numbers = np.diff(ends)
        # Sound JSON that begins with a bracket and has n texts has n + 1 characters and white space outside of them if
        # it is a list of these texts. Any other thing in it takes at least one character more than the texts in it.
        bare = np.maximum(3 * numbers + 1, len(b"[]"))
        plain = (characters[stops[:-1]] == _BRACKET) & (numbers <= self._most)
        if not plain.all() or sizes.sum() + bare.sum() != len(whole):
            until = np.append(0, np.cumsum(sizes + (characters[begins - 2] == _SPACE)))
            plain &= lengths == np.diff(until[ends]) + bare
            odd.update(np.flatnonzero(~plain).tolist())
        return numbers, self._codes.inside(whole, begins, sizes), odd

    def _perhaps_twice(
        self, lists: Sequence[msgspec.Raw | None], payloads: Sequence[bytes]
    ) -> set[int]:
        """Find payloads that may have this key more than once: only the last list was kept, but none may be wrong."""
        whole = b"".join(payloads)
        present = len(lists) - (lists.count(None) if self._nullable else 0)
        once = _ends_like(whole, self._key) == present or whole.count(self._key) == present
        if once and (b"\\" not in whole or self._escaped.search(whole) is None):
            return set()
        return {
            at
            for at, (text, payload) in enumerate(zip(lists, payloads, strict=True))
            if payload.count(self._key) != (text is not None) or self._escaped.search(payload)
        }


def _once(numbers: IntArray, codes: IntArray, keys: int) -> Entries:
    """Return the entries of records with so many codes each: every code once in its record."""
    cells = np.repeat(np.arange(0, len(numbers) * keys, keys), numbers) + codes
    if len(numbers) * keys < 2**31:  # half as much to sort
        cells = cells.astype(np.int32)
    cells.sort()  # np.unique takes ten times as long
    again = cells[1:] == cells[:-1]
    if again.any():
        cells = cells[np.append(True, ~again)]
    records = cells // keys
    return Entries((cells - records * keys).astype(np.int64), records.astype(np.int64))


def _ends_like(whole: bytes, key: bytes) -> int:
    """Count how often the last four bytes of a key stand there, at least; `bytes.count` takes twice as long."""
    end, size = key[-4:], len(whole)
    if len(end) < 4:
        return size
    wanted = np.frombuffer(end, np.uint32)
    parts = (np.frombuffer(whole[at:], np.uint32, (size - at) // 4) for at in range(min(4, size)))
    return sum(int(np.count_nonzero(part == wanted)) for part in parts)


def _is_simple(text: bytes) -> bool:
    if b"\\" in text:
        return False
    try:
        return text.isascii() or text.decode() is not None
    except UnicodeDecodeError:
        return False
