"""Blocking work off the event loop: one thread for one resource."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class OneThread:
    """Runs blocking calls one after another, on one thread of their own.

    A call whose caller was cancelled still ends before the next one begins.
    """

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        future = self._pool.submit(call, *args, **kwargs)
        return await asyncio.wrap_future(future)

    def stop(self) -> None:
        self._pool.shutdown(wait=False)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
