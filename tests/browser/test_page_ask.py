"""An analyst asks from the page, without a terminal: prices, a refusal and what fits, an end, nothing exact."""

import asyncio
import re

import pytest
from browser.ask_worlds import MANY, Shop, Tab, nothing_exact
from browser.page_worlds import blank
from playwright.async_api import Browser, Route

from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.statistics.parts.series_spec import LiveRoom

pytestmark = pytest.mark.browser


async def test_three_questions_without_a_terminal(browser: Browser, shop: Shop) -> None:
    tab = await Tab.opened(browser, shop, "ann")
    await tab.fills("count", {"windows": "3h"})
    await tab.by("error", "60")
    price = await tab.prices()
    assert "It costs ε" in price
    assert "Left after it" in price
    first = await tab.asks()
    assert first == "count"

    await tab.fills("histogram", {"by": "country"})
    await tab.by("epsilon", "0.2")
    assert "It costs ε 0.2" in await tab.prices()
    await tab.page.click(".ask-why summary")
    assert "[HSV]" in await tab.page.inner_text(".ask-why")
    second = await tab.asks()

    await tab.fills("sum", {"of": "amount", "clamp": "0", "clamp-2": "999999999"})
    await tab.only_gifts("false")
    await tab.by("epsilon", "0.1")
    await tab.prices()
    third = await tab.asks()
    assert shop.running == {first: "ann", second: "ann", third: "ann"}

    await shop.go(3)
    for name in (first, second, third):
        await tab.page.wait_for_selector(f".card[data-series='{name}'][data-tick='{shop.tick}']")
        await tab.page.wait_for_selector(f"[data-query='{name}']")
    rows = tab.page.locator("#queries tbody tr")
    askers = await rows.locator("td:first-of-type").all_inner_texts()
    assert askers == ["Pipeline file"] * 2 + ["ann"] * 3
    cells = await tab.page.locator(f"[data-query='{second}'] > *").all_inner_texts()
    assert cells[:4] == ["Histogram by country", "ann", "histogram", "0.2"]
    # its ticks are long: it began with the next one
    assert (cells[4].split()[0], cells[5]) == ("3", "runs")
    assert await nothing_exact(tab) == []
    assert tab.console.complaints == []


async def test_the_first_proposal_fits_and_is_judged(browser: Browser, prepared: None) -> None:
    guesses = {"expect": {"records": "3"}}
    async with Shop({**MANY, "privacy": {**MANY["privacy"], **guesses}}) as shop:
        tab = await Tab.opened(browser, shop, "ann")
        labels = await tab.page.locator(".ask-field > label").all_inner_texts()
        assert labels == [
            "Statistic",
            "Sliding windows",
            "Tumbling windows",
            "Running totals within a window",
            "Name",
        ]
        assert await tab.page.input_value(".ask-form [name=windows]") == "3 hours"
        price = await tab.prices()
        assert "It costs ε 0.1" in price
        assert "Verdict in 3 hours" in price
        assert "of about 9: mostly noise" in price
        await tab.page.click(".ask-answer button.primary")
        assert "mostly noise according to the guesses" in await tab.page.inner_text(".ask-noise")
        assert shop.running == {}
        await tab.page.click("text=Ask it all the same")
        await tab.page.wait_for_selector(".ask-done")
        assert shop.running == {"count": "ann"}


COMPARED: list[tuple[str, dict[str, str], str, str | None]] = [
    ("count", {"windows": "3h"}, "", "rate"),
    ("count", {"windows": "6h"}, "", None),
    ("count", {"windows": "3h"}, "true", None),
    ("count", {"windows": "3h"}, "false", "rate_no_gift"),
    ("count", {}, "false", "orders_no_gift"),
    ("sum", {"of": "amount", "clamp": "0", "clamp-2": "100"}, "", "amounts"),
    ("sum", {"of": "amount", "clamp": "0", "clamp-2": "90"}, "", None),
    ("sum", {"of": "items", "clamp": "0", "clamp-2": "100"}, "", None),
    ("histogram", {"by": "country"}, "", "by_country"),
]  # fmt: skip


async def test_a_price_is_compared_with_what_tells_the_same_or_with_nothing(
    browser: Browser, many: Shop
) -> None:
    """The same window, field and condition, in the window whose error is told; its number is that of its release."""
    tab = await Tab.opened(browser, many, "ann")
    for case in COMPARED:
        statistic, fields, gift, beside = case
        await tab.page.reload()
        await tab.page.wait_for_selector(".ask-form")
        await tab.fills(statistic, {"windows": "", **fields})
        if gift:
            await tab.only_gifts(gift)
        await tab.by("epsilon", "0.2")
        price = await tab.prices()
        if beside is None:
            assert "No series here releases such numbers yet" in price, case
            continue
        found = re.search(r"Beside ([^,]+)(?:, (\w+))?, which shows ([\d,]+) now", price)
        assert found is not None, case
        name, key, number = found.groups()
        assert name.replace(" ", "_") == beside, case
        released = many.latest(beside)
        part = released["windows"][fields["windows"]] if "windows" in released else released
        value = part["value"] if key is None else max(part["values"].values())
        assert number.replace(",", "") == str(value), case


async def test_what_is_mostly_noise_is_asked_by_a_second_button(
    browser: Browser, shop: Shop
) -> None:
    tab = await Tab.opened(browser, shop, "ann")
    await tab.fills("alerts", {"by": "country", "threshold": "500"})
    await tab.by("epsilon", "0.9")
    assert re.search(r"False alarm per key and day\s+below", await tab.prices())
    clear = await tab.asks()  # by one button
    await tab.fills("alerts", {"by": "country", "threshold": "50", "name": "noisy"})
    await tab.by("epsilon", "0.01")
    alarm = r"False alarm per key and day\s+at most \d+(\.\d+)?%, while the count stays at 25"
    assert re.search(alarm, await tab.prices())
    again = tab.page.get_by_role("button", name="Ask it all the same")
    assert not await again.is_visible()
    await tab.page.click(".ask-answer button.primary")
    await again.wait_for()
    why = r"This would be mostly noise: .* the band of ± \d+ is not less than the threshold"
    assert re.search(why, await tab.page.inner_text(".ask-noise"))
    assert shop.running == {clear: "ann"}
    await again.click()
    await tab.page.wait_for_selector(".ask-done")
    assert shop.running == {clear: "ann", "noisy": "ann"}
    assert tab.console.complaints == []


async def test_the_form_comes_with_the_names_that_are_taken(browser: Browser, shop: Shop) -> None:
    # before, it would propose a taken name, and compare a number with nothing
    page = await blank(browser)
    asked, held, given = list[Route](), asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        asked.append(route)
        if len(asked) == 2:  # the page's, and that of asking
            held.set()
        await given.wait()
        await route.continue_()

    await page.route("**/api/queries", hold)
    await page.goto(shop.url)
    await held.wait()
    assert await page.is_hidden("#ask")
    given.set()
    await page.wait_for_selector("#ask-token")


async def test_a_refusal_says_what_fits_and_a_button_takes_it(browser: Browser, shop: Shop) -> None:
    tab = await Tab.opened(browser, shop, "bob")
    await tab.fills("count", {})
    await tab.by("error", "2")
    refusal = await tab.prices()
    assert "It does not fit into the budget; nothing was spent" in refusal
    assert "You have spent ε 0 of your ε 0.5, and ε 0.5 is left" in refusal
    await tab.page.click("text=Take ε 0.5")
    await tab.page.wait_for_selector("text=It costs ε 0.5")
    assert await tab.page.input_value("[name=epsilon]") == "0.5"
    await tab.asks()
    await tab.left("0")
    assert shop.running == {"count": "bob"}
    await tab.by("epsilon", "0.1")
    assert "No question fits now. If you end one of your questions" in await tab.prices()
    assert shop.running == {"count": "bob"}
    assert await nothing_exact(tab) == []
    assert tab.console.complaints == []


async def test_a_price_is_gone_once_the_question_is_another_question(
    browser: Browser, shop: Shop
) -> None:
    tab = await Tab.opened(browser, shop, "ann")
    for change in (tab.fills("sum", {}), tab.by("epsilon", "0.3")):
        await tab.fills("count", {})
        await tab.by("epsilon", "0.2")
        assert "It costs ε 0.2" in await tab.prices()
        await change
        assert await tab.page.inner_text(".ask-result") == ""
    assert tab.console.complaints == []


async def test_what_is_ended_frees_its_price(browser: Browser, shop: Shop) -> None:
    tab = await Tab.opened(browser, shop, "ann")
    await tab.question("count", "short_lived", "0.75")
    await shop.go(2)
    await tab.left("0.25")
    card = tab.page.locator(".card[data-series=short_lived]")
    await card.get_by_role("button", name="End this question").click()
    when = f"from tick {shop.tick + 1} \\(.* UTC\\) on"
    would = re.compile(f"^If you end it, ε 0.75 of 1 becomes free for new questions, {when}.$")
    await card.get_by_role("status").filter(has_text=would).wait_for()
    await card.get_by_role("button", name="Keep it").click()
    assert await card.get_by_role("status").inner_text() == ""
    assert shop.running == {"short_lived": "ann"}
    await tab.ends("short_lived")
    assert shop.running == {}
    await tab.left("1")
    await tab.question("count", "next", "0.9")
    assert shop.running == {"next": "ann"}
    assert tab.console.complaints == []


async def test_what_has_no_room_says_what_to_end(
    browser: Browser, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PipelineSpec, "live_room", property(lambda _: LiveRoom(1, 99)))
    tab = await Tab.opened(browser, shop, "ann")
    await tab.question("count", "first", "0.1")
    await tab.fills("count", {"name": "second"})
    await tab.by("epsilon", "0.1")
    assert await tab.prices() == (
        "Live series: second is one series more, and analyst ann has 1 of the 1 that may run at once (queries.series), "
        "so none fits; halt first"
    )
    await shop.go()
    await tab.ends("first")
    assert "It costs ε 0.1" in await tab.prices()
    assert await tab.asks() == "second"
    assert shop.running == {"second": "ann"}


async def test_the_error_of_every_window_is_told_before_it_is_paid_for(
    browser: Browser, shop: Shop
) -> None:
    tab = await Tab.opened(browser, shop, "ann")
    await tab.fills("count", {"windows": "3 hours"})
    await tab.by("epsilon", "0.5")
    errors = r"± (\d+) events in a single tick, ± (\d+) events in 3 hours"
    found = re.search(errors, await tab.prices())
    assert found is not None
    single, three = map(int, found.groups())
    assert single < three
    name = await tab.asks()
    await shop.go(2)
    card = tab.page.locator(f".card[data-series={name}]")
    await card.get_by_role("button", name="3 hours").click()
    await card.locator(".card-foot", has_text=f"expected error ± {three} events").wait_for()

    await tab.fills("count", {"windows": "", "every": "3 hours"})
    ended = re.search(r"± (\d+) events in 3 hours", await tab.prices())
    assert ended is not None
    assert int(ended[1]) == single  # noise once, whatever the length
    card = tab.page.locator(f".card[data-series={await tab.asks()}]")
    await shop.go(2)
    await card.locator(".note", has_text="No window has ended yet").wait_for()
    await shop.go(2)
    await card.locator(".band", has_text="in the 3 hours that ended last").wait_for()
    assert tab.console.complaints == []


async def test_a_gauge_is_asked_by_the_values_that_come_and_go(
    browser: Browser, shop: Shop
) -> None:
    tab = await Tab.opened(browser, shop, "ann")
    asked = {"of": "gift", "plus": "true", "minus": "false", "every": "3 hours"}
    await tab.fills("gauge", asked)
    await tab.by("epsilon", "0.5")
    assert re.search(r"± \d+ events in 3 hours", await tab.prices()) is not None
    card = tab.page.locator(f".card[data-series={await tab.asks()}]")
    await shop.go(5)
    await card.locator(".band", has_text="in the 3 hours that ended last").wait_for()
    await tab.fills("gauge", {**asked, "plus": "perhaps"})
    assert (await tab.prices()).startswith("Counts up: ")


async def test_a_hop_is_asked_in_words(browser: Browser, shop: Shop) -> None:
    tab = await Tab.opened(browser, shop, "ann")
    asked = {"of": "amount", "clamp": "0", "clamp-2": "600", "windows": "4 hours", "hop": "2 hours"}
    await tab.fills("quantiles", asked)
    await tab.by("epsilon", "0.5")
    errors = []
    for hop in ("2 hours", "4 hours"):
        await tab.fills("quantiles", {**asked, "hop": hop})
        found = re.search(r"± (\d+) events in rank", await tab.prices())
        assert found is not None
        errors.append(int(found[1]))
    assert errors[0] > errors[1]


async def test_what_an_error_is_for_is_told_with_it(browser: Browser, shop: Shop) -> None:
    tab = await Tab.opened(browser, shop, "bob")
    await tab.fills("mean", {"of": "amount", "clamp": "0", "clamp-2": "600"})
    for epsilon, words in (("0.2", "95% of the time, at tick"), ("0.9", "95% of the time, for")):
        await tab.by("epsilon", epsilon)
        price = await tab.prices()
        assert words in price
        assert re.search(r"% of the time[^\n]*, for 1,000 records", price)


COMPLAINTS: list[tuple[str, dict[str, str], str, str]] = [
    ("count", {"windows": "soon"}, "Sliding windows: must be a duration", "windows"),
    ("quantiles", {"of": "amount"}, "Clamp: is missing", "clamp"),
    ("quantiles", {"of": "amount", "clamp": "0", "clamp-2": "9", "at": "most"}, "Quantiles: must be", "at"),
]  # fmt: skip


async def test_a_complaint_names_the_field_and_leads_to_it(browser: Browser, shop: Shop) -> None:
    tab = await Tab.opened(browser, shop, "ann")
    for statistic, fields, words, where in COMPLAINTS:
        await tab.fills(statistic, fields)
        complaint = await tab.prices()
        assert complaint.startswith(words)
        assert "column" not in complaint
        assert await tab.page.evaluate("document.activeElement.name") == where
        assert await tab.page.locator("[aria-invalid]").count() == 1
        assert "`" not in await tab.page.inner_text("#ask-about")


async def test_an_error_that_no_price_reaches_leads_to_prices(browser: Browser, shop: Shop) -> None:
    tab = await Tab.opened(browser, shop, "ann")
    await tab.fills("quantiles", {"of": "amount", "clamp": "0", "clamp-2": "1000", "at": "50%"})
    assert "events in rank" in await tab.prices()
    await tab.fills("sum", {"of": "amount", "clamp": "0", "clamp-2": "999999999"})
    await tab.by("error", "25")
    assert "no epsilon up to 100" in await tab.prices()
    await tab.page.click("text=See the error for ε 0.1")
    price = tab.page.locator(".ask-answer", has_text="It costs ε 0.1")
    await price.wait_for()
    assert "of amount" in await price.inner_text()
