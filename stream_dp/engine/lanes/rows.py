"""Rows: what a lane counted in a tick, as workers write it into a log for the engine, and which rows of a log count.

A lane's row is a function of its part of the source, so who writes it does not matter. It names the digest of the row
before it, and where that one ended: rows of a lane are a chain, and of all that lies in the log the first that follows
counts. So a row that comes twice counts once, whoever writes it, and nobody need be fenced. A `Layout`, which the
engine alone writes, says what the chain begins with: its `epoch`, a tick and the cut before it; or, once rows of that
epoch are committed, the place of a row to go on with.

Rules: a row holds no clock, host or batch, so equal rows have equal bytes. The seal binds pipeline, lane, kind, tick
and epoch. Rows hold exact counts: private. `COUNTING` is raised when any record would count otherwise than before. This
file knows no Kafka and no event loop.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec
import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from stream_dp.core.mechanism import IntArray
from stream_dp.engine.memories import counted_in, written_by_window
from stream_dp.engine.ports import Behind
from stream_dp.engine.tick_assembler import ClosedTick, Cut, Row, ThinRow, dense, thin
from stream_dp.engine.user_table import (
    ByColumn,
    Counted,
    Used,
    each_once,
    read_identifiers,
    write_identifiers,
)
from stream_dp.errors import FailClosed
from stream_dp.journal.commit import DeadLetter, Private
from stream_dp.journal.dead_letters import DeadLetters
from stream_dp.noise import fresh_seed

COUNTING: Final = 2
ROW, LAYOUT = "row", "layout"
RECENT = 1_000
"""Of so many rows that counted the digests are known: an older row is not told from one that differs."""
_HEADER, _VERSION = "stream-dp-rows", b"1"
_FORM = 1
_NONCE_BYTES = 12
_LENGTH = 4
_WIDTHS = (np.dtype("<i1"), np.dtype("<i2"), np.dtype("<i4"), np.dtype("<i8"))
_PLACE = np.dtype("<u4")
_FAR = 1 << 40
_T = TypeVar("_T")
Headers: TypeAlias = tuple[tuple[str, bytes], ...]


class Cells(Private, frozen=True, array_like=True, tag="cells"):
    """A row of `width` entries: `counts` of all, or with `places` of these; the others are 0."""

    width: int
    places: bytes
    counts: bytes

    @classmethod
    def of(cls, row: Row, width: int) -> "Cells":
        """Return the one form of these entries: the shorter one."""
        few = thin(dense(row, width))
        size = _narrowest(few.counts)
        sparse = len(few.columns) * (_PLACE.itemsize + size.itemsize)
        if sparse < width * size.itemsize:
            return cls(
                width, few.columns.astype(_PLACE).tobytes(), few.counts.astype(size).tobytes()
            )
        return cls(width, b"", dense(row, width).astype(size).tobytes())

    def row(self) -> Row:
        number = len(self.places) // _PLACE.itemsize or (self.width if self.counts else 0)
        if len(self.counts) not in {number * size.itemsize for size in _WIDTHS}:
            raise _not_written("row")
        size = np.dtype(f"<i{len(self.counts) // number}") if number else _WIDTHS[0]
        counts: IntArray = np.frombuffer(self.counts, size).astype(np.int64)
        if number and not self.places:
            return counts
        return ThinRow(np.frombuffer(self.places, _PLACE).astype(np.int64), counts)


def _narrowest(counts: IntArray) -> "np.dtype[np.signedinteger]":
    low, high = (int(counts.min()), int(counts.max())) if len(counts) else (0, 0)
    return next(s for s in _WIDTHS if np.iinfo(s).min <= low and high <= np.iinfo(s).max)


class LaneRow(Private, frozen=True, array_like=True, tag=ROW):
    """A tick of a lane; its partitions were read from `begins` to `positions`, where `behind` is read again.

    `previous` is the digest of the lane's row before; of the first one in its epoch, of the layout. `marks` are those
    of a replay's partitions: in a live one, that of the tick. `used` is what the users of its records used of their
    caps, by memory and window. `known` are all identifiers of open ticks, `arriving` those that this row adds.
    """

    fingerprint: str
    counting: int
    lane: int
    tick: int
    epoch: int
    previous: bytes
    begins: dict[int, int]
    positions: dict[int, int]
    behind: dict[int, tuple[int, int]]
    marks: dict[int, int]
    cells: Cells
    pending: dict[int, Cells]
    dead: tuple[DeadLetter, ...]
    records: int
    late: int
    capped: int
    used: dict[str, dict[int, bytes]] = msgspec.field(default_factory=dict)
    arrived: dict[int, bytes] = msgspec.field(default_factory=dict)
    arriving: dict[int, dict[int, bytes]] = msgspec.field(default_factory=dict)
    known: dict[int, dict[int, bytes]] = msgspec.field(default_factory=dict)

    @property
    def cut(self) -> Cut:
        return _cut(self.tick + 1, self)

    def closed(self) -> ClosedTick:
        cut = self.cut
        row = dense(self.cells.row(), self.cells.width)
        row.flags.writeable = False
        return ClosedTick(
            self.tick, row, dict(cut.positions), dict(cut.marks), cut.pending, DeadLetters.of(self.dead),
            self.late, self.records, cut.behind,
            [Used(0, counted_in(windows), kind) for kind, windows in self.used.items()], self.capped,
            read_identifiers({self.tick: self.arrived})[self.tick], read_identifiers(self.arriving),
        )  # fmt: skip


class Layout(Private, frozen=True, tag=LAYOUT):
    """What workers go on with. `source` and `topic` are the ids of the source and of the rows' topic; `origin` is the
    begin of tick 0, and `first` are the partitions of the first start.

    The rows of the epoch begin with `tick`, behind the cut that `positions`, `marks`, `pending` and `behind` say; or,
    with `rows`, behind the rows of these digests, by lane. `places` says where in the log of each lane to read on.
    `held` is what users have used of their caps before `tick`, by memory and window. `file` is what the pipeline file
    says, as journals keep it. Beside its series `added` count, from these columns on, by their first tick, the name of
    the series that it is a watch of (or ""), and the definition; but nothing from a column of `muted` up to another.
    """

    fingerprint: str
    counting: int
    lanes: int
    epoch: int
    tick: int
    origin: int
    first: tuple[int, ...]
    source: str
    topic: str
    width: int
    places: dict[int, int]
    rows: dict[int, bytes] = msgspec.field(default_factory=dict)
    positions: dict[int, int] = msgspec.field(default_factory=dict)
    behind: dict[int, tuple[int, int]] = msgspec.field(default_factory=dict)
    marks: dict[int, int] = msgspec.field(default_factory=dict)
    pending: dict[int, Cells] = msgspec.field(default_factory=dict)
    known: dict[int, dict[int, bytes]] = msgspec.field(default_factory=dict)
    held: dict[str, dict[int, bytes]] = msgspec.field(default_factory=dict)
    file: bytes = b""
    added: tuple[tuple[int, tuple[int, str, bytes]], ...] = ()
    muted: tuple[tuple[int, int], ...] = ()

    def continues(self, other: "Layout", *more: str) -> bool:
        """Return whether it is of the same file and topics as another, and also the same in the fields of `more`."""
        names = (
            "fingerprint", "counting", "lanes", "origin", "first", "source", "topic", *more,
        )  # fmt: skip
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def cut(self, lane: int) -> Cut:
        """Return the part of a lane of the cut; what is pending goes on in the first one."""
        cut = _cut(self.tick, self)
        mine = {
            name: {at: part for at, part in getattr(cut, name).items() if at % self.lanes == lane}
            for name in ("positions", "marks", "behind")
        }
        opened = {"pending": cut.pending, "arriving": cut.arriving} if lane == 0 else {}
        return Cut(self.tick, **mine, **opened)


def _cut(next_tick: int, said: LaneRow | Layout) -> Cut:
    marks = said.marks or dict.fromkeys(said.positions, next_tick - 1)
    pending = {tick: cells.row() for tick, cells in said.pending.items()}
    behind = {at: Behind(*open_there) for at, open_there in said.behind.items()}
    return Cut(next_tick, said.positions, marks, pending, behind, read_identifiers(said.known))


def parts_of(cut: Cut, width: int, *, marked: bool) -> dict[str, dict[int, Any]]:
    """Return the fields of a row, or layout, that say where its cut lies, in order; `marked`: with marks."""
    pending = {tick: Cells.of(row, width) for tick, row in sorted(cut.pending.items())}
    return {
        "positions": dict(sorted(cut.positions.items())),
        "behind": {at: tuple(part) for at, part in sorted(cut.behind.items())},
        "marks": dict(sorted(cut.marks.items())) if marked else {},
        "pending": {tick: cells for tick, cells in pending.items() if cells.counts},
        "known": written_once(cut.arriving),
    }


def written_once(arriving: Mapping[int, ByColumn]) -> dict[int, dict[int, bytes]]:
    """Return identifiers in the one order that says nothing of how they came."""
    once = {
        tick: {column: each_once([hashes]) for column, hashes in sorted(columns.items())}
        for tick, columns in sorted(arriving.items())
    }
    return write_identifiers({tick: columns for tick, columns in once.items() if columns})


_ENCODER = msgspec.msgpack.Encoder()
_ROW, _LAYOUT = msgspec.msgpack.Decoder(LaneRow), msgspec.msgpack.Decoder(Layout)


def encoded(said: LaneRow | Layout) -> bytes:
    return _ENCODER.encode(said)


def digest(plain: bytes) -> bytes:
    return hashlib.sha256(plain).digest()


def row_in(plain: bytes) -> LaneRow:
    return _read(_ROW, plain, "row")


def _longest(row: LaneRow) -> LaneRow:
    """Return a row as long as this one could be, with the same partitions, for other counts of its tick."""
    cells = Cells(row.cells.width, b"", bytes(4 * row.cells.width))
    places = {
        name: dict.fromkeys(getattr(row, name), _FAR) for name in ("begins", "positions", "marks")
    }
    return msgspec.structs.replace(row, cells=cells, records=_FAR, late=_FAR, capped=_FAR, **places)


def layout_in(plain: bytes) -> Layout:
    return _read(_LAYOUT, plain, "layout")


def _read(decoder: "msgspec.msgpack.Decoder[_T]", plain: bytes, what: str) -> _T:
    try:
        return decoder.decode(plain)
    except msgspec.MsgspecError:
        raise _not_written(what) from None


def _not_written(what: str) -> FailClosed:
    return FailClosed(
        f"a {what} of workers has another form than this version reads: let engine and workers run one version"
    )


class Stamp(msgspec.Struct, frozen=True, array_like=True):
    """What a seal binds beside the pipeline; public in form. `lane` is -1 for a layout."""

    kind: str
    lane: int
    tick: int
    epoch: int


class Sealed(NamedTuple):
    """A record of the log of rows, or of that of layouts."""

    headers: Headers
    value: bytes

    def __repr__(self) -> str:
        return "<Sealed>"


class RowSealer:
    """Seals rows and layouts of a pipeline under the key of rows. `pad`: in lengths of powers of 2, where a row is as
    long as if its counts and offsets were large ones.
    """

    def __init__(self, key: bytes, pipeline: str, *, pad: bool = False) -> None:
        self._cipher, self._pipeline, self._pad = AESGCM(key), pipeline, pad

    def seal(self, stamp: Stamp, plain: bytes, least: int = 0) -> bytes:
        padded = len(plain).to_bytes(_LENGTH) + plain
        if self._pad:
            size = _LENGTH + max(len(plain), least)
            padded = padded.ljust(1 << (size - 1).bit_length(), b"\0")
        nonce = fresh_seed()[:_NONCE_BYTES]
        form = bytes([_FORM])
        return form + nonce + self._cipher.encrypt(nonce, padded, form + self._bound(stamp))

    def record(self, stamp: Stamp, plain: bytes) -> Sealed:
        """Return the record that holds these bytes, sealed."""
        numbers = {"lane": stamp.lane, "tick": stamp.tick, "epoch": stamp.epoch}
        named = tuple((name, b"%d" % number) for name, number in numbers.items())
        headers = ((_HEADER, _VERSION), ("kind", stamp.kind.encode()), *named)
        row = row_in(plain) if self._pad and stamp.kind == ROW else None
        least = 0 if row is None else len(encoded(_longest(row)))
        return Sealed(headers, self.seal(stamp, plain, least))

    def row(self, lane: int, record: Sealed) -> tuple[LaneRow, bytes]:
        """Return the row that a record of a lane's log holds, and its plain bytes. Raises `FailClosed`."""
        stamp, plain = self.opened(ROW, lane, record)
        row = row_in(plain)
        if (row.lane, row.tick, row.epoch) != (lane, stamp.tick, stamp.epoch):
            raise self.foreign(ROW)
        return row, plain

    def opened(self, kind: str, lane: int, record: Sealed) -> tuple[Stamp, bytes]:
        """Return the stamp of a record, and what it holds. Raises `FailClosed`."""
        headers = dict(record.headers)
        form = headers.get(_HEADER), headers.get("kind")
        try:
            stamp = Stamp(kind, lane, int(headers["tick"]), int(headers["epoch"]))
        except (KeyError, TypeError, ValueError):
            raise self.foreign(kind) from None
        if form != (_VERSION, kind.encode()):
            raise self.foreign(kind)
        return stamp, self.open(stamp, record.value)

    def foreign(self, kind: str) -> FailClosed:
        """Return what a log with a record of another form raises."""
        topic = f"{self._pipeline}.private.{'layout' if kind == LAYOUT else 'rows'}"
        return FailClosed(
            f"topic {topic!r} holds a record that neither an engine nor a worker has written; only they may write "
            "there (ACL)"
        )

    def open(self, stamp: Stamp, sealed: bytes) -> bytes:
        """Return the plain bytes; raise `FailClosed` for another key, pipeline or place, or for changed bytes."""
        nonce, ciphertext = sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
        try:
            padded = self._cipher.decrypt(nonce, ciphertext, sealed[:1] + self._bound(stamp))
        except (InvalidTag, ValueError):
            where = "the layout" if stamp.kind == LAYOUT else f"a row of lane {stamp.lane}"
            raise FailClosed(
                f"{where} of {self._pipeline} cannot be decrypted: it was written with another key "
                "or at another place, or it was changed. Only workers that hold this pipeline's key "
                "may write to that topic (ACL)"
            ) from None
        return padded[_LENGTH : _LENGTH + int.from_bytes(padded[:_LENGTH])]

    def _bound(self, stamp: Stamp) -> bytes:
        bound = (self._pipeline, stamp.kind, stamp.lane, stamp.tick, stamp.epoch)
        return "/".join(("stream-dp/rows", *map(str, bound))).encode()


class LayoutLog:
    """The layouts of a log, from its records in order; one layout is several records, which lie together."""

    def __init__(self, sealer: RowSealer) -> None:
        self._sealer = sealer
        self._parts: list[bytes] = []
        self.newest: Layout | None = None

    def take(self, record: Sealed) -> int:
        """Take the next record; return of how many a layout is that ends here, 0 if none does. Raises `FailClosed`."""
        headers = dict(record.headers)
        try:
            part, parts = (int(headers[name]) for name in ("part", "parts"))
        except (KeyError, TypeError, ValueError):
            raise self._sealer.foreign(LAYOUT) from None
        if part == 0:
            self._parts.clear()
        self._parts.append(record.value)
        if part != len(self._parts) - 1:
            raise self._sealer.foreign(LAYOUT)
        if part != parts - 1:
            return 0
        _, plain = self._sealer.opened(LAYOUT, -1, Sealed(record.headers, b"".join(self._parts)))
        self.newest = layout_in(plain)
        return parts


class Verdict(Enum):
    """What a row of a lane's log is."""

    COUNTS = "it is the first that follows"
    REPEATED = "an equal one counted"
    CONTESTED = "another one counted, or it follows none that counted"
    AHEAD = "rows before it are not there"
    FORMER = "it is of another epoch"
    SKEWED = "it was written by another version, or with another file"


class LaneChain:
    """The rows of one lane that count, decided by their order in the log alone: the engine and all workers agree."""

    def __init__(self, layout: Layout, lane: int) -> None:
        self._layout, self._lane = layout, lane
        self._digests: OrderedDict[int, bytes] = OrderedDict()
        self._anchor = layout.rows.get(lane)
        self.cut = layout.cut(lane)
        self.previous = digest(encoded(layout))
        self.unfollowed = False
        """Whether a row came since the last one that counted, which should follow and does not."""

    @property
    def next_tick(self) -> int:
        return self.cut.next_tick

    def require_begun(self) -> None:
        """Raise `FailClosed` if the layout goes on with a row that was not seen."""
        if self._anchor is not None:
            raise another_log(self._lane)

    def digest_of(self, tick: int) -> bytes | None:
        """Return the digest of the row of this tick that counted; None if none did, or too long ago."""
        return self._digests.get(tick)

    def take(self, row: LaneRow, plain: bytes) -> Verdict:
        """Judge the next row of the log."""
        verdict = self._judged(row, digest(plain))
        if verdict is Verdict.COUNTS:
            self._count(row, digest(plain))
        elif verdict in (Verdict.CONTESTED, Verdict.AHEAD) and row.tick >= self.next_tick:
            self.unfollowed = True
        return verdict

    def _judged(self, row: LaneRow, found: bytes) -> Verdict:
        layout = self._layout
        if row.epoch != layout.epoch:
            return Verdict.FORMER
        written = row.fingerprint, row.counting, row.cells.width
        if written != (layout.fingerprint, layout.counting, layout.width):
            return Verdict.SKEWED
        if self._anchor is not None:
            if (row.tick, row.lane, found) != (layout.tick - 1, self._lane, self._anchor):
                raise another_log(self._lane)
            self._anchor = None
            self._count(row, found)
            return Verdict.REPEATED
        if row.tick < self.next_tick:
            known = self._digests.get(row.tick, found)
            return Verdict.REPEATED if known == found else Verdict.CONTESTED
        if row.tick > self.next_tick:
            return Verdict.AHEAD
        follows = row.previous == self.previous and row.begins == self.cut.positions
        return Verdict.COUNTS if follows else Verdict.CONTESTED

    def _count(self, row: LaneRow, found: bytes) -> None:
        self.cut, self.previous, self.unfollowed = row.cut, found, False
        self._digests[row.tick] = found
        if len(self._digests) > RECENT:
            self._digests.popitem(last=False)


def another_log(lane: int) -> FailClosed:
    return FailClosed(
        f"the rows topic does not hold what its layout says of lane {lane}: it was wiped, cut, restored or made again. "
        "Bring the newest one back; or stop all workers, delete the rows topic and the layout topic together, and "
        "start again: workers then begin where the journal ends, as long as the source still holds what lies behind"
    )


def row_of(
    closed: ClosedTick,
    layout: Layout,
    lane: int,
    chain: tuple[bytes, Mapping[int, int]],
    known: Mapping[int, ByColumn],
    *,
    marked: bool,
) -> LaneRow:
    """Return the row of a lane's tick, which follows the row with this digest and these positions. `known` are the
    identifiers of open ticks.
    """
    previous, begins = chain
    kinds = sorted({used.kind for used in closed.used})
    used = {
        kind: written_by_window(
            Counted.together([u.counted for u in closed.used if u.kind == kind])
        )
        for kind in kinds
    }
    return LaneRow(
        layout.fingerprint, layout.counting, lane, closed.tick, layout.epoch, previous, dict(begins),
        cells=Cells.of(closed.row, layout.width), dead=closed.dead_letters.sealed(), records=closed.records,
        late=closed.late, capped=closed.capped, used=used,
        arrived=written_once({0: closed.arrived}).get(0, {}), arriving=written_once(closed.arriving),
        **parts_of(replace(closed.cut, arriving=known), layout.width, marked=marked),
    )  # fmt: skip
