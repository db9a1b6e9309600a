"""Whether the page can be used by everybody: axe-core's rules, in light and dark, with everything unfolded, on a phone.

`axe.min.js` is axe-core 4.14.1 as it was published (`axe.LICENSE.txt`); the page never loads it, the test puts it in.
"""

from pathlib import Path
from typing import Any, Literal

import pytest
from browser.page_worlds import Engine, opened, serving
from playwright.async_api import Browser, Page

from stream_dp.server.server import PageServer

pytestmark = pytest.mark.browser

AXE = Path(__file__).with_name("axe.min.js")
FILLED = """() => [...document.querySelectorAll(".card details")].every((each) => each.querySelector("tbody tr"))"""
"""Whether all tables that are open have their rows: they are filled after they are open."""
GRAVE = ("serious", "critical")
Scheme = Literal["light", "dark"]


async def findings(page: Page) -> list[str]:
    """What axe-core finds grave, each with the first element it is found in."""
    await page.evaluate(AXE.read_text(encoding="utf-8") + "; 0")
    found: dict[str, Any] = await page.evaluate(
        "() => axe.run(document, { resultTypes: ['violations'] })"
    )
    return [
        f"{each['impact']}: {each['id']}: {each['nodes'][0]['html'][:160]}"
        for each in found["violations"]
        if each["impact"] in GRAVE
    ]


async def unfolded(page: Page) -> None:
    """Open all that can be opened, and choose a key."""
    await page.click("[data-series=by_destination] .bars .key >> nth=0")
    await page.wait_for_selector("[data-series=by_destination] .chart canvas")
    await page.evaluate(
        "() => document.querySelectorAll('details').forEach(each => { each.open = true; })"
    )
    await page.wait_for_function(FILLED)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_nothing_grave_is_found(browser: Browser, server: PageServer, scheme: Scheme) -> None:
    page = await opened(browser, server.url, color_scheme=scheme)
    assert await findings(page) == []
    await unfolded(page)
    assert await findings(page) == []


async def test_nothing_grave_is_found_on_a_phone(browser: Browser, server: PageServer) -> None:
    page = await opened(browser, server.url, 390, 844)
    assert await findings(page) == []


async def test_a_grave_fault_would_be_found(browser: Browser, server: PageServer) -> None:
    """The twin: a button without a name, and text that cannot be read."""
    page = await opened(browser, server.url)
    await page.evaluate("""() => {
        document.querySelector('.card-tools').append(document.createElement('button'));
        document.querySelector('h1').style.color = '#eeeeee';
    }""")
    found = await findings(page)
    assert [each.split(": ")[1] for each in found] == ["button-name", "color-contrast"]


async def test_everything_is_reached_by_keyboard(browser: Browser, engine: Engine) -> None:
    async with serving(engine.log) as server:
        page = await opened(browser, server.url)
        reached: set[str] = set()
        for _ in range(60):
            await page.keyboard.press("Tab")
            reached.add(
                await page.evaluate(
                    "() => { const at = document.activeElement; return at.className || at.tagName; }"
                )
            )
            if await page.evaluate("() => document.activeElement.closest('#proof') !== null"):
                break
    assert {"jump", "chart", "tool", "key", "SUMMARY", "SELECT"} <= reached
