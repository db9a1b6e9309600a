"""A checkpoint: what a start needs of all commits up to one with a snapshot, so that it need not read them.

Rules: a checkpoint is private, and part of commits: its bytes are cut into pieces, the first one in the commit after
which it stands, each other one in the next commit with ticks. So no commit is much larger for it, and it is sealed and
linked as they are. Reading may begin at its first commit once its last piece is durable. A start that cannot read a
checkpoint reads the commits in its place.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from stream_dp.journal.answer_body import RefusedMessage, read_answer
from stream_dp.journal.commit import (
    Answer,
    Applied,
    Asked,
    Charge,
    Commit,
    Created,
    Private,
    part,
)

KIND = "checkpoint"
"""The kind of a piece among the parts of a commit."""
PIECE_BYTES, MOST_PIECES = 250_000, 100
"""The least bytes of a piece, if there are several, and the most pieces: short runs complete a checkpoint, too."""
KEPT = 2
"""How many checkpoints a journal knows: the last ones. A start uses the newest one before which all is public."""
PRUNED = "pruned"
"""The kind of the part that says before which commit all may be deleted once it is durable."""
MOST_PLACES = 128
"""How many of the places where a journal may begin are remembered; of more, one is dropped whose neighbours are next to
each other, so that they lie about evenly.
"""


class Totals(Private, frozen=True, tag="totals"):
    """Exact totals of commits (private): `dead` by partition, reason and field; `messages` are the answers by analyst,
    requested action, and whether it was refused (public).
    """

    ticks: int = 0
    releases: int = 0
    records: int = 0
    late: int = 0
    capped: int = 0
    dead: dict[tuple[int, str, str | None], int] = msgspec.field(default_factory=dict)
    messages: dict[tuple[str, str, bool], int] = msgspec.field(default_factory=dict)

    def plus(self, commit: Commit, through: int | None = None) -> "Totals":
        """Return the totals with this commit, of its ticks and releases those up to tick `through`."""
        dead, messages = self.dead, self.messages
        if commit.dead_letters:
            dead = dict(dead)
            for letter in commit.dead_letters:
                kind = letter.partition, letter.reason, letter.field
                dead[kind] = dead.get(kind, 0) + letter.records
        if commit.answers:
            messages = dict(messages)
            for answer in commit.answers:
                refused = isinstance(read_answer(answer.body).refused, RefusedMessage)
                told = answer.analyst, answer.do, refused
                messages[told] = messages.get(told, 0) + 1
        ticks, releases = len(commit.ticks), len(commit.releases)
        if through is not None:
            ticks = sum(tick <= through for tick in commit.ticks)
            releases = sum(release.tick <= through for release in commit.releases)
        return Totals(
            self.ticks + ticks, self.releases + releases,
            self.records + commit.records, self.late + commit.late, self.capped + commit.capped,
            dead, messages,
        )  # fmt: skip


def _few(places: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    if len(places) <= MOST_PLACES:
        return places
    gaps = [places[at + 1][1] - places[at - 1][1] for at in range(1, len(places) - 1)]
    dropped = 1 + gaps.index(min(gaps))
    return places[:dropped] + places[dropped + 1 :]


class Places(Private, frozen=True, tag="places"):
    """Where a journal may begin once what lies before is pruned: `commits` are those after which checkpoints stand,
    oldest first, each with its last tick. `open` is such a commit whose checkpoint is not whole yet. `pruned` is the
    last commit before which all was to be deleted (0: none).

    A journal may begin earlier, for there is only more of it then: the deletion is not done, or brokers that were
    killed together have taken it back.
    """

    commits: tuple[tuple[int, int], ...] = ()
    open: tuple[int, int] | None = None
    pruned: int = 0

    def plus(self, commit: Commit) -> "Places":
        """Return the places once this commit is durable."""
        known, begun, pruned = self.commits, self.open, self.pruned
        if PRUNED in commit.parts:
            pruned = msgspec.msgpack.decode(commit.parts[PRUNED], type=int)
            known = tuple(place for place in known if place[0] >= pruned)
        if (piece := piece_in(commit)) is not None:
            begun = (commit.sequence, commit.ticks[-1]) if piece.number == 0 else begun
            if piece.is_last and begun is not None:
                known, begun = _few((*known, begun)), None
        return Places(known, begun, pruned)

    def next(self, begin: int, through: int) -> int | None:
        """Return the first place after commit `begin` whose last tick is at most `through`; None if there is none."""
        return next((n for n, tick in self.commits if n > begin and tick <= through), None)

    def allow(self, begin: int) -> bool:
        """Return whether a journal may begin there: nothing was deleted but what its commits name."""
        return begin <= self.pruned


class _Public(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A part of a checkpoint that holds public values only."""


class Running(_Public, frozen=True):
    """A live series that runs: how it was created, what it was charged, and the digest of what was derived of it."""

    created: Created
    charge: Charge
    derived: bytes


class Ended(_Public, frozen=True):
    """A halted series; it saw the ticks from `start` up to, and not including, `end`. `shown` is what lists show."""

    name: str
    analyst: str
    start: int
    end: int
    shown: dict[str, Any]


class Watch(_Public, frozen=True):
    """A watch in `places` places from `place` on; `definition` is empty for one of its series' own definition.

    It sees the ticks from `start` on, and none from `end` on; `asked` are its keys that have fired for good in answers,
    each with the first tick that it does not see. `analyst` names who added it.
    """

    definition: bytes
    place: int
    places: int
    start: int | None
    analyst: str
    end: int | None
    asked: dict[str, int]


class Watching(_Public, frozen=True):
    """How the watches of series `number` differ from its definition: `closed` are places of own ones that ended,
    `added` those that were added or fired in answers, `gone` the last ones that ended by message, in their order.
    """

    number: int
    closed: tuple[int, ...]
    added: tuple[Watch, ...]
    gone: tuple[Watch, ...]


class Spent(_Public, frozen=True):
    """An amount, its delta, and how many mechanisms have each epsilon; the amount in digits, for it may be any."""

    amount: str
    delta: int
    epsilons: tuple[tuple[int, int], ...]


class Account(_Public, frozen=True):
    """What a ledger holds of all charges and halts, beside the entries of what runs; `sums` are its loads everywhere,
    `used` and `peak` (see `accounting.ledger.Ledger`), `held` what counts until a window ends (see
    `accounting.loads.Loads`).
    """

    analyst: str
    sums: tuple[Spent, Spent, Spent]
    count: int
    freed: int
    held: tuple[tuple[str, int | None, Spent], ...] = ()


class Standing(_Public, frozen=True):
    """Which series and watches there are, by number, and what is kept of those that ended: sums of the ledgers, the
    last ones of each, and `names`, which are the digests of all names ever used, sorted. `applied` is the last change
    of the pipeline file, and `first_ended` the first tick without each series of the first one that has ended (empty in
    older journals).
    """

    running: tuple[Running, ...] = ()
    watching: tuple[Watching, ...] = ()
    accounts: tuple[Account, ...] = ()
    ended: tuple[Ended, ...] = ()
    names: bytes = b""
    next_number: int = 0
    applied: Applied | None = None
    first_ended: dict[str, int] = {}


class Checkpoint(Private, frozen=True, tag=KIND):
    """What stands after a commit; the states of its mechanisms are in that commit's snapshot.

    `memories` is what each memory saved there, by kind. All else is as before that commit: `first` has the header and
    the charges of the first start, without rows and releases; `series` are those that there are; `partitions` were
    read; `numbers` are those of `ReleaseNumbers`; `answer` is the number of the last answer and the SHA-256 of its
    body. `totals` and `places` are of all commits before.
    """

    first: Commit
    series: Standing
    partitions: tuple[int, ...]
    numbers: tuple[tuple[int, int, int], ...]
    memories: dict[str, bytes]
    answer: tuple[int, bytes]
    totals: Totals
    places: Places


class Piece(Private, frozen=True, array_like=True, tag="piece-2"):
    """Piece `number`, counted from 0, of the `pieces` of the checkpoint after commit `after`.

    Its tag changes with the form of checkpoints, so that a journal never begins with one that cannot be read.
    """

    after: int
    number: int
    pieces: int
    content: bytes

    @property
    def is_last(self) -> bool:
        return self.number == self.pieces - 1


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Checkpoint)
_PIECE = msgspec.msgpack.Decoder(Piece)


def pieces_of(checkpoint: Checkpoint, after: int) -> list[bytes]:
    """Return the parts, of the kind `KIND`, that commit `after` and the next ones with ticks hold."""
    whole = _ENCODER.encode(checkpoint)
    size = max(PIECE_BYTES, -(-len(whole) // MOST_PIECES))
    pieces = [whole[begin : begin + size] for begin in range(0, len(whole), size)]
    return [part(Piece(after, number, len(pieces), one)) for number, one in enumerate(pieces)]


def piece_in(commit: Commit) -> Piece | None:
    """Return the piece that a commit holds; None if it holds none that this version can read."""
    try:
        return _PIECE.decode(commit.parts[KIND])
    except (KeyError, msgspec.MsgspecError):
        return None


def known_after(commit: Commit, known: tuple[int, ...]) -> tuple[int, ...]:
    """Return the commits after which the last checkpoints stand, newest first, once `commit` is durable."""
    piece = piece_in(commit)
    return known if piece is None or not piece.is_last else (piece.after, *known)[:KEPT]


def checkpoint_of(pieces: Sequence[Piece], after: int) -> Checkpoint | None:
    """Return the checkpoint after this commit; None unless these are all its pieces, of a form that can be read."""
    whole = [(after, number, len(pieces)) for number in range(len(pieces))]
    if not pieces or [(piece.after, piece.number, piece.pieces) for piece in pieces] != whole:
        return None
    try:
        return _DECODER.decode(b"".join(piece.content for piece in pieces))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def only_changes(commit: Commit) -> Commit:
    """Return the part of a commit that says which series and watches there are: without rows, releases and seeds."""
    asked = {change.answer for change in commit.changes if isinstance(change, Asked)}
    answers = [answer for answer in commit.answers if answer.number in asked]
    bodies = tuple(Answer(answer.number, None, b"", 0, answer.body) for answer in answers)
    return Commit(
        commit.sequence, b"", charges=commit.charges, changes=commit.changes, answers=bodies
    )
