"""What stands above the cards takes two rows of a phone, however many series there are; no row of cards has a gap."""

from typing import Any

import pytest
from browser.page_worlds import Engine, described, opened, picture, pipeline, serving
from playwright.async_api import Browser, Page

pytestmark = pytest.mark.browser

ROWS = """() => new Set([...document.querySelectorAll("#windows, #tools > *")].map(
    (each) => each.getBoundingClientRect()).filter(({ width }) => width > 0).map(
    ({ top, bottom }) => Math.round((top + bottom) / 20))).size"""
"""How many rows, by the middles of what stands there, to ten pixels."""
HEIGHTS = "() => [...document.querySelectorAll('#windows button')].map((each) => each.clientHeight)"
GAPS = """() => {
    const whole = document.getElementById("cards").getBoundingClientRect();
    const boxes = [...document.querySelectorAll(".card:not([hidden])")].map((card) => card.getBoundingClientRect());
    const rows = Map.groupBy(boxes, ({ top }) => Math.round(top));
    return [...rows.values()].map((row) => Math.round(whole.right - Math.max(...row.map(({ right }) => right))));
}"""
"""How many pixels are free at the right of each row of cards."""
EDGES = """() => ["h1, .brand", "#windows", ".promise", "footer:not(.card-foot) p"].map(
    (place) => Math.round(document.querySelector(place).getBoundingClientRect().left))"""


def world(many: int) -> tuple[Engine, dict[str, Any]]:
    """An engine of so many counts, and what the API says of them."""
    made = Engine()
    for tick in range(60):
        for place in range(many):
            made.publish(f"s{place}", {"value": place * 10 + tick, "band": 4})
        made.tick += 1
    series = [described("count", f"s{place}") for place in range(many)]
    return made, {**pipeline(), "series": series}


async def settled(page: Page, rows: int) -> None:
    """Wait until the toolbar has so many rows."""
    await page.wait_for_function(f"rows => ({ROWS})() === rows", arg=rows)


@pytest.mark.parametrize("many", [7, 30])
async def test_the_toolbar_takes_two_rows_of_a_phone(browser: Browser, many: int) -> None:
    """One on a screen; nothing is wider than the phone, and no length takes two lines."""
    engine, public = world(many)
    async with serving(engine.log, public) as server:
        page = await opened(browser, server.url, 1280, 800)
        await settled(page, 1)
        await page.set_viewport_size({"width": 390, "height": 844})
        await settled(page, 2)
        assert len(set(await page.evaluate(HEIGHTS))) == 1
        assert await page.evaluate("document.documentElement.scrollWidth") == 390
        await picture(page, f"toolbar-{many}")
        await page.goto(f"{server.url}?from=2013-01-01T12:00:00Z&to=2013-01-02T12:00:00Z")
        await page.wait_for_selector(".between summary >> text=1 Jan 2013")
        assert await page.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.parametrize("many", [25, 26, 29, 30])
@pytest.mark.parametrize("width", [1280, 1920])
async def test_very_many_cards_leave_no_gap(browser: Browser, many: int, width: int) -> None:
    """Nor do some that a search leaves; header, cards and foot begin at one line."""
    engine, public = world(many)
    async with serving(engine.log, public) as server:
        page = await opened(browser, server.url, width, 900)
        assert set(await page.evaluate(GAPS)) == {0}
        assert len(set(await page.evaluate(EDGES))) == 1
        await page.fill(".tools input[type=search]", "s1")
        await page.wait_for_function(
            "document.querySelectorAll('.card:not([hidden])').length === 11"
        )
        assert set(await page.evaluate(GAPS)) == {0}
