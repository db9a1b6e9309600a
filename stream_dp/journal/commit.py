"""The commit and the release: what becomes durable together, and the exact bytes that leave.

Rules: a `Release` is the only form in which private data leaves, and its `body` is written once. A `Commit` is private:
it holds exact rows and the seeds of the noise. Both have a stable binary form, fields by name under an explicit kind;
`version` covers the commit and all its parts, and is read before anything else. The meaning of an existing field never
changes. A field may be added with a default, in array-like classes at the end only; any other change raises `VERSION`
(docs/formats.md).

Packed bodies: the releases of a commit in fewer bytes, without what commit and release say already, phrases as one
byte. The bodies stand in a text of their own, with nothing private in it, so its length is a function of what will be
public; rows are never packed, for what they take in fewer bytes would depend on them. What would not come back byte for
byte is not packed. A place in `PHRASES` keeps its meaning: add at the end only. A phrase is written as a control
character, of which JSON has none.
"""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream_dp.core.time import moment_text, parse_moment
from stream_dp.errors import FailClosed, UnknownFormat

PHRASES = (
    b',"confidence":0.95}\n', b',"confidence":0.95}', b'","value":', b',"band":', b'","values":{"', b'},"band":',
    b'","windows":{"', b'{"value":', b'{"values":{"', b',"low":', b',"high":', b',"confidence":', b'},"', b'":', b',"',
)  # fmt: skip
_BETWEEN, _END = b"\n", b"\0"  # releases of a tick, ticks
_CODES = [bytes((code,)) for code in range(1, 32) if code != _BETWEEN[0]]
_PACKING = [*zip(PHRASES, _CODES, strict=False)]
_WIDE = 1 << 10  # bytes of a body, on average: in wider ones phrases are few
_NO_JSON = bytes(range(32))
_Fields: TypeAlias = tuple[int, str, int, bytes]


class Body(Protocol):
    """What there is of a release: number, series, tick and body."""

    @property
    def sequence(self) -> int: ...
    @property
    def series(self) -> str: ...
    @property
    def tick(self) -> int: ...
    @property
    def body(self) -> bytes: ...


class PackedBodies(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The releases of a commit, numbered from `sequence` on; its ticks end at `end`, `end` + `step`, ... (ms).

    `text` has of each release the name and, behind a quotation mark, what follows the end of its tick in the body.
    """

    sequence: int
    end: int
    step: int
    text: bytes

    def __repr__(self) -> str:
        return "<PackedBodies>"

    def unpacked(self, ticks: Sequence[int]) -> Iterator[_Fields]:
        """Yield number, series, tick and body of each release; ValueError if they are not those of these ticks."""
        text, number = self.text, self.sequence
        for phrase, code in _PACKING:
            text = text.replace(code, phrase)
        ends = _ends(self.end, self.step, len(ticks))
        for tick, end, told in zip(ticks, ends, text.split(_END), strict=True):
            for line in told.split(_BETWEEN):
                name, _, rest = line.partition(b'"')
                yield number, name.decode(), tick, _head(number, name, tick) + end + rest
                number += 1


def packed(ticks: Sequence[int], releases: Sequence[Body]) -> PackedBodies | None:
    """Return the releases of these ticks packed; None where they would not come back as they are."""
    if not releases or sum(len(release.body) for release in releases) > _WIDE * len(releases):
        return None
    told, ends, number = list[list[bytes]](), list[bytes](), releases[0].sequence
    for release in releases:
        name, tick, body = release.series.encode(), release.tick, release.body
        head = _head(number, name, tick)
        if len(told) == 0 or tick != ticks[len(told) - 1]:
            if ticks[len(told) : len(told) + 1] != (tick,):
                return None
            told.append([])
            ends.append(body[len(head) : body.find(b'"', len(head)) + 1])
        head += ends[-1]
        if release.sequence != number or b'"' in name or not body.startswith(head):
            return None
        told[-1].append(name + b'"' + body[len(head) :])
        number += 1
    moments = [parse_moment(end[:-1].decode("ascii", "replace")) for end in ends[:2]]
    end, text = moments[0], _END.join(map(_BETWEEN.join, told))
    step = (moments[-1] or 0) - (end or 0)
    if end is None or _ends(end, step, len(ticks)) != ends:
        return None
    if len(text.translate(None, _NO_JSON)) != len(text) - len(releases) + 1:
        return None
    for phrase, code in _PACKING:
        text = text.replace(phrase, code)
    return PackedBodies(releases[0].sequence, end, step, text)


def _ends(end: int, step: int, number: int) -> list[bytes]:
    """Return the ends of so many ticks as they stand in bodies, with the quotation mark behind; none if one is none."""
    try:
        return [moment_text(end + at * step).encode() + b'"' for at in range(number)]
    except OverflowError:
        return []


def _head(sequence: int, name: bytes, tick: int) -> bytes:
    return b'{"v":1,"sequence":%d,"series":"%b","tick":%d,"end":"' % (sequence, name, tick)


KIND = "commit"
VERSION = 5
_MARK = b"\xc1"
"""Begins a commit since version 5, before a byte for the version: no MessagePack begins so."""
_PLACE_BYTES = 5  # of a column's number, at most
_ENCODER = msgspec.msgpack.Encoder()
_T = TypeVar("_T")


Row: TypeAlias = tuple[int, ...] | memoryview
"""The entries of a tick's row, int64; those of a wide one, before it is written, as they lie in memory."""
_WIDE_ROW = 1 << 12  # entries


def row_of(entries: NDArray[np.int64]) -> Row:
    """Return a row for a commit; nobody may write to it afterwards."""
    return tuple(entries.tolist()) if len(entries) < _WIDE_ROW else entries.data


class _Part(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
    """A field that this version does not know is refused, never skipped."""


class Private(_Part, frozen=True):
    """Shows nothing of its content, wherever it is printed."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []


class Release(Private, frozen=True, array_like=True, tag="release"):
    """One published fact: `body` is the exact public line (JSON, UTF-8, no newline); private until durable."""

    sequence: int
    series: str
    tick: int
    body: bytes


class DeadLetter(Private, frozen=True, array_like=True, tag="dead-letter"):
    """How many records of a partition could not be used for one reason; never what they hold.

    `ranges` has the first and the last place of each range; `records` also counts records whose places were not kept.
    """

    partition: int
    reason: str
    field: str | None
    records: int
    ranges: tuple[tuple[int, int], ...]


class Answer(Private, frozen=True, array_like=True, tag="answer"):
    """One answer to a message: `body` is its exact public line, which is private until it is durable.

    `number` counts all answers from 1. `id` names the answered message; None if the answer refuses records that are
    not accepted as messages. `digest` is the SHA-256 of the message's text. Until `until` (ms since 1970) no other
    message may have its id. `analyst`, `do` and `series` say who asked what.
    """

    number: int
    id: str | None
    digest: bytes
    until: int
    body: bytes
    analyst: str = ""
    do: str = ""
    series: str = ""


class Refused(Private, frozen=True, tag="refused"):
    """Records of the queue that are no messages, for one reason, since the last answer to such records.

    `records` is their number, `places` are the places of the first ones, and `last` is that of the last one.
    """

    reason: str
    detail: str
    records: int
    places: tuple[int, ...]
    last: int


class Charge(_Part, frozen=True, tag="charge"):
    """An entry of the ledger; amounts are integers in units of 10^-12, rounded up.

    `measure` names the privacy measure of these parameters, `analyst` the sub-ledger that is charged ("": the main
    one).
    """

    name: str
    epsilon: int
    delta: int
    rule: str
    measure: str = "DP"
    analyst: str = ""


class Created(_Part, frozen=True, tag="created", omit_defaults=True):
    """A mechanism created while others run: it serves the series of `definition` and sees ticks from `start` on.

    The definition is public JSON. The series counts in the entries from `column` on of the tick rows. `number`
    counts all series since the first start, `mechanism` is a short digest of the mechanism and its parameters.
    `version` counts the series of this name: beyond the first, each took the name over from one that the same change of
    the pipeline file ended.
    """

    number: int
    definition: bytes
    start: int
    column: int
    mechanism: str = ""
    version: int = 1


class Halted(_Part, frozen=True, tag="halted"):
    """A mechanism that sees no tick from `end` on."""

    number: int
    end: int


class Asked(_Part, frozen=True, tag="asked"):
    """A query that mechanism `number` took at the cut before tick `at`; its parameters are public JSON.

    `answer` is the number of the answer that reports it.
    """

    number: int
    parameters: bytes
    at: int
    answer: int


class Watched(_Part, frozen=True, tag="watched"):
    """A watch of mechanism `number` from tick `at` on, in its places from `place` on, as `definition` says.

    `analyst` names who added it ("": the operator).
    """

    number: int
    definition: bytes
    place: int
    at: int
    analyst: str = ""


class Unwatched(_Part, frozen=True, tag="unwatched"):
    """The end of a watch of mechanism `number`: it sees no tick from `at` on."""

    number: int
    name: str
    at: int


class Applied(_Part, frozen=True, tag="applied"):
    """The pipeline file was changed at the cut before tick `at`; the journal goes on with the file of `fingerprint`.

    `file` is what it says, `first` what the file of the first start said (public JSON, deflated). The series `ended` of
    that first file see no tick any more; what they were charged stays. What it creates and halts stands beside it; what
    goes on with a name, behind it.
    """

    at: int
    fingerprint: str
    file: bytes
    first: bytes
    ended: tuple[str, ...] = ()


Change: TypeAlias = Created | Halted | Asked | Watched | Unwatched | Applied


class Header(_Part, frozen=True, tag="header"):
    """The journal's first commit says what it belongs to; anything else is refused at start.

    `file` is what the pipeline file says, as deflated public JSON (empty before there was an `Applied`).
    """

    pipeline: str
    fingerprint: str
    source: str
    partitions: tuple[int, ...]
    origin: int
    private: bool
    key_id: str
    parts: dict[str, str] = {}
    accepted: str = ""
    identity: str = ""
    file: bytes = b""


class SavedStates(Private, frozen=True, tag="snapshot"):
    """A snapshot: the live series' states after the commit's last tick, by series number, as `STATES` wrote them."""

    states: dict[int, bytes]


class Commit(Private, frozen=True, tag=KIND):
    """The content of one durable step; reading continues at `positions`.

    `marks` are the last tick marks before these positions, one for each partition. `ticks` are the closed ticks,
    with one row and one 32-byte seed each. `pending` holds the entries that are not 0 of the rows of ticks still
    open at the cut, by column. `records` counts the events read up to the cut. `previous` is the SHA-256 of the
    sealed commit before this one.

    A commit with `changes` has no ticks: it lies at the cut between two ticks. Its charges are those of the
    mechanisms created. Its seeds are those of the changes that draw (first states and queries), in the order of the
    changes. `answers` became durable with it.

    `admitted` are partitions that were added to the source: they are read from their first record on, and count
    from these ticks on. `behind` says what is read again before a position (start and done, see `ports.Behind`).
    `capped` counts the events that a guard let count nowhere. `parts` holds, by kind, what the engine's memories add
    with it, as each of them writes it (`engine.memories`).
    """

    sequence: int
    previous: bytes
    header: Header | None = None
    charges: tuple[Charge, ...] = ()
    ticks: tuple[int, ...] = ()
    rows: tuple[Row, ...] = ()
    seeds: tuple[bytes, ...] = ()
    releases: tuple[Release, ...] = ()
    positions: dict[int, int] = {}
    marks: dict[int, int] = {}
    pending: dict[int, dict[int, int]] = {}
    dead_letters: tuple[DeadLetter, ...] = ()
    late: int = 0
    records: int = 0
    snapshot: SavedStates | None = None
    changes: tuple[Change, ...] = ()
    admitted: tuple[int, ...] = ()
    behind: dict[int, tuple[int, int]] = {}
    answers: tuple[Answer, ...] = ()
    capped: int = 0
    parts: dict[str, bytes] = {}
    version: int = VERSION


class _Written(Commit, frozen=True, array_like=True, tag=False):
    """The fields of a commit in their order, without rows, packed releases, version, and the last ones at defaults."""


class _Third(Commit, frozen=True, tag=KIND):
    """A commit of version 3, which had fields of its own for what is in `parts` now, and no parts."""

    asked: int = -1
    users: dict[int, bytes] = {}
    arrived: dict[int, dict[int, bytes]] = {}
    arriving: dict[int, dict[int, bytes]] = {}
    refused: tuple[Refused, ...] = ()

    def upgraded(self) -> Commit:
        """Return the commit as this version writes it."""
        written = {
            "messages": (self.asked, self.refused),
            "users": self.users,
            "arrived": self.arrived,
            "arriving": self.arriving,
        }
        fields = {name: getattr(self, name) for name in Commit.__struct_fields__}
        parts = {kind: part(value) for kind, value in written.items() if value}
        return Commit(**fields | {"parts": parts, "version": VERSION})


class _Form(msgspec.Struct):
    """The fields of every commit before version 5."""

    kind: str = ""
    version: int = 0


_WrittenRow: TypeAlias = tuple[int, ...] | dict[int, int]
"""A row, or by column what is not 0 in it, and the last entry."""
_DECODER = msgspec.msgpack.Decoder(tuple[PackedBodies | None, tuple[_WrittenRow, ...], _Written])
_FOURTH = msgspec.msgpack.Decoder(Commit)
_THIRD = msgspec.msgpack.Decoder(_Third)
_FORM = msgspec.msgpack.Decoder(_Form)


def part(value: object) -> bytes:
    """Return the bytes of a memory's part of a commit."""
    return _ENCODER.encode(value)


def part_in(
    commit: Commit, kind: str, decoder: "msgspec.msgpack.Decoder[_T]", otherwise: str
) -> _T | None:
    """Return a commit's part of this kind, if it has one; raise `FailClosed` if it holds `otherwise`."""
    try:
        return decoder.decode(commit.parts[kind]) if kind in commit.parts else None
    except msgspec.MsgspecError:
        raise FailClosed(f"commit {commit.sequence} of the journal holds {otherwise}") from None


def encode(commit: Commit) -> bytes:
    bodies, rows = packed(commit.ticks, commit.releases), [*map(_sparse, commit.rows)]
    rest = msgspec.structs.replace(
        commit, rows=(), releases=commit.releases if bodies is None else ()
    )
    *fields, _ = msgspec.structs.astuple(rest)
    while len(fields) > 2 and not fields[-1]:  # at its default, as all after it
        fields.pop()
    return _MARK + bytes((VERSION,)) + _ENCODER.encode((bodies, rows, fields))


def decode(plain: bytes, name: str = "a commit") -> Commit:
    """Read the bytes of `encode`; `UnknownFormat` (which says `name`) for another kind, version or content."""
    try:
        if plain[:1] == _MARK:
            form = _Form(KIND, plain[1])
            if form.version == VERSION:
                return _unpacked(*_DECODER.decode(memoryview(plain)[2:]))
        else:
            form = _FORM.decode(plain)
            if (form.kind, form.version) == (KIND, 4):
                return msgspec.structs.replace(_FOURTH.decode(plain), version=VERSION)
            if (form.kind, form.version) == (KIND, 3) and not (third := _THIRD.decode(plain)).parts:
                return third.upgraded()
        what = f"version {form.version}" if form.kind == KIND else "no kind that is known"
    except (msgspec.MsgspecError, ValueError, IndexError):
        what = "a content of another version"
    raise UnknownFormat(name, what, f"version {VERSION}")


def _unpacked(
    bodies: PackedBodies | None, rows: tuple[_WrittenRow, ...], written: Commit
) -> Commit:
    releases = written.releases
    if bodies is not None:
        releases = tuple(Release(*fields) for fields in bodies.unpacked(written.ticks))
    commit = Commit(*msgspec.structs.astuple(written))
    return msgspec.structs.replace(commit, rows=tuple(map(_whole, rows)), releases=releases)


def _sparse(row: Row) -> _WrittenRow:
    wide = isinstance(row, memoryview)
    places = np.flatnonzero(row).tolist() if wide else [*compress(range(len(row)), row)]
    if _PLACE_BYTES * (len(places) + 1) >= len(row) - len(places):
        return tuple(row)
    return {place: row[place] for place in places} | {len(row) - 1: row[-1]}


def _whole(written: _WrittenRow) -> tuple[int, ...]:
    if isinstance(written, tuple):
        return written
    row = [0] * (max(written) + 1)
    for column, entry in written.items():
        row[column] = entry
    return tuple(row)


def digest(sealed: bytes) -> bytes:
    """Return the SHA-256 of a sealed commit: the link of the journal's chain."""
    return hashlib.sha256(sealed).digest()
