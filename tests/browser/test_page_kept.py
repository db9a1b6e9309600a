"""A page that stays open keeps what its range needs and the newest ticks; what was let go is loaded again.

Rules: nothing is read of a card before it has drawn the range that is asked for, from a history that is there.
"""

import csv
import io
import json
from datetime import timedelta
from typing import Any

import pytest
from browser.page_worlds import (
    BOARD,
    START,
    Console,
    Engine,
    blank,
    opened,
    pipeline,
    serving,
    text,
)
from browser.test_page_export import saved
from playwright.async_api import Browser, Page

pytestmark = pytest.mark.browser

FIRST, LATER = 200, 6000
AT_ONCE = 500  # ticks
BOUND = 3100  # ticks: 2,000 newest, 1,000 of slack, and the range
SERIES = "departures"
CARD = f"""const [card] = [...board.cards.values()].filter(({{ series }}) => series.name === "{SERIES}");"""
KEPT = f"() => {{ {CARD} return card.points.tick.length; }}"
PICTURES = f"() => {{ {CARD} return card.pictures; }}"
REACHED = f"tick => {{ {CARD} return card.latest.tick === tick; }}"
TAKEN = f"tick => {{ {CARD} return card?.latest?.tick === tick && !card.stale; }}"
DRAWN = f"""([first, last]) => {{ {CARD}
    return card?.range?.first === first && card.range.last === last && !card.lacks && !card.stale; }}"""
BETWEEN = """async (times) => {
    const { chooseBetween } = await import("/range.js");
    chooseBetween(...times.map((time) => Date.parse(time) / 1000));
}"""
PLOTTED = f"() => {{ {CARD} return card.chart.plot.data; }}"


class Counts(Engine):
    """Publishes a count alone; a tick's value is its own."""

    def step(self) -> None:
        """Publish one tick."""
        self.publish(SERIES, {"value": value(self.tick), "band": 45})
        self.tick += 1


def value(tick: int) -> int:
    """What is told at a tick."""
    return 10 * tick + tick % 7


def public() -> dict[str, Any]:
    """What the API says of it."""
    told = pipeline()
    return {**told, "series": told["series"][:1]}


@pytest.fixture
def engine() -> Counts:
    """An engine that has just begun."""
    made = Counts()
    for _ in range(FIRST):
        made.step()
    return made


async def runs(page: Page, engine: Engine, ticks: int) -> int:
    """So many ticks more, taken by the page; how many it keeps at most."""
    most, until = 0, engine.tick + ticks
    while engine.tick < until:
        for _ in range(min(AT_ONCE, until - engine.tick)):
            engine.step()
        await page.wait_for_function(TAKEN, arg=engine.tick - 1)
        most = max(most, await page.evaluate(KEPT))
    return most


def moment(tick: int) -> str:
    """The end of a tick, as addresses have it."""
    return (START + timedelta(hours=tick + 1)).strftime("%Y-%m-%dT%H:%M:%SZ")


async def ticks_in_file(page: Page) -> list[int]:
    """The ticks of the card's CSV, each with the value that was released."""
    _, content = await saved(page, SERIES, "CSV")
    rows = list(csv.DictReader(io.StringIO(content.decode(), newline="")))
    assert all(int(row["value"]) == value(int(row["tick"])) for row in rows)
    return [int(row["tick"]) for row in rows]


async def choose(page: Page, text: str, first: int, last: int) -> None:
    """Press a length, and wait for its picture."""
    await page.click(f"#windows button[value='{text}']")
    await page.wait_for_function(DRAWN, arg=[first, last])


async def test_what_the_range_does_not_need_is_let_go_and_loaded_again(
    browser: Browser, engine: Counts
) -> None:
    async with serving(engine.log, public()) as server:
        page = await opened(browser, server.url)
        console = Console(page)
        assert await runs(page, engine, LATER) <= BOUND
        last = engine.tick - 1
        await choose(page, "all", 0, last)
        assert await ticks_in_file(page) == list(range(last + 1))
        await choose(page, "2d", last - 47, last)
        assert await ticks_in_file(page) == list(range(last - 47, last + 1))
        assert await page.evaluate(KEPT) <= BOUND
        await page.go_back()
        await page.wait_for_function(DRAWN, arg=[0, last])
        assert await ticks_in_file(page) == list(range(last + 1))
        assert await runs(page, engine, 10) == last + 11  # of all, all is kept
        assert console.complaints == []


async def test_a_tab_that_nobody_looks_at_lets_go_too(browser: Browser, engine: Counts) -> None:
    """Browsers draw no frame of it; the stream goes on."""
    async with serving(engine.log, public()) as server:
        page = await opened(browser, server.url)
        await page.evaluate("() => { window.requestAnimationFrame = () => 0; }")
        before = await page.evaluate(PICTURES)
        for _ in range(LATER // AT_ONCE):
            for _ in range(AT_ONCE):
                engine.step()
            await page.wait_for_function(REACHED, arg=engine.tick - 1, polling=50)
            assert await page.evaluate(KEPT) <= BOUND
        assert await page.evaluate(PICTURES) <= before + 1  # one that had been asked for


async def test_a_time_long_ago_is_kept_with_the_newest_and_nothing_between(
    browser: Browser, engine: Counts
) -> None:
    """With the period before, which is drawn to the value."""
    while engine.tick < LATER:
        engine.step()
    async with serving(engine.log, public()) as server:
        page = await blank(browser, viewport={"width": 1280, "height": 900})
        await page.goto(f"{server.url}?from={moment(1000)}&to={moment(1099)}&before=1")
        await page.evaluate(BOARD)
        await page.wait_for_function(DRAWN, arg=[1000, 1099])
        assert await page.evaluate(KEPT) == 200 + 2001
        assert await runs(page, engine, LATER) <= 200 + BOUND
        assert await ticks_in_file(page) == list(range(1000, 1100))
        columns = await page.evaluate(PLOTTED)
        assert columns[3] == [value(tick) for tick in range(1000, 1100)]
        assert columns[4] == [value(tick) for tick in range(900, 1000)]

        await page.evaluate(
            BETWEEN, [moment(1050), moment(1199)]
        )  # before is there, behind was let go
        await page.wait_for_function(DRAWN, arg=[1050, 1199])
        assert await ticks_in_file(page) == list(range(1050, 1200))

        last = engine.tick - 1
        await choose(page, "7d", last - 167, last)
        assert await ticks_in_file(page) == list(range(last - 167, last + 1))
        assert (await page.evaluate(PLOTTED))[4][0] == value(last - 335)
        await page.go_back()
        await page.wait_for_function(DRAWN, arg=[1050, 1199])
        await page.go_back()
        await page.wait_for_function(DRAWN, arg=[1000, 1099])
        assert await ticks_in_file(page) == list(range(1000, 1100))


async def test_no_file_while_a_part_of_it_is_to_be_loaded(browser: Browser, engine: Counts) -> None:
    """A file would look whole; why there is none is said, and there is one as soon as it can be."""
    while engine.tick < LATER:
        engine.step()
    async with serving(engine.log, public()) as server:
        page = await opened(browser, server.url)
        last = engine.tick - 1
        await page.wait_for_function(DRAWN, arg=[last - 47, last])
        fails = f"**/api/series/{SERIES}?*"
        await page.route(fails, lambda route: route.fulfill(status=503, json={"detail": "no"}))
        await page.click("#windows button[value='all']")
        await page.wait_for_selector(
            f"[data-series={SERIES}] .note >> text=cannot be loaded just now"
        )
        button = page.get_by_role("button", name="CSV")
        assert await button.is_disabled()
        assert (
            await button.get_attribute("title") == "What was released before is still being loaded"
        )
        await page.unroute(fails)
        await page.wait_for_function(DRAWN, arg=[0, last])
        assert await button.is_enabled()
        assert await ticks_in_file(page) == list(range(last + 1))
        assert json.loads(engine.log.latest()[SERIES].body)["tick"] == last
        said = await text(page, f"[data-series={SERIES}] .note")
        assert said.startswith("The exact figure lies between")
