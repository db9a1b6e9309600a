"""What leaves a card: a table, CSV and PNG; they hold released values with their bands, and no others."""

import asyncio
import csv
import io
import json

import pytest
from browser.page_worlds import HISTORY, Console, Engine, opened, text
from playwright.async_api import Browser, Page

from stream_dp.server.server import PageServer

pytestmark = pytest.mark.browser


async def saved(page: Page, series: str, what: str) -> tuple[str, bytes]:
    """Press a card's button and return the file's name and content."""
    async with page.expect_download() as waits:
        await page.click(f"[data-series={series}] .card-tools button >> text={what}")
    download = await waits.value
    content = await asyncio.to_thread((await download.path()).read_bytes)
    return download.suggested_filename, content


async def rows(page: Page, series: str) -> list[dict[str, str]]:
    """The CSV of a card."""
    name, content = await saved(page, series, "CSV")
    assert name == f"{series}.csv"
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


async def test_csv_holds_what_was_released_in_the_time_shown(
    browser: Browser, server: PageServer, engine: Engine
) -> None:
    page = await opened(browser, server.url)
    console = Console(page)
    expected = []
    for release in engine.log.series_between("departures", HISTORY - 48, HISTORY - 1):
        said = json.loads(release.body)
        value, band = said["value"], said["band"]
        ends = {"value": str(value), "low": str(value - band), "high": str(value + band)}
        expected.append({"end": said["end"], "tick": str(said["tick"]), "window": "", **ends})
    assert await rows(page, "departures") == expected

    newest = json.loads(engine.log.latest()["by_destination"].body)
    keyed = {row["key"]: int(row["value"]) for row in await rows(page, "by_destination")}
    assert keyed == newest["values"]

    fired = [(row["tick"], row["key"]) for row in await rows(page, "late_departures")]
    alerts = [
        (str(release.tick), key)
        for release in engine.log.series_between("late_departures", HISTORY - 48, HISTORY - 1)
        for key in json.loads(release.body)["fired"]
    ]
    assert sorted(fired) == sorted(alerts) != []
    assert console.complaints == []


async def test_a_cell_is_no_formula(browser: Browser, server: PageServer) -> None:
    page = await opened(browser, server.url)
    ask = "async rows => (await import('./export.js')).csv(['key', 'value'], rows)"
    given = [["=1+1", -3], ["@x", None], ['say "a,b"', 0.5], ["-5", 1], ["-x", 2]]
    assert await page.evaluate(ask, given) == (
        'key,value\r\n\'=1+1,-3\r\n\'@x,\r\n"say ""a,b""",0.5\r\n-5,1\r\n\'-x,2\r\n'
    )


@pytest.mark.parametrize("series", ["departures", "by_destination", "late_departures"])
async def test_a_picture_can_be_saved(browser: Browser, server: PageServer, series: str) -> None:
    page = await opened(browser, server.url)
    console = Console(page)
    name, content = await saved(page, series, "PNG")
    assert name == f"{series}.png"
    assert content.startswith(b"\x89PNG")
    width, height = (int.from_bytes(content[at : at + 4]) for at in (16, 20))
    assert width == 1600
    assert height > 300
    assert console.complaints == []


async def test_every_chart_has_a_table(
    browser: Browser, server: PageServer, engine: Engine
) -> None:
    page = await opened(browser, server.url)
    card = "[data-series=departures]"
    await page.click(f"{card} .as-table summary")
    table = page.locator(f"{card} .as-table table")
    assert await text(page, f"{card} .as-table caption") == "Departures: 48 rows, the newest first"
    assert await table.locator("thead th").all_inner_texts() == [
        "end",
        "tick",
        "window",
        "value",
        "low",
        "high",
    ]
    first = await table.locator("tbody tr").first.inner_text()
    assert first.split() == ["2013-01-30T14:00:00Z", "699", "14896", "14851", "14941"]
    await page.click("#windows button >> text=all")
    await page.wait_for_selector(f"{card} .as-table caption >> text=the newest 300 of 700 rows")
    for name in ("busiest_destination", "late_departures"):
        assert await page.locator(f"[data-series={name}] .as-table summary").is_visible()
    assert await page.locator("[data-series=by_destination] .all summary").is_visible()
