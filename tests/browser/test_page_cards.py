"""What a card of each shape shows and says, and what it does not pretend to know."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from browser import card_worlds
from browser.card_worlds import (
    BANDS,
    DOORS,
    NOTHING,
    OPEN,
    UNTOLD_DAYS,
    Cards,
    fan,
    rare,
    step,
)
from browser.page_worlds import (
    BLUE,
    CODES_SHOWN,
    KEEPS_PLOTS,
    PLOT,
    pixels,
    readout,
    saved_rows,
    text,
    texts,
)
from browser.test_page_layout import findings
from playwright.async_api import Browser, Page

pytestmark = pytest.mark.browser

MOST, SILENT, WAITED, WATCHED, SHARE, SHARES, CUT, USERS, INSIDE = (
    f"[data-series={name}]"
    for name in ("most", "silent", "waited", "watched", "share", "shares", "cut", "users", "inside")
)
FAN, MEAN, TOP, GAUGE, RATE, RATES, RARE = (
    f"[data-series={name}]"
    for name in ("delays", "mean_delay", "leaders", "gauge", "rate", "rates", "rare")
)
PRESSED = "[aria-pressed=true]"
INK = (23, 26, 38)
LINE, BAR, NEAR, FAR, WHISKER = (
    (*BLUE, 201, 255), (*BLUE, 134, 146), (*BLUE, 48, 54), (*BLUE, 20, 26), (*INK, 201, 255),
)  # fmt: skip
FAINT = (*BLUE, 84, 130)
"""A line that stays inside its band, on it or beside it."""
MARKED = """card => {
    const canvas = document.querySelector(card + " canvas");
    const {data, width, height} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const rows = Array(height).fill(0), columns = Array(width).fill(0);
    for (let at = 0; at < data.length; at += 4) {
        if ([93, 100, 120].some((part, place) => Math.abs(data[at + place] - part) > 4)) continue;
        if (data[at + 3] > 250) rows[Math.floor(at / 4 / width)] += 1;
        else if (Math.abs(data[at + 3] - 191) < 6) columns[(at / 4) % width] += 1;
    }
    return [rows.filter((many) => many > 250).length, columns.filter((many) => many > 40).length];
}"""
"""How many lines and how many marks of an event are drawn."""


async def window(page: Page, series: str, which: str) -> None:
    group = page.get_by_role("group", name=f"Window of {series}", exact=True)
    await group.get_by_text(which, exact=True).click()


async def has_received(page: Page, card: str, many: int) -> None:
    await page.wait_for_selector(f"{card}[data-received='{many}']")


# --- whose number it is, and how sure -----------------------------------------------------------


async def test_a_maximum_says_whose_it_is_and_where_that_changes(browser: Browser) -> None:
    # beside another card: marks are counted by their pixels, so the width matters
    async with Cards("most", "share").shown(browser, "?size.most=l") as page:
        assert await text(page, f"{MOST} .figure") == "LAX · 594 ± 37"
        assert await text(page, f"{MOST} .note") == (
            "The largest count, and LAX's own, lie between 557 and 631 with 95% confidence: "
            "the true leader is at most 74 ahead of LAX."
        )
        label = str(await page.get_attribute(f"{MOST} .chart", "aria-label"))
        assert "now LAX · 594 ± 37" in label
        _, marks = await page.evaluate(MARKED, MOST)
        assert marks == 4  # ATL at the left, then LAX, ATL, LAX
        assert (await readout(page, MOST, "Home")).endswith("UTC: ATL · 312 ± 37")


async def test_while_nothing_is_known_nobody_is_named(browser: Browser) -> None:
    async with Cards("most", ticks=1).shown(browser) as page:
        assert await text(page, f"{MOST} .figure") == "nobody yet · 0 ± 37"
        assert "noise" in await text(page, f"{MOST} .note")


async def test_alerts_say_how_likely_a_false_alarm_is(browser: Browser) -> None:
    async with Cards("silent", "waited", "watched").shown(browser) as page:
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


async def test_a_share_is_told_in_per_cent(browser: Browser) -> None:
    async with Cards("share", "shares").shown(browser) as page:
        assert await text(page, f"{SHARE} .figure") == "25.9% 21.1% to 29.8%"
        assert await texts(page, f"{SHARES} .amount") == ["31%", "50%"]
        assert await texts(page, f"{SHARES} .bars .noise .key") == ["other"]
        await page.click(f"{SHARES} summary")
        await page.wait_for_selector(f"{SHARES} tbody tr")  # the table is filled after it is open
        assert "ATL\t31%\t22% to 44%" in await texts(page, f"{SHARES} tbody tr")


async def test_the_share_cut_off_shows_the_whole_window_first(browser: Browser) -> None:
    async with Cards("cut").shown(browser) as page:
        assert await text(page, f"{CUT} {PRESSED}") == "1 day before"
        assert await text(page, f"{CUT} .band") == "21.1% to 29.8% in the whole day before"
        assert "± 22 users in either number at tick 99" in str(
            await page.text_content(f"{CUT} .card-foot")
        )
        await window(page, "cut", "1 day")
        assert await text(page, f"{CUT} .band") == "0% to 100% since the day began"
        assert "Too few events were counted to say anything" in await text(page, f"{CUT} .note")
    async with Cards("cut", ticks=1).shown(browser) as page:
        assert await text(page, f"{CUT} .value") == "–"
        assert "No window has ended yet" in await text(page, f"{CUT} .note")


async def test_where_windows_begin_anew_and_where_zero_is_can_be_seen(browser: Browser) -> None:
    async with Cards("users", "inside").shown(
        browser, "?size.users=l&size.inside=l&last=2d"
    ) as page:
        assert await text(page, f"{USERS} .band") == "± 10 since the day began"
        assert await page.evaluate(MARKED, USERS) == [0, 2]
        await page.click("#windows button:last-child")
        await page.wait_for_function(f"card => ({MARKED})(card)[1] === 4", arg=USERS)
        assert await text(page, f"{INSIDE} .value") == "77"
        assert await page.evaluate(MARKED, INSIDE) == [1, 0]


# --- shapes -------------------------------------------------------------------------------------


async def test_quantiles_are_a_fan_that_is_read_by_keyboard(browser: Browser) -> None:
    async with Cards("delays").shown(browser, "?last=2d") as page:
        assert await texts(page, f"{FAN} dt") == ["half below", "90% below", "99% below"]
        assert await texts(page, f"{FAN} dd") == [
            "31.5", "30 to 33", "100.5", "99 to 102", "240", "at the end of its range",
        ]  # fmt: skip
        note = await text(page, f"{FAN} .note")
        assert "in the 24 hours that ended last are wrong by at most 48 events" in note
        assert "± 48 events in rank at tick 8,760" in str(
            await page.text_content(f"{FAN} .card-foot")
        )
        label = str(await page.get_attribute(f"{FAN} .chart", "aria-label"))
        assert "50% below 31.5, 90% below 100.5, 99% below 240" in label
        line, near, far = await pixels(page, FAN, LINE, NEAR, FAR)
        assert line > 300
        assert near > 2000
        assert far > 2000
        assert await page.locator(f"{FAN} .over").is_hidden()
        assert (await readout(page, FAN, "Home")).startswith("Thu, 3 Jan 2013, 15:00 UTC")
        told = "50% below 31.5 · 90% below 100.5 · 99% below 240"
        assert await readout(page, FAN, "End") == f"Sat, 5 Jan 2013, 14:00 UTC: {told}"


async def test_quantiles_of_sliding_windows_lie_in_the_range_below_them(browser: Browser) -> None:
    sliding = {"told": "at every tick", "clamp": "-30 to 240"}
    async with Cards("delays", parameters=sliding).shown(browser) as page:
        assert await text(page, f"{FAN} .note") == (
            "Each exact quantile in the last 24 hours lies in the range below it, all at once, with 95% confidence."
        )


async def test_quantiles_that_hop_say_how_long_they_stand(browser: Browser) -> None:
    hopping = {"told": "at the end of each 12h", "hop": "12h", "clamp": "-30 to 240"}
    async with Cards("delays", parameters=hopping).shown(browser) as page:
        note = await text(page, f"{FAN} .note")
        assert note.endswith(
            "all at once, with 95% confidence. A new release comes every 12 hours."
        )


async def test_a_fan_waits_for_the_first_window(browser: Browser) -> None:
    cards = Cards("delays", ticks=24)
    async with cards.shown(browser) as page:
        assert "No window has ended yet" in await text(page, f"{FAN} .note")
        assert await page.locator(f"{FAN} dt").count() == 0
        step(cards.engine, "delays")
        await page.wait_for_selector(f"{FAN}[data-tick='24'] dt")
        assert await page.locator(f"{FAN} dt").count() == len(
            fan(24)["windows"]["24h"]["quantiles"]
        )


async def test_cards_of_windows_that_end_wait_for_the_first_one(browser: Browser) -> None:
    cards = Cards(
        "leaders", "mean_by_door", "mean_delay", parameters={"told": "when a window ends"}
    )
    unknown = {"values": dict.fromkeys(DOORS), "lows": [None] * 3, "highs": [None] * 3}
    untold = {"leaders": {"ranks": [], "band": 5}, "mean_by_door": unknown, "mean_delay": NOTHING}
    async with cards.shown(browser) as page:
        for name, part in untold.items():
            cards.engine.publish(name, {"windows": {"tick": part, "24h": part}})
        for name in untold:
            note = page.locator(f"[data-series={name}] .note", has_text="No window has ended yet")
            await note.wait_for()
        assert await page.locator("[data-series=leaders] table").is_hidden()


async def test_where_all_values_are_possible_no_quantile_is_drawn(browser: Browser) -> None:
    card = "[data-series=waits]"
    async with Cards("waits").shown(browser, "?last=all", KEEPS_PLOTS) as page:
        assert await texts(page, f"{card} dd") == ["–", "too few events"] * 2
        assert await text(page, f"{card} .note") == (
            "Too few events in the last 24 hours: each quantile may be anything from −30 to 240."
        )
        _, half, most = await page.evaluate(PLOT + "(card).data", card)
        for values, told in ((half, 4), (most, 60)):
            days = [UNTOLD_DAYS.count(tick // 24) == 1 for tick in range(len(values))]
            assert values == [None if untold else told for untold in days]
        assert (await readout(page, card, "End")).endswith("UTC: too few events")


async def test_a_quotient_has_two_ends_and_says_where_an_end_is_open(browser: Browser) -> None:
    cards = Cards("mean_delay")
    async with cards.shown(browser) as page:
        assert await text(page, f"{MEAN} {PRESSED}") == "24 hours"
        assert await text(page, f"{MEAN} .value") == "16.0"
        assert await text(page, f"{MEAN} .band") == "14.7 to 18.4 in the last 24 hours"
        assert "between these two ends with 95%" in await text(page, f"{MEAN} .note")
        assert (await readout(page, MEAN, "End")).endswith("UTC: 16.0 14.7 to 18.4")
        await window(page, "mean delay", "1 hour")
        assert "Line chart" in str(await page.get_attribute(f"{MEAN} .chart", "aria-label"))
        read = {await readout(page, MEAN, "End")}
        for _ in range(24):
            read.add(await readout(page, MEAN, "ArrowLeft"))
        assert sum(words.endswith("UTC: 310 at least 0.5") for words in read) == 5
        assert sum(words.endswith("UTC: – anything") for words in read) == 1
        assert len(read) == 25

        few = {"value": 310.0, "low": 0.5, "high": None}
        cards.engine.publish("mean_delay", {"windows": {"tick": few, "24h": few}})
        await has_received(page, MEAN, 101)
        assert await text(page, f"{MEAN} .value.noise") == "310"
        assert await text(page, f"{MEAN} .band") == "at least 0.5 in the last hour"
        note = await text(page, f"{MEAN} .note")
        assert note.endswith("with 95% confidence the exact figure is at least 0.5.")
        cards.engine.publish("mean_delay", {"windows": {"tick": NOTHING, "24h": NOTHING}})
        await has_received(page, MEAN, 102)
        assert await text(page, f"{MEAN} .value") == "–"
        assert "Too few events were counted to say anything" in await text(page, f"{MEAN} .note")


async def test_quotients_by_key_put_what_is_known_first(browser: Browser) -> None:
    card = "[data-series=mean_by_door]"
    async with Cards("mean_by_door").shown(browser) as page:
        assert await texts(page, f"{card} .key") == ["idle", "in", "out"]
        assert await texts(page, f"{card} .amount") == ["24.25", "31", "–"]
        assert "2 of 3 keys have too few events for both ends" in await text(page, f"{card} .note")
        await page.click(f"{card} summary")
        await page.wait_for_selector(f"{card} tbody tr")
        assert await texts(page, f"{card} tbody tr") == [
            "idle\t24.25\t24.00 to 24.50",
            "in\t31\tat least 2 · too few events",
            "out\t–\tanything · too few events",
        ]


@pytest.mark.parametrize("name", ["mean_by_door", "rates", "gauge"])
async def test_values_in_arrays_are_shown_by_key(
    browser: Browser, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """In the order of the series' domain, as the API tells it."""
    described, release = card_worlds.gallery()[name]
    parts = release(0).get("windows", {"": release(0)})
    domain = list(next(iter(parts.values()))["values"])

    def in_order(tick: int) -> dict[str, Any]:
        def listed(part: dict[str, Any]) -> dict[str, Any]:
            return {**part, "values": [part["values"][key] for key in domain]}

        told = release(tick)
        if "windows" not in told:
            return listed(told)
        return {"windows": {name: listed(part) for name, part in told["windows"].items()}}

    async def shown() -> list[list[str]]:
        async with Cards(name).shown(browser) as page:
            return [await texts(page, f"[data-series={name}] {of}") for of in (".key", ".amount")]

    plain = await shown()
    card_worlds._past.cache_clear()
    monkeypatch.setattr(
        card_worlds, "gallery", lambda: {name: ({**described, "domain": domain}, in_order)}
    )
    assert await shown() == plain
    assert plain[0]
    card_worlds._past.cache_clear()


async def test_a_top_list_says_which_names_are_not_told_apart(browser: Browser) -> None:
    async with Cards("leaders").shown(browser) as page:
        assert await text(page, f"{TOP} caption") == "Top 2 in the last hour"  # it says something
        assert await page.locator(f"{TOP} tbody tr").count() == 2
        await window(page, "leaders", "24 hours")
        assert await text(page, f"{TOP} caption") == "Top 5 in the last 24 hours"
        groups = [
            [(await row.inner_text()).split() for row in await group.locator("tr").all()]
            for group in await page.locator(f"{TOP} tbody").all()
        ]
        assert groups == [
            [["1", "ORD", "870"]],
            [["2–3", "ATL", "640"], ["2–3", "LAX", "610"]],
            [["4–6", "BOS", "301"], ["4–8", "MCO", "290"]],
        ]
        assert await text(page, f"{TOP} .note") == (
            "Each value ± 75, all at once, with 95% confidence. Names with a range of ranks cannot be ordered, "
            "because of the noise. Perhaps as high: SFO and 2 more."
        )


async def test_bars_of_values_below_zero_go_to_the_left(browser: Browser) -> None:
    async with Cards("gauge").shown(browser) as page:
        boxes = [await bar.bounding_box() for bar in await page.locator(f"{GAUGE} .bar").all()]
        come, idle, gone = [box for box in boxes if box is not None]
        assert come["x"] == pytest.approx(gone["x"] + gone["width"], abs=1.5)
        assert come["x"] == pytest.approx(idle["x"], abs=1.5)
        assert gone["width"] == pytest.approx(come["width"] * 80 / 120, abs=1.5)


async def test_bands_of_counts_end_at_zero_and_those_of_signed_figures_do_not(
    browser: Browser,
) -> None:
    async with Cards("departures", "inside").shown(browser, "?last=all", KEEPS_PLOTS) as page:
        cards = ("[data-series=departures]", INSIDE)
        lows = [min(await page.evaluate(PLOT + "(card).data[1]", card)) for card in cards]
        assert lows == [0, -228]


async def test_where_users_are_capped_a_band_is_about_what_counts(browser: Browser) -> None:
    cards = Cards("mean_delay", "mean_by_door", "departures")
    cards.public["users"] = {
        "name": "(user, day)",
        "field": "customer",
        "max_events": 3,
        "per": "1d",
    }
    capped = "exact figure of the events that count"
    async with cards.shown(browser) as page:
        assert f"The {capped} lies between these" in await text(page, f"{MEAN} .note")
        assert f"Each {capped} in the last" in await text(page, "[data-series=mean_by_door] .note")
        assert f"The {capped} lies between" in await text(page, "[data-series=departures] .note")


async def test_what_has_no_picture_says_so_and_disturbs_nobody(browser: Browser) -> None:
    later_version = """
        const parse = Response.prototype.json;
        const glow = { later: { glow: [1, 2] }, rate: { windows: { tick: { glow: 3 } } } };
        const later = ({ value, band, windows, ...head }) => ({ ...head, ...glow[head.series] });
        Response.prototype.json = async function () {
            const said = await parse.call(this);
            for (const each of said.releases ? [] : said.series ?? []) {
                if (each.name in glow && each.shape) each.shape = "hologram of";
                if (each.name in glow && each.latest) each.latest = later(each.latest);
            }
            return said;
        };
    """
    async with Cards("rate", "turnover", "later").shown(browser, script=later_version) as page:
        for card in ("[data-series=later]", RATE):
            await page.locator(
                f"{card} .note", has_text="There is no chart for this kind of series yet"
            ).wait_for()
        assert await text(page, "[data-series=turnover] .value") == "321.75"
        assert await text(page, "[data-series=turnover] .band") == "± 310.5"


# --- windows ------------------------------------------------------------------------------------


async def test_single_ticks_are_bars_and_a_window_is_chosen_by_keyboard(browser: Browser) -> None:
    cards = Cards("rate")
    last = cards.released("rate")["windows"]
    async with cards.shown(browser) as page:
        choice = page.get_by_role("group", name="Window of rate", exact=True)
        words = ["1 hour", "6 hours", "24 hours", "ever"]
        assert await choice.get_by_role("button").all_inner_texts() == words
        assert await page.evaluate(CODES_SHOWN) == []
        assert await text(page, f"{RATE} {PRESSED}") == "24 hours"  # useful by the file's guesses
        await window(page, "rate", "1 hour")
        assert await text(page, f"{RATE} .value") == f"{last['tick']['value']:,}"
        assert await text(page, f"{RATE} .band") == "± 15 in the last hour"
        assert "Bar chart" in str(await page.get_attribute(f"{RATE} .chart", "aria-label"))
        bars, whiskers, line = await pixels(page, RATE, BAR, WHISKER, LINE)
        assert bars > 1500
        assert whiskers > 300
        assert line == 0

        await choice.get_by_role("button", name="the last 6 hours").focus()
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        assert await text(page, f"{RATE} {PRESSED}") == "24 hours"
        assert await page.evaluate("document.activeElement.value") == "24h"
        assert await text(page, f"{RATE} .value") == f"{last['24h']['value']:,}"
        assert await text(page, f"{RATE} .band") == "± 75 in the last 24 hours"
        assert "expected error ± 75" in str(await page.text_content(f"{RATE} .card-foot"))
        edges, line = await pixels(page, RATE, BAR, FAINT)  # days differ by less than the band
        assert edges < bars / 20
        assert line > 200

        await choice.get_by_role("button", name="ever").click()
        assert await text(page, f"{RATE} .band") == "± 160 so far"
        assert f"{last['ever']['value']:,} ± 160" in await readout(page, RATE, "End")
        parts = {name: {"value": 7, "band": band} for name, band in BANDS.items()}
        cards.engine.publish("rate", {"windows": parts})
        await has_received(page, RATE, 101)
        assert await text(page, f"{RATE} .value") == "7"
        assert await text(page, f"{RATE} {PRESSED}") == "ever"


async def test_a_count_opens_with_the_shortest_window_that_says_something(browser: Browser) -> None:
    cards = Cards("rare")
    async with cards.shown(browser) as page:
        assert await text(page, f"{RARE} {PRESSED}") == "24 hours"
        assert await text(page, f"{RARE} .value") == f"{rare(99)['windows']['24h']['value']}"
        await window(page, "rare", "1 hour")
        step(cards.engine, "rare")
        await has_received(page, RARE, 101)
        assert await text(page, f"{RARE} {PRESSED}") == "1 hour"


async def test_a_line_inside_its_band_is_faint_and_never_fills_the_picture(
    browser: Browser,
) -> None:
    async with Cards("departures", "level").shown(browser, script=KEEPS_PLOTS) as page:
        for name, faint in (("level", True), ("departures", False)):
            card = f"[data-series={name}]"
            (firm,) = await pixels(page, card, LINE)
            assert (firm == 0) == faint
            said = await page.inner_text(f"{card} .still")
            assert said.startswith("changes within the band" if faint else "faint where changes")
            title = str(await page.locator(f"{card} .still").get_attribute("title"))
            assert said in title
            assert "the band says how much" in title
        low, high = [
            await page.evaluate(PLOT + f"(card).scales.y.{end}", "[data-series=level]")
            for end in ("min", "max")
        ]
        assert high - low >= 3 * 80


async def test_a_card_says_what_its_window_is_worth(browser: Browser) -> None:
    async with Cards("departures", "rate", "most").shown(browser) as page:
        verdict = page.locator("[data-series=departures] .verdict")
        assert await verdict.inner_text() == "useful"
        assert "about 2,510, and the band (± 45) is at most a fifth" in str(
            await verdict.get_attribute("title")
        )
        assert await page.locator(f"{MOST} .verdict").is_hidden()
        for which, worth in (("1 hour", "rough"), ("24 hours", "useful"), ("ever", "noise")):
            await window(page, "rate", which)
            assert await text(page, f"{RATE} .verdict") == worth
        await window(page, "rate", "6 hours")
        assert await page.locator(f"{RATE} .verdict").is_hidden()


async def test_a_windowed_histogram_shows_the_keys_of_the_window(browser: Browser) -> None:
    async with Cards("rates").shown(browser) as page:
        assert await text(page, f"{RATES} {PRESSED}") == "24 hours"  # of a tick most keys are noise
        await window(page, "rates", "1 hour")
        assert await texts(page, f"{RATES} .key") == ["DL", "AA", "UA"]
        assert "Each value in the last hour ± 15" in await text(page, f"{RATES} .note")
        await page.click(f"{RATES} summary")
        first = page.locator(f"{RATES} tbody td").first
        assert await first.inner_text() == "41"
        await window(page, "rates", "24 hours")
        assert await texts(page, f"{RATES} .key") == ["AA", "UA", "DL"]
        assert await texts(page, f"{RATES} .amount") == ["610", "340", "12"]
        note = await text(page, f"{RATES} .note")
        assert "Each value in the last 24 hours ± 75" in note
        assert "1 of 3 keys" in note
        assert await first.inner_text() == "610"


async def test_a_filter_is_offered_where_there_is_more_than_is_shown(browser: Browser) -> None:
    async with Cards("few", "many").shown(browser) as page:
        for name, words, filtered in (("few", "All 15", False), ("many", "All 16", True)):
            unfolded = f"[data-series={name}] .all"
            assert await text(page, f"{unfolded} summary") == f"{words} keys with their bands"
            await page.click(f"{unfolded} summary")
            assert await page.locator(f"{unfolded} input").is_visible() is filtered


# --- open ends ----------------------------------------------------------------------------------

HEIGHTS = PLOT + "(card).scales.y"
COLUMNS = "(card) => document.querySelector(card + ' .chart').plot.data.slice(1).flat()"
CHOSEN = "?" + "".join(f"keys.means={key}&" for key in DOORS) + "last=all"


@pytest.mark.parametrize("scale", ["zero", "log"])
async def test_open_ends_leave_the_picture_and_nothing_infinite_is_drawn(
    browser: Browser, scale: str
) -> None:
    async with Cards("mean", "means", ticks=40).shown(browser, CHOSEN, KEEPS_PLOTS) as page:
        await page.select_option(".tools select", scale)
        for card in ("[data-series=mean]", "[data-series=means]"):
            scaled = "distr === 3" if scale == "log" else "min <= 0"
            await page.wait_for_function(f"card => ({HEIGHTS})(card).{scaled}", arg=card)
            values = [value for value in await page.evaluate(COLUMNS, card) if value is not None]
            assert all(isinstance(value, int | float) and abs(value) < 1000 for value in values)
            heights = await page.evaluate(HEIGHTS, card)
            assert max(values) > heights["max"] > 32.75
            assert heights["min"] < 30.5
            if scale == "zero":
                assert min(values) < heights["min"]


async def test_open_ends_are_said_in_words(browser: Browser) -> None:
    card = "[data-series=means]"
    async with Cards("mean", "means", ticks=40).shown(browser, CHOSEN) as page:
        values, others = (
            ("31.5", "31.5", "–", "31.5", "31.5"),
            "out – (anything) · idle 24.25 (24.00 to 24.50)",
        )
        for at, (value, (*_, words)) in enumerate(zip(values, OPEN, strict=True)):
            read = (await readout(page, card, "ArrowRight" if at else "Home")).partition("UTC: ")[2]
            assert read == f"in {value} ({words}) · {others}"
        for name in ("mean", "means"):
            rows = [row for row in await saved_rows(page, name) if row.get("key", "in") == "in"]
            assert len(rows) == 40
            for row, (number, low, high, words) in zip(rows, OPEN * 8, strict=True):
                ends = ["" if end is None else f"{end:g}" for end in (number, low, high)]
                assert [row[key] for key in ("value", "low", "high", "interval")] == [*ends, words]
            table = f"[data-series={name}] .as-table"
            await page.click(f"{table} summary")
            assert "interval" in await text(page, f"{table} thead")
            cells = await text(page, f"{table} tbody")
            assert "at least 2" in cells
            assert "Infinity" not in cells
        assert await page.locator(f"{card} .bars .noise .key{PRESSED}").count() == 1
        assert await findings(page) == []  # a key of which nothing is known can be read


async def test_what_stands_alone_is_drawn_as_a_dot(browser: Browser) -> None:
    dots = """card => {
        const canvas = document.querySelector(card + " canvas");
        const {data, width} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        const columns = new Set();
        for (let at = 0; at < data.length; at += 4) {
            const blue = Math.abs(data[at] - 59) < 4 && Math.abs(data[at + 2] - 219) < 4;
            if (blue && data[at + 3] > 250) columns.add((at / 4) % width);
        }
        return [...columns].filter((column) => !columns.has(column - 1)).length;
    }"""
    cards = Cards("departures", "mean", ticks=0)
    cards.engine.publish("departures", {"value": 7, "band": 3})
    known: dict[str, Any] = {"value": 31.5, "low": 30.5, "high": 32.5}
    for told in (known, NOTHING, known, NOTHING):
        cards.engine.publish("mean", told)
        cards.engine.tick += 1
    async with cards.shown(browser, "?last=all") as page:
        for name, many in (("departures", 1), ("mean", 2)):
            card = f"[data-series={name}]"
            await page.wait_for_function(
                f"([card, many]) => ({dots})(card) === many", arg=[card, many]
            )


# --- functions of the page ----------------------------------------------------------------------


Script = Callable[..., Awaitable[Any]]


@pytest_asyncio.fixture(loop_scope="session")
async def script(browser: Browser) -> AsyncIterator[Script]:
    """A function of a module of the page, applied to an argument."""
    async with Cards("departures", ticks=1).shown(browser) as page:

        async def applied(module: str, expression: str, argument: Any = None) -> Any:
            ask = f"async argument => {{ const page = await import('/{module}.js'); return {expression}; }}"
            return await page.evaluate(ask, argument)

        yield applied


async def test_a_line_moves_where_two_bands_nearby_lie_apart(script: Script) -> None:
    """Bands of a step in the middle of eighteen points, and of one that is half as high."""
    for height, moves in ((21, [6, 7, 8, 9, 10, 11]), (20, [])):
        lows = [0] * 9 + [height] * 9
        found = await script(
            "cards/charts", "page.moving(...argument)", [lows, [low + 20 for low in lows]]
        )
        assert [place for place, firm in enumerate(found) if firm] == moves


async def test_a_logarithm_of_nothing_is_not_drawn(script: Script) -> None:
    columns = [[1, 2], [-3, 0], [None, 0]]
    assert await script("cards/charts", "page.aboveZero(argument)", columns) == [
        [1, 2], [None, None], [None, None],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("low", "high", "lines", "named"),
    [
        (12.5, 1030, 18, ["20", "50", "100", "200", "500", "1000"]),
        (1.2, 9000, 35, ["10", "100", "1000"]),
        (13900, 15100, 3, ["14000", "14500", "15000"]),
    ],
)
async def test_a_logarithmic_scale_names_round_numbers(
    script: Script, low: float, high: float, lines: int, named: list[str]
) -> None:
    splits = await script("cards/charts", "page.logSplits(...argument)", [low, high])
    names = "page.logNamed(argument).filter((name) => name !== null).map(String)"
    assert (len(splits), await script("cards/charts", names, splits)) == (lines, named)


async def test_few_open_ends_do_not_flatten_the_rest_of_the_line(script: Script) -> None:
    framed = """(() => {
        const many = [...Array(200).keys()];
        const open = (at) => at % 20 === 0;
        const columns = [many, many.map((at) => (open(at) ? 0 : 10)), many.map((at) => (open(at) ? Infinity : 20)),
            many.map((at) => (open(at) ? 5000 : 15))];
        const cut = page.framed(columns);
        return [cut.range, Math.max(...cut.columns[2]), page.framed(columns.map((each) => each.map(() => 3))).range];
    })()"""
    (bottom, top), highest, whole = await script("cards/charts", framed)
    assert 0 < bottom < 10
    assert 20 < top < 30
    assert top < highest < 100
    assert whole is None


async def test_sums_are_shown_with_the_decimals_of_their_grid(script: Script) -> None:
    values = [1203.5, 1234567.89, 0.1 + 0.2, -0.000001, 7]
    told = await script(
        "format", "argument.map((value) => [page.count(value), page.band(value)])", values
    )
    counts = ["1,203.5", "1,234,567.89", "0.3", "−0.000001", "7"]
    assert told == [[count, f"± {count.replace('−', '-')}"] for count in counts]


@pytest.mark.parametrize(
    ("windows", "last"),
    [
        ([["tick", "24h", "7d"], None], "2d"),
        ([["tick", "24h"], ["1d"]], "7d"),
        ([["1d"], ["7d"]], "all"),
        ([["1d", "ever"]], "7d"),
    ],
)
async def test_the_first_range_shows_some_windows_that_end(
    script: Script, windows: list[list[str] | None], last: str
) -> None:
    series = [{} if each is None else {"windows": each} for each in windows]
    shown = "page.chosenRange({ step: 3600, slowest: page.slowestOf(argument) }).last"
    assert await script("view", shown, series) == last


@pytest.mark.parametrize(
    ("days", "times", "names"),
    [
        (1826, ["1995-01-01", "2000-01-01"], ["1995", "2000"]),
        (91, ["2001-10-01", "2002-01-01", "2002-04-01"], ["Oct", "Jan 2002", "Apr"]),
        (7, ["2002-01-01", "2002-01-08"], ["1 Jan", "8 Jan"]),
    ],
)
async def test_years_stand_below_a_long_line(
    script: Script, days: int, times: list[str], names: list[str]
) -> None:
    named = "page.axisTimes(argument[1].map((day) => Date.parse(day) / 1000), argument[0] * 86400)"
    assert await script("format", named, [days, times]) == names


@pytest.mark.parametrize("many", [0, 1, 24, 25, 47, 100, 4592])
async def test_every_point_is_drawn_once_and_the_newest_alone(script: Script, many: int) -> None:
    strides = await script("cards/charts", "[...page.strides(argument + 3, 3, 24)]", many)
    drawn = [place for first, last in strides for place in range(first, last + 1)]
    assert drawn == list(range(3, many + 3))
    assert len(strides) == many if many <= 24 else len(strides) <= 24
    assert strides[-1:] == ([[many + 2, many + 2]] if many else [])
