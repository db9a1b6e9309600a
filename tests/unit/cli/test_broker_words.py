"""What `stream-dp broker` says while Kafka starts: nothing at once, and then for how long it has gone on."""

import asyncio
import re
from typing import cast

import pytest

from stream_dp.broker.process import LocalKafka
from stream_dp.cli import progress_line
from stream_dp.cli.commands import broker as command
from stream_dp.errors import WorldError

BEGINS = "Starting Kafka: "


class Slow:
    """A Kafka that is ready once `lines` lines were said, and then dies."""

    bootstrap = "127.0.0.1:1"

    def __init__(self, said: pytest.CaptureFixture[str], lines: int) -> None:
        self._said = said
        self._lines = lines
        self.errors = ""
        self.stopped = False

    async def start(self) -> None:
        """Wait for the lines."""
        async with asyncio.timeout(120):
            while self.errors.count(BEGINS) < self._lines:
                await asyncio.sleep(0)
                self.errors += self._said.readouterr().err

    async def watch(self) -> None:
        """Die."""
        raise WorldError("died")

    async def stop(self) -> None:
        """Note it."""
        self.stopped = True


@pytest.mark.parametrize("lines", [0, 3])
async def test_a_slow_start_tells_its_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lines: int
) -> None:
    if lines:
        for name in ("QUIET_S", "EVERY_S", "LOOK_S"):
            monkeypatch.setattr(progress_line, name, 0.001)
    slow = Slow(capsys, lines)
    with pytest.raises(WorldError, match="died"):
        await command._run(cast("LocalKafka", slow))
    out, last = capsys.readouterr()
    said = (slow.errors + last).splitlines()
    assert said[-1] == "Kafka is ready; Ctrl-C stops it"
    assert len(said) - 1 >= lines
    assert all(re.fullmatch(rf"{BEGINS}\d+ s", line) for line in said[:-1])
    assert (out, slow.stopped) == ("127.0.0.1:1\n", True)
