"""Asking when it is not quiet: two analysts at once, and an engine that begins again in the middle."""

import pytest
from browser.ask_worlds import TICKS, Shop, Tab, nothing_exact
from browser.page_worlds import PATIENCE_MS
from playwright.async_api import Browser

pytestmark = pytest.mark.browser

ENDS = ".card[data-series={}] .card-ask button"


async def test_two_at_once_see_all_and_end_their_own(browser: Browser, shop: Shop) -> None:
    tokens = {name: shop.token(name) for name in ("ann", "bob")}
    ann, bob = await Tab.opened(browser, shop), await Tab.opened(browser, shop)
    await ann.enters(tokens["ann"])
    await bob.enters(tokens["bob"])
    await ann.question("count", "of_ann", "0.2")
    await bob.question("count", "of_bob", "0.1")
    assert shop.running == {"of_ann": "ann", "of_bob": "bob"}
    await shop.go(2)
    for tab, own, others, left in (
        (ann, "of_ann", "of_bob", "0.8"),
        (bob, "of_bob", "of_ann", "0.4"),
    ):
        for name in (own, others):
            await tab.page.wait_for_selector(f".card[data-series={name}][data-tick='{shop.tick}']")
            await tab.knows(name)
        await tab.left(left)
        await tab.page.locator(
            ENDS.format(own)
        ).wait_for()  # what is hers is learned beside the list
        assert await tab.page.locator(ENDS.format(others)).count() == 0
    refused = await bob.page.request.delete(
        f"http://127.0.0.1:{shop.port}/api/queries/of_ann",
        headers={"Authorization": f"Bearer {tokens['bob']}"},
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
    """Her token is good, her card goes on, what she typed stands there, and her budget is what it was."""
    tab = await Tab.opened(browser, shop)
    await tab.enters(shop.token("ann"))
    await tab.question("count", "first", "0.2")
    await shop.go(2)
    await tab.fills("histogram", {"by": "country", "name": "second"})
    await tab.by("epsilon", "0.3")
    tab.console.tolerant = True
    await shop.stop()
    assert "The engine does not answer just now" in await tab.prices()
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


async def test_when_all_ticks_are_released_the_form_goes_and_why_is_said(
    browser: Browser, shop: Shop
) -> None:
    """Nothing is offered that would be refused: neither a question nor the end of one."""
    ann, new = await Tab.opened(browser, shop), await Tab.opened(browser, shop)
    await ann.enters(shop.token("ann"))
    await ann.question("count", "mine", "0.2")
    await shop.go(TICKS - 1 - shop.tick)
    pipeline = await (
        await ann.page.request.get(
            f"http://127.0.0.1:{shop.port}/api/pipeline", timeout=PATIENCE_MS
        )
    ).json()
    assert pipeline["over"] is True
    for tab in (ann, new):
        await tab.page.locator("[data-query=mine]", has_text="ran to the end").wait_for()
        said = await tab.page.inner_text(".ask-over")
        assert said.startswith("All ticks are released, so nothing new can be asked")
        assert await tab.page.locator(".ask-form, #ask-token, .card-ask button").count() == 0
        assert tab.console.complaints == []
    assert "ann" in await ann.page.inner_text(".ask-who")
    assert await nothing_exact(ann) == []
