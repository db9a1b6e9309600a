"""Kinds and fields of commits are frozen: journals hold them.

Where this test fails, a journal of today could not be read, or would be read as something else. A field may be added
with a default that says what was always meant (in an array-like part at its end): then add it here. Anything else
raises `VERSION` in journal/commit.py, and needs a reader for the old one or lets old journals be refused.
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_dp.errors import UnknownFormat
from stream_dp.journal import commit
from stream_dp.journal.commit import (
    Answer,
    Asked,
    Charge,
    Commit,
    Created,
    DeadLetter,
    Halted,
    Header,
    Refused,
    Release,
    SavedStates,
    Unwatched,
    Watched,
    decode,
    encode,
    part,
)

FIXTURES = Path(__file__).parents[2] / "fixtures"

FROZEN = {
    "answer": "[] number id digest until body analyst='' do='' series=''",
    "asked": "number parameters at answer",
    "charge": "name epsilon delta rule measure='DP' analyst=''",
    "commit": (
        "sequence previous header=None charges=() ticks=() rows=() seeds=() releases=() positions={} marks={} "
        "pending={} dead_letters=() late=0 records=0 snapshot=None changes=() admitted=() behind={} answers=() "
        "capped=0 parts={} version=4"
    ),
    "created": "number definition start column mechanism=''",
    "halted": "number end",
    "header": (
        "pipeline fingerprint source partitions origin private key_id parts={} accepted='' identity=''"
    ),
    "snapshot": "states",
    "unwatched": "number name at",
    "watched": "number definition place at analyst=''",
    "dead-letter": "[] partition reason field records ranges",
    "refused": "reason detail records places last",
    "release": "[] sequence series tick body",
}
HEADER = Header("p", "f", "s", (0, 1), 5, True, "k", {"a": "b"}, "", "id")
FULL = Commit(
    3, b"before", HEADER, (Charge("c", 5, 0, "r"),), (7,), ((1, 2),), (bytes(32),),
    (Release(4, "s", 7, b"{}"),), {0: 9}, {0: 7}, {8: {0: 1}}, (DeadLetter(0, "not_json", None, 5, ((3, 6),)),),
    1, 4, SavedStates({0: b"state"}),
    (Created(2, b"{}", 8, 2, "m"), Halted(1, 8), Asked(1, b"{}", 8, 1), Watched(1, b"{}", 4, 8), Unwatched(1, "w", 8)),
    (2,),
    {0: (7, 8)}, (Answer(1, "a", bytes(32), 9, b"{}"),), 3,
    {
        "messages": part((5, (Refused("rate", "why", 3, (4, 5), 6),))),
        "users": part({2: bytes(20)}),
        "arrived": part({0: {1: bytes(20)}}),
        "arriving": part({9: {0: bytes(16)}}),
    },
)  # fmt: skip


def shown(struct: type[Any]) -> tuple[str, str]:
    """The kind, and the fields with their defaults."""
    info: Any = msgspec.inspect.type_info(struct)
    parts = ["[]"] * info.array_like
    for field in info.fields:
        made = field.default_factory is not msgspec.NODEFAULT
        default = field.default_factory() if made else field.default
        parts.append(field.name + ("" if default is msgspec.NODEFAULT else f"={default!r}"))
    return info.tag, " ".join(parts)


def test_kinds_fields_and_defaults_are_frozen() -> None:
    every = (
        Answer,
        Asked,
        Charge,
        Commit,
        Created,
        DeadLetter,
        Halted,
        Header,
        Refused,
        Release,
        SavedStates,
        Unwatched,
        Watched,
    )
    assert dict(map(shown, every)) == FROZEN, __doc__


def test_a_commit_comes_back_as_it_was_and_says_what_it_is() -> None:
    assert decode(encode(FULL)) == FULL
    plain = msgspec.msgpack.decode(encode(FULL), strict=False)
    assert (plain["kind"], plain["version"]) == ("commit", 4)
    kinds = [plain[part]["kind"] for part in ("header", "snapshot")]
    kinds += [part["kind"] for name in ("charges", "changes") for part in plain[name]]
    kinds += [part[0] for name in ("releases", "dead_letters", "answers") for part in plain[name]]
    assert kinds == [
        "header",
        "snapshot",
        "charge",
        "created",
        "halted",
        "asked",
        "watched",
        "unwatched",
        "release",
        "dead-letter",
        "answer",
    ]


def test_a_commit_of_version_3_is_read_with_what_its_fields_meant() -> None:
    third = (FIXTURES / "commit_3.msgpack").read_bytes()
    assert decode(third) == FULL
    fields = msgspec.msgpack.decode(third)
    with pytest.raises(UnknownFormat):
        decode(msgspec.msgpack.encode(fields | {"parts": {"users": b""}}))
    for later in (2, 5):
        with pytest.raises(UnknownFormat):
            decode(msgspec.msgpack.encode(fields | {"version": later}))


def test_the_bytes_name_no_class() -> None:
    every = (
        Answer,
        Asked,
        Charge,
        Commit,
        Created,
        DeadLetter,
        Halted,
        Header,
        Release,
        SavedStates,
        Unwatched,
        Watched,
    )
    assert not any(struct.__name__.encode() in encode(FULL) for struct in every)


@pytest.mark.parametrize("plain", [b"", b"\x80", b"\xc0", b"\x93\x01\x02\x03", b"\xff\xff"])
def test_what_is_no_commit(plain: bytes) -> None:
    with pytest.raises(
        UnknownFormat, match=r"commit 5 of the journal of p has .*: use the version"
    ):
        decode(plain, "commit 5 of the journal of p")


def test_an_array_like_part_may_get_longer_and_refuses_what_it_does_not_know() -> None:
    class Later(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag="dead-letter"):
        partition: int
        reason: str
        field: str | None
        records: int
        ranges: tuple[tuple[int, int], ...]
        line: int = 0

    old = msgspec.msgpack.encode(FULL.dead_letters[0])
    assert msgspec.msgpack.decode(old, type=Later).line == 0
    new = msgspec.msgpack.encode(Later(0, "not_json", None, 5, ((3, 6),), 9))
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(new, type=commit.DeadLetter)
