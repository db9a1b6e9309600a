"""The real demo and its page in a real Chromium: values move, and go on after the engine was killed.

Nothing here is synthetic: a `stream-dp demo --embedded` process on its own port and state folder. Waits are
for conditions in the page, never for a time. `STREAM_DP_SCREENSHOT=page.png` makes README's picture.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from browser.page_worlds import CODES_SHOWN, blank
from free_ports import free_port
from playwright.async_api import Browser, ConsoleMessage, FloatRect, Page

pytestmark = pytest.mark.browser

SCREENSHOT = os.environ.get("STREAM_DP_SCREENSHOT")
SECONDS_FOR_A_YEAR = 120 if SCREENSHOT else 3600
"""So long that the year is not over before the engine is killed, however slow the browser is."""
SCRIPT = f"""
from stream_dp.operate import demo
from stream_dp.__main__ import start
demo.SECONDS_FOR_A_YEAR = {SECONDS_FOR_A_YEAR}
start()
"""
SEQUENCE = "() => Number(document.documentElement.dataset.sequence)"
BEYOND = "(least) => Number(document.documentElement.dataset.sequence) > least"


@contextmanager
def demo(home: Path, port: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-c", SCRIPT]
    command += ["demo", "--embedded", "--port", str(port)]
    environment = {**os.environ, "STREAM_DP_HOME": str(home)}
    process = subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        told = (re.search(r"http://\S+", line) for line in process.stderr)
        found = next(filter(None, told), None)
        assert found, "the demo printed no address"
        yield process, found[0]
    finally:
        process.kill()
        process.communicate()


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser) -> tuple[Page, list[str]]:
    tab = await blank(browser)
    said: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            said.append(message.text)

    tab.on("console", note)
    return tab, said


async def moves_on(tab: Page, beyond: float) -> float:
    """Wait until the page shows a later release; return its sequence."""
    await tab.wait_for_function(BEYOND, arg=beyond + 8)
    return float(await tab.evaluate(SEQUENCE))


async def picture(tab: Page) -> None:
    """Where STREAM_DP_SCREENSHOT names a file, write the page after some months beside it, as ...-demo.png.

    It ends below the card of the destinations, for a picture in a page should not be longer.
    """
    if SCREENSHOT:
        await moves_on(tab, 20_000)
        await tab.set_viewport_size({"width": 1280, "height": 900})
        box = await tab.locator("[data-series=by_destination]").bounding_box()
        assert box is not None
        height = box["y"] + box["height"] + 24
        path = SCREENSHOT.removesuffix(".png") + "-demo.png"
        clip: FloatRect = {"x": 0, "y": 0, "width": 1280, "height": height}
        await tab.screenshot(path=path, full_page=True, clip=clip)


async def test_the_page_moves_survives_a_kill_and_ends_cleanly(
    tmp_path: Path, page: tuple[Page, list[str]]
) -> None:
    tab, said = page
    port = free_port()
    with demo(tmp_path, port) as (process, url):
        await tab.goto(url)
        first = await moves_on(tab, 0)
        seen = await moves_on(tab, first)
        assert "0.95" in await tab.content() or "95%" in await tab.content()
        assert said == []
        await tab.evaluate(
            "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
        )
        assert await tab.evaluate(CODES_SHOWN) == []
        await picture(tab)
        process.send_signal(signal.SIGKILL)
        process.wait()
    with demo(tmp_path, port) as (process, _):
        await moves_on(tab, seen)
        unexpected = [
            text for text in said if "net::ERR" not in text and "Failed to load" not in text
        ]
        assert unexpected == []
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=200)
        assert process.returncode == 0
        assert "Private values" in out
