"""The page in a real Chromium, fed by a task that publishes releases: what a reader sees first, and restarts."""

import json
from typing import Any

import pytest
from browser.page_worlds import (
    BLUE,
    HISTORY,
    HORIZON,
    Console,
    Engine,
    described,
    no_gaps,
    opened,
    past,
    pipeline,
    pixels,
    plan,
    port_of,
    reaches,
    restored,
    serving,
    showing,
    shows,
    text,
    texts,
)
from playwright.async_api import Browser

from stream_dp.server.view import Behind

pytestmark = pytest.mark.browser

DEPARTURES, DESTINATIONS, LATE = (
    f"[data-series={name}]" for name in ("departures", "by_destination", "late_departures")
)
TOLD = {
    "title": "Departures so far",
    "description": "Scheduled departures of three airports, by local hour.",
    "unit": "flights",
    "where": ["delay at least 15", "airline one of AA, UA"],
}


async def test_values_move_with_bands_and_budget(browser: Browser, engine: Engine) -> None:
    async with showing(browser, engine) as page:
        before = await text(page, f"{DEPARTURES} .value")
        async with engine.running():
            await reaches(page, HISTORY + 20)
        await shows(page, "live")

        assert await text(page, f"{DEPARTURES} .value") != before
        assert await text(page, f"{DEPARTURES} .band") == "± 45"
        assert await text(page, "#promise .plain") == (
            "These numbers hide any single event: with or without it, everything that this page shows is at most "
            "2.72 times as likely."
        )
        await page.click("#promise .exactly summary")
        assert "(ε = 1, δ = 0)-DP" in await text(page, ".dp")
        assert "add or remove one event" in await text(page, "#promise")
        assert await text(page, "[data-budget=spent]") == "ε 0.9"
        assert await text(page, "[data-budget=left]") == "0.1 left"
        assert await page.locator(".budget-bar .piece").count() == 4
        await no_gaps(page)


async def test_bands_are_drawn(browser: Browser, engine: Engine) -> None:
    async with showing(browser, engine) as page:
        line, shaded = await pixels(page, DEPARTURES, (*BLUE, 201, 255), (*BLUE, 31, 79))
        assert line > 300
        assert shaded > 2 * line
        whiskers = page.locator(f"{DESTINATIONS} .whisker")
        assert await whiskers.count() == 15
        box = await whiskers.first.bounding_box()
        assert box is not None
        assert box["width"] > 2


async def test_an_open_table_has_the_newest_values_and_says_what_is_noise(
    browser: Browser, engine: Engine
) -> None:
    async with showing(browser, engine) as page:
        # the values come within the second in which the table is filled once, and nothing after them
        await page.evaluate("() => { const now = performance.now(); performance.now = () => now; }")
        await page.click(f"{DESTINATIONS} summary")
        row = page.locator(f"{DESTINATIONS} tbody tr", has_text="ORD")
        await row.wait_for()
        before = await row.inner_text()
        engine.step()
        value = json.loads(engine.log.latest()["by_destination"].body)["values"]["ORD"]
        assert f"{value:,}" not in before
        await row.filter(has_text=f"{value:,}").wait_for()
        await page.fill(f"{DESTINATIONS} input", "other")
        (rest,) = await texts(page, f"{DESTINATIONS} tbody tr")
        assert "noise" in rest


async def test_alerts_count_and_explain_their_band(browser: Browser, engine: Engine) -> None:
    releases = engine.log.series_between("late_departures", 0, HORIZON)
    fired = sum("AA" in json.loads(release.body)["fired"] for release in releases)
    async with showing(browser, engine) as page:
        row = page.locator(f"{LATE} tbody tr", has_text="AA")
        assert await row.locator(".number").first.inner_text() == str(fired)
        assert "about 100 ± 17 events" in await text(page, f"{LATE} .note")


async def test_alerts_of_active_keys_come_first(browser: Browser) -> None:
    series = [described("alerts", "late_departures", by="airline", threshold=100)]
    engine = Engine()
    for key in ("OO", "HA"):
        engine.publish("late_departures", {"fired": [key], "band": 17})
        engine.tick += 1
    async with showing(browser, engine, {**pipeline(), "series": series}) as page:
        assert (await texts(page, f"{LATE} tbody th"))[:2] == ["HA", "OO"]


async def test_content_comes_before_privacy_and_privacy_before_its_proof(
    browser: Browser, engine: Engine
) -> None:
    async with showing(browser, engine) as page:
        top = "part => document.querySelector(part).getBoundingClientRect().top"
        tops = [await page.evaluate(top, part) for part in (".card", "#promise", "#proof")]
        assert tops == sorted(tops)
        for hidden in (".dp", ".legend", "#proof .step >> nth=0"):
            assert not await page.locator(hidden).is_visible(), hidden
        meter = page.get_by_role("meter")
        assert await meter.get_attribute("aria-valuenow") == "90.0"
        spent = "Privacy budget: ε 0.9 of 1 spent, 0.1 left"
        assert await meter.get_attribute("aria-valuetext") == spent


async def test_the_derivation_is_one_click_away_and_on_no_card(
    browser: Browser, engine: Engine
) -> None:
    async with showing(browser, engine) as page:
        assert "HSS" not in await text(page, "#cards")
        row = page.locator("#made-by_destination")
        assert not await row.is_visible()
        await page.click(f"{DESTINATIONS} .card-foot summary")
        await page.click(f"{DESTINATIONS} .card-foot a")
        await row.wait_for()
        assert (await row.locator("td").first.inner_text()).startswith("HSS")
        assert await page.locator("#proof .made tbody tr").count() == len(plan()["series"])
        assert await page.locator("#proof .step").count() == 5
        assert await page.locator("#proof .conditions .ok").count() == 6
        assert "[HSV] Thm 4.10" in await text(page, "#proof")
        assert await page.locator("#proof .subject").first.inner_text() == "flights"


async def test_a_card_says_what_its_operator_says_under_one_name(
    browser: Browser, engine: Engine
) -> None:
    first = {**pipeline()["series"][0], **TOLD}
    async with showing(browser, engine, {**pipeline(), "series": [first]}) as page:
        assert await text(page, f"{DEPARTURES} .description") == TOLD["description"]
        assert await texts(page, f"{DEPARTURES} .where li") == TOLD["where"]
        figure = (await text(page, f"{DEPARTURES} .figure")).split()
        assert figure == ["14,896", "flights", "±", "45"]
        await page.click("#budget summary")
        await page.click("#proof summary")
        for place in (f"{DEPARTURES} h3", "#budget .legend-name", "#made-departures th"):
            assert await page.locator(place).first.inner_text() == "Departures so far", place


USERS = {"name": "(user, day)", "field": "customer", "max_events": 3, "per": "1d"}
PROMISES: list[tuple[dict[str, Any], dict[str, str], str]] = [
    ({}, {"epsilon": "2.48", "delta": "0"},
     "These numbers hide any single event: with or without it, everything that this page shows is at most 12 "
     "times as likely. That is weak: people usually take an epsilon of 0.5 to 2."),
    ({"neighbors": "replace"}, {"epsilon": "0.5", "delta": "0"},
     "These numbers hide any single event: with it or with another in its place, everything that this page shows "
     "is at most 1.65 times as likely."),
    ({"unit": "user", "users": USERS}, {"epsilon": "1", "delta": "0.000000001"},
     "These numbers hide any single customer's events of one day: with or without them, "
     "everything that this page shows is at most 2.72 times as likely, apart from a probability of 1.0e-9."),
    ({"unit": "user", "users": {**USERS, "name": "(user, 36h)", "per": "36h"}}, {"epsilon": "1", "delta": "0"},
     "These numbers hide any single customer's events of one window of 36 hours: with or without them, "
     "everything that this page shows is at most 2.72 times as likely."),
    ({"unit": "user", "users": {**USERS, "per": None}, "neighbors": "replace_any_tick"},
     {"epsilon": "3", "delta": "0"},
     "These numbers hide any single customer's events: with them or with others in their place, everything that "
     "this page shows is at most 20.1 times as likely. That is weak: people usually take an epsilon of 0.5 to 2."),
    ({}, {"epsilon": "10", "delta": "0"},
     "These numbers may reveal a single event: with or without it, everything that this page shows is at most "
     "2.21e+4 times as likely. That is weak: people usually take an epsilon of 0.5 to 2."),
]  # fmt: skip


async def test_the_plain_line_says_what_is_promised_and_rounds_up(browser: Browser) -> None:
    plainly = "async ([pipeline, plan]) => (await import('./promise.js')).plainly(pipeline, plan)"
    never_below = """async () => {
        const { atMost } = await import('./format.js');
        const wrong = [];
        for (let epsilon = 0; epsilon < 40; epsilon += 0.0137) {
            const told = Number(atMost(Math.exp(epsilon)).replaceAll(',', ''));
            const excess = told / Math.exp(epsilon) - 1;
            if (!(excess >= -1e-9 && excess <= 0.0101)) wrong.push([epsilon, told]);
        }
        return wrong;
    }"""
    async with showing(browser, past()) as page:
        for public, promise, line in PROMISES:
            neighbors = {key: public[key] for key in public.keys() & {"neighbors"}}
            told = [{**pipeline(), **public}, {**plan(), **neighbors, "promise": promise}]
            assert await page.evaluate(plainly, told) == line
        assert await page.evaluate(never_below) == []


async def test_the_page_survives_an_engine_restart(browser: Browser, engine: Engine) -> None:
    async with serving(engine.log) as first:
        page = await opened(browser, first.url)
        console = Console(page)
        async with engine.running():
            await reaches(page, engine.tick + 5)
        console.tolerant = True
    await shows(page, "reconnecting")
    for _ in range(30):
        engine.step()  # committed before the crash, published after it

    async with serving(restored(engine.log), port=port_of(page)), engine.running():
        await reaches(page, engine.tick - 1)
        await shows(page, "live")
        await no_gaps(page)
    assert console.complaints == []


async def test_another_pipeline_loads_everything_anew(browser: Browser, engine: Engine) -> None:
    async with serving(engine.log) as first:
        page = await opened(browser, first.url)
    async with serving(engine.log, {**pipeline("f2"), "name": "other_flights"}, port_of(page)):
        renamed = "() => document.getElementById('name').textContent === 'other flights'"
        await page.wait_for_function(renamed)


async def test_a_log_that_begins_again_loads_everything_anew(
    browser: Browser, engine: Engine
) -> None:
    async with serving(engine.log) as first:
        page = await opened(browser, first.url)
    young = Engine()
    for _ in range(20):
        young.step()
    async with serving(young.log, port=port_of(page)):
        ticks = "() => [...document.querySelectorAll('.card')].every(card => card.dataset.tick === '19')"
        await page.wait_for_function(ticks)
        young.step()
        await reaches(page, 20)
        await no_gaps(page)


async def test_the_end_is_shown(browser: Browser, engine: Engine) -> None:
    short = {**pipeline(), "clock": {**pipeline()["clock"], "horizon": HISTORY}}
    async with showing(browser, engine, short) as page:
        await shows(page, "ended")


async def test_how_late_public_ticks_are_is_shown(browser: Browser, engine: Engine) -> None:
    late = [Behind(7200, 90), None]
    async with showing(browser, engine, behind=lambda: late[0]) as page:
        await shows(page, "catching-up")
        assert (await text(page, "#subtitle")).startswith(
            "2 hours behind, caught up in 1.5 minutes, "
        )
        late.reverse()
        await page.evaluate("() => document.dispatchEvent(new Event('visibilitychange'))")
        await shows(page, "live")
        assert (await text(page, "#subtitle")).startswith("live, ")


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
async def test_the_first_chart_is_above_the_fold(
    browser: Browser, engine: Engine, width: int, height: int
) -> None:
    first, *others = pipeline()["series"]
    public = {**pipeline(), "series": [{**first, **TOLD}, *others]}
    async with serving(engine.log, public) as server:
        page = await opened(browser, server.url, width, height)
        box = await page.locator(".card .chart canvas").first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= height
        assert await page.evaluate("scrollY") == 0


async def test_a_phone_needs_no_sideways_scroll(browser: Browser, engine: Engine) -> None:
    async with showing(browser, engine, width=360) as page:
        await page.click("#proof summary")
        await page.click(f"{DESTINATIONS} summary")
        await page.wait_for_selector(f"{DESTINATIONS} tbody tr")
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360
