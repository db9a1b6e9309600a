"""What a run has left behind, read from the formats alone: source, journal, releases, dead letters.

Rules: nothing of the engine is imported here; only the standard library, msgspec and cryptography. What cannot be
read raises `EvidenceError`. Files are copied before they are opened, so that looking changes nothing.
"""

import copy
import csv
import gzip
import hashlib
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SEALED = 1


class EvidenceError(Exception):
    """Something is not what its format says."""


class Event(NamedTuple):
    """One event of the source and the tick it belongs to."""

    tick: int
    fields: dict[str, Any]


class Letter(NamedTuple):
    partition: int
    offset: int
    reason: str
    field: str | None


class Public(NamedTuple):
    """A record of the public log; `committed` is False for what an aborted transaction left."""

    body: bytes
    committed: bool = True
    key: bytes | None = None
    timestamp: int | None = None


@dataclass(slots=True)
class Evidence:
    """A journal's commits, opened; the public log in its order; a torn last line."""

    commits: list[dict[str, Any]]
    public: list[Public]
    torn: bytes = b""


def milliseconds(text: str) -> int:
    """ISO 8601 with a zone as milliseconds since 1970."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def event(fields: dict[str, Any], origin: int, step: int) -> Event:
    """The event of these fields, by its field `time`."""
    return Event((milliseconds(fields["time"]) - origin) // step, fields)


def csv_events(path: Path, origin: int, step: int) -> list[Event]:
    """The rows of a CSV file of flights, gzip or not."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        rows = [
            {**row, "delay": int(row["delay"]) if row["delay"] else None}
            for row in csv.DictReader(file)
        ]
    return [event(row, origin, step) for row in rows]


def opened(sealed: Iterable[bytes], key: bytes, pipeline: str) -> list[dict[str, Any]]:
    """The commits of a journal, each opened with the key, in one unbroken chain from commit 0."""
    cipher = AESGCM(key)
    key_id = hashlib.sha256(b"stream-dp key id\0" + key).hexdigest()[:16]
    commits: list[dict[str, Any]] = []
    previous = b""
    for number, blob in enumerate(sealed):
        if blob[0] != SEALED:
            raise EvidenceError(f"commit {number}: not sealed in version {SEALED}")
        sequence, found_id, nonce, ciphertext = msgspec.msgpack.decode(blob[1:])
        if (sequence, found_id) != (number, key_id):
            raise EvidenceError(f"commit {number}: says it is {sequence} under key {found_id}")
        try:
            plain = cipher.decrypt(nonce, ciphertext, _bound(pipeline, number))
        except InvalidTag:
            raise EvidenceError(f"commit {number}: does not open") from None
        commit = fields(plain)
        if (commit["sequence"], commit["previous"]) != (number, previous):
            raise EvidenceError(f"commit {number}: the chain is broken")
        commits.append(commit)
        previous = hashlib.sha256(blob).digest()
    return commits


DEFAULTS: dict[str, Any] = {
    "sequence": 0, "previous": b"", "header": None, "charges": [], "ticks": [], "rows": [], "seeds": [], "releases": [],
    "positions": {}, "marks": {}, "pending": {}, "dead_letters": [], "late": 0, "records": 0, "snapshot": None,
    "changes": [], "admitted": [], "behind": {}, "answers": [], "capped": 0, "parts": {},
}  # fmt: skip
PHRASES = (
    b',"confidence":0.95}\n', b',"confidence":0.95}', b'","value":', b',"band":', b'","values":{"', b'},"band":',
    b'","windows":{"', b'{"value":', b'{"values":{"', b',"low":', b',"high":', b',"confidence":', b'},"', b'":', b',"',
)  # fmt: skip


def fields(plain: bytes) -> dict[str, Any]:
    """The fields of a commit as version 4 writes them; version 5 leaves out names and zeros, and packs bodies."""
    commit: dict[str, Any]
    if plain[:2] != b"\xc1\x05":
        commit = msgspec.msgpack.decode(plain, strict=False)
        return commit
    packed, rows, row = msgspec.msgpack.decode(plain[2:], strict=False)
    commit = copy.deepcopy(DEFAULTS) | {"kind": "commit", "version": 4}
    commit.update(zip(DEFAULTS, row, strict=False))
    for each in rows:
        sparse = dict(enumerate(each)) if isinstance(each, list) else each
        commit["rows"].append(
            [sparse.get(column, 0) for column in range(max(sparse, default=-1) + 1)]
        )
    if packed is not None:
        number, end, step, text = packed
        for at, phrase in enumerate(PHRASES, 1):
            text = text.replace(bytes([at + (at >= 10)]), phrase)
        for at, (tick, part) in enumerate(zip(commit["ticks"], text.split(b"\0"), strict=True)):
            seconds, rest = divmod(end + at * step, 1000)
            fraction = f".{rest:03d}" if rest else ""
            moment = f"{datetime.fromtimestamp(seconds, UTC).isoformat()[:-6]}{fraction}Z"
            for line in part.split(b"\n"):
                name, rest = line.split(b'"', 1)
                head = f'{{"v":1,"sequence":{number},"series":"{name.decode()}","tick":{tick},"end":"{moment}"'
                body = head.encode() + rest
                commit["releases"].append(["release", number, name.decode(), tick, body])
                number += 1
    return commit


def sealed_again(commits: Iterable[dict[str, Any]], key: bytes, pipeline: str) -> list[bytes]:
    """Seal (changed) commits into a chain that opens: what a broken engine could have written."""
    cipher = AESGCM(key)
    key_id = hashlib.sha256(b"stream-dp key id\0" + key).hexdigest()[:16]
    blobs: list[bytes] = []
    for number, commit in enumerate(commits):
        previous = hashlib.sha256(blobs[-1]).digest() if blobs else b""
        plain = msgspec.msgpack.encode({**commit, "sequence": number, "previous": previous})
        nonce = hashlib.sha256(plain).digest()[:12]
        ciphertext = cipher.encrypt(nonce, plain, _bound(pipeline, number))
        blobs.append(bytes([SEALED]) + msgspec.msgpack.encode([number, key_id, nonce, ciphertext]))
    return blobs


def _bound(pipeline: str, number: int) -> bytes:
    return f"stream-dp/sealed/{SEALED}/{pipeline}/{number}".encode()


def sqlite_rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    """The rows of a query on a copy of a database, as a crash left it; none where there is no file."""
    if not path.exists():
        return []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        for suffix in ("", "-wal"):
            part = path.with_name(path.name + suffix)
            if part.exists():
                shutil.copy(part, f"{copy}{suffix}")
        with closing(sqlite3.connect(copy)) as database:
            if not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                return []
            return database.execute(query).fetchall()


ARCHIVED = "archived"
"""A folder with what was pruned from a journal: a file a commit, under its number."""


def with_archived(folder: Path, rows: Sequence[tuple[int, bytes]]) -> list[bytes]:
    """The sealed commits that were pruned, and those that are left."""
    archived = {int(path.name): path.read_bytes() for path in folder.glob(f"{ARCHIVED}/*")}
    if any(archived.get(number, blob) != blob for number, blob in rows):
        raise EvidenceError("a commit is another one than was archived")
    whole = archived | dict(rows)
    if sorted(whole) != list(range(len(whole))):
        raise EvidenceError("the journal's commits are not numbered without a gap")
    return [whole[number] for number in sorted(whole)]


def embedded(journal: Path, releases: Path, key: bytes, pipeline: str) -> Evidence:
    """What a run with the embedded journal and a file of releases has left."""
    rows = sqlite_rows(journal, "SELECT sequence, sealed FROM commits ORDER BY sequence")
    blobs = with_archived(journal.parent, rows)
    lines = releases.read_bytes().split(b"\n") if releases.exists() else [b""]
    return Evidence(
        opened(blobs, key, pipeline),
        [Public(line) for line in lines[:-1]],
        lines[-1],
    )


def letters_of(commits: Sequence[dict[str, Any]]) -> list[Letter]:
    """All dead letters whose places are kept, one for each record; they must be all that the commits count."""
    found: list[Letter] = []
    for commit in commits:
        for _, partition, reason, name, records, ranges in commit["dead_letters"]:
            places = [place for first, last in ranges for place in range(first, last + 1)]
            if len(places) != records:
                raise EvidenceError("a commit counts other dead letters than it has places for")
            found += [Letter(partition, place, reason, name) for place in places]
    return found


def content(body: bytes) -> dict[str, Any]:
    try:
        decoded = json.loads(body)
    except ValueError:
        raise EvidenceError("a release is no JSON") from None
    if not isinstance(decoded, dict):
        raise EvidenceError("a release is no object")
    return decoded


def releases_of(commits: Sequence[dict[str, Any]]) -> list[tuple[int, str, int, bytes]]:
    """All releases of a journal: sequence, series, tick, body."""
    return [
        (sequence, series, tick, bytes(body))
        for commit in commits
        for _, sequence, series, tick, body in commit["releases"]
    ]
