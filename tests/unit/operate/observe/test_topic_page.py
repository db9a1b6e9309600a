"""The page without an engine: what its server answers is in the pipeline file or was published, and it follows."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from unit.operate.export.export_worlds import FORMS, bodies, body, published

from stream_dp.cli.main import code_of
from stream_dp.errors import UsageError
from stream_dp.journal.commit import Release
from stream_dp.operate import published_bodies
from stream_dp.operate.observe.topic_page import LIVE, TopicPage, serve_page
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.yaml import load
from stream_dp.server.access import Access


@asynccontextmanager
async def serving(path: Path) -> AsyncIterator[httpx.AsyncClient]:
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    names = frozenset({"stats.example.org"})
    task = asyncio.create_task(
        serve_page(path, 0, access=Access(names=names), opened=address.set_result)
    )
    try:
        async with httpx.AsyncClient(base_url=await address, timeout=60) as client:
            yield client
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def told(client: httpx.AsyncClient, path: str) -> Any:
    return (await client.get(path)).raise_for_status().json()


async def reaches(client: httpx.AsyncClient, series: str, tick: int) -> None:
    """Return when the newest release of a series is that of this tick."""
    while True:
        listed = (await told(client, "/api/series"))["series"]
        found = {one["name"]: one["latest"] for one in listed}
        if (found.get(series) or {}).get("tick") == tick:
            return
        await asyncio.sleep(0.05)


def of_the_file(tick: int, sequence: int) -> bytes:
    said = json.loads(body(sequence, {"value": 9, "band": 2}))
    return json.dumps({**said, "series": "orders", "tick": tick}).encode()


async def test_it_shows_the_file_and_what_was_published_and_follows(tmp_path: Path) -> None:
    """Series of which the file knows nothing are described by their releases."""
    first = [of_the_file(0, 0)]
    path = published(tmp_path, first)
    async with serving(path) as client:
        await reaches(client, "orders", 0)
        while (await told(client, "/healthz"))["status"] != "ok":  # noqa: ASYNC110 - asked over HTTP
            await asyncio.sleep(0.05)
        shown = (await told(client, "/api/pipeline"))["series"]
        assert [one["name"] for one in shown] == ["orders"]
        later = [*first, *bodies(range(1, 3)), of_the_file(1, 3 * len(FORMS))]
        published(tmp_path, later)
        await reaches(client, "orders", 1)
        series = {one["name"]: one for one in (await told(client, "/api/pipeline"))["series"]}
        assert set(series) == {"orders", *(f"s{at}" for at in range(len(FORMS)))}
        assert series["s1"]["about"] == LIVE
        assert (series["s1"]["shape"], series["s1"]["domain"]) == ("histogram", ["AT", 'D"E, \n'])
        assert (series["s2"]["shape"], series["s2"]["by"]) == ("flags", "key")
        assert series["s8"]["windows"] == ["tick", "24h"]
        budget = await told(client, "/api/budget")
        assert (budget["epsilon"]["spent"], budget["scope"]) == ("0.5", "file")
        found = (await client.get("/api/series/s0", params={"from": 0, "to": 9})).content
        assert all(each in found for each in later if json.loads(each)["series"] == "s0")


async def test_it_describes_the_newest_version_of_each_series(tmp_path: Path) -> None:
    """Of the file's, in the words of the file; of another, by its own releases. Both are in the metrics again."""

    def of(name: str, sequence: int, version: int, **said: Any) -> bytes:
        head = {**json.loads(of_the_file(sequence, sequence)), "series": name, "version": version}
        return json.dumps(
            {key: head[key] for key in head if key not in ("value", "band")} | said
        ).encode()

    first = [of("orders", 0, 1, value=9, band=2), of("hers", 1, 1, value=9, band=2)]
    later = [of("orders", 2, 2, value=5, band=2), of("hers", 3, 2, values={"AT": 7}, band=2)]
    async with serving(published(tmp_path, first)) as client:
        await reaches(client, "hers", 1)
        shown = (await told(client, "/api/pipeline"))["series"]
        assert [(one["name"], one["shape"], one.get("version")) for one in shown] == [
            ("orders", "scalar", None), ("hers", "scalar", None),
        ]  # fmt: skip
        published(tmp_path, [*first, *later])
        await reaches(client, "hers", 3)
        shown = (await told(client, "/api/pipeline"))["series"]
        assert [(one["name"], one["shape"], one.get("version")) for one in shown] == [
            ("orders", "scalar", 2), ("hers", "histogram", 2),
        ]  # fmt: skip
        text = (await client.get("/metrics")).raise_for_status().text
        assert (
            'stream_dp_release_value{key="",pipeline="shop",series="orders",window=""} 5.0' in text
        )
        assert (
            'stream_dp_release_value{key="AT",pipeline="shop",series="hers",window=""} 7.0' in text
        )


async def test_it_reads_no_more_than_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 2,000 ticks it keeps 50; a reader of the stream learns that there was more."""
    monkeypatch.setattr(published_bodies, "_CHUNK", 4_096)
    one = json.loads(of_the_file(0, 0))
    every = [json.dumps({**one, "sequence": at, "tick": at}).encode() for at in range(2_000)]
    path = published(tmp_path, every)
    page, taken = TopicPage(build(load(path)), keep=50), list[int]()
    append = page.log.append

    def noted(one: Release) -> None:
        taken.append(one.tick)
        append(one)

    monkeypatch.setattr(page.log, "append", noted)
    following = asyncio.create_task(page.follow())
    try:
        async with asyncio.timeout(60):
            while page.log.last_sequence < 1_999 and not following.done():
                await page.log.wait_beyond(1_998, 1)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert taken == list(range(taken[0], 2_000))
    assert 50 <= len(taken) < 200
    assert page.log.forgotten >= taken[0] - 1


async def test_nothing_can_be_written_through_it(tmp_path: Path) -> None:
    async with serving(published(tmp_path, [of_the_file(0, 0)])) as client:
        asked = {"name": "new", "statistic": "count", "epsilon": "0.1"}
        for path in ("/api/queries", "/api/queries/preview"):
            assert (await client.post(path, json=asked)).status_code in (404, 405)
        assert (await client.delete("/api/queries/orders")).status_code in (404, 405)
        assert (await told(client, "/api/queries")) == {"queries": []}
        for name, status in (("stats.example.org", 200), ("evil.example", 421)):
            found = await client.get("/healthz", headers={"host": name})
            assert found.status_code == status


def test_a_broken_file_is_said_before_anything_is_served(tmp_path: Path, capsys: Any) -> None:
    path = published(tmp_path, [])
    path.write_text(path.read_text().replace("epsilon: 1}", "epsilon: 0.1}"))
    assert code_of(["page", str(path), "--port", "0"]) == 3
    assert "The page is at" not in capsys.readouterr().err


async def test_a_folder_has_a_page_for_each_of_its_pipelines(tmp_path: Path) -> None:
    path = published(tmp_path, [of_the_file(0, 0)])
    said, name = path.read_text(encoding="utf-8"), load(path).name
    other = path.with_name("second.yaml")
    other.write_text(said.replace(f"name: {name}", "name: second", 1), encoding="utf-8")
    async with serving(tmp_path) as client:
        assert await told(client, "/api/pipelines") == {"pipelines": sorted([name, "second"])}
        assert (await told(client, "/second/api/pipeline"))["name"] == "second"
        assert "app.js" in (await client.get(f"/{name}/")).text
        assert "home.js" in (await client.get("/")).text
        elsewhere = {"host": "elsewhere.example.org"}
        assert (await client.get("/second/api/pipeline", headers=elsewhere)).status_code == 421
    other.write_text(said, encoding="utf-8")
    with pytest.raises(UsageError, match=f"more than one file has `name: {name}`"):
        await serve_page(tmp_path, 0)


async def test_a_folder_takes_no_analyst_whom_none_of_its_pipelines_names(tmp_path: Path) -> None:
    path = published(tmp_path, [])
    said, name = path.read_text(encoding="utf-8"), load(path).name
    other = path.with_name("second.yaml")
    other.write_text(said.replace(f"name: {name}", "name: second", 1), encoding="utf-8")
    proxy = {"header": "X-User", "from": ["127.0.0.1/32"], "analysts": {"ann@x.org": "nobody"}}
    closed = Access.model_validate({"reads": "known", "proxy": proxy})
    with pytest.raises(UsageError, match=f"names nobody, but .* of second, {name} names"):
        await serve_page(tmp_path, 0, access=closed)


@pytest.mark.parametrize(("zone", "said"), [("", None), (", zone: Europe/Zurich", "Europe/Zurich")])
async def test_it_says_the_zone_of_the_records_and_what_numbers_are_worth(
    tmp_path: Path, zone: str, said: str | None
) -> None:
    path = published(tmp_path, [of_the_file(0, 0)])
    text = path.read_text(encoding="utf-8")
    zoned = text.replace("{type: time}", f"{{type: time{zone}}}", 1)
    path.write_text(
        zoned.replace("epsilon: 1}", "epsilon: 1, expect: {records: 40}}", 1), encoding="utf-8"
    )
    async with serving(path) as client:
        assert (await told(client, "/api/pipeline"))["clock"].get("zone") == said
        (orders,) = (await told(client, "/api/plan"))["series"]
        (verdict,) = orders["verdicts"]
        assert (verdict["series"], verdict["verdict"]) == ("orders", "useful")
