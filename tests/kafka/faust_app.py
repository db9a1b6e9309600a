"""A Faust app as its users write one, for tests: run as `python faust_app.py worker`; the environment says the rest."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import faust

from stream_dp.integrations.faust import attach
from stream_dp.operate.run.wiring import Setup
from stream_dp.testing.noise import ZeroNoise

told: dict[str, Any] = json.loads(os.environ["FAUST_WORLD"])
exec(told["patch"])  # noqa: S102 - a test's own words, to break what it tests

app = faust.App(
    told["id"],
    broker=f"kafka://{told['kafka']}",
    store="memory://",
    datadir=told["datadir"],
    topic_replication_factor=1,
    broker_session_timeout=6.0,
    broker_heartbeat_interval=1.0,
    broker_commit_interval=told["commit_s"],
    web_enabled=False,
)
engine = attach(app, told["file"], setup=Setup(lambda *_: ZeroNoise(), private=False))
releases = engine.releases(seen=app.Table("seen", partitions=1) if told["table"] else None)
seen = Path(told["seen"]).open("a")  # noqa: SIM115 - until the worker ends
raw = app.topic(told["raw"], value_type=bytes, value_serializer="raw", key_serializer="raw")


async def enriched(value: bytes) -> dict[str, Any] | None:
    """Name the kind; every tenth is of no interest, every hundredth cannot be read."""
    number = int(value)
    if number % 100 == 99:
        raise ValueError(value)
    return None if number % 10 == 0 else {"kind": ("red", "green")[number % 2], "size": number}


@app.agent(raw)
async def enrich(stream: Any) -> None:
    await engine.from_agent(stream, enriched)


@app.agent(releases.topic)
async def react(stream: Any) -> AsyncIterator[None]:
    async for release in releases(stream):
        seen.write(f"{release.sequence} {release.series} {release.value}\n")
        seen.flush()
        yield


if __name__ == "__main__":
    app.main()
