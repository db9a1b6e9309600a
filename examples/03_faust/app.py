"""A Faust app that enriches its events, has them counted privately, and reacts to an alert.

`python app.py --workers 2` starts two workers, which also read the records that are counted: each has lanes of them.

Rules: what `enriched` returns depends on its value alone. What `react` does again after a crash it does under the same
id, so it happens once.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import faust

from stream_dp.integrations.faust import attach

HERE = Path(__file__).parent
SHOPS = {"a": "north", "b": "north", "c": "south"}
BY_LANES = bool(os.environ.get("VISITS_LANES"))
FILE = "lanes.yaml" if BY_LANES else "pipeline.yaml"

app = faust.App(
    os.environ.get("VISITS_APP", "visits-app"),
    broker=f"kafka://{os.environ.get('STREAM_DP_KAFKA_BOOTSTRAP', '127.0.0.1:9092')}",
    store="memory://",
    datadir=os.environ.get("VISITS_DATA", str(HERE / "data")),
    topic_replication_factor=1,
)
engine = attach(app, os.environ.get("VISITS_PIPELINE", HERE / FILE))
released = engine.releases()
doors = app.topic(os.environ.get("VISITS_TOPIC", "doors"), value_type=bytes, value_serializer="raw")


def enriched(value: bytes) -> Mapping[str, Any] | None:
    """Say in which region a shop's door was used; a door that belongs to no shop does not count."""
    door = json.loads(value)
    region = SHOPS.get(door["shop"])
    return None if region is None else {"region": region, "minutes": door["minutes"]}


@app.agent(doors)
async def enrich(stream: Any) -> None:
    """Feed the pipeline: each event counts exactly once, whatever becomes of this worker."""
    await engine.from_agent(stream, enriched)


if BY_LANES:
    lanes = engine.lanes()

    @app.agent(lanes.topic)
    async def count(stream: Any) -> None:
        """Read lanes of what `enrich` feeds, as many as Faust assigns to this worker."""
        await lanes(stream)


@app.agent(released.topic)
async def react(stream: Any) -> None:
    """Where a region is busy, count its long visits too, from now on; the answer to an id stays the same."""
    async for release in released(stream):
        if release.series != "busy":
            continue
        for region in release.value:
            if BY_LANES:  # who reads by lanes counts what the file says, and nothing more
                print(f"{release.end}: {region} is busy")
                continue
            series = {
                "name": f"long_{region}",
                "statistic": "count",
                "where": [
                    {"field": "region", "equals": region},
                    {"field": "minutes", "at_least": 30},
                ],
                "epsilon": "0.25",
            }
            reply = await engine.queries.create(series, message_id=f"long-{region}")
            print(
                f"{release.end}: {region} is busy; {reply.content.name} costs {reply.content.epsilon}"
            )


def several(number: int) -> int:
    """Run so many workers until this process is told to end; return the first exit code that is not 0."""
    command = [sys.executable, __file__, "worker", "-l", "warn", "--without-web"]
    told = {**os.environ, "VISITS_LANES": "1"}
    workers = [
        subprocess.Popen(command, env=told, start_new_session=True)  # noqa: S603 - this file
        for _ in range(number)
    ]

    def end(*_: object) -> None:
        for worker in workers:
            worker.terminate()

    for told_to in (signal.SIGINT, signal.SIGTERM):
        signal.signal(told_to, end)
    return next(filter(None, [worker.wait() for worker in workers]), 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--workers"]:
        sys.exit(several(int(sys.argv[2])))
    app.main()
