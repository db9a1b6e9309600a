"""A pipeline file that changes while its ledger goes on: what is charged, what is refused, and crashes in between."""

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from live_acts import create_series, halt_series
from msgspec.structs import replace as changed
from unit.journal.runtime_worlds import Crash, CrashingJournal, Fuse
from unit.live.live_series_steps import question, zero
from unit.live.live_series_worlds import HORIZON, PIPELINE, SEALER, Stopping, World

from stream_dp.accounting.amounts import UNITS
from stream_dp.cli.printing import change_lines
from stream_dp.engine.engine import Engine
from stream_dp.engine.history import JournalSummary, read_summary
from stream_dp.engine.ports import Batch, Ports
from stream_dp.engine.run_config import FileChange, RunConfig
from stream_dp.errors import BudgetRefused, FailClosed, NotAccepted, UsageError, WorldError
from stream_dp.files.memory import MemoryJournal, MemorySink
from stream_dp.journal.commit import Applied, Commit, Created, Halted
from stream_dp.journal.dead_letters import Span
from stream_dp.noise import NoiseStream
from stream_dp.operate.audit.journal_access import build_again
from stream_dp.operate.audit.ledger_view import ledger_json
from stream_dp.operate.audit.trace_check import compared
from stream_dp.operate.run.file_change import Changing, against_summary, changed_now
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.fingerprints import fingerprint, text_of, told
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.records.endpoints import KafkaSourceSpec
from stream_dp.testing.manual_clock import ManualClock

ORDERS: dict[str, Any] = {"name": "orders", "statistic": "count", "epsilon": "0.5"}
COUNTRIES: dict[str, Any] = {
    "name": "countries",
    "statistic": "histogram",
    "by": "country",
    "epsilon": "0.4",
}
DEAR: dict[str, Any] = {
    "name": "dear", "statistic": "count", "epsilon": "0.25", "where": [{"field": "amount", "at_least": "5"}],
}  # fmt: skip
SHARE: dict[str, Any] = {"name": "share", "statistic": "ratio", "of": "countries", "over": "orders"}
SUM: dict[str, Any] = {
    "name": "sum",
    "statistic": "sum",
    "of": "amount",
    "clamp": ["0", "9"],
    "epsilon": "0.3",
}
FIRST: list[dict[str, Any]] = [ORDERS, COUNTRIES]


def file(series: list[dict[str, Any]], **more: Any) -> PipelineSpec:
    return PipelineSpec.model_validate(PIPELINE | {"series": series} | more)


class Shop(World):
    """A pipeline whose file changes: it runs `upto` a tick, with the file that is given."""

    def source(self, tick: int, spec: PipelineSpec) -> Stopping:
        return Stopping(tick)

    def moment(self, tick: int) -> int:
        """The time at which a start runs to this tick."""
        return 0

    async def summary(self) -> JournalSummary:
        journal = MemoryJournal(self.store)
        await journal.open()
        begin = journal.begin
        return await read_summary(journal.read(begin), SEALER, "shop", begin=begin)

    async def change(self, spec: PipelineSpec) -> Changing:
        return against_summary(spec, await self.summary())

    async def upto(
        self, tick: int, spec: PipelineSpec, change: FileChange | None = None, fuse: Fuse | None = None
    ) -> Engine:  # fmt: skip
        """Run until this tick is public, as `run` does: with --apply, if there is a change."""
        known = (await self.summary()).applied if self.store.commits else None
        self.__dict__["built"] = build_again(spec, None, known)
        if change is not None:
            self.__dict__["built"] = (await self.change(spec)).built
        source, clock = self.source(tick, spec), ManualClock(self.moment(tick))
        journal = CrashingJournal(self.store, fuse or Fuse())
        ports = Ports(source, journal, MemorySink(self.bodies), clock, SEALER, self.seed)
        engine = self.started(ports, change=change)
        run = asyncio.create_task(engine.run())
        await self.until(tick, run)
        engine.stop()
        source.go(HORIZON)
        await run
        return engine

    async def applied(self, tick: int, spec: PipelineSpec) -> Engine:
        changing = await self.change(spec)
        changing.require()
        return await self.upto(tick, spec, changing.change)

    @property
    def changes(self) -> list[Any]:
        return [change for commit in self.commits() for change in commit.changes]


def summed(first: list[dict[str, Any]], later: list[list[dict[str, Any]]]) -> list[Fraction]:
    """What one event costs under each file, by an independent sum: the first file's series, whatever became of them,
    and of the later files what each has beside them.
    """
    block = sum((Fraction(own["epsilon"]) for own in first), Fraction(0))
    names = {own["name"] for own in first}
    return [block] + [
        block + sum((Fraction(own["epsilon"]) for own in series if own["name"] not in names), Fraction(0))
        for series in later
    ]  # fmt: skip


def spent(engine: Engine) -> Fraction:
    return Fraction(engine.admission.subledgers.main.used.amount, UNITS)


def peak(engine: Engine) -> Fraction:
    return Fraction(engine.admission.subledgers.main.peak.amount, UNITS)


FILES: list[list[dict[str, Any]]] = [
    [ORDERS, COUNTRIES, SUM],
    [ORDERS, SUM],
    [ORDERS],
    [ORDERS, DEAR | {"where": []}],
]


async def test_the_ledger_after_each_change_is_the_independent_sum_of_its_charges() -> None:
    shop = Shop()
    engine = await shop.upto(1, file(FIRST))
    met = summed(FIRST, FILES)
    assert spent(engine) == met[0]
    for number, series in enumerate(FILES, 1):
        engine = await shop.applied(2 * number, file(series))
        assert spent(engine) == met[number]
        assert peak(engine) == max(met[: number + 1])
        fresh = build(file(series))
        assert spent(engine) >= Fraction(fresh.ledger.used.amount, UNITS)
        releasing = {series.name for series in engine.admission.registry.releasing}
        assert releasing == {own["name"] for own in series}
        shown = ledger_json(
            build_again(file(series), None, (await shop.summary()).applied), await shop.summary()
        )
        assert Fraction(shown["spent"]) == met[number]
    charged = [charge.name for commit in shop.commits() for charge in commit.charges]
    assert charged == ["shop: series of the first start", "sum", "dear"]
    kinds = [type(change) for change in shop.changes]
    assert kinds == [Created, Applied, Applied, Halted, Applied, Created, Applied]


async def test_the_charge_is_durable_before_the_series_exists_and_no_tick_is_between() -> None:
    shop = Shop()
    await shop.upto(2, file(FIRST))
    await shop.applied(4, file([*FIRST, SUM]))
    commit = next(commit for commit in shop.commits() if commit.changes)
    assert [type(change) for change in commit.changes] == [Created, Applied]
    assert [charge.name for charge in commit.charges] == ["sum"]
    after = [c for c in shop.commits() if c.sequence > commit.sequence and c.ticks]
    before = [c for c in shop.commits() if c.sequence < commit.sequence]
    assert not any(r.series == "sum" for c in before for r in c.releases)
    assert after[0].ticks[0] == 3
    assert min(shop.releases("sum")) == 3


async def test_what_stays_goes_on_unmoved_and_what_comes_counts_from_its_tick_on() -> None:
    shop = Shop(noise=zero)
    await shop.upto(2, file([*FIRST, SHARE]))
    await shop.applied(HORIZON - 1, file([ORDERS, DEAR]))
    plain = Shop(noise=zero)
    await plain.upto(HORIZON - 1, file([*FIRST, SHARE]))
    assert shop.releases("orders") == plain.releases("orders")
    assert list(shop.releases("countries")) == list(shop.releases("share")) == [0, 1, 2]
    assert list(shop.releases("dear")) == list(range(3, HORIZON))
    assert shop.releases("dear")[6] == sum(
        2 * (tick + 1) * (tick >= 5) for tick in range(3, 7)
    ) + sum(tick >= 3 for tick in range(3, 7))
    sequences = [json.loads(body)["sequence"] for body in shop.bodies]
    assert sequences == list(range(1, len(sequences) + 1))


async def test_a_start_with_the_old_file_is_refused_and_one_with_the_new_goes_on() -> None:
    shop = Shop()
    await shop.upto(2, file(FIRST))
    await shop.applied(4, file([ORDERS, SUM]))
    bodies = list(shop.bodies)
    for old in (file(FIRST), file([ORDERS, SUM, DEAR])):
        with pytest.raises(
            FailClosed, match=r"goes on with another pipeline file.*--against running"
        ):
            await shop.upto(6, old)
        assert shop.bodies == bodies
    await shop.upto(6, file([ORDERS, SUM]))
    assert list(shop.releases("sum")) == [3, 4, 5, 6]
    assert list(shop.releases("countries")) == [0, 1, 2]


async def test_the_twin_that_takes_the_old_file_brings_back_what_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the check above is for: without it an old file is run, and says that a series of it still runs."""
    shop = Shop()
    await shop.upto(2, file(FIRST))
    await shop.applied(4, file([ORDERS, SUM]))
    monkeypatch.setattr(RunConfig, "pending", lambda *_: None)
    engine = await shop.upto(6, file(FIRST))
    ran = {series.name for series in engine.admission.registry.releasing}
    assert ran != {series.name for series in file(FIRST).series}


async def test_a_changed_file_without_apply_is_refused() -> None:
    shop = Shop()
    await shop.upto(2, file(FIRST))
    with pytest.raises(
        FailClosed, match=r"changed: in the pipeline file: mechanisms, series.*--against"
    ):
        await shop.upto(4, file([*FIRST, SUM]))


@pytest.mark.parametrize("read_again", [3_600_000, 1])
async def test_a_crash_anywhere_leaves_one_file_one_ledger_and_one_version(read_again: int) -> None:
    """Whether the change is durable decides with which file the next start goes on. Where nothing is read again, what
    comes begins a tick later.
    """
    old, new = file([*FIRST, SHARE]), file([ORDERS, SUM, DEAR])
    both = set[bool]()
    for place in range(1, 7):  # before and behind the change, and two commits of ticks
        shop = Shop(read_again=read_again)
        await shop.upto(2, old)
        before = list(shop.bodies)
        with pytest.raises(Crash):
            await shop.upto(HORIZON, new, (await shop.change(new)).change, Fuse(place))
        durable = any(isinstance(change, Applied) for change in shop.changes)
        both.add(durable)
        first, then = (new, old) if durable else (old, new)
        with pytest.raises(FailClosed):
            await shop.upto(HORIZON - 1, then)
        changing = await shop.change(new)
        assert (changing.change is None) == durable
        await shop.upto(5, first)
        engine = await shop.upto(8, new, (await shop.change(new)).change)
        assert shop.bodies[: len(before)] == before
        assert [r.body for c in shop.commits() for r in c.releases] == shop.bodies
        assert spent(engine) == summed([ORDERS, COUNTRIES], [[SUM, DEAR]])[1]
        assert [type(c) for c in shop.changes] == [Created, Created, Applied]
        applied = shop.changes[-1]
        assert min(shop.releases("sum")) == applied.at + (read_again == 1)
        assert max(shop.releases("countries")) == max(shop.releases("share")) == applied.at - 1
    assert both == {True, False}


@pytest.mark.parametrize("read_again", [3_600_000, 1])
async def test_series_that_share_columns_count_after_a_crash_what_they_count_without(
    read_again: int,
) -> None:
    """Two series that come count on one column, where one that ends counted an early record that they do not see."""
    told = set[str]()
    german = DEAR | {"epsilon": "0.1", "where": [{"field": "country", "equals": "DE"}]}
    new = file([*FIRST, german | {"name": "a"}, german | {"name": "b"}])
    for place in (None, *range(1, 5)):
        shop = Shop(noise=zero, read_again=read_again)
        await shop.upto(1, file(FIRST))
        await shop.applied(5, file([*FIRST, DEAR]))
        if place is not None:
            with pytest.raises(Crash):
                await shop.upto(HORIZON - 1, new, (await shop.change(new)).change, Fuse(place))
        await shop.upto(HORIZON - 1, new, (await shop.change(new)).change)
        first = 6 + (read_again == 1)
        assert shop.releases("a")[first] == shop.releases("b")[first] == 2 * (first + 1)
        told.add(str(shop.releases("a")))
    assert len(told) == 1


async def test_what_comes_on_columns_of_what_stays_takes_nothing_from_it_whatever_crashes() -> None:
    """The early record was read before the change, which begins a tick later, and counts in what stays."""
    plain, new = Shop(noise=zero), file([*FIRST, ORDERS | {"name": "more", "epsilon": "0.2"}])
    await plain.upto(HORIZON - 1, file(FIRST))
    for place in range(1, 5):
        shop = Shop(noise=zero, read_again=1)
        await shop.upto(5, file(FIRST))
        with pytest.raises(Crash):
            await shop.upto(HORIZON - 1, new, (await shop.change(new)).change, Fuse(place))
        await shop.upto(HORIZON - 1, new, (await shop.change(new)).change)
        assert shop.releases("orders") == plain.releases("orders")


async def test_a_checkpoint_keeps_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_dp.engine.engine.SNAPSHOT_TICKS", 1)
    shop = Shop()
    await shop.upto(1, file(FIRST))
    await shop.applied(2, file([ORDERS, SUM]))
    await shop.applied(3, file([ORDERS, SUM, DEAR]))
    await shop.upto(10, file([ORDERS, SUM, DEAR]))
    assert shop.store.checkpoints[0] > max(c.sequence for c in shop.commits() if c.changes)
    engine = await shop.upto(11, file([ORDERS, SUM, DEAR]))
    assert engine.admission.applied is not None
    assert engine.admission.applied.ended == ("countries",)
    assert spent(engine) == Fraction("1.45")
    with pytest.raises(FailClosed, match="another pipeline file"):
        await shop.upto(11, file(FIRST))


async def test_a_change_that_waited_is_recorded_at_the_cut_where_it_is_applied() -> None:
    shop, new = Shop(), file([ORDERS, SUM])
    await shop.upto(1, file(FIRST))
    change = (await shop.change(new)).change
    assert change is not None
    await shop.upto(4, file(FIRST))
    await shop.upto(6, new, change)
    assert [change.at for change in shop.changes if isinstance(change, Applied)] == [5]
    assert max(shop.releases("countries")) == 4


@pytest.mark.parametrize("ticks", [1, 100])
async def test_a_start_says_from_when_on_each_first_series_has_ended_and_leaves_no_name(
    ticks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also from a checkpoint, which has only the last change of the file."""
    monkeypatch.setattr("stream_dp.engine.engine.SNAPSHOT_TICKS", ticks)
    shop = Shop()
    await shop.upto(1, file([*FIRST, DEAR]))
    await shop.applied(3, file([ORDERS, DEAR]))
    engine = await shop.applied(5, file([ORDERS]))
    assert not engine.admission.left
    await shop.upto(8, file([ORDERS]))
    assert bool(shop.store.checkpoints) == (ticks == 1)
    engine = await shop.upto(9, file([ORDERS]))
    listed = shop.words.listed(engine.admission, None)
    assert [(row["name"], row["end"]) for row in listed] == [
        ("orders", None), ("countries", 2), ("dear", 4),
    ]  # fmt: skip
    assert not engine.admission.left


async def test_a_start_is_tried_over_a_change_before_anything_is_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stream_dp.engine.engine.SNAPSHOT_TICKS", 1)
    shop, new = Shop(), file([ORDERS, SUM])
    await shop.upto(6, file(FIRST))
    await shop.applied(HORIZON - 1, new)
    newer, older = shop.store.checkpoints
    assert older < next(c.sequence for c in shop.commits() if c.changes) < newer
    engine = shop.engine(Stopping())
    await engine._ports.journal.open()
    await engine.tried(newer, older)


async def test_the_trace_of_a_changed_file_is_a_trace_of_the_composition() -> None:
    shop = Shop()
    await shop.upto(2, file([*FIRST, SHARE]))
    await shop.applied(5, file([ORDERS, SUM]))
    built = build_again(file([ORDERS, SUM]), None, (await shop.summary()).applied)
    journal = MemoryJournal(shop.store)
    await journal.open()
    report = await compared(built, SEALER, journal.read())
    assert report.counts.creations == 3
    assert report.counts.halts == 1


async def test_series_of_the_operator_and_of_analysts_stay() -> None:
    shop = Shop()
    with_ann = {"privacy": {"epsilon": "3", "analysts": [{"name": "ann", "epsilon": "0.5"}]}}
    shop.__dict__["built"] = build(file(FIRST, **with_ann))
    source = Stopping(1)
    engine = shop.engine(source)
    run = asyncio.create_task(engine.run())
    await shop.until(1)
    await create_series(engine, question("mine", "0.2"))
    await create_series(engine, question("hers", "0.2"), "ann")
    source.go(3)
    await shop.until(3)
    engine.stop()
    await run
    engine = await shop.applied(6, file([ORDERS, SUM], **with_ann))
    assert {s.name for s in engine.admission.registry.releasing} == {
        "orders",
        "sum",
        "mine",
        "hers",
    }
    again = await shop.change(file([ORDERS], **with_ann))
    assert again.change is not None
    assert again.change.halted == ("sum",)


async def test_what_a_message_halted_is_told_and_does_not_count_as_what_stays() -> None:
    shop = Shop()
    await shop.upto(1, file(FIRST))
    await shop.applied(3, file([ORDERS, SUM]))
    shop.__dict__["built"] = build_again(file([ORDERS, SUM]), None, (await shop.summary()).applied)
    source = Stopping(4)
    engine = shop.engine(source)
    run = asyncio.create_task(engine.run())
    await shop.until(4)
    await halt_series(engine, "sum")
    engine.stop()
    source.go(HORIZON)
    await run
    assert (await shop.change(file([ORDERS, SUM]))).shown["halted"] == ["sum"]
    with pytest.raises(UsageError, match="one of those that run must stay"):
        (await shop.change(file([SUM, DEAR]))).require()
    engine = await shop.applied(6, file([ORDERS]))
    assert spent(engine) == Fraction("0.9")


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"privacy": {"epsilon": "3"}}, r"privacy \(epsilon\): the ledger promises"),
    ({"privacy": {"epsilon": "2", "neighbors": "replace"}}, r"privacy \(moves, neighbors\)"),
    ({"clock": PIPELINE["clock"] | {"step": "2h"}}, r"clock \(step\): ticks are counted"),
    ({"confidence": "0.9"}, "confidence: what is public names it"),
    (
        {"series": [ORDERS | {"epsilon": "0.6"}, COUNTRIES | {"epsilon": "0.3"}]},
        "one of those that run must stay",
    ),
    ({"series": [SUM]}, "one of those that run must stay"),
    ({"series": [*FIRST, SHARE]}, "series share: statistic: is made of releases"),
    ({"series": [ORDERS, DEAR | {"name": "who", "statistic": "distinct", "of": "country"}]}, "series who: "),
    ({"schema": {k: v for k, v in PIPELINE["schema"].items() if k != "amount"}}, "schema.amount: a field stays"),
    (
        {"schema": PIPELINE["schema"] | {"country": {"type": "category", "domain": ["DE"]}}},
        "schema.country: what a field of before means",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("now", "why"), REFUSED)
async def test_what_cannot_change_is_refused_by_name(now: dict[str, Any], why: str) -> None:
    shop = Shop()
    await shop.upto(1, file(FIRST))
    changing = await shop.change(file(now.pop("series", FIRST), **now))
    with pytest.raises(UsageError, match=why):
        changing.require()


async def test_what_does_not_fit_is_refused_with_what_is_left_and_changes_nothing() -> None:
    shop = Shop()
    await shop.upto(1, file(FIRST))
    commits = len(shop.store.commits)
    new = file([ORDERS, SUM, DEAR | {"epsilon": "1"}])
    changing = await shop.change(new)
    with pytest.raises(BudgetRefused, match=r"series dear: .*0\.8"):
        changing.require()
    with pytest.raises(BudgetRefused):
        await shop.upto(3, new, changing.change)
    assert len(shop.store.commits) == commits
    await shop.upto(3, file(FIRST))


async def test_a_series_that_has_ended_does_not_come_back_under_its_name() -> None:
    shop = Shop()
    await shop.upto(1, file(FIRST))
    await shop.applied(3, file([ORDERS]))
    with pytest.raises(UsageError, match="choose another name"):
        (await shop.change(file(FIRST))).require()


async def test_words_need_no_commit_and_a_field_that_comes_is_read() -> None:
    shop = Shop(noise=zero)
    await shop.upto(1, file(FIRST))
    commits = len(shop.store.commits)
    titled = file([ORDERS | {"title": "All orders"}, COUNTRIES])
    changing = await shop.change(titled)
    assert (changing.change, changing.shown["words"], changing.shown["pending"]) == (
        None,
        ["orders"],
        False,
    )
    await shop.upto(2, titled)
    assert not any(commit.changes for commit in shop.commits()[commits:])
    wide = {"schema": PIPELINE["schema"] | {"shop": {"type": "text"}}}
    shops = {
        "name": "shops",
        "statistic": "count",
        "epsilon": "0.1",
        "where": [{"field": "shop", "equals": "a"}],
    }
    engine = await shop.applied(5, file([*FIRST, shops], **wide))
    assert engine.admission.registry.named("shops") is not None
    assert shop.releases("shops") == {
        3: 0,
        4: 0,
        5: 0,
    }  # no record has the field, and all count elsewhere
    assert shop.releases("orders")[5] == sum(2 * (tick + 2) for tick in range(6)) + 2


async def test_a_journal_that_keeps_no_file_takes_the_one_it_ran_with() -> None:
    shop = Shop()
    await shop.upto(1, file(FIRST))
    shop.rewrite(lambda c: {} if c.header is None else {"header": changed(c.header, file=b"")})
    new = file([*FIRST, SUM])
    with pytest.raises(UsageError, match=r"--was OLD\.yaml"):
        await shop.change(new)
    with pytest.raises(FailClosed, match="another version of this pipeline file"):
        against_summary(new, await shop.summary(), file([ORDERS]))
    changing = against_summary(new, await shop.summary(), file(FIRST))
    assert changing.change is not None
    assert changing.change.applied.first == text_of(file(FIRST))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda c: {"charges": ()}, "does not add up"),
        (lambda c: {"changes": c.changes[1:]}, "."),
        (
            lambda c: {"changes": c.changes[:1]},
            "another pipeline file|of another version|changed: in",
        ),
        (lambda c: {"changes": (c.changes[0], changed(c.changes[1], at=4))}, "does not add up"),
        (
            lambda c: {"changes": (c.changes[0], changed(c.changes[1], first=b"{}"))},
            "cannot read",
        ),
    ],
)
async def test_a_journal_whose_change_was_altered_is_refused(change: Any, why: str) -> None:
    shop = Shop()
    await shop.upto(2, file(FIRST))
    new = file([ORDERS, SUM])
    await shop.applied(4, new)
    shop.rewrite(lambda commit: change(commit) if commit.changes else {})
    with pytest.raises(FailClosed, match=why):
        await shop.upto(6, new)


async def test_a_journal_in_which_an_ended_series_comes_back_is_refused() -> None:
    shop = Shop()
    await shop.upto(1, file(FIRST))
    await shop.applied(3, file([ORDERS, SUM]))
    await shop.applied(5, file([ORDERS, SUM, DEAR]))
    back = [changed(c, ended=()) for c in shop.changes if isinstance(c, Applied)][-1]
    shop.rewrite(
        lambda commit: {"changes": tuple(
            back if isinstance(c, Applied) and c.at == back.at else c for c in commit.changes
        )}
    )  # fmt: skip
    with pytest.raises(FailClosed, match="cannot start again"):
        await shop.upto(6, file([ORDERS, SUM, DEAR]))


async def test_the_twin_that_writes_the_new_file_into_the_header_is_caught() -> None:
    """A change is a commit of the chain: a header that names the new file has other charges than it derives."""
    shop = Shop()
    await shop.upto(2, file(FIRST))
    built = build(file([*FIRST, SUM]))

    def header(commit: Commit) -> dict[str, Any]:
        if commit.header is None:
            return {}
        says = {"fingerprint": built.fingerprint, "parts": built.parts}
        return {"header": changed(commit.header, **says)}

    shop.rewrite(header)
    with pytest.raises(FailClosed, match="does not give the recorded bytes"):
        await shop.upto(4, file([*FIRST, SUM]))


async def test_a_journal_of_before_goes_on_with_its_file() -> None:
    """Its header keeps no file, and nothing is added to it."""
    shop = Shop()
    await shop.upto(2, file(FIRST))
    shop.rewrite(lambda c: {} if c.header is None else {"header": changed(c.header, file=b"")})
    await shop.upto(HORIZON - 1, file(FIRST))
    assert shop.changes == []
    assert len({json.loads(body)["tick"] for body in shop.bodies}) == HORIZON


async def sent(
    shop: Shop, engine: Engine, spec: PipelineSpec, signer: str = "", name: str = "a"
) -> Any:
    """The answer to a message that applies a file."""
    until = "1970-01-01T01:00:00Z"
    head = json.dumps({"id": name, "analyst": signer, "until": until, "do": "apply"})
    text = f'{head[:-1]}, "file": {told(spec).decode()}}}'
    return json.loads(await engine.tell(text.encode(), signer))


async def at_tick(shop: Shop, spec: PipelineSpec, act: Any, fuse: Fuse | None = None) -> None:
    """Run a pipeline with this file, and do something behind tick 2; then to the end."""
    known = (await shop.summary()).applied if shop.store.commits else None
    shop.__dict__["built"] = build_again(spec, None, known)
    source = Stopping(2)
    engine = shop.engine(source, CrashingJournal(shop.store, fuse or Fuse()))
    run = asyncio.create_task(engine.run())
    await shop.until(2, run)
    try:
        if not run.done():
            await act(engine)
    finally:
        source.go(HORIZON)
        await run


async def test_a_running_engine_applies_a_file_in_one_commit_and_goes_on() -> None:
    shop, new = Shop(noise=NoiseStream), file([ORDERS, SUM, DEAR])

    async def act(engine: Engine) -> None:
        answer = (await sent(shop, engine, new))["answer"]
        assert [row["name"] for row in answer["added"]] == ["sum", "dear"]
        assert (answer["before"]["spent"], answer["after"]["spent"]) == ("0.9", "1.45")
        with pytest.raises(NotAccepted, match="came before, and was executed"):
            await sent(shop, engine, new)
        again = (await sent(shop, engine, new, name="b"))["answer"]
        assert again["pending"] is False

    await at_tick(shop, file([*FIRST, SHARE]), act)
    changing = [commit for commit in shop.commits() if commit.changes]
    assert [[type(c) for c in commit.changes] for commit in changing] == [
        [Created, Created, Applied]
    ]
    assert list(shop.releases("countries")) == list(shop.releases("share")) == [0, 1, 2]
    assert min(shop.releases("sum")) == min(shop.releases("dear")) == 3
    engine = await shop.upto(HORIZON - 1, new)
    assert spent(engine) == Fraction("1.45")
    listed = {row["name"]: row["end"] for row in shop.words.listed(engine.admission, None)}
    assert listed == {"orders": None, "sum": None, "dear": None, "countries": 3, "share": 3}
    with pytest.raises(FailClosed, match="another pipeline file"):
        await shop.upto(HORIZON - 1, file([*FIRST, SHARE]))


async def test_a_running_engine_refuses_and_changes_nothing() -> None:
    shop = Shop()
    wide = {"schema": PIPELINE["schema"] | {"shop": {"type": "text"}}}
    refused = [
        (file([*FIRST, SUM, DEAR | {"epsilon": "1"}]), "series dear"),
        (file([*FIRST], privacy={"epsilon": "3"}), "privacy (epsilon)"),
        (file([*FIRST, SUM], **wide), "schema (shop): a field comes with a start"),
    ]

    async def act(engine: Engine) -> None:
        before = engine.admission.save()
        for number, (spec, why) in enumerate(refused):
            answer = await sent(shop, engine, spec, name=f"r{number}")
            assert why in answer["refused"]["detail"]
        assert engine.admission.save() == before
        answer = await sent(shop, engine, file([*FIRST, SUM]), name="fits")
        assert answer["answer"]["after"]["spent"] == "1.2"

    await at_tick(shop, file(FIRST), act)


async def test_only_the_operator_applies_a_file() -> None:
    shop = Shop()
    ann = {"privacy": {"epsilon": "3", "analysts": [{"name": "ann", "epsilon": "0.5"}]}}

    async def act(engine: Engine) -> None:
        answer = await sent(shop, engine, file([*FIRST, SUM], **ann), "ann")
        assert (
            answer["refused"]["detail"] == "file: only the operator applies a changed pipeline file"
        )

    await at_tick(shop, file(FIRST, **ann), act)
    assert shop.changes == []


async def test_after_a_crash_around_a_message_the_journal_says_which_file_runs() -> None:
    old, new, both = file(FIRST), file([ORDERS, SUM]), set[bool]()
    for place in range(1, 13):
        shop = Shop()

        async def act(engine: Engine, shop: Shop = shop) -> None:
            with suppress(WorldError):
                await sent(shop, engine, new)

        with suppress(Crash):
            await at_tick(shop, old, act, Fuse(place))
        durable = any(isinstance(change, Applied) for change in shop.changes)
        both.add(durable)
        if shop.store.commits:
            with pytest.raises(FailClosed):
                await shop.upto(HORIZON - 1, old if durable else new)
        engine = await shop.upto(HORIZON - 1, new if durable else old)
        assert spent(engine) == (Fraction("1.2") if durable else Fraction("0.9"))
        assert [r.body for c in shop.commits() for r in c.releases] == shop.bodies
    assert both == {True, False}


def test_an_attempt_behind_the_one_that_applied_a_file_goes_on() -> None:
    """A run that was begun with the old file knows what it applied meanwhile; a start does not."""
    old, new = build(file(FIRST)), fingerprint(file([*FIRST, SUM]))
    applied, config = Applied(3, new, b"", b""), old.run_config(0)
    assert replace(config, applied=new).pending(applied) is None
    assert replace(config, applied=new).pending(None) is None  # it was not durable after all
    with pytest.raises(FailClosed, match="another pipeline file"):
        config.pending(applied)


@pytest.mark.parametrize(
    "privacy",
    [
        {"epsilon": "3", "delta": "1e-6"},
        {"epsilon": "3", "delta": "1e-6", "filter": "basic"},
        {"epsilon": "5", "delta": "1e-6", "filter": "zcdp"},
        {"epsilon": "3", "neighbors": "replace"},
        {"epsilon": "3", "unit": "user", "user": "country", "max_events": "2", "per": "12h"},
    ],
)
async def test_under_every_filter_the_ledger_is_that_of_the_first_block_and_what_runs(
    privacy: dict[str, str],
) -> None:
    """The oracle is a ledger of its own: the first file's, charged with what each file has beside it, and with
    nothing else. It is no less than that of the file alone.
    """
    shop, noisy = Shop(), {"privacy": privacy}
    files = [[*FIRST, SUM], [ORDERS, SUM, DEAR], [ORDERS, DEAR]]
    await shop.upto(1, file(FIRST, **noisy))
    for number, series in enumerate(files, 1):
        at = 1 + 2 * number
        engine = await shop.applied(at, file(series, **noisy))
        main = engine.admission.subledgers.main
        alone = build(file(FIRST, **noisy)).ledger
        planner = shop.planner
        for own in series[1:]:
            if own["name"] not in {"orders", "countries"}:
                planned = planner.propose(json.dumps(own).encode(), at)
                alone = alone.charge(alone.price(planned.derivation, planned.box), at)
        assert main.used.amount >= alone.used.amount
        assert main.used.amount >= build(file(series, **noisy)).ledger.used.amount
        if main.frees:
            assert main.used.amount == alone.used.amount
        known = (await shop.summary()).applied
        ledger_json(build_again(file(series, **noisy), None, known), await shop.summary())


def framed(*ids: int, **more: Any) -> PipelineSpec:
    """A topic of JSON values behind the numbers of these schemas."""
    values = {"format": "json", "ids": list(ids)}
    source = {"kind": "kafka", "topic": "t", "bootstrap": "127.0.0.1:9092", "values": values}
    clock = {"kind": "wall", "step": "1s", "start": "1970-01-01T00:00:00Z", "horizon": str(HORIZON)}
    schema = {"country": {"type": "category", "domain": ["DE", "FR"]}}
    journal = {"kind": "sqlite", "path": "j"}
    return file([ORDERS], source=source, clock=clock, schema=schema, journal=journal, **more)


class Topic(Shop):
    """Each tick brings each of two partitions two records of schema 7, one of 9 and one of 8."""

    def moment(self, tick: int) -> int:
        return 1000 * (tick + 1) + 600

    def source(self, tick: int, spec: PipelineSpec) -> Stopping:
        assert isinstance(spec.source, KafkaSourceSpec)
        read = spec.source.read(spec.fields)
        assert read is not None
        assert read.value is not None
        given = []
        for number, partition in product(range(HORIZON), (0, 1)):
            values, dead = list[bytes](), list[Span]()
            for at, schema in enumerate((7, 9, 7, 8), 5 * number):
                value = read.value(b'\0\0\0\0%c{"country":"DE"}' % schema)
                if isinstance(value, str):
                    dead.append(Span(value, None, at, at))
                else:
                    values.append(value)
            given.append(
                Batch(
                    partition, values, range(5 * number, 5 * number + len(values)), 5 * number + 5,
                    tick=number, mark=number, refused=dead,
                )
            )  # fmt: skip
        return Stopping(tick, given)


async def test_records_of_an_added_schema_count_from_the_cut_on_and_are_dead_letters_before() -> (
    None
):
    topic = Topic(noise=zero)
    await topic.upto(4, framed(7))
    with pytest.raises(FailClosed, match="the journal was written for another pipeline file"):
        await topic.upto(6, framed(7, 9))
    changing = await topic.change(framed(7, 9))
    assert changing.shown["schemas"] == [{"id": 9, "start": 5}]
    assert list(change_lines(changing.shown))[1] == (
        "  + schema 9: its records count from tick 5 on; earlier records with this schema were dead letters"
    )
    await topic.applied(8, framed(7, 9))
    counts = topic.releases("orders")
    assert [counts[tick] for tick in range(9)] == [4, 8, 12, 16, 20, 26, 32, 38, 44]
    dead = {8: 0, 4: 0}
    for commit in topic.commits():
        if commit.ticks:
            found = sum(span.records for span in commit.dead_letters)
            dead[4 if commit.ticks[-1] <= 4 else 8] += found
    assert dead == {4: 5 * 4, 8: 4 * 2}
    with pytest.raises(FailClosed, match="goes on with another pipeline file"):
        await topic.upto(9, framed(7))
    await topic.upto(9, framed(9, 7))
    await topic.applied(11, framed(7, 9, 8))
    counts = topic.releases("orders")
    assert [counts[tick] for tick in (9, 10, 11)] == [50, 58, 66]
    charged = [charge for commit in topic.commits() for charge in commit.charges]
    assert len(charged) == 1


async def test_a_schema_that_goes_or_comes_by_message_is_refused() -> None:
    topic = Topic(noise=zero)
    engine = await topic.upto(4, framed(7, 9))
    for other in (framed(7), framed(8), framed(7, 8)):
        with pytest.raises(UsageError, match=r"source \(values\): the ledger is of one source"):
            (await topic.change(other)).require()
    with pytest.raises(UsageError, match=r"source\.values \(10\): a schema comes with a start"):
        changed_now(topic.built, engine.admission, told(framed(7, 9, 10)), 5)
