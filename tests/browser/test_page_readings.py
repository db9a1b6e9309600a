"""What cards say beside the number: whose it is, false alarms, shares in per cent, new windows, where 0 is."""

from fractions import Fraction
from typing import Any

import pytest
from browser.page_worlds import (
    Console,
    Engine,
    blank,
    described,
    picture,
    pipeline,
    plan,
    serving,
    text,
)
from playwright.async_api import Browser, Page

from stream_dp.statistics.parts.choice import FalseAlarm

pytestmark = pytest.mark.browser

TICKS = 100
MOST, SILENT, WAITED, WATCHED, SHARE, SHARES, CUT, USERS, INSIDE = (
    f"[data-series={name}]"
    for name in ("most", "silent", "waited", "watched", "share", "shares", "cut", "users", "inside")
)
DRAWN = """card => {
    const canvas = document.querySelector(card + " canvas");
    const {data, width, height} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const rows = Array(height).fill(0), columns = Array(width).fill(0);
    for (let at = 0; at < data.length; at += 4) {
        if ([93, 100, 120].some((part, place) => Math.abs(data[at + place] - part) > 4)) continue;
        if (data[at + 3] > 250) rows[Math.floor(at / 4 / width)] += 1;
        else if (Math.abs(data[at + 3] - 191) < 6) columns[(at / 4) % width] += 1;
    }
    return {lines: rows.filter((many) => many > 250).length, marks: columns.filter((many) => many > 40).length};
}"""
DAYS = {"windows": ["1d"]}


def series() -> list[dict[str, Any]]:
    """What the API says of them."""
    within = {"parameters": {"of": "late", "over": "all", "digits": 4, "within": "0 to 1"}}
    parts: dict[str, Any] = {
        "statistic": "ratio",
        "epsilon": Fraction(0),
        "of": "late",
        "over": "all",
    }
    watches = [{"name": "large", "above": 50}, {"name": "quiet", "below": 3, "over": "1h"}]
    waited = {"of": "delay", "clamp": ["0", "120"], "step": "0.5", **DAYS}
    return [
        described("maximum", "most", by="place"),
        described("alerts", "silent", by="place", threshold=60, below=True, usual=200, **DAYS),
        described("alerts", "waited", by="place", threshold=20000, **waited),
        described("monitor", "watched", watch=watches),
        {**described(name="share", **parts), **within},
        {**described(name="shares", **parts), **within},
        described("cut_off", "cut", window="1d"),
        described("distinct", "users", of="user", window="1d"),
        described("gauge", "inside", of="kind", plus="in", minus="out"),
    ]


def leader(tick: int) -> dict[str, Any]:
    """Nobody, then ATL, of late LAX, once more ATL, and LAX."""
    if tick < 10:
        return {"value": 0, "band": 37}
    name = "LAX" if 70 <= tick < 80 or tick >= 90 else "ATL"
    return {"name": name, "value": 6 * tick, "band": 37}


def share(tick: int, *, vague: bool = False) -> dict[str, Any]:
    """About a quarter; a vague one may be anything."""
    if vague:
        return {"value": 0.5, "low": 0.0, "high": 1.0}
    return {"value": 0.25 + tick % 10 / 1000, "low": 0.2105, "high": 0.2982}


@pytest.fixture
def engine() -> Engine:
    """An engine with some days of each."""
    made = Engine()
    for tick in range(TICKS):
        before = dict.fromkeys(("value", "low", "high")) if tick < 24 else share(tick)
        made.publish("most", leader(tick))
        made.publish("silent", {"fired": ["ATL"] if tick % 24 == 23 else [], "band": 38})
        made.publish("waited", {"fired": [], "band": 812.5})
        made.publish("watched", {"fired": ["large"] if tick == 30 else [], "band": 84})
        made.publish("share", share(tick))
        keyed = {"values": {"ATL": 0.31, "other": 0.5}, "lows": [0.22, 0.0], "highs": [0.44, 1.0]}
        made.publish("shares", keyed)
        parts = {"1d": share(tick, vague=tick % 24 < 4), "1d before": before}
        made.publish("cut", {"windows": parts})
        made.publish("users", {"windows": {"1d": {"value": 20 + 11 * (tick % 24), "band": 10}}})
        made.publish("inside", {"value": 3 * tick - 220, "band": 8})
        made.tick += 1
    return made


def planned() -> dict[str, Any]:
    """The plan, with the chances of false alarms, and the error of the share."""
    alarms = {
        "silent": [FalseAlarm("silent", 200, 0.00291)],
        "waited": [FalseAlarm("waited", 10000, 1e-9, of="delay")],
        "watched": [FalseAlarm("large", 25, 0.01), FalseAlarm("quiet", 6, 0.2, keyed=False)],
    }
    rest = {"mechanism": "M", "why": "", "epsilon": 0.1, "delta": 0, "predicted_error": []}
    told = [
        {
            **rest,
            "name": name,
            "false_alarms": [each.json() for each in found],
        }
        for name, found in alarms.items()
    ]
    error = {"predicted_error": [{"tick": 99, "error": 22, "confidence": 0.95}]}
    return {**plan(), "series": [*told, {**rest, "name": "cut", **error}]}


@pytest.fixture
def public() -> dict[str, Any]:
    """The pipeline with these series."""
    return {**pipeline(), "series": series()}


async def shown(page: Page, url: str, tick: int = TICKS - 1) -> None:
    """The page, all cards drawn."""
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    await page.goto(url)
    for card in series():
        await page.wait_for_selector(f"[data-series={card['name']}][data-tick='{tick}']")


async def test_a_maximum_says_whose_it_is_and_where_that_changes(
    browser: Browser, engine: Engine, public: dict[str, Any]
) -> None:
    async with serving(engine.log, public, plan=planned) as server:
        page = await blank(browser, viewport={"width": 1280, "height": 900})
        console = Console(page)
        await shown(page, server.url)
        assert await text(page, f"{MOST} .figure") == "LAX · 594 ± 37"
        assert await text(page, f"{MOST} .note") == (
            "The largest count, and LAX's own, lie between 557 and 631 with 95% confidence: "
            "whoever truly leads is at most 74 ahead of LAX."
        )
        label = str(await page.get_attribute(f"{MOST} .chart", "aria-label"))
        assert "now LAX · 594 ± 37" in label
        assert (await page.evaluate(DRAWN, MOST))[
            "marks"
        ] == 4  # ATL at the left, then LAX, ATL, LAX
        await page.focus(f"{MOST} .chart")
        await page.keyboard.press("Home")
        assert (await text(page, f"{MOST} .readout")).endswith("UTC: ATL · 312 ± 37")
        await picture(page, "readings")
        assert console.complaints == []


async def test_while_nothing_is_known_nobody_is_named(
    browser: Browser, public: dict[str, Any]
) -> None:
    young = Engine()
    young.publish("most", leader(0))
    async with serving(young.log, public, plan=planned) as server:
        page = await blank(browser)
        await page.goto(server.url)
        await page.wait_for_selector(f"{MOST}[data-tick='0']")
        assert await text(page, f"{MOST} .figure") == "nobody yet · 0 ± 37"
        assert "noise" in await text(page, f"{MOST} .note")


async def test_alerts_say_how_likely_a_false_one_is(
    browser: Browser, engine: Engine, public: dict[str, Any]
) -> None:
    async with serving(engine.log, public, plan=planned) as server:
        page = await blank(browser)
        await shown(page, server.url)
        assert await text(page, f"{SILENT} .note") == (
            "An alert means: at most about 60 ± 38 events within 1 day and since the one before, with 95% confidence. "
            "False alarm per key and day: at most 0.3%, while the count stays at 200. "
            "A silent key fires once in every window of 1 day."
        )
        assert await text(page, f"{WAITED} .note") == (
            "An alert means: at least about 20,000 ± 812.5 of delay within 1 day and since the one before, with 95% "
            "confidence. False alarm per key and day: below 0.0001%, while the sum of delay stays at 10,000."
        )
        assert (await text(page, f"{WATCHED} .note")).endswith(
            "False alarm per day: at most 20% (quiet, the likeliest), while the count stays at 6."
        )


async def test_a_share_is_told_in_per_cent(
    browser: Browser, engine: Engine, public: dict[str, Any]
) -> None:
    async with serving(engine.log, public, plan=planned) as server:
        page = await blank(browser)
        await shown(page, server.url)
        assert await text(page, f"{SHARE} .figure") == "25.9% 21.1% to 29.8%"
        assert await page.locator(f"{SHARES} .amount").all_inner_texts() == ["31%", "50%"]
        assert await page.locator(f"{SHARES} .bars .noise .key").all_inner_texts() == ["other"]
        await page.click(f"{SHARES} summary")
        await page.wait_for_selector(f"{SHARES} tbody tr")  # the table is filled after it is open
        assert "ATL\t31%\t22% to 44%" in await page.locator(f"{SHARES} tbody tr").all_inner_texts()


async def test_the_share_cut_off_shows_the_whole_window_first(
    browser: Browser, engine: Engine, public: dict[str, Any]
) -> None:
    async with serving(engine.log, public, plan=planned) as server:
        page = await blank(browser)
        await shown(page, server.url)
        assert await text(page, f"{CUT} [aria-pressed=true]") == "1 day before"
        assert await text(page, f"{CUT} .band") == "21.1% to 29.8% in the whole day before"
        assert "± 22 users in either number at tick 99" in await text(page, f"{CUT} .card-foot")

        await (
            page.get_by_role("group", name="Window of cut").get_by_text("1 day", exact=True).click()
        )

        assert await text(page, f"{CUT} .band") == "0% to 100% since the day began"
        assert "Too few events were counted to say anything" in await text(page, f"{CUT} .note")


async def test_before_a_window_is_over_nothing_is_told_of_it(
    browser: Browser, public: dict[str, Any]
) -> None:
    young = Engine()
    none = dict.fromkeys(("value", "low", "high"))
    young.publish("cut", {"windows": {"1d": share(0), "1d before": none}})
    async with serving(young.log, public, plan=planned) as server:
        page = await blank(browser)
        await page.goto(server.url)
        await page.wait_for_selector(f"{CUT}[data-tick='0']")
        assert await text(page, f"{CUT} .value") == "–"
        assert "No window is over yet" in await text(page, f"{CUT} .note")


async def test_where_windows_begin_anew_and_where_zero_is_can_be_seen(
    browser: Browser, engine: Engine, public: dict[str, Any]
) -> None:
    async with serving(engine.log, public, plan=planned) as server:
        page = await blank(browser, viewport={"width": 1280, "height": 900})
        await shown(page, server.url)
        assert await text(page, f"{USERS} .band") == "± 10 since the day began"
        assert await page.evaluate(DRAWN, USERS) == {"lines": 0, "marks": 2}
        await page.click("#windows button:last-child")
        await page.wait_for_function(f"card => ({DRAWN})(card).marks === 4", arg=USERS)
        assert await text(page, f"{INSIDE} .value") == "77"
        drawn = await page.evaluate(DRAWN, INSIDE)
        assert (drawn["lines"], drawn["marks"]) == (1, 0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_phone_shows_these_without_sideways_scroll(
    browser: Browser, engine: Engine, public: dict[str, Any], scheme: Any
) -> None:
    async with serving(engine.log, public, plan=planned) as server:
        phone: Any = {"width": 390, "height": 780}
        page = await blank(browser, viewport=phone, color_scheme=scheme)
        await shown(page, server.url)
        assert await page.evaluate("document.documentElement.scrollWidth") <= 390
        await picture(page, f"readings-phone-{scheme}")
