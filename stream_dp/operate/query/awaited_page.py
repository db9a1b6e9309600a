"""Waiting for the page of an engine that is about to run, so that lines for a second terminal can be pasted at once.

Rules: only a port that nobody listens at yet is waited for; what answers is asked, and says itself what is wrong.
"""

import time
from collections.abc import Callable

from stream_dp.client.live_series import nobody_listens

WAIT_S = 60.0
"""For how long somebody who listens is waited for."""
_AGAIN_S = 0.3


def page_there(url: str, tell: Callable[[str], None]) -> None:
    """Return when somebody listens at the address, or after `WAIT_S` seconds; `tell` that it waits, once.

    Raises:
        UsageError: it is no address of an engine.
    """
    deadline, told = time.monotonic() + WAIT_S, False
    while nobody_listens(url) and time.monotonic() < deadline:
        if not told:
            tell(f"Waiting for the page of an engine at {url}, for {WAIT_S:.0f} s at most")
            told = True
        time.sleep(_AGAIN_S)
