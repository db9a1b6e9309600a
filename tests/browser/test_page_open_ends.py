"""Quotients whose interval has an open end: what is known is drawn, and the open end is said in words."""

import csv
import io
from typing import Any

import pytest
from browser.page_worlds import (
    KEEPS_PLOTS,
    PLOT,
    Console,
    Engine,
    blank,
    described,
    drawn,
    picture,
    pipeline,
    serving,
)
from browser.test_page_accessible import findings
from browser.test_page_export import saved
from playwright.async_api import Browser, Page

pytestmark = pytest.mark.browser

TICKS = 40
MEAN, MEANS = "[data-series=mean]", "[data-series=means]"
KEYS = ["in", "out", "idle"]
OPEN = {
    0: (31.5, 2.0, None, "at least 2"),
    1: (31.5, None, 40.25, "at most 40.25"),
    2: (None, None, None, "anything"),
    3: (31.5, None, None, "anything"),
    4: (31.512, 30.5, 32.75, "30.5 to 32.8"),
}
"""Value, ends and words of a tick, by its place among five."""
HEIGHTS = PLOT + "(card).scales.y"
COLUMNS = "(card) => document.querySelector(card + ' .chart').plot.data.slice(1).flat()"
DOTS = """card => {
    const canvas = document.querySelector(card + " canvas");
    const {data, width} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const columns = new Set();
    for (let at = 0; at < data.length; at += 4) {
        const blue = Math.abs(data[at] - 59) < 4 && Math.abs(data[at + 2] - 219) < 4;
        if (blue && data[at + 3] > 250) columns.add((at / 4) % width);
    }
    return [...columns].filter((column) => !columns.has(column - 1)).length;
}"""
NOTHING_ABOVE = """async () => {
    const { aboveZero } = await import('./band_chart.js');
    return aboveZero([[1, 2], [-3, 0], [null, 0]]);
}"""


@pytest.fixture
def engine() -> Engine:
    """Some ticks of each; the key `idle` is always known."""
    made = Engine()
    for tick in range(TICKS):
        value, low, high, _ = OPEN[tick % 5]
        made.publish("mean", {"value": value, "low": low, "high": high})
        made.publish(
            "means",
            {
                "values": {"in": value, "out": None, "idle": 24.25},
                "lows": [low, None, 24.0],
                "highs": [high, None, 24.5],
            },
        )
        made.step()
    return made


@pytest.fixture
def public() -> dict[str, Any]:
    """The pipeline with both."""
    series = [
        described("count", "mean"),
        {**described("histogram", "means", by="door"), "domain": KEYS},
    ]
    more = [{**each, "nonnegative": False} for each in series]
    return {**pipeline(), "series": [*more, *pipeline()["series"]]}


async def shown(browser: Browser, url: str) -> Page:
    """The page, a key with open ends, one that is never known and one that always is over time."""
    page = await blank(browser, viewport={"width": 1280, "height": 800})
    await page.add_init_script(KEEPS_PLOTS)
    await page.goto(f"{url}?keys.means=in&keys.means=out&keys.means=idle&last=all")
    await drawn(page)
    for card in (MEAN, MEANS):
        await page.wait_for_selector(f"{card} canvas")
    return page


@pytest.mark.parametrize("scale", ["", "zero", "log"])
async def test_nothing_infinite_is_handed_to_the_chart_and_open_ends_leave_the_picture(
    browser: Browser, engine: Engine, public: dict[str, Any], scale: str
) -> None:
    async with serving(engine.log, public) as server:
        page = await shown(browser, server.url)
        console = Console(page)
        await page.select_option(".tools select", scale)
        for card in (MEAN, MEANS):
            distribution = 3 if scale == "log" else 1
            await page.wait_for_function(
                f"([card, distribution]) => ({HEIGHTS})(card).distr === distribution",
                arg=[card, distribution],
            )
            if scale == "zero":  # the picture before it has the same distribution
                await page.wait_for_function(f"card => ({HEIGHTS})(card).min <= 0", arg=card)
            found = [each for each in await page.evaluate(COLUMNS, card) if each is not None]
            assert all(isinstance(each, int | float) and abs(each) < 1000 for each in found)
            heights = await page.evaluate(HEIGHTS, card)
            assert max(found) > heights["max"] > 32.75
            assert heights["min"] < 30.5
            if scale != "log":
                assert min(found) < heights["min"]
        await picture(page, f"open-ends-{scale or 'fit'}")
        assert console.complaints == []


async def test_open_ends_are_said_in_words(
    browser: Browser, engine: Engine, public: dict[str, Any]
) -> None:
    async with serving(engine.log, public) as server:
        page = await shown(browser, server.url)
        await page.focus(f"{MEANS} .chart")
        read = []
        await page.keyboard.press("Home")
        for _ in OPEN:
            read.append((await page.inner_text(f"{MEANS} .readout")).partition("UTC: ")[2])
            await page.keyboard.press("ArrowRight")
        others = "out – (anything) · idle 24.25 (24.00 to 24.50)"
        values = ["31.5", "31.5", "–", "31.5", "31.5"]
        words = [said for *_, said in OPEN.values()]
        assert read == [
            f"in {value} ({said}) · {others}" for value, said in zip(values, words, strict=True)
        ]

        for card, name in ((MEAN, "mean"), (MEANS, "means")):
            _, content = await saved(page, name, "CSV")
            rows = list(csv.DictReader(io.StringIO(content.decode(), newline="")))
            own = [row for row in rows if row.get("key", "in") == "in"]
            assert len(own) == TICKS
            for tick, row in enumerate(own):
                value, low, high, said = OPEN[tick % 5]
                told = ["" if each is None else f"{each:g}" for each in (value, low, high)]
                assert [row[each] for each in ("value", "low", "high", "interval")] == [*told, said]
            await page.click(f"{card} .as-table summary")
            table = page.locator(f"{card} .as-table table")
            assert "interval" in await table.locator("thead").inner_text()
            cells = await table.locator("tbody").inner_text()
            assert "at least 2" in cells
            assert "Infinity" not in cells


async def test_a_logarithm_of_nothing_is_not_drawn(
    browser: Browser, engine: Engine, public: dict[str, Any]
) -> None:
    async with serving(engine.log, public) as server:
        page = await shown(browser, server.url)
        assert await page.evaluate(NOTHING_ABOVE) == [[1, 2], [None, None], [None, None]]


@pytest.mark.parametrize(
    ("low", "high", "lines", "named"),
    [
        (12.5, 1030, 18, ["20", "50", "100", "200", "500", "1000"]),
        (1.2, 9000, 35, ["10", "100", "1000"]),
        (1, 10, 10, ["1", "2", "5", "10"]),
        (13900, 15100, 3, ["14000", "14500", "15000"]),
        (0.02, 0.5, 13, ["0.02", "0.05", "0.1", "0.2", "0.5"]),
    ],
)
async def test_a_logarithmic_scale_names_round_numbers(
    browser: Browser, engine: Engine, low: float, high: float, lines: int, named: list[str]
) -> None:
    async with serving(engine.log) as server:
        page = await blank(browser)
        await page.goto(f"{server.url}api/pipeline")
        found = await page.evaluate(
            """async ([low, high]) => {
                const { logNamed, logSplits } = await import('/charts.js');
                const splits = logSplits(low, high);
                return [splits.length, logNamed(splits).filter((each) => each !== null).map(String)];
            }""",
            [low, high],
        )
    assert found == [lines, named]


async def test_a_chosen_key_of_which_nothing_is_known_can_be_read(
    browser: Browser, engine: Engine, public: dict[str, Any]
) -> None:
    async with serving(engine.log, public) as server:
        page = await shown(browser, server.url)
        assert await page.locator(f"{MEANS} .bars .noise .key[aria-pressed=true]").count() == 1
        assert await findings(page) == []


async def test_what_stands_alone_is_drawn_as_a_dot(
    browser: Browser, public: dict[str, Any]
) -> None:
    """The first tick of a run; and a value between two times of which nothing is known."""
    young = Engine()
    for tick, known in enumerate((True, False, True, False)):
        value, low, high = (31.5, 30.5, 32.5) if known else (None, None, None)
        young.publish("mean", {"value": value, "low": low, "high": high})
        if tick == 0:
            young.publish("departures", {"value": 7, "band": 3})
        young.tick += 1
    async with serving(young.log, public) as server:
        page = await blank(browser, viewport={"width": 1280, "height": 800})
        await page.goto(f"{server.url}?last=all")
        await drawn(page)
        for card, dots in (("[data-series=departures]", 1), (MEAN, 2)):
            await page.wait_for_function(
                f"([card, dots]) => ({DOTS})(card) === dots", arg=[card, dots]
            )
        await picture(page, "alone")
