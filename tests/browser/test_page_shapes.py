"""Cards of further shapes: a fan of quantiles, a quotient with two ends, a top list with ties, values below 0."""

from typing import Any

import pytest
from browser.page_worlds import (
    HISTORY,
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

FAN, MEAN, TOP, GAUGE = (
    f"[data-series={name}]" for name in ("delays", "mean_delay", "leaders", "gauge")
)
NAMES = ["ORD", "ATL", "LAX", "BOS", "MCO"]
MEANS = "[data-series=mean_by_door]"
FILLS = """card => {
    const canvas = document.querySelector(card + " canvas");
    const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const found = {near: 0, far: 0, line: 0};
    for (let at = 0; at < data.length; at += 4) {
        if (Math.abs(data[at] - 59) > 6 || Math.abs(data[at + 2] - 219) > 6) continue;
        if (data[at + 3] > 200) found.line += 1;
        else if (Math.abs(data[at + 3] - 51) <= 3) found.near += 1;
        else if (Math.abs(data[at + 3] - 23) <= 3) found.far += 1;
    }
    return found;
}"""


def bucket(middle: float, width: float = 3) -> dict[str, float]:
    """A told bucket."""
    return {"value": middle, "low": middle - width / 2, "high": middle + width / 2}


def fan(tick: int) -> dict[str, Any]:
    """Quantiles of the day that ended last; none on the first day."""
    day = tick // 24
    if day == 0:
        return {"quantiles": {}, "band": 48}
    centre = 12 + 6 * ((day * 7) % 5)
    told = {"0.5": bucket(centre + 1.5), "0.9": bucket(2 * centre + 40.5)}
    return {"quantiles": {**told, "0.99": {"value": 240, "low": 240, "high": 240}}, "band": 48}


def quotient(tick: int, *, short: bool) -> dict[str, Any]:
    """A mean; of a single tick at night there is no upper end, and at times nothing at all."""
    centre = 12.03 + 5 * abs(tick % 24 - 12) / 12 + (tick * 7 % 5 - 2) * (2 if short else 0.2)
    if short and tick % 24 == 5:
        return {"value": None, "low": None, "high": None}
    if short and tick % 24 < 4:
        return {"value": 310.0, "low": 0.5, "high": None}
    width = 9 if short else 1.234
    return {
        "value": round(centre, 3),
        "low": round(centre - width, 3),
        "high": round(centre + 2 * width, 3),
    }


def ranks(first: int) -> dict[str, Any]:
    """ORD alone, ATL and LAX together, and BOS with MCO and one that is not listed."""
    tied = [[], ["LAX"], ["ATL"], ["MCO", "SFO"], ["BOS", "SFO"]]
    more = {"MCO": {"more": 2}}
    values = [first, 640, 610, 301, 290]
    rows = [
        {"name": name, "value": value, "tied": others, **more.get(name, {})}
        for name, value, others in zip(NAMES, values, tied, strict=True)
    ]
    return {"ranks": rows, "band": 75}


@pytest.fixture
def engine() -> Engine:
    """An engine whose pipeline has a series of each of these shapes."""
    made = Engine()
    for tick in range(HISTORY):
        made.publish("delays", {"windows": {"24h": fan(tick)}})
        parts = {
            "tick": quotient(tick, short=True),
            "24h": quotient(tick, short=False),
        }
        made.publish("mean_delay", {"windows": parts})
        top = {"tick": {"ranks": ranks(700)["ranks"][:2], "band": 15}, "24h": ranks(870)}
        made.publish("leaders", {"windows": top})
        keyed = {"values": {"in": 31.0, "out": None, "idle": 24.25}, "lows": [2.0, None, 24.0],
                 "highs": [None, None, 24.5]}  # fmt: skip
        made.publish("mean_by_door", {"windows": {"tick": keyed, "24h": keyed}})
        made.publish("gauge", {"values": {"in": 120, "out": -80, "idle": 3}, "band": 20})
        made.step()
    return made


@pytest.fixture
def public() -> dict[str, Any]:
    """The pipeline with these series."""
    signs = {"of": "kind", "plus": "in", "minus": "out", "by": "door"}
    keyed = {**described("gauge", "gauge", **signs), "domain": ["in", "out", "idle"]}
    more = [
        {**described("count", "delays", windows=["24h"]), "windows": ["24h"],
         "about": "quantiles 0.5, 0.9, 0.99 of delay in each 24h", "error_unit": "events in rank",
         "parameters": {"told": "when a window ends", "clamp": "-30 to 240"}},
        {**described("count", "mean_delay", windows=["24h"]), "about": "mean of delay"},
        {**described("count", "leaders", windows=["24h"]), "about": "top 5 by destination"},
        keyed,
        {**described("histogram", "mean_by_door", by="door", windows=["24h"]), "domain": ["in", "out", "idle"]},
    ]  # fmt: skip
    return {**pipeline(), "series": [*more, *pipeline()["series"]]}


def planned() -> dict[str, Any]:
    """The plan, with the error of the quantiles."""
    error = [{"tick": 8760, "error": 48, "confidence": 0.95}]
    fan = {"name": "delays", "mechanism": "TumblingQuantiles", "why": "", "epsilon": 0.3, "delta": 0,
           "predicted_error": error, "windows": [{"window": "24h", "predicted_error": error}]}  # fmt: skip
    return {**plan(), "series": [*plan()["series"], fan]}


async def shown(browser: Browser, server: PageServer, **more: Any) -> Page:
    """The page, its cards of these shapes drawn."""
    page = await blank(browser, **{"viewport": {"width": 1280, "height": 900}, **more})
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    await page.goto(server.url)
    await drawn(page)
    for card in (FAN, MEAN, TOP, GAUGE, MEANS):
        await page.wait_for_selector(f"{card}[data-tick='{HISTORY - 1}']")
    return page


async def test_quantiles_are_a_fan_that_is_read_by_keyboard(
    browser: Browser, engine: Engine, public: dict[str, Any]
) -> None:
    async with serving(engine.log, public, plan=planned) as server:
        page = await shown(browser, server)
        console = Console(page)
        shares = ["half below", "90% below", "99% below"]
        assert await page.locator(f"{FAN} dt").all_inner_texts() == shares
        values = await page.locator(f"{FAN} dd").all_inner_texts()
        assert values == [
            "31.5",
            "30 to 33",
            "100.5",
            "99 to 102",
            "240",
            "at the end of its range",
        ]
        assert "in the 24 hours that ended last are off by 48 events at most" in await text(
            page, f"{FAN} .note"
        )
        assert "± 48 events in rank at tick 8,760" in await text(page, f"{FAN} .card-foot")
        label = str(await page.get_attribute(f"{FAN} .chart", "aria-label"))
        assert "50% below 31.5, 90% below 100.5, 99% below 240" in label
        drawn = await page.evaluate(FILLS, FAN)
        assert drawn["line"] > 300
        assert drawn["near"] > 2000
        assert drawn["far"] > 2000
        assert await page.locator(f"{FAN} .over").is_hidden()

        await page.focus(f"{FAN} .chart")
        await page.keyboard.press("Home")
        first = await text(page, f"{FAN} .readout")
        await page.keyboard.press("End")
        last = await text(page, f"{FAN} .readout")
        assert (
            last == "Wed, 30 Jan 2013, 14:00 UTC: 50% below 31.5 · 90% below 100.5 · 99% below 240"
        )
        assert first.startswith("Mon, 28 Jan 2013")
        await picture(page, "shapes")
        assert console.complaints == []


async def test_quantiles_of_sliding_windows_lie_in_the_range_below_them(
    browser: Browser, engine: Engine, public: dict[str, Any]
) -> None:
    parameters = {"told": "at every tick", "clamp": "-30 to 240"}
    sliding = [{**each, "parameters": parameters} for each in public["series"]]
    async with serving(engine.log, {**public, "series": sliding}, plan=planned) as server:
        page = await shown(browser, server)
        assert await text(page, f"{FAN} .note") == (
            "Each exact quantile in the last 24 hours lies in the range below it, all at once, with 95% confidence."
        )


async def test_a_fan_waits_for_the_first_window(browser: Browser, public: dict[str, Any]) -> None:
    young = Engine()
    young.publish("delays", {"windows": {"24h": fan(0)}})
    async with serving(young.log, public, plan=planned) as server:
        page = await blank(browser)
        await page.goto(server.url)
        await page.wait_for_selector(f"{FAN}[data-tick='0']")
        assert "No window has ended yet" in await text(page, f"{FAN} .note")
        assert await page.locator(f"{FAN} dt").count() == 0
        young.tick = 24
        young.publish("delays", {"windows": {"24h": fan(24)}})
        await page.wait_for_selector(f"{FAN}[data-tick='24'] dt")
        assert await page.locator(f"{FAN} dt").count() == 3


async def test_a_quotient_has_two_ends_and_says_where_one_is_open(
    browser: Browser, engine: Engine, public: dict[str, Any]
) -> None:
    async with serving(engine.log, public, plan=planned) as server:
        page = await shown(browser, server)
        assert await text(page, f"{MEAN} [aria-pressed=true]") == "24 hours"
        assert await text(page, f"{MEAN} .value") == "16.0"
        assert await text(page, f"{MEAN} .band") == "14.7 to 18.4 in the last 24 hours"
        assert "between these two ends with 95%" in await text(page, f"{MEAN} .note")
        await page.focus(f"{MEAN} .chart")
        await page.keyboard.press("End")
        assert (await text(page, f"{MEAN} .readout")).endswith("UTC: 16.0 14.7 to 18.4")

        await page.get_by_role("group", name="Window of mean delay").get_by_text("1 hour").click()

        assert "Line chart" in str(await page.get_attribute(f"{MEAN} .chart", "aria-label"))
        await page.focus(f"{MEAN} .chart")
        await page.keyboard.press("End")
        read = {await text(page, f"{MEAN} .readout")}
        for _ in range(24):
            await page.keyboard.press("ArrowLeft")
            read.add(await text(page, f"{MEAN} .readout"))
        assert sum(said.endswith("UTC: 310 at least 0.5") for said in read) == 5
        assert sum(said.endswith("UTC: – anything") for said in read) == 1
        assert len(read) == 25
        await picture(page, "shapes-tick")

        few = {"value": 310.0, "low": 0.5, "high": None}
        engine.publish("mean_delay", {"windows": {"tick": few, "24h": few}})
        await page.wait_for_selector(f"{MEAN} .value.noise")
        assert await text(page, f"{MEAN} .value") == "310"
        assert await text(page, f"{MEAN} .band") == "at least 0.5 in the last hour"
        note = await text(page, f"{MEAN} .note")
        assert note.endswith("with 95% confidence the exact figure is at least 0.5.")
        none = dict.fromkeys(("value", "low", "high"))
        engine.publish("mean_delay", {"windows": {"tick": none, "24h": none}})
        await page.wait_for_function(
            "card => document.querySelector(card + ' .value').textContent === '–'", arg=MEAN
        )
        assert "Too few events were counted to say anything" in await text(page, f"{MEAN} .note")


async def test_few_open_ends_do_not_flatten_the_rest_of_the_line(
    browser: Browser, server: PageServer
) -> None:
    page = await blank(browser)
    await page.goto(server.url)
    range_of = """async () => {
        const { framed } = await import('./charts.js');
        const many = [...Array(200).keys()];
        const open = (at) => at % 20 === 0;
        const columns = [many, many.map((at) => (open(at) ? 0 : 10)), many.map((at) => (open(at) ? Infinity : 20)),
            many.map((at) => (open(at) ? 5000 : 15))];
        const cut = framed(columns);
        return [cut.range, Math.max(...cut.columns[2]), framed(columns.map((each) => each.map(() => 3))).range];
    }"""
    (bottom, top), highest, whole = await page.evaluate(range_of)
    assert 0 < bottom < 10
    assert 20 < top < 30
    assert top < highest < 100
    assert whole is None


async def test_quotients_by_key_put_what_is_known_first(
    browser: Browser, engine: Engine, public: dict[str, Any]
) -> None:
    async with serving(engine.log, public, plan=planned) as server:
        page = await shown(browser, server)
        keys, values = page.locator(f"{MEANS} .key"), page.locator(f"{MEANS} .amount")
        assert await keys.all_inner_texts() == ["idle", "in", "out"]
        assert await values.all_inner_texts() == ["24.25", "31", "–"]
        assert "Too few events for both ends: 2 of 3 keys" in await text(page, f"{MEANS} .note")
        await page.click(f"{MEANS} summary")
        await page.wait_for_selector(f"{MEANS} tbody tr")
        rows = await page.locator(f"{MEANS} tbody tr").all_inner_texts()
        assert rows == [
            "idle\t24.25\t24.00 to 24.50",
            "in\t31\tat least 2 · too few events",
            "out\t–\tanything · too few events",
        ]


async def test_a_top_list_says_which_names_are_not_told_apart(
    browser: Browser, engine: Engine, public: dict[str, Any]
) -> None:
    async with serving(engine.log, public, plan=planned) as server:
        page = await shown(browser, server)
        assert await text(page, f"{TOP} caption") == "Top 5 in the last 24 hours"
        groups = page.locator(f"{TOP} tbody")
        cells = [
            [
                [cell for cell in await row.locator("th, td").all_inner_texts() if cell.strip()]
                for row in await group.locator("tr").all()
            ]
            for group in await groups.all()
        ]
        assert cells == [
            [["1", "ORD", "870"]],
            [["2–3", "ATL", "640"], ["2–3", "LAX", "610"]],
            [["4–6", "BOS", "301"], ["4–8", "MCO", "290"]],
        ]
        assert await text(page, f"{TOP} .note") == (
            "Each value ± 75, all at once, with 95% confidence. A range of ranks: not told apart "
            "from its neighbours. As high, perhaps: SFO and 2 more."
        )
        await page.get_by_role("group", name="Window of leaders").get_by_text("1 hour").click()
        assert await text(page, f"{TOP} caption") == "Top 2 in the last hour"
        assert await page.locator(f"{TOP} tbody tr").count() == 2


async def test_where_users_are_capped_a_band_is_about_what_counts(
    browser: Browser, engine: Engine, public: dict[str, Any]
) -> None:
    users = {"name": "(user, day)", "field": "customer", "max_events": 3, "per": "1d"}
    async with serving(engine.log, {**public, "users": users}, plan=planned) as server:
        page = await shown(browser, server)
        said = "exact figure of the events that count"
        assert f"The {said} lies between these" in await text(page, f"{MEAN} .note")
        assert f"Each {said} in the last 24 hours" in await text(page, f"{MEANS} .note")
        assert f"The {said} lies between" in await text(page, "[data-series=departures] .note")


async def test_no_more_time_is_offered_than_there_is(
    browser: Browser, engine: Engine, public: dict[str, Any]
) -> None:
    clock = {**public["clock"], "horizon": 300}
    async with serving(engine.log, {**public, "clock": clock}, plan=planned) as server:
        page = await shown(browser, server)
        assert await page.locator("#windows button").all_inner_texts() == [
            "1 day",
            "2 days",
            "7 days",
            "all",
        ]


async def test_bars_of_values_below_zero_go_to_the_left(
    browser: Browser, engine: Engine, public: dict[str, Any]
) -> None:
    async with serving(engine.log, public, plan=planned) as server:
        page = await shown(browser, server)
        bars = f"{GAUGE} .bar"
        boxes = [await bar.bounding_box() for bar in await page.locator(bars).all()]
        come, idle, gone = [box for box in boxes if box is not None]
        assert come["x"] == pytest.approx(gone["x"] + gone["width"], abs=1.5)
        assert come["x"] == pytest.approx(idle["x"], abs=1.5)
        assert gone["width"] == pytest.approx(come["width"] * 80 / 120, abs=1.5)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_phone_shows_them_without_sideways_scroll(
    browser: Browser, engine: Engine, public: dict[str, Any], scheme: str
) -> None:
    async with serving(engine.log, public, plan=planned) as server:
        phone = {"width": 390, "height": 780}
        page = await shown(browser, server, viewport=phone, color_scheme=scheme)
        await page.click(f"{MEANS} summary")
        await page.wait_for_selector(f"{MEANS} tbody tr")
        assert await page.evaluate("document.documentElement.scrollWidth") <= 390
        await picture(page, f"shapes-phone-{scheme}")
