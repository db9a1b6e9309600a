"""What a reader may choose and take away: time, scale, the period before, keys, series; tables, CSV and PNG.

All choices are in the address. Files hold released values with their bands, and no others.
"""

import json
import re
from urllib.parse import parse_qs

import pytest
from browser.ask_worlds import GIVEN, HOLDS
from browser.page_worlds import (
    HISTORY,
    KEEPS_PLOTS,
    PLOT,
    Engine,
    blank,
    drawn,
    pipeline,
    readout,
    saved,
    saved_rows,
    serving,
    showing,
    text,
    texts,
)
from playwright.async_api import Browser, Page

pytestmark = pytest.mark.browser

DEPARTURES, BUSIEST, DESTINATIONS, LATE = (
    f"[data-series={name}]"
    for name in ("departures", "busiest_destination", "by_destination", "late_departures")
)
COLUMNS = f"many => document.querySelector('{DEPARTURES} .chart').plot.data.length === many"
UNDER_CURSOR = """card => {
    const box = document.querySelector(card + ' .chart').closest('.chart-box');
    return box.querySelector('.readout').textContent.split(' UTC')[0];
}"""


async def chosen(page: Page) -> dict[str, list[str]]:
    """What the address says, asked of the page itself: the driver hears of it later."""
    query: str = await page.evaluate("() => location.search.slice(1)")
    return parse_qs(query)


async def ends(page: Page, card: str = DEPARTURES) -> tuple[str, str]:
    """The first and the last time of a chart, read by keyboard."""
    first, last = [await readout(page, card, key) for key in ("Home", "End")]
    return first.split(" UTC")[0], last.split(" UTC")[0]


async def test_a_length_of_time_is_in_the_address_and_undone_by_going_back(
    browser: Browser, engine: Engine
) -> None:
    async with showing(browser, engine) as page:
        lengths = ["1 day", "2 days", "7 days", "14 days", "30 days", "all"]
        assert await texts(page, "#windows button") == lengths
        assert await ends(page) == ("Mon, 28 Jan 2013, 15:00", "Wed, 30 Jan 2013, 14:00")
        assert await chosen(page) == {}
        await page.click("#windows button >> text=7 days")
        assert await chosen(page) == {"last": ["7d"]}
        await page.locator(".strip-head", has_text="last 7 days").wait_for()
        assert await ends(page) == ("Wed, 23 Jan 2013, 15:00", "Wed, 30 Jan 2013, 14:00")

        other = await blank(browser)
        await other.goto(await page.evaluate("() => location.href"))
        await drawn(other)
        assert await text(other, "#windows [aria-pressed=true]") == "7 days"
        assert await ends(other) == await ends(page)

        await page.go_back()
        await page.locator(".strip-head", has_text="last 2 days").wait_for()
        assert await text(page, "#windows [aria-pressed=true]") == "2 days"


async def test_no_more_time_is_offered_than_there_is(browser: Browser, engine: Engine) -> None:
    public = {**pipeline(), "clock": {**pipeline()["clock"], "horizon": 300}}
    async with showing(browser, engine, public) as page:
        assert await texts(page, "#windows button") == ["1 day", "2 days", "7 days", "all"]


async def test_a_time_between_two_moments_is_typed(browser: Browser, engine: Engine) -> None:
    async with showing(browser, engine) as page:
        await page.click(".between summary")
        fields = page.locator(".between input")
        assert await fields.nth(1).input_value() == "2013-01-30T14:00"
        await fields.nth(0).fill("2013-01-10T06:00:00")
        await fields.nth(1).fill("2013-01-11T18:00:00")
        await page.keyboard.press("Enter")
        between = {"from": ["2013-01-10T06:00:00Z"], "to": ["2013-01-11T18:00:00Z"]}
        assert await chosen(page) == between
        shown = re.compile("^10 Jan 2013, 06:00 to 11 Jan 2013, 18:00$")
        await page.locator(".between summary", has_text=shown).wait_for()
        assert await ends(page) == ("Thu, 10 Jan 2013, 06:00", "Fri, 11 Jan 2013, 18:00")
        assert await page.locator("#windows [aria-pressed=true]").count() == 0
        await page.click("#windows button >> text=2 days")
        assert await chosen(page) == {}


async def test_times_are_those_of_the_file_or_of_the_reader(
    browser: Browser, engine: Engine
) -> None:
    zoned = {**pipeline(), "clock": {**pipeline()["clock"], "zone": "America/New_York"}}
    async with serving(engine.log, zoned) as server:
        page = await blank(browser, timezone_id="Europe/Zurich")
        await page.goto(server.url)
        await drawn(page)
        assert await text(page, "#clock") == "Wed, 30 Jan 2013, 09:00 GMT-5"
        assert (await readout(page, DEPARTURES, "End")).startswith("Wed, 30 Jan 2013, 09:00 GMT-5")
        await page.get_by_label("Time zone").select_option("yours")
        await page.locator("#clock", has_text="Wed, 30 Jan 2013, 15:00 CET").wait_for()
        assert await chosen(page) == {"zone": ["yours"]}
        assert await text(page, "#zone") == "Europe/Zurich"
        await page.click(".between summary")
        fields = page.locator(".between input")
        assert await fields.nth(1).input_value() == "2013-01-30T15:00"
        await fields.nth(0).fill("2013-01-10T07:00:00")
        await fields.nth(1).fill("2013-01-11T19:00:00")
        await page.keyboard.press("Enter")
        between = {"from": ["2013-01-10T06:00:00Z"], "to": ["2013-01-11T18:00:00Z"]}
        assert await chosen(page) == {"zone": ["yours"], **between}


async def test_a_pixel_stands_for_many_ticks_and_loading_is_shown(
    browser: Browser, engine: Engine
) -> None:
    script = KEEPS_PLOTS + HOLDS
    async with showing(browser, engine, script=script) as page:
        path = f"/api/series/departures?from=0&to={HISTORY - 1}"
        await page.evaluate("path => { window.holding = path; }", path)
        await page.evaluate("() => window.board.cards.forEach((card) => { card.reached = 600; })")
        await page.click("#windows button >> text=all")
        await page.wait_for_selector(f"{DEPARTURES}[aria-busy=true] .loading")
        await page.wait_for_function("() => window.held.length > 0")
        await page.evaluate(GIVEN)
        await page.wait_for_selector(f"{DEPARTURES}[aria-busy=false]")
        await page.wait_for_function(
            f"() => document.querySelector('{DEPARTURES} .chart').plot.data[0].length > 60"
        )
        times, lows, highs, values = await page.evaluate(PLOT + "(card).data", DEPARTURES)
        width = await page.evaluate(PLOT + "(card).width", DEPARTURES)
        assert len(times) <= width
        told = [
            json.loads(each.body) for each in engine.log.series_between("departures", 0, HISTORY)
        ]
        many = -(-(HISTORY - 1) // (len(times) - 1))
        last = told[-many - 1 : -1]
        assert values[-2] == pytest.approx(sum(each["value"] for each in last) / many)
        assert (lows[-2], highs[-2]) == (
            min(each["value"] - each["band"] for each in last),
            max(each["value"] + each["band"] for each in last),
        )
        assert values[-1] == told[-1]["value"]  # the number above the chart
        assert "on average" not in await readout(page, DEPARTURES, "End")
        assert f"on average over {many} ticks" in await readout(page, DEPARTURES, "ArrowLeft")


async def test_a_mouse_shows_its_moment_and_the_time_it_drags_over_in_all_charts(
    browser: Browser, engine: Engine
) -> None:
    async with showing(browser, engine) as page:
        box = await page.locator(f"{DEPARTURES} .u-over").bounding_box()
        assert box is not None
        middle = box["y"] + box["height"] / 2
        await page.mouse.move(box["x"] + box["width"] / 4, middle)
        await page.wait_for_function(f"() => ({UNDER_CURSOR})('{DEPARTURES}') !== ''")
        here, there = [await page.evaluate(UNDER_CURSOR, card) for card in (DEPARTURES, BUSIEST)]
        assert here == there != ""
        await page.mouse.move(5, 5)
        await page.wait_for_function(f"() => ({UNDER_CURSOR})('{BUSIEST}') === ''")

        await page.mouse.move(box["x"] + box["width"] / 4, middle)
        await page.mouse.down()
        await page.mouse.move(box["x"] + box["width"] / 2, middle, steps=4)
        await page.mouse.up()
        await page.locator(".strip-head", has_text=re.compile("^29 Jan 2013, 0")).wait_for()
        first, last = await ends(page)
        assert first in {"Tue, 29 Jan 2013, 03:00", "Tue, 29 Jan 2013, 04:00"}
        assert last in {"Tue, 29 Jan 2013, 14:00", "Tue, 29 Jan 2013, 15:00"}
        assert await ends(page, BUSIEST) == (first, last)
        assert list(await chosen(page)) == ["from", "to"]


async def test_the_scale_of_values_is_chosen(browser: Browser, engine: Engine) -> None:
    async with showing(browser, engine, script=KEEPS_PLOTS) as page:
        lowest: dict[str, float] = {}
        for scale, (distribution, below) in {
            "": (1, 20_000), "zero": (1, 1), "log": (3, 20_000),
        }.items():  # fmt: skip
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


async def test_the_period_before_is_a_ghost(browser: Browser, engine: Engine) -> None:
    async with showing(browser, engine, script=KEEPS_PLOTS) as page:
        await page.wait_for_function(COLUMNS, arg=4)
        await page.check(".tools input[type=checkbox]")
        await page.wait_for_function(COLUMNS, arg=5)
        *_, now, before = await page.evaluate(PLOT + "(card).data", DEPARTURES)
        await page.click("#windows button >> text=7 days")
        hours = f"() => document.querySelector('{DEPARTURES} .chart').plot.data[0].length === 168"
        await page.wait_for_function(hours)
        week = await page.evaluate(PLOT + "(card).data[3]", DEPARTURES)
        assert (week[-48:], week[-96:-48]) == (now, before)
        assert ", before: " in await readout(page, DEPARTURES, "End")
        await page.click("#windows button >> text=all")
        await page.wait_for_function(COLUMNS, arg=4)


async def test_keys_are_compared_over_time(browser: Browser, engine: Engine) -> None:
    async with showing(browser, engine) as page:
        keys = page.locator(f"{DESTINATIONS} .bars .key")
        assert await page.locator(f"{DESTINATIONS} .chart").is_hidden()
        await keys.nth(0).click()
        await keys.nth(2).click()
        await page.wait_for_selector(f"{DESTINATIONS} .chart canvas")
        assert await chosen(page) == {"keys.by_destination": ["ORD", "LAX"]}
        assert await texts(page, f"{DESTINATIONS} .bars .key[aria-pressed=true]") == ["ORD", "LAX"]
        await page.wait_for_selector(f"{DESTINATIONS}[data-received='{HISTORY}']")
        read = await readout(page, DESTINATIONS, "End")
        assert "ORD 1,936 (1,912 to 1,960) · LAX 1,159 (1,135 to 1,183)" in read
        engine.step()
        await page.wait_for_selector(f"{DESTINATIONS}[data-received='{HISTORY + 1}']")

        await page.click(f"{DESTINATIONS} .chosen-keys button >> nth=0")
        assert await chosen(page) == {"keys.by_destination": ["LAX"]}
        await page.reload()
        await page.wait_for_selector(f"{DESTINATIONS} .chart canvas")
        assert await texts(page, f"{DESTINATIONS} .chosen-keys li") == ["LAX\n×"]


async def test_of_many_series_some_are_found_or_none(browser: Browser, engine: Engine) -> None:
    first = pipeline()["series"][0]
    gates = [{**first, "name": f"more_{gate}", "title": f"Gate {gate}"} for gate in range(10)]
    for gate in range(10):
        engine.publish(f"more_{gate}", {"value": gate, "band": 45})
    public = {**pipeline(), "series": [*pipeline()["series"], *gates]}
    async with showing(browser, engine, public) as page:
        await page.fill(".tools input[type=search]", "gate 7")
        only = "() => document.querySelectorAll('.card:not([hidden])').length === 1"
        await page.wait_for_function(only)
        assert await text(page, ".card:not([hidden]) h3") == "Gate 7"
        assert await chosen(page) == {"find": ["gate 7"]}
        await page.fill(".tools input[type=search]", "gate 17")
        await page.wait_for_selector("#empty")
        assert await text(page, "#empty") == "No series has “gate 17” in its name or description."
        await page.fill(".tools input[type=search]", "gate")
        await page.wait_for_selector("#empty", state="hidden")


# --- what is taken away -------------------------------------------------------------------------


async def test_csv_holds_what_was_released_in_the_time_shown(
    browser: Browser, engine: Engine
) -> None:
    times = (HISTORY - 48, HISTORY - 1)
    expected, alerts = [], []
    for release in engine.log.series_between("departures", *times):
        said = json.loads(release.body)
        value, band = said["value"], said["band"]
        row = {"value": str(value), "low": str(value - band), "high": str(value + band)}
        expected.append({"end": said["end"], "tick": str(said["tick"]), "window": "", **row})
    for release in engine.log.series_between("late_departures", *times):
        alerts += [(str(release.tick), key) for key in json.loads(release.body)["fired"]]
    newest = json.loads(engine.log.latest()["by_destination"].body)["values"]
    async with showing(browser, engine) as page:
        assert await saved_rows(page, "departures") == expected
        keyed = {row["key"]: int(row["value"]) for row in await saved_rows(page, "by_destination")}
        assert keyed == newest
        fired = [(row["tick"], row["key"]) for row in await saved_rows(page, "late_departures")]
        assert sorted(fired) == sorted(alerts) != []


async def test_a_cell_is_no_formula(browser: Browser, engine: Engine) -> None:
    ask = "async rows => (await import('./cards/tools.js')).csv(['key', 'value'], rows)"
    rows = [["=1+1", -3], ["@x", None], ['say "a,b"', 0.5], ["-5", 1], ["-x", 2]]
    async with showing(browser, engine) as page:
        assert await page.evaluate(ask, rows) == (
            'key,value\r\n\'=1+1,-3\r\n\'@x,\r\n"say ""a,b""",0.5\r\n-5,1\r\n\'-x,2\r\n'
        )


async def test_a_picture_of_every_card_can_be_saved(browser: Browser, engine: Engine) -> None:
    async with showing(browser, engine) as page:
        for series in ("departures", "by_destination", "late_departures"):
            name, content = await saved(page, series, "PNG")
            assert name == f"{series}.png"
            assert content.startswith(b"\x89PNG")
            width, height = (int.from_bytes(content[at : at + 4]) for at in (16, 20))
            assert width == 1600
            assert height > 300


async def test_every_chart_has_a_table(browser: Browser, engine: Engine) -> None:
    table = f"{DEPARTURES} .as-table"
    async with showing(browser, engine) as page:
        await page.click(f"{table} summary")
        assert await text(page, f"{table} caption") == "Departures: 48 rows, the newest first"
        heads = ["end", "tick", "window", "value", "low", "high"]
        assert await texts(page, f"{table} thead th") == heads
        first = await page.locator(f"{table} tbody tr").first.inner_text()
        assert first.split() == ["2013-01-30T14:00:00Z", "699", "14896", "14851", "14941"]
        await page.click("#windows button >> text=all")
        await page.wait_for_selector(f"{table} caption >> text=the newest 300 of 700 rows")
        for summary in (f"{BUSIEST} .as-table", f"{LATE} .as-table", f"{DESTINATIONS} .all"):
            assert await page.locator(f"{summary} summary").is_visible()
