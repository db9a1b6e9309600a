"""Workers that read lanes of a real topic: killed, paused, of another version: all counts once."""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from faults.cases import Case, make_key
from faults.checker import Expected, unfounded
from faults.forked import Forked
from faults.kafka_evidence import over_kafka
from kafka import test_user_topics as users
from kafka.flight_topics import PARTITIONS, judged, over, ticks_of, topic_of
from kafka.kafka_worlds import grow, marks_of
from kafka.secured_broker import (
    DESCRIBE_CONFIGS,
    GROUP,
    READ,
    TOPIC,
    USERS,
    WRITE,
    Secured,
    grant,
)
from kafka.test_lane_processes import committed, fed_up_to
from oracles.user_caps import judge

from stream_dp.broker.topics import create_topic
from stream_dp.client.kafka_messages import KafkaMessages
from stream_dp.client.message_text import fresh_id, good_answer, message_text
from stream_dp.engine.lanes.rows import Layout, RowSealer
from stream_dp.errors import Outage
from stream_dp.journal.keys import Sealer
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.topics import administering, existing
from stream_dp.kafka.log.reader import reading
from stream_dp.kafka.log.rows import KafkaRows
from stream_dp.operate.replay_feed import feed

TICKS = 60
OPTIONS = ("--until-end", "--zero-noise", "--trace", "--dawdle", "0")
OFTEN = "from stream_dp.engine.lanes import workers\nworkers.EVERY = 10\n"
SLOWLY = """
from stream_dp.kafka.log.rows import RowsProducer
written = RowsProducer.written
async def slowly(producer, records):
    import asyncio
    for record in records:
        await written(producer, [record])
        await asyncio.sleep(0.02)
RowsProducer.written = slowly
"""
NEWER = (
    "from stream_dp.engine.lanes import rows, workers\nfrom stream_dp.operate.run import hosted\n"
    "rows.COUNTING = workers.COUNTING = hosted.COUNTING = 3\n"
)


READS = """
from stream_dp.kafka.log.rows import Membership
async def join(member):
    member.lanes = frozenset({lanes})
Membership.join = join
"""


@contextmanager
def working(case: Case, patch: str = "") -> Iterator[Forked]:
    run = Forked(("worker", str(case.pipeline)), case.environment(), patch=patch)
    try:
        yield run
    finally:
        run.kill()
        if not run.stdout.closed:
            run.communicate()


async def topic_for(kafka: str, folder: Path, ticks: int = TICKS) -> Case:
    case = over(kafka, folder, ticks, workers={"lanes": PARTITIONS})
    await create_topic(kafka, topic_of(case), PARTITIONS)
    return case


async def bodies(kafka: str, case: Case) -> list[bytes]:
    """All that is public of it."""
    async with reading(KafkaSettings(kafka), f"{case.expected.pipeline}.releases") as log:
        return [record.value async for many in log.records(*await log.bounds()) for record in many]


async def remade(kafka: str, topic: str, partitions: int) -> None:
    async with administering(KafkaSettings(kafka), "a test") as admin:
        await admin.delete_topics([topic])
    await create_topic(kafka, topic, partitions)


@asynccontextmanager
async def opened(kafka: str, case: Case) -> AsyncIterator[KafkaRows]:
    pipeline = case.expected.pipeline
    sealer = RowSealer(Sealer(case.key, pipeline).worker_keys().rows, pipeline)
    rows = KafkaRows(KafkaSettings(kafka), pipeline, sealer, PARTITIONS, "")
    await rows.open()
    yield rows
    await rows.close()


async def ends_of(kafka: str, case: Case) -> int:
    """How many rows were ever written."""
    async with opened(kafka, case) as rows:
        return sum((await rows.ends()).values())


async def layout_of(kafka: str, case: Case) -> Layout:
    async with opened(kafka, case) as rows:
        said = await rows.layout()
    assert said is not None
    return said


def rows_topic(case: Case) -> str:
    return f"{case.expected.pipeline}.private.rows"


async def test_one_process_several_and_workers_publish_the_same_bytes(
    kafka: str, tmp_path: Path
) -> None:
    published = list[list[bytes]]()
    for how in ("one", "processes", "workers"):
        folder = tmp_path / how
        folder.mkdir()
        more = {"workers": {"lanes": PARTITIONS, "pad": True}} if how == "workers" else {}
        case = over(kafka, folder, 20, **more)
        await create_topic(kafka, topic_of(case), PARTITIONS)
        await feed(KafkaSettings(kafka), marks_of(case), ticks_of(case))
        several = ("--processes", "2") if how == "processes" else ()
        if how == "workers":
            with working(case), working(case):
                await asyncio.to_thread(case.finish, "--zero-noise")
        else:
            await asyncio.to_thread(case.finish, "--zero-noise", *several)
        assert await judged(kafka, case) == []
        published.append(await bodies(kafka, case))
    assert len(published[0]) == 100
    assert published[0] == published[1] == published[2]


DEFINED: dict[str, dict[str, Any]] = {
    "hourly": {
        "statistic": "histogram",
        "by": "airline",
        "where": [{"field": "delay", "at_least": 30}],
    },
    "overdue": {"statistic": "count", "where": [{"field": "delay", "at_least": 15}]},
    "minutes": {"statistic": "sum", "of": "delay", "clamp": [-60, 180], "by": "airline"},
    "mon": {"statistic": "monitor", "touch": 3, "watch": [{"name": "w", "above": 1}]},
}


async def changed(messages: KafkaMessages, *does: str) -> None:
    """Let series come (+) and go (-), and watches of the monitor `mon` come (w) and go (u)."""
    for does_it, name in (each.split(" ") for each in does):
        defined = json.dumps({"name": name, "epsilon": "1", **DEFINED.get(name.rstrip("2"), {})})
        watch = json.dumps({"name": name, "by": "airline", "above": 2})
        told: dict[str, tuple[str, dict[str, Any], str]] = {
            "+": ("create", {"accept_noise": True}, defined),
            "-": ("halt", {"series": name}, ""),
            "w": ("watch", {"series": "mon", "accept_noise": True}, watch),
            "u": ("unwatch", {"series": "mon", "watch": name}, ""),
        }
        do, content, definition = told[does_it]
        said = message_text(do, content, key := fresh_id(), definition=definition)
        good_answer(await messages.answer(said, key))


CHANGES = {
    4: ("+ hourly", "+ mon"), 7: ("+ overdue", "w all"), 10: ("- hourly", "+ hourly2", "+ minutes"),
    13: ("u all", "u w", "w again"), 16: ("- overdue", "- minutes"), 19: ("+ overdue2",),
}  # fmt: skip


async def with_changes(
    kafka: str, case: Case, reader: Callable[[], Any] | None, *, hurt: bool = True
) -> list[bytes]:
    """What is public where series come and go, and three readers read, or none; these are killed and paused."""
    shown = json.loads(case.pipeline.read_text())
    shown["privacy"]["epsilon"], shown["clock"]["block"] = 100, 1
    case.pipeline.write_text(json.dumps(shown))
    await create_topic(kafka, topic_of(case), PARTITIONS)
    with ExitStack() as stack:
        run = case.start("--zero-noise", patch=OFTEN)
        stack.callback(run.communicate)
        stack.callback(run.kill)
        lanes = [] if reader is None else [stack.enter_context(reader()) for _ in range(3)]
        await fed_up_to(kafka, case, 3)
        await public(kafka, case, 2)
        token = Sealer(case.key, case.expected.pipeline).query_token()
        settings = KafkaSettings(kafka)
        messages = KafkaMessages(settings, case.expected.pipeline, token)
        await messages.open()
        for end, does in CHANGES.items():
            await fed_up_to(kafka, case, end)
            await public(kafka, case, end - 1)
            if reader is not None and hurt and end in (7, 16):
                lanes[0].send_signal(signal.SIGSTOP if end == 7 else signal.SIGCONT)
            if reader is not None and hurt and end == 10:
                lanes.pop().kill()
                lanes.append(stack.enter_context(reader()))
            await changed(messages, *does)
        await fed_up_to(kafka, case, 24)
        await public(kafka, case, 23)
        await messages.close()
        assert all(lane.poll() is None for lane in lanes)
    if reader is not None:
        said = await layout_of(kafka, case)
        assert said.epoch == 1 + len(CHANGES) - 2  # what only ends begins no epoch
        assert sorted(of for _, (_, of, _) in said.added) == ["", "", "", "mon"]
    return await bodies(kafka, case)


async def test_series_and_watches_that_come_and_go_count_as_in_one_process(
    kafka: str, tmp_path: Path
) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "workers").mkdir()
    one = await with_changes(kafka, over(kafka, tmp_path / "one", 24), None)
    case = over(kafka, tmp_path / "workers", 24, workers={"lanes": 2})
    assert await with_changes(kafka, case, lambda: working(case)) == one
    assert {json.loads(body)["series"] for body in one} >= {*DEFINED, "overdue2", "hourly2"}


async def public(kafka: str, case: Case, tick: int) -> None:
    """Wait until this tick is public."""
    deadline, seen = time.monotonic() + 60, -1
    while seen < tick:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)
        with suppress(Outage):  # the topic is made at the first start
            seen = max([json.loads(body)["tick"] for body in await bodies(kafka, case)], default=-1)


async def test_workers_are_killed_and_paused_and_others_take_over(
    kafka: str, tmp_path: Path
) -> None:
    case = await topic_for(kafka, tmp_path)
    run = case.start(*OPTIONS, patch=OFTEN)
    try:
        with working(case) as killed, working(case) as paused, working(case):
            await fed_up_to(kafka, case, 15)
            await committed(run, 10)
            async with opened(kafka, case) as spare:
                await spare.layout()
                killed.kill()
                await fed_up_to(kafka, case, 20)
                await committed(run, 5)
                os.kill(paused.pid, signal.SIGSTOP)
                await fed_up_to(kafka, case, 55)  # meanwhile old rows and layouts are deleted
                await committed(run, 35)
                os.kill(paused.pid, signal.SIGCONT)
                await asyncio.sleep(3)
                await fed_up_to(kafka, case, TICKS)
                _, errors = await asyncio.to_thread(run.communicate)
                said = await spare.layout()
            assert said is not None
            assert said.tick >= 50
            assert paused.poll() is None
    finally:
        run.kill()
    assert run.returncode == 0, errors
    assert "Traceback" not in errors
    assert await judged(kafka, case) == []


async def rows_deleted(kafka: str, case: Case) -> None:
    """Wait until the engine has deleted the rows of each lane that nobody needs."""
    deadline = time.monotonic() + 30
    async with opened(kafka, case) as rows:
        places = rows._places(range(PARTITIONS))
        while not all((await rows._asked(rows._offsets.beginning_offsets, places)).values()):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.2)


async def test_workers_go_on_without_an_engine_which_comes_back(kafka: str, tmp_path: Path) -> None:
    case = await topic_for(kafka, tmp_path)
    with working(case):
        run = case.start(*OPTIONS, patch=OFTEN)
        try:
            await fed_up_to(kafka, case, 25)
            await committed(run, 22)
            await rows_deleted(kafka, case)
        finally:
            run.kill()
            run.communicate()
        pipeline = case.expected.pipeline
        assert unfounded(await over_kafka(kafka, pipeline, case.key, case.folder)) == []
        before = await ends_of(kafka, case)
        await fed_up_to(kafka, case, TICKS)
        deadline = time.monotonic() + 30
        while await ends_of(kafka, case) < before + 2 * 25:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.2)
    with working(case):
        await asyncio.to_thread(case.finish, "--zero-noise")
    assert await judged(kafka, case) == []
    said = await layout_of(kafka, case)
    assert (said.epoch, said.tick) == (0, 20)


async def test_what_is_wrong_with_rows_stops_the_engine_or_the_worker(
    kafka: str, tmp_path: Path
) -> None:
    case = await topic_for(kafka, tmp_path)
    await fed_up_to(kafka, case, 20)
    with working(case) as worker:
        run = case.start(*OPTIONS)
        try:
            await committed(run, 15)
        finally:
            run.kill()
            run.communicate()
        worker.send_signal(signal.SIGTERM)
        _, said = await asyncio.to_thread(worker.communicate)
        assert worker.returncode == 0
        assert "reads lanes 0, 1 of 2" in said
    with working(case, NEWER) as newer:
        _, said = await asyncio.to_thread(newer.communicate)
        assert newer.returncode == 4
        assert "version 2 of counting, this worker as version 3" in said
    text = case.pipeline.read_text()
    case.pipeline.write_text(json.dumps(json.loads(text) | {"confidence": "0.9"}))
    with working(case) as other:
        _, said = await asyncio.to_thread(other.communicate)
        assert other.returncode == 4
        assert "another pipeline file" in said
    case.pipeline.write_text(text.replace('"lanes": 2', '"lanes": 1'))
    ended = await asyncio.to_thread(case.run, "--until-end", "--zero-noise")
    assert ended.returncode == 4
    assert "has 2 partitions, which are the lanes of this pipeline for good" in ended.stderr
    case.pipeline.write_text(text)
    await remade(kafka, rows_topic(case), PARTITIONS)
    ended = await asyncio.to_thread(case.run, "--until-end", "--zero-noise")
    assert ended.returncode == 4, ended.stderr
    assert "the rows topic does not hold" in ended.stderr
    async with administering(KafkaSettings(kafka), "a test") as admin:
        await admin.delete_topics([rows_topic(case), f"{case.expected.pipeline}.private.layout"])
    await fed_up_to(kafka, case, TICKS)
    with working(case):
        await asyncio.to_thread(case.finish, "--zero-noise")
    assert await judged(kafka, case) == []


SERIES = """
  - {name: by_key, statistic: histogram, by: key, method: tree, epsilon: 4}
  - {name: people, statistic: distinct, of: customer, every: 5h, epsilon: 2}
  - {name: ever, statistic: distinct, of: customer, where: [{field: key, equals: a}], epsilon: 1}
  - {name: capped, statistic: cut_off, window: 5h, epsilon: 1}
"""


async def test_users_and_identifiers_of_workers_count_as_in_one_process(
    kafka: str, tmp_path: Path, name: str
) -> None:
    case = users.case_of(kafka, tmp_path, name)
    text, _ = case.pipeline.read_text().split("series:")
    case.pipeline.write_text(f"{text}series:{SERIES}")
    await users.produced(kafka, case)
    expected = judge(await users.logs_of(kafka, case), users.CAP, users.WINDOW, users.home)
    await asyncio.to_thread(case.finish, "--zero-noise")
    one = await bodies(kafka, case)
    by_workers = case.pipeline.read_text().replace("keyed_by", "workers: {lanes: 3}, keyed_by")
    case.pipeline.write_text(by_workers.replace(f"name: {name}\n", f"name: {name}-w\n"))
    case = case.expecting(pipeline=f"{name}-w")
    for point in ("mid-commit:3", "after-commit:12", ""):
        with working(case, SLOWLY), working(case, SLOWLY) as killed:
            if not point:
                await asyncio.to_thread(case.finish, "--zero-noise")
                continue
            run = case.start(*OPTIONS, "--crash", point, patch=OFTEN)
            await asyncio.sleep(1)
            killed.kill()
            _, errors = await asyncio.to_thread(run.communicate)
            assert run.returncode == -signal.SIGKILL, errors
    commits = (await over_kafka(kafka, f"{name}-w", case.key)).commits
    assert sum(commit["capped"] for commit in commits) == expected.capped > 50
    assert sum(each[4] for c in commits for each in c["dead_letters"]) == expected.dead > 20
    assert len(one) == 4 * users.TICKS
    assert await bodies(kafka, case) == one


LIVE = """
version: 1
name: {name}
source: {{kind: kafka, topic: {name}.events, bootstrap: "{kafka}", workers: {{lanes: 2}}}}
schema: {{key: {{type: category, domain: [a, b]}}}}
privacy: {{unit: event, epsilon: 8}}
clock: {{kind: wall, step: 500ms, delay: 1s}}
series:
  - {{name: by_key, statistic: histogram, by: key, epsilon: 8}}
"""


FAST = """
from stream_dp.files.system_clock import SystemClock, system_ms
from stream_dp.operate.run import worker
worker.SystemClock = lambda: SystemClock(lambda: system_ms() + 3_000)
"""


async def test_live_ticks_of_workers_hold_every_record_once(
    kafka: str, tmp_path: Path, name: str
) -> None:
    """Under load partitions are added, a worker and the engine are killed, and the clock of another worker is wrong."""
    (tmp_path / "pipeline.yaml").write_text(LIVE.format(name=name, kafka=kafka))
    make_key(tmp_path)
    case = Case(tmp_path, Expected(name, 0, 500, 1, {}, (), (), zero_noise=True), ())
    topic = f"{name}.events"
    await create_topic(kafka, topic, 3, {"message.timestamp.type": "LogAppendTime"})
    producer = AIOKafkaProducer(bootstrap_servers=kafka)
    await producer.start()
    sent = 0

    async def send(seconds: float, partitions: int) -> None:
        nonlocal sent
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for at in range(5):
                await producer.send_and_wait(topic, b'{"key": "a"}', partition=at % partitions)
                sent += 1
            await asyncio.sleep(0.02)

    async def counted() -> int:
        commits = (await over_kafka(kafka, name, case.key)).commits
        return sum(sum(row) for commit in commits for row in commit["rows"])

    run = case.start("--zero-noise", patch=OFTEN)
    try:
        with working(case), working(case) as killed:
            await begun(kafka, case)
            with working(case, READS.format(lanes=(0, 1)) + FAST) as wrong:
                await send(3, 3)
                _, said = await asyncio.to_thread(wrong.communicate)
                assert (wrong.returncode, "s ahead of that of broker" in said) == (4, True), said
            await grow(kafka, topic, 5)
            await producer.client.force_metadata_update()
            await send(2, 5)
            killed.kill()
            await send(2, 5)
            run.kill()
            run.communicate()
            await send(1, 5)
            run = case.start("--zero-noise", patch=OFTEN)
            with working(case):
                await send(2, 5)
                deadline = time.monotonic() + 40
                while await counted() < sent:
                    assert time.monotonic() < deadline, (await counted(), sent, run.poll())
                    await asyncio.sleep(0.5)
    finally:
        await producer.stop()
        run.kill()
        run.communicate()
    assert await counted() == sent > 100


async def begun(kafka: str, case: Case) -> None:
    """Wait for the first commit of ticks."""
    async with asyncio.timeout(40):
        while True:
            with suppress(Exception):
                if any(
                    c["rows"]
                    for c in (await over_kafka(kafka, case.expected.pipeline, case.key)).commits
                ):
                    return
            await asyncio.sleep(0.3)


async def test_a_worker_needs_the_rights_that_the_page_names_and_says_which_it_lacks(
    secured: Secured, tmp_path: Path, name: str
) -> None:
    (tmp_path / "pipeline.yaml").write_text(LIVE.format(name=name, kafka=secured.admin))
    make_key(tmp_path)
    case = Case(tmp_path, Expected(name, 0, 500, 1, {}, (), (), zero_noise=True), ())
    await create_topic(
        secured.admin, f"{name}.events", 3, {"message.timestamp.type": "LogAppendTime"}
    )
    topics = {
        "events": (READ, DESCRIBE_CONFIGS), "private.layout": (READ,),
        "private.rows": (READ, DESCRIBE_CONFIGS), "private.clock": (DESCRIBE_CONFIGS,),
    }  # fmt: skip
    seen = [(TOPIC, topic, right) for topic, rights in topics.items() for right in rights]
    lacking = [(GROUP, "workers", READ), (TOPIC, "private.rows", WRITE)]
    lacking.append((TOPIC, "private.clock", WRITE))

    async def granted(*rights: tuple[int, str, int]) -> None:
        user = USERS["SCRAM"]
        await grant(secured, [(kind, f"{name}.{of}", 3, right, user) for kind, of, right in rights])

    as_user = {"STREAM_DP_KAFKA_BOOTSTRAP": secured.at("SCRAM")} | {
        f"STREAM_DP_KAFKA_{key.upper()}": value for key, value in secured.yaml("SCRAM").items()
    }
    engine = case.start("--zero-noise")
    try:
        await created(secured.admin, f"{name}.private.rows")
        await granted(*seen)
        for right in lacking:
            worker = Forked(("worker", str(case.pipeline)), case.environment() | as_user)
            try:
                await asyncio.to_thread(worker._process.join, 40)
            finally:
                worker.kill()
                _, said = await asyncio.to_thread(worker.communicate)
            assert worker.returncode == 5, (right, said)
            assert "grant" in said.lower()
            await granted(right)
        worker = Forked(("worker", str(case.pipeline)), case.environment() | as_user)
        try:
            await begun(secured.admin, case)
            assert "reads lanes 0, 1 of 2" in worker.errors
        finally:
            worker.kill()
            worker.communicate()
    finally:
        engine.kill()
        engine.communicate()


async def created(kafka: str, topic: str) -> None:
    deadline = time.monotonic() + 40
    async with administering(KafkaSettings(kafka), "a test") as admin:
        while not await existing(admin, topic):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.2)
