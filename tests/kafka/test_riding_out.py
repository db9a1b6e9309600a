"""What happens to brokers every day ends no engine: it goes on by itself, nothing lost, nothing twice.

Each test runs the product's engine, with the test kit's noise, over a replay on a cluster of its own, and has an
independent checker compare what was published with what was sent. Rules: the tests are synchronous, for a broker ends
with the thread that started it.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from faults.cases import Case, Ended, document, expectation, flights, seen, write
from faults.checker import findings
from faults.forked import Run
from faults.kafka_evidence import over_kafka
from kafka.cluster import Cluster, cluster
from kafka.kafka_worlds import marks_of
from kafka.leadership import move_leaders
from kafka.test_crash_kafka import ticks_of
from kafka.test_zombie_engines import wait_until_stopped

from stream_dp.broker.topics import create_topic
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.operate.replay_feed import feed
from stream_dp.testing.kafka import fresh_topic_name

OPTIONS = ("--until-end", "--zero-noise", "--trace", "--dawdle", "10")
Fault = Callable[[Cluster], None]


def fed(bootstrap: str, folder: Path, ticks: int, patience: str = "5m") -> Case:
    """A pipeline over a topic that holds all its events."""
    made = flights(folder, ticks)
    name = fresh_topic_name("riding")
    source = {"kind": "kafka", "topic": f"{name}.events", "bootstrap": bootstrap}
    write(folder, document(name, ticks, 6, {**source, "patience": patience}))
    case = Case(folder, expectation(name, ticks), made.events)

    async def fill() -> None:
        await create_topic(bootstrap, f"{name}.events", 2)
        await feed(KafkaSettings(bootstrap), marks_of(case), ticks_of(case))

    asyncio.run(fill())
    return case


def at_work(case: Case, lines: int = 20) -> Run:
    """A run that has made some commits."""
    run = case.start(*OPTIONS)
    assert seen(run, lines) == lines
    return run


def before_a_commit(case: Case) -> Run:
    """A run that has made some commits and is stopped (SIGSTOP): what it asks of a broker next is another commit."""
    run = case.start(*OPTIONS, "--pause", "before-commit:7", anew=True)
    wait_until_stopped(run.pid)
    return run


def ended(run: Run) -> Ended:
    """Wait for its end."""
    out, errors = run.communicate()
    assert run.returncode is not None
    return Ended(run.returncode, out, errors)


def judged(bootstrap: str, case: Case) -> list[str]:
    """What the checker has to say."""
    evidence = asyncio.run(over_kafka(bootstrap, case.expected.pipeline, case.key))
    return findings(case.expected, case.events, evidence)


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
    assert judged(brokers.bootstrap, case) == []
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
    case = fed(one.bootstrap, tmp_path, ticks=200)
    rides_out(one, case, Cluster.restart)


def test_a_broker_that_stays_away_ends_it_with_the_cause(one: Cluster, tmp_path: Path) -> None:
    """Exit 5, and one line that names what was tried; a new start goes on, once the broker is back."""
    case = fed(one.bootstrap, tmp_path, ticks=200, patience="1s")
    run = before_a_commit(case)
    one.kill(0)
    run.send_signal(signal.SIGCONT)
    done = ended(run)
    one.restart()
    assert done.returncode == 5, done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("stream-dp: ")]
    assert len(said) == 1
    assert f"no Kafka broker answers at {one.bootstrap}" in said[0]
    assert "nothing could be committed for 1 s; it began with: a transaction" in said[0]
    case.finish("--zero-noise")
    assert judged(one.bootstrap, case) == []


def test_a_broker_that_hangs_does_not_hold_the_end(one: Cluster, tmp_path: Path) -> None:
    """SIGTERM while nothing answers: exit 5 after some seconds, and the next start goes on."""
    case = fed(one.bootstrap, tmp_path, ticks=200)
    run = before_a_commit(case)
    one.halt(0)
    run.send_signal(signal.SIGCONT)
    began = time.monotonic()
    try:
        time.sleep(2)
        run.send_signal(signal.SIGTERM)
        done = ended(run)
    finally:
        one.resume(0)
    print(f"ended {time.monotonic() - began - 2:.1f} s after SIGTERM")
    assert done.returncode == 5, done.stderr
    assert "was told to stop, and did not come to its end" in done.stderr
    case.finish("--zero-noise")
    assert judged(one.bootstrap, case) == []


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

    case = fed(one.bootstrap, tmp_path, ticks=400)
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


def led_by_others(brokers: Cluster, *, internal: bool) -> None:
    """Every partition of a kind changes its leader, three times; all nodes are there all the time."""
    for _ in range(3):
        assert move_leaders(brokers.bootstrap, internal=internal) > 0
        time.sleep(2)


THREE: dict[str, Fault] = {
    "topics led by others": lambda brokers: led_by_others(brokers, internal=False),
    "coordinators led by others": lambda brokers: led_by_others(brokers, internal=True),
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
    case = fed(three.bootstrap, tmp_path, ticks=600)
    print(f"{fault}: {rides_out(three, case, THREE[fault]):.1f} s from the fault to the end")
