"""Making very many objects that stay: without the collector of cycles.

It would look at all of them again each time that their number has grown by a quarter, and find nothing: that was most
of the time that a file of 100,000 watches took to be read.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Let the collector rest inside; one that rested before goes on resting."""
    wanted = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if wanted:
            gc.enable()
