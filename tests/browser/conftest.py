"""One Chromium, an engine with a history, a server of its log."""

from collections.abc import AsyncIterator

import pytest
from browser.page_worlds import FLAGS, HISTORY, PATIENCE_MS, Engine, chromium, serving
from playwright.async_api import Browser, async_playwright

from stream_dp.serve.server import PageServer


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """One headless Chromium."""
    path = chromium()
    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch(
            executable_path=path, args=FLAGS, timeout=PATIENCE_MS
        )
        yield opened
        await opened.close()


@pytest.fixture
def engine() -> Engine:
    """An engine with a history."""
    made = Engine()
    for _ in range(HISTORY):
        made.step()
    return made


@pytest.fixture
async def server(engine: Engine) -> AsyncIterator[PageServer]:
    """A server of that engine's log."""
    async with serving(engine.log) as made:
        yield made
