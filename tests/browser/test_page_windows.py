"""Cards of windows: bars of single ticks first, a choice of windows; sums with decimals; a shape that nobody knows."""

import json
import random
from typing import Any

import pytest
from browser.page_worlds import (
    CODES_SHOWN,
    HISTORY,
    HORIZON,
    Console,
    Engine,
    blank,
    described,
    drawn,
    picture,
    pipeline,
    plan,
    serving,
    text,
)
from playwright.async_api import Browser, Page

from stream_dp.server.server import PageServer

pytestmark = pytest.mark.browser

RATE, RATES, SUM = "[data-series=rate]", "[data-series=rates]", "[data-series=turnover]"
BANDS = {"tick": 15, "6h": 38, "24h": 75, "ever": 160}
PIXELS = """card => {
    const canvas = document.querySelector(card + " canvas");
    const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const found = {bar: 0, whisker: 0, line: 0};
    for (let at = 0; at < data.length; at += 4) {
        const near = (...colour) => colour.every((part, place) => Math.abs(data[at + place] - part) <= 6);
        if (near(59, 91, 219, 140)) found.bar += 1;
        else if (near(59, 91, 219) && data[at + 3] > 200) found.line += 1;
        else if (near(23, 26, 38) && data[at + 3] > 200) found.whisker += 1;
    }
    return found;
}"""
PRESSED = "[aria-pressed=true]"
LATER_VERSION = """
    const parse = Response.prototype.json;
    const glow = { later: { glow: [1, 2] }, rate: { windows: { tick: { glow: 3 } } } };
    const later = ({ value, band, windows, ...head }) => ({ ...head, ...glow[head.series] });
    Response.prototype.json = async function () {
        const said = await parse.call(this);
        for (const each of said.releases ? [] : said.series ?? []) {
            if (each.name in glow && each.shape) each.shape = "hologram of";
            if (each.name in glow && each.latest) each.latest = later(each.latest);
        }
        return said;
    };
"""


def series() -> list[dict[str, Any]]:
    """What the API says of a windowed count, a windowed histogram, a sum and more."""
    return [
        described("count", "rate", windows=["6h", "24h", "ever"]),
        {
            **described("histogram", "rates", by="airline", windows=["24h"]),
            "domain": ["AA", "UA", "DL"],
        },
        described("count", "rare", windows=["6h", "24h", "ever"]),
        described("count", "turnover"),
        described("count", "later"),
    ]


def planned() -> dict[str, Any]:
    """The plan, with the error of each window of the rate."""
    told = [
        {
            "window": name,
            "predicted_error": [{"tick": HORIZON, "error": band, "confidence": 0.95}],
        }
        for name, band in BANDS.items()
    ]
    rate = {
        "name": "rate",
        "mechanism": "WindowForest",
        "why": "",
        "epsilon": 0.2,
        "delta": 0,
        "predicted_error": told[0]["predicted_error"],
        "windows": told,
    }
    return {**plan(), "series": [*plan()["series"], rate]}


def windows(seen: list[int]) -> dict[str, Any]:
    """The parts of a release of the rate after these ticks."""
    lengths = {"tick": 1, "6h": 6, "24h": 24, "ever": len(seen)}
    return {
        name: {"value": sum(seen[-length:]), "band": BANDS[name]}
        for name, length in lengths.items()
    }


def rare(tick: int) -> dict[str, Any]:
    """A count of which single ticks say nothing, 6 hours seldom something, and days mostly."""
    values = {"tick": 2, "6h": 12 if tick % 5 else 60, "24h": 90 if tick % 5 else 48, "ever": 9_000}
    return {name: {"value": value, "band": BANDS[name]} for name, value in values.items()}


@pytest.fixture
def engine() -> Engine:
    """An engine whose pipeline has windows and a sum."""
    made = Engine()
    draws = random.Random(3)
    seen: list[int] = []
    for tick in range(HISTORY):
        seen.append(max(0, round(55 - abs((tick + 10) % 24 - 14) * 5 + draws.gauss(0, 7))))
        made.publish("rate", {"windows": windows(seen)})
        keys = {
            "tick": {"values": {"AA": 9, "UA": 4, "DL": 41}, "band": 15},
            "24h": {"values": {"AA": 610, "UA": 340, "DL": 12}, "band": 75},
        }
        made.publish("rates", {"windows": keys})
        made.publish("rare", {"windows": rare(tick)})
        made.publish("turnover", {"value": tick * 3.25, "band": 310.5})
        made.publish("later", {"value": 1, "band": 1})
        made.step()
    return made


async def shown(browser: Browser, server: PageServer, **more: Any) -> Page:
    """The page, its cards drawn."""
    page = await blank(browser, **{"viewport": {"width": 1280, "height": 900}, **more})
    await page.goto(server.url)
    await drawn(page)
    for card in (RATE, RATES, SUM):
        await page.wait_for_selector(f"{card}[data-tick='{HISTORY - 1}']")
    return page


@pytest.fixture
def public() -> dict[str, Any]:
    """The pipeline with these series."""
    return {**pipeline(), "series": [*series(), *pipeline()["series"]]}


async def test_single_ticks_are_bars_and_a_window_is_chosen_by_keyboard(
    browser: Browser, engine: Engine, public: dict[str, Any]
) -> None:
    last = windows_of(engine)
    async with serving(engine.log, public, plan=planned) as server:
        page = await shown(browser, server)
        console = Console(page)
        choice = page.get_by_role("group", name="Window of rate", exact=True)
        assert await choice.get_by_role("button").all_inner_texts() == [
            "1 hour",
            "6 hours",
            "24 hours",
            "ever",
        ]
        assert await page.evaluate(CODES_SHOWN) == []
        assert await text(page, f"{RATE} {PRESSED}") == "1 hour"
        assert await text(page, f"{RATE} .value") == f"{last['tick']['value']:,}"
        assert await text(page, f"{RATE} .band") == "± 15 in the last hour"
        assert "Bar chart" in str(await page.get_attribute(f"{RATE} .chart", "aria-label"))
        bars = await page.evaluate(PIXELS, RATE)
        assert bars["bar"] > 1500
        assert bars["whisker"] > 300
        assert bars["line"] == 0
        await picture(page, "windows-tick")

        await choice.get_by_role("button", name="the last 6 hours").focus()
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")

        assert await text(page, f"{RATE} {PRESSED}") == "24 hours"
        assert await page.evaluate("document.activeElement.value") == "24h"
        assert await text(page, f"{RATE} .value") == f"{last['24h']['value']:,}"
        assert await text(page, f"{RATE} .band") == "± 75 in the last 24 hours"
        assert "expected error ± 75" in await text(page, f"{RATE} .card-foot")
        line = await page.evaluate(PIXELS, RATE)
        assert line["bar"] < bars["bar"] / 20  # edges of the line
        assert line["line"] > 300

        await choice.get_by_role("button", name="ever").click()
        assert await text(page, f"{RATE} .value") == f"{last['ever']['value']:,}"
        assert await text(page, f"{RATE} .band") == "± 160 so far"
        await page.focus(f"{RATE} .chart")
        await page.keyboard.press("End")
        assert f"{last['ever']['value']:,} ± 160" in await text(page, f"{RATE} .readout")

        before = int(await page.get_attribute(RATE, "data-received") or 0)
        engine.publish("rate", {"windows": {n: {"value": 7, "band": b} for n, b in BANDS.items()}})
        await page.wait_for_selector(f"{RATE}[data-received='{before + 1}']")
        assert await text(page, f"{RATE} .value") == "7"
        assert await text(page, f"{RATE} {PRESSED}") == "ever"
        assert console.complaints == []


async def test_a_count_opens_with_the_shortest_window_that_says_something(
    browser: Browser, engine: Engine, public: dict[str, Any]
) -> None:
    async with serving(engine.log, public, plan=planned) as server:
        page = await shown(browser, server)
        rare_one = "[data-series=rare]"
        assert await text(page, f"{rare_one} {PRESSED}") == "24 hours"
        assert await text(page, f"{rare_one} .value") == "90"

        choice = page.get_by_role("group", name="Window of rare")
        await choice.get_by_role("button", name="the last hour").click()
        engine.publish("rare", {"windows": rare(HISTORY)})
        await page.wait_for_selector(f"{rare_one}[data-tick='{HISTORY}']")
        assert await text(page, f"{rare_one} {PRESSED}") == "1 hour"


async def test_a_windowed_histogram_shows_the_keys_of_the_window(
    browser: Browser, engine: Engine, public: dict[str, Any]
) -> None:
    async with serving(engine.log, public, plan=planned) as server:
        page = await shown(browser, server)
        keys, values = page.locator(f"{RATES} .key"), page.locator(f"{RATES} .amount")
        assert await keys.all_inner_texts() == ["DL", "AA", "UA"]
        assert "Each value in the last hour ± 15" in await text(page, f"{RATES} .note")
        await page.click(f"{RATES} summary")
        assert await page.locator(f"{RATES} tbody td").first.inner_text() == "41"

        await page.get_by_role("group", name="Window of rates").get_by_text("24 hours").click()

        assert await keys.all_inner_texts() == ["AA", "UA", "DL"]
        assert await values.all_inner_texts() == ["610", "340", "12"]
        assert "Each value in the last 24 hours ± 75" in await text(page, f"{RATES} .note")
        assert "1 of 3 keys" in await text(page, f"{RATES} .note")
        assert await page.locator(f"{RATES} tbody td").first.inner_text() == "610"
        await picture(page, "windows-24h")


async def test_what_has_no_picture_says_so_and_disturbs_nobody(
    browser: Browser, engine: Engine, public: dict[str, Any]
) -> None:
    page = await blank(browser, viewport={"width": 1280, "height": 900})
    console = Console(page)
    await page.add_init_script(LATER_VERSION)
    async with serving(engine.log, public, plan=planned) as server:
        await page.goto(server.url)
        await page.wait_for_selector(f"{SUM}[data-tick='{HISTORY - 1}']")
        for card in ("[data-series=later]", RATE):
            await page.locator(f"{card} .note", has_text="No picture for this yet").wait_for()
        assert await text(page, f"{SUM} .value") == "2,271.75"
        assert await text(page, f"{SUM} .band") == "± 310.5"
    assert [said for said in console.complaints if "net::ERR" not in said] == []


async def test_a_phone_shows_the_choice_without_sideways_scroll(
    browser: Browser, engine: Engine, public: dict[str, Any]
) -> None:
    async with serving(engine.log, public, plan=planned) as server:
        phone = {"width": 360, "height": 740}
        page = await shown(browser, server, viewport=phone, color_scheme="dark")
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360
        await picture(page, "windows-phone")


@pytest.mark.parametrize(
    ("value", "said"),
    [(1203.5, "1,203.5"), (1234567.89, "1,234,567.89"), (0.1 + 0.2, "0.3"), (-0.000001, "−0.000001"), (7, "7")],
)  # fmt: skip
async def test_sums_are_shown_with_the_decimals_of_their_grid(
    browser: Browser, server: PageServer, value: float, said: str
) -> None:
    page = await blank(browser)
    await page.goto(server.url)
    ask = "async value => { const { count, band } = await import('./format.js'); return [count(value), band(value)]; }"
    assert await page.evaluate(ask, value) == [said, f"± {said.replace('−', '-')}"]


def windows_of(engine: Engine) -> dict[str, Any]:
    """The last release of the rate."""
    (release,) = engine.log.series_between("rate", HISTORY - 1, HISTORY - 1)
    found: dict[str, Any] = json.loads(release.body)["windows"]
    return found
