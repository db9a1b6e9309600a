"""The operator's key, the data key that it wraps, and the sealing of commits (AES-256-GCM).

Rules: the operator has one 32-byte key, in a file of mode 0600 or with a program, and never a value in the
environment, in YAML or on the broker. A journal's data key is the operator's key itself, or a key that lies wrapped
under it. A sealed commit begins with one byte, the version of this form. The seal binds that version, the key, the
pipeline and the sequence number: with a wrong key, in another pipeline or with a flipped byte a commit does not
open. Nonces are random: an aborted attempt and its retry never share one.
"""

import hashlib
import hmac
import os
import re
import stat
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from stream_dp.errors import FailClosed, UnknownFormat, UsageError, WorldError
from stream_dp.noise import fresh_seed

KEY_BYTES = 32
LONGEST = 16_384
"""Characters of what the operator's program may answer."""
VERSION = 1
_NONCE_BYTES = 12
_TOKEN = re.compile(rb"([0-9a-f]{12}\.)?[0-9a-f]{%d}" % (2 * KEY_BYTES))


class Sealed(msgspec.Struct, frozen=True, array_like=True):
    """A commit as the journal holds it after the version byte: readable are its number and the id of its key."""

    sequence: int
    key_id: str
    nonce: bytes
    ciphertext: bytes


class WrappedKey(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A data key, sealed under the operator's key: what `wrap` makes, one JSON object.

    `operator_wrapped` is the operator's key as the operator's program wrapped it; "" if that key is in a file.
    """

    v: int
    pipeline: str
    key_id: str
    operator_id: str
    nonce: bytes
    wrapped: bytes
    operator_wrapped: Annotated[str, msgspec.Meta(max_length=LONGEST, pattern=r"^[ -~]*\Z")] = ""

    def data_key(self, operator: bytes) -> bytes:
        """Return the data key. Raises `FailClosed`: this is not the operator's key, or a byte was changed."""
        if id_of_key(operator) != self.operator_id:
            raise FailClosed(
                f"the data key of {self.pipeline} is wrapped under operator key {self.operator_id}, "
                f"but the key given is {id_of_key(operator)}; name the right key"
            )
        try:
            cipher = _wrapping(operator, self.pipeline)
            key = cipher.decrypt(self.nonce, self.wrapped, self.bound())
        except (InvalidTag, ValueError):  # ValueError: a nonce of another length
            raise FailClosed(_damaged_wrap(self.pipeline)) from None
        return key

    def bound(self) -> bytes:
        """Return what the wrap binds besides the data key."""
        return "\n".join(
            (f"stream-dp/wrapped/{self.v}", self.pipeline, self.key_id, self.operator_id, self.operator_wrapped)
        ).encode()  # fmt: skip


def wrap(key: bytes, operator: bytes, pipeline: str, operator_wrapped: str = "") -> bytes:
    """Return a pipeline's data key, wrapped under the operator's key by AES-256-GCM, as a line of JSON."""
    nonce = fresh_seed()[:_NONCE_BYTES]
    ids = id_of_key(key), id_of_key(operator)
    bare = WrappedKey(VERSION, pipeline, *ids, nonce, b"", operator_wrapped)
    wrapped = _wrapping(operator, pipeline).encrypt(nonce, key, bare.bound())
    return msgspec.json.encode(msgspec.structs.replace(bare, wrapped=wrapped)) + b"\n"


def read_wrapped(content: bytes, pipeline: str) -> WrappedKey:
    """Return what `wrap` made for this pipeline; raises `FailClosed` or `UnknownFormat`."""
    try:
        record = msgspec.json.decode(content, type=WrappedKey)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise FailClosed(_damaged_wrap(pipeline)) from None
    if record.v != VERSION:
        what = f"the wrapped key of {pipeline}"
        raise UnknownFormat(what, f"version {record.v}", f"version {VERSION}")
    if record.pipeline != pipeline:
        raise FailClosed(
            f"the wrapped key of {pipeline} was made for the pipeline {record.pipeline}; restore the "
            f"wrapped key of {pipeline}"
        )
    return record


def _wrapping(operator: bytes, pipeline: str) -> AESGCM:
    return AESGCM(hmac.digest(operator, b"stream-dp wrap\n" + pipeline.encode(), "sha256"))


def _damaged_wrap(pipeline: str) -> str:
    return f"the wrapped key of {pipeline} is damaged; bring back its newest copy"


def id_of_key(key: bytes) -> str:
    """Return a name of a key that tells nothing of it."""
    return hashlib.sha256(b"stream-dp key id\0" + key).hexdigest()[:16]


def read_key(path: Path) -> bytes:
    """Return the key in this file; `UsageError` for a missing file, another length, or one that others may read."""
    if not path.is_file():
        raise UsageError(
            f"there is no operator key at {path}. Create one with `stream-dp key {path}`, keep a copy of it, and name "
            "its path in STREAM_DP_KEY_FILE"
        )
    key = _private(path, "operator key")
    if len(key) != KEY_BYTES:
        raise UsageError(f"the operator key {path} must hold exactly {KEY_BYTES} bytes")
    return key


def read_token(path: Path) -> str:
    """Return the token in this file: one line, as made by `Sealer`; errors as of `read_key`."""
    if not path.is_file():
        raise UsageError(
            f"there is no token at {path}; the operator creates one with `stream-dp token "
            "PIPELINE.yaml --analyst NAME`"
        )
    token = _private(path, "token").strip()
    if _TOKEN.fullmatch(token) is None:
        raise UsageError(
            f"the token {path} must hold what `stream-dp token` printed, or {2 * KEY_BYTES} hexadecimal digits, in "
            "one line"
        )
    return token.decode()


def _private(path: Path, what: str) -> bytes:
    """Return the content of a file, after checking that nobody else may use it."""
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise UsageError(f"the {what} {path} can be read by others; run `chmod 600 {path}`")
    try:
        return path.read_bytes()
    except OSError as error:
        why = f"cannot be read: {error.strerror}; run as its owner"
        raise UsageError(f"the {what} {path} {why}") from None


def make_key(path: Path) -> bytes:
    """Make a new key in a new file of mode 0600, and return it; `WorldError` if the file cannot be made, or exists."""
    write_private(path, fresh_seed())
    return read_key(path)


def write_private(path: Path, content: bytes) -> None:
    """Write a key into a new file of mode 0600; `WorldError` if the file cannot be made, or exists."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise WorldError(f"{path}: cannot create a key there: {error.strerror}") from None


class WorkerKeys(NamedTuple):
    """What a worker needs: the keys of rows, of users' hashes, and of tick marks."""

    rows: bytes
    users: bytes
    marks: bytes

    def __repr__(self) -> str:
        return "<WorkerKeys>"

    @property
    def line(self) -> bytes:
        """The keys as a file holds them."""
        return _WORKER + b"".join(self).hex().encode() + b"\n"


_WORKER = b"stream-dp worker 1 "


def worker_keys(path: Path) -> WorkerKeys | None:
    """Return a worker's keys in this file, None if it holds another key or is none; errors as of `read_key`."""
    line = _private(path, "key") if path.is_file() else b""
    if not line.startswith(_WORKER):
        return None
    try:
        keys = bytes.fromhex(line.removeprefix(_WORKER).decode())
    except ValueError:
        keys = b""
    if len(keys) != 3 * KEY_BYTES:
        raise UsageError(f"the key {path} must hold what `stream-dp worker --export-key` wrote")
    return WorkerKeys(*(keys[at : at + KEY_BYTES] for at in range(0, len(keys), KEY_BYTES)))


class Sealer:
    """Seals and opens commits of a pipeline, and derives its other keys from the data key, by HMAC-SHA256.

    `mark_key` is that of tick marks, the same for all pipelines of the key; `user_key` is that of users' hashes,
    `rows_key` that of the rows that workers write.
    `key_ids` are the id of the data key and, if it lies wrapped, that of the operator's key.
    """

    def __init__(self, key: bytes, pipeline: str, operator_id: str = "") -> None:
        self._cipher = AESGCM(key)
        self._pipeline = pipeline
        self._tokens = hmac.new(key, b"stream-dp query\n" + pipeline.encode(), "sha256")
        self._mark_key = hmac.digest(key, b"stream-dp tick marks", "sha256")
        self._user_key = hmac.digest(key, b"stream-dp users\n" + pipeline.encode(), "sha256")
        self._rows_key = hmac.digest(key, b"stream-dp rows\n" + pipeline.encode(), "sha256")
        self.key_id = id_of_key(key)
        self.key_ids = f"{self.key_id} {operator_id}".rstrip()

    def query_token(self, analyst: str = "") -> str:
        """Return the token by which an analyst of this pipeline signs messages: HMAC-SHA256 under the key, in hex.

        The token of "" is the operator's, which may act for everyone; it is the bearer token of the HTTP API.
        """
        return self._token(f"\n{analyst}" if analyst else "")

    def issued_token(self, id_: str, analyst: str, expires: str) -> str:
        """Return the token `id_` of an analyst until `expires`: its id, a point, and an HMAC-SHA256 under the key."""
        bound = f"\nissued 1\n{id_}\n{analyst}\n{expires}"
        return f"{id_}.{self._token(bound)}"

    def _token(self, bound: str) -> str:
        token = self._tokens.copy()
        token.update(bound.encode())
        return token.hexdigest()

    def mark_key(self) -> bytes:
        return self._mark_key

    def user_key(self) -> bytes:
        return self._user_key

    def worker_keys(self) -> WorkerKeys:
        return WorkerKeys(self._rows_key, self._user_key, self._mark_key)

    def seal(self, sequence: int, plain: bytes) -> bytes:
        nonce = fresh_seed()[:_NONCE_BYTES]
        ciphertext = self._cipher.encrypt(nonce, plain, self._bound(sequence))
        sealed = Sealed(sequence, self.key_id, nonce, ciphertext)
        return bytes([VERSION]) + msgspec.msgpack.encode(sealed)

    def open(self, sequence: int, sealed: bytes) -> bytes:
        """Return the plain bytes of commit `sequence`.

        Raises `FailClosed` (wrong key, pipeline or place, or changed bytes) or `UnknownFormat` (another form).
        """
        if sealed and sealed[0] != VERSION:
            what = f"commit {sequence} of the journal of {self._pipeline}"
            raise UnknownFormat(what, f"a seal of version {sealed[0]}", f"version {VERSION}")
        try:
            record = msgspec.msgpack.decode(sealed[1:], type=Sealed)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise FailClosed(self._damaged(sequence)) from None
        if record.key_id != self.key_id:
            raise FailClosed(
                f"the journal of {self._pipeline} was written with key {record.key_id}, but the key "
                f"given is {self.key_id}. Name the right file in STREAM_DP_KEY_FILE, or bring back "
                "the journal's wrapped key"
            )
        if record.sequence != sequence:
            raise FailClosed(self._damaged(sequence))
        try:
            return self._cipher.decrypt(record.nonce, record.ciphertext, self._bound(sequence))
        except (InvalidTag, ValueError):  # ValueError: a nonce of another length
            raise FailClosed(self._damaged(sequence)) from None

    def _bound(self, sequence: int) -> bytes:
        return f"stream-dp/sealed/{VERSION}/{self._pipeline}/{sequence}".encode()

    def _damaged(self, sequence: int) -> str:
        return (
            f"commit {sequence} of the journal of {self._pipeline} is damaged or belongs elsewhere; restore the "
            "whole journal from a copy that is not older than what was published"
        )
