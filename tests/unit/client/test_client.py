"""The client of `stream_dp.connect` against the real server, over sockets: with an engine behind it, and failing."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
from unit.live.live_series_worlds import HORIZON, SEALER, Stopping
from unit.live.message_worlds import WITH_ANALYSTS, MessageWorld
from unit.server import public_world as world
from unit.server.conftest import MakeRelease, port_of

import stream_dp as sdp
from stream_dp.client.api import Budget, Client, ReleaseStream
from stream_dp.client.http_api import HttpApi
from stream_dp.client.public_release import Counts
from stream_dp.engine.messages.issued_tokens import IssuedTokens
from stream_dp.journal.release import release_of
from stream_dp.operate.observe.public_view import public_view
from stream_dp.operate.run.live_series import Attempt
from stream_dp.server.access import OPEN, Access
from stream_dp.server.server import PageServer
from stream_dp.server.view import PublicView, ReleaseLog

WHERE = [{"field": "amount", "at_least": 5}]
on_thread = asyncio.to_thread


class Site:
    """The server of a view, at one port for all its lives."""

    def __init__(self, view: PublicView, access: Access = OPEN) -> None:
        self.view, self.access, self.port = view, access, 0

    async def start(self) -> None:
        self.server = PageServer(self.view, self.access)
        await self.server.start(port=self.port)
        self.port = port_of(self.server)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def served(view: PublicView, access: Access = OPEN) -> AsyncIterator[Site]:
    site = Site(view, access)
    await site.start()
    try:
        yield site
    finally:
        await site.server.stop()


@pytest.fixture
async def site(view: PublicView) -> AsyncIterator[Site]:
    async with served(view) as made:
        yield made


async def test_versions_of_a_series_are_told_apart(
    site: Site, log: ReleaseLog, release: MakeRelease
) -> None:
    """Of a name that a changed file gave another definition twice; the log begins with its second release."""
    for sequence, version in enumerate((2, 2, 3), 6):
        log.append(release(sequence, value=1, band=2, version=version))
    total = await (await sdp.connect_async(site.url)).series("total")
    ticks = {1: [0, 1, 2, 3, 4], 2: [6, 7], 3: [8], 4: []}
    for version, wanted in ticks.items():
        found = await total.releases(version=version)
        assert [one.tick for one in found] == wanted
        assert {one.version for one in found} <= {version}
        rows = (await total.table(version=version)).rows
        assert [row.tick for row in rows] == wanted
    assert [one.tick for one in await total.releases(3, 7, version=2)] == [6, 7]
    assert [one.tick for one in await total.releases(7, version=1)] == []
    assert [one.tick for one in await total.releases()] == [*chain(*ticks.values())]


async def test_releases_are_those_that_were_published(site: Site, log: ReleaseLog) -> None:
    client = await sdp.connect_async(site.url)
    total = await client.series("total")
    releases = await total.releases(1, 3)
    assert [release.body for release in releases] == [
        kept.body for kept in log.series_between("total", 1, 3)
    ]
    assert await total.latest() == (await total.releases())[-1]
    newest = await client.latest()
    assert newest["silent"] is None
    assert newest["by_key"] is not None
    assert newest["by_key"].value == Counts(("ATL",), (1203,))
    table = await (await client.series("by_key")).table()
    [row] = table.rows
    assert (row.pipeline, row.tick, row.key, row.value, row.low) == (
        "flights",
        4,
        "ATL",
        1203,
        1166,
    )
    assert (await client.pipeline()).name == "flights"
    assert "0.5 of 1 epsilon spent" in (await client.budget())._repr_html_()
    assert "<td>Counter</td>" in (await client.plan())._repr_html_()


async def test_a_series_that_is_not_there_is_named(site: Site) -> None:
    client = await on_thread(sdp.connect, site.url)
    with pytest.raises(sdp.UnknownMechanism, match="no series 'totl'; did you mean total"):
        await on_thread(client.series, "totl")
    html = await on_thread((await on_thread(client.series, "silent"))._repr_html_)
    assert "nothing is released yet" in html


async def test_a_key_of_a_newer_server_is_kept(site: Site) -> None:
    client = await on_thread(sdp.connect, site.url)
    content = world.budget() | {"later": 1}
    assert client.read(Budget, json.dumps(content).encode()).model_extra == {"later": 1}
    with pytest.raises(sdp.FailClosed, match="does not read"):
        client.read(Budget, b"{}")


@asynccontextmanager
async def engine(path: Path, access: Access = OPEN) -> AsyncIterator[tuple[str, str, Stopping]]:
    """The address of a real engine between two ticks, and the token of an analyst with a ledger of 1."""
    shop = MessageWorld(WITH_ANALYSTS)
    source, log = Stopping(2), ReleaseLog()
    running = shop.messaging(source)
    run = asyncio.create_task(running.run())
    await shop.until(2)
    for body in shop.bodies:
        log.append(release_of(body))
    attempt = Attempt(running, shop.words)
    issued = IssuedTokens(path, SEALER, ("ann", "bob"))
    view = public_view(shop.built, lambda: attempt, lambda: False, log, SEALER.query_token, issued)
    _, token = IssuedTokens(path, SEALER, ("ann", "bob")).make("ann", 30, running.now)
    try:
        async with served(view, access) as made:
            yield made.url, token, source
    finally:
        source.go(HORIZON)
        await run


async def test_an_analyst_previews_creates_asks_and_halts(tmp_path: Path) -> None:
    async with engine(tmp_path / "shop.tokens") as (url, token, _):
        (tmp_path / "ann.token").write_text(f"{token}\n")
        client = await sdp.connect_async(url, token_file=tmp_path / "ann.token")
        assert (await client.me()).analyst == "ann"
        price = await client.preview(sdp.Count(where=WHERE), name="large", epsilon="0.4")
        assert (price.fits, price.asked, price.after) == (True, "0.4", "0.6")
        least = await client.preview({"name": "large", "statistic": "count"}, error=price.error)
        assert float(least.asked) <= 0.4
        created = await client.create(sdp.Count(where=WHERE), name="large", epsilon="0.4", key="k1")
        again = await client.create(sdp.Count(where=WHERE), name="large", epsilon="0.4", key="k1")
        assert again == created  # the same request under the same key is done once
        with pytest.raises(sdp.BudgetRefused, match=r"asks for epsilon 0.7; .* 0.6 left"):
            await client.create(sdp.Count(), name="dear", epsilon="0.7")
        assert [query.name for query in await client.queries() if query.analyst == "ann"] == [
            "large"
        ]
        orders = await client.series("orders")
        latest = await orders.latest()
        assert latest is not None
        assert (await orders.ask())["value"] == latest.value
        with pytest.raises(sdp.UsageError, match="was paid from another ledger"):
            await orders.halt()
        large = await client.series("large")
        assert (await large.preview_halt()).freed == "0.4"
        assert (await large.halt()).left == "1"


async def test_a_token_reads_where_reading_is_closed(tmp_path: Path) -> None:
    async with engine(tmp_path / "shop.tokens", Access(reads="known")) as (url, token, _):
        with pytest.raises(sdp.UsageError, match="no token"):
            await sdp.connect_async(url)
        client = await sdp.connect_async(url, token=token)
        latest = await (await client.series("orders")).latest()
        assert latest is not None
        stream = client.stream(after=0)
        assert (await anext(stream)).sequence == 1
        stream.close()


async def test_what_a_token_may_not_is_said_in_the_servers_words(tmp_path: Path) -> None:
    async with engine(tmp_path / "shop.tokens") as (url, token, _):
        none = await sdp.connect_async(url)
        with pytest.raises(
            sdp.UsageError, match=r"no token, but this needs .* `stream-dp token PIPE"
        ):
            await none.halt("large")
        wrong = await sdp.connect_async(url, token=f"{token[:-1]}x")
        with pytest.raises(sdp.UsageError, match=r"^this is no token of this pipeline: see that"):
            await wrong.me()
        mine = await sdp.connect_async(url, token=token)
        with pytest.raises(sdp.UsageError, match="wher: is not a known key; did you mean where"):
            await mine.preview(sdp.Count(wher=WHERE), name="a", epsilon="0.1")


@pytest.mark.parametrize(
    ("url", "token", "words"),
    [
        ("http://127.0.0.1:9", None, "no engine answers at http://127.0.0.1:9: start one with"),
        ("127.0.0.1:8765", None, "url: must be like http://127.0.0.1:8765"),
        ("http://stats.example", "a.b", "url: http is allowed only to this machine"),
        ("http://127.0.0.1:9", "a\nb", "token: is not one line of text"),
    ],
)
def test_an_address_or_a_token_that_cannot_be(url: str, token: str | None, words: str) -> None:
    with pytest.raises(sdp.StreamDPError, match=words):
        sdp.connect(url, token=token)


async def taken(stream: ReleaseStream, number: int) -> list[int]:
    sequences: list[int] = []
    async for release in stream:
        sequences.append(release.sequence)
        if len(sequences) == number:
            break
    return sequences


async def test_a_stream_goes_on_behind_a_server_that_was_gone(
    site: Site, log: ReleaseLog, release: MakeRelease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_dp.client.api._AGAIN_S", 0.01)
    client = await sdp.connect_async(site.url)
    with client.stream(after=2) as stream:
        assert await taken(stream, 2) == [3, 4]
        await site.server.stop()
        waiting = asyncio.create_task(taken(stream, 3))
        await asyncio.sleep(0.05)  # it finds nobody
        for sequence in (6, 7):
            log.append(release(sequence))
        await site.start()
        assert await waiting == [5, 6, 7]
    only = (await client.series("by_key")).stream(after=2)
    assert await taken(only, 1) == [5]
    assert only.last == 5
    only.close()


async def test_a_plain_loop_reads_the_same_and_another_thread_ends_it(site: Site) -> None:
    client = await on_thread(sdp.connect, site.url)
    stream = client.stream(after=3)
    first = await on_thread(lambda: [next(stream).sequence, next(stream).sequence])
    waiting = asyncio.create_task(on_thread(list, stream))
    await asyncio.sleep(0.05)  # it waits for the next one
    stream.close()
    assert (first, await waiting) == ([4, 5], [])


async def test_a_cancelled_loop_leaves_no_thread_waiting(site: Site) -> None:
    stream = (await sdp.connect_async(site.url)).stream()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await taken(stream, 1)
    assert await taken(stream, 1) == []


async def test_a_gap_says_where_it_is_and_the_next_loop_goes_on(release: MakeRelease) -> None:
    log = ReleaseLog(keep=2)
    for sequence in range(1, 8):
        log.append(release(sequence))
    entry = world.series("total")
    view = PublicView(lambda: world.pipeline("flights", entry), world.plan, world.budget, log)
    async with served(view) as site:
        stream = (await sdp.connect_async(site.url)).stream(after=1)
        with pytest.raises(sdp.ReleasesMissing, match="2 to 5 missing") as gap:
            await taken(stream, 1)
        assert (gap.value.first, gap.value.last) == (2, 5)
        assert await taken(stream, 2) == [6, 7]
        stream.close()


async def test_another_pipeline_at_the_address_ends_a_stream(
    site: Site, view: PublicView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_dp.client.api._AGAIN_S", 0.01)
    stream = (await sdp.connect_async(site.url)).stream(after=4)
    assert await taken(stream, 1) == [5]
    other = world.pipeline("other") | {"fingerprint": "f2"}
    await site.server.stop()
    site.view = replace(view, pipeline=lambda: other)
    await site.start()
    with pytest.raises(sdp.FailClosed, match="another pipeline now runs"):
        await taken(stream, 1)
    ahead = (await sdp.connect_async(site.url)).stream(after=400, patience=0)
    with pytest.raises(sdp.WorldError, match="published 5 releases, fewer than the 400"):
        await taken(ahead, 1)


async def test_values_in_arrays_have_their_keys(release: MakeRelease) -> None:
    log = ReleaseLog()
    log.append(release(1, "bins", 0, values=[3, 4], band=2))
    entry = world.series("bins", shape="histogram", by="bin", domain=["low", "other"])
    view = PublicView(lambda: world.pipeline("flights", entry), world.plan, world.budget, log)
    async with served(view) as site:
        client = Client(HttpApi(site.url))
        bins = await on_thread(client.series, "bins")
        latest = await on_thread(bins.latest)
        assert latest is not None
        assert latest.value == Counts(("low", "other"), (3, 4))
        assert [row.key for row in await on_thread(bins.table)] == ["low", "other"]
