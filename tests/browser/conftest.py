"""One Chromium for the session, an engine with a history, a server of its log.

Rules: all tests of the folder share one event loop, for a browser cannot change its own; each gets pages of its
own, which are closed after it.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from browser.ask_worlds import MANY, Shop
from browser.page_worlds import FLAGS, PATIENCE_MS, Engine, chromium, past
from playwright.async_api import Browser, async_playwright

from stream_dp.engine.proposals import OnThread
from stream_dp.operate.run import running

_HERE = Path(__file__).parent
_LOOP: Final = "session"


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.asyncio(loop_scope=_LOOP), append=False)


@pytest_asyncio.fixture(loop_scope=_LOOP, scope="session")
async def chromium_of_session() -> AsyncIterator[Browser]:
    path = chromium()
    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch(
            executable_path=path, args=FLAGS, timeout=PATIENCE_MS
        )
        yield opened
        await opened.close()


@pytest_asyncio.fixture(loop_scope=_LOOP)
async def browser(chromium_of_session: Browser) -> AsyncIterator[Browser]:
    yield chromium_of_session
    for context in chromium_of_session.contexts:
        await context.close()


@pytest.fixture
def engine() -> Engine:
    return past().again()


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of tokens; definitions are derived on a thread, for a process for each engine costs two CPU seconds."""
    monkeypatch.setenv("STREAM_DP_TOKEN_LIST", str(tmp_path / "tokens"))
    monkeypatch.setattr(running, "DerivingProcess", OnThread)


@pytest_asyncio.fixture(loop_scope=_LOOP)
async def shop(prepared: None) -> AsyncIterator[Shop]:
    """An engine of which analysts ask, with its page and its list of tokens."""
    async with Shop() as made:
        yield made


@pytest_asyncio.fixture(loop_scope=_LOOP)
async def many(prepared: None) -> AsyncIterator[Shop]:
    async with Shop(MANY) as made:
        yield made
