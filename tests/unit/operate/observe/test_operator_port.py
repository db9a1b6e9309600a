"""The operator's figures: exact, on a port that asks for the token and nowhere else; when they warn of dead letters."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from fractions import Fraction
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from stream_dp.errors import FailClosed, UsageError, WorldError
from stream_dp.files.memory import MemoryJournal, MemoryStore
from stream_dp.journal.commit import Commit, DeadLetter
from stream_dp.journal.keys import Sealer
from stream_dp.operate.observe import operator_figures
from stream_dp.operate.observe.operator_figures import (
    FEWEST,
    WINDOW_S,
    FiguresPort,
    OperatorFigures,
    figures_text,
    figures_told,
    guarded,
    pages_of,
)
from stream_dp.operate.run.run_pipeline import Operator, RunOptions, run_pipeline
from stream_dp.operate.run.running import Run

SEALER = Sealer(bytes(range(32)), "clicks")
OTHER = "ab" * 32
ANYWHERE = "0.0.0.0"  # noqa: S104 - as in a container
SECRETS = ("71", "37", "13", "5901")


def known() -> OperatorFigures:
    """Figures of two commits of the second attempt of a run."""
    seconds = chain([10.0, 10.0, 12.5, 12.5], repeat(20.0))
    figures = OperatorFigures(lambda _: None, lambda: next(seconds))
    figures._attempts, figures._lanes = 2, 2
    figures.waiting = lambda: {0: 0, 1: 3, 2: 1}
    figures._ends = lambda: {0: 5950, 1: 4, 2: 9}
    letters = (DeadLetter(0, "wrong_type", "page", 37, ()), DeadLetter(1, "not_json", None, 2, ()))
    figures.take(Commit(1, b"", records=50, late=3, dead_letters=letters[:1], capped=13))
    figures.take(
        Commit(2, b"", records=21, dead_letters=letters[1:], positions={0: 5901, 1: 4}, late=1)
    )
    return figures


def told(text: str) -> dict[str, float]:
    every = [one for family in text_string_to_metric_families(text) for one in family.samples]
    labels = [[v for k, v in sorted(one.labels.items()) if k != "pipeline" and v] for one in every]
    return {" ".join([one.name, *own]): one.value for one, own in zip(every, labels, strict=True)}


async def said(app: Any, **more: Any) -> httpx.Response:
    host = more.pop("host", "127.0.0.1:9911")
    path = more.pop("path", "/metrics")
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
        return await client.request(more.pop("method", "GET"), path, **more)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_the_figures_are_those_of_the_commits() -> None:
    text, form = figures_text("clicks", known(), "")
    assert form.startswith("text/plain")
    name = "stream_dp_not_private_"
    assert told(text.decode()) == {
        f"{name}records_total": 71,
        f"{name}late_records_total": 4,
        f"{name}dead_records_total page wrong_type": 37,
        f"{name}dead_records_total not_json": 2,
        f"{name}capped_records_total": 13,
        f"{name}commits_total": 2,
        f"{name}restarts_total": 1,
        f"{name}since_commit_seconds": 7.5,
        f"{name}lag": 49,
        f"{name}lane_lag 0": 49,
        f"{name}lane_lag 1": 0,
        f"{name}lane_ticks 0": 0,
        f"{name}lane_ticks 1": 3,
        f"{name}lane_ticks 2": 1,
    }


async def test_the_operator_is_told_which_lane_lags() -> None:
    figures = known()
    app = guarded(pages_of("clicks", figures), SEALER.query_token())
    answer = await said(app, path="/lanes", headers=RIGHT)
    assert answer.text.splitlines() == [
        "clicks, NOT PRIVATE: the ticks of all other lanes wait for lane 0",
        "lane 0: 0 closed ticks wait for other lanes, 49 offsets of the topic are not read yet",
        "lane 1: 3 closed ticks wait for other lanes, 0 offsets of the topic are not read yet",
        "lane 2: 1 closed ticks wait for other lanes",
    ]
    for waiting, words in (
        ({0: 0, 1: 0}, "no lane lags"), ({0: 2, 1: 1}, "no lane lags"), ({}, "one process reads the source"),
        ({0: 0, 1: 0, 2: 1}, "the ticks of all other lanes wait for lanes 0, 1"),
    ):  # fmt: skip
        figures.waiting = partial(dict, waiting)
        answer = await said(app, path="/lanes", headers=RIGHT)
        assert answer.text.splitlines()[0] == f"clicks, NOT PRIVATE: {words}"


RIGHT = bearer(SEALER.query_token())
REFUSED: dict[str, tuple[dict[str, Any], int]] = {
    "no token": ({}, 401),
    "another token": ({"headers": bearer(OTHER)}, 401),
    "an analyst's token": ({"headers": bearer(SEALER.query_token("ann"))}, 401),
    "no text of a token": ({"headers": bearer("")}, 401),
    "half a token": ({"headers": bearer(SEALER.query_token()[:32])}, 401),
    "no scheme": ({"headers": {"authorization": SEALER.query_token()}}, 401),
    "a token in the address": ({"params": {"token": SEALER.query_token()}}, 401),
    "two tokens": ({"headers": [*RIGHT.items()] * 2}, 401),
    "another path without a token": ({"path": "/"}, 401),
    "the lanes without a token": ({"path": "/lanes"}, 401),
    "the lanes for a write": ({"path": "/lanes", "method": "POST", "headers": RIGHT}, 405),
    "another path": ({"path": "/healthz", "headers": RIGHT}, 404),
    "a write": ({"method": "POST", "headers": RIGHT}, 405),
    "another host": ({"host": "rebound.example", "headers": RIGHT}, 421),
}


async def tells_nothing(request: dict[str, Any], status: int) -> bool:
    figures = known()
    app = guarded(pages_of("clicks", figures), SEALER.query_token())
    answer = await said(app, **dict(request))
    shown = [secret for secret in (*SECRETS, "not_private") if secret in answer.text]
    return answer.status_code == status and not shown


@pytest.mark.parametrize(("request_", "status"), REFUSED.values(), ids=REFUSED.keys())
async def test_who_does_not_show_the_token_learns_nothing(
    request_: dict[str, Any], status: int
) -> None:
    assert await tells_nothing(request_, status)


async def test_a_port_that_is_open_to_all_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_figures, "_holds", lambda *_: True)
    found = [await tells_nothing(*each) for each in REFUSED.values()]
    assert found.count(False) >= 6


async def test_it_listens_on_this_machine_while_it_is_open_and_no_longer(tmp_path: Path) -> None:
    own, urls = tmp_path / "token", list[str]()
    own.write_text(f"{OTHER}\n")
    own.chmod(0o600)
    asked = FiguresPort(0, own, urls.append)
    async with figures_told(asked, "clicks", OperatorFigures(lambda _: None), SEALER):
        (url,) = urls
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/metrics", url)
        async with httpx.AsyncClient(timeout=120) as client:
            with_own = await client.get(url, headers=bearer(OTHER))
            operators = await client.get(url, headers=bearer(SEALER.query_token()))
        assert (with_own.status_code, operators.status_code) == (200, 401)
        port = int(url.removesuffix("/metrics").rpartition(":")[2])
        with pytest.raises(WorldError, match="taken"):
            async with figures_told(FiguresPort(port), "clicks", known(), SEALER):
                pass
    async with httpx.AsyncClient(timeout=100) as client:
        with pytest.raises(httpx.ConnectError):
            await client.get(url)


async def test_in_a_network_it_has_names_and_a_token_of_its_own(tmp_path: Path) -> None:
    own, urls = tmp_path / "token", list[str]()
    own.write_text(f"{OTHER}\n")
    own.chmod(0o600)
    with pytest.raises(UsageError, match="--operator-token-file"):
        async with figures_told(FiguresPort(0, host=ANYWHERE), "clicks", known(), SEALER):
            pass
    asked = FiguresPort(0, own, urls.append, ANYWHERE, frozenset({"engine"}))
    async with (
        figures_told(asked, "clicks", known(), SEALER),
        httpx.AsyncClient(timeout=100) as client,
    ):
        found = [
            (await client.get(urls[0], headers=bearer(token) | {"host": f"{host}:9911"})).status_code
            for host, token in (("engine", OTHER), ("localhost", OTHER), ("other", OTHER), ("engine", "no"))
        ]  # fmt: skip
    assert found == [200, 200, 421, 401]


async def test_it_is_off_unless_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("something listens")

    monkeypatch.setattr(operator_figures, "listening_at", never)
    async with figures_told(None, "clicks", known(), SEALER):
        pass
    with pytest.raises(AssertionError, match="listens"):
        async with figures_told(FiguresPort(0), "clicks", known(), SEALER):
            pass


PIPELINE = """\
version: 1
name: clicks
source: {kind: file, path: clicks.csv}
schema:
  time: {type: time}
  page: {type: category, domain: [home, help]}
privacy: {unit: event, neighbors: add_remove, epsilon: 1}
clock: {kind: replay, field: time, start: 2024-05-01T00:00:00Z, step: 1h, horizon: 6}
series:
  - {name: clicks, statistic: count, epsilon: 0.5}
"""
PUBLIC = ("/metrics", "/", "/healthz", "/api/pipeline", "/api/plan", "/api/budget", "/api/series")


async def test_a_run_tells_figures_there_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAM_DP_HOME", str(tmp_path / "home"))
    rows = [f"2024-05-01T0{hour}:{minute:02}:00Z,home" for hour in range(6) for minute in range(7)]
    lines = ["time,page", *rows, *["junk,home"] * 5, ""]
    (tmp_path / "clicks.csv").write_text("\n".join(lines))
    (tmp_path / "clicks.yaml").write_text(PIPELINE)
    key = tmp_path / "key"
    key.write_bytes(bytes(range(32)))
    key.chmod(0o600)
    page: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    private: list[str] = []
    found: dict[str, httpx.Response] = {}

    @asynccontextmanager
    async def after(_: Run) -> AsyncIterator[None]:
        yield
        public = (await page).removesuffix("/")
        async with httpx.AsyncClient(timeout=120, headers=bearer(SEALER.query_token())) as client:
            found["figures"] = await client.get(private[0])
            for path in PUBLIC:
                found[path] = await client.get(f"{public}{path}")

    operator = Operator(port=FiguresPort(0, None, private.append), opened=page.set_result)
    options = RunOptions(until_end=True, port=0, key_file=key)
    await run_pipeline(tmp_path / "clicks.yaml", options, operator=operator, beside=after)
    figures, name = told(found.pop("figures").text), "stream_dp_not_private_"
    assert figures[f"{name}records_total"] == 42
    assert sum(value for each, value in figures.items() if "dead_records" in each) == 5
    assert figures[f"{name}commits_total"] == operator.figures.commits
    assert figures[f"{name}restarts_total"] == 0
    assert [answer.status_code for answer in found.values()] == [200] * len(PUBLIC)
    assert not [path for path, answer in found.items() if name in answer.text]


class Watched:
    """Figures with a clock of the test's own, and what they warned of."""

    def __init__(self, limit: str = "1/10") -> None:
        self.now = 0.0
        self.warned: list[str] = []
        self.figures = OperatorFigures(self.warned.append, lambda: self.now)
        self.figures._limit = Fraction(limit)

    def commit(self, records: int, late: int = 0, **dead: int) -> None:
        letters = tuple(DeadLetter(0, why, None, count, ()) for why, count in dead.items())
        self.figures.take(Commit(1, b"", dead_letters=letters, records=records, late=late))


def test_it_warns_above_the_share_only() -> None:
    watched = Watched()
    watched.commit(90, not_json=10)
    assert watched.warned == []
    watched.commit(0, wrong_type=1)
    assert watched.warned == ["not_json, wrong_type"]
    never = Watched("1")
    never.commit(0, not_json=1000)
    assert never.warned == []


def test_few_records_are_not_looked_at() -> None:
    watched = Watched()
    watched.commit(0, not_json=FEWEST - 1)
    watched.now = 5 * WINDOW_S
    assert watched.warned == []
    watched.commit(0, not_json=1)
    assert watched.warned == ["not_json"]


def test_it_warns_once_in_a_while() -> None:
    watched = Watched()
    for _ in range(10):
        watched.commit(0, not_json=100)
    assert watched.warned == ["not_json"]
    watched.now = WINDOW_S + 1
    watched.commit(1000)
    assert watched.warned == ["not_json"]
    watched.commit(0, wrong_type=1000)
    assert watched.warned == ["not_json", "wrong_type"]


async def test_a_commit_counts_once_it_is_durable() -> None:
    told: list[Commit] = []
    commit, store = Commit(0, b"", records=3), MemoryStore()
    journal = operator_figures.WatchedJournal(MemoryJournal(store), told.append)
    with pytest.raises(FailClosed):
        await journal.append(commit, b"sealed")  # it was not opened
    assert told == []
    await journal.open()
    await journal.append(commit, b"sealed")
    assert told == [commit]
    await journal.verify({})
    assert [sealed async for sealed in journal.read()] == [b"sealed"]
    await journal.close()
