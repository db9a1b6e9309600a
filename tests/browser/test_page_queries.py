"""Series that come and go while the page is open: cards, list, budget, odometer."""

from datetime import timedelta
from typing import Any, Literal

import pytest
from browser.ask_worlds import GIVEN, HOLDS, LOOK
from browser.page_worlds import (
    HISTORY,
    HORIZON,
    START,
    Console,
    Engine,
    blank,
    budget,
    described,
    drawn,
    opened,
    picture,
    pipeline,
    plan,
    reaches,
    serving,
    shows,
    text,
)
from playwright.async_api import Browser, Page

pytestmark = pytest.mark.browser

LATE = {
    **described("histogram", "late_by_airline", by="airline"),
    "domain": ["AA", "UA"],
}
ODOMETER_IS_NEW = (
    "() => document.querySelector('[data-budget=odometer]').textContent === 'ε ≤ 1.07'"
)
SPENDING = "#budget summary"
MADE = "How it is made"
CLAIM = "for every eps: the view truncated when this exceeds eps is (eps, delta)-DP"


def begins(tick: int) -> str:
    """When a tick begins, as the API says it."""
    return (START + timedelta(hours=tick)).strftime("%Y-%m-%dT%H:%M:%SZ")


class ChangingEngine:
    """What an engine says of its series, which a test changes. A server of live series for reading only."""

    def __init__(self) -> None:
        self.series: list[dict[str, Any]] = list(pipeline()["series"])
        self.listed = [self._query(entry["name"], "0.2", 0) for entry in self.series]
        self.planned: list[dict[str, Any]] = []
        self.odometer: dict[str, str] | None = {
            "bound": "0.93",
            "delta": "0.000000001",
            "claim": CLAIM,
        }

    @staticmethod
    def _query(name: str, epsilon: str, start: int, **more: Any) -> dict[str, Any]:
        found = {"name": name, "statistic": "count", "analyst": "", "epsilon": epsilon}
        times = {"start_time": begins(start), "end_time": None}
        return {**found, "start": start, "end": None, **times, "created": False, **more}

    def add(self, entry: dict[str, Any], start: int, analyst: str = "ann") -> None:
        """A series is created."""
        self.series.append(entry)
        self.planned.append(
            {
                "name": entry["name"],
                "mechanism": "Counter",
                "why": "",
                "epsilon": 0.1,
                "delta": 0,
                "predicted_error": [{"tick": HORIZON - 1, "error": 1204, "confidence": 0.95}],
            }
        )
        more = {"statistic": entry["statistic"], "analyst": analyst, "created": True}
        self.listed.append(self._query(entry["name"], "0.1", start, **more))

    def halt(self, name: str, end: int) -> None:
        """A series is halted."""
        for query in self.listed:
            if query["name"] == name:
                query |= {"end": end, "end_time": begins(end)}
        self.planned = [entry for entry in self.planned if entry["name"] != name]
        self.series = [entry for entry in self.series if entry["name"] != name]

    def queries(self) -> list[dict[str, Any]]:
        """The list."""
        return self.listed

    def view(self) -> dict[str, Any]:
        """What the server shows."""
        return {
            "pipeline": lambda: {**pipeline(), "series": self.series},
            "plan": lambda: {**plan(), "series": [*plan()["series"], *self.planned]},
            "budget": self.budget,
            "live_series": self,
        }

    def budget(self) -> dict[str, Any]:
        """A budget with an odometer, a filter and an analyst."""
        quota = {"total": "0.3", "spent": "0.1", "left": "0.2"}
        series = [{"name": q["name"], "epsilon": q["epsilon"]} for q in self.listed]
        told = {"filter": "pure, over time", "analysts": [{"name": "ann", "epsilon": quota}]}
        odometer = {} if self.odometer is None else {"odometer": self.odometer}
        return {**budget(), "series": series, **told, **odometer}


@pytest.fixture
def changing() -> ChangingEngine:
    """An engine whose series change."""
    return ChangingEngine()


def publish(engine: Engine, number: int) -> None:
    """`number` ticks in which the new series releases too."""
    for _ in range(number):
        engine.publish("late_by_airline", {"values": {"AA": 120, "UA": 7}, "band": 30})
        engine.step()


async def received(page: Page, name: str) -> int:
    """How many releases the card of a series has taken."""
    await page.wait_for_selector(f"[data-series={name}][data-received]")
    return int(await page.get_attribute(f"[data-series={name}]", "data-received") or 0)


async def test_a_new_series_appears_without_reload(
    browser: Browser, engine: Engine, changing: ChangingEngine
) -> None:
    async with serving(engine.log, **changing.view()) as server:
        page = await blank(browser, viewport={"width": 1280, "height": 1000})
        console = Console(page)
        await page.goto(server.url)
        await page.wait_for_selector(".card.scalar[data-tick]")
        await page.evaluate("() => { window.sameDocument = true; }")
        assert await page.locator("[data-series=late_by_airline]").count() == 0

        changing.add(LATE, HISTORY)
        publish(engine, 7)

        await reaches(page, HISTORY + 6)
        assert await received(page, "late_by_airline") == 7
        assert (
            await text(page, "[data-series=late_by_airline] .tag") == "histogram by airline so far"
        )
        assert await page.evaluate("() => window.sameDocument")
        assert console.complaints == []


async def foot(page: Page, name: str) -> list[str]:
    """The lines of a card's foot."""
    return await page.locator(f"[data-series={name}] .card-foot p").all_inner_texts()


async def test_every_card_has_the_same_foot(
    browser: Browser, engine: Engine, changing: ChangingEngine
) -> None:
    async with serving(engine.log, **changing.view()) as server:
        page = await opened(browser, server.url)
        changing.add(LATE, HISTORY)
        publish(engine, 1)
        assert await received(page, "late_by_airline") == 1
        assert await foot(page, "late_by_airline") == [
            f"Costs ε 0.1 · expected error ± 1,204 events at tick 8,759 (95%) · {MADE}",
            "Start: tick 700 (30 Jan 2013, 14:00 UTC) · Analyst: ann",
        ]
        assert await foot(page, "departures") == [
            f"Costs ε 0.1 · expected error ± 160 events at tick 8,760 (95%) · {MADE}",
            "Start: tick 0 (1 Jan 2013, 10:00 UTC)",
        ]


async def test_a_halt_shows_when_the_series_falls_behind(
    browser: Browser, engine: Engine, changing: ChangingEngine
) -> None:
    """Without waiting for the next look at the budget, which this page never takes."""
    changing.add(LATE, HISTORY)
    publish(engine, 3)
    async with serving(engine.log, **changing.view()) as server:
        page = await blank(browser)
        await page.add_init_script("window.setInterval = () => 0")
        await page.goto(server.url)
        assert await received(page, "late_by_airline") > 0
        changing.halt("late_by_airline", HISTORY + 3)
        for _ in range(3):
            engine.step()
        await page.wait_for_selector(".card.halted[data-series=late_by_airline]")
        assert await page.locator(".card.halted").count() == 1


async def test_a_new_series_is_announced_before_its_first_release(
    browser: Browser, engine: Engine, changing: ChangingEngine
) -> None:
    async with serving(engine.log, **changing.view()) as server:
        page = await opened(browser, server.url)
        changing.add(LATE, HISTORY)
        await page.evaluate(LOOK)

        await page.wait_for_selector("[data-series=late_by_airline]")
        assert "Waiting" in await text(page, "[data-series=late_by_airline] .note")
        tools = page.locator("[data-series=late_by_airline] .card-tools")
        assert not await tools.is_visible()  # nothing to take away yet
        assert await text(page, "[data-query=late_by_airline] td >> nth=0") == "ann"
        publish(engine, 3)
        assert await received(page, "late_by_airline") > 0
        assert await tools.is_visible()


WATCHED = described("monitor", "watched", watch=[{"name": "large", "above": 50}])


def watch(name: str, **more: Any) -> dict[str, Any]:
    """A watch as the list tells it."""
    times = {"start": 0, "start_time": begins(0), "end": None, "end_time": None}
    rest = {"over": "since_firing", "rearm": True, "analyst": "", "created": False}
    return {"name": name, **rest, **times, **more}


async def test_the_card_of_a_monitor_shows_its_watches_before_they_fire_and_the_counts_at_firings(
    browser: Browser, engine: Engine, changing: ChangingEngine
) -> None:
    changing.add(WATCHED, HISTORY)
    changing.listed[-1]["watches"] = [
        watch("large", above=50),
        watch("each", above=9, by="airline"),
        watch("gone", above=9, end=3),
        watch("done", above=7, end=2, rearm=False, fired=1),
        watch("quiet", below=3, over="tick", rearm=False, analyst="ann", created=True),
    ]
    async with serving(engine.log, **changing.view()) as server:
        page = await opened(browser, server.url)
        told = {"band": 84, "counts_band": 90}
        engine.publish(
            "watched",
            {"fired": ["large", "each/AA"], "counts": {"large": 1053, "each/AA": 12}, **told},
        )
        engine.step()
        assert await received(page, "watched") == 1
        rows = page.locator("[data-series=watched] tbody tr")
        assert await rows.locator("th").all_inner_texts() == ["large", "each/AA", "done", "quiet"]
        assert await rows.locator(".number").first.inner_text() == "1"
        last = await rows.locator(".when").all_inner_texts()
        assert last[0].endswith(" · 1,053 ± 90")
        assert last[3] == "–"
        titles = [await rows.nth(at).get_attribute("title") for at in (0, 2, 3)]
        assert titles == [
            "large fires at 50 events",
            "done fires at 7 events, once · ended at tick 2",
            "quiet fires below 3 events in a tick, once · analyst ann",
        ]


async def test_a_halted_series_is_marked_and_has_no_card_after_a_reload(
    browser: Browser, engine: Engine, changing: ChangingEngine
) -> None:
    changing.add(LATE, HISTORY, analyst="")
    publish(engine, 3)
    async with serving(engine.log, **changing.view()) as server:
        page = await opened(browser, server.url, 1280, 1000)
        await page.wait_for_selector("[data-query=late_by_airline]")
        assert await page.locator(".budget-bar .piece").count() == 6  # four of the file, ann, this
        changing.halt("late_by_airline", HISTORY + 3)
        await page.evaluate(LOOK)

        await page.wait_for_selector("[data-query=late_by_airline].halted")
        assert "703 30 Jan 2013, 17:00" in await text(page, "[data-query=late_by_airline]")
        tag = await text(page, "[data-series=late_by_airline] .tag")
        assert tag.endswith("so far · halted")
        assert await foot(page, "late_by_airline") == [
            f"Costs ε 0.1 · expected error ± 1,204 events at tick 8,759 (95%) · {MADE}",
            "Start: tick 700 (30 Jan 2013, 14:00 UTC) · End: tick 703 (30 Jan 2013, 17:00 UTC)",
        ]
        assert await page.locator(".budget-bar .piece").count() == 5
        assert await text(page, "#queries .count") == "4 running, 1 halted"
        await picture(page, "queries")

        await page.reload()
        await page.wait_for_selector(".card.scalar[data-tick]")
        assert await page.locator("[data-series=late_by_airline]").count() == 0
        assert await page.locator("[data-query=late_by_airline].halted").count() == 1


async def test_the_odometer_and_the_quotas_are_shown(
    browser: Browser, engine: Engine, changing: ChangingEngine
) -> None:
    async with serving(engine.log, **changing.view()) as server:
        page = await opened(browser, server.url)
        await page.click(SPENDING)
        assert await text(page, "[data-budget=odometer]") == "ε ≤ 0.93"
        shown = await text(page, "#budget")
        assert "at δ 1.0e-9, so far" in shown
        assert CLAIM in shown.replace("For", "for")  # the page begins a sentence with it
        assert "pure, over time" in shown
        assert "ε 0.1 of 0.3" in shown

        changing.odometer = {"bound": "1.07", "delta": "0", "claim": CLAIM}
        await page.evaluate(LOOK)
        await page.wait_for_function(ODOMETER_IS_NEW)


async def test_a_late_answer_does_not_replace_a_newer_one(
    browser: Browser, engine: Engine, changing: ChangingEngine
) -> None:
    async with serving(engine.log, **changing.view()) as server:
        page = await blank(browser)
        await page.add_init_script(HOLDS)
        await page.goto(server.url)
        await page.click(SPENDING)
        await page.wait_for_selector("[data-budget=odometer]")
        await page.evaluate("() => { window.holding = '/api/budget'; }")
        await page.evaluate(LOOK)
        await page.wait_for_function("() => window.held.length >= 1")
        await page.evaluate("() => { window.holding = null; }")
        changing.odometer = {"bound": "1.07", "delta": "0", "claim": CLAIM}
        await page.evaluate(LOOK)
        await page.wait_for_function(ODOMETER_IS_NEW)
        await page.evaluate(GIVEN)
        assert await text(page, "[data-budget=odometer]") == "ε ≤ 1.07"


async def test_a_late_description_does_not_replace_a_newer_one(
    browser: Browser, engine: Engine, changing: ChangingEngine
) -> None:
    """It was asked for when the first of two new series released; it would take the other one from the list."""
    later = {**LATE, "name": "later"}
    async with serving(engine.log, **changing.view()) as server:
        page = await blank(browser)
        await page.add_init_script(HOLDS)
        await page.goto(server.url)
        await drawn(page)
        await shows(page, "live")
        await page.evaluate("() => { window.holding = '/api/plan'; }")
        changing.add(LATE, HISTORY)
        publish(engine, 1)
        await page.wait_for_function("() => window.held.length >= 1")
        await page.evaluate("() => { window.holding = null; }")
        changing.add(later, HISTORY + 1)
        await page.evaluate(LOOK)
        await page.wait_for_selector("[data-series=later]")
        await page.wait_for_selector("[data-query=later]")
        await page.evaluate(GIVEN)
        assert await page.locator("[data-query=later]").count() == 1


async def test_a_look_at_the_budget_takes_nothing_out_of_a_readers_hand(
    browser: Browser, engine: Engine, changing: ChangingEngine
) -> None:
    """What says the same as before stays: it keeps the focus, and a click that begins on it ends on it."""
    async with serving(engine.log, **changing.view()) as server:
        page = await opened(browser, server.url)

        async def looks(statistic: str) -> None:
            changing.listed[0]["statistic"] = statistic
            await page.evaluate(LOOK)
            await page.locator("[data-query=departures]", has_text=statistic).wait_for()

        await looks("first")
        await page.focus(SPENDING)
        await looks("second")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#budget details[open]")
        await page.hover(SPENDING)
        await page.mouse.down()
        await looks("third")
        await page.mouse.up()
        await page.wait_for_selector("#budget details:not([open])")


async def test_another_filter_shows_what_it_adds_up(
    browser: Browser, engine: Engine, changing: ChangingEngine
) -> None:
    said = changing.budget() | {
        "epsilon": {"total": "2", "spent": "0.0125", "left": "0.3"},
        "delta": {"total": "0.000000001", "spent": "0", "left": "0"},
        "filter": "tight_approximate",
        "unit": "rho",
        "capacity": "0.05",
    }
    changing.budget = lambda: said  # type: ignore[method-assign]
    async with serving(engine.log, **changing.view()) as server:
        page = await opened(browser, server.url, 390, 900)
        await page.click(SPENDING)
        assert (await text(page, "#budget .spent")).split("\n") == [
            "0.0125 rho",
            "of 0.05 spent",
            "ε 0.3 left for one more",
        ]
        pieces = page.locator(".budget-bar .piece")
        assert await pieces.count() == 1
        assert await pieces.evaluate("piece => piece.style.width") == "25%"
        shown = await text(page, "#budget")
        assert "For everything together: ε 2 at δ 1.0e-9." in shown
        assert "undefined" not in shown
        assert "%" not in shown
        await picture(page, "filter")


@pytest.mark.parametrize("said", [{}, {"epsilon": {"total": "1", "spent": "1", "left": "0"}}])
async def test_a_budget_that_says_little_breaks_nothing(
    browser: Browser, engine: Engine, said: dict[str, Any]
) -> None:
    """Our server always says more; the page does not count on it."""
    async with serving(engine.log) as server:
        page = await blank(browser)
        await page.route("**/api/budget", lambda route: route.fulfill(json=said))
        console = Console(page)
        await page.goto(server.url)
        await page.wait_for_selector(".card.scalar[data-tick]")
        assert await page.locator("[data-budget=odometer]").count() == 0
        assert await page.locator("#queries").is_hidden()
        assert console.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_phone_shows_the_queries_without_sideways_scroll(
    browser: Browser, engine: Engine, changing: ChangingEngine, scheme: Literal["light", "dark"]
) -> None:
    changing.add(LATE, HISTORY)
    changing.halt("busiest_destination", HISTORY)
    publish(engine, 3)
    async with serving(engine.log, **changing.view()) as server:
        page = await opened(browser, server.url, 360, 740, color_scheme=scheme)
        await page.wait_for_selector("[data-query=late_by_airline]")
        await page.click("#proof summary")
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360
        await picture(page, f"queries-phone-{scheme}")
