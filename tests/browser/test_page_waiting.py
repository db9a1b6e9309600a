"""What stands where something is missing: an engine that is away or done, a history that cannot be had, no series."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from browser.page_worlds import (
    HISTORY,
    Engine,
    blank,
    drawn,
    opened,
    pipeline,
    port_of,
    serving,
    shows,
    text,
)
from browser.test_page_queries import ChangingEngine
from playwright.async_api import Browser, Page, Request, Route

pytestmark = pytest.mark.browser

DEPARTURES, BUSIEST = "[data-series=departures]", "[data-series=busiest_destination]"
HISTORIES = "**/api/series/departures?*"
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
        if (!String(new Error().stack).includes("histories.js")) return wait(then, milliseconds);
        window.waits = { then, milliseconds };
        return -1;
    };
    window.clearTimeout = (timer) => { if (timer === -1) window.waits = null; else forget(timer); };
"""
"""Pauses are noted, and not waited for."""
PAUSES = """async (status) => {
    const { Histories } = await import("/histories.js");
    const pauses = [];
    let wake;
    window.setTimeout = (then, milliseconds) => { pauses.push(milliseconds); wake = then; return pauses.length; };
    const get = async () => { throw Object.assign(new Error("no"), { status }); };
    const lost = [];
    const lose = function () { lost.push(this.series.name); this.unknown = true; };
    const card = { latest: { tick: 9 }, missing: () => [[0, 9]], lose, loads: () => {} };
    const cards = ["one", "two"].map((name) => ({ ...card, series: { name } }));
    const histories = new Histories(get, () => {});
    const turn = async () => {
        for (const card of cards) histories.ensure(card, {});
        await new Promise((then) => queueMicrotask(() => queueMicrotask(() => queueMicrotask(then))));
        wake?.();
    };
    for (let many = 0; many < 8; many += 1) await turn();
    histories.resume();
    await turn();
    return [pauses, lost];
}"""


def failing(status: int) -> Callable[[Route], Awaitable[None]]:
    async def fail(route: Route) -> None:
        await route.fulfill(status=status, json={"detail": "no"})

    return fail


async def test_an_engine_that_is_away_is_said_and_forgotten_when_it_is_back(
    browser: Browser, engine: Engine
) -> None:
    async with serving(engine.log) as server:
        page = await opened(browser, server.url)
        assert await page.locator("#empty").is_hidden()
    await shows(page, "reconnecting")
    words = (
        "The engine does not answer. The page continues by itself as soon as the engine answers; the numbers "
        "below were published before."
    )
    await page.locator("#empty", has_text=words).wait_for()
    async with serving(engine.log, port=port_of(page)):
        await shows(page, "live")
        await page.wait_for_selector("#empty", state="hidden")


async def test_a_first_load_that_fails_is_tried_again_less_and_less_often(
    browser: Browser, engine: Engine
) -> None:
    fail = failing(503)
    async with serving(engine.log) as server:
        page = await blank(browser)
        await page.add_init_script(NOTES_PAUSES)
        await page.route("**/api/plan", fail)
        await page.goto(server.url)
        words = "Waiting for the engine, which does not answer"
        await page.locator("#empty", has_text=words).wait_for()
        await shows(page, "waiting")
        for pause in (*(1000 * 2**power for power in range(6)), 32_000, 32_000):
            await page.wait_for_function("() => window.waits !== null")
            assert await page.evaluate("() => window.goes()") == pause
        await page.wait_for_function("() => window.waits !== null")
        await page.unroute("**/api/plan", fail)
        # somebody comes back to the tab
        await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        await drawn(page)
        await shows(page, "live")
        await page.wait_for_selector("#empty", state="hidden")
        assert await page.evaluate("() => window.waits") is None
        await page.route("**/api/plan", fail)
    async with serving(engine.log, {**pipeline("f2"), "name": "again"}, port=port_of(page)):
        await page.wait_for_function("() => window.waits !== null")
        assert await page.evaluate("() => window.goes()") == 1000  # the first pause is short again


async def test_a_pipeline_without_series_says_so(browser: Browser) -> None:
    async with serving(Engine().log, {**pipeline(), "series": []}) as server:
        page = await blank(browser)
        await page.goto(server.url)
        await page.locator("#empty", has_text="No series runs.").wait_for()


# --- histories ----------------------------------------------------------------------------------


async def test_a_series_that_is_gone_says_so_and_is_not_asked_for_again(
    browser: Browser, engine: Engine
) -> None:
    asked: list[Request] = []
    async with serving(engine.log) as server:
        page = await blank(browser, viewport={"width": 1280, "height": 900})
        await page.clock.install()
        page.on(
            "request", lambda one: asked.append(one) if "series/departures" in one.url else None
        )
        await page.route(HISTORIES, failing(404))
        await page.goto(server.url)
        words = "The engine no longer knows this series"
        await page.locator(f"{DEPARTURES} .note", has_text=words).wait_for()
        await drawn(page)
        assert (await text(page, f"{DEPARTURES} .tag")).endswith("· no longer known")
        assert await text(page, f"{DEPARTURES} .value") == "14,896"
        await page.clock.fast_forward("10:00")
        for _ in range(5):
            engine.publish("busiest_destination", {"value": 9, "band": 3})
            engine.tick += 1
        await page.wait_for_selector(f"{BUSIEST}[data-tick='{HISTORY + 4}']")
        assert len(asked) == 1

        await page.unroute(HISTORIES)
        engine.step()  # until it releases something: then it is there
        await page.wait_for_selector(f"{DEPARTURES}[data-received='{HISTORY + 1}']")
        assert await text(page, f"{DEPARTURES} .tag") == "count so far"
        assert (await text(page, f"{DEPARTURES} .note")).startswith("The exact figure lies between")


async def test_a_history_that_fails_is_asked_for_when_the_engine_is_back(
    browser: Browser, engine: Engine
) -> None:
    fail = failing(503)
    async with serving(engine.log) as server:
        page = await blank(browser, viewport={"width": 1280, "height": 900})
        await page.route(HISTORIES, fail)
        await page.add_init_script(NOTES_PAUSES)
        await page.goto(server.url)
        words = "cannot be loaded now"
        await page.locator(f"{DEPARTURES} .note", has_text=words).wait_for()
        await shows(page, "live")
        await page.wait_for_function("() => window.waits !== null")  # and it never ends
        await page.unroute(HISTORIES, fail)
    await shows(page, "reconnecting")
    async with serving(engine.log, port=port_of(page)):
        await shows(page, "live")
        await page.wait_for_selector(f"{DEPARTURES}[data-received='{HISTORY}']")
        assert (await text(page, f"{DEPARTURES} .note")).startswith("The exact figure lies between")


@pytest.mark.parametrize(
    ("status", "pauses", "lost"),
    [
        (503, [*(1000 * 2**power for power in range(6)), 32_000, 32_000, 1000], []),
        (None, [*(1000 * 2**power for power in range(6)), 32_000, 32_000, 1000], []),
        (404, [], ["one", "two"]),
    ],
)
async def test_pauses_of_all_series_grow_to_a_bound_and_begin_anew(
    browser: Browser, engine: Engine, status: int | None, pauses: list[int], lost: list[str]
) -> None:
    async with serving(engine.log) as server:
        page = await blank(browser)
        await page.goto(f"{server.url}api/pipeline")  # where the page's own script does not run
        assert await page.evaluate(PAUSES, status) == [pauses, lost]


# --- the end of a run ---------------------------------------------------------------------------

LAST = HISTORY + 1


def ending(engine: Engine) -> dict[str, Any]:
    """What the server shows of a run that ends after `LAST`."""
    clock = {**pipeline()["clock"], "horizon": LAST + 1}
    view = ChangingEngine().view()
    over = {
        "pipeline": lambda: {**pipeline(), "clock": clock, "over": engine.log.ticks == LAST + 1}
    }
    return {**view, **over}


async def says_that_it_is_over(page: Page) -> None:
    """Wait until the head and the list of series say so."""
    await shows(page, "ended")
    await page.locator("#queries .count", has_text="4 ran to the end, 0 halted").wait_for()
    await page.locator("[data-query=departures]", has_text="ran to the end").wait_for()
    assert await text(page, "#subtitle") == "differentially private, one release per hour"


async def test_an_open_page_says_at_the_last_tick_that_the_run_is_over(
    browser: Browser, engine: Engine
) -> None:
    async with serving(engine.log, **ending(engine)) as server:
        page = await opened(browser, server.url)
        await shows(page, "live")
        await page.route("**/api/*", lambda route: route.abort())
        engine.step()
        await page.wait_for_selector(f"{DEPARTURES}[data-tick='{HISTORY}']")
        assert await text(page, "#queries .count") == "4 running, 0 halted"
        subtitle = "live, differentially private, one release per hour"
        assert await text(page, "#subtitle") == subtitle
        engine.step()
        await page.wait_for_selector(f"{DEPARTURES}[data-tick='{LAST}']")
        await says_that_it_is_over(page)


async def test_an_engine_that_goes_after_the_last_tick_is_not_waited_for(
    browser: Browser, engine: Engine
) -> None:
    async with serving(engine.log, **ending(engine)) as server:
        page = await opened(browser, server.url)
        engine.step()
        engine.step()
        await says_that_it_is_over(page)
    words = "The run is over, and its engine has ended."
    await page.locator("#empty", has_text=words).wait_for()
    assert await text(page, "#state") == "ended"
