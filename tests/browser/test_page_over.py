"""A page that is open when a run comes to its last tick says so, also where the engine goes then."""

from typing import Any

import pytest
from browser.page_worlds import HISTORY, Engine, opened, picture, pipeline, serving, shows, text
from browser.test_page_queries import ChangingEngine
from playwright.async_api import Browser, Page

pytestmark = pytest.mark.browser

LAST = HISTORY + 1
NO_INTERVALS = "window.setInterval = () => 0"


def view(engine: Engine, changing: ChangingEngine) -> dict[str, Any]:
    """What the server shows of a run that ends after `LAST`."""
    clock = {**pipeline()["clock"], "horizon": LAST + 1}
    return {
        **changing.view(),
        "pipeline": lambda: {**pipeline(), "clock": clock, "over": engine.log.ticks == LAST + 1},
    }


async def says_that_it_is_over(page: Page) -> None:
    """Wait until the head and the list of series say so."""
    await shows(page, "ended")
    await page.locator("#queries .count", has_text="4 ran to the end, 0 halted").wait_for()
    await page.locator("[data-query=departures]", has_text="ran to the end").wait_for()
    assert await text(page, "#subtitle") == "differentially private, one release per hour"


@pytest.mark.parametrize("ticks", [1, 2])
async def test_a_page_that_is_open_over_the_last_tick_says_that_the_run_is_over(
    browser: Browser, engine: Engine, ticks: int
) -> None:
    """By what was released, without a look at the engine; until the last tick it says that it runs."""
    async with serving(engine.log, **view(engine, ChangingEngine())) as server:
        page = await opened(browser, server.url)
        await shows(page, "live")
        await page.route("**/api/*", lambda route: route.abort())
        for _ in range(ticks):
            engine.step()
        await page.wait_for_selector(f"[data-series=departures][data-tick='{HISTORY + ticks - 1}']")
        if ticks == 1:
            assert await text(page, "#queries .count") == "4 running, 0 halted"
            assert (
                await text(page, "#subtitle")
                == "live, differentially private, one release per hour"
            )
        else:
            await says_that_it_is_over(page)


async def test_an_engine_that_goes_after_the_last_tick_is_not_waited_for(
    browser: Browser, engine: Engine
) -> None:
    async with serving(engine.log, **view(engine, ChangingEngine())) as server:
        page = await opened(browser, server.url)
        engine.step()
        engine.step()
        await says_that_it_is_over(page)
    said = page.locator("#empty", has_text="The run is over, and its engine has gone.")
    await said.wait_for()
    assert await text(page, "#state") == "ended"
    await picture(page, "over")
