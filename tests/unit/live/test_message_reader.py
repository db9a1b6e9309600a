"""Who may say what: a message is its signer's, the operator's token speaks for everyone, another analyst's for none."""

import json
from dataclasses import replace
from typing import Any

import pytest

from stream_dp.engine.messages.addressed import Wanted
from stream_dp.engine.messages.issued_tokens import IssuedToken
from stream_dp.errors import FailClosed, NotAccepted, UsageError
from stream_dp.journal.keys import Sealer
from stream_dp.live.analyst_messages import SignedMessages
from stream_dp.live.envelope import Envelope, read_envelope, write_envelope

SEALER = Sealer(bytes(range(32)), "orders")
READER = SignedMessages("orders", SEALER.query_token)
UNTIL = "2026-11-23T10:00:00Z"


def text(do: str = "list", **said: Any) -> str:
    return json.dumps({"id": "c1f", "until": UNTIL, "do": do, **said})


def envelope(message: str, signer: str, pipeline: str = "orders", sealer: Sealer = SEALER) -> bytes:
    return write_envelope(sealer.query_token(signer), pipeline, message)


@pytest.mark.parametrize(
    ("signer", "analyst", "operator"), [("", "", True), ("", "ann", True), ("ann", "ann", False)]
)
def test_a_message_is_that_of_its_signer(signer: str, analyst: str, operator: bool) -> None:
    message = text(analyst=analyst)
    found = READER.opened(envelope(message, signer), 0)
    assert (found.id, found.analyst, found.operator, found.do) == ("c1f", analyst, operator, "list")
    assert found.text == message.encode()
    assert found.until == 1_795_428_000_000


@pytest.mark.parametrize(("signer", "analyst"), [("ann", "bob"), ("ann", ""), ("bob", "ann")])
def test_nobody_speaks_for_another(signer: str, analyst: str) -> None:
    with pytest.raises(NotAccepted, match="signature") as refused:
        READER.opened(envelope(text(analyst=analyst), signer), 0)
    assert refused.value.kind == "signature"


def test_a_signature_is_of_this_pipeline_and_key() -> None:
    other = Sealer(bytes(32), "orders")
    same_key = Sealer(bytes(range(32)), "views")
    for made in (
        envelope(text(), "", sealer=other),
        envelope(text(), "", pipeline="views"),
        envelope(text(), "", sealer=same_key),
    ):
        with pytest.raises(NotAccepted, match="signature"):
            READER.opened(made, 0)


def test_a_changed_message_is_nobodys() -> None:
    found = read_envelope(envelope(text(), ""))
    changed = json.dumps({"v": 1, "message": found.message + " ", "signature": found.signature})
    with pytest.raises(NotAccepted, match="signature"):
        READER.opened(changed.encode(), 0)


@pytest.mark.parametrize(
    "value", [b"", b"{}", b"\xff", bytes(10**6), b'{"v":2}', text().encode()], ids=range(6)
)
def test_what_is_no_envelope_is_unreadable(value: bytes) -> None:
    with pytest.raises(NotAccepted) as refused:
        READER.opened(value, 0)
    assert refused.value.kind == "unreadable"


@pytest.mark.parametrize("message", ["", "[]", '{"id": "a"}', text(id="a b")])
def test_an_envelope_without_an_address_is_unreadable_whoever_signed(message: str) -> None:
    with pytest.raises(NotAccepted) as refused:
        READER.opened(envelope(message, ""), 0)
    assert refused.value.kind == "unreadable"


def test_over_http_the_token_says_who_speaks() -> None:
    assert READER.said(text(analyst="ann").encode(), "ann").operator is False
    assert READER.said(text(analyst="ann").encode(), "").operator is True
    for analyst in ("bob", ""):
        with pytest.raises(NotAccepted, match=r"^analyst: .* name that one, or show") as refused:
            READER.said(text(analyst=analyst).encode(), "ann")
        assert refused.value.kind == "signature"
    with pytest.raises(NotAccepted) as refused:
        READER.said(b"\xff", "")
    assert refused.value.kind == "unreadable"


WANTED: list[tuple[str, dict[str, Any], Wanted]] = [
    ("create", {"series": {"a": 1}}, Wanted("create", definition=b'{"a": 1}')),
    ("preview", {"series": {"a": 1}}, Wanted("preview", definition=b'{"a": 1}')),
    ("halt", {"series": "m"}, Wanted("halt", "m")),
    ("list", {}, Wanted("list")),
    ("ask", {"series": "m", "from": "a"}, Wanted("ask", "m", parameters={"from": "a"})),
    (
        "ask",
        {"series": "m", "watch": "w", "threshold": 7},
        Wanted("ask", "m", parameters={"watch": "w", "threshold": 7}),
    ),
    ("watch", {"series": "m", "watch": {"name": "w"}}, Wanted("watch", "m", b'{"name": "w"}')),
    ("unwatch", {"series": "m", "watch": "w"}, Wanted("unwatch", "m", parameters={"watch": "w"})),
]


@pytest.mark.parametrize(("do", "said", "wanted"), WANTED)
def test_what_a_message_wants(do: str, said: dict[str, Any], wanted: Wanted) -> None:
    assert READER.wanted(READER.said(text(do, **said).encode(), "")) == wanted


def test_what_there_is_not_is_said_with_its_key() -> None:
    message = READER.said(text("drop", series="SECRET").encode(), "")
    assert message.do == ""
    with pytest.raises(UsageError, match=r"^do: must be one of") as refused:
        READER.wanted(message)
    assert "SECRET" not in str(refused.value)


def test_a_message_is_the_same_with_another_until_and_with_nothing_else() -> None:
    def content(message: str) -> bytes:
        return READER.opened(envelope(message, ""), 0).content

    first = content(text("ask", series="m", watch="w", threshold=7))
    later = text("ask", series="m", watch="w", threshold=7).replace("2026", "2027")
    assert content(later) == first
    turned = json.loads(later)
    assert content(json.dumps(dict(reversed(turned.items())))) == first
    for key, value in {"id": "c2", "do": "halt", "watch": "v", "threshold": 70, "more": 1}.items():
        assert content(json.dumps({**turned, key: value})) != first, key


def test_an_empty_signature_is_none() -> None:
    bare = json.dumps({"v": 1, "message": text(), "signature": ""}).encode()
    assert isinstance(read_envelope(bare), Envelope)
    with pytest.raises(NotAccepted, match="signature"):
        READER.opened(bare, 0)


MADE = IssuedToken("0" * 12, "ann", "2026-11-01T00:00:00Z", "2026-11-22T00:00:00Z")
END = 1_795_305_600_000
"""When it expires."""


def issued(token: IssuedToken = MADE) -> SignedMessages:
    """A reader that knows one token that was made."""
    text = SEALER.issued_token(MADE.id, MADE.analyst, MADE.expires)
    return SignedMessages(
        "orders", SEALER.query_token, lambda id_: (token, text) if id_ == MADE.id else None
    )


def by_issued(message: str, id_: str = MADE.id, analyst: str = "ann") -> bytes:
    """The envelope of a message, signed with a token that was made."""
    return write_envelope(SEALER.issued_token(id_, analyst, MADE.expires), "orders", message)


def test_a_token_that_was_made_signs_until_its_end_by_the_stamp() -> None:
    found = issued().opened(by_issued(text(analyst="ann")), END - 1)
    assert (found.analyst, found.operator, found.do) == ("ann", False, "list")
    with pytest.raises(NotAccepted, match="has expired or was revoked") as refused:
        issued().opened(by_issued(text(analyst="ann")), END)
    assert refused.value.kind == "signature"


def test_a_revoked_token_signs_nothing() -> None:
    gone = replace(MADE, revoked="2026-11-02T00:00:00Z")
    with pytest.raises(NotAccepted, match="has expired or was revoked"):
        issued(gone).opened(by_issued(text(analyst="ann")), END - 1)


@pytest.mark.parametrize(
    "value",
    [
        by_issued(text(analyst="bob")), by_issued(text()), by_issued(text(analyst="ann"), "1" * 12),
        by_issued(text(analyst="ann"), analyst="bob"),
        envelope(text(analyst="ann"), "ann")[:-1] + b',"token":"000000000000"}',
    ],
    ids=["another's", "the operator's", "unknown", "of another", "of another kind"],
)  # fmt: skip
def test_a_token_that_was_made_speaks_for_its_analyst_alone(value: bytes) -> None:
    with pytest.raises(NotAccepted, match=r"^signature: ") as refused:
        issued().opened(value, END - 1)
    assert refused.value.kind == "signature"


def test_while_the_list_cannot_be_read_a_token_that_was_made_signs_nothing() -> None:
    def broken(_id: str) -> None:
        raise FailClosed("/secret/place is damaged")

    reader = SignedMessages("orders", SEALER.query_token, broken)
    with pytest.raises(NotAccepted, match="cannot read its list of tokens") as refused:
        reader.opened(by_issued(text(analyst="ann")), 0)
    assert "/secret" not in str(refused.value)
    assert reader.opened(envelope(text(), ""), 0).operator
