"""Messages by HTTP: whose token, the exact bytes of answers, statuses of refusals, and keys for repeating safely."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
from unit.server.conftest import connected
from unit.server.fake_live_series import WRITES, FakeLiveSeries

from stream_dp.engine.messages.conversation import not_accepted
from stream_dp.errors import NotYours, RejectedMessage, UnknownMechanism
from stream_dp.journal.answer_body import RefusalKind
from stream_dp.server.view import PublicView, Sender

TOKEN, ANNS, BOBS = "a1" * 32, "b2" * 32, "c3" * 32
LATE = {"name": "late", "statistic": "count", "epsilon": "0.1"}
SAID = b'{"id": "a",  "until": "2026-01-01T00:00:00Z", "do": "list"}'
JSON = {"Content-Type": "application/json"}


@pytest.fixture
async def client(view: PublicView, live_series: FakeLiveSeries) -> AsyncIterator[httpx.AsyncClient]:
    shown = replace(view, live_series=live_series, token=TOKEN, analysts={"ann": ANNS, "bob": BOBS})
    async with connected(shown) as made:
        yield made


def bearer(token: str, **more: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", **JSON, **more}


@pytest.mark.parametrize(("token", "signer"), [(TOKEN, ""), (ANNS, "ann"), (BOBS, "bob")])
async def test_the_token_says_who_asks(
    client: httpx.AsyncClient, live_series: FakeLiveSeries, token: str, signer: str
) -> None:
    for line in WRITES:
        body = SAID if "messages" in line or "ask" in line else json.dumps(LATE).encode()
        answer = await client.request(*line.split(), content=body, headers=bearer(token))
        assert answer.status_code in {200, 201, 404}, line
    assert live_series.senders == [Sender(signer)] * len(WRITES)


async def test_answers_are_bytes_on_record(
    client: httpx.AsyncClient, live_series: FakeLiveSeries
) -> None:
    live_series.answer = live_series.answer.replace(
        b'"answer":{}', b'"answer":{"b":1,  "a":"\xc3\xa9"}'
    )
    answer = await client.post("/api/messages", content=SAID, headers=bearer(ANNS))
    assert (answer.status_code, answer.content) == (200, live_series.answer)
    assert answer.headers["content-type"] == "application/json"
    answer = await client.post("/api/series/total/ask", content=b"{}", headers=bearer(ANNS))
    assert (answer.status_code, answer.content) == (200, live_series.answer)
    assert live_series.asked == [("message", SAID, ""), ("total", b"{}", "")]


@pytest.mark.parametrize(
    ("kind", "status"), [("budget", 409), ("unknown", 404), ("forbidden", 403), ("usage", 422)]
)
async def test_a_refusal_on_record_has_a_status(
    client: httpx.AsyncClient, live_series: FakeLiveSeries, kind: str, status: int
) -> None:
    refused = {"kind": kind, "exit_code": 3 if kind == "budget" else 2, "detail": "why"}
    told = b'"refused":' + json.dumps(refused).encode()
    live_series.answer = live_series.answer.replace(b'"answer":{}', told)
    answer = await client.post("/api/messages", content=SAID, headers=bearer(TOKEN))
    assert (answer.status_code, answer.content) == (status, live_series.answer)


@pytest.mark.parametrize(
    ("kind", "status"), [("unreadable", 422), ("signature", 403), ("used", 409), ("rate", 429)]
)
async def test_what_is_not_accepted_has_a_status(
    client: httpx.AsyncClient, live_series: FakeLiveSeries, kind: str, status: int
) -> None:
    live_series.error = not_accepted(RefusalKind(kind))
    for path in ("/api/messages", "/api/series/total/ask", "/api/queries"):
        answer = await client.post(path, content=json.dumps(LATE), headers=bearer(TOKEN))
        assert answer.status_code == status
        assert answer.json() == {"detail": str(live_series.error), "exit_code": 2}


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotYours("series: is another analyst's"), 403),
        (UnknownMechanism("series"), 404),
        (ValueError("s3cr3t"), 500),
        (KeyError("s3cr3t"), 500),
        (RejectedMessage("s3cr3t"), 500),
    ],
    ids=repr,
)
async def test_an_error_has_a_status_and_a_bug_says_nothing_of_what_it_held(
    client: httpx.AsyncClient, live_series: FakeLiveSeries, error: Exception, status: int
) -> None:
    live_series.error = error
    for line in ("DELETE /api/queries/late", "POST /api/messages"):
        answer = await client.request(*line.split(), content=SAID, headers=bearer(ANNS))
        assert (answer.status_code, "s3cr3t" in answer.text) == (status, False)


async def test_keys_are_handed_over(client: httpx.AsyncClient, live_series: FakeLiveSeries) -> None:
    right = bearer(ANNS, **{"Idempotency-Key": "k.1_-"})
    await client.post("/api/queries", json=LATE, headers=right)
    await client.delete("/api/queries/late", headers=right)
    await client.post("/api/series/total/ask", content=b"{}", headers=right)
    assert live_series.senders == [Sender("ann", "k.1_-")] * 3
    for key in (b"a b", b"x" * 65, b"a\n", b"\xe9"):
        headers = [(b"authorization", f"Bearer {ANNS}".encode()), (b"idempotency-key", key)]
        answer = await client.post("/api/queries", json=LATE, headers=headers)
        assert answer.status_code == 422
        assert answer.json()["detail"].startswith("Idempotency-Key: ")
    assert len(live_series.senders) == 3
