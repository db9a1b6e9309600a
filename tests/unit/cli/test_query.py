"""`stream-dp query` against a real page server with a server of live series that has no engine behind it."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from unit.server import public_world as world
from unit.server.fake_live_series import TIME, FakeLiveSeries

from stream_dp import errors
from stream_dp.client import http_api as client
from stream_dp.journal.keys import Sealer
from stream_dp.operate.query import remote_series
from stream_dp.server.access import OPEN, Access
from stream_dp.server.server import PageServer
from stream_dp.server.view import PublicView, ReleaseLog, Sender, TokenHolder

KEY = bytes(range(32))
ERROR = "Expected error: ± 17 at tick 99 with 95% confidence."
LATE = '{"name":"late","statistic":"count","epsilon":"0.1"}'

Ask = Callable[..., Any]


@contextmanager
def served(view: PublicView, access: Access = OPEN) -> Iterator[str]:
    loop, server, ready = asyncio.new_event_loop(), PageServer(view, access), threading.Event()

    async def start() -> None:
        await server.start(port=0)
        ready.set()

    def run() -> None:
        loop.run_until_complete(start())
        loop.run_forever()

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(100)
    try:
        yield server.url
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(100)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def view_of(
    live_series: FakeLiveSeries | None, name: str = "clicks", key: bytes = KEY
) -> PublicView:
    token = Sealer(key, "clicks").query_token()
    return PublicView(lambda: world.pipeline(name), dict, dict, ReleaseLog(), live_series, token)


@pytest.fixture
def engine() -> FakeLiveSeries:
    return FakeLiveSeries()


@pytest.fixture
def ask(site: Any, engine: FakeLiveSeries) -> Iterator[Ask]:
    with served(view_of(engine)) as url:
        yield lambda name, *more: site.say("query", name, str(site.pipeline), "--url", url, *more)


def test_what_is_mostly_noise_is_created_once_it_is_confirmed(
    ask: Ask, engine: FakeLiveSeries, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.noise = "mostly noise: a false alarm per key and day has a chance of at most 58 %"
    said = ask("preview", "--series", LATE)
    assert (
        "late: while its count stays at 25, the chance of a false alarm per key and day is at most 0.58.\n"
        "Mostly noise: a false alarm per key and day has a chance of at most 58 %. To create it all the same: --yes."
    ) in said.out
    said = ask("create", "--series", LATE)
    assert (said.code, said.out) == (2, "")
    assert said.err == f"stream-dp: series: {engine.noise} (--yes)\n"
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    said = ask("create", "--series", LATE)
    assert (said.code, said.out) == (2, "")
    assert engine.noise in said.err
    assert len(engine.series) == 1
    monkeypatch.setattr("typer.confirm", lambda *_, **__: True)
    said = ask("create", "--series", LATE)
    assert said.code == 0
    assert said.out.startswith("late: created, charged epsilon 0.1")
    said = ask("create", "--series", LATE.replace("late", "later"), "--yes")
    assert (said.code, said.out.startswith("later: created")) == (0, True)
    accepted = [sender.accept_noise for sender in engine.senders]
    assert accepted == [False, False, False, False, True, True]


def test_create_list_halt(ask: Ask, engine: FakeLiveSeries) -> None:
    said = ask("create", "--series", LATE, "--analyst", "ann")
    assert (said.code, said.err) == (0, "")
    assert said.out == (
        f"late: created, charged epsilon 0.1, left 0.4. Start: tick 17 ({TIME}), the first tick that the series "
        f"sees. {ERROR}\n"
    )
    assert engine.asked == [("create", LATE.encode(), "ann")]

    engine.now = 40
    where, when = "new series on records with origin = {JFK}", f"from tick 40 ({TIME}) on"
    assert ask("halt", "late", "--preview").out == (
        f"late: a halt gives back 0.1 of 1 to {where}, {when} (to a new series on every record: 0). Left then: 0.4.\n"
    )
    assert engine.series[-1]["end"] is None
    said = ask("halt", "late")
    assert (said.code, said.err) == (0, "")
    assert said.out == (
        f"late: halted, gives back 0.1 to {where}, {when}, left 0.5. "
        f"End: tick 40 ({TIME}), the first tick that the series does not see.\n"
    )

    said = ask("list")
    assert said.code == 0
    (late,) = [line for line in said.out.splitlines() if "late" in line]
    cells = [cell.strip() for cell in late.strip("│").split("│")]
    assert cells == ["late", "count", "ann", "0.1", f"17 ({TIME})", f"40 ({TIME})"]
    assert "runs" in next(line for line in said.out.splitlines() if "total" in line)
    assert ask("halt", "nobody").err == "stream-dp: nobody: no query of this name runs\n"


def test_the_list_shows_the_watches_of_a_monitor(ask: Ask, engine: FakeLiveSeries) -> None:
    times = {"start": 3, "start_time": None, "end": None, "end_time": None}
    fr = {
        "name": "fr", "where": [{"field": "country", "equals": "FR"}, {"field": "size", "one_of": ["1", "2"]}],
        "above": 1000, "over": "since_firing", "rearm": False, "analyst": "ann", "created": True, **times,
        "end": 7, "fired": 1,
    }  # fmt: skip
    quiet = {
        "name": "quiet", "by": "country", "below": 3, "over": "tick", "rearm": True, "analyst": "", "created": False,
        **times, "end": 9,
    }  # fmt: skip
    engine.series[0] |= {"watches": [fr, quiet], "more_watches": 1200}
    said = ask("list")
    rows = [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in said.out.splitlines()
        if line.startswith("│")
    ]
    where = "watch: above 1,000, once, where country equals FR and size one_of 1, 2"
    assert rows[1:] == [
        ["fr", where, "ann", "", "3", "7, fired"],
        ["quiet", "watch: below 3 in a tick for each of country", "", "", "3", "9"],
        ["and 1,200 older watches", "", "", "", "", ""],
    ]
    (found,) = json.loads(ask("list", "--json").out)["queries"]
    assert (found["watches"], found["more_watches"]) == ([fr, quiet], 1200)


PREVIEWED = (
    f"The series fits into the budget: it asks for epsilon 0.1; spent 0.5, left 0.5; the largest epsilon that "
    f"fits is 0.5. {ERROR}\n"
    "Guarantee of this series alone: eps 0.1, delta 0, neighbours add_remove, by proven mechanism, [HSV] Lemma 7.4"
)


def test_preview_shows_price_error_and_promise(ask: Ask, engine: FakeLiveSeries) -> None:
    said = ask("preview", "--series", LATE)
    assert (said.code, said.err) == (0, "")
    assert said.out == f"{PREVIEWED}; `--proof` shows why.\n"
    proof = ask("preview", "--series", LATE, "--proof").out
    assert proof.startswith(f"{PREVIEWED}.\nthe query  eps 0.1, delta 0")
    assert "holds pure: no delta" in proof
    said = ask("preview", "--series", LATE.replace("0.1", "0.9"))
    assert (said.code, said.err) == (3, "")
    assert said.out.startswith("The series does not fit into the budget: it asks for epsilon 0.9")
    assert len(engine.series) == 1


@pytest.mark.parametrize(
    ("series", "named"),
    [
        ("@none.json", "--series: none.json cannot be read: No such file"),
        ("x" * 65_537, "--series: must not be larger than 65536 bytes"),
        ("{}", "--series:1:1: statistic: is missing"),
        (
            '{"name":"x","statistic":"median","epsilon":1}',
            "statistic: 'median' is not a known statistic; did you mean quantiles?",
        ),
        ('{"name":"total","statistic":"count","epsilon":1}', "name: a series of this name exists"),
    ],
)
def test_a_bad_definition_is_2(ask: Ask, series: str, named: str) -> None:
    said = ask("create", "--series", series)
    assert said.code == 2
    assert named in said.err


@pytest.mark.parametrize("name", ["a/b", "..", "a?b#c", "total/"])
def test_an_unknown_name_is_2(ask: Ask, engine: FakeLiveSeries, name: str) -> None:
    said = ask("halt", name)
    assert said.code == 2
    assert engine.series[0]["end"] is None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.NotDerivable("a"), 2),
        (errors.BudgetRefused("b"), 3),
        (errors.FailClosed("c"), 4),
        (errors.WorldError("d"), 5),
        (ValueError("e"), 1),
    ],
    ids=lambda e: type(e).__name__,
)
def test_errors_of_the_engine_keep_their_exit_code(
    ask: Ask, engine: FakeLiveSeries, error: Exception, code: int
) -> None:
    engine.error = error
    said = ask("create", "--series", LATE)
    known = str(error) if code != 1 else "a bug in stream_dp"
    assert (said.code, said.out, f"stream-dp: {known}" in said.err) == (code, "", True)


@pytest.mark.parametrize(
    ("change", "said_"),
    [
        ({"key": bytes(32)}, "--key-file or STREAM_DP_KEY_FILE"),
        ({"name": "views"}, "does not run clicks but another pipeline"),
        ({"live_series": None}, "accepts no queries"),
    ],
)
def test_an_engine_of_another_key_or_pipeline_is_not_asked(
    site: Any, engine: FakeLiveSeries, change: dict[str, Any], said_: str
) -> None:
    with served(view_of(**{"live_series": engine, **change})) as url:
        said = site.say("query", "halt", str(site.pipeline), "total", "--url", url)
    assert (said.code, said_ in said.err) == (2, True)
    assert engine.asked == []


def test_the_operator_asks_where_reading_is_closed(site: Any, engine: FakeLiveSeries) -> None:
    with served(view_of(engine), Access(reads="known")) as url:
        for asked in (["list"], ["halt", "total"]):
            said = site.say("query", asked[0], str(site.pipeline), *asked[1:], "--url", url)
            assert (said.code, said.err) == (0, "")
    with served(view_of(engine, key=bytes(32)), Access(reads="known")) as url:
        said = site.say("query", "halt", str(site.pipeline), "total", "--url", url)
        assert (said.code, "refused the token of this key" in said.err) == (2, True)


def test_without_an_engine_it_is_5(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_series, "WAIT_S", 0.0)
    url = "http://127.0.0.1:9"
    said = site.say("query", "create", str(site.pipeline), "--series", LATE, "--url", url)
    assert said.code == 5
    assert "no engine of clicks answers at http://127.0.0.1:9" in said.err
    assert "stream-dp run PIPELINE.yaml --serve" in said.err


def test_apply_waits_for_no_engine_and_says_what_it_tried(
    site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("it waits"))
    said = site.say("apply", str(site.pipeline), "--url", "http://127.0.0.1:9")
    assert (said.code, said.out) == (5, "")
    assert "no engine answers at http://127.0.0.1:9; nothing was applied" in said.err
    assert f"`stream-dp run {site.pipeline} --apply`" in said.err


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("http://stats.example:8765", "http is allowed only to this machine"),
        ("http://10.0.0.7", "http is allowed only to this machine"),
        ("ftp://127.0.0.1", "must be like"),
        ("http://127.0.0.1:99999", "must be like"),
        ("http://127.0.0.1/api?x", "must be like"),
    ],
)
def test_a_bad_address_is_2(site: Any, url: str, named: str) -> None:
    said = site.say("query", "list", str(site.pipeline), "--url", url)
    assert (said.code, f"--url: {named}" in said.err) == (2, True)


class Odd(BaseHTTPRequestHandler):
    """A server that is no engine; it remembers what was sent to it."""

    answers: ClassVar[dict[str, tuple[int, bytes]]] = {}
    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.seen.append(self.path + str(self.headers))
        status, body = self.answers[self.path]
        self.send_response(status)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (200, b"<html>", 5),
        (200, b"[]", 5),
        (302, b"{}", 5),
        (404, b"", 2),
        (200, b'{"name":"views"}', 2),
    ],
)
def test_a_server_that_is_no_engine_never_sees_the_token(
    site: Any, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes, code: int
) -> None:
    monkeypatch.setattr(Odd, "answers", {"/api/pipeline": (status, body)})
    monkeypatch.setattr(Odd, "seen", [])
    with HTTPServer(("127.0.0.1", 0), Odd) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        to = (str(site.pipeline), "--url", f"http://127.0.0.1:{server.server_port}")
        said = site.say("query", "create", *to, "--series", LATE)
        server.shutdown()
        thread.join()
    assert said.code == code, said.err
    assert len(Odd.seen) == 1
    assert Sealer(KEY, "clicks").query_token() not in Odd.seen[0]


def test_an_engine_that_does_not_answer(
    site: Any, engine: FakeLiveSeries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "SECONDS", 5.0)  # enough for the name, which is asked before
    gave_up = threading.Event()

    async def hang(definition: bytes, analyst: str, sender: Sender) -> dict[str, Any]:
        await asyncio.to_thread(gave_up.wait)
        return {}

    monkeypatch.setattr(engine, "create", hang)
    with served(view_of(engine)) as url:
        said = site.say("query", "create", str(site.pipeline), "--series", LATE, "--url", url)
        gave_up.set()
    assert said.code == 5
    assert "It may still execute the request" in said.err


def test_an_answer_to_ask_is_the_line_on_record(ask: Ask, engine: FakeLiveSeries) -> None:
    said = ask("ask", "total", "--id", "q-1", "--json")
    assert (said.code, said.err) == (0, "")
    assert said.out.encode() == engine.answer + b"\n"
    ((what, text, _),) = engine.asked
    assert what == "message"
    heard = json.loads(text)
    assert (heard["id"], heard["do"], heard["series"]) == ("q-1", "ask", "total")
    assert "watch" not in heard


WATCH = '{"name": "fr", "above": 4}'


def answering(engine: FakeLiveSeries, **said: Any) -> None:
    engine.answer = engine.answer.replace(b'"answer":{}', f'"answer":{json.dumps(said)}'.encode())


def test_watches_come_and_go_by_message(ask: Ask, engine: FakeLiveSeries, tmp_path: Path) -> None:
    answering(engine, series="m", watch="fr", start=17)
    said = ask("watch", "m", "--watch", WATCH, "--analyst", "ann", "--id", "w-1")
    assert (said.code, said.err) == (0, "")
    assert said.out == "fr: added to m. Start: tick 17, the first tick that the watch sees.\n"
    (tmp_path / "fr.yaml").write_text("name: fr\nabove: 4\nrearm: false\n")
    said = ask("watch", "m", "--watch", f"@{tmp_path / 'fr.yaml'}", "--json")
    assert json.loads(said.out) == {"series": "m", "watch": "fr", "start": 17}
    answering(engine, series="m", watch="fr", end=19)
    engine.answer = engine.answer.replace(b'"start": 17', b'"end": 19')
    said = ask("unwatch", "m", "fr")
    assert said.out == "fr: ended in m. End: tick 19, the first tick that the watch does not see.\n"
    texts = [text for _, text, _ in engine.asked]
    assert WATCH.encode() in texts[0]  # word for word
    first, second, third = map(json.loads, texts)
    assert [first[key] for key in ("id", "analyst", "do", "series")] == ["w-1", "ann", "watch", "m"]
    assert second["watch"] == {"name": "fr", "above": "4", "rearm": "false"}
    assert (third["do"], third["series"], third["watch"]) == ("unwatch", "m", "fr")


def test_analysts_tokens_count_here(site: Any, engine: FakeLiveSeries, tmp_path: Path) -> None:
    token = tmp_path / "ann.token"
    token.write_text(Sealer(KEY, "clicks").query_token("ann"))
    token.chmod(0o600)
    view = replace(view_of(engine), analysts={"ann": Sealer(KEY, "clicks").query_token("ann")})
    with served(view) as url:
        more = ("--token-file", str(token), "--analyst", "ann", "--url", url)
        said = site.say("query", "ask", str(site.pipeline), "total", *more)
        assert (said.code, said.err) == (0, "")
        token.chmod(0o644)
        said = site.say("query", "ask", str(site.pipeline), "total", *more)
        assert said.code == 2
        assert "chmod 600" in said.err
    assert [sender.signer for sender in engine.senders] == ["ann"]


def test_a_token_names_its_holder(site: Any, engine: FakeLiveSeries, tmp_path: Path) -> None:
    """The engine says it: a message names who asks."""
    token, text = tmp_path / "ann.token", Sealer(KEY, "clicks").issued_token("0" * 12, "ann", TIME)
    token.write_text(text)
    token.chmod(0o600)
    holder = TokenHolder("ann", "0" * 12, TIME)
    account = {"name": "ann", "epsilon": {"total": "1", "spent": "0", "left": "1"}}
    view = replace(
        view_of(engine),
        budget=lambda: {"analysts": [account]},
        issued=lambda shown: holder if shown == text else None,
    )
    with served(view) as url:
        more = ("--token-file", str(token), "--url", url)
        for verb, *words in (
            ("ask", "total"),
            ("unwatch", "total", "w"),
            ("ask", "total", "--analyst", "bob"),
        ):
            site.say("query", verb, str(site.pipeline), *words, *more)
    assert [json.loads(said)["analyst"] for _, said, _ in engine.asked] == ["ann", "ann", "bob"]
    assert [sender.signer for sender in engine.senders] == ["ann", "ann", "ann"]
