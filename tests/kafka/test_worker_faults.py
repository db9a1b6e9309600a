"""What may happen to workers on a real topic, as the table of docs/scale.md has it, and what counts then.

Rules: some of these workers read the lanes that they are told to, whatever their group says: it is for liveness alone.
"""

import asyncio
import hashlib
import json
import signal
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import RecordsToDelete
from aiokafka.structs import TopicPartition
from faults.cases import EPSILON, Case
from faults.forked import Forked, Run
from faults.kafka_evidence import over_kafka, records
from kafka.flight_topics import PARTITIONS, judged, over, topic_of
from kafka.kafka_worlds import AT_ONCE, writing
from kafka.test_lane_processes import fed_up_to
from kafka.test_workers import (
    DEFINED,
    OFTEN,
    OPTIONS,
    READS,
    TICKS,
    bodies,
    layout_of,
    public,
    rows_topic,
    run_and_killed,
    topic_for,
    working,
)

from stream_dp.broker.topics import create_topic
from stream_dp.engine.lanes.rows import LaneRow, RowSealer, Sealed
from stream_dp.journal.keys import Sealer
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.topics import administering
from stream_dp.operate.audit.ledger_view import read_ledger

BOTH, FIRST = READS.format(lanes=(0, 1)), READS.format(lanes=(0,))
SOON = "from stream_dp.engine.lanes import workers\nworkers.LAGS_S = 1\n"
DIES = """
import os, signal
from stream_dp.engine.lanes.workers import LaneWork
from stream_dp.kafka.log.rows import KafkaRows, RowsProducer
from stream_dp.operate.run import worker
written = RowsProducer.written
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
async def before(producer, records):
    if records:
        die()
async def between(producer, records):
    await written(producer, records[:1])
    if records:
        die()
async def after(producer, records):
    await written(producer, records)
    if records:
        die()
async def unlaid(rows, layout):
    if layout.epoch:
        die()
    await lay(rows, layout)
lay = KafkaRows.lay
"""
POINTS = {
    "before a row is in the log": "RowsProducer.written = before",
    "between two rows": "RowsProducer.written = between",
    "before it reads its row again": "RowsProducer.written = after",
    "behind the rows of others": "LaneWork.begin = die",
}
REWOUND = "worker._Laid.__init__ = die"
UNLAID = "KafkaRows.lay = unlaid"


async def until_killed(run: Run) -> None:
    async with asyncio.timeout(60):
        while run.poll() is None:  # noqa: ASYNC110 - a process
            await asyncio.sleep(0.05)
    assert run.returncode == -signal.SIGKILL


def over_with(run: Run) -> None:
    run.kill()
    if run.stdout is not None and not run.stdout.closed:
        run.communicate()


async def until_said(run: Run, what: str) -> None:
    assert isinstance(run, Forked)
    async with asyncio.timeout(60):
        while what not in run.errors:  # noqa: ASYNC110 - a file
            await asyncio.sleep(0.1)


async def rows_in(kafka: str, case: Case) -> list[tuple[LaneRow, bytes]]:
    """All rows in the log, lane by lane in its order, with their plain bytes."""
    pipeline = case.expected.pipeline
    sealer = RowSealer(Sealer(case.key, pipeline).worker_keys().rows, pipeline)
    log = await records(kafka, rows_topic(case), "read_uncommitted")
    return [sealer.row(one.partition, Sealed(one.headers, one.value)) for one in log]


def first_that_follow(rows: Sequence[tuple[LaneRow, bytes]]) -> list[LaneRow]:
    """The rows that count, by a rule written anew: of those that name the one before, the first."""
    counted: dict[int, list[tuple[LaneRow, bytes]]] = defaultdict(list)
    for row, plain in rows:
        lane = counted[row.lane]
        digest = hashlib.sha256(lane[-1][1]).digest() if lane else row.previous
        if row.tick == len(lane) and row.previous == digest:
            lane.append((row, plain))
    return [row for lane in counted.values() for row, _ in lane]


async def ticks_in(kafka: str, case: Case) -> list[dict[str, Any]]:
    commits = (await over_kafka(kafka, case.expected.pipeline, case.key)).commits
    return [commit for commit in commits if commit["ticks"]]


async def test_workers_die_at_every_point_share_a_lane_and_leave_one_out(
    kafka: str, tmp_path: Path
) -> None:
    """Nothing counts while nobody reads lane 1; four read lane 0 at once, and what they add is the same."""
    case = await topic_for(kafka, tmp_path)
    run = case.start(*OPTIONS, patch=SOON)
    with ExitStack() as stack:
        stack.callback(over_with, run)
        firsts = [stack.enter_context(working(case, FIRST)) for _ in range(2)]
        await fed_up_to(kafka, case, 10)
        await until_said(run, "No row of lane 1 comes")
        assert await ticks_in(kafka, case) == []
        for at, point in enumerate(POINTS.values()):
            await fed_up_to(kafka, case, 15 + 5 * at)
            with working(case, DIES + BOTH + point) as dies:
                await until_killed(dies)
        boths = [stack.enter_context(working(case, BOTH)) for _ in range(2)]
        await fed_up_to(kafka, case, TICKS)
        _, errors = await asyncio.to_thread(run.communicate)
        assert run.returncode == 0, errors
        assert "Traceback" not in errors
        assert all(worker.poll() is None for worker in (*firsts, *boths))
    assert await judged(kafka, case) == []
    rows = await rows_in(kafka, case)
    equal = Counter((row.lane, row.tick, plain) for row, plain in rows)
    assert len(equal) == PARTITIONS * TICKS
    assert len(rows) > len(equal)
    counted = sum(commit["records"] for commit in await ticks_in(kafka, case))
    assert sum(row.records for row in first_that_follow(rows)) == counted == len(case.events)
    assert sum(row.records for row, _ in rows) > counted  # a reader without the chain adds these


WRONG = """
import msgspec
from stream_dp.engine.lanes import workers
right = workers.row_of
def wrong(*args, **more):
    row = right(*args, **more)
    return msgspec.structs.replace(row, late=row.late + 1)
workers.row_of = wrong
"""


async def test_of_rows_that_differ_the_first_counts_and_both_sides_say_so(
    kafka: str, tmp_path: Path
) -> None:
    """As where a clock is wrong by less than is noticed: one of two workers finds one record more late in each tick."""
    case = await topic_for(kafka, tmp_path)
    with working(case, BOTH) as right, working(case, BOTH + WRONG) as wrong:
        run = case.start(*OPTIONS)
        try:
            for end in range(5, TICKS + 1, 5):
                await fed_up_to(kafka, case, end)
                await asyncio.sleep(0.3)
            _, errors = await asyncio.to_thread(run.communicate)
        finally:
            run.kill()
        assert run.returncode == 0, errors
        assert right.poll() is wrong.poll() is None
        said = right.errors + wrong.errors
    rows = await rows_in(kafka, case)
    counted = first_that_follow(rows)
    assert len(counted) == PARTITIONS * TICKS
    assert len({(row.lane, row.tick, plain) for row, plain in rows}) > len(counted)
    ticks = await ticks_in(kafka, case)
    assert sum(commit["late"] for commit in ticks) == sum(row.late for row in counted)
    assert sum(commit["records"] for commit in ticks) == len(case.events)
    assert "is left out: another row counted before" in errors
    assert "Another worker's row counts, and this one's is not equal to it" in said


async def test_a_rows_topic_that_was_cut_or_written_by_others_stops_the_engine(
    kafka: str, tmp_path: Path
) -> None:
    case = await topic_for(kafka, tmp_path)
    await fed_up_to(kafka, case, 30)
    with working(case) as worker:
        await run_and_killed(case, 15)
        worker.kill()

    async def stops(why: str) -> None:
        ended = await asyncio.to_thread(case.run, "--until-end", "--zero-noise")
        assert (ended.returncode, why in ended.stderr) == (4, True), ended.stderr
        assert await ticks_in(kafka, case) == before

    before = await ticks_in(kafka, case)
    topic = rows_topic(case)
    async with writing(kafka) as producer:
        await producer.send_and_wait(topic, b"from another program", partition=0)
        await stops("neither an engine nor a worker has written")
    with working(case) as worker:
        _, said = await asyncio.to_thread(worker.communicate)
        assert (worker.returncode, "neither an engine nor a worker" in said) == (4, True), said
    async with administering(KafkaSettings(kafka), "a test") as admin:
        await admin.delete_records(
            {TopicPartition(topic, lane): RecordsToDelete(-1) for lane in range(PARTITIONS)}
        )
    await stops("the rows topic does not hold")
    async with administering(KafkaSettings(kafka), "a test") as admin:
        await admin.delete_topics([topic, f"{case.expected.pipeline}.private.layout"])
    await fed_up_to(kafka, case, TICKS)
    with working(case):
        await asyncio.to_thread(case.finish, "--zero-noise")
    assert await judged(kafka, case) == []


def changed(text: str, ends: Sequence[str], begins: dict[str, dict[str, Any]]) -> str:
    """A pipeline file without these series, and with others; one that is there already has these keys, and no where
    but theirs.
    """
    shown = json.loads(text)
    kept = {series["name"]: series for series in shown["series"] if series["name"] not in ends}
    for name, keys in begins.items():
        former = {key: of for key, of in kept.get(name, {}).items() if key != "where"}
        kept[name] = {"name": name, "epsilon": 1, **former, **keys}
    return json.dumps(shown | {"series": [*kept.values()]})


APPLY = "from functools import partial\nfrom stream_dp.testing import __main__ as kit\n" + (
    "kit.RunOptions = partial(kit.RunOptions, apply=True)\n"
)
LATE: list[dict[str, Any]] = [{"field": "delay", "at_least": 60}]
LATER = DEFINED["hourly"] | {"where": LATE}
COMMITTED = """
import os, signal
from stream_dp.journal.commit import Applied
from stream_dp.kafka.log.journal import KafkaJournal
append = KafkaJournal.append
async def dies(journal, commit, sealed):
    await append(journal, commit, sealed)
    if any(isinstance(change, Applied) for change in commit.changes):
        os.kill(os.getpid(), signal.SIGKILL)
KafkaJournal.append = dies
"""


async def applied(kafka: str, case: Case, *, workers: bool) -> list[bytes]:
    """What is public where the file is changed twice: by `apply` while it runs, and at a start. The engine dies as soon
    as the first change is durable; with workers, before it writes what they are to count, and one of them as soon as it
    has read that.
    """
    shown = json.loads(case.pipeline.read_text())
    shown["privacy"]["epsilon"], shown["clock"]["block"] = 100, 1
    first = json.dumps(shown)
    new = {name: DEFINED[name] for name in ("hourly", "minutes")}
    second = changed(first, ["busiest"], new | {"departures": {"epsilon": 3, "where": LATE}})
    back = {"departures": {"epsilon": EPSILON}}
    third = changed(second, ["minutes", "by_airline", "hourly"], {"hourly_2": LATER} | back)
    case.pipeline.write_text(first)
    await create_topic(kafka, topic_of(case), PARTITIONS)
    with ExitStack() as stack:
        readers = []
        if workers:
            patches = (BOTH, DIES + BOTH + REWOUND)
            readers = [stack.enter_context(working(case, patch)) for patch in patches]

        def begun(patch: str = "") -> Run:
            run = case.start("--zero-noise", patch=AT_ONCE + OFTEN + patch)
            stack.callback(over_with, run)
            return run

        run = begun(DIES + UNLAID if workers else COMMITTED)
        await fed_up_to(kafka, case, 4)
        await public(kafka, case, 3)
        case.pipeline.write_text(second)
        apply = Forked(("apply", str(case.pipeline), "--via", "kafka"), case.environment())
        stack.callback(over_with, apply)
        if not workers:
            await until_killed(run)
            run = begun()  # and gives the answer
        out, errors = await asyncio.to_thread(apply.communicate)
        assert apply.returncode == 0, errors
        assert "+ series hourly" in out
        assert "~ series departures: version 2 starts at zero at tick 5" in out
        await fed_up_to(kafka, case, 8)
        if workers:
            await until_killed(run)
            assert (await layout_of(kafka, case)).epoch == 0
            run = begun()
        await public(kafka, case, 7)
        run.kill()
        run.communicate()
        case.pipeline.write_text(third)
        if workers:
            await until_killed(readers.pop())
            readers.append(stack.enter_context(working(case, BOTH)))  # with the new file
        run = begun(APPLY)
        await public(kafka, case, 7)
        await fed_up_to(kafka, case, 12)
        await public(kafka, case, 11)
        assert all(reader.poll() is None for reader in readers)
        if workers:
            assert (await layout_of(kafka, case)).epoch == 2
    return await bodies(kafka, case)


@pytest.mark.full
async def test_a_changed_file_is_applied_with_workers_as_in_one_process(
    kafka: str, tmp_path: Path
) -> None:
    published = list[list[bytes]]()
    for workers in (False, True):
        folder = tmp_path / f"{workers}"
        folder.mkdir()
        lanes: dict[str, Any] = {"workers": {"lanes": PARTITIONS}} if workers else {}
        case = over(kafka, folder, 12, **lanes)
        published.append(await applied(kafka, case, workers=workers))
    one, by_workers = published
    ticks, last = defaultdict(list), dict[int, int]()
    for body in map(json.loads, one):
        version = body.get("version", 1)
        ticks[body["series"], version].append(body["tick"])
        if body["series"] == "departures":
            last[version] = body["value"]
    spans = {
        ("departures", 1): (0, 4), ("by_destination", 1): (0, 12), ("late", 1): (0, 12), ("by_airline", 1): (0, 8),
        ("busiest", 1): (0, 4), ("hourly", 1): (5, 8), ("minutes", 1): (5, 8), ("hourly_2", 1): (9, 12),
        ("departures", 2): (5, 8), ("departures", 3): (9, 12),
    }  # fmt: skip
    assert ticks == {name: [*range(*span)] for name, span in spans.items()}
    assert [json.loads(body)["sequence"] for body in one] == [*range(1, len(one) + 1)]
    assert last == {
        version: sum(
            begin <= event.tick < end and (version != 2 or (event.fields["delay"] or 0) >= 60)
            for event in case.events
        )
        for version, (begin, end) in ((v, spans["departures", v]) for v in (1, 2, 3))
    }
    assert by_workers == one
    ledger = await read_ledger(case.pipeline, case.folder / "operator.key", lambda _: None)
    assert Fraction(ledger["spent"]) == 5 * EPSILON + EPSILON + 1
    charged = {
        (row["name"], row.get("version", 1)): (row["start"], row["end"])
        for row in ledger["charges"][1:]
    }
    assert charged == {
        ("hourly", 1): (5, 8), ("minutes", 1): (5, 8), ("departures", 2): (5, 8), ("hourly_2", 1): (9, None),
        ("departures", 3): (9, None),
    }  # fmt: skip
