"""Lag on the operator's port, of a real broker: what came while the engine could not commit, and nothing afterwards."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx
from kafka.kafka_worlds import create, writing
from prometheus_client.parser import text_string_to_metric_families

from stream_dp.engine.ports import Journal, Ports
from stream_dp.journal.commit import Commit
from stream_dp.journal.keys import Sealer
from stream_dp.kafka.log.lease import Holder
from stream_dp.operate.observe.operator_figures import FiguresPort
from stream_dp.operate.run.run_pipeline import Operator, RunOptions, run_pipeline
from stream_dp.operate.run.running import Run, Setup
from stream_dp.operate.run.wiring import open_ports
from stream_dp.pipeline.spec import PipelineSpec

SENT = 23
PATIENCE_S = 200
TOKEN = "ab" * 32
PIPELINE = """\
version: 1
name: {topic}-p
source: {{kind: kafka, topic: {topic}, bootstrap: "{kafka}"}}
schema:
  kind: {{type: category, domain: [a, b]}}
privacy: {{epsilon: 1}}
clock: {{kind: wall, step: 500ms, delay: 1s}}
series:
  - {{name: all, statistic: count, epsilon: 1}}
"""


class Held:
    """Lets nothing be committed while it is shut."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()

    def adapters(self, spec: PipelineSpec, sealer: Sealer, accepted: str, holder: Holder) -> Ports:
        """Those of the product, with a journal that waits."""
        ports = open_ports(spec, sealer, accepted, holder)
        append = ports.journal.append

        async def waiting(commit: Commit, sealed: bytes) -> None:
            await self.open.wait()
            await append(commit, sealed)

        journal: Journal = ports.journal
        journal.append = waiting  # type: ignore[method-assign]  # of this object only
        return replace(ports, journal=journal)


async def lag(client: httpx.AsyncClient, url: str, wanted: int) -> None:
    """Ask until the lag is as wanted; it is never more than what was sent, and never less than nothing."""
    while True:
        answer = await client.get(url, headers={"authorization": f"Bearer {TOKEN}"})
        families = text_string_to_metric_families(answer.raise_for_status().text)
        told = [one.value for each in families for one in each.samples if one.name.endswith("_lag")]
        assert all(0 <= each <= SENT for each in told)
        if told == [wanted]:
            return
        await asyncio.sleep(0.1)


async def test_lag_is_what_is_not_committed_and_falls_to_nothing(
    kafka: str, name: str, tmp_path: Path
) -> None:
    topic = await create(kafka, f"{name}-events", 2, message_timestamp_type="LogAppendTime")
    pipeline, key, own = tmp_path / "p.yaml", tmp_path / "key", tmp_path / "token"
    pipeline.write_text(PIPELINE.format(topic=topic, kafka=kafka))
    for file, content in ((key, bytes(range(32))), (own, TOKEN.encode())):
        file.touch(0o600)
        file.write_bytes(content)
    held, urls = Held(), list[str]()

    @asynccontextmanager
    async def beside(run: Run) -> AsyncIterator[None]:
        looking = asyncio.create_task(looks(run))
        yield
        await looking

    async def looks(run: Run) -> None:
        try:
            await run.ready.wait()
            async with (
                asyncio.timeout(PATIENCE_S),
                httpx.AsyncClient(timeout=60) as client,
                writing(kafka) as producer,
            ):
                await lag(client, urls[0], 0)
                held.open.clear()
                for number in range(SENT):
                    await producer.send_and_wait(topic, b'{"kind":"a"}', partition=number % 2)
                await lag(client, urls[0], SENT)
                held.open.set()
                await lag(client, urls[0], 0)
        finally:
            held.open.set()
            run.stop()

    operator = Operator(port=FiguresPort(0, own, urls.append))
    await run_pipeline(
        pipeline,
        RunOptions(key_file=key),
        Setup(adapters=held.adapters),
        operator=operator,
        beside=beside,
    )
    assert operator.figures.records == SENT
