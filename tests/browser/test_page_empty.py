"""What stands where there is nothing to show: an engine is away, a search finds nothing; one name everywhere."""

import pytest
from browser.page_worlds import (
    Engine,
    blank,
    drawn,
    opened,
    picture,
    pipeline,
    port_of,
    serving,
    shows,
    text,
)
from playwright.async_api import Browser, Route

pytestmark = pytest.mark.browser

NOTES_PAUSES = """
    const [wait, forget] = [window.setTimeout, window.clearTimeout];
    window.waits = null;
    window.goes = () => {
        const { milliseconds, then } = window.waits;
        window.waits = null;
        then();
        return milliseconds;
    };
    window.setTimeout = (then, milliseconds) => {
        if (!String(new Error().stack).includes("pause.js")) return wait(then, milliseconds);
        window.waits = { then, milliseconds };
        return -1;
    };
    window.clearTimeout = (timer) => { if (timer === -1) window.waits = null; else forget(timer); };
"""


async def test_an_engine_that_is_away_is_said_and_forgotten_when_it_is_back(
    browser: Browser, engine: Engine
) -> None:
    async with serving(engine.log) as server:
        page = await opened(browser, server.url)
        assert await page.locator("#empty").is_hidden()
        port = int(server.url.rstrip("/").rpartition(":")[2])
    await shows(page, "reconnecting")
    said = "The engine does not answer. The page goes on by itself as soon as it does; the numbers below are those"
    await page.locator("#empty", has_text=said).wait_for()
    await picture(page, "away")
    async with serving(engine.log, port=port):
        await shows(page, "live")
        await page.wait_for_selector("#empty", state="hidden")


async def test_a_first_load_that_fails_is_said_and_tried_again_less_and_less_often(
    browser: Browser, engine: Engine
) -> None:
    """Until the engine answers; then the first pause is short again. Pauses are noted, and not waited for."""
    async with serving(engine.log) as server:
        page = await blank(browser)
        await page.add_init_script(NOTES_PAUSES)

        async def fail(route: Route) -> None:
            await route.fulfill(status=503, json={"detail": "no"})

        await page.route("**/api/plan", fail)
        await page.goto(server.url)
        await page.locator(
            "#empty", has_text="Waiting for the engine, which does not answer"
        ).wait_for()
        await shows(page, "waiting")
        for pause in (*(1000 * 2**power for power in range(6)), 32_000, 32_000):
            await page.wait_for_function("() => window.waits !== null")
            assert await page.evaluate("() => window.goes()") == pause
        await page.wait_for_function("() => window.waits !== null")
        await page.unroute("**/api/plan", fail)
        await page.evaluate(
            "document.dispatchEvent(new Event('visibilitychange'))"
        )  # somebody comes back
        await drawn(page)
        await shows(page, "live")
        await page.wait_for_selector("#empty", state="hidden")
        assert await page.evaluate("() => window.waits") is None

        await page.route("**/api/plan", fail)
        again = {**pipeline("f2"), "name": "again"}
    async with serving(engine.log, again, port=port_of(page)):
        await page.wait_for_function("() => window.waits !== null")
        assert await page.evaluate("() => window.goes()") == 1000


async def test_a_search_that_finds_nothing_says_so(browser: Browser, engine: Engine) -> None:
    first = pipeline()["series"][0]
    more = [{**first, "name": f"more_{place}"} for place in range(10)]
    series = [*pipeline()["series"], *more]
    async with serving(engine.log, {**pipeline(), "series": series}) as server:
        page = await opened(browser, server.url)
        await page.fill(".tools input[type=search]", "gate 7")
        await page.wait_for_selector("#empty")
        assert await text(page, "#empty") == "No series has “gate 7” in its name or its words."
        await page.fill(".tools input[type=search]", "more")
        await page.wait_for_selector("#empty", state="hidden")


async def test_a_pipeline_without_series_says_so(browser: Browser) -> None:
    async with serving(Engine().log, {**pipeline(), "series": []}) as server:
        page = await blank(browser)
        await page.goto(server.url)
        await page.locator("#empty", has_text="No series runs.").wait_for()


async def test_a_series_has_one_name_everywhere(browser: Browser, engine: Engine) -> None:
    """Its title, on its card, in the budget and among the mechanisms."""
    first = {**pipeline()["series"][0], "title": "Departures so far"}
    async with serving(engine.log, {**pipeline(), "series": [first]}) as server:
        page = await opened(browser, server.url)
        await page.click("#budget summary")
        await page.click("#proof summary")
        for place in (".card h3", "#budget .legend-name", "#made-departures th"):
            assert await page.locator(place).first.inner_text() == "Departures so far", place
