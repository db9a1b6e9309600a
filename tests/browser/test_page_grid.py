"""How cards lie: two in a row, and an odd last one takes the whole of its row."""

from typing import Any, Literal

import pytest
from browser.page_worlds import Engine, described, opened, picture, pipeline, serving
from playwright.async_api import Browser, Page

pytestmark = pytest.mark.browser

BOXES = """() => {
    const whole = document.getElementById("cards").getBoundingClientRect();
    const boxes = [...document.querySelectorAll(".card")].map((card) => card.getBoundingClientRect());
    const shown = boxes.filter(({ width }) => width > 0);
    return shown.map(({ left, width }) => [Math.round(left - whole.left), width / whole.width]);
}"""


def public(cards: int) -> dict[str, Any]:
    """The pipeline of so many cards; the last one has bars."""
    count, _, histogram, _ = pipeline()["series"]
    return {
        **pipeline(),
        "series": [
            *[described("count", f"s{place}") for place in range(cards - 2)],
            count,
            histogram,
        ],
    }


@pytest.fixture
def engine() -> Engine:
    """A day of such counts."""
    made = Engine()
    for tick in range(24):
        for place in range(9):
            made.publish(f"s{place}", {"value": place * 10 + tick, "band": 4})
        count, histogram = 1000 + tick, {f"k{key}": 90 - 5 * key + tick for key in range(15)}
        made.publish("departures", {"value": count, "band": 9})
        made.publish("by_destination", {"values": histogram, "band": 6})
        made.tick += 1
    return made


async def columns(page: Page) -> list[str]:
    """Where each card lies: left, right or over both."""
    boxes = await page.evaluate(BOXES)
    return ["both" if width > 0.9 else "left" if left == 0 else "right" for left, width in boxes]


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_an_odd_last_card_takes_the_row(
    browser: Browser, engine: Engine, scheme: Literal["light", "dark"]
) -> None:
    """Also where a search leaves others, and on a phone every card does."""
    for cards in (4, 5):
        series = public(cards)
        known = {each["name"] for each in series["series"]}
        log = type(engine.log)()
        for release in engine.log.since(-1):
            if release.series in known:
                log.append(release)
        async with serving(log, series) as server:
            page = await opened(browser, server.url, 1280, 800, color_scheme=scheme)
            assert await columns(page) == ["left", "right"] * 2 + ["both"] * (cards - 4)
            await picture(page, f"grid-{cards}-{scheme}")
            bars = [await bar.bounding_box() for bar in await page.locator(".bars li").all()]
            lefts = {round(box["x"]) for box in bars if box is not None}
            assert len(lefts) == cards - 3  # bars lie in two columns where there is room
            tops = [round(box["y"]) for box in bars if box is not None]
            assert tops[:8] == sorted(tops[:8])
            await page.set_viewport_size({"width": 390, "height": 844})
            await page.wait_for_function(f"() => ({BOXES})().every(([, width]) => width > 0.9)")
            assert await page.evaluate("document.documentElement.scrollWidth") <= 390
            await picture(page, f"grid-{cards}-phone-{scheme}")


async def test_cards_that_a_search_hides_do_not_count(browser: Browser, engine: Engine) -> None:
    async with serving(engine.log, public(11)) as server:
        page = await opened(browser, server.url, 1280, 800)
        assert await columns(page) == ["left", "right"] * 5 + ["both"]
        for find, left in (("departures", ["both"]), ("s1", ["both"]), ("e", ["left", "right"])):
            await page.fill(".tools input[type=search]", find)
            await page.wait_for_function(f"many => ({BOXES})().length === many", arg=len(left))
            assert await columns(page) == left
