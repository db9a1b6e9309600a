"""A page that stays open for days: with the ticks grows what was released and nothing else, with loading nothing.

Rules: the browser itself counts, after it has collected its garbage. The bound on memory is far above what
releases need and far below what a picture of each would. No handle on an element is kept, for it holds its card.
"""

from typing import Any

import pytest
from browser.ask_worlds import LOOK
from browser.page_worlds import ALL_DRAWN, Engine, opened, pipeline, port_of, reaches, serving
from browser.test_page_queries import ChangingEngine
from playwright.async_api import Browser, CDPSession, Page

pytestmark = pytest.mark.browser

BEFORE, TICKS, TIMES = 20, 60, 3
BYTES_PER_TICK = 12_000
PLOTS = "() => uPlot.sync('time').plots.length"
TURNED = (
    f'turn => document.getElementById("name").textContent === `turn ${{turn}}` && ({ALL_DRAWN})()'
)
LEAKS = {
    "listeners": "addEventListener('resize', () => null)",
    "nodes": "kept.push(document.createElement('p'))",
    "bytes": "kept.push(Array(5000).fill(0.5))",
}
"""What a page that leaks does at every look, by what grows."""


async def held(session: CDPSession, page: Page) -> dict[str, int]:
    """What the page holds: listeners, nodes, bytes, linked charts."""
    for _ in range(2):  # what the first frees may free more
        await session.send("HeapProfiler.collectGarbage")
    answer = await session.send("Performance.getMetrics")
    found = {each["name"]: int(each["value"]) for each in answer["metrics"]}
    names = {"listeners": "JSEventListeners", "nodes": "Nodes", "bytes": "JSHeapUsedSize"}
    return {
        **{name: found[metric] for name, metric in names.items()},
        "charts": await page.evaluate(PLOTS),
    }


async def runs(page: Page, engine: Engine, ticks: int) -> None:
    """So many ticks, each drawn, with a look at the budget."""
    for _ in range(ticks):
        engine.step()
        await page.evaluate(LOOK)
        await reaches(page, engine.tick - 1)


async def watched(page: Page) -> CDPSession:
    """A session that counts."""
    session = await page.context.new_cdp_session(page)
    await session.send("Performance.enable")
    return session


async def grown(page: Page, engine: Engine) -> dict[str, int]:
    """What the page holds more after `TICKS` ticks."""
    session = await watched(page)
    await runs(page, engine, BEFORE)
    before = await held(session, page)
    await runs(page, engine, TICKS)
    after = await held(session, page)
    return {name: after[name] - many for name, many in before.items()}


def faults(more: dict[str, int]) -> set[str]:
    """What grows that should not: a few nodes may be on their way out."""
    bounds = {"listeners": 0, "nodes": TICKS // 3, "bytes": BYTES_PER_TICK * TICKS, "charts": 0}
    return {name for name, bound in bounds.items() if more[name] > bound}


async def test_nothing_grows_with_the_ticks_but_the_data(browser: Browser, engine: Engine) -> None:
    async with serving(engine.log, **ChangingEngine().view()) as server:
        page = await opened(
            browser, f"{server.url}?keys.by_destination=ORD&keys.by_destination=ATL"
        )
        more = await grown(page, engine)
        assert faults(more) == set()


@pytest.mark.parametrize("leak", LEAKS)
async def test_a_page_that_leaks_is_caught(browser: Browser, engine: Engine, leak: str) -> None:
    """The twins: a listener, an element or some numbers more with every look."""
    async with serving(engine.log, **ChangingEngine().view()) as server:
        page = await opened(browser, server.url)
        at_every_look = f"document.addEventListener('visibilitychange', () => {{ {LEAKS[leak]}; }})"
        await page.evaluate(f"() => {{ window.kept = []; {at_every_look}; }}")
        more = await grown(page, engine)
        assert faults(more) == {leak}


async def test_what_is_loaded_anew_leaves_nothing_behind(browser: Browser, engine: Engine) -> None:
    """An engine begins again as another pipeline: the cards are new ones, and the charts of the old ones are gone."""
    found = list[dict[str, int]]()

    def public(turn: int) -> dict[str, Any]:
        return {**pipeline(f"f{turn}"), "name": f"turn_{turn}"}

    async with serving(engine.log, public(0)) as server:
        page = await opened(browser, server.url)
    session = await watched(page)
    for turn in range(1, TIMES + 2):
        async with serving(engine.log, public(turn), port_of(page)):
            await page.wait_for_function(TURNED, arg=turn)  # a handle on an element would hold it
            found.append(await held(session, page))
    assert {each["charts"] for each in found} == {2}
    assert len({each["listeners"] for each in found[1:]}) == 1
    assert found[-1]["nodes"] <= found[1]["nodes"] + 20
