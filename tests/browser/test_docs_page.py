"""/docs in a real Chromium: the OpenAPI document can be read and tried out, and no request leaves this server."""

from typing import Literal
from urllib.parse import urlsplit

import pytest
from browser.page_worlds import PATIENCE_MS, Console, blank, picture, pipeline, plan, serving, text
from playwright.async_api import Browser, Page
from unit.server.fake_live_series import FakeLiveSeries

from stream_dp.server.view import ReleaseLog

pytestmark = pytest.mark.browser

TOKEN = "a1" * 32


def operation(name: str, tag: str) -> str:
    """Where an operation stands."""
    return f"#operations-{tag}-{name}"


async def shown(page: Page, operations: int) -> None:
    """Wait until so many operations are there."""
    await page.wait_for_function(
        "many => document.querySelectorAll('.opblock').length === many", arg=operations
    )


async def unfolded(page: Page, part: str) -> None:
    """Open one operation."""
    await page.click(f"{part} button.opblock-summary-control")
    await page.wait_for_selector(f"{part} .responses-table")


async def answered(page: Page, part: str) -> str:
    """Send the request that is open, and return the status."""
    await page.click(f"{part} button.execute")
    return await text(page, f"{part} .live-responses-table .response-col_status >> nth=-1")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_can_be_read_and_nothing_leaves_the_host(
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
        part = operation("get_series", "releases")
        await page.wait_for_selector(part)
        await shown(page, 16)
        await unfolded(page, part)
        assert '"sequence": 1236' in await text(page, f"{part} .highlight-code")
        assert "no such series; /api/series lists them" in await text(page, part)
        await unfolded(page, operation("create_query", "queries"))
        dark = await page.evaluate("() => document.documentElement.classList.contains('dark-mode')")
        assert dark == (scheme == "dark")
        assert console.complaints == []
        await picture(page, f"docs-{scheme}")
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
        part = operation("create_query", "queries")
        await page.wait_for_selector(part)
        await page.click("button.authorize")
        await page.fill(".auth-container input", TOKEN)
        await page.click(".auth-container button.authorize")
        await page.click(".auth-container button.btn-done")
        await unfolded(page, part)
        await page.click(f"{part} button.try-out__btn")
        assert await answered(page, part) == "201"
        assert console.complaints == []
    assert [(what, analyst) for what, _, analyst in live_series.asked] == [("create", "")]


async def test_it_fits_a_phone(browser: Browser) -> None:
    async with serving(ReleaseLog()) as server:
        page = await blank(browser, viewport={"width": 360, "height": 740})
        await page.goto(f"{server.url}docs")
        await page.wait_for_selector(operation("get_plan", "configuration"))
        await shown(page, 10)
        assert await page.evaluate("() => document.documentElement.scrollWidth") <= 360


async def test_the_worlds_of_the_page_are_what_a_server_can_say(browser: Browser) -> None:
    async with serving(ReleaseLog()) as server:
        page = await blank(browser)
        answers = [
            await page.request.get(f"{server.url}api/{name}", timeout=PATIENCE_MS)
            for name in ("pipeline", "plan")
        ]
    assert [await answer.json() for answer in answers] == [pipeline(), plan()]
