"""Dead letters: which records could not be used and why, as compact ranges, never what they hold.

Rules: a place is an offset, or a line of a file; places are private. Every refused record is counted. The first
`DETAIL` ranges of a commit keep their places; further ranges are only counted, so that no number of records makes a
commit large or slow. Work and memory grow with the number of ranges, not of records.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterable
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

from stream_dp.journal.commit import DeadLetter

NOT_JSON: Final = "not_json"
MISSING_FIELD: Final = "missing_field"
WRONG_TYPE: Final = "wrong_type"
TIME_OUT_OF_RANGE: Final = "time_out_of_range"
TOO_MANY_ENTRIES: Final = "too_many_entries"  # a list has more than the schema declares
NO_SCHEMA_ID: Final = "no_schema_id"  # a value does not begin with the number of its schema
UNKNOWN_SCHEMA: Final = (
    "unknown_schema"  # that number, or the message, is none of the pipeline file
)
UNREADABLE_VALUE: Final = (
    "unreadable_value"  # a value is not, to its last byte, what its schema says
)
UNREADABLE_BATCH: Final = "unreadable_batch"  # a whole batch of the topic cannot be unpacked
UNREADABLE_RECORD: Final = "unreadable_record"  # its framing is broken, so its value has no place
TOO_LARGE: Final = "expands_too_far"  # a batch would expand beyond the declared limit
BAD_MARK: Final = "bad_tick_mark"  # a record claims to be a tick mark but is not a valid one
WRONG_PARTITION: Final = "wrong_partition"  # a user's record lies in another than the user's own
NAME_TOO_LONG: Final = "name_too_long"  # of a user: it has more bytes than a name may have

DETAIL = 1000  # ranges of one commit that keep their places, over all kinds

_Kind: TypeAlias = tuple[int, str, str | None]


class Span(NamedTuple):
    """Consecutive places of one partition, `first` to `last` inclusive, all refused for one reason.

    `field` is the name in the schema of the field that is to blame, if there is one.
    """

    reason: str
    field: str | None
    first: int
    last: int

    @property
    def records(self) -> int:
        return self.last - self.first + 1

    def __repr__(self) -> str:
        return "<Span>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []


def as_spans(refused: Iterable[tuple[int, str, str | None]]) -> list[Span]:
    """Return the refused records (place, reason, field) as spans, in the order given; neighbours are joined.

    Neighbours are consecutive places with the same reason and field.

    >>> [(span.first, span.last) for span in as_spans([(4, NOT_JSON, None), (5, NOT_JSON, None), (7, NOT_JSON, None)])]
    [(4, 5), (7, 7)]
    """
    spans: list[Span] = []
    first = last = 0
    cause: tuple[str, str | None] | None = None
    for place, reason, field in refused:
        if cause == (reason, field) and place == last + 1:
            last = place
            continue
        if cause is not None:
            spans.append(Span(*cause, first, last))
        first = last = place
        cause = reason, field
    if cause is not None:
        spans.append(Span(*cause, first, last))
    return spans


class _Letters:
    """The refused records of one kind: how many, and the edges first, last, first, last ... of known ranges."""

    __slots__ = ("edges", "records")

    def __init__(self) -> None:
        self.records, self.edges = 0, array("q")


class DeadLetters:
    """Refused records by partition, reason and field: all are counted, `DETAIL` ranges at most keep their places."""

    __slots__ = ("_room", "kinds")

    def __init__(self, *parts: "DeadLetters") -> None:
        self.kinds: defaultdict[_Kind, _Letters] = defaultdict(_Letters)
        self._room = DETAIL
        for part in parts:
            self.merge(part)

    @classmethod
    def of(cls, sealed: Iterable[DeadLetter]) -> "DeadLetters":
        """Return the dead letters that `sealed` returned."""
        every = cls()
        for letter in sealed:
            edges = array("q", chain.from_iterable(letter.ranges))
            kind = letter.partition, letter.reason, letter.field
            every._take(kind, letter.records, edges)
        return every

    @property
    def records(self) -> int:
        return sum(letters.records for letters in self.kinds.values())

    def add(self, partition: int, refused: Iterable[Span]) -> None:
        """Add spans of a partition; a span that continues a range extends it."""
        for span in refused:
            edges = array("q", (span.first, span.last))
            self._take((partition, span.reason, span.field), span.records, edges)

    def merge(self, later: "DeadLetters") -> None:
        for kind, letters in later.kinds.items():
            self._take(kind, letters.records, letters.edges)

    def sealed(self) -> tuple[DeadLetter, ...]:
        ordered = sorted(self.kinds, key=lambda kind: (kind[0], kind[1], kind[2] or ""))
        return tuple(
            DeadLetter(*kind, self.kinds[kind].records, self._ranges(kind)) for kind in ordered
        )

    def _ranges(self, kind: _Kind) -> tuple[tuple[int, int], ...]:
        edges = self.kinds[kind].edges
        return tuple(zip(edges[::2], edges[1::2], strict=True))

    def _take(self, kind: _Kind, records: int, edges: "array[int]") -> None:
        mine = self.kinds[kind]
        mine.records += records
        begin = 0
        if edges and mine.edges and edges[0] == mine.edges[-1] + 1:
            mine.edges[-1], begin = edges[1], 2
        room = min(self._room, (len(edges) - begin) // 2)
        mine.edges.extend(edges[begin : begin + 2 * room])
        self._room -= room
