"""Series that come and go while the page is open: cards, list, budget, odometer."""

from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

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
    pipeline,
    plan,
    planned,
    reaches,
    serving,
    showing,
    shows,
    text,
)
from playwright.async_api import Browser, Page

pytestmark = pytest.mark.browser

ODOMETER_IS_NEW = (
    "() => document.querySelector('[data-budget=odometer]').textContent === 'ε ≤ 1.07'"
)
SPENDING = "#budget summary"
CARD, LISTED = "[data-series=late_by_airline]", "[data-query=late_by_airline]"
MADE = "How it is made"
CLAIM = "for every eps: the view truncated when this exceeds eps is (eps, delta)-DP"


def late(name: str = "late_by_airline") -> dict[str, Any]:
    """What the API says of a new series."""
    return {**described("histogram", name, by="airline"), "domain": ["AA", "UA"]}


def begins(tick: int) -> str:
    return (START + timedelta(hours=tick)).strftime("%Y-%m-%dT%H:%M:%SZ")


class ChangingEngine:
    """What an engine says of its series, which a test changes. A server of live series for reading only."""

    def __init__(self) -> None:
        self.series: list[dict[str, Any]] = list(pipeline()["series"])
        self.listed = [self._query(entry["name"], "0.2", 0) for entry in self.series]
        self.planned: list[dict[str, Any]] = []
        self.told: dict[str, Any] = {}
        self.odometer = {"bound": "0.93", "delta": "0.000000001", "claim": CLAIM}

    @staticmethod
    def _query(name: str, epsilon: str, start: int, **more: Any) -> dict[str, Any]:
        query = {"name": name, "statistic": "count", "analyst": "", "epsilon": epsilon}
        times = {"start_time": begins(start), "end_time": None}
        return {**query, "start": start, "end": None, **times, "created": False, **more}

    def add(self, entry: dict[str, Any], start: int, analyst: str = "ann") -> None:
        self.series.append(entry)
        self.planned.append(planned(entry["name"], 1204, HORIZON - 1))
        more = {"statistic": entry["statistic"], "analyst": analyst, "created": True}
        self.listed.append(self._query(entry["name"], "0.1", start, **more))

    def halt(self, name: str, end: int) -> None:
        for query in self.listed:
            if query["name"] == name:
                query |= {"end": end, "end_time": begins(end)}
        self.planned = [entry for entry in self.planned if entry["name"] != name]
        self.series = [entry for entry in self.series if entry["name"] != name]

    def queries(self) -> list[dict[str, Any]]:
        return self.listed

    def view(self) -> dict[str, Any]:
        return {
            "pipeline": lambda: {**pipeline(), "series": self.series},
            "plan": lambda: {**plan(), "series": [*plan()["series"], *self.planned]},
            "budget": self.budget,
            "live_series": self,
        }

    def budget(self) -> dict[str, Any]:
        quota = {"total": "0.3", "spent": "0.1", "left": "0.2"}
        series = [{"name": query["name"], "epsilon": query["epsilon"]} for query in self.listed]
        analysts = [{"name": "ann", "epsilon": quota, "records": ""}]
        own = {"filter": "pure, over time", "analysts": analysts, "odometer": self.odometer}
        return {**budget(), "series": series, **own, **self.told}

    def shown(
        self, browser: Browser, engine: Engine, **more: Any
    ) -> AbstractAsyncContextManager[Page]:
        return showing(browser, engine, **more, **self.view())

    def change(self, name: str, version: int, at: int) -> None:
        """A changed file ends a series, and goes on with its name."""
        entry = next(entry for entry in self.series if entry["name"] == name)
        (before,) = (query for query in self.listed if query["name"] == name)
        self.halt(name, at)
        self.add({**entry, "version": version}, at, "")
        self.listed.remove(before)
        self.listed[-1]["version"] = version
        self.listed.append(before)


@pytest.fixture
def changing() -> ChangingEngine:
    return ChangingEngine()


def publish(engine: Engine, number: int, **more: Any) -> None:
    """`number` ticks in which the new series releases too."""
    for _ in range(number):
        engine.publish("late_by_airline", {**more, "values": {"AA": 120, "UA": 7}, "band": 30})
        engine.step()


async def received(page: Page, card: str = CARD) -> int:
    """How many releases the card of a series has taken."""
    await page.wait_for_selector(f"{card}[data-received]")
    return int(await page.get_attribute(card, "data-received") or 0)


async def test_a_new_series_appears_without_reload(
    browser: Browser, engine: Engine, changing: ChangingEngine
) -> None:
    async with changing.shown(browser, engine) as page:
        await page.evaluate("() => { window.sameDocument = true; }")
        changing.add(late(), HISTORY)
        await page.evaluate(LOOK)
        await page.wait_for_selector(CARD)
        assert "Waiting" in await text(page, f"{CARD} .note")
        tools = page.locator(f"{CARD} .card-tools")
        assert not await tools.is_visible()  # nothing to take away yet
        assert await text(page, f"{LISTED} td >> nth=0") == "ann"

        publish(engine, 7)
        await reaches(page, HISTORY + 6)
        assert await received(page) == 7
        assert await tools.is_visible()
        assert await text(page, f"{CARD} .tag") == "histogram by airline so far"
        assert await page.locator(f"{CARD} .card-foot p").all_text_contents() == [
            f"Costs ε 0.1 · expected error ± 1,204 events at tick 8,759 (95%) · {MADE}",
            "Start: tick 700 (30 Jan 2013, 14:00 UTC) · Analyst: ann",
        ]
        assert await page.locator("[data-series=departures] .card-foot p").all_text_contents() == [
            f"Costs ε 0.1 · expected error ± 160 events at tick 8,760 (95%) · {MADE}",
            "Start: tick 0 (1 Jan 2013, 10:00 UTC)",
        ]
        assert await page.evaluate("() => window.sameDocument")


@pytest.mark.parametrize("reloads", [False, True])
async def test_a_changed_series_has_one_card_whose_line_begins_anew(
    browser: Browser, engine: Engine, changing: ChangingEngine, reloads: bool
) -> None:
    changing.add(late(), HISTORY, analyst="")
    publish(engine, 5)
    async with changing.shown(browser, engine) as page:
        assert await received(page) == 1
        assert not await page.locator(f"{CARD} .version").is_visible()
        changing.change("late_by_airline", 2, HISTORY + 5)
        if reloads:  # before the first release of the new one
            await page.reload()
            await page.wait_for_selector(CARD)
            assert "Waiting" in await text(page, f"{CARD} .note")
        publish(engine, 3, version=2)
        await page.wait_for_selector(f"{CARD}[data-received='3']")
        assert await page.locator(CARD).count() == 1
        assert await text(page, f"{CARD} .version") == (
            "Version 2. The definition was changed: the line starts from zero at tick 705 (30 Jan 2013, 19:00 UTC)."
        )
        assert await page.locator(f".card.halted{CARD}").count() == 0
        rows = await page.locator(f"{LISTED} th").all_inner_texts()
        assert [" ".join(row.split()) for row in rows] == [
            "Late by airline version 2",
            "Late by airline",
        ]
        publish(engine, 1, version=2)
        await page.wait_for_selector(f"{CARD}[data-received='4']")


async def test_the_line_of_a_changed_series_has_no_number_of_the_one_before(
    browser: Browser, engine: Engine, changing: ChangingEngine
) -> None:
    changing.add(described("count", "calls"), HISTORY, analyst="")
    for tick in range(9):
        more = {"version": 2} if tick > 4 else {}
        engine.publish("calls", {**more, "value": 1000 if tick <= 4 else 50, "band": 5})
        engine.step()
    changing.change("calls", 2, HISTORY + 5)
    calls = "[data-series=calls]"
    async with changing.shown(browser, engine) as page:
        await page.wait_for_selector(f"{calls}[data-received='4']")
        kept = (
            "(name) => [...window.board.cards.values()].filter(({ series }) => series.name === name)"
            ".map((card) => card.rows(card.range).rows)"
        )
        (rows,) = await page.evaluate(kept, "calls")
        assert len(rows) == 4
        assert "1000" not in str(rows)


async def test_a_release_alone_announces_a_series_and_its_absence_a_halt(
    browser: Browser, engine: Engine, changing: ChangingEngine
) -> None:
    no_look = "window.setInterval = () => 0"
    async with changing.shown(browser, engine, script=no_look) as page:
        changing.add(late(), HISTORY)
        publish(engine, 3)
        assert await received(page) > 0
        changing.halt("late_by_airline", HISTORY + 3)
        for _ in range(3):
            engine.step()
        await page.wait_for_selector(f".card.halted{CARD}")
        assert await page.locator(".card.halted").count() == 1


async def test_a_halted_series_is_marked_and_has_no_card_after_a_reload(
    browser: Browser, engine: Engine, changing: ChangingEngine
) -> None:
    changing.add(late(), HISTORY, analyst="")
    publish(engine, 3)
    async with changing.shown(browser, engine) as page:
        await page.wait_for_selector(LISTED)
        assert await page.locator(".budget-bar .piece").count() == 6  # four of the file, ann, this
        changing.halt("late_by_airline", HISTORY + 3)
        await page.evaluate(LOOK)
        await page.wait_for_selector(f"{LISTED}.halted")
        assert "703 30 Jan 2013, 17:00" in await text(page, LISTED)
        assert (await text(page, f"{CARD} .tag")).endswith("so far · halted")
        assert await page.locator(f"{CARD} .card-foot p").all_text_contents() == [
            f"Costs ε 0.1 · expected error ± 1,204 events at tick 8,759 (95%) · {MADE}",
            "Start: tick 700 (30 Jan 2013, 14:00 UTC) · End: tick 703 (30 Jan 2013, 17:00 UTC)",
        ]
        assert await page.locator(".budget-bar .piece").count() == 5
        assert await text(page, "#queries .count") == "4 running, 1 halted"
        await page.set_viewport_size({"width": 360, "height": 740})
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360
        await page.reload()
        await page.wait_for_selector(".card.scalar[data-tick]")
        assert await page.locator(CARD).count() == 0
        assert await page.locator(f"{LISTED}.halted").count() == 1


def watch(name: str, **more: Any) -> dict[str, Any]:
    times = {"start": 0, "start_time": begins(0), "end": None, "end_time": None}
    rest = {"over": "since_firing", "rearm": True, "analyst": "", "created": False}
    return {"name": name, **rest, **times, **more}


async def test_a_monitors_card_shows_watches_before_they_fire_and_counts_at_firings(
    browser: Browser, engine: Engine, changing: ChangingEngine
) -> None:
    watched = described("monitor", "watched", watch=[{"name": "large", "above": 50}])
    changing.add(watched, HISTORY)
    changing.listed[-1]["watches"] = [
        watch("large", above=50),
        watch("each", above=9, by="airline"),
        watch("gone", above=9, end=3),
        watch("done", above=7, end=2, rearm=False, fired=1),
        watch("quiet", below=3, over="tick", rearm=False, analyst="ann", created=True),
    ]
    async with changing.shown(browser, engine) as page:
        counts = {"counts": {"large": 1053, "each/AA": 12}, "band": 84, "counts_band": 90}
        engine.publish("watched", {"fired": ["large", "each/AA"], **counts})
        engine.step()
        assert await received(page, "[data-series=watched]") == 1
        rows = page.locator("[data-series=watched] tbody tr")
        assert await rows.locator("th").all_inner_texts() == ["large", "each/AA", "done", "quiet"]
        assert await rows.locator(".number").first.inner_text() == "1"
        last = await rows.locator(".when").all_inner_texts()
        assert last[0].endswith(" · 1,053 ± 90")
        assert last[3] == "–"
        assert [await rows.nth(at).get_attribute("title") for at in (0, 2, 3)] == [
            "large fires at 50 events",
            "done fires at 7 events, once · ended at tick 2",
            "quiet fires below 3 events in a tick, once · analyst ann",
        ]


async def test_the_odometer_and_the_quotas_are_shown(
    browser: Browser, engine: Engine, changing: ChangingEngine
) -> None:
    async with changing.shown(browser, engine) as page:
        await page.click(SPENDING)
        assert await text(page, "[data-budget=odometer]") == "ε ≤ 0.93"
        shown = await text(page, "#budget")
        for part in ("at δ 1.0e-9, so far", CLAIM[1:], "pure, over time", "ε 0.1 of 0.3, 0.2 left"):
            assert part in shown
        changing.odometer = {"bound": "1.07", "delta": "0", "claim": CLAIM}
        await page.evaluate(LOOK)
        await page.wait_for_function(ODOMETER_IS_NEW)


async def test_the_budget_says_which_records_it_was_spent_on_and_what_an_end_gives_back(
    browser: Browser, engine: Engine, changing: ChangingEngine
) -> None:
    """Prices of series that see different records do not add up to what is spent, so the bar is one piece."""
    quota = {"total": "0.3", "spent": "0.1", "left": "0.2"}
    changing.told = {
        "heaviest": "country = DE",
        "analysts": [{"name": "ann", "epsilon": quota, "records": "country = FR"}],
        "series": [
            {"name": "departures", "epsilon": "0.5"},
            {"name": "large", "epsilon": "0.1", "records": "amount at least 500", "frees": True},
        ],
    }
    async with changing.shown(browser, engine) as page:
        await page.click(SPENDING)
        shown = await text(page, "#budget")
        for part in (
            "of 1 spent (on records with country = DE, where most was spent)",
            "arge on records with amount at least 500",
            "nalyst ann on records with country = FR",
            "If a question ends, its ε is free again from the next tick on, for new questions on the records",
        ):
            assert part in shown
        assert await page.locator(".budget-bar .piece").count() == 1
        most = "(on records with country = DE, where most was spent)"
        said = f"Privacy budget: ε 0.9 of 1 spent {most}, 0.1 left"
        assert await page.get_attribute(".budget-bar", "aria-valuetext") == said
        changing.told = {**changing.told, "heaviest": "", "series": [changing.told["series"][0]]}
        await page.evaluate(LOOK)
        await page.wait_for_function(
            "() => document.querySelectorAll('.budget-bar .piece').length === 2"
        )
        assert await page.locator("[data-budget=frees]").count() == 0


async def test_a_late_answer_does_not_replace_a_newer_answer(
    browser: Browser, engine: Engine, changing: ChangingEngine
) -> None:
    async with changing.shown(browser, engine, script=HOLDS) as page:
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


async def test_a_late_description_does_not_replace_a_newer_description(
    browser: Browser, engine: Engine, changing: ChangingEngine
) -> None:
    async with changing.shown(browser, engine, script=HOLDS) as page:
        await shows(page, "live")
        # asked for when the first of two new series releases; it would take the other from the list
        await page.evaluate("() => { window.holding = '/api/plan'; }")
        changing.add(late(), HISTORY)
        publish(engine, 1)
        await page.wait_for_function("() => window.held.length >= 1")
        await page.evaluate("() => { window.holding = null; }")
        changing.add(late("later"), HISTORY + 1)
        await page.evaluate(LOOK)
        await page.wait_for_selector("[data-series=later]")
        await page.wait_for_selector("[data-query=later]")
        await page.evaluate(GIVEN)
        assert await page.locator("[data-query=later]").count() == 1


async def test_a_look_at_the_budget_takes_nothing_out_of_a_readers_hand(
    browser: Browser, engine: Engine, changing: ChangingEngine
) -> None:
    # what says the same as before stays: it keeps the focus, and a click that begins on it ends on it
    async with changing.shown(browser, engine) as page:

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
    changing.told = {
        "epsilon": {"total": "2", "spent": "0.0125", "left": "0.3"},
        "delta": {"total": "0.000000001", "spent": "0", "left": "0"},
        "filter": "tight_approximate",
        "unit": "rho",
        "capacity": "0.05",
    }
    async with changing.shown(browser, engine, width=390) as page:
        await page.click(SPENDING)
        spent = ["0.0125 rho", "of 0.05 spent", "ε 0.3 left for one more"]
        assert (await text(page, "#budget .spent")).split("\n") == spent
        pieces = page.locator(".budget-bar .piece")
        assert await pieces.count() == 1
        assert await pieces.evaluate("piece => piece.style.width") == "25%"
        shown = await text(page, "#budget")
        assert "All series together: ε 2 at δ 1.0e-9." in shown
        assert "undefined" not in shown
        assert "%" not in shown


@pytest.mark.parametrize("said", [{}, {"epsilon": {"total": "1", "spent": "1", "left": "0"}}])
async def test_a_budget_that_says_little_breaks_nothing(
    browser: Browser, engine: Engine, said: dict[str, Any]
) -> None:
    async with serving(engine.log) as server:
        page = await blank(browser)
        console = Console(page)
        await page.route("**/api/budget", lambda route: route.fulfill(json=said))
        await page.goto(server.url)
        await drawn(page)
        assert await page.locator("[data-budget=odometer]").count() == 0
        assert await page.locator("#queries").is_hidden()
        assert console.complaints == []
