"""What a reader may choose: time, scale, the period before, keys, series; all of it in the address."""

import re
from urllib.parse import parse_qs

import pytest
from browser.page_worlds import (
    HISTORY,
    KEEPS_PLOTS,
    PLOT,
    Console,
    Engine,
    blank,
    drawn,
    opened,
    picture,
    pipeline,
    serving,
    text,
)
from playwright.async_api import Browser, Page

from stream_dp.server.server import PageServer

pytestmark = pytest.mark.browser

DEPARTURES, DESTINATIONS, ALERTS = (
    f"[data-series={name}]" for name in ("departures", "by_destination", "late_departures")
)
TIMES = """card => {
    const chart = document.querySelector(card + ' .chart');
    const said = chart.closest('.chart-box').querySelector('.readout').textContent;
    return said.slice(0, said.indexOf(' UTC'));
}"""


async def with_plots(browser: Browser, url: str) -> Page:
    """A page that shows releases, and whose charts can be asked what they drew."""
    page = await blank(browser, viewport={"width": 1280, "height": 900})
    await page.add_init_script(KEEPS_PLOTS)
    await page.goto(url)
    await drawn(page)
    return page


async def chosen(page: Page) -> dict[str, list[str]]:
    """What the address says, asked of the page itself: the driver hears of it later."""
    query: str = await page.evaluate("() => location.search.slice(1)")
    return parse_qs(query)


async def ends(page: Page, card: str) -> tuple[str, str]:
    """The first and the last time of a chart, read by keyboard."""
    await page.focus(f"{card} .chart")
    found = []
    for key in ("Home", "End"):
        await page.keyboard.press(key)
        found.append(str(await page.evaluate(TIMES, card)))
    return found[0], found[1]


async def test_a_length_of_time_is_chosen_kept_in_the_address_and_undone_by_going_back(
    browser: Browser, server: PageServer
) -> None:
    page = await opened(browser, server.url)
    assert await page.locator("#windows button").all_inner_texts() == [
        "1 day",
        "2 days",
        "7 days",
        "14 days",
        "30 days",
        "all",
    ]
    assert await ends(page, DEPARTURES) == ("Mon, 28 Jan 2013, 15:00", "Wed, 30 Jan 2013, 14:00")
    assert await chosen(page) == {}
    await page.click("#windows button >> text=7 days")
    assert await chosen(page) == {"last": ["7d"]}
    await page.wait_for_function(
        "() => document.querySelector('.strip-head').textContent === 'last 7 days'"
    )
    assert await ends(page, DEPARTURES) == ("Wed, 23 Jan 2013, 15:00", "Wed, 30 Jan 2013, 14:00")

    other = await blank(browser)
    await other.goto(await page.evaluate("() => location.href"))
    await drawn(other)
    assert await text(other, "#windows [aria-pressed=true]") == "7 days"
    assert await ends(other, DEPARTURES) == await ends(page, DEPARTURES)

    await page.go_back()
    await page.wait_for_function(
        "() => document.querySelector('.strip-head').textContent === 'last 2 days'"
    )
    assert await text(page, "#windows [aria-pressed=true]") == "2 days"


async def test_a_time_between_two_moments_is_typed(browser: Browser, server: PageServer) -> None:
    page = await opened(browser, server.url)
    await page.click(".between summary")
    fields = page.locator(".between input")
    assert await fields.nth(1).input_value() == "2013-01-30T14:00"
    await fields.nth(0).fill("2013-01-10T06:00:00")
    await fields.nth(1).fill("2013-01-11T18:00:00")
    await page.keyboard.press("Enter")
    assert await chosen(page) == {"from": ["2013-01-10T06:00:00Z"], "to": ["2013-01-11T18:00:00Z"]}
    shown = re.compile("^10 Jan 2013, 06:00 to 11 Jan 2013, 18:00$")
    await page.locator(".between summary", has_text=shown).wait_for()
    assert await ends(page, DEPARTURES) == ("Thu, 10 Jan 2013, 06:00", "Fri, 11 Jan 2013, 18:00")
    assert await page.locator("#windows [aria-pressed=true]").count() == 0
    await page.click("#windows button >> text=2 days")
    assert await chosen(page) == {}


async def test_dragging_over_a_chart_shows_that_time_in_all(
    browser: Browser, server: PageServer
) -> None:
    page = await opened(browser, server.url)
    box = await page.locator(f"{DEPARTURES} .u-over").bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    await page.mouse.move(box["x"] + box["width"] / 4, middle)
    await page.mouse.down()
    await page.mouse.move(box["x"] + box["width"] / 2, middle, steps=4)
    await page.mouse.up()
    await page.locator(".strip-head", has_text=re.compile("^29 Jan 2013, 0")).wait_for()
    first, last = await ends(page, DEPARTURES)
    assert first in {"Tue, 29 Jan 2013, 03:00", "Tue, 29 Jan 2013, 04:00"}
    assert last in {"Tue, 29 Jan 2013, 14:00", "Tue, 29 Jan 2013, 15:00"}
    assert await ends(page, "[data-series=busiest_destination]") == (first, last)
    assert list(await chosen(page)) == ["from", "to"]


async def test_the_moment_under_the_cursor_is_read_in_all_charts(
    browser: Browser, server: PageServer
) -> None:
    page = await opened(browser, server.url)
    box = await page.locator(f"{DEPARTURES} .u-over").bounding_box()
    assert box is not None
    await page.mouse.move(box["x"] + box["width"] / 3, box["y"] + 40)
    await page.wait_for_function(f"() => ({TIMES})('{DEPARTURES}') !== ''")
    here, there = [
        await page.evaluate(TIMES, card)
        for card in (DEPARTURES, "[data-series=busiest_destination]")
    ]
    assert here == there != ""
    await page.mouse.move(5, 5)
    await page.wait_for_function(f"() => ({TIMES})('[data-series=busiest_destination]') === ''")


async def test_the_scale_of_values_is_chosen(browser: Browser, server: PageServer) -> None:
    page = await with_plots(browser, server.url)
    console = Console(page)
    lowest: dict[str, float] = {}
    for scale, (distribution, below) in {
        "": (1, 20_000),
        "zero": (1, 1),
        "log": (3, 20_000),
    }.items():
        await page.select_option(".tools select", scale)
        await page.wait_for_function(
            """([card, distribution, below]) => {
                const { y } = document.querySelector(card + " .chart").plot.scales;
                return y.distr === distribution && y.min < below;
            }""",
            arg=[DEPARTURES, distribution, below],
        )
        lowest[scale] = await page.evaluate(PLOT + "(card).scales.y.min", DEPARTURES)
    assert lowest["zero"] == 0
    assert 10_000 < lowest["log"] < lowest[""]
    assert await chosen(page) == {"scale": ["log"]}
    assert console.complaints == []


async def test_the_period_before_is_a_ghost(browser: Browser, server: PageServer) -> None:
    page = await with_plots(browser, server.url)
    columns = "([card, many]) => document.querySelector(card + ' .chart').plot.data.length === many"
    await page.wait_for_function(columns, arg=[DEPARTURES, 4])
    await page.check(".tools input[type=checkbox]")
    await page.wait_for_function(columns, arg=[DEPARTURES, 5])
    now, before = [
        await page.evaluate(PLOT + f"(card).data[{column}]", DEPARTURES) for column in (3, 4)
    ]
    await page.click("#windows button >> text=7 days")
    await page.wait_for_function(
        "card => document.querySelector(card + ' .chart').plot.data[0].length === 168",
        arg=DEPARTURES,
    )
    week = await page.evaluate(PLOT + "(card).data[3]", DEPARTURES)
    assert week[-48:] == now
    assert week[-96:-48] == before
    await page.focus(f"{DEPARTURES} .chart")
    await page.keyboard.press("End")
    assert ", before: " in await text(page, f"{DEPARTURES} .readout")
    await page.click("#windows button >> text=all")
    await page.wait_for_function(columns, arg=[DEPARTURES, 4])


async def test_keys_are_compared_over_time(
    browser: Browser, server: PageServer, engine: Engine
) -> None:
    page = await opened(browser, server.url)
    console = Console(page)
    keys = page.locator(f"{DESTINATIONS} .bars .key")
    assert await page.locator(f"{DESTINATIONS} .chart").is_hidden()
    await keys.nth(0).click()
    await keys.nth(2).click()
    await page.wait_for_selector(f"{DESTINATIONS} .chart canvas")
    assert await chosen(page) == {"keys.by_destination": ["ORD", "LAX"]}
    assert await page.locator(
        f"{DESTINATIONS} .bars .key[aria-pressed=true]"
    ).all_inner_texts() == ["ORD", "LAX"]
    await page.wait_for_selector(f"{DESTINATIONS}[data-received='{HISTORY}']")
    await page.focus(f"{DESTINATIONS} .chart")
    await page.keyboard.press("End")
    said = await text(page, f"{DESTINATIONS} .readout")
    assert "ORD 1,936 (1,912 to 1,960) · LAX 1,159 (1,135 to 1,183)" in said
    engine.step()
    await page.wait_for_selector(f"{DESTINATIONS}[data-received='{HISTORY + 1}']")
    await picture(page, "compared")

    await page.click(f"{DESTINATIONS} .chosen-keys button >> nth=0")
    assert await chosen(page) == {"keys.by_destination": ["LAX"]}
    await page.reload()
    await page.wait_for_selector(f"{DESTINATIONS} .chart canvas")
    assert await page.locator(f"{DESTINATIONS} .chosen-keys li").all_inner_texts() == ["LAX\n×"]
    assert console.complaints == []


async def test_of_many_series_some_are_found(browser: Browser, engine: Engine) -> None:
    first = pipeline()["series"][0]
    more = [{**first, "name": f"more_{place}", "title": f"Gate {place}"} for place in range(10)]
    for place in range(10):
        engine.publish(f"more_{place}", {"value": place, "band": 45})
    async with serving(
        engine.log, {**pipeline(), "series": [*pipeline()["series"], *more]}
    ) as server:
        page = await opened(browser, server.url)
        await page.fill(".tools input[type=search]", "gate 7")
        await page.wait_for_function(
            "() => document.querySelectorAll('.card:not([hidden])').length === 1"
        )
        assert await text(page, ".card:not([hidden]) h3") == "Gate 7"
        assert await chosen(page) == {"find": ["gate 7"]}
