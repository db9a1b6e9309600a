"""How cards and the toolbar lie, on a screen and on a phone, and whether everybody can use them.

axe-core's rules: `axe.min.js` is axe-core 4.14.1 as it was published (`axe.LICENSE.txt`); the page never loads it, the
test puts it in.
"""

from pathlib import Path
from typing import Any, Literal

import pytest
from browser.card_worlds import Cards, gallery
from browser.page_worlds import Engine, described, opened, pipeline, serving, showing
from playwright.async_api import Browser, Page

pytestmark = pytest.mark.browser

AXE = Path(__file__).with_name("axe.min.js")
FILLED = """() => [...document.querySelectorAll(".card details:not(.card-foot)")].every(
    (each) => each.querySelector("tbody tr"))"""
"""Whether all tables that are open have their rows: they are filled after they are open."""
Scheme = Literal["light", "dark"]
BOXES = """() => {
    const whole = document.getElementById("cards").getBoundingClientRect();
    const boxes = [...document.querySelectorAll(".card")].map((card) => card.getBoundingClientRect());
    const shown = boxes.filter(({ width }) => width > 0);
    return shown.map(({ left, width }) => [Math.round(left - whole.left), width / whole.width]);
}"""
ROWS = """() => new Set([...document.querySelectorAll("#windows, #tools > *")].map(
    (each) => each.getBoundingClientRect()).filter(({ width }) => width > 0).map(
    ({ top, bottom }) => Math.round((top + bottom) / 20))).size"""
"""How many rows the toolbar has, by the middles of what stands there, to ten pixels."""
HEIGHTS = "() => [...document.querySelectorAll('#windows button')].map((each) => each.clientHeight)"
GAPS = """() => {
    const whole = document.getElementById("cards").getBoundingClientRect();
    const boxes = [...document.querySelectorAll(".card:not([hidden])")].map((card) => card.getBoundingClientRect());
    const rows = Map.groupBy(boxes, ({ top }) => Math.round(top));
    return [...rows.values()].map((row) => Math.round(whole.right - Math.max(...row.map(({ right }) => right))));
}"""
"""How many pixels are free at the right of each row of cards."""
EDGES = """() => ["h1, .brand", "#windows", ".promise", "footer p"].map(
    (place) => Math.round(document.querySelector(place).getBoundingClientRect().left))"""
WIDE = "document.documentElement.scrollWidth"
SEARCH = ".tools input[type=search]"


async def findings(page: Page) -> list[str]:
    """What axe-core finds grave: the rule, and the first element that breaks it."""
    await page.evaluate(AXE.read_text(encoding="utf-8") + "; 0")
    ask = "() => axe.run(document, { resultTypes: ['violations'] })"
    result: dict[str, Any] = await page.evaluate(ask)
    return [
        f"{violation['id']}: {violation['nodes'][0]['html'][:160]}"
        for violation in result["violations"]
        if violation["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
async def test_nothing_grave_is_found_folded_or_unfolded(
    browser: Browser, engine: Engine, scheme: Scheme, width: int
) -> None:
    async with serving(engine.log) as server:
        page = await opened(browser, server.url, width, color_scheme=scheme)
        assert await findings(page) == []
        await page.click("[data-series=by_destination] .bars .key >> nth=0")
        await page.wait_for_selector("[data-series=by_destination] .chart canvas")
        await page.evaluate(
            "document.querySelectorAll('details').forEach(each => { each.open = true; })"
        )
        await page.wait_for_function(FILLED)
        assert await findings(page) == []


async def test_a_grave_fault_would_be_found(browser: Browser, engine: Engine) -> None:
    async with showing(browser, engine) as page:
        await page.evaluate("""() => {
            document.querySelector('.card-tools').append(document.createElement('button'));
            document.querySelector('h1').style.color = '#eeeeee';
        }""")
        rules = [finding.split(": ")[0] for finding in await findings(page)]
        assert rules == ["button-name", "color-contrast"]


async def test_everything_is_reached_by_keyboard(browser: Browser, engine: Engine) -> None:
    async with showing(browser, engine) as page:
        reached: set[str] = set()
        for _ in range(60):
            await page.keyboard.press("Tab")
            at = "document.activeElement.className || document.activeElement.tagName"
            reached.add(await page.evaluate(at))
            if await page.evaluate("() => document.activeElement.closest('#proof') !== null"):
                break
        assert {"jump", "chart", "tool", "key", "SUMMARY", "SELECT"} <= reached


async def test_a_phone_shows_every_shape_without_sideways_scroll(browser: Browser) -> None:
    async with Cards(*gallery()).shown(browser, width=390) as page:
        await page.click("[data-series=mean_by_door] summary")
        await page.wait_for_selector("[data-series=mean_by_door] tbody tr")
        assert await page.evaluate(WIDE) <= 390


def counts(many: int) -> tuple[Engine, dict[str, Any]]:
    engine, names = Engine(), [f"s{place}" for place in range(many)]
    for _ in range(24):
        for place, name in enumerate(names):
            engine.publish(name, {"value": place * 10 + engine.tick, "band": 4})
        values = {f"k{key}": 90 - 5 * key + engine.tick for key in range(15)}
        engine.publish("by_destination", {"values": values, "band": 6})
        engine.tick += 1
    histogram = pipeline()["series"][2]
    return engine, {
        **pipeline(),
        "series": [*[described("count", name) for name in names], histogram],
    }


async def lie(page: Page, columns: int, spans: list[int]) -> None:
    """Wait until each card takes so many of the columns."""
    await page.wait_for_function(
        f"([columns, spans]) => String(({BOXES})().map(([, width]) => Math.round(width * columns))) === String(spans)",
        arg=[columns, spans],
    )


@pytest.mark.parametrize(("width", "columns"), [(1280, 3), (1920, 4)])
async def test_cards_fill_the_page_and_the_last_ones_their_row(
    browser: Browser, width: int, columns: int
) -> None:
    last = {3: [1, 2], 4: [4]}[columns]
    async with showing(browser, *counts(4), width=width) as page:
        await lie(page, columns, [1] * (5 - len(last)) + last)
        bars = page.locator(".bars li:visible")
        boxes = [await bar.bounding_box() for bar in await bars.all()]
        assert (
            len({round(box["x"]) for box in boxes if box is not None}) == 2
        )  # where there is room
        await page.set_viewport_size({"width": 390, "height": 844})
        await page.wait_for_function(f"() => ({BOXES})().every(([, width]) => width > 0.9)")
        assert await page.evaluate(WIDE) <= 390
        assert await bars.count() == 8


async def test_six_numbers_are_seen_at_once(browser: Browser) -> None:
    engine, public = counts(8)
    async with serving(engine.log, public) as server:
        page = await opened(browser, server.url, 1280, 800)
        values = [await value.bounding_box() for value in await page.locator(".value").all()]
        seen = [box for box in values if box is not None and box["y"] + box["height"] <= 800]
        assert len(seen) >= 6


async def test_a_reader_chooses_the_size_of_a_card(browser: Browser) -> None:
    async with showing(browser, *counts(6)) as page:
        card = page.locator("[data-series=by_destination]")
        await lie(page, 3, [1] * 6 + [3])
        await page.get_by_role("button", name="Large: S0").click()
        await lie(page, 3, [2, 1, 1, 1, 1, 1, 2])
        await card.get_by_role("button", name="Small").click()
        await page.wait_for_selector("[data-series=by_destination].size-s")
        assert await card.locator(".bars li:visible").count() == 3
        assert await card.locator(".note").is_hidden()
        query = await page.evaluate("() => location.search")
        assert query == "?size.s0=l&size.by_destination=s"
        await page.reload()
        await page.wait_for_function(f"() => ({BOXES})().length === 7")
        await page.wait_for_selector("[data-series=by_destination].size-s")


async def test_cards_that_a_search_hides_do_not_count(browser: Browser) -> None:
    async with showing(browser, *counts(12)) as page:
        await lie(page, 3, [1] * 12 + [3])
        for find, spans in (("destination", [3]), ("s1", [1, 1, 1])):
            await page.fill(SEARCH, find)
            await lie(page, 3, spans)


@pytest.mark.parametrize("many", [7, 30])
async def test_the_toolbar_takes_two_rows_of_a_phone(browser: Browser, many: int) -> None:
    engine, public = counts(many)
    rows = f"rows => ({ROWS})() === rows"
    async with serving(engine.log, public) as server:
        page = await opened(browser, server.url, 1280, 800)
        await page.wait_for_function(rows, arg=1)
        await page.set_viewport_size({"width": 390, "height": 844})
        await page.wait_for_function(rows, arg=2)
        assert len(set(await page.evaluate(HEIGHTS))) == 1
        assert await page.evaluate(WIDE) == 390
        search = "document.querySelector('.tools [type=search]')"
        if await page.evaluate(f"{search}.offsetWidth > 0"):  # whoever searches has a row for it
            await page.focus(".tools [type=search]")
            await page.wait_for_function(f"() => {search}.offsetWidth > 300")
            assert await page.evaluate(WIDE) == 390
        await page.goto(f"{server.url}?from=2013-01-01T12:00:00Z&to=2013-01-02T12:00:00Z")
        await page.wait_for_selector(".between summary >> text=1 Jan 2013")
        assert await page.evaluate(WIDE) == 390


@pytest.mark.parametrize(("many", "width"), [(24, 1280), (25, 1920), (28, 1280), (29, 1920)])
async def test_very_many_cards_leave_no_gap(browser: Browser, many: int, width: int) -> None:
    async with showing(browser, *counts(many), width=width) as page:
        assert set(await page.evaluate(GAPS)) == {0}
        assert len(set(await page.evaluate(EDGES))) == 1
        await page.fill(SEARCH, "s1")
        shown = "() => document.querySelectorAll('.card:not([hidden])').length === 11"
        await page.wait_for_function(shown)
        await page.wait_for_function(f"() => ({GAPS})().every((gap) => gap === 0)")
