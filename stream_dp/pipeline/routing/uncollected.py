"""Makes very many objects that stay, without the collector of cyclic garbage.

The collector would look at all objects again each time their number has grown by a quarter, and find nothing: that
was most of the time that it took to read a file of 100,000 watches.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable the collector inside; enable it afterwards only if it was enabled before."""
    wanted = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if wanted:
            gc.enable()
