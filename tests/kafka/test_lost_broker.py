"""What an operator reads when the brokers are gone for good: the engine's own sentences and nothing of its libraries.

Rules: the engine is a process started by exec, whose end collects whatever was left open. The tests are synchronous,
for a broker ends with the thread that started it.
"""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

from faults.kafka_evidence import records
from kafka.cluster import cluster
from kafka.talking_worlds import TalkingWorld

OURS = (
    r".* kept once, by the one broker on this machine: .*",
    r".*: a new ledger; counts what comes into topic .*",
    r"stream-dp: no Kafka broker answers at .* Given up after trying again, .*",
    r"[A-Z][a-z' ]+: (\d+ %, )?\d+ s",  # how far it has come, of what takes longer than two seconds
)
MAIN = "from stream_dp.cli.start import start; start()"


async def made(folder: Path, bootstrap: str) -> TalkingWorld:
    """A pipeline whose engine has little patience."""
    world = await TalkingWorld.made(folder, bootstrap)
    text = world.file.read_text().replace("kind: kafka,", "kind: kafka, patience: 1s,")
    world.file.write_text(text)
    return world


async def at_work(world: TalkingWorld) -> None:
    """Wait until something was published."""
    async with asyncio.timeout(100):
        while True:
            if await records(world.kafka, f"{world.name}.releases"):
                return
            await asyncio.sleep(0.2)


def test_a_lost_broker_ends_a_run_with_our_own_words_alone(tmp_path: Path) -> None:
    (tmp_path / "kafka").mkdir()
    with cluster(tmp_path / "kafka", 1) as one:
        world = asyncio.run(made(tmp_path, one.bootstrap))
        engine = subprocess.Popen(
            [sys.executable, "-c", MAIN, "run", str(world.file)], env={**world.environment},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            asyncio.run(at_work(world))
            one.kill(0)
            out, errors = engine.communicate()
        finally:
            engine.kill()
    assert (engine.returncode, out) == (5, "")
    foreign = [line for line in errors.splitlines() if not any(re.fullmatch(o, line) for o in OURS)]
    assert foreign == []
