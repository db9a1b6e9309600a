"""Blocking work off the event loop: one thread for one resource; files that are replaced as a whole."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

from stream_dp.errors import StreamDPError

_P = ParamSpec("_P")
_T = TypeVar("_T")


class OneThread:
    """Runs blocking calls one after another, on one thread of their own, from `start` to `stop`.

    A call whose caller was cancelled still ends before the next one begins. `closed` is raised by calls at other times.
    """

    def __init__(self, name: str, closed: StreamDPError) -> None:
        self._name, self._closed = name, closed
        self._pool: ThreadPoolExecutor | None = None

    def start(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=self._name)

    async def run(self, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        if self._pool is None:
            raise type(self._closed)(str(self._closed))
        return await asyncio.wrap_future(self._pool.submit(call, *args, **kwargs))

    async def stop(self, last: Callable[[], None]) -> None:
        """Run the last call; do nothing unless started."""
        if self._pool is not None:
            await self.run(last)
            self._pool.shutdown(wait=False)
            self._pool = None


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file atomically; durable on return. While it is written, it has a name that readers ignore: what lies
    there is removed, so that neither its mode nor a link counts.
    """
    half = path.with_name(f".{path.name}.part")
    half.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(os.open(half, flags, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    half.replace(path)
    sync_folder(path.parent)
