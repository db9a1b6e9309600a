"""The page without an engine: series that only their releases tell of have cards, nobody is asked to log in."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from browser.page_worlds import Console, blank, picture
from browser.test_page_accessible import findings
from playwright.async_api import Browser
from unit.operate.export.export_worlds import FORMS, bodies, published

from stream_dp.operate.observe.topic_page import UNKNOWN, serve_page

pytestmark = pytest.mark.browser

TICKS = 6


@pytest_asyncio.fixture(loop_scope="session")
async def url(tmp_path: Path) -> AsyncIterator[str]:
    """The page of a pipeline of which live series of every form were published."""
    path = published(tmp_path, bodies(range(TICKS)))
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve_page(path, 0, opened=address.set_result))
    yield await address
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_series_known_from_releases_alone_are_shown_and_nobody_logs_in(
    browser: Browser, url: str
) -> None:
    page = await blank(browser, viewport={"width": 1280, "height": 900})
    console = Console(page)
    await page.goto(url)
    for at in range(len(FORMS)):
        await page.wait_for_selector(f".card[data-series=s{at}][data-tick='{TICKS - 1}']")
        assert UNKNOWN in await page.inner_text(f".card[data-series=s{at}] .description")
    assert await page.locator(".card.unknown").count() == 0
    assert "AT" in await page.inner_text(".card[data-series=s2] .alert-table")
    assert "0 alerts so far" in await page.inner_text(".card[data-series=s3] .figure")
    assert await page.is_hidden(".card[data-series=s3] .alert-table")  # it has no rows
    assert await page.inner_text("#budget h2") == "Budget of the pipeline file"
    told = await page.inner_text("[data-budget=scope]")
    assert (
        "What was asked for while the engine runs has its price too, which is not known here"
        in told
    )
    assert await page.is_hidden("#ask")
    assert await page.locator("#ask-token").count() == 0
    assert await findings(page) == []
    await picture(page, "topic")
    assert console.complaints == []
