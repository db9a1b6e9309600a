"""An analyst asks from the page, without a terminal: prices, a refusal and what fits, an end, nothing exact."""

import asyncio
import re

import pytest
from browser.ask_worlds import Shop, Tab, nothing_exact
from browser.page_worlds import blank, picture
from playwright.async_api import Browser, Route

from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.statistics.parts.series_spec import LiveRoom

pytestmark = pytest.mark.browser


async def test_three_questions_without_a_terminal(browser: Browser, shop: Shop) -> None:
    tab = await Tab.opened(browser, shop)
    await tab.enters(shop.token("ann"))
    await tab.fills("count", {"windows": "3h"})
    await tab.by("error", "60")
    told = await tab.prices()
    assert "It costs ε" in told
    assert "Left after it" in told
    await picture(tab.page, "ask-price")
    first = await tab.asks()
    assert first == "count"

    await tab.fills("histogram", {"by": "country"})
    await tab.by("epsilon", "0.2")
    assert "It costs ε 0.2" in await tab.prices()
    await tab.page.click(".ask-why summary")
    assert "[HSV]" in await tab.page.inner_text(".ask-why")
    second = await tab.asks()

    await tab.fills("sum", {"of": "amount", "clamp": "0", "clamp-2": "999999999"})
    await tab.page.click("text=Only some records")
    await tab.page.select_option("[name=where-field]", "gift")
    await tab.page.select_option("[name=where-value]", "false")
    await tab.by("epsilon", "0.1")
    await tab.prices()
    third = await tab.asks()
    assert shop.running == {first: "ann", second: "ann", third: "ann"}

    await shop.go(3)
    for name in (first, second, third):
        await tab.page.wait_for_selector(f".card[data-series='{name}'][data-tick='{shop.tick}']")
        await tab.page.wait_for_selector(f"[data-query='{name}']")
    rows = tab.page.locator("#queries tbody tr")
    assert await rows.locator("td:first-of-type").all_inner_texts() == [
        *("Pipeline file",) * 2,
        *("ann",) * 3,
    ]
    asked = await tab.page.locator(f"[data-query='{second}'] > *").all_inner_texts()
    assert asked[:4] == ["Histogram by country", "ann", "histogram", "0.2"]
    assert (asked[4].split()[0], asked[5]) == (
        "3",
        "runs",
    )  # a long tick: it began with the next one
    assert await nothing_exact(tab) == []
    assert tab.console.complaints == []


NOTHING_BESIDE = "No series here tells such numbers yet"


@pytest.mark.parametrize(
    ("statistic", "fields", "gift", "beside"),
    [
        ("count", {}, "false", "orders_no_gift"),
        ("count", {"windows": "3h"}, "", "rate"),
        ("count", {"windows": "6h"}, "", None),
        ("count", {"windows": "3h"}, "true", None),
        ("count", {"windows": "3h"}, "false", "rate_no_gift"),
        ("sum", {"of": "amount", "clamp": "0", "clamp-2": "100"}, "", "amounts"),
        ("sum", {"of": "amount", "clamp": "0", "clamp-2": "90"}, "", None),
        ("sum", {"of": "items", "clamp": "0", "clamp-2": "100"}, "", None),
        ("histogram", {"by": "country"}, "", "by_country"),
        ("histogram", {"by": "country"}, "true", None),
    ],
)  # fmt: skip
async def test_a_price_is_compared_with_what_tells_the_same_or_with_nothing(
    browser: Browser,
    many: Shop,
    statistic: str,
    fields: dict[str, str],
    gift: str,
    beside: str | None,
) -> None:
    """The same window, field and condition, in the window whose error is told; its number is that of its release."""
    tab = await Tab.opened(browser, many)
    await tab.enters(many.token("ann"))
    await tab.fills(statistic, fields)
    if gift:
        await tab.page.click("text=Only some records")
        await tab.page.select_option("[name=where-field]", "gift")
        await tab.page.select_option("[name=where-value]", gift)
    await tab.by("epsilon", "0.2")
    told = await tab.prices()
    if beside is None:
        assert NOTHING_BESIDE in told
        return
    found = re.search(r"Beside ([^,]+)(?:, (\w+))?, which shows ([\d,]+) now", told)
    assert found is not None, told
    name, key, number = found.groups()
    assert name.replace(" ", "_") == beside
    released = many.latest(beside)
    part = released["windows"][fields["windows"]] if "windows" in released else released
    value = part["value"] if key is None else max(part["values"].values())
    assert number.replace(",", "") == str(value)


async def test_what_is_mostly_noise_is_asked_by_a_second_button(
    browser: Browser, shop: Shop
) -> None:
    tab = await Tab.opened(browser, shop)
    await tab.enters(shop.token("ann"))
    await tab.fills("alerts", {"by": "country", "threshold": "50", "name": "noisy"})
    await tab.by("epsilon", "0.01")
    told = await tab.prices()
    assert re.search(
        r"False alarm per key and day\s+at most \d+(\.\d+)?%, while the count stays at 25", told
    )
    again = tab.page.get_by_role("button", name="Ask it all the same")
    assert not await again.is_visible()
    await tab.page.click(".ask-answer button.primary")
    await again.wait_for()
    warned = await tab.page.inner_text(".ask-noise")
    assert re.search(
        r"This would be mostly noise: .* the band of ± \d+ is not less than the threshold", warned
    )
    assert shop.running == {}
    await picture(tab.page, "ask-noise")
    await again.click()
    await tab.page.wait_for_selector(".ask-done")
    assert shop.running == {"noisy": "ann"}
    assert tab.console.complaints == []


async def test_what_is_no_noise_is_asked_by_one_button(browser: Browser, shop: Shop) -> None:
    tab = await Tab.opened(browser, shop)
    await tab.enters(shop.token("ann"))
    await tab.fills("alerts", {"by": "country", "threshold": "500"})
    await tab.by("epsilon", "0.9")
    assert re.search(r"False alarm per key and day\s+below", await tab.prices())
    name = await tab.asks()
    assert shop.running == {name: "ann"}


async def test_the_form_comes_with_the_names_that_are_taken(browser: Browser, shop: Shop) -> None:
    """Before, it would propose one of them, and compare a number with none."""
    page = await blank(browser)
    asked, held, given = list[Route](), asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        asked.append(route)
        if len(asked) == 2:  # the page's, and that of asking
            held.set()
        await given.wait()
        await route.continue_()

    await page.route("**/api/queries", hold)
    await page.goto(f"http://127.0.0.1:{shop.port}/")
    await held.wait()
    assert await page.is_hidden("#ask")
    given.set()
    await page.wait_for_selector("#ask-token")


async def test_a_refusal_says_what_fits_and_a_button_takes_it(browser: Browser, shop: Shop) -> None:
    tab = await Tab.opened(browser, shop)
    await tab.enters(shop.token("bob"))
    await tab.fills("count", {})
    await tab.by("error", "2")
    told = await tab.prices()
    assert "It does not fit; nothing was spent" in told
    assert "Of your ε 0.5 you have spent ε 0, and ε 0.5 is left" in told
    await picture(tab.page, "ask-refusal")
    await tab.page.click("text=Take ε 0.5")
    await tab.page.wait_for_selector("text=It costs ε 0.5")
    assert await tab.page.input_value("[name=epsilon]") == "0.5"
    await tab.asks()
    await tab.left("0")
    assert shop.running == {"count": "bob"}
    await tab.by("epsilon", "0.1")
    assert "Nothing fits now: end a question of yours" in await tab.prices()
    assert shop.running == {"count": "bob"}
    assert await nothing_exact(tab) == []
    assert tab.console.complaints == []


async def test_a_price_is_gone_once_the_question_is_another_one(
    browser: Browser, shop: Shop
) -> None:
    """Else its button would ask what the form does not show any more."""
    tab = await Tab.opened(browser, shop)
    await tab.enters(shop.token("ann"))
    for change in (tab.fills("sum", {}), tab.by("epsilon", "0.3")):
        await tab.fills("count", {})
        await tab.by("epsilon", "0.2")
        assert "It costs ε 0.2" in await tab.prices()
        await change
        assert await tab.page.inner_text(".ask-result") == ""
    assert tab.console.complaints == []


async def test_what_is_ended_frees_its_price(browser: Browser, shop: Shop) -> None:
    tab = await Tab.opened(browser, shop)
    await tab.enters(shop.token("ann"))
    await tab.question("count", "short_lived", "0.75")
    await shop.go(2)
    await tab.left("0.25")
    card = tab.page.locator(".card[data-series=short_lived]")
    await card.get_by_role("button", name="End this question").click()
    await card.get_by_role("button", name="Keep it").click()
    assert shop.running == {"short_lived": "ann"}
    await card.get_by_role("button", name="End this question").click()
    await card.get_by_role("button", name="End it for good").click()
    await tab.page.wait_for_selector("[data-query=short_lived].halted", state="attached")
    assert shop.running == {}
    await tab.left("1")
    await tab.question("count", "next", "0.9")
    assert shop.running == {"next": "ann"}
    assert tab.console.complaints == []


async def test_what_has_no_room_says_what_to_end(
    browser: Browser, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PipelineSpec, "live_room", property(lambda _: LiveRoom(1, 99)))
    tab = await Tab.opened(browser, shop)
    await tab.enters(shop.token("ann"))
    await tab.question("count", "first", "0.1")
    await tab.fills("count", {"name": "second"})
    await tab.by("epsilon", "0.1")
    assert await tab.prices() == (
        "Live series: second is one series more, and analyst ann has 1 of the 1 that may run at once (queries.series), "
        "so none fits; halt first"
    )
    await picture(tab.page, "ask-no-room")
    await shop.go()
    card = tab.page.locator(".card[data-series=first]")
    await card.get_by_role("button", name="End this question").click()
    await card.get_by_role("button", name="End it for good").click()
    await tab.page.wait_for_selector("[data-query=first].halted", state="attached")
    assert "It costs ε 0.1" in await tab.prices()
    assert await tab.asks() == "second"
    assert shop.running == {"second": "ann"}


async def test_the_error_of_every_window_is_told_before_it_is_paid_for(
    browser: Browser, shop: Shop
) -> None:
    """That of the window that is asked for is on the card what it was in the preview."""
    tab = await Tab.opened(browser, shop)
    await tab.enters(shop.token("ann"))
    await tab.fills("count", {"windows": "3 hours"})
    await tab.by("epsilon", "0.5")
    found = re.search(
        r"± (\d+) events in a single tick, ± (\d+) events in 3 hours", await tab.prices()
    )
    assert found is not None
    single, three = map(int, found.groups())
    assert single < three
    name = await tab.asks()
    await shop.go(2)
    card = tab.page.locator(f".card[data-series={name}]")
    await card.get_by_role("button", name="3 hours").click()
    await card.locator(".card-foot", has_text=f"expected error ± {three} events").wait_for()
    assert tab.console.complaints == []


async def test_what_an_error_is_for_is_told_with_it(browser: Browser, shop: Shop) -> None:
    tab = await Tab.opened(browser, shop)
    await tab.enters(shop.token("bob"))
    await tab.fills("mean", {"of": "amount", "clamp": "0", "clamp-2": "600"})
    for epsilon, said in (("0.2", "95% of the time, at tick"), ("0.9", "95% of the time, for")):
        await tab.by("epsilon", epsilon)
        told = await tab.prices()
        assert said in told
        assert re.search(r"% of the time[^\n]*, for 1,000 records", told)
    assert tab.console.complaints == []


@pytest.mark.parametrize(
    ("statistic", "fields", "said", "where"),
    [
        ("count", {"windows": "soon"}, "Over the last: must be a duration", "windows"),
        ("quantiles", {"of": "amount"}, "Numbers count from … to …: is missing", "clamp"),
        ("quantiles", {"of": "amount", "clamp": "0", "clamp-2": "9", "at": "most"}, "Which shares: must be", "at"),
    ],
)  # fmt: skip
async def test_a_complaint_names_the_field_and_leads_to_it(
    browser: Browser, shop: Shop, statistic: str, fields: dict[str, str], said: str, where: str
) -> None:
    tab = await Tab.opened(browser, shop)
    await tab.enters(shop.token("ann"))
    await tab.fills(statistic, fields)
    told = await tab.prices()
    assert told.startswith(said)
    assert "column" not in told
    assert await tab.page.evaluate("document.activeElement.name") == where
    assert await tab.page.locator("[aria-invalid]").count() == 1
    assert "`" not in await tab.page.inner_text("#ask-about")


async def test_an_error_that_no_price_reaches_leads_to_prices(browser: Browser, shop: Shop) -> None:
    tab = await Tab.opened(browser, shop)
    await tab.enters(shop.token("ann"))
    await tab.fills("quantiles", {"of": "amount", "clamp": "0", "clamp-2": "1000", "at": "50%"})
    assert "events in rank" in await tab.prices()
    await tab.fills("sum", {"of": "amount", "clamp": "0", "clamp-2": "999999999"})
    assert "no epsilon up to 100" in await tab.prices()
    await tab.page.click("text=See how far off ε 0.1 is")
    told = tab.page.locator(".ask-answer", has_text="It costs ε 0.1")
    await told.wait_for()
    assert "of amount" in await told.inner_text()
