"""The page in a real Chromium, fed by a task that publishes synthetic releases."""

import json
import os

import pytest
from browser.page_worlds import (
    HISTORY,
    HORIZON,
    Console,
    Engine,
    blank,
    drawn,
    no_gaps,
    opened,
    picture,
    pipeline,
    port_of,
    reaches,
    serving,
    shows,
    text,
)
from playwright.async_api import Browser, CDPSession

from stream_dp.journal.release import release_of
from stream_dp.server.server import PageServer
from stream_dp.server.view import ReleaseLog

pytestmark = pytest.mark.browser

FRAMES = """number => new Promise(done => {
    const frame = () => number-- > 0 ? requestAnimationFrame(frame) : done();
    frame();
})"""

WHOLE = """() => {
    const { tick, received } = document.querySelector("[data-series=departures]").dataset;
    return Number(received) === Number(tick) + 1;
}"""
"""Whether a line has all there is."""


async def test_values_move_with_bands_and_budget(
    browser: Browser, server: PageServer, engine: Engine
) -> None:
    page = await blank(browser, viewport={"width": 1280, "height": 900})
    console = Console(page)
    await page.goto(server.url)
    await drawn(page)
    before = await text(page, "[data-series=departures] .value")

    async with engine.running():
        await reaches(page, HISTORY + 20)
    await shows(page, "live")

    assert await text(page, "[data-series=departures] .value") != before
    assert await text(page, "[data-series=departures] .band") == "± 45"
    assert await text(page, "#promise .plain") == (
        "No single event can be told from these numbers: with or without it each picture is at most "
        "2.72 times as likely."
    )
    await page.click("#promise .exactly summary")
    assert "(ε = 1, δ = 0)-DP" in await text(page, ".dp")
    assert "add or remove one event" in await text(page, "#promise")
    assert await text(page, "[data-budget=spent]") == "ε 0.9"
    assert await text(page, "[data-budget=left]") == "0.1 left"
    assert await page.locator(".budget-bar .piece").count() == 4
    await no_gaps(page)
    assert console.complaints == []


async def test_bands_are_drawn(browser: Browser, server: PageServer) -> None:
    page = await opened(browser, server.url)

    band = await page.evaluate(
        """() => {
            const canvas = document.querySelector("[data-series=departures] canvas");
            const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            let shaded = 0, line = 0;
            for (let at = 0; at < data.length; at += 4) {
                if (data[at] !== 59 && Math.abs(data[at] - 59) > 4 || data[at + 2] < 200) continue;
                if (data[at + 3] > 200) line += 1;
                else if (data[at + 3] > 30 && data[at + 3] < 80) shaded += 1;
            }
            return {shaded, line};
        }"""
    )
    assert band["line"] > 300
    assert band["shaded"] > 2 * band["line"]
    whiskers = page.locator("[data-series=by_destination] .whisker")
    assert await whiskers.count() == 15
    box = await whiskers.first.bounding_box()
    assert box is not None
    assert box["width"] > 2


async def test_noise_is_labelled_and_all_keys_can_be_filtered(
    browser: Browser, server: PageServer
) -> None:
    page = await opened(browser, server.url)

    await page.click("[data-series=by_destination] summary")
    await page.fill("[data-series=by_destination] input", "other")

    row = page.locator("[data-series=by_destination] tbody tr")
    assert await row.count() == 1
    assert "noise" in await row.inner_text()


async def test_an_open_table_has_the_newest_values(
    browser: Browser, server: PageServer, engine: Engine
) -> None:
    """Also where they come within the second in which it is filled once, and nothing after them."""
    page = await opened(browser, server.url)
    await page.evaluate("() => { const now = performance.now(); performance.now = () => now; }")
    card = "[data-series=by_destination]"
    await page.click(f"{card} summary")
    row = page.locator(f"{card} tbody tr", has_text="ORD")
    await row.wait_for()
    before = await row.inner_text()
    engine.step()
    value = json.loads(engine.log.latest()["by_destination"].body)["values"]["ORD"]
    assert f"{value:,}" not in before
    await row.filter(has_text=f"{value:,}").wait_for()


async def test_alerts_count_and_explain_their_band(
    browser: Browser, server: PageServer, engine: Engine
) -> None:
    page = await opened(browser, server.url)
    releases = engine.log.series_between("late_departures", 0, HORIZON)
    exact = sum("AA" in json.loads(release.body)["fired"] for release in releases)

    row = page.locator("[data-series=late_departures] tbody tr", has_text="AA")
    assert await row.locator(".number").first.inner_text() == str(exact)
    assert "about 100 ± 17 events" in await text(page, "[data-series=late_departures] .note")


async def test_the_derivation_can_be_read(browser: Browser, server: PageServer) -> None:
    page = await opened(browser, server.url)

    await page.click("#proof summary")

    assert await page.locator("#proof .step").count() == 5
    assert await page.locator("#proof .conditions .ok").count() == 6
    assert "[HSV] Thm 4.10" in await text(page, "#proof")
    assert await page.locator("#proof .subject").first.inner_text() == "flights"


async def test_the_page_survives_an_engine_restart(browser: Browser, engine: Engine) -> None:
    async with serving(engine.log) as first:
        page = await opened(browser, first.url)
        console = Console(page)
        async with engine.running():
            await reaches(page, engine.tick + 5)
        console.tolerant = True
    await shows(page, "reconnecting")
    for _ in range(30):
        engine.step()  # committed before the crash, published after it

    async with serving(restored(engine.log), port=port_of(page)):
        await reaches(page, engine.tick - 1)
        await shows(page, "live")

        await no_gaps(page)
    assert console.complaints == []


async def test_values_move_on_after_a_restart(browser: Browser, engine: Engine) -> None:
    async with serving(engine.log) as first:
        page = await opened(browser, first.url)
    await shows(page, "reconnecting")
    async with serving(engine.log, port=port_of(page)), engine.running():
        await reaches(page, HISTORY + 10)

        await no_gaps(page)


async def test_another_fingerprint_loads_everything_anew(browser: Browser, engine: Engine) -> None:
    async with serving(engine.log) as first:
        page = await opened(browser, first.url)

    other = {**pipeline("f2"), "name": "other_flights"}
    async with serving(engine.log, other, port_of(page)):
        await page.wait_for_function(
            "() => document.getElementById('name').textContent === 'other flights'"
        )


async def test_a_log_that_begins_again_loads_everything_anew(
    browser: Browser, engine: Engine
) -> None:
    async with serving(engine.log) as first:
        page = await opened(browser, first.url)

    young = Engine()
    for _ in range(20):
        young.step()
    async with serving(young.log, port=port_of(page)):
        await page.wait_for_function(
            "() => [...document.querySelectorAll('.card')].every(card => Number(card.dataset.tick) === 19)"
        )
        young.step()
        await reaches(page, 20)
        await no_gaps(page)


async def test_the_end_is_shown(browser: Browser, engine: Engine) -> None:
    short = {**pipeline(), "clock": {**pipeline()["clock"], "horizon": HISTORY}}
    async with serving(engine.log, short) as server:
        page = await opened(browser, server.url)
        await shows(page, "ended")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_phone_needs_no_sideways_scroll(
    browser: Browser, server: PageServer, scheme: str
) -> None:
    page = await opened(browser, server.url, 360, 740, color_scheme=scheme)
    await page.click("#proof summary")
    await page.click("[data-series=by_destination] summary")
    await page.wait_for_selector("[data-series=by_destination] tbody tr")

    width = await page.evaluate("document.documentElement.scrollWidth")
    assert width <= 360
    await picture(page, "phone-" + scheme)


async def test_a_year_of_ticks_stays_smooth(browser: Browser, engine: Engine) -> None:
    while engine.tick < HORIZON - 60:
        engine.step()
    async with serving(engine.log) as server, engine.running():
        page = await opened(browser, server.url)
        await page.click("#windows button:last-child")
        await reaches(page, HORIZON - 40)
        await page.wait_for_function(WHOLE)
        session = await page.context.new_cdp_session(page)
        await session.send("Performance.enable", {"timeDomain": "threadTicks"})
        before = await busy(session)
        await page.evaluate(FRAMES, 60)
        spent = await busy(session) - before
        await picture(page, "year")
    assert 0 < spent < 60 * 0.05  # of the processor, not of the clock: 50 ms for a frame


async def test_the_screenshot_for_the_readme(
    browser: Browser, server: PageServer, engine: Engine
) -> None:
    page = await opened(browser, server.url, 1280, 1000)
    async with engine.running():
        await reaches(page, HISTORY + 5)
    await shows(page, "live")
    target = os.environ.get("STREAM_DP_SCREENSHOT")
    taken = await page.screenshot(path=target, full_page=True)
    assert taken.startswith(b"\x89PNG")


async def busy(session: CDPSession) -> float:
    """The seconds of processor time that the page's main thread has used."""
    answer = await session.send("Performance.getMetrics")
    return next(float(m["value"]) for m in answer["metrics"] if m["name"] == "TaskDuration")


def restored(log: ReleaseLog) -> ReleaseLog:
    """The log a restarted engine makes from its sink: the same bytes."""
    made = ReleaseLog()
    for release in log.since(-1):
        made.append(release_of(release.body))
    return made
