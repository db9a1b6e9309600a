"""Envelopes: what is signed is what is read, and what anybody may send is refused in one way."""

import hashlib
import hmac
import json

import pytest

from stream_dp.live.envelope import (
    LARGEST_ENVELOPE,
    LARGEST_MESSAGE,
    BadEnvelope,
    Envelope,
    is_signed,
    read_envelope,
    sign,
    write_envelope,
)

TOKEN, NAME = "5e" * 32, "orders"


@pytest.mark.parametrize(
    "text", ['{"id": "a"}', "", "é\u2028\U0001f600\x00\n", "x" * LARGEST_MESSAGE]
)
def test_a_message_comes_out_as_it_went_in(text: str) -> None:
    envelope = read_envelope(write_envelope(TOKEN, NAME, text))
    assert envelope.message == text
    assert is_signed(TOKEN, NAME, envelope)


def test_the_signature_is_that_of_the_page() -> None:
    signed = b"stream-dp message 1\n" + b"orders" + b"\n" + b'{"id": "a"}'
    assert (
        sign(TOKEN, NAME, '{"id": "a"}')
        == hmac.new(TOKEN.encode(), signed, hashlib.sha256).hexdigest()
    )
    written = json.loads(write_envelope(TOKEN, NAME, '{"id": "a"}'))
    assert written == {
        "v": 1,
        "message": '{"id": "a"}',
        "signature": sign(TOKEN, NAME, '{"id": "a"}'),
    }


@pytest.mark.parametrize(
    ("token", "pipeline", "message"),
    [("5f" * 32, NAME, "a"), (TOKEN, "order", "a"), (TOKEN, "orders\na", ""), (TOKEN, NAME, "a ")],
)
def test_a_signature_holds_for_one_token_pipeline_and_text(
    token: str, pipeline: str, message: str
) -> None:
    envelope = Envelope(1, message, sign(TOKEN, NAME, "a"))
    assert not is_signed(token, pipeline, envelope)


@pytest.mark.parametrize("signature", ["", "é", "0" * 64, sign(TOKEN, NAME, "a").upper()])
def test_what_is_no_signature_is_none(signature: str) -> None:
    assert not is_signed(TOKEN, NAME, Envelope(1, "a", signature))


HOSTILE = {
    "nothing": b"",
    "null": b"null",
    "not UTF-8": b'{"v":1,"message":"\xff","signature":"x"}',
    "half a pair": rb'{"v":1,"message":"\ud800","signature":"x"}',
    "brackets": b"[" * 100_000,
    "brackets in an unknown key": b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b',"v":1}',
    "another key": b'{"v":1,"message":"a","signature":"b","x":1}',
    "no signature": b'{"v":1,"message":"a"}',
    "a message that is no text": b'{"v":1,"message":{},"signature":"b"}',
    "a version that is no number": b'{"v":"1","message":"a","signature":"b"}',
}


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_envelope_is_refused_and_not_repeated(value: bytes) -> None:
    with pytest.raises(BadEnvelope, match="must be JSON like"):
        read_envelope(value)


def test_a_later_version_is_said_to_be_one() -> None:
    with pytest.raises(BadEnvelope, match="only envelopes of version 1"):
        read_envelope(b'{"v": 2, "message": {"more": true}}')


def test_a_megabyte_is_not_looked_at() -> None:
    for value in (bytes(LARGEST_ENVELOPE + 1), b" " * 10**6):
        with pytest.raises(BadEnvelope, match="larger"):
            read_envelope(value)


def test_a_text_may_have_64_kib_however_json_writes_it() -> None:
    for character, most in (("\x01", LARGEST_MESSAGE), ("é", LARGEST_MESSAGE // 2)):
        escaped = json.dumps({"v": 1, "message": character * most, "signature": "0" * 64})
        assert read_envelope(escaped.encode()).message == character * most
        more = json.dumps({"v": 1, "message": character * (most + 1), "signature": "0" * 64})
        with pytest.raises(BadEnvelope, match="larger"):
            read_envelope(more.encode())
        with pytest.raises(BadEnvelope, match="larger"):
            write_envelope(TOKEN, NAME, character * (most + 1))


def test_a_message_without_a_form_in_utf_8_is_refused() -> None:
    with pytest.raises(BadEnvelope, match="UTF-8"):
        write_envelope(TOKEN, NAME, "\ud800")


def test_an_envelope_shows_nothing() -> None:
    assert repr(Envelope(1, "a", "b")) == "<Envelope>"
