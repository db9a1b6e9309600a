"""The envelope of an analyst's message, and its signature: code for the analyst and the engine alike.

Rules: a signature covers the exact text of the message and the name of the pipeline, so it is valid for no other text
and no other pipeline. The key is the analyst's token; comparing takes the same time wherever two signatures differ. An
envelope may come from anyone: its size is checked before it is read, and an error repeats nothing of it.
"""

import hashlib
import hmac

import msgspec

from stream_dp.errors import UsageError

VERSION = 1
LARGEST_MESSAGE = 64 * 1024  # bytes of UTF-8 of a message's text
LARGEST_ENVELOPE = 6 * LARGEST_MESSAGE + 1024  # JSON may write a character of the text as six
_DOMAIN = b"stream-dp message 1\n"


class BadEnvelope(UsageError):
    """The bytes are no envelope with a message: unreadable, of a later version, or too large."""


class Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A message's exact text and its signature, in hex; `token`: the id of the token that signed, if it has one."""

    v: int
    message: str
    signature: str
    token: str = ""

    def __repr__(self) -> str:
        return "<Envelope>"


class _Form(msgspec.Struct):
    """The field of every envelope in every version."""

    v: int


_READ = msgspec.json.Decoder(Envelope)
_FORM = msgspec.json.Decoder(_Form)


def sign(token: str, pipeline: str, message: str) -> str:
    """Return the signature of a message to this pipeline by the holder of `token`: HMAC-SHA256, in hex."""
    signed = _DOMAIN + pipeline.encode() + b"\n" + message.encode()
    return hmac.new(token.encode(), signed, hashlib.sha256).hexdigest()


def is_signed(token: str, pipeline: str, envelope: Envelope) -> bool:
    """Return whether the holder of `token` signed this envelope's message, for this pipeline; in constant time."""
    wanted = sign(token, pipeline, envelope.message)
    return hmac.compare_digest(wanted.encode(), envelope.signature.encode())


def write_envelope(token: str, pipeline: str, message: str) -> bytes:
    """Return the envelope of a message, as it goes into the topic `NAME.queries`.

    Raises `BadEnvelope`: the message is too large, or a text that UTF-8 cannot write.
    """
    try:
        size = len(message.encode())
    except UnicodeEncodeError:
        what = "a message must be text that UTF-8 can write"
        raise BadEnvelope(f"{what}: no lone surrogates") from None
    if size > LARGEST_MESSAGE:
        raise BadEnvelope(f"a message must not be larger than {LARGEST_MESSAGE} bytes")
    signature, (id_, point, _) = sign(token, pipeline, message), token.partition(".")
    return msgspec.json.encode(Envelope(VERSION, message, signature, id_ if point else ""))


def read_envelope(value: bytes) -> Envelope:
    """Return the envelope that `write_envelope` wrote; its signature is not checked here.

    Raises `BadEnvelope`: no envelope, one of a later version, or larger than a message may be.
    """
    too_large = BadEnvelope(f"a message must not be larger than {LARGEST_MESSAGE} bytes")
    if len(value) > LARGEST_ENVELOPE:
        raise too_large
    try:
        if _FORM.decode(value).v == VERSION:
            envelope = _READ.decode(value)
            if len(envelope.message.encode()) > LARGEST_MESSAGE:
                raise too_large
            return envelope
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise BadEnvelope(
            'must be JSON like {"v": 1, "message": "the text of a message", "signature": "hex"}'
        ) from None
    raise BadEnvelope(f"v: this engine reads only envelopes of version {VERSION}")
