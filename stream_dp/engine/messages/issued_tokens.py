"""The tokens that an operator has made for analysts and readers: their list, when each expires, and which are revoked.

Rules: a token is valid only while a line of the list names it, so a lost list admits nobody. The list holds no
secret: an analyst's token is made from the operator's key, its id, its analyst and its end, so a changed line names a
token that nobody has. A reader's token is random, and the list holds its SHA-256, so that a page without the key knows
it; it never asks. Lines are only ever added. Nobody else may write the file; it is read again when it has changed. An
older copy of the file restores tokens that were revoked since.
"""

import hashlib
import hmac
import os
import re
import stat
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec.structs import replace

from stream_dp.core.time import moment_text, parse_moment
from stream_dp.errors import FailClosed, UsageError, WorldError
from stream_dp.journal.keys import KEY_BYTES, Sealer
from stream_dp.noise import fresh_seed

VERSION = 1
DAY_MS = 86_400_000
LONGEST_DAYS = 3650
_ID_BYTES = 6
_READER = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}", re.ASCII)


class IssuedToken(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A token as a line of the list has it; a second line of its id revokes it. Times are RFC 3339 in UTC.

    It is of an `analyst`, or of a `reader` with the SHA-256 of its text, in hex.
    """

    v: int
    id: str
    analyst: str = ""
    made: str = ""
    expires: str = ""
    revoked: str = ""
    reader: str = ""
    sha256: str = ""

    def state(self, now: int) -> str:
        """Return whether it is "valid", "expired" or "revoked" at this moment (ms since 1970)."""
        if self.revoked:
            return "revoked"
        end = parse_moment(self.expires)
        return "valid" if end is not None and now < end else "expired"


@dataclass(slots=True)
class IssuedTokens:
    """The list of tokens in the file `path`, for the pipeline and the key of `sealer`; of analysts, only `analysts`
    hold any. Without a sealer (None), only readers' tokens are known.
    """

    path: Path
    sealer: Sealer | None = field(repr=False)
    analysts: Collection[str] = ()
    _read: tuple[object, dict[str, IssuedToken]] = (None, {})

    def make(self, analyst: str, days: int, now: int) -> tuple[IssuedToken, str]:
        """Return a new token for an analyst, durable, and its text, which is kept nowhere; may raise `UsageError`."""
        if analyst not in self.analysts:
            known = ", ".join(self.analysts) or "none"
            raise UsageError(
                "--analyst: no analyst has this name; `privacy.analysts` of the pipeline file names "
                f"{known}"
            )
        made = IssuedToken(VERSION, _fresh_id(), analyst, moment_text(now), _end(days, now))
        text = self._text(made)
        self._add(made)
        return made, text

    def make_reading(self, reader: str, days: int, now: int) -> tuple[IssuedToken, str]:
        """Return a new token that only reads, as `make`; `reader` is any name."""
        if _READER.fullmatch(reader) is None:
            raise UsageError(
                "--reader: must begin with a lower-case letter or a digit, followed by at most 62 "
                "lower-case letters, digits or characters of _ . -"
            )
        id_ = _fresh_id()
        text = f"{id_}.{fresh_seed()[:KEY_BYTES].hex()}"
        made = IssuedToken(
            VERSION, id_, "", moment_text(now), _end(days, now), reader=reader, sha256=_digest(text)
        )
        self._add(made)
        return made, text

    def revoke(self, id_: str, now: int) -> IssuedToken:
        """Revoke a token for ever; durable on return. Raises `UsageError` if that cannot be."""
        token = self.all().get(id_)
        if token is None:
            raise UsageError(
                f"--revoke: {self.path} has no token with this id; --list shows the tokens"
            )
        if token.revoked:
            raise UsageError(f"--revoke: this token was already revoked on {token.revoked}")
        self._add(IssuedToken(VERSION, id_, revoked=moment_text(now)))
        return replace(token, revoked=moment_text(now))

    def all(self) -> dict[str, IssuedToken]:
        """Return the tokens by their ids, in the order in which they were made. Raises `FailClosed` (the file is
        damaged, or others may write it) or `WorldError` (it cannot be read).
        """
        try:
            mark = self._mark()
            if mark is None:
                return {}
            if self._read[0] != mark:
                self._read = mark, _tokens(self.path, self.path.read_bytes())
        except OSError as error:
            raise WorldError(f"{self.path}: cannot be read: {error.strerror}") from None
        return self._read[1]

    def text_of(self, id_: str) -> tuple[IssuedToken, str] | None:
        """Return the token of this id and its text; None if there is none or its analyst is gone. Raises as `all`."""
        token = self.all().get(id_)
        if token is None or token.analyst not in self.analysts:
            return None
        return token, self._text(token)

    def shown(self, text: str) -> IssuedToken | None:
        """Return the token of this text, perhaps expired or revoked; None if the list lacks it. Raises as `all`."""
        token, known = self.text_of(id_of(text)) or (None, "")
        return token if hmac.compare_digest(text.encode(), known.encode()) else None

    def shown_reading(self, text: str) -> IssuedToken | None:
        """Return the reader's token of this text, as `shown`."""
        token = self.all().get(id_of(text))
        if token is None or not token.reader:
            return None
        return token if hmac.compare_digest(_digest(text), token.sha256) else None

    def _text(self, token: IssuedToken) -> str:
        if self.sealer is None:
            raise UsageError("to issue an analyst's token, the operator's key is needed")
        return self.sealer.issued_token(token.id, token.analyst, token.expires)

    def _mark(self) -> object:
        """Return a value that changes when the file does; None if there is no file."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        if stat.S_IMODE(status.st_mode) & 0o022:
            raise FailClosed(
                f"other users of this machine can change the list of tokens {self.path}, and so undo a "
                f"revocation: run `chmod 600 {self.path}`"
            )
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _add(self, line: IssuedToken) -> None:
        self.all()  # a damaged list is not made longer
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(handle, msgspec.json.encode(line) + b"\n")
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            raise WorldError(f"{self.path}: cannot be written: {error.strerror}") from None


def id_of(text: str) -> str:
    return text.partition(".")[0] if "." in text else ""


def _fresh_id() -> str:
    return fresh_seed()[:_ID_BYTES].hex()


def _end(days: int, now: int) -> str:
    if not 1 <= days <= LONGEST_DAYS:
        raise UsageError(f"--days: must be from 1 to {LONGEST_DAYS}")
    return moment_text(now + days * DAY_MS)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _tokens(path: Path, content: bytes) -> dict[str, IssuedToken]:
    tokens: dict[str, IssuedToken] = {}
    try:
        lines = [msgspec.json.decode(text, type=IssuedToken) for text in content.splitlines()]
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise FailClosed(_damaged(path)) from None
    for line in lines:
        known = tokens.get(line.id)
        both = bool(line.analyst) and bool(line.reader)
        if line.v != VERSION or both or (known is None) == bool(line.revoked):
            raise FailClosed(_damaged(path))
        tokens[line.id] = line if known is None else replace(known, revoked=line.revoked)
    if content and not content.endswith(b"\n"):
        raise FailClosed(_damaged(path))
    return tokens


def _damaged(path: Path) -> str:
    return (
        f"the list of tokens {path} is damaged, so no analyst's token is accepted: restore its newest copy, or remove "
        "it and make new tokens"
    )
