"""A page whose reading is closed, and one behind a proxy that logs people in: what a browser shows, keeps and sends."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from browser.ask_worlds import LOOK, NOW, Shop, Tab
from browser.page_worlds import PATIENCE_MS
from playwright.async_api import Browser, Page
from unit.live.live_series_worlds import SEALER

from stream_dp.operate.keys import issued_for
from stream_dp.server import access as module
from stream_dp.server.access import Access, Proxy

pytestmark = pytest.mark.browser

CARD = ".card[data-series=orders]"
PROXY = Proxy.model_validate(
    {
        "header": "X-User",
        "from": ["127.0.0.1"],
        "analysts": {"ann@x.org": "ann"},
        "readers": ["*@x.org"],
    }
)


@pytest_asyncio.fixture(loop_scope="session")
async def closed(prepared: None) -> AsyncIterator[Shop]:
    async with Shop(access=Access(reads="known", proxy=PROXY)) as shop:
        yield shop


def reader_of(shop: Shop) -> tuple[str, str]:
    made, text = issued_for(shop.built.spec, SEALER).make_reading("bi", 30, NOW)
    return made.id, text


async def opened(browser: Browser, shop: Shop, **headers: str) -> Tab:
    context = await browser.new_context(extra_http_headers=headers)
    page = await context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    tab = Tab(page)
    await page.goto(shop.url)
    return tab


async def enters(page: Page, token: str) -> None:
    await page.fill("#empty #ask-token", token)
    await page.keyboard.press("Enter")


async def test_a_reader_logs_in_reads_and_is_gone_when_the_token_is(
    browser: Browser, closed: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK_AGAIN_S", 0.0)
    id_, token = reader_of(closed)
    tab = await opened(browser, closed)
    page = tab.page
    await page.wait_for_selector("#empty #ask-token")
    assert await page.inner_text("#state") == "closed"
    assert await page.locator(".card").count() == 0
    await enters(page, "nothing")
    await page.locator(".ask-complaint", has_text="no token of this pipeline").wait_for()
    await enters(page, token)
    await page.wait_for_selector(CARD)
    await page.locator("#visitor", has_text="You read as bi.").wait_for()
    assert "token" not in await page.evaluate("() => document.cookie")
    assert not [url for url in tab.sent if token in url]
    other = await page.context.new_page()
    await other.goto(closed.url)
    await other.wait_for_selector(CARD)  # another tab of the same browser
    await other.click("#visitor button")
    await other.wait_for_selector("#empty #ask-token")
    await page.reload()
    await page.wait_for_selector(CARD)  # this tab still has its token
    issued_for(closed.built.spec, SEALER).revoke(id_, NOW)
    await closed.go()
    await page.evaluate(LOOK)
    await page.wait_for_selector("#empty #ask-token")
    assert await page.locator(".card").count() == 0


async def test_an_analysts_link_opens_a_closed_page_and_asks(
    browser: Browser, closed: Shop
) -> None:
    tab = await opened(browser, closed)
    await tab.page.wait_for_selector("#empty #ask-token")
    await tab.page.goto("about:blank")
    await tab.page.goto(f"{closed.url}#token={closed.token('ann')}")
    await tab.page.wait_for_selector(CARD)
    await tab.page.wait_for_selector(".ask-form")
    assert "ann" in (await tab.page.inner_text(".ask-who")).lower()
    assert await tab.page.get_by_role("button", name="Log out").count() == 1
    await tab.page.click(".ask-who button")
    await tab.page.wait_for_selector("#empty #ask-token")


async def test_a_proxys_analyst_asks_without_a_login(browser: Browser, closed: Shop) -> None:
    tab = await opened(browser, closed, **{"X-User": "ann@x.org"})
    await tab.page.wait_for_selector(CARD)
    await tab.page.wait_for_selector(".ask-form")
    assert await tab.page.locator(".ask-who button").count() == 0
    assert tab.console.complaints == []
    reader = await opened(browser, closed, **{"X-User": "bob@x.org"})
    await reader.page.wait_for_selector(CARD)
    await reader.page.wait_for_selector("#ask #ask-token")
