"""What an analyst does with cards: asks a monitor a threshold, puts them in an order of her own."""

import re

import pytest
from browser.ask_worlds import GIVEN, HOLDS, LOOK, Shop, Tab, nothing_exact
from playwright.async_api import Browser

pytestmark = pytest.mark.browser

CARDS = "() => [...document.querySelectorAll('#cards > .card')].map(card => card.dataset.series)"
ORDER = f"wanted => String(({CARDS})()) === String(wanted)"
AS_THEY_COME, HERS = ["orders", "watched"], ["watched", "orders"]


async def test_a_monitor_is_asked_a_threshold_on_its_card(browser: Browser, shop: Shop) -> None:
    tab = await Tab.opened(browser, shop)
    await tab.enters(shop.token("ann"))
    card = tab.page.locator(".card[data-series=watched]")
    answers: list[tuple[str, str | re.Pattern[str]]] = [
        ("50000", "No: large has not passed 50,000, up to ±"),
        ("1", re.compile("large has (not )?passed 1, up to ±")),
    ]
    for threshold, told in answers:
        await card.locator("[type=number]").fill(threshold)
        await card.get_by_role("button", name="Ask").click()
        await card.locator("output", has_text=told).wait_for()
        await shop.go()
    assert await nothing_exact(tab) == []
    assert tab.console.complaints == []


async def test_a_late_list_takes_nothing_from_her_cards(browser: Browser, shop: Shop) -> None:
    tab = await Tab.opened(browser, shop)
    page = tab.page
    await page.add_init_script(HOLDS)
    await page.reload()
    await tab.enters(shop.token("ann"))
    await page.evaluate("() => { window.holding = '/api/queries'; }")
    await page.evaluate(LOOK)
    await page.wait_for_function("() => window.held.length >= 2")  # the page's, and that of asking
    await page.evaluate("() => { window.holding = null; }")
    await tab.question("count", "mine", "0.2")
    ends = page.locator(".card[data-series=mine] .card-ask button")
    await ends.wait_for()
    await page.evaluate(GIVEN)
    assert await ends.count() == 1
    assert tab.console.complaints == []


async def test_her_order_of_cards_is_kept_and_is_hers(browser: Browser, shop: Shop) -> None:
    """The order is that of the document, so it is read, tabbed and printed like this; what is put away is not there."""
    ann, bob = shop.token("ann"), shop.token("bob")
    tab = await Tab.opened(browser, shop)
    page = tab.page
    await page.wait_for_function(ORDER, arg=AS_THEY_COME)
    await tab.enters(ann)
    await page.click("text=Arrange my cards")
    await page.focus("#layout-watched-up")
    await page.keyboard.press("Enter")
    await page.wait_for_function(ORDER, arg=HERS)
    await page.wait_for_function("() => document.activeElement.id === 'layout-watched'")
    await page.uncheck("#layout-orders")
    await page.wait_for_selector(".card[data-series=orders]", state="hidden")
    await tab.question("count", "new", "0.1")
    await page.wait_for_function(ORDER, arg=[*HERS, "new"])

    await page.reload()
    await page.wait_for_selector(".ask-form")
    await page.wait_for_function(ORDER, arg=[*HERS, "new"])
    assert await page.is_hidden(".card[data-series=orders]")
    assert await page.locator(".card[style*=order]").count() == 0

    await page.click("text=Log out")
    await page.wait_for_function(ORDER, arg=["orders", "new", "watched"])
    assert await page.is_visible(".card[data-series=orders]")
    await tab.enters(bob)
    await page.wait_for_function(ORDER, arg=["orders", "new", "watched"])
    assert tab.console.complaints == []
