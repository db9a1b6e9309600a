"""An analyst asks from the page, without a terminal: prices, a refusal and what fits, an end, nothing exact."""

import pytest
from browser.ask_worlds import Shop, Tab, nothing_exact
from browser.page_worlds import picture
from playwright.async_api import Browser

pytestmark = pytest.mark.browser


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


async def test_a_refusal_says_what_fits_and_a_button_takes_it(browser: Browser, shop: Shop) -> None:
    tab = await Tab.opened(browser, shop)
    await tab.enters(shop.token("bob"))
    await tab.fills("count", {})
    await tab.by("error", "2")
    told = await tab.prices()
    assert "It does not fit; nothing was spent" in told
    assert "Of your ε 0.5 you have spent ε 0, and ε 0.5 is left" in told
    await picture(tab.page, "ask-refusal")
    await tab.page.click("text=Take ε 0.5")
    await tab.page.wait_for_selector("text=It costs ε 0.5")
    assert await tab.page.input_value("[name=epsilon]") == "0.5"
    await tab.asks()
    await tab.left("0")
    assert shop.running == {"count": "bob"}
    await tab.by("epsilon", "0.1")
    assert "Nothing fits now: end a question of yours" in await tab.prices()
    assert shop.running == {"count": "bob"}
    assert await nothing_exact(tab) == []
    assert tab.console.complaints == []


async def test_what_is_ended_frees_its_price(browser: Browser, shop: Shop) -> None:
    tab = await Tab.opened(browser, shop)
    await tab.enters(shop.token("ann"))
    await tab.question("count", "short_lived", "0.75")
    await shop.go(2)
    await tab.left("0.25")
    card = tab.page.locator(".card[data-series=short_lived]")
    await card.get_by_role("button", name="End this question").click()
    await card.get_by_role("button", name="Keep it").click()
    assert shop.running == {"short_lived": "ann"}
    await card.get_by_role("button", name="End this question").click()
    await card.get_by_role("button", name="End it for good").click()
    await tab.page.wait_for_selector("[data-spent=short_lived].halted", state="attached")
    assert shop.running == {}
    await tab.left("1")
    await tab.question("count", "next", "0.9")
    assert shop.running == {"next": "ann"}
    assert tab.console.complaints == []
