"""Very many ticks and series: a page keeps and draws what is looked at, loads the rest again, and leaks nothing.

Rules: nothing is read of a card before it has drawn the range that is asked for, from a history that is there. Chromium
itself counts what it holds, after it has collected its garbage; no handle on an element is kept, for it holds its card.
How long pictures take is asserted nowhere.
"""

import random
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from browser.ask_worlds import LOOK
from browser.page_worlds import (
    ALL_DRAWN,
    BOARD,
    START,
    Console,
    Engine,
    blank,
    described,
    opened,
    pipeline,
    port_of,
    reaches,
    saved_rows,
    serving,
    showing,
    text,
)
from browser.test_page_queries import ChangingEngine
from playwright.async_api import Browser, CDPSession, Page, Request

pytestmark = pytest.mark.browser

# --- very many ticks ----------------------------------------------------------------------------

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
    const { chooseBetween } = await import("/view.js");
    chooseBetween(...times.map((time) => Date.parse(time) / 1000));
}"""
PLOTTED = f"() => {{ {CARD} return card.chart.plot.data; }}"


def count() -> dict[str, Any]:
    return {**pipeline(), "series": pipeline()["series"][:1]}


def value(tick: int) -> int:
    return 10 * tick + tick % 7


def counted(engine: Engine, ticks: int) -> None:
    for _ in range(ticks):
        engine.publish(SERIES, {"value": value(engine.tick), "band": 45})
        engine.tick += 1


async def runs(page: Page, engine: Engine, ticks: int) -> int:
    """So many ticks more, taken by the page; how many it keeps at most."""
    most, until = 0, engine.tick + ticks
    while engine.tick < until:
        counted(engine, min(AT_ONCE, until - engine.tick))
        await page.wait_for_function(TAKEN, arg=engine.tick - 1)
        most = max(most, await page.evaluate(KEPT))
    return most


def moment(tick: int) -> str:
    """The end of a tick, as addresses have it."""
    return (START + timedelta(hours=tick + 1)).strftime("%Y-%m-%dT%H:%M:%SZ")


async def holds(page: Page, first: int, last: int) -> bool:
    """Whether the card's CSV has these ticks with their values, once they are drawn."""
    await page.wait_for_function(DRAWN, arg=[first, last])
    rows = await saved_rows(page, SERIES)
    assert all(int(row["value"]) == value(int(row["tick"])) for row in rows)
    return [int(row["tick"]) for row in rows] == list(range(first, last + 1))


async def test_what_the_range_does_not_need_is_let_go_and_loaded_again(browser: Browser) -> None:
    engine = Engine()
    counted(engine, FIRST)
    async with showing(browser, engine, count()) as page:
        assert await runs(page, engine, LATER) <= BOUND
        last = engine.tick - 1
        await page.click("#windows button[value='all']")
        assert await holds(page, 0, last)
        await page.click("#windows button[value='2d']")
        assert await holds(page, last - 47, last)
        assert await page.evaluate(KEPT) <= BOUND
        await page.go_back()
        assert await holds(page, 0, last)
        assert await runs(page, engine, 10) == last + 11  # of all, all is kept


async def test_a_tab_that_nobody_looks_at_lets_go_too(browser: Browser) -> None:
    engine = Engine()
    counted(engine, FIRST)
    async with showing(browser, engine, count()) as page:
        await page.evaluate("() => { window.requestAnimationFrame = () => 0; }")  # as browsers do
        before = await page.evaluate(PICTURES)
        for _ in range(LATER // AT_ONCE):
            counted(engine, AT_ONCE)
            await page.wait_for_function(REACHED, arg=engine.tick - 1, polling=50)
            assert await page.evaluate(KEPT) <= BOUND
        assert await page.evaluate(PICTURES) <= before + 1  # one that had been asked for


async def test_a_time_long_ago_is_kept_with_the_newest_and_nothing_between(
    browser: Browser,
) -> None:
    engine = Engine()
    counted(engine, LATER)
    async with serving(engine.log, count()) as server:
        page = await blank(browser, viewport={"width": 1280, "height": 900})
        await page.goto(f"{server.url}?from={moment(1000)}&to={moment(1099)}&before=1")
        await page.evaluate(BOARD)
        await page.wait_for_function(DRAWN, arg=[1000, 1099])
        assert await page.evaluate(KEPT) == 200 + 2001
        assert await runs(page, engine, LATER) <= 200 + BOUND
        assert await holds(page, 1000, 1099)
        *_, now, before = await page.evaluate(PLOTTED)  # with the period before, to the value
        assert now == [value(tick) for tick in range(1000, 1100)]
        assert before == [value(tick) for tick in range(900, 1000)]
        # what lies before is there, what lies behind was let go
        await page.evaluate(BETWEEN, [moment(1050), moment(1199)])
        assert await holds(page, 1050, 1199)
        last = engine.tick - 1
        await page.click("#windows button[value='7d']")
        assert await holds(page, last - 167, last)
        assert (await page.evaluate(PLOTTED))[4][0] == value(last - 335)
        await page.go_back()
        assert await holds(page, 1050, 1199)


async def test_no_file_while_a_part_of_it_is_to_be_loaded(browser: Browser) -> None:
    engine = Engine()
    counted(engine, LATER)
    async with serving(engine.log, count()) as server:
        page = await opened(browser, server.url)
        last = engine.tick - 1
        await page.wait_for_function(DRAWN, arg=[last - 47, last])
        fails = f"**/api/series/{SERIES}?*"
        await page.route(fails, lambda route: route.fulfill(status=503, json={"detail": "no"}))
        await page.click("#windows button[value='all']")
        note = f"[data-series={SERIES}] .note"
        await page.wait_for_selector(f"{note} >> text=cannot be loaded now")
        button = page.get_by_role("button", name="CSV")
        assert await button.is_disabled()
        why = "Earlier releases are still being loaded"
        assert await button.get_attribute("title") == why
        await page.unroute(fails)
        assert await holds(page, 0, last)
        assert (await text(page, note)).startswith("The exact figure lies between")


# --- leaks --------------------------------------------------------------------------------------

BEFORE, TICKS, TIMES = 10, 40, 3
BYTES_PER_TICK = 12_000  # far above what releases need, far below what a picture of each would
PLOTS = "() => uPlot.sync('time').plots.length"
TURNED = (
    f'turn => document.getElementById("name").textContent === `turn ${{turn}}` && ({ALL_DRAWN})()'
)
LEAKS = {
    "listeners": "addEventListener('resize', () => null)",
    "nodes": "kept.push(...Array.from('four', () => document.createElement('p')))",
    "bytes": "kept.push(Array(5000).fill(0.5))",
}
"""What a page that leaks does at every look, by what grows."""


async def held(session: CDPSession, page: Page) -> dict[str, int]:
    """What the page holds: listeners, nodes, bytes, linked charts."""
    for _ in range(2):  # what the first frees may free more
        await session.send("HeapProfiler.collectGarbage")
    answer = await session.send("Performance.getMetrics")
    metrics = {metric["name"]: int(metric["value"]) for metric in answer["metrics"]}
    names = {"listeners": "JSEventListeners", "nodes": "Nodes", "bytes": "JSHeapUsedSize"}
    counts = {name: metrics[metric] for name, metric in names.items()}
    return {**counts, "charts": await page.evaluate(PLOTS)}


async def watched(page: Page) -> CDPSession:
    session = await page.context.new_cdp_session(page)
    await session.send("Performance.enable")
    return session


async def faults(page: Page, engine: Engine) -> set[str]:
    """What grows with ticks, each with a look at the budget, that should not; a few nodes may be on their way out."""
    session, found = await watched(page), list[dict[str, int]]()
    for ticks in (BEFORE, TICKS):
        for _ in range(ticks):
            engine.step()
            await page.evaluate(LOOK)
            await reaches(page, engine.tick - 1)
        found.append(await held(session, page))
    before, after = found
    bounds = {"listeners": 0, "nodes": TICKS // 3, "bytes": BYTES_PER_TICK * TICKS, "charts": 0}
    return {name for name, bound in bounds.items() if after[name] - before[name] > bound}


async def test_nothing_grows_with_the_ticks_but_the_data(browser: Browser, engine: Engine) -> None:
    keys = "?keys.by_destination=ORD&keys.by_destination=ATL"
    async with showing(browser, engine, query=keys, **ChangingEngine().view()) as page:
        assert await faults(page, engine) == set()


@pytest.mark.parametrize("leak", LEAKS)
async def test_a_page_that_leaks_is_caught(browser: Browser, engine: Engine, leak: str) -> None:
    async with showing(browser, engine, **ChangingEngine().view()) as page:
        at_every_look = f"document.addEventListener('visibilitychange', () => {{ {LEAKS[leak]}; }})"
        await page.evaluate(f"() => {{ window.kept = []; {at_every_look}; }}")
        assert await faults(page, engine) == {leak}


async def test_what_is_loaded_anew_leaves_nothing_behind(browser: Browser, engine: Engine) -> None:
    def public(turn: int) -> dict[str, Any]:
        return {**pipeline(f"f{turn}"), "name": f"turn_{turn}"}

    async with serving(engine.log, public(0)) as server:
        page = await opened(browser, server.url)
    session, found = await watched(page), list[dict[str, int]]()
    for turn in range(1, TIMES + 2):
        async with serving(engine.log, public(turn), port_of(page)):
            await page.wait_for_function(TURNED, arg=turn)
            found.append(await held(session, page))
    assert {counts["charts"] for counts in found} == {2}
    assert len({counts["listeners"] for counts in found[1:]}) == 1
    assert found[-1]["nodes"] <= found[1]["nodes"] + 20


# --- very many series ---------------------------------------------------------------------------

COUNTS, KEYS, PAST, MORE = 90, 1000, 150, 10
LARGEST_PART = 60  # ticks of 1,000 keys
TOP, BOTTOM, MANY = "[data-series=s0]", f"[data-series=s{COUNTS - 1}]", "[data-series=many]"
DREW = """() => Object.fromEntries([...document.querySelectorAll('.card')].map(
    card => [card.dataset.series, Number(card.dataset.pictures ?? 0)]))"""


def grow(engine: Engine, ticks: int) -> None:
    noise = random.Random(engine.tick)
    for _ in range(ticks):
        for place in range(COUNTS):
            engine.publish(f"s{place}", {"value": 100 * place + noise.randint(-40, 40), "band": 30})
        values = {f"k{key}": key + noise.randint(-9, 9) for key in range(KEYS)}
        engine.publish("many", {"values": values, "band": 12})
        engine.tick += 1


def crowd() -> tuple[Engine, dict[str, Any]]:
    engine = Engine()
    grow(engine, PAST)
    doors = [f"k{key}" for key in range(KEYS)]
    histogram = {**described("histogram", "many", by="door"), "domain": doors}
    counts = [described("count", f"s{place}") for place in range(COUNTS)]
    return engine, {**pipeline(), "series": [histogram, *counts]}


async def listened(browser: Browser) -> tuple[Page, list[Request]]:
    """An empty page, and what it will ask for."""
    page = await blank(browser, viewport={"width": 1280, "height": 900})
    asked: list[Request] = []
    page.on("request", lambda request: asked.append(request))
    return page, asked


def histories(asked: list[Request], series: str) -> list[tuple[int, int]]:
    """The parts of a history that were asked for, first and last tick."""
    parts = [urlsplit(request.url) for request in asked]
    queries = [parse_qs(part.query) for part in parts if part.path == f"/api/series/{series}"]
    return [(int(query["from"][0]), int(query["to"][0])) for query in queries]


async def test_only_what_can_be_seen_is_drawn_and_loaded(browser: Browser) -> None:
    engine, public = crowd()
    async with serving(engine.log, public) as server:
        page, asked = await listened(browser)
        console = Console(page)
        await page.goto(server.url)
        await page.wait_for_selector(f"{TOP} canvas")
        await reaches(page, PAST - 1)  # the words of all, whether they can be seen or not
        drew = await page.evaluate(DREW)
        unseen = {name for name, times in drew.items() if times == 0}
        assert "s0" not in unseen
        assert {f"s{COUNTS - 1}", "many"} <= unseen
        assert len(unseen) > COUNTS // 2
        assert await page.locator(".card canvas").count() == len(drew) - len(unseen)
        assert histories(asked, f"s{COUNTS - 1}") == []

        grow(engine, MORE)  # a card may grow with what it says, and then is drawn once more
        await reaches(page, PAST + MORE - 1)
        more = {name: times - drew[name] for name, times in (await page.evaluate(DREW)).items()}
        assert more["s0"] > 0
        assert max(more.values()) <= 2 * MORE
        assert more["many"] == more[f"s{COUNTS - 1}"] == 0

        await page.locator(BOTTOM).scroll_into_view_if_needed()
        await page.wait_for_selector(f"{BOTTOM} canvas")
        assert [first for first, _ in histories(asked, f"s{COUNTS - 1}")] == [0]
        await page.wait_for_selector(f"{TOP} canvas", state="detached")
        assert console.complaints == []


async def test_a_large_history_is_loaded_in_parts(browser: Browser) -> None:
    engine, public = crowd()
    async with serving(engine.log, public) as server:
        page, asked = await listened(browser)
        await page.goto(f"{server.url}?find=many&keys.many=k7&keys.many=k900&last=all")
        await page.wait_for_selector(f"{MANY} canvas")
        parts = histories(asked, "many")
        assert [first for first, _ in parts] == list(range(0, PAST, LARGEST_PART))
        assert [last + 1 for _, last in parts] == [*range(LARGEST_PART, PAST, LARGEST_PART), PAST]
        assert await page.get_attribute(MANY, "data-received") == str(PAST)
        assert await page.locator(f"{MANY} .bars li").count() == 15
        assert await page.locator(f"{MANY} tr").count() == 1  # the table is not open
        assert [histories(asked, f"s{place}") for place in range(COUNTS)] == [[]] * COUNTS
