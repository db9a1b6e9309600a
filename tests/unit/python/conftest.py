"""Noise that a test decides on, for mechanisms that run alone."""

from collections.abc import Callable

import pytest

from stream_dp.core.mechanism import Noise
from stream_dp.python import series
from stream_dp.testing.noise import SeededNoise, ZeroNoise


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "new_noise", ZeroNoise)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[SeededNoise]:
    """The noise streams that were opened so far, seeded by their number."""
    streams: list[SeededNoise] = []

    def open_next() -> Noise:
        streams.append(SeededNoise(len(streams)))
        return streams[-1]

    monkeypatch.setattr(series, "new_noise", open_next)
    return streams


@pytest.fixture
def another_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call on, this looks like a forked process."""
    return lambda: monkeypatch.setattr("os.getpid", lambda: -1)
