"""A checkpoint: what a start needs of all commits up to one with a snapshot, so that it need not read them.

Rules: a checkpoint is private, and part of commits: its bytes are cut into pieces, the first one in the commit that it
stands behind, each other one in the next commit with ticks. So no commit is much larger for it, and it is sealed and
linked as they are. Reading may begin at its first commit once its last piece is durable.
"""

from collections.abc import Sequence

import msgspec

from stream_dp.errors import FailClosed
from stream_dp.journal.commit import Asked, Commit, Private, part, part_in

KIND = "checkpoint"
"""The kind of a piece among the parts of a commit."""
PIECE_BYTES = 250_000
KEPT = 2
"""How many checkpoints a journal knows: the last ones. A start uses the newest one before which all is public."""


class Checkpoint(Private, frozen=True, tag=KIND):
    """What stands behind a commit; the states of its mechanisms are in that commit's snapshot.

    `memories` is what each memory saved there, by kind. All else is as before that commit: `first` has the header and
    the charges of the first start, `changing` are the commits with changes, both without rows and releases;
    `partitions` were read; `numbers` are those of `ReleaseNumbers`; `answer` is the number of the last answer and the
    SHA-256 of its body.
    """

    first: Commit
    changing: tuple[Commit, ...]
    partitions: tuple[int, ...]
    numbers: tuple[tuple[int, int, int], ...]
    memories: dict[str, bytes]
    answer: tuple[int, bytes] = (0, b"")


class Piece(Private, frozen=True, array_like=True, tag="piece"):
    """Piece `number`, counted from 0, of the `pieces` of the checkpoint behind commit `behind`."""

    behind: int
    number: int
    pieces: int
    content: bytes

    @property
    def is_last(self) -> bool:
        return self.number == self.pieces - 1


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Checkpoint)
_PIECE = msgspec.msgpack.Decoder(Piece)
_OTHERWISE = (
    "a checkpoint that this version has not written: restore the journal, or run the version of the "
    "code that wrote it"
)


def pieces_of(checkpoint: Checkpoint, behind: int) -> list[bytes]:
    """Return the parts, of the kind `KIND`, that commit `behind` and the next ones with ticks hold."""
    whole = _ENCODER.encode(checkpoint)
    pieces = -(-len(whole) // PIECE_BYTES)
    return [
        part(Piece(behind, number, pieces, whole[number * PIECE_BYTES : (number + 1) * PIECE_BYTES]))
        for number in range(pieces)
    ]  # fmt: skip


def piece_in(commit: Commit) -> Piece | None:
    """Return the piece that a commit holds, None if it holds none; raises `FailClosed` if it is of another form."""
    return part_in(commit, KIND, _PIECE, _OTHERWISE)


def known_after(commit: Commit, known: tuple[int, ...]) -> tuple[int, ...]:
    """Return the commits behind which the last checkpoints lie, newest first, once `commit` is durable."""
    piece = piece_in(commit)
    return known if piece is None or not piece.is_last else (piece.behind, *known)[:KEPT]


def checkpoint_of(pieces: Sequence[Piece], behind: int) -> Checkpoint:
    """Return the checkpoint behind this commit, from its pieces; raises `FailClosed` unless they are all, in order."""
    whole = [(behind, number, len(pieces)) for number in range(len(pieces))]
    try:
        if pieces and [(piece.behind, piece.number, piece.pieces) for piece in pieces] == whole:
            return _DECODER.decode(b"".join(piece.content for piece in pieces))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass
    raise FailClosed(f"the journal holds {_OTHERWISE}")


def only_changes(commit: Commit) -> Commit:
    """Return the part of a commit that says which series and watches there are: without rows, releases and seeds."""
    asked = {change.answer for change in commit.changes if isinstance(change, Asked)}
    answers = tuple(answer for answer in commit.answers if answer.number in asked)
    return Commit(
        commit.sequence, b"", charges=commit.charges, changes=commit.changes, answers=answers
    )
