"""What a reader sees first: a chart above the fold, one plain line on privacy, words of the operator on the cards."""

from typing import Any, Literal

import pytest
from browser.page_worlds import (
    Console,
    Engine,
    described,
    opened,
    picture,
    pipeline,
    plan,
    serving,
    text,
)
from playwright.async_api import Browser

from stream_dp.server.server import PageServer

pytestmark = pytest.mark.browser

Scheme = Literal["light", "dark"]
TOLD = {
    "title": "Departures so far",
    "description": "Scheduled departures of three airports, by local hour.",
    "unit": "flights",
    "where": ["delay at least 15", "airline one of AA, UA"],
}


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
async def test_the_first_chart_is_above_the_fold(
    browser: Browser, engine: Engine, width: int, height: int
) -> None:
    """With all that the operator may say of a series above it."""
    first = {**pipeline()["series"][0], **TOLD}
    public = {**pipeline(), "series": [first, *pipeline()["series"][1:]]}
    async with serving(engine.log, public) as server:
        page = await opened(browser, server.url, width, height)
        box = await page.locator(".card .chart canvas").first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= height
        assert await page.evaluate("scrollY") == 0
        await picture(page, f"fold-{width}")


async def test_a_card_says_what_its_operator_says(browser: Browser, engine: Engine) -> None:
    first = {**pipeline()["series"][0], **TOLD}
    async with serving(engine.log, {**pipeline(), "series": [first]}) as server:
        page = await opened(browser, server.url)
        card = "[data-series=departures]"
        assert await text(page, f"{card} h3") == "Departures so far"
        assert await text(page, f"{card} .description") == TOLD["description"]
        assert await page.locator(f"{card} .where li").all_inner_texts() == TOLD["where"]
        assert (await text(page, f"{card} .figure")).split() == ["14,896", "flights", "±", "45"]


async def test_content_comes_before_privacy_and_privacy_before_its_proof(
    browser: Browser, server: PageServer
) -> None:
    page = await opened(browser, server.url)
    top = "part => document.querySelector(part).getBoundingClientRect().top"
    tops = [await page.evaluate(top, part) for part in (".card", "#promise", "#proof")]
    assert tops == sorted(tops)
    for hidden in (".dp", ".legend", "#proof .step >> nth=0"):
        assert not await page.locator(hidden).is_visible(), hidden
    meter = page.get_by_role("meter")
    assert await meter.get_attribute("aria-valuenow") == "90.0"
    assert (
        await meter.get_attribute("aria-valuetext") == "Privacy budget: ε 0.9 of 1 spent, 0.1 left"
    )


USERS = {"name": "(user, day)", "field": "customer", "max_events": 3, "per": "1d"}


@pytest.mark.parametrize(
    ("public", "promise", "said"),
    [
        ({}, {"epsilon": "2.48", "delta": "0"},
         "No single event can be told from these numbers: with or without it each picture is at most 12 times "
         "as likely."),
        ({"neighbors": "replace"}, {"epsilon": "0.5", "delta": "0"},
         "No single event can be told from these numbers: with it or with another in its place each picture is "
         "at most 1.65 times as likely."),
        ({"unit": "user", "users": USERS}, {"epsilon": "1", "delta": "0.000000001"},
         "No single customer's events of one day can be told from these numbers: with or without them "
         "each picture is at most 2.72 times as likely, apart from a probability of 1.0e-9."),
        ({"unit": "user", "users": {**USERS, "name": "(user, 36h)", "per": "36h"}}, {"epsilon": "1", "delta": "0"},
         "No single customer's events of one window of 36 hours can be told from these numbers: with or without them "
         "each picture is at most 2.72 times as likely."),
        ({"unit": "user", "users": {**USERS, "per": None}, "neighbors": "replace_any_tick"},
         {"epsilon": "3", "delta": "0"},
         "No single customer's events can be told from these numbers: with them or with others in their place "
         "each picture is at most 20.1 times as likely."),
        ({}, {"epsilon": "10", "delta": "0"},
         "One event may show in these numbers: with or without it each picture is at most 2.21e+4 times as "
         "likely."),
    ],
)  # fmt: skip
async def test_the_plain_line_says_what_is_promised_and_rounds_up(
    browser: Browser,
    server: PageServer,
    public: dict[str, Any],
    promise: dict[str, str],
    said: str,
) -> None:
    page = await opened(browser, server.url)
    told = {**plan(), **{k: v for k, v in public.items() if k == "neighbors"}, "promise": promise}
    ask = "async ([pipeline, plan]) => (await import('./promise.js')).plainly(pipeline, plan)"
    assert await page.evaluate(ask, [{**pipeline(), **public}, told]) == said


async def test_a_bound_on_a_factor_is_never_below_it(browser: Browser, server: PageServer) -> None:
    page = await opened(browser, server.url)
    ask = """async () => {
        const { atMost } = await import('./format.js');
        const wrong = [];
        for (let epsilon = 0; epsilon < 40; epsilon += 0.0137) {
            const told = Number(atMost(Math.exp(epsilon)).replaceAll(',', ''));
            const excess = told / Math.exp(epsilon) - 1;
            if (!(excess >= -1e-9 && excess <= 0.0101)) wrong.push([epsilon, told]);
        }
        return wrong;
    }"""
    assert await page.evaluate(ask) == []


async def test_alerts_of_active_keys_come_first(browser: Browser, engine: Engine) -> None:
    series = [described("alerts", "late_departures", by="airline", threshold=100)]
    async with serving(
        engine.log, {**pipeline(), "series": [*pipeline()["series"][:1], *series]}
    ) as server:
        page = await opened(browser, server.url)
        console = Console(page)
        for key in ("OO", "HA"):
            engine.publish("departures", {"value": 1, "band": 1})
            engine.publish("late_departures", {"fired": [key], "band": 17})
            engine.tick += 1
        await page.wait_for_selector(
            f"[data-series=late_departures][data-tick='{engine.tick - 1}']"
        )
        keys = await page.locator("[data-series=late_departures] tbody th").all_inner_texts()
        assert keys[:2] == ["HA", "OO"]
        assert console.complaints == []
