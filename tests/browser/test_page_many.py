"""A page of 100 series and a histogram of 1,000 keys: only what can be seen is drawn and loaded, histories in parts.

Rules: a card counts its own pictures (`data-pictures`); how long they take is measured elsewhere, and asserted nowhere.
"""

import random
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from browser.page_worlds import (
    Console,
    Engine,
    blank,
    described,
    opened,
    picture,
    pipeline,
    reaches,
    serving,
)
from playwright.async_api import Browser, Page, Request

pytestmark = pytest.mark.browser

COUNTS, KEYS, TICKS, LATER = 100, 1000, 150, 20
LARGEST_PART = 60  # ticks of 1,000 keys
FIRST, LAST = "s0", f"s{COUNTS - 1}"
MANY = "[data-series=many]"
PICTURES = """() => Object.fromEntries([...document.querySelectorAll('.card')].map(
    card => [card.dataset.series, Number(card.dataset.pictures ?? 0)]))"""


@pytest.fixture
def engine() -> Engine:
    """An engine of many series with a history."""
    made = Engine()
    grow(made, TICKS)
    return made


def grow(engine: Engine, ticks: int) -> None:
    """Publish so many ticks of all series at once."""
    noise = random.Random(engine.tick)
    for _ in range(ticks):
        for place in range(COUNTS):
            value = 100 * place + noise.randint(-40, 40)
            engine.publish(f"s{place}", {"value": value, "band": 30})
        values = {f"k{key}": key + noise.randint(-9, 9) for key in range(KEYS)}
        engine.publish("many", {"values": values, "band": 12})
        engine.tick += 1


def public() -> dict[str, Any]:
    """What the API says of them."""
    histogram = {
        **described("histogram", "many", by="door"),
        "domain": [f"k{key}" for key in range(KEYS)],
    }
    counts = [described("count", f"s{place}") for place in range(COUNTS)]
    return {**pipeline(), "series": [histogram, *counts]}


async def listened(browser: Browser) -> tuple[Page, list[Request]]:
    """An empty page, and what it will ask for."""
    page = await blank(browser, viewport={"width": 1280, "height": 900})
    asked: list[Request] = []
    page.on("request", lambda request: asked.append(request))
    return page, asked


async def pictures(page: Page) -> dict[str, int]:
    """How often each card was drawn."""
    found: dict[str, int] = await page.evaluate(PICTURES)
    return found


def histories(asked: list[Request], series: str) -> list[tuple[int, int]]:
    """The parts of a history that were asked for, first and last tick."""
    parts = [urlsplit(each.url) for each in asked]
    queries = [parse_qs(part.query) for part in parts if part.path == f"/api/series/{series}"]
    return [(int(query["from"][0]), int(query["to"][0])) for query in queries]


async def test_only_what_can_be_seen_is_drawn_and_loaded(browser: Browser, engine: Engine) -> None:
    async with serving(engine.log, public()) as server:
        page, asked = await listened(browser)
        console = Console(page)
        await page.goto(server.url)
        await page.wait_for_selector(f"[data-series={FIRST}] canvas")
        await reaches(page, TICKS - 1)  # the words of all, whether they can be seen or not
        drawn = await pictures(page)
        unseen = [name for name, times in drawn.items() if times == 0]
        assert FIRST not in unseen
        assert {LAST, "many"} <= set(unseen)
        assert len(unseen) > COUNTS // 2
        assert await page.locator(".card canvas").count() == len(drawn) - len(unseen)
        assert histories(asked, LAST) == []
        await picture(page, "many")

        await page.locator(f"[data-series={LAST}]").scroll_into_view_if_needed()
        await page.wait_for_selector(f"[data-series={LAST}] canvas")
        assert histories(asked, LAST) == [(0, TICKS - 1)]
        await page.wait_for_selector(f"[data-series={FIRST}] canvas", state="detached")
        assert console.complaints == []


async def test_what_arrives_costs_no_more_pictures_than_ticks(
    browser: Browser, engine: Engine
) -> None:
    """A card may grow with what it says, and then is drawn once more."""
    async with serving(engine.log, public()) as server:
        page = await opened(browser, server.url)
        await page.wait_for_selector(f"[data-series={FIRST}] canvas")
        await reaches(page, TICKS - 1)
        before = await pictures(page)
        grow(engine, LATER)
        await reaches(page, TICKS + LATER - 1)
        after = await pictures(page)
        more = {name: after[name] - before[name] for name in after}
        assert more[FIRST] > 0
        assert max(more.values()) <= 2 * LATER
        assert more["many"] == more[LAST] == 0


async def test_a_large_history_is_loaded_in_parts(browser: Browser, engine: Engine) -> None:
    async with serving(engine.log, public()) as server:
        page, asked = await listened(browser)
        await page.goto(f"{server.url}?find=many&keys.many=k7&keys.many=k900&last=all")
        await page.wait_for_selector(f"{MANY} canvas")
        parts = histories(asked, "many")
        assert [first for first, _ in parts] == list(range(0, TICKS, LARGEST_PART))
        assert [last + 1 for _, last in parts] == [*range(LARGEST_PART, TICKS, LARGEST_PART), TICKS]
        assert await page.get_attribute(MANY, "data-received") == str(TICKS)
        assert await page.locator(f"{MANY} .bars li").count() == 15
        assert await page.locator(f"{MANY} tr").count() == 1  # the table is not open
        assert [histories(asked, f"s{place}") for place in range(COUNTS)] == [[]] * COUNTS
