"""Ticks a second that one engine publishes on Kafka while it catches up: by appends, and by a transaction a tick.

A tick has four releases; a hundred ticks are one private commit, as an engine groups them when it is behind. Both ways
take turns on one broker, which this starts.

Run: PYTHONPATH=.:tests python tests/benchmarks/bench_publishing.py [--rounds N]
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from stream_dp.broker import LocalKafka, create_topic
from stream_dp.journal.commit import Commit, Release
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.log.journal import KafkaJournal
from stream_dp.kafka.log.lease import KafkaLease
from stream_dp.kafka.log.public import KafkaSink
from stream_dp.testing.port_checks import sample_release

TICKS, TOGETHER, SERIES = 400, 100, 4


class Transactions(KafkaSink):
    """What a sink of earlier versions did."""

    async def _send(self, records: list) -> None:  # type: ignore[type-arg, override]
        await self._lease.transact(records)


def releases(tick: int) -> list[Release]:
    end = datetime.fromtimestamp(1_000 + tick, UTC).isoformat()
    first = tick * SERIES
    return [sample_release(first + at, f"s{at}", tick, end=end) for at in range(SERIES)]


async def caught_up(bootstrap: str, name: str, sink_of: type[KafkaSink]) -> float:
    """Return ticks a second."""
    lease = KafkaLease(KafkaSettings(bootstrap), name)
    journal, sink = KafkaJournal(lease, "events"), sink_of(lease)
    await journal.open()
    await sink.open()
    begin = time.perf_counter()
    for commit in range(TICKS // TOGETHER):
        ticks = [releases(commit * TOGETHER + at) for at in range(TOGETHER)]
        durable = tuple(release for tick in ticks for release in tick)
        await journal.append(
            Commit(commit, b"", releases=durable, positions={0: commit}), bytes(20_000)
        )
        for tick in ticks:
            await sink.publish(tick)
    seconds = time.perf_counter() - begin
    await sink.close()
    return TICKS / seconds


async def compared(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        broker = LocalKafka(Path(folder) / "kafka")
        await broker.start()
        try:
            await create_topic(broker.bootstrap, "events", 1, {})
            ratios = []
            for turn in range(rounds):
                by = [
                    await caught_up(broker.bootstrap, f"{sink.__name__.lower()}-{turn}", sink)
                    for sink in (Transactions, KafkaSink)
                ]
                ratios.append(by[1] / by[0])
                print(
                    f"transactions {by[0]:6.0f} ticks/s   appends {by[1]:6.0f} ticks/s   {ratios[-1]:.1f} times"
                )
            print(f"median {statistics.median(ratios):.1f} times")
        finally:
            await broker.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    asyncio.run(compared(parser.parse_args().rounds))
