"""Who may ask, and what becomes of it: tokens, the keyboard, two analysts, a restart, the end, cards of her own."""

import re
from typing import Literal

import pytest
from browser.ask_worlds import GIVEN, HOLDS, LOOK, NOW, TICKS, Shop, Tab, nothing_exact
from browser.page_worlds import PATIENCE_MS
from browser.test_page_layout import findings
from playwright.async_api import Browser

pytestmark = pytest.mark.browser

DAY = 86_400_000
FOCUSED = "() => document.activeElement.textContent.trim()"
UNFOLD = "() => document.querySelectorAll('#ask details').forEach(each => { each.open = true; })"
CARDS = "() => [...document.querySelectorAll('#cards > .card')].map(card => card.dataset.series)"
ORDER = f"wanted => String(({CARDS})()) === String(wanted)"
ENDS = ".card[data-series={}] .card-ask button"

# --- tokens and access --------------------------------------------------------------------------


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
    complaint = tab.page.locator(".ask-complaint")
    for token, words in wrong.items():
        await tab.page.evaluate("() => document.querySelector('.ask-complaint')?.remove()")
        await tab.page.fill("#ask-token", token)
        await tab.page.keyboard.press("Enter")
        await complaint.filter(has_text=words).wait_for()
        assert await tab.page.evaluate("() => sessionStorage.length") == 0
    await tab.page.fill("#ask-token", "")
    await tab.enters(good)
    shop.revoke(good)
    await tab.page.evaluate(LOOK)
    await complaint.filter(has_text="this token was revoked").wait_for()
    assert await tab.page.locator(".ask-form").count() == 0
    assert {each for each in tab.console.complaints if "401" not in each} == set()


async def test_a_link_brings_a_token_that_leaves_the_address(browser: Browser, shop: Shop) -> None:
    tab = await Tab.opened(browser, shop)
    await tab.page.goto("about:blank")
    await tab.page.goto(f"{shop.url}?last=all#token={shop.token('ann')}")
    await tab.page.wait_for_selector(".ask-form")
    assert await tab.page.evaluate("() => location.href") == f"{shop.url}?last=all"
    assert "ann" in await tab.page.inner_text(".ask-who")
    assert tab.console.complaints == []


@pytest.mark.parametrize("revoked", [False, True])
async def test_an_answer_to_who_was_here_before_is_for_nobody(
    browser: Browser, shop: Shop, revoked: bool
) -> None:
    tab = await Tab.opened(browser, shop)
    page, ann, bob = tab.page, shop.token("ann"), shop.token("bob")
    await page.add_init_script(HOLDS)
    await page.reload()
    for other in (None, bob):
        await tab.enters(ann)
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
        await page.evaluate(GIVEN)  # the answer is late
        assert await page.locator(".ask-form").count() == int(other is not None)
        assert await page.locator(".ask-complaint").count() == 0
        ann = shop.token("ann")
    assert "bob" in await page.inner_text(".ask-who")
    assert {each for each in tab.console.complaints if "401" not in each} == set()


async def test_the_keyboard_is_enough(browser: Browser, shop: Shop) -> None:
    tab = await Tab.opened(browser, shop, "ann")
    page = tab.page
    await page.wait_for_function("() => document.activeElement.name === 'statistic'")
    for key, statistic in (("End", "alerts"), ("Home", "count")):  # letters would have to come fast
        await page.keyboard.press(key)
        assert await page.input_value(".ask-form [name=statistic]") == statistic
    for words, leads_to in (
        ("Show the price", ".ask-answer h3"), ("Why it costs this much", ".ask-why"), ("Ask this for", ".ask-done"),
    ):  # fmt: skip
        await reaches(tab, words)
        await page.keyboard.press("Enter")
        await page.wait_for_function(f"() => document.activeElement.closest('{leads_to}')")
    assert list(shop.running.values()) == ["ann"]
    assert tab.console.complaints == []


async def reaches(tab: Tab, words: str) -> None:
    """Go on with the tabulator to what has this text."""
    for _ in range(40):
        await tab.page.keyboard.press("Tab")
        if (await tab.page.evaluate(FOCUSED)).startswith(words):
            return
    raise AssertionError(f"the keyboard does not come to {words!r}")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
async def test_nothing_grave_is_found_in_form_price_and_refusal(
    browser: Browser, shop: Shop, scheme: Literal["light", "dark"], width: int
) -> None:
    tab = await Tab.opened(browser, shop, width=width)
    await tab.page.emulate_media(color_scheme=scheme)
    assert await findings(tab.page) == []
    await tab.enters(shop.token("ann"))
    await tab.fills("count", {})
    await tab.only_gifts("true")
    assert await findings(tab.page) == []
    for error, answer in (("90", "It costs"), ("1", "It does not fit")):
        await tab.by("error", error)
        assert answer in await tab.prices()
        await tab.page.evaluate(UNFOLD)
        assert await findings(tab.page) == []


# --- not alone ----------------------------------------------------------------------------------


async def test_two_at_once_see_all_and_end_their_own(browser: Browser, shop: Shop) -> None:
    ann, bob = [await Tab.opened(browser, shop, name) for name in ("ann", "bob")]
    await ann.question("count", "of_ann", "0.2")
    await bob.question("count", "of_bob", "0.1")
    assert shop.running == {"of_ann": "ann", "of_bob": "bob"}
    await shop.go(2)
    for tab, own, others, left in (
        (ann, "of_ann", "of_bob", "0.8"), (bob, "of_bob", "of_ann", "0.4"),
    ):  # fmt: skip
        for name in (own, others):
            await tab.page.wait_for_selector(f".card[data-series={name}][data-tick='{shop.tick}']")
            await tab.page.evaluate(LOOK)
            await tab.page.wait_for_selector(f"[data-query='{name}']", state="attached")
        await tab.left(left)
        await tab.page.locator(ENDS.format(own)).wait_for()  # learned beside the list
        assert await tab.page.locator(ENDS.format(others)).count() == 0
    refused = await bob.page.request.delete(
        f"{shop.url}api/queries/of_ann",
        headers={"Authorization": f"Bearer {shop.token('bob')}"},
        timeout=PATIENCE_MS,
    )
    assert refused.status in (403, 404)
    assert shop.running == {"of_ann": "ann", "of_bob": "bob"}
    for tab in (ann, bob):
        assert await nothing_exact(tab) == []
        assert tab.console.complaints == []


async def test_an_engine_that_begins_again_keeps_her_where_she_was(
    browser: Browser, shop: Shop
) -> None:
    tab = await Tab.opened(browser, shop, "ann")
    await tab.question("count", "first", "0.2")
    await shop.go(2)
    await tab.fills("histogram", {"by": "country", "name": "second"})
    await tab.by("epsilon", "0.3")
    tab.console.tolerant = True
    await shop.stop()
    assert "The engine does not answer now" in await tab.prices()
    await shop.start()
    await shop.go()
    await tab.page.wait_for_selector(f".card[data-series=first][data-tick='{shop.tick}']")
    await tab.page.wait_for_selector("#state:not([data-state=reconnecting])")
    typed = {"statistic": "histogram", "by": "country", "name": "second", "epsilon": "0.3"}
    for name, value in typed.items():
        assert await tab.page.input_value(f".ask-form [name={name}]") == value
    assert "It costs ε 0.3" in await tab.prices()
    assert await tab.asks() == "second"
    await tab.left("0.5")
    assert shop.running == {"first": "ann", "second": "ann"}
    await shop.go(2)  # its ticks are long: it begins with the next one
    await tab.page.wait_for_selector(f".card[data-series=second][data-tick='{shop.tick}']")
    assert await nothing_exact(tab) == []
    assert tab.console.complaints == []


async def test_when_all_ticks_are_released_nothing_is_offered_and_why_is_said(
    browser: Browser, shop: Shop
) -> None:
    ann, new = await Tab.opened(browser, shop, "ann"), await Tab.opened(browser, shop)
    await ann.question("count", "mine", "0.2")
    await shop.go(TICKS - 1 - shop.tick)
    for tab in (ann, new):
        await tab.page.locator("[data-query=mine]", has_text="ran to the end").wait_for()
        words = await tab.page.inner_text(".ask-over")
        assert words.startswith("All ticks are released, so nothing new can be asked")
        assert await tab.page.locator(".ask-form, #ask-token, .card-ask button").count() == 0
        assert tab.console.complaints == []
    assert "ann" in await ann.page.inner_text(".ask-who")
    assert await nothing_exact(ann) == []


# --- her cards ----------------------------------------------------------------------------------


async def test_a_monitor_is_asked_a_threshold_on_its_card(browser: Browser, shop: Shop) -> None:
    tab = await Tab.opened(browser, shop, "ann")
    card = tab.page.locator(".card[data-series=watched]")
    for threshold, words in (
        ("50000", "No: large has not passed 50,000, up to ±"),
        ("1", "large has (not )?passed 1, up to ±"),
    ):
        await card.locator("[type=number]").fill(threshold)
        await card.get_by_role("button", name="Ask").click()
        await card.locator("output", has_text=re.compile(words)).wait_for()
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
    ends = page.locator(ENDS.format("mine"))
    await ends.wait_for()
    await page.evaluate(GIVEN)
    assert await ends.count() == 1
    assert tab.console.complaints == []


async def test_her_order_of_cards_is_kept_and_is_hers(browser: Browser, shop: Shop) -> None:
    """The order is that of the document, so it is read and tabbed like this; what is put away is not there."""
    tab = await Tab.opened(browser, shop)
    page, hers = tab.page, ["watched", "orders"]
    await page.wait_for_function(ORDER, arg=["orders", "watched"])
    await tab.enters(shop.token("ann"))
    await page.click("text=Arrange my cards")
    await page.focus("#layout-watched-up")
    await page.keyboard.press("Enter")
    await page.wait_for_function(ORDER, arg=hers)
    await page.wait_for_function("() => document.activeElement.id === 'layout-watched'")
    await page.uncheck("#layout-orders")
    await page.wait_for_selector(".card[data-series=orders]", state="hidden")
    await tab.question("count", "new", "0.1")
    await page.wait_for_function(ORDER, arg=[*hers, "new"])

    await page.reload()
    await page.wait_for_selector(".ask-form")
    await page.wait_for_function(ORDER, arg=[*hers, "new"])
    assert await page.is_hidden(".card[data-series=orders]")
    assert await page.locator(".card[style*=order]").count() == 0

    await page.click("text=Log out")
    await page.wait_for_function(ORDER, arg=["orders", "new", "watched"])
    assert await page.is_visible(".card[data-series=orders]")
    await tab.enters(shop.token("bob"))
    await page.wait_for_function(ORDER, arg=["orders", "new", "watched"])
    assert tab.console.complaints == []
