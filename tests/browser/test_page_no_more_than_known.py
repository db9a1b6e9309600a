"""What cards do not pretend: no values where nothing is known, no counts below 0, no class names, no second list."""

import random
from typing import Any

import pytest
from browser.page_worlds import (
    KEEPS_PLOTS,
    PLOT,
    Console,
    Engine,
    blank,
    described,
    opened,
    picture,
    pipeline,
    plan,
    serving,
    text,
)
from playwright.async_api import Browser

pytestmark = pytest.mark.browser

WEEKS, HOURS = 6, 168
COUNT, SIGNED, FAN, FEW, MANY = (
    f"[data-series={name}]" for name in ("rare", "inside", "delays", "few", "many")
)
LOWS = PLOT + "(card).data[1]"
EMPTY = (2, 3, 5)
KEYS = [f"k{place}" for place in range(16)]


def quantiles(tick: int, noise: random.Random) -> dict[str, Any]:
    """Of a week with events what is known; of one without any value, and all values between its ends."""
    told = {"0.5": (4.0, -6.0, 9.0), "0.9": (60.0, 36.0, 93.0)}
    if tick // HOURS in EMPTY:
        told = {name: (noise.randint(-300, 2400) / 10, -30.0, 240.0) for name in told}
    return {name: dict(zip(("value", "low", "high"), at, strict=True)) for name, at in told.items()}


@pytest.fixture
def engine() -> Engine:
    """Some weeks of each; the last one has no events."""
    made, noise = Engine(), random.Random(5)
    for tick in range(WEEKS * HOURS):
        made.publish("rare", {"value": tick % 7, "band": 12})
        made.publish("inside", {"value": tick % 7, "band": 12})
        made.publish(
            "delays", {"windows": {"24h": {"quantiles": quantiles(tick, noise), "band": 40}}}
        )
        made.publish("few", {"values": dict.fromkeys(KEYS[:15], 30), "band": 4})
        made.publish("many", {"values": dict.fromkeys(KEYS, 30), "band": 4})
        made.tick += 1
    return made


@pytest.fixture
def public() -> dict[str, Any]:
    """The pipeline with these series."""
    fan = {
        "of": "delay",
        "clamp": ["-30", "240"],
        "buckets": "90",
        "at": ["0.5", "0.9"],
        "windows": ["24h"],
    }
    series = [
        described("count", "rare"),
        described("gauge", "inside", of="kind", plus="in", minus="out"),
        described("quantiles", "delays", **fan),
        {**described("histogram", "few", by="place"), "domain": KEYS[:15]},
        {**described("histogram", "many", by="place"), "domain": KEYS},
    ]
    return {**pipeline(), "series": series}


async def test_bands_of_counts_end_at_zero_and_those_of_signed_figures_do_not(
    browser: Browser, engine: Engine, public: dict[str, Any]
) -> None:
    async with serving(engine.log, public) as server:
        page = await blank(browser, viewport={"width": 1280, "height": 900})
        await page.add_init_script(KEEPS_PLOTS)
        await page.goto(server.url)
        lowest: dict[str, float] = {}
        for card in (COUNT, SIGNED):
            await page.wait_for_selector(f"{card} canvas")
            lowest[card] = min(await page.evaluate(LOWS, card))
        assert lowest == {COUNT: 0, SIGNED: -12}
        await page.click(f"{MANY} .key >> nth=0")
        await picture(page, "no-more")


async def test_where_all_values_are_possible_no_quantile_is_drawn(
    browser: Browser, engine: Engine, public: dict[str, Any]
) -> None:
    async with serving(engine.log, public) as server:
        page = await blank(browser, viewport={"width": 1280, "height": 900})
        console = Console(page)
        await page.add_init_script(KEEPS_PLOTS)
        await page.goto(f"{server.url}?last=all")
        await page.wait_for_selector(f"{FAN} canvas")
        assert await page.locator(f"{FAN} dd").all_inner_texts() == ["–", "too few to tell"] * 2
        assert await text(page, f"{FAN} .note") == (
            "Too few events in the last 24 hours to tell: as far as is known, each quantile may be anything from "
            "−30 to 240."
        )
        x, half, most = await page.evaluate(PLOT + "(card).data", FAN)
        last = [round((at - x[0]) / 3600) for at in x]
        week = [(tick + WEEKS * HOURS - 1 - last[-1]) // HOURS for tick in last]
        assert {at for at, value in zip(week, half, strict=True) if value is None} == set(EMPTY)
        assert {value for value in (*half, *most) if value is not None} == {4, 60}
        await page.focus(f"{FAN} .chart")
        await page.keyboard.press("End")
        assert (await text(page, f"{FAN} .readout")).endswith("UTC: too few to tell")
        assert console.complaints == []


async def test_a_filter_is_offered_where_there_is_more_than_is_shown(
    browser: Browser, engine: Engine, public: dict[str, Any]
) -> None:
    async with serving(engine.log, public) as server:
        page = await blank(browser, viewport={"width": 1280, "height": 900})
        await page.goto(server.url)
        for card, said, filtered in ((FEW, "All 15", False), (MANY, "All 16", True)):
            await page.wait_for_selector(f"{card}[data-tick='{WEEKS * HOURS - 1}']")
            assert await text(page, f"{card} .all summary") == f"{said} with their bands"
            await page.click(f"{card} .all summary")
            assert await page.locator(f"{card} .all input").is_visible() is filtered


async def test_how_a_series_is_made_is_one_click_away(browser: Browser, engine: Engine) -> None:
    """The class of a mechanism is a word for the proof, and stands on no card."""
    for _ in range(3):
        engine.step()
    async with serving(engine.log) as server:
        page = await opened(browser, server.url)
        cards = await text(page, "#cards")
        assert "HSS" not in cards
        row = page.locator("#made-by_destination")
        assert not await row.is_visible()
        await page.click("[data-series=by_destination] .card-foot a")
        await row.wait_for()
        assert (await row.locator("td").first.inner_text()).startswith("HSS")
        named = [each["name"] for each in plan()["series"]]
        assert await page.locator("#proof .made tbody tr").count() == len(named)
