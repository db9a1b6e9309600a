"""Who may say what: a message is its signer's, the operator's token speaks for everyone, another analyst's for none."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from stream_dp.engine.messages.addressed import Wanted
from stream_dp.engine.messages.issued_tokens import IssuedToken
from stream_dp.errors import FailClosed, NotAccepted, UsageError
from stream_dp.journal.keys import Sealer
from stream_dp.live.analyst_messages import SignedMessages
from stream_dp.live.envelope import Envelope, read_envelope, write_envelope

SEALER = Sealer(bytes(range(32)), "orders")
READER = SignedMessages("orders", SEALER.query_token)


def text(do: str = "list", **said: Any) -> str:
    return json.dumps({"id": "c1f", "until": "2026-11-23T10:00:00Z", "do": do, **said})


def envelope(message: str, signer: str, pipeline: str = "orders", sealer: Sealer = SEALER) -> bytes:
    return write_envelope(sealer.query_token(signer), pipeline, message)


def refused(
    value: bytes, kind: str, why: str = "", reader: SignedMessages = READER, at: int = 0
) -> str:
    with pytest.raises(NotAccepted, match=why or None) as error:
        reader.opened(value, at)
    assert error.value.kind == kind
    return str(error.value)


@pytest.mark.parametrize(
    ("signer", "analyst", "operator"), [("", "", True), ("", "ann", True), ("ann", "ann", False)]
)
def test_a_message_is_that_of_its_signer(signer: str, analyst: str, operator: bool) -> None:
    message = text(analyst=analyst)
    found = READER.opened(envelope(message, signer), 0)
    assert (found.id, found.analyst, found.operator, found.do) == ("c1f", analyst, operator, "list")
    assert (found.text, found.until) == (message.encode(), 1_795_428_000_000)


SIGNED = read_envelope(envelope(text(), ""))
NOT_SIGNED = {
    "another's": envelope(text(analyst="bob"), "ann"),
    "the operator's": envelope(text(analyst=""), "ann"),
    "another key": envelope(text(), "", sealer=Sealer(bytes(32), "orders")),
    "another pipeline": envelope(text(), "", pipeline="views"),
    "the key of another pipeline": envelope(text(), "", sealer=Sealer(bytes(range(32)), "views")),
    "changed": json.dumps(
        {"v": 1, "message": SIGNED.message + " ", "signature": SIGNED.signature}
    ).encode(),
    "empty": json.dumps({"v": 1, "message": text(), "signature": ""}).encode(),
}


@pytest.mark.parametrize("value", NOT_SIGNED.values(), ids=NOT_SIGNED)
def test_nobody_speaks_for_another_pipeline_key_or_analyst(value: bytes) -> None:
    assert isinstance(read_envelope(value), Envelope)
    refused(value, "signature", "signature")


@pytest.mark.parametrize(
    "value",
    [b"", b"{}", b"\xff", bytes(10**6), b'{"v":2}', text().encode(),
     *(envelope(message, "") for message in ("", "[]", '{"id": "a"}', text(id="a b")))],
    ids=range(10),
)  # fmt: skip
def test_what_is_no_envelope_or_has_no_address_is_unreadable_whoever_signed(value: bytes) -> None:
    refused(value, "unreadable")


def test_over_http_the_token_says_who_speaks() -> None:
    assert READER.said(text(analyst="ann").encode(), "ann").operator is False
    assert READER.said(text(analyst="ann").encode(), "").operator is True
    for analyst in ("bob", ""):
        with pytest.raises(NotAccepted, match=r"^analyst: .* name that one, or show") as error:
            READER.said(text(analyst=analyst).encode(), "ann")
        assert error.value.kind == "signature"
    with pytest.raises(NotAccepted) as error:
        READER.said(b"\xff", "")
    assert error.value.kind == "unreadable"


WANTED: list[tuple[dict[str, Any], Wanted]] = [
    ({"do": "create", "series": {"a": 1}}, Wanted("create", definition=b'{"a": 1}')),
    ({"do": "preview", "series": {"a": 1}}, Wanted("preview", definition=b'{"a": 1}')),
    ({"do": "halt", "series": "m"}, Wanted("halt", "m")),
    ({"do": "list"}, Wanted("list")),
    ({"do": "ask", "series": "m", "from": "a"}, Wanted("ask", "m", parameters={"from": "a"})),
    ({"do": "ask", "series": "m", "watch": "w", "threshold": 7},
     Wanted("ask", "m", parameters={"watch": "w", "threshold": 7})),
    ({"do": "watch", "series": "m", "watch": {"name": "w"}}, Wanted("watch", "m", b'{"name": "w"}')),
    ({"do": "unwatch", "series": "m", "watch": "w"}, Wanted("unwatch", "m", parameters={"watch": "w"})),
    ({"do": "apply", "file": {"series": []}}, Wanted("apply", definition=b'{"series": []}')),
]  # fmt: skip


@pytest.mark.parametrize(("said", "wanted"), WANTED, ids=[said["do"] for said, _ in WANTED])
def test_what_a_message_wants(said: dict[str, Any], wanted: Wanted) -> None:
    assert READER.wanted(READER.said(text(**said).encode(), "")) == wanted


def test_what_there_is_not_is_said_with_its_key() -> None:
    message = READER.said(text("drop", series="SECRET").encode(), "")
    assert message.do == ""
    with pytest.raises(UsageError, match=r"^do: must be one of") as error:
        READER.wanted(message)
    assert "SECRET" not in str(error.value)


def test_a_message_is_the_same_with_another_until_and_with_nothing_else() -> None:
    def content(message: str) -> bytes:
        return READER.opened(envelope(message, ""), 0).content

    asked = text("ask", series="m", watch="w", threshold=7)
    later = json.loads(asked.replace("2026", "2027"))
    assert content(json.dumps(dict(reversed(later.items())))) == content(asked)
    for key, value in {"id": "c2", "do": "halt", "watch": "v", "threshold": 70, "more": 1}.items():
        assert content(json.dumps({**later, key: value})) != content(asked), key


MADE = IssuedToken(1, "0" * 12, "ann", "2026-11-01T00:00:00Z", "2026-11-22T00:00:00Z")
END = 1_795_305_600_000
"""When it expires."""
ANN = text(analyst="ann")


def issued(token: IssuedToken = MADE) -> SignedMessages:
    key = SEALER.issued_token(MADE.id, MADE.analyst, MADE.expires)
    return SignedMessages(
        "orders", SEALER.query_token, lambda id_: (token, key) if id_ == MADE.id else None
    )


def by_issued(message: str, id_: str = MADE.id, analyst: str = "ann") -> bytes:
    return write_envelope(SEALER.issued_token(id_, analyst, MADE.expires), "orders", message)


def test_a_token_that_was_made_signs_until_its_end_by_the_stamp_or_until_it_is_revoked() -> None:
    found = issued().opened(by_issued(ANN), END - 1)
    assert (found.analyst, found.operator, found.do) == ("ann", False, "list")
    gone = issued(replace(MADE, revoked="2026-11-02T00:00:00Z"))
    for reader, at in ((issued(), END), (gone, END - 1)):
        refused(by_issued(ANN), "signature", "has expired or was revoked", reader, at)


@pytest.mark.parametrize(
    "value",
    [
        by_issued(text(analyst="bob")), by_issued(text()), by_issued(ANN, "1" * 12), by_issued(ANN, analyst="bob"),
        envelope(ANN, "ann")[:-1] + b',"token":"000000000000"}',
    ],
    ids=["another's", "the operator's", "unknown", "of another", "of another kind"],
)  # fmt: skip
def test_a_token_that_was_made_speaks_for_its_analyst_alone(value: bytes) -> None:
    refused(value, "signature", r"^signature: ", issued(), END - 1)


def test_while_the_list_cannot_be_read_a_token_that_was_made_signs_nothing() -> None:
    def broken(_id: str) -> None:
        raise FailClosed("/secret/place is damaged")

    reader = SignedMessages("orders", SEALER.query_token, broken)
    said = refused(by_issued(ANN), "signature", "cannot read its list of tokens", reader)
    assert "/secret" not in said
    assert reader.opened(envelope(text(), ""), 0).operator
