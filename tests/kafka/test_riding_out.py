"""What happens to brokers every day ends no engine: it goes on by itself, nothing lost, nothing twice.

The product's engines run, with the test kit's noise, over clusters of their own, and an independent checker compares
what was published with what was sent. Rules: the tests are synchronous, for a broker ends with the thread that
started it.
"""

import asyncio
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from faults.cases import Case, Ended, seen
from faults.forked import Run
from faults.kafka_evidence import records
from kafka.cluster import Cluster, cluster
from kafka.flight_topics import fed, judged
from kafka.talking_worlds import TalkingWorld
from kafka.test_workers import working
from kafka.test_zombie_engines import wait_until_stopped

OPTIONS = ("--until-end", "--zero-noise", "--trace", "--dawdle", "10")
Fault = Callable[[Cluster], None]


def at_work(case: Case, lines: int = 20) -> Run:
    run = case.start(*OPTIONS)
    assert seen(run, lines) == lines
    return run


def before_a_commit(case: Case) -> Run:
    """A run that has made some commits and is stopped (SIGSTOP): what it asks of a broker next is another commit."""
    run = case.start(*OPTIONS, "--pause", "before-commit:7", anew=True)
    wait_until_stopped(run.pid)
    return run


def ended(run: Run) -> Ended:
    out, errors = run.communicate()
    assert run.returncode is not None
    return Ended(run.returncode, out, errors)


def rides_out(brokers: Cluster, case: Case, fault: Fault) -> float:
    """Let `fault` happen to a run at work; the seconds from the fault to the run's end, which is a good one."""
    run = at_work(case)
    began = time.monotonic()
    try:
        fault(brokers)
        done = ended(run)
    finally:
        run.kill()
    took = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert asyncio.run(judged(brokers.bootstrap, case)) == []
    return took


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("one"), 1) as made:
        yield made


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("three"), 3) as made:
        yield made


def test_a_single_broker_is_killed_and_comes_back(one: Cluster, tmp_path: Path) -> None:
    case = asyncio.run(fed(one.bootstrap, tmp_path, ticks=120))
    rides_out(one, case, Cluster.restart)


def test_a_broker_that_hangs_does_not_hold_the_end(one: Cluster, tmp_path: Path) -> None:
    """SIGTERM while nothing answers: exit 5 after some seconds, and the next start goes on."""
    case = asyncio.run(fed(one.bootstrap, tmp_path, ticks=60))
    run = before_a_commit(case)
    one.halt(0)
    run.send_signal(signal.SIGCONT)
    try:
        time.sleep(2)
        run.send_signal(signal.SIGTERM)
        done = ended(run)
    finally:
        one.resume(0)
    assert done.returncode == 5, done.stderr
    assert "was told to stop, but did not end" in done.stderr
    case.finish("--zero-noise")
    assert asyncio.run(judged(one.bootstrap, case)) == []


MAIN = "from stream_dp.__main__ import start; start()"
OURS = (
    r".* kept once, by the one broker on this machine: .*",
    r".*: a new ledger; counts the records that arrive in topic .*",
    r"stream-dp: no Kafka broker answers at .* stream_dp tried again and gave up, .*",
    r"[A-Z][a-z' ]+: (\d+ %, )?\d+ s",  # how far it has come, of what takes longer than two seconds
)


async def hasty(folder: Path, bootstrap: str) -> TalkingWorld:
    world = await TalkingWorld.made(folder, bootstrap)
    text = world.file.read_text().replace("kind: kafka,", "kind: kafka, patience: 1s,")
    world.file.write_text(text)
    return world


async def publishing(world: TalkingWorld) -> None:
    async with asyncio.timeout(100):
        while not await records(world.kafka, f"{world.name}.releases"):  # noqa: ASYNC110
            await asyncio.sleep(0.2)


def test_a_broker_that_stays_away_ends_runs_with_our_own_words_alone(
    one: Cluster, tmp_path: Path
) -> None:
    """A replay and a live one, exit 5. They are started by exec, whose end collects what was left open."""
    case = asyncio.run(fed(one.bootstrap, tmp_path, ticks=60, patience="1s"))
    (tmp_path / "live").mkdir()
    world = asyncio.run(hasty(tmp_path / "live", one.bootstrap))
    live = subprocess.Popen(
        [sys.executable, "-c", MAIN, "run", str(world.file)], env={**world.environment},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        replaying = before_a_commit(case)
        asyncio.run(publishing(world))
        one.kill(0)
        replaying.send_signal(signal.SIGCONT)
        ends = [ended(run) for run in (replaying, live)]
    finally:
        live.kill()
    for done in ends:
        assert done.returncode == 5, done.stderr
        (said,) = (line for line in done.stderr.splitlines() if line.startswith("stream-dp: "))
        assert f"no Kafka broker answers at {one.bootstrap}" in said
        assert "Traceback" not in done.stderr
    assert (
        "nothing could be committed for 1 s; the first error was: a transaction" in ends[0].stderr
    )
    lines = ends[1].stderr.splitlines()
    assert [line for line in lines if not any(re.fullmatch(o, line) for o in OURS)] == []
    one.restart()
    case.finish("--zero-noise")
    assert asyncio.run(judged(one.bootstrap, case)) == []


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["down", "paused"])
def test_a_single_broker_is_away_for_half_a_minute(
    one: Cluster, tmp_path: Path, fault: str
) -> None:
    def away(brokers: Cluster) -> None:
        if fault == "down":
            brokers.down_for(30)
        else:
            brokers.halt(0)
            time.sleep(30)
            brokers.resume(0)

    case = asyncio.run(fed(one.bootstrap, tmp_path, ticks=400))
    print(f"{fault}: {rides_out(one, case, away):.1f} s from the fault to the end")


def killed(brokers: Cluster, node: int) -> None:
    brokers.kill(node)
    time.sleep(8)  # longer than the session of a broker: another leads now
    brokers.start(node)


def rolling(brokers: Cluster) -> None:
    for node in range(brokers.size):
        brokers.end(node)
        brokers.start(node)


def paused(brokers: Cluster, node: int) -> None:
    brokers.halt(node)
    time.sleep(20)
    brokers.resume(node)


THREE: dict[str, Fault] = {
    "first killed": lambda brokers: killed(brokers, 0),
    "second killed": lambda brokers: killed(brokers, 1),
    "third killed": lambda brokers: killed(brokers, 2),
    "first paused": lambda brokers: paused(brokers, 0),
    "second paused": lambda brokers: paused(brokers, 1),
    "third paused": lambda brokers: paused(brokers, 2),
    "rolling restart": rolling,
    "full restart": Cluster.restart,
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", THREE)
def test_what_happens_to_a_cluster_of_three(three: Cluster, tmp_path: Path, fault: str) -> None:
    case = asyncio.run(fed(three.bootstrap, tmp_path, ticks=600))
    print(f"{fault}: {rides_out(three, case, THREE[fault]):.1f} s from the fault to the end")


@pytest.mark.full
def test_workers_and_engines_begin_and_go_on_while_nodes_of_three_are_away(
    three: Cluster, tmp_path: Path
) -> None:
    """A node is killed; engines and workers are killed, and others begin, before it is back; then all are restarted."""
    case = asyncio.run(fed(three.bootstrap, tmp_path, ticks=200, workers={"lanes": 2}))
    with working(case), working(case) as killed:
        run = at_work(case)
        three.kill(0)
        killed.kill()
        for _ in range(4):
            run.kill()
            run.communicate()
            run = at_work(case, 4)
        with working(case) as late:
            three.start(0)
            three.restart()
            try:
                done = ended(run)
            finally:
                run.kill()
            assert late.poll() is None
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert asyncio.run(judged(three.bootstrap, case)) == []
