"""Noise that is the same in every run: what `fresh_seed` gives a test depends on its name and how often it asked.

Seeds, keys, the nonces of sealed commits, ids of messages and names of leases all come from there. A process that a
test starts has noise of its own, fresh from the operating system.

Rules: bytes are SHAKE-256 of a name and a number that counts the draws under this name, so no two draws of a run are
alike. The name is the test's id; for a fixture that several tests share, its own beside the id of what it is shared
in; while a module is imported, the module's.
"""

import hashlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from stream_dp.noise import bits


def bytes_of(name: str, number: int, size: int) -> bytes:
    """Return what draw `number` under `name` gives."""
    return hashlib.shake_256(f"{name}\n{number}".encode()).digest(size)


class FixedNoise:
    """A plugin of pytest that stands for the operating system's source."""

    def __init__(self) -> None:
        self._numbers: dict[str, Iterator[int]] = {}
        self._now = self._source("")

    def urandom(self, size: int, /) -> bytes:
        """Return the next `size` bytes under the name of now; threads may draw side by side."""
        name, numbers = self._now
        return bytes_of(name, next(numbers), size)

    @contextmanager
    def named(self, name: str) -> Iterator[None]:
        """Draw under `name` meanwhile; a name that comes again goes on where it was."""
        before, self._now = self._now, self._source(name)
        try:
            yield
        finally:
            self._now = before

    def _source(self, name: str) -> tuple[str, Iterator[int]]:
        return name, self._numbers.setdefault(name, count())

    @pytest.hookimpl
    def pytest_configure(self) -> None:
        self._replaced = vars(bits)["urandom"]
        setattr(bits, "urandom", self.urandom)  # noqa: B010  # a name that the module does not export

    @pytest.hookimpl
    def pytest_unconfigure(self) -> None:
        setattr(bits, "urandom", self._replaced)  # noqa: B010

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, Any]:
        with self.named(collector.nodeid):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Run a test, from its setup to its teardown, under its own name."""
        with self.named(item.nodeid):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, Any, Any]:
        """Make a fixture that several tests share under its own name, whichever of them is first."""
        if request.scope == "function":
            return (yield)
        index = getattr(request, "param_index", 0)
        with self.named(f"{request.node.nodeid}::{fixturedef.argname}[{index}]"):
            return (yield)
