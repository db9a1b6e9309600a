"""Waits for the page of an engine that is about to run, so that lines for two terminals can be pasted at once.

Rules: only a port without a listener is waited for; a server that answers reports its own errors.
"""

import time
from collections.abc import Callable

from stream_dp.client.live_series import nobody_listens

WAIT_S = 60.0
"""How long to wait for a listener."""
_AGAIN_S = 0.3


def page_there(url: str, tell: Callable[[str], None]) -> None:
    """Return when a server listens at the address, or after `WAIT_S` seconds; `tell` once that it waits.

    Raises:
        UsageError: the address is not the address of an engine.
    """
    deadline, told = time.monotonic() + WAIT_S, False
    while nobody_listens(url) and time.monotonic() < deadline:
        if not told:
            tell(f"Waiting for the page of an engine at {url}, for {WAIT_S:.0f} s at most")
            told = True
        time.sleep(_AGAIN_S)
