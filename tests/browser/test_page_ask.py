"""An analyst asks from the page, without a terminal: prices, refusals, two at once, a restart, nothing exact."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from browser.ask_worlds import EXACT, NOWHERE, Shop, Tab
from browser.page_worlds import picture
from playwright.async_api import Browser

pytestmark = pytest.mark.browser


@pytest_asyncio.fixture(loop_scope="session")
async def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shop]:
    """An engine that runs, with its page."""
    monkeypatch.setenv("STREAM_DP_TOKEN_LIST", str(tmp_path / "tokens"))
    async with Shop(tmp_path) as made:
        yield made


async def test_three_questions_without_a_terminal(browser: Browser, shop: Shop) -> None:
    tab = await Tab.opened(browser, shop)
    await tab.enters(shop.token("ann"))
    await tab.fills("count", {"windows": "3h"})
    await tab.by("error", "60")
    told = await tab.prices()
    assert "It costs ε" in told
    assert "Beside orders, which shows" in told
    assert "Left after it" in told
    await picture(tab.page, "ask-price")
    first = await tab.asks()
    assert first == "count"

    await tab.fills("histogram", {"by": "country"})
    await tab.by("epsilon", "0.2")
    assert "It costs ε 0.2" in await tab.prices()
    await tab.page.click(".ask-why summary")
    assert "[HSV]" in await tab.page.inner_text(".ask-why")
    second = await tab.asks()

    await tab.fills("sum", {"of": "amount", "clamp": "0", "clamp-2": "999999999"})
    await tab.page.click("text=Only some records")
    await tab.page.select_option("[name=where-field]", "gift")
    await tab.page.select_option("[name=where-value]", "false")
    await tab.by("epsilon", "0.1")
    await tab.prices()
    third = await tab.asks()
    assert shop.running == {first: "ann", second: "ann", third: "ann"}

    await shop.go(3)
    for name in (first, second, third):
        await tab.page.wait_for_selector(f".card[data-series='{name}'][data-tick='{shop.tick}']")
    await tab.page.click(".ask-trail summary")
    rows = tab.page.locator(".ask-trail tbody tr")
    assert await rows.count() == 3
    spent = await tab.page.locator(f"[data-spent='{second}']").inner_text()
    assert spent.split() == ["ann", "histogram", "by", "country", "histogram", "0.2", "2", "runs"]
    assert await nothing_exact(tab) == []
    assert tab.console.complaints == []


async def nothing_exact(tab: Tab) -> list[str]:
    """What a tab has been told that nobody may learn: exact sums, a value of no domain."""
    texts = await tab.everything()
    plain = [text.replace(",", "").replace("\N{NARROW NO-BREAK SPACE}", "") for text in texts]
    assert len(plain) > 10
    return [secret for secret in (*EXACT, NOWHERE) if any(secret in text for text in plain)]
