"""What was released before the page was opened, where it cannot be had: said, and asked for as often as makes sense."""

import pytest
from browser.page_worlds import (
    HISTORY,
    Engine,
    blank,
    drawn,
    picture,
    port_of,
    serving,
    shows,
    text,
)
from playwright.async_api import Browser, Page, Request, Route

from stream_dp.server.server import PageServer

pytestmark = pytest.mark.browser

DEPARTURES = "[data-series=departures]"
HISTORIES = "**/api/series/departures?*"
PAUSES = """async (status) => {
    const { Histories } = await import("/histories.js");
    const pauses = [];
    let wake;
    window.setTimeout = (then, milliseconds) => { pauses.push(milliseconds); wake = then; return pauses.length; };
    const get = async () => { throw Object.assign(new Error("no"), { status }); };
    const lost = [];
    const lose = function () { lost.push(this.series.name); this.unknown = true; };
    const card = { latest: { tick: 9 }, missing: () => [[0, 9]], lose };
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


async def asking(page: Page) -> list[Request]:
    """The requests for the history, from now on."""
    asked: list[Request] = []

    def note(request: Request) -> None:
        if "/api/series/departures" in request.url:
            asked.append(request)

    page.on("request", note)
    return asked


async def test_a_series_that_is_gone_says_so_and_is_not_asked_for_again(
    browser: Browser, engine: Engine
) -> None:
    """Until it releases something: then it is there."""
    async with serving(engine.log) as server:
        page = await blank(browser, viewport={"width": 1280, "height": 900})
        await page.clock.install()
        asked = await asking(page)
        await page.route(HISTORIES, lambda route: route.fulfill(status=404, json={"detail": "no"}))
        await page.goto(server.url)
        said = page.locator(f"{DEPARTURES} .note", has_text="The engine does not know this series")
        await said.wait_for()
        await drawn(page)
        assert (await text(page, f"{DEPARTURES} .tag")).endswith("· not known any more")
        assert await text(page, f"{DEPARTURES} .value") == "14,896"
        await picture(page, "unknown")
        await page.clock.fast_forward("10:00")
        for _ in range(5):
            engine.publish("busiest_destination", {"value": 9, "band": 3})
            engine.tick += 1
        await page.wait_for_selector(
            f"[data-series=busiest_destination][data-tick='{HISTORY + 4}']"
        )
        assert len(asked) == 1

        await page.unroute(HISTORIES)
        engine.step()
        await page.wait_for_selector(f"{DEPARTURES}[data-received='{HISTORY + 1}']")
        assert await text(page, f"{DEPARTURES} .tag") == "count so far"
        assert (await text(page, f"{DEPARTURES} .note")).startswith("The exact figure lies between")


async def test_what_fails_is_said_and_asked_for_when_the_engine_is_back(
    browser: Browser, engine: Engine
) -> None:
    """Not when a long pause is over: the clock of this page stands still."""
    async with serving(engine.log) as server:
        page = await blank(browser, viewport={"width": 1280, "height": 900})

        async def fail(route: Route) -> None:
            await route.fulfill(status=503, json={"detail": "no"})

        await page.route(HISTORIES, fail)
        await page.add_init_script("""
            const wait = window.setTimeout;
            window.pauses = 0;
            window.setTimeout = (then, milliseconds) => {
                if (!String(new Error().stack).includes("histories.js")) return wait(then, milliseconds);
                window.pauses += 1;
                return 0;
            };
        """)
        await page.goto(server.url)
        said = page.locator(f"{DEPARTURES} .note", has_text="cannot be loaded just now")
        await said.wait_for()
        await shows(page, "live")
        await page.wait_for_function("() => window.pauses > 0")
        await page.unroute(HISTORIES, fail)
    await shows(page, "reconnecting")
    async with serving(engine.log, port=port_of(page)):
        await shows(page, "live")
        await page.wait_for_selector(f"{DEPARTURES}[data-received='{HISTORY}']")
        assert (await text(page, f"{DEPARTURES} .note")).startswith("The exact figure lies between")


@pytest.mark.parametrize(
    ("status", "pauses", "lost"),
    [
        (503, [1000, 2000, 4000, 8000, 16000, 32000, 32000, 32000, 1000], []),
        (None, [1000, 2000, 4000, 8000, 16000, 32000, 32000, 32000, 1000], []),
        (404, [], ["one", "two"]),
    ],
)
async def test_pauses_grow_to_a_bound_and_begin_anew_when_the_engine_is_back(
    browser: Browser, server: PageServer, status: int | None, pauses: list[int], lost: list[str]
) -> None:
    """One pause for all series, however many fail at once."""
    page = await blank(browser)
    await page.goto(f"{server.url}api/pipeline")  # where the page's own script does not run
    assert await page.evaluate(PAUSES, status) == [pauses, lost]
