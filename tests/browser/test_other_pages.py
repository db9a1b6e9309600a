"""/docs, and the page without an engine: both can be read, and no request leaves their server."""

import asyncio
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import pytest
from browser.page_worlds import PATIENCE_MS, Console, blank, pipeline, plan, serving, text
from browser.test_page_layout import findings
from playwright.async_api import Browser, Page
from unit.operate.export.export_worlds import FORMS, bodies, published
from unit.server.fake_live_series import FakeLiveSeries

from stream_dp.operate.observe.topic_page import UNKNOWN, serve_page
from stream_dp.pipeline.yaml import load
from stream_dp.server.view import ReleaseLog

pytestmark = pytest.mark.browser

TOKEN = "a1" * 32
READ, CREATE = "#operations-releases-get_series", "#operations-queries-create_query"


async def unfolded(page: Page, operation: str) -> None:
    await page.click(f"{operation} button.opblock-summary-control")
    await page.wait_for_selector(f"{operation} .responses-table")


async def has(page: Page, operations: int) -> None:
    many = "many => document.querySelectorAll('.opblock').length === many"
    await page.wait_for_function(many, arg=operations)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_docs_can_be_read_and_nothing_leaves_the_host(
    browser: Browser, scheme: Literal["light", "dark"]
) -> None:
    asked: list[str] = []
    async with serving(ReleaseLog(), live_series=FakeLiveSeries(), token=TOKEN) as server:
        page = await blank(browser, color_scheme=scheme)
        console = Console(page)
        page.on("request", lambda request: asked.append(request.url))
        async with page.expect_request("**/icon.svg"):  # which a browser fetches when it likes
            answer = await page.goto(f"{server.url}docs")
        assert answer is not None
        assert "unsafe" not in answer.headers["content-security-policy"]
        await page.wait_for_selector(READ)
        await has(page, 17)
        await unfolded(page, READ)
        assert '"sequence": 1236' in await text(page, f"{READ} .highlight-code")
        assert "no series has this name; /api/series lists the series" in await text(page, READ)
        await unfolded(page, CREATE)
        dark = await page.evaluate("document.documentElement.classList.contains('dark-mode')")
        assert dark == (scheme == "dark")
        assert console.complaints == []
        parts = [urlsplit(url) for url in asked]
        assert {part.netloc for part in parts} == {urlsplit(server.url).netloc}
    assert {part.path for part in parts} == {
        "/docs", "/docs/docs.css", "/docs/docs.js", "/docs/swagger-ui.css", "/docs/swagger-ui.min.js",
        "/api/openapi.json", "/icon.svg",
    }  # fmt: skip


async def test_requests_can_be_tried_out_with_the_token(browser: Browser) -> None:
    live_series = FakeLiveSeries()
    async with serving(ReleaseLog(), live_series=live_series, token=TOKEN) as server:
        page = await blank(browser)
        console = Console(page)
        await page.goto(f"{server.url}docs")
        await page.wait_for_selector(CREATE)
        await page.click("button.authorize")
        await page.fill(".auth-container input", TOKEN)
        await page.click(".auth-container button.authorize")
        await page.click(".auth-container button.btn-done")
        await unfolded(page, CREATE)
        await page.click(f"{CREATE} button.try-out__btn")
        await page.click(f"{CREATE} button.execute")
        status = f"{CREATE} .live-responses-table .response-col_status >> nth=-1"
        assert await text(page, status) == "201"
        assert console.complaints == []
    assert [(what, analyst) for what, _, analyst in live_series.asked] == [("create", "")]


async def test_the_docs_fit_a_phone_and_the_worlds_are_what_a_server_can_say(
    browser: Browser,
) -> None:
    async with serving(ReleaseLog()) as server:
        page = await blank(browser, viewport={"width": 360, "height": 740})
        await page.goto(f"{server.url}docs")
        await has(page, 10)
        assert await page.evaluate("() => document.documentElement.scrollWidth") <= 360
        for name, world in (("pipeline", pipeline()), ("plan", plan())):
            answer = await page.request.get(f"{server.url}api/{name}", timeout=PATIENCE_MS)
            assert await answer.json() == world


async def test_without_an_engine_every_released_series_is_shown_and_nobody_logs_in(
    browser: Browser, tmp_path: Path
) -> None:
    path = published(tmp_path, bodies(range(6)))
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve_page(path, 0, opened=address.set_result))
    page = await blank(browser, viewport={"width": 1280, "height": 900})
    console = Console(page)
    await page.goto(await address)
    for at in range(len(FORMS)):
        await page.wait_for_selector(f".card[data-series=s{at}][data-tick='5']")
        assert UNKNOWN in await text(page, f".card[data-series=s{at}] .description")
    assert await page.locator(".card.unknown").count() == 0
    assert "AT" in await text(page, ".card[data-series=s2] .alert-table")
    assert "0 alerts so far" in await text(page, ".card[data-series=s3] .figure")
    assert await page.is_hidden(".card[data-series=s3] .alert-table")  # it has no rows
    assert await text(page, "#budget h2") == "Budget of the pipeline file"
    unknown = "their prices are not known here"
    assert unknown in await text(page, "[data-budget=scope]")
    assert await page.is_hidden("#ask")
    assert await page.locator("#ask-token").count() == 0
    assert await findings(page) == []
    assert console.complaints == []
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_home_page_leads_to_the_page_of_each_pipeline(
    browser: Browser, tmp_path: Path
) -> None:
    path = published(tmp_path, bodies(range(6)))
    said = path.read_text(encoding="utf-8")
    name = load(path).name
    path.with_name("second.yaml").write_text(
        said.replace(f"name: {name}", "name: second", 1), encoding="utf-8"
    )
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve_page(tmp_path, 0, opened=address.set_result))
    page = await blank(browser, viewport={"width": 1280, "height": 900})
    console = Console(page)
    await page.goto(await address)
    for each in (name, "second"):
        await page.locator(f"[data-pipeline={each}]", has_text="hide any single event").wait_for()
    assert await findings(page) == []
    await page.locator(f"[data-pipeline={name}] a").click()
    await page.wait_for_selector(".card[data-series=s0][data-tick='5']")
    assert (await text(page, "#name")).lower() == name
    assert console.complaints == []
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
