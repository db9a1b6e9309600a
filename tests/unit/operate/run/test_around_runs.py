"""Before and around a run: where Kafka is, whose journal it is, what is waited for, and how outages are ridden out."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, nullcontext, suppress
from dataclasses import replace
from itertools import pairwise, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from unit.live.live_series_worlds import PIPELINE, SEALER, World, batches

from stream_dp.cli.main import code_of
from stream_dp.core.wire import wire_of
from stream_dp.errors import FailClosed, Outage, TakenOver, UnknownFormat, UsageError, WorldError
from stream_dp.files.memory import MemorySource
from stream_dp.files.sqlite import SqliteJournal
from stream_dp.journal.commit import Header
from stream_dp.journal.keys import Sealer
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.operate.audit import journal_access
from stream_dp.operate.audit.journal_access import (
    _header,
    built_of,
    require_own,
    sealed_commits,
)
from stream_dp.operate.published_bodies import TickTimes
from stream_dp.operate.run import settings
from stream_dp.operate.run.lane_processes import PipedLane, _framed
from stream_dp.operate.run.run_pipeline import lived, standing_by, start_line
from stream_dp.operate.run.running import Run
from stream_dp.operate.run.settings import RESTARTS, WINDOW_S, Patience, settings_at, settings_for
from stream_dp.operate.run.worker import Worker
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.records.endpoints import (
    FileSourceSpec,
    KafkaSourceSpec,
    ReplayClock,
    Security,
    WallClock,
)
from stream_dp.server.view import ReleaseLog


class Time:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


def patience(time: Time, seconds: float = 300, **more: Any) -> Patience:
    return Patience(seconds, now=time, **more)


def test_before_anything_ran_the_error_is_told_at_once(time: Time) -> None:
    wrong = Outage("no broker at nowhere:1")
    with pytest.raises(Outage) as caught:
        patience(time).wait(wrong, advanced=False)
    assert caught.value is wrong
    assert patience(time, from_the_start=True).wait(wrong, advanced=False) > 0


def test_waits_grow_up_to_some_seconds_and_begin_anew_after_a_commit(time: Time) -> None:
    riding = patience(time)
    riding.runs()
    waits = [riding.wait(Outage("out"), advanced=False) for _ in range(12)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (0.05, 5.0)
    riding.runs()
    assert riding.wait(Outage("out"), advanced=True) == 0.05


def test_patience_counts_from_the_first_failure_to_the_next_commit(time: Time) -> None:
    riding = patience(time)
    for _ in range(3):
        riding.runs()
        riding.wait(Outage("it began so"), advanced=True)
        time.now += 300
        riding.wait(Outage("it goes on so"), advanced=False)
    time.now += 1
    with pytest.raises(WorldError) as caught:
        riding.wait(Outage("it ends so"), advanced=False)
    assert type(caught.value) is WorldError
    said = str(caught.value)
    assert said.startswith(
        "it ends so. stream_dp tried again and gave up, because nothing could be committed for 300 s"
    )
    assert "the first error was: it began so" in said


def test_what_fails_again_and_again_ends_although_it_commits(time: Time) -> None:
    riding = patience(time)
    for _ in range(RESTARTS):
        riding.runs()
        riding.wait(Outage("again"), advanced=True)
    riding.runs()
    with pytest.raises(WorldError, match=f"failed {RESTARTS} times within an hour"):
        riding.wait(Outage("again"), advanced=True)


def test_attempts_are_forgotten_after_an_hour(time: Time) -> None:
    riding = patience(time, WINDOW_S)
    for _ in range(3 * RESTARTS):
        riding.runs()
        riding.wait(Outage("again"), advanced=True)
        time.now += WINDOW_S / RESTARTS + 1
    riding.runs()
    for _ in range(3 * RESTARTS):
        riding.wait(Outage("again"), advanced=True)


class Slow:
    """A presence that brokers take in when they are told to."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.taken = asyncio.Event()
        self.left = 0

    async def join(self) -> None:
        self.asked.set()
        await self.taken.wait()

    async def leave(self) -> None:
        self.left += 1


@pytest.mark.parametrize("joins", [True, False])
async def test_an_engine_runs_once_it_is_there_and_a_stop_does_not_wait(joins: bool) -> None:
    presence, stopped, entered = Slow(), asyncio.Event(), asyncio.Event()

    async def running() -> None:
        async with standing_by(cast("Any", presence), stopped, None) as to_run:
            assert to_run
            entered.set()
            await stopped.wait()

    run = asyncio.create_task(running())
    await presence.asked.wait()
    for _ in range(100):
        await asyncio.sleep(0)
    assert not entered.is_set()
    if joins:
        presence.taken.set()
        await entered.wait()
    stopped.set()
    await run
    assert presence.left == 1


async def lives(outcomes: list[str], *, standby: bool) -> int:
    """How many runs were begun until one came to its end; `outcomes` says what becomes of each."""
    every: list[object] = []

    def begun() -> Any:
        every.append(object())
        return every[-1]

    async def live(_: Any) -> None:
        if outcomes[len(every) - 1] == "shut out":
            raise TakenOver("another engine has taken over")

    found: Any = await lived(begun, live, standby=standby)
    assert found is every[-1]
    return len(every)


async def test_a_standby_that_is_shut_out_stands_by_again() -> None:
    assert await lives(["shut out", "shut out", "ends"], standby=True) == 3


async def test_one_that_is_no_standby_ends() -> None:
    with pytest.raises(TakenOver):
        await lives(["shut out", "ends"], standby=False)


SETTINGS = KafkaSettings("127.0.0.1:9")
WAITS = "Waiting for Kafka at 127.0.0.1:9, for 60 s at most"


class Brokers:
    """A cluster that answers each look as it was told: with an error, or with the brokers it names."""

    def __init__(self, *answers: Exception | list[str]) -> None:
        self.answers = [*answers]

    @asynccontextmanager
    async def administering(self, *_: Any) -> AsyncIterator["Brokers"]:
        if isinstance(answer := self.answers.pop(0), Exception):
            raise answer
        self.named = answer
        yield self

    async def describe_cluster(self) -> dict[str, Any]:
        return {"brokers": self.named}


@pytest.mark.parametrize(
    ("answers", "waits"),
    [((Outage("nobody"), Outage("nobody"), [], ["one"]), [WAITS]), ((WorldError("password"),), [])],
)
async def test_brokers_are_waited_for_where_it_helps(
    answers: Any, waits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers, said = Brokers(*answers), list[str]()
    monkeypatch.setattr(settings, "administering", brokers.administering)
    monkeypatch.setattr(settings, "_AGAIN_S", 0.0)
    with nullcontext() if waits else pytest.raises(WorldError, match="password"):
        await settings.brokers_there(SETTINGS, said.append)
    assert (said, brokers.answers) == (waits, [])


TOPIC = KafkaSourceSpec(topic="events", bootstrap="127.0.0.1:9092")
FILE = FileSourceSpec(path=Path("folder/clicks.csv"))
REPLAY = ReplayClock(field="time", start=0, step=3_600_000, horizon=6)


def begun(clock: Any, ticks: int = 0, source: Any = TOPIC, keep: int | None = None) -> Run:
    journal = SimpleNamespace(keep=keep)
    spec = SimpleNamespace(name="clicks", source=source, clock=clock, journal=journal)
    built = SimpleNamespace(spec=spec)
    times = TickTimes(cast("Any", spec), ReleaseLog())
    engine = SimpleNamespace(lanes=1)
    return cast("Run", SimpleNamespace(built=built, ticks=ticks, times=times, engine=engine))


@pytest.mark.parametrize(
    ("started", "origin", "says"),
    [
        (begun(WallClock(step=1000)), 7000,
         "a new ledger; counts the records that arrive in topic events from 1970-01-01T00:00:07Z on, and no "
         "older records"),
        (begun(REPLAY, source=FILE), 0,
         "a new ledger; counts the records of clicks.csv from 1970-01-01T00:00:00Z to 1970-01-01T06:00:00Z"),
        (begun(WallClock(step=1000, start=5000), 3), None,
         "continues with the tick that begins at 1970-01-01T00:00:08Z, and catches up on topic events from there"),
        (begun(REPLAY, 6), None, "all its ticks are published already"),
        (begun(REPLAY, 6, keep=7_200_000), None,
         "all its ticks are published already; its journal keeps about 2 ticks and deletes older ones"),
    ],
)  # fmt: skip
def test_the_line(started: Run, origin: int | None, says: str) -> None:
    assert start_line(started, origin) == f"clicks: {says}"


SECURITY = Security(
    protocol="SASL_SSL",
    mechanism="PLAIN",
    username="engine",
    password_file=Path("/file/password"),
    ca_file=Path("/file/ca"),
)
SECURED = KafkaSourceSpec(topic="t", bootstrap="file:1", security=SECURITY)
FLIGHTS = """\
version: 1
name: flights
source: {kind: kafka, topic: flights, bootstrap: "file:1", security: {protocol: SSL, ca_file: ca.pem}}
schema: {time: {type: time}}
privacy: {epsilon: 1}
clock: {kind: wall, step: 1m}
series: [{name: n, statistic: count, epsilon: 1}]
"""


def test_every_key_of_the_file_reaches_the_client() -> None:
    assert settings_for(SECURED) == KafkaSettings("file:1", SECURITY)
    assert settings_for(KafkaSourceSpec(topic="t", bootstrap="k:1")) == KafkaSettings("k:1")


def test_flag_before_environment_before_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_DP_KAFKA_BOOTSTRAP", "environment:1")
    monkeypatch.setenv("STREAM_DP_KAFKA_PASSWORD_FILE", "mounted/password")
    monkeypatch.setenv("STREAM_DP_KAFKA_MECHANISM", "SCRAM-SHA-512")
    found = settings_for(SECURED)
    assert found.bootstrap == "environment:1"
    changed = {"mechanism": "SCRAM-SHA-512", "password_file": Path("mounted/password")}
    assert found.security == SECURITY.model_copy(update=changed)
    assert settings_for(SECURED, "flag:1").bootstrap == "flag:1"


def test_a_wrong_variable_is_named_without_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_DP_KAFKA_PASSWORD", "swordfish")
    with pytest.raises(UsageError, match="STREAM_DP_KAFKA_PASSWORD is not known") as caught:
        settings_for(SECURED)
    assert "swordfish" not in str(caught.value)
    monkeypatch.delenv("STREAM_DP_KAFKA_PASSWORD")
    monkeypatch.setenv("STREAM_DP_KAFKA_PROTOCOL", "SSL")
    monkeypatch.setenv("STREAM_DP_KAFKA_TOKEN", "eyJhbGciOiJub25lIn0")
    with pytest.raises(UsageError) as caught:
        settings_for(SECURED)
    assert str(caught.value).startswith("STREAM_DP_KAFKA_TOKEN: must be package.module:function")


def test_without_a_file_a_flag_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="--bootstrap, --pipeline or STREAM_DP_KAFKA_BOOTSTRAP"):
        settings_at("", None)
    assert settings_at("k:1", None) == KafkaSettings("k:1")
    file = tmp_path / "flights.yaml"
    file.write_text(FLIGHTS)
    secured = Security(protocol="SSL", ca_file=tmp_path / "ca.pem")
    assert settings_at("", file) == KafkaSettings("file:1", secured)
    assert settings_at("k:1", file) == KafkaSettings("k:1", secured)
    monkeypatch.setenv("STREAM_DP_KAFKA_BOOTSTRAP", "k:2")
    assert settings_at("", None) == KafkaSettings("k:2")


@pytest.mark.parametrize("address", ["nonsense", "k:1,", "k:99999"])
def test_an_address_that_is_none_is_bad_usage(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert code_of(["topic", "t", "--bootstrap", address]) == 2
    assert "--bootstrap: must be host:port" in capsys.readouterr().err
    monkeypatch.setenv("STREAM_DP_KAFKA_BOOTSTRAP", address)
    assert code_of(["topic", "t"]) == 2
    assert "STREAM_DP_KAFKA_BOOTSTRAP: must be host:port" in capsys.readouterr().err


Make = Callable[..., Built]


@pytest.fixture
def made(tmp_path: Path) -> Make:
    def build_it(**changes: Any) -> Built:
        journal = {"kind": "sqlite", "path": str(tmp_path / "shop.journal")}
        releases = {"path": str(tmp_path / "shop.jsonl")}
        data = PIPELINE | {"journal": journal, "releases": releases} | changes
        return build(PipelineSpec.model_validate(data))

    asyncio.run(ran(tmp_path / "shop.journal"))
    return build_it


async def ran(path: Path) -> None:
    await World().engine(MemorySource(batches(), partitions=(0, 1)), SqliteJournal(path)).run()


async def test_its_own_journal_is_no_obstacle(made: Make) -> None:
    await require_own(made(), SEALER, private=True)
    assert len([sealed async for sealed in (await sealed_commits(made().spec)).commits]) > 1


@pytest.mark.parametrize(
    ("filter_", "then", "words"),
    [
        # recorded before it was gone, and before there was a best order
        ("tight_approximate", "0e56ef786402", "was written under `filter: approximate`"),
        ("renyi", "affeda1d29f4", "To go on, write `order: 8` under privacy"),
        ("tight_approximate", "22bdd44cd9c5", "changed: in the pipeline file"),
        ("renyi", "22bdd44cd9c5", "changed: in the pipeline file"),
    ],
)
async def test_the_journal_of_a_filter_that_is_gone_is_refused(
    made: Make, monkeypatch: pytest.MonkeyPatch, filter_: str, then: str, words: str
) -> None:
    async def under(*place: Any) -> Header | None:
        header = await _header(*place)
        return header and msgspec.structs.replace(header, parts={"privacy": then})

    monkeypatch.setattr(journal_access, "_header", under)
    now = {"epsilon": "20", "delta": "1e-9", "filter": filter_}
    with pytest.raises(FailClosed, match=words):
        await require_own(made(privacy=now), SEALER, private=True)


MAXIMUM = {"statistic": "maximum"}
HISTOGRAM = {"statistic": "histogram"}


@pytest.mark.parametrize(
    ("entry", "then", "line"),
    [  # digests of files as they were read before these words had another meaning
        (MAXIMUM, "fbc29bea214e", "method: hss"),
        (HISTOGRAM, "59ec3f02cc7a", "method: typical"),
        (HISTOGRAM | {"method": "auto"}, "59ec3f02cc7a", "method: typical"),
    ],
)
async def test_a_journal_from_before_a_method_changed_is_refused_with_the_line_to_write(
    made: Make, monkeypatch: pytest.MonkeyPatch, entry: dict[str, str], then: str, line: str
) -> None:
    most = {"name": "most", "by": "country", "epsilon": "0.1", **entry}
    key, value = line.split(": ")
    assert made(series=[most | {key: value}]).parts["series"] == then

    async def before(*place: Any) -> Header | None:
        header = await _header(*place)
        return header and msgspec.structs.replace(header, parts={"series": then})

    monkeypatch.setattr(journal_access, "_header", before)
    with pytest.raises(FailClosed, match=f"To go on with this journal, write `{line}` in most"):
        await require_own(made(series=[most]), SEALER, private=True)
    with pytest.raises(FailClosed, match="changed: in the pipeline file"):
        await require_own(made(series=[most | {"epsilon": "0.2"}]), SEALER, private=True)


def test_over_windows_the_method_of_a_histogram_means_what_it_meant(made: Make) -> None:
    most = {"name": "most", "by": "country", "epsilon": "0.1", "windows": ["2h"], **HISTOGRAM}
    assert made(series=[most]).parts["series"] == "d10305f8b419"


def test_order_8_has_the_fingerprint_of_former_files_without_an_order(made: Make) -> None:
    now = {"epsilon": "20", "delta": "1e-9", "filter": "renyi", "order": "8"}
    assert made(privacy=now).parts["privacy"] == "affeda1d29f4"


@pytest.mark.parametrize(
    ("changes", "key", "private", "words"),
    [
        ({"privacy": {"epsilon": "3"}}, SEALER, True, "changed: in the pipeline file: privacy"),
        ({}, Sealer(bytes(32), "shop"), True, "was written with key"),
        ({}, SEALER, False, "whether its noise is private"),
    ],
)
async def test_a_journal_of_another_file_key_or_noise_is_refused(
    made: Make, changes: dict[str, Any], key: Sealer, private: bool, words: str
) -> None:
    with pytest.raises(FailClosed, match=words):
        await require_own(made(**changes), key, private=private)


async def test_other_mechanisms_are_the_codes_doing(
    made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    label = wire_of(Counter)
    monkeypatch.setattr(Counter, "__wire__", replace(label, version=label.version + 1))
    with pytest.raises(FailClosed, match=r"for the same file: use the version that wrote it\)"):
        await require_own(made(), SEALER, private=True)


async def test_an_unknown_form_is_refused_before_the_lease(made: Make, tmp_path: Path) -> None:
    built = made()
    with closing(sqlite3.connect(tmp_path / "shop.journal")) as database, database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(UnknownFormat, match="tables of version 99"):
        await require_own(built, SEALER, private=True)


async def test_no_journal_is_the_engines_business(made: Make, tmp_path: Path) -> None:
    (tmp_path / "shop.journal").unlink()
    await require_own(made(), SEALER, private=True)
    with pytest.raises(UsageError, match="the first run of its pipeline creates it"):
        [sealed async for sealed in (await sealed_commits(made().spec)).commits]
    (tmp_path / "shop.journal").write_bytes(b"no database")
    await require_own(made(), SEALER, private=True)


@pytest.mark.parametrize("answers", [0, 1])
async def test_a_journal_of_which_nobody_tells_is_not_taken_for_none(
    made: Make, monkeypatch: pytest.MonkeyPatch, answers: int
) -> None:
    built, looks = made(), list[int]()

    async def away(*place: Any) -> Any:
        looks.append(1)
        if len(looks) == answers + 1:
            raise Outage("nobody answers")
        return await sealed_commits(*place)

    monkeypatch.setattr(journal_access, "sealed_commits", away)
    monkeypatch.setattr(settings, "backing_off", lambda _: repeat(0.0))
    with pytest.raises(Outage):
        await require_own(built, SEALER, private=True)
    looks.clear()
    assert not await settings.answered(lambda: require_own(built, SEALER, private=True), 60)
    assert len(looks) == answers + 3
    looks.clear()
    with nullcontext() if answers else pytest.raises(Outage):
        await built_of(built.spec, SEALER)


@pytest.mark.parametrize("wrote", [True, False])
async def test_a_worker_whose_rows_come_between_outages_goes_on(
    monkeypatch: pytest.MonkeyPatch, wrote: bool
) -> None:
    spec = PipelineSpec.model_validate(
        PIPELINE | {"source": TOPIC.model_dump() | {"patience": "50ms", "workers": {"lanes": 2}}}
    )
    attempts = list[int]()

    async def attempt(worker: Worker, patience: Patience) -> None:
        attempts.append(1)
        patience.runs()
        worker._wrote = wrote
        await asyncio.sleep(0.03)
        raise Outage("a broker is away") if len(attempts) < 5 else FailClosed("the last one")

    monkeypatch.setattr(Worker, "_attempt", attempt)
    with pytest.raises(FailClosed if wrote else WorldError, match="last" if wrote else "gave up"):
        await Worker(spec, SEALER.worker_keys(), lambda _: None).run()


async def test_a_report_that_comes_slowly_is_read_on_where_waiting_was_given_up() -> None:
    stream = asyncio.StreamReader()
    lane = PipedLane(cast("Any", SimpleNamespace(stdout=stream, stdin=None)))
    slow, next_one = _framed(["a long report", *range(1000)]), _framed("the next one")
    for begin, end in pairwise((0, 3, 8, 11, 900, len(slow))):
        receiving = asyncio.create_task(lane.receive())
        stream.feed_data(slow[begin:end])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if end < len(slow):
            receiving.cancel()
            with suppress(asyncio.CancelledError):
                await receiving
    assert await receiving == ["a long report", *range(1000)]
    stream.feed_data(next_one)
    assert await lane.receive() == "the next one"
