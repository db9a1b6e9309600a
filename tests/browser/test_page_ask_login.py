"""Who may ask: tokens that are wrong or over are said in words; the keyboard is enough; everybody can use it."""

from typing import Literal

import pytest
from browser.ask_worlds import GIVEN, HOLDS, LOOK, NOW, Shop, Tab
from browser.page_worlds import picture
from browser.test_page_accessible import findings
from playwright.async_api import Browser

pytestmark = pytest.mark.browser

DAY = 86_400_000
FOCUSED = "() => document.activeElement.textContent.trim()"
UNFOLD = "() => document.querySelectorAll('#ask details').forEach(each => { each.open = true; })"


async def test_a_token_that_is_no_good_is_said_in_words(browser: Browser, shop: Shop) -> None:
    tab = await Tab.opened(browser, shop)
    good, old = shop.token("ann"), shop.token("bob", 1, NOW - 2 * DAY)
    revoked = shop.token("ann")
    shop.revoke(revoked)
    wrong = {
        "no token at all": "this is no token of this pipeline",
        good[:-1] + ("0" if good[-1] != "0" else "1"): "this is no token of this pipeline",
        old: "this token has expired; ask the operator for another one",
        revoked: "this token was revoked; ask the operator for another one",
    }
    for token, told in wrong.items():
        await tab.page.evaluate("() => document.querySelector('.ask-complaint')?.remove()")
        await tab.page.fill("#ask-token", token)
        await tab.page.keyboard.press("Enter")
        await tab.page.locator(".ask-complaint", has_text=told).wait_for()
        assert await tab.page.evaluate("() => sessionStorage.length") == 0
    await picture(tab.page, "ask-login")
    await tab.page.fill("#ask-token", "")
    await tab.enters(good)
    shop.revoke(good)
    await tab.page.evaluate(LOOK)
    await tab.page.locator(
        ".ask-login .ask-complaint", has_text="this token was revoked"
    ).wait_for()
    assert await tab.page.locator(".ask-form").count() == 0
    assert {each for each in tab.console.complaints if "401" not in each} == set()


@pytest.mark.parametrize("revoked", [False, True])
async def test_an_answer_to_who_was_here_before_is_for_nobody(
    browser: Browser, shop: Shop, revoked: bool
) -> None:
    """It came late: she has logged out, and another one may have logged in."""
    tab = await Tab.opened(browser, shop)
    page, ann, bob = tab.page, shop.token("ann"), shop.token("bob")
    await page.add_init_script(HOLDS)
    await page.reload()
    await tab.enters(ann)
    for other in (None, bob):
        if revoked:
            shop.revoke(ann)
        await page.evaluate("() => { window.held = []; window.holding = '/api/me'; }")
        await page.evaluate(LOOK)
        await page.wait_for_function("() => window.held.length >= 1")
        await page.evaluate("() => { window.holding = null; }")
        await page.click("text=Log out")
        await page.wait_for_selector("#ask-token")
        if other is not None:
            await tab.enters(other)
        await page.evaluate(GIVEN)
        assert await page.locator(".ask-form").count() == int(other is not None)
        assert await page.locator(".ask-complaint").count() == 0
        if other is None:
            ann = shop.token("ann")
            await tab.enters(ann)
    assert "bob" in await page.inner_text(".ask-who")
    assert {each for each in tab.console.complaints if "401" not in each} == set()


async def test_the_keyboard_is_enough(browser: Browser, shop: Shop) -> None:
    tab = await Tab.opened(browser, shop)
    page = tab.page
    await tab.enters(shop.token("ann"))
    await page.wait_for_function("() => document.activeElement.name === 'statistic'")
    for key, statistic in (("End", "alerts"), ("Home", "count")):  # letters would have to come fast
        await page.keyboard.press(key)
        assert await page.input_value(".ask-form [name=statistic]") == statistic
    await reaches(tab, "Show the price")
    await page.keyboard.press("Enter")
    await page.wait_for_function("() => document.activeElement.closest('.ask-answer h3')")
    await reaches(tab, "Why it costs that")
    await page.keyboard.press("Enter")
    await reaches(tab, "Ask this for")
    await page.keyboard.press("Enter")
    await page.wait_for_function("() => document.activeElement.closest('.ask-done')")
    assert list(shop.running.values()) == ["ann"]
    assert tab.console.complaints == []


async def reaches(tab: Tab, text: str) -> None:
    """Go on with the tabulator to what has this text."""
    for _ in range(40):
        await tab.page.keyboard.press("Tab")
        if (await tab.page.evaluate(FOCUSED)).startswith(text):
            return
    raise AssertionError(f"the keyboard does not come to {text!r}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_nothing_grave_is_found_in_form_price_and_refusal(
    browser: Browser, shop: Shop, scheme: Literal["light", "dark"]
) -> None:
    tab = await Tab.opened(browser, shop, *((1280, 900) if scheme == "light" else (390, 844)))
    await tab.page.emulate_media(color_scheme=scheme)
    assert await findings(tab.page) == []
    await tab.enters(shop.token("ann"))
    await tab.page.click("text=Only some records")
    assert await findings(tab.page) == []
    await tab.fills("count", {})
    await tab.page.select_option("[name=where-field]", "country")
    await tab.page.select_option("[name=where-value]", "DE")
    await tab.by("error", "90")
    assert "It costs" in await tab.prices()
    await tab.page.evaluate(UNFOLD)
    await picture(tab.page, f"ask-price-{scheme}")
    assert await findings(tab.page) == []
    await tab.asks()
    await tab.by("error", "1")
    assert "It does not fit" in await tab.prices()
    await tab.page.evaluate(UNFOLD)
    await picture(tab.page, f"ask-refusal-{scheme}")
    assert await findings(tab.page) == []
