"""A series whose definition a changed file changes: another mechanism, charge and line under the same name."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from fractions import Fraction
from typing import Any

import pytest
from live_acts import create_series, halt_series
from msgspec.structs import replace as changed
from unit.journal.runtime_worlds import Crash, CrashingJournal, Fuse
from unit.live.live_series_steps import question, zero
from unit.live.live_series_worlds import HORIZON, SEALER, Stopping, seen_from
from unit.live.monitor_worlds import FR, MONITOR, PIPELINE_M, expected
from unit.live.test_changed_file import (
    COUNTRIES,
    DEAR,
    FIRST,
    ORDERS,
    SHARE,
    SUM,
    Shop,
    at_tick,
    file,
    peak,
    sent,
    spent,
)

from stream_dp.accounting.amounts import UNITS
from stream_dp.accounting.loads import Loads
from stream_dp.accounting.subledgers import Subledgers
from stream_dp.cli.printing import change_lines
from stream_dp.engine.admission import Admission
from stream_dp.errors import BudgetRefused, FailClosed, UsageError, WorldError
from stream_dp.files.memory import MemoryJournal
from stream_dp.journal.commit import Applied, Commit, Created, Halted, Watched
from stream_dp.journal.release import KeysUnknown, ReleaseReader, release_of
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.live.planner import counted as counted_there
from stream_dp.operate.audit.journal_access import build_again
from stream_dp.operate.audit.ledger_view import ledger_json
from stream_dp.operate.audit.trace_check import compared
from stream_dp.operate.published_bodies import find_keys
from stream_dp.operate.run.file_change import changed_now
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.fingerprints import told as says
from stream_dp.pipeline.router import OpenRouter

WHERE: list[dict[str, Any]] = [{"field": "amount", "at_least": "5"}]
FINER = COUNTRIES | {"epsilon": "0.3"}
FEW = COUNTRIES | {"epsilon": "0.2", "where": WHERE}
FILES: list[list[dict[str, Any]]] = [
    [ORDERS, FINER],
    [ORDERS, FEW, SUM],
    [ORDERS, COUNTRIES, SUM | {"epsilon": "0.1"}],
    [ORDERS],
]


def reckoned(files: list[list[dict[str, Any]]]) -> tuple[list[Fraction], list[list[int]]]:
    """What one event costs under each file, and the version of each of its series, by an independent sum: all of the
    first file for good, and whatever else has another definition than the series of the first file that still runs.
    """
    block = sum((Fraction(own["epsilon"]) for own in files[0]), Fraction(0))
    first = {own["name"]: own for own in files[0]}
    runs: dict[str, dict[str, Any]] = {}
    version: dict[str, int] = {}
    sums, versions = list[Fraction](), list[list[int]]()
    for series in files:
        for own in series:
            if runs.get(own["name"]) != own:
                version[own["name"]] = version.get(own["name"], 0) + 1
        runs = {own["name"]: own for own in series}
        beside = [
            Fraction(own["epsilon"])
            for name, own in runs.items()
            if name not in first or version[name] > 1
        ]
        sums.append(block + sum(beside, Fraction(0)))
        versions.append([version[own["name"]] for own in series])
    return sums, versions


def told(shop: Shop, name: str) -> dict[int, tuple[int, Any]]:
    """Tick -> version and content of each public release of a name."""
    every = [body for body in map(json.loads, shop.bodies) if body["series"] == name]
    return {b["tick"]: (b.get("version", 1), b.get("values", b.get("value"))) for b in every}


def counted(start: int, tick: int, least: int | None = None) -> dict[str, int]:
    """By country, the records that a series counts which begins with tick `start`: from their own list."""
    found = {"DE": 0, "FR": 0, "other": 0}
    for at, event in seen_from(start):
        amount = event["amount"]
        readable = isinstance(amount, int) if least is not None else True
        if at <= tick and readable and (least is None or amount >= least):
            found[event["country"]] += 1
    return found


async def test_ledger_and_versions_are_those_of_an_independent_sum() -> None:
    shop = Shop()
    engine = await shop.upto(1, file(FIRST))
    sums, versions = reckoned([FIRST, *FILES])
    assert spent(engine) == sums[0]
    for number, series in enumerate(FILES, 1):
        spec = file(series)
        engine = await shop.applied(2 * number, spec)
        assert (spent(engine), peak(engine)) == (sums[number], max(sums[: number + 1]))
        running = {live.version for live in engine.admission.registry.releasing}
        assert running == set(versions[number])
        known = (await shop.summary()).applied
        ledger = ledger_json(build_again(spec, None, known), await shop.summary())
        assert Fraction(ledger["spent"]) == sums[number]
        assert all(("halt" in row) == (row["end"] is None) for row in ledger["charges"][1:])
    charged = [charge.name for commit in shop.commits() for charge in commit.charges]
    assert charged[1:] == ["countries", "sum", "countries", "countries", "sum"]
    rows = [(row["name"], row.get("version"), row["end"]) for row in ledger["charges"][1:]]
    assert rows == [
        ("countries", 2, 3), ("sum", None, 5), ("countries", 3, 5), ("countries", 4, 7), ("sum", 2, 7),
    ]  # fmt: skip
    kinds = [[type(change) for change in commit.changes] for commit in shop.commits()]
    assert [kind for kind in kinds if kind] == [
        [Applied, Created],
        [Halted, Created, Applied, Created],
        [Halted, Halted, Applied, Created, Created],
        [Halted, Halted, Applied],
    ]


@pytest.mark.parametrize("read_again", [3_600_000, 1])
async def test_each_version_counts_from_its_own_first_tick_whatever_crashes(
    read_again: int,
) -> None:
    """A count is that of a list of the records, and a body without a version is of the first one."""
    lead = int(read_again == 1)
    for now, least in ((FINER, None), (FEW, 5)):
        shop = Shop(noise=zero, read_again=read_again)
        await shop.upto(4, file(FIRST))
        old = told(shop, "countries")
        assert old == {tick: (1, counted(0, tick)) for tick in range(5)}
        for place in (None, *range(1, 6)):
            again = Shop(noise=zero, read_again=read_again)
            await again.upto(4, file(FIRST))
            new = file([ORDERS, now])
            if place is not None:
                change = (await again.change(new)).change
                with pytest.raises(Crash):
                    await again.upto(HORIZON - 1, new, change, Fuse(place))
            await again.upto(HORIZON - 1, new, (await again.change(new)).change)
            assert not (await again.change(new)).shown["pending"]
            start = next(c.start for c in again.changes if isinstance(c, Created))
            cut = next(c.at for c in again.changes if isinstance(c, Applied))
            assert start == cut + lead
            assert told(again, "countries") == {
                tick: (1, counted(0, tick)) for tick in range(cut)
            } | {tick: (2, counted(start, tick, least)) for tick in range(start, HORIZON)}
            assert [r.body for c in again.commits() for r in c.releases] == again.bodies


async def test_checkpoints_and_the_trace_know_each_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_dp.engine.engine.SNAPSHOT_TICKS", 1)
    shop, sums = Shop(), reckoned([FIRST, FILES[0], FILES[1]])[0]
    await shop.upto(1, file(FIRST))
    await shop.applied(3, file(FILES[0]))
    await shop.applied(5, file(FILES[1]))
    await shop.upto(8, file(FILES[1]))
    assert shop.store.checkpoints[0] > max(c.sequence for c in shop.commits() if c.changes)
    engine = await shop.upto(9, file(FILES[1]))
    assert spent(engine) == sums[2]
    assert {tick: version for tick, (version, _) in told(shop, "countries").items()} == {
        tick: 1 if tick < 2 else 2 if tick < 4 else 3 for tick in range(10)
    }
    listed = shop.words.listed(engine.admission, None)
    assert [(row["name"], row.get("version", 1), row["end"] is None) for row in listed] == [
        ("orders", 1, True), ("sum", 1, True), ("countries", 3, True), ("countries", 1, False),
        ("countries", 2, False),
    ]  # fmt: skip
    engine = await shop.applied(HORIZON - 1, file(FILES[2]))
    assert engine.admission.registry.named("countries").series.version == 4  # type: ignore[union-attr]
    assert not engine.admission.left
    built = build_again(file(FILES[2]), None, (await shop.summary()).applied)
    journal = MemoryJournal(shop.store)
    await journal.open()
    report = await compared(built, SEALER, journal.read())
    assert (report.counts.creations, report.counts.halts) == (7, 4)


async def test_a_running_engine_changes_a_series_by_message() -> None:
    shop, new = Shop(noise=zero), file([ORDERS, FINER])

    async def act(engine: Any) -> None:
        answer = (await sent(shop, engine, new))["answer"]
        (row,) = answer["changed"]
        assert (row["name"], row["version"], row["end"], row["gives_back"]) == (
            "countries",
            2,
            3,
            "0",
        )

    await at_tick(shop, file(FIRST), act)
    assert [type(change) for change in shop.changes] == [Applied, Created]
    assert told(shop, "countries") == {tick: (1, counted(0, tick)) for tick in range(3)} | {
        tick: (2, counted(3, tick)) for tick in range(3, HORIZON)
    }
    engine = await shop.upto(HORIZON - 1, new)
    assert spent(engine) == reckoned([FIRST, [ORDERS, FINER]])[0][1]


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
async def test_under_every_filter_a_new_version_is_charged_beside_the_first_block(
    privacy: dict[str, str],
) -> None:
    """The oracle is a ledger of its own, which is charged under another name."""
    shop, noisy = Shop(), {"privacy": privacy}
    await shop.upto(1, file(FIRST, **noisy))
    for at, now in ((3, FINER), (5, FEW)):
        engine = await shop.applied(at, file([ORDERS, now], **noisy))
        main, alone = engine.admission.subledgers.main, build(file(FIRST, **noisy)).ledger
        planned = shop.planner.propose(json.dumps(now | {"name": "other"}).encode(), at)
        alone = alone.charge(alone.price(planned.derivation, planned.box), at)
        assert main.used.amount >= alone.used.amount
        if main.frees:
            assert main.used.amount == alone.used.amount


async def test_a_plan_says_the_price_of_a_changed_series() -> None:
    shop = Shop()
    await shop.upto(1, file(FIRST))
    await shop.applied(3, file([*FIRST, SUM]))
    changing = await shop.change(file([ORDERS, FINER, SUM | {"epsilon": "0.2"}]))
    assert list(change_lines(changing.shown))[1:] == [
        "  ~ series countries: version 2 starts at zero at tick 5, epsilon 0.3. The version before has no "
        "release from tick 4 on, and gives nothing back",
        "  ~ series sum: version 2 starts at zero at tick 5, epsilon 0.2. The version before has no release from "
        "tick 4 on, and gives 0.3 back to later ticks",
        "  spent 1.2, then 1.4 epsilon; left of 2: 0.8, then 0.6",
    ]
    assert not changing.shown["words"]


@pytest.mark.parametrize(
    ("now", "why"),
    [
        ([ORDERS, FINER, SHARE], "series share: is made of releases of countries"),
        ([*FIRST, DEAR | {"name": "share"}], "series share: name: a series has or had this name"),
        ([ORDERS | {"epsilon": "0.3"}, FINER], "series: one of those that run must stay"),
        (
            [
                ORDERS,
                {"name": "countries", "statistic": "distinct", "of": "country", "epsilon": "0.2"},
            ],
            "series countries: ",
        ),
    ],
)
async def test_what_cannot_take_a_name_over_is_refused(now: Any, why: str) -> None:
    shop = Shop()
    await shop.upto(1, file([*FIRST, SHARE]))
    with pytest.raises(UsageError, match=why):
        (await shop.change(file(now))).require()


async def test_a_name_that_a_message_gave_or_halted_is_never_taken_over() -> None:
    """Of analysts and of the operator; and what a message creates never takes over the name of the file's series."""
    ann = {"privacy": {"epsilon": "3", "analysts": [{"name": "ann", "epsilon": "0.5"}]}}
    shop = Shop()
    await shop.upto(1, file(FIRST, **ann))
    await shop.applied(3, file([*FIRST, SUM], **ann))
    known = (await shop.summary()).applied
    shop.__dict__["built"] = build_again(file([*FIRST, SUM], **ann), None, known)
    source = Stopping(4)
    engine = shop.engine(source)
    run = asyncio.create_task(engine.run())
    await shop.until(4)
    await create_series(engine, question("hers", "0.2"), "ann")
    await create_series(engine, question("mine", "0.2"))
    await halt_series(engine, "sum")
    for name in ("sum", "countries"):
        with pytest.raises(UsageError, match="has or had this name"):
            await create_series(engine, question(name, "0.2"), "ann")
    engine.stop()
    source.go(HORIZON)
    await run
    for name in ("hers", "mine", "sum"):
        changing = await shop.change(file([*FIRST, DEAR | {"name": name}], **ann))
        with pytest.raises(UsageError, match="has or had this name"):
            changing.require()
    admission = engine.admission
    number = admission.registry.named("mine").number  # type: ignore[union-attr]
    admission.halt("hers", HORIZON - 1, by_file=True)
    for name in ("hers", "sum", "new"):
        with pytest.raises(UsageError, match="has or had this name"):
            admission.propose(json.dumps(DEAR | {"name": name}).encode(), HORIZON - 1, 2)
    later = json.dumps(DEAR | {"name": "mine"}).encode()
    created = Created(admission.registry.next_number, later, HORIZON - 1, 0, version=2)
    with pytest.raises(FailClosed, match="has or had this name"):
        admission.replay(Commit(9, b"", changes=(Halted(number, HORIZON - 1), created)))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda c: {"changes": tuple(k for k in c.changes if not isinstance(k, Halted))}, "add up"),
        (lambda c: {"charges": ()}, "add up"),
        (lambda c: {"changes": _versions(c, 1)}, "has or had this name"),
        (lambda c: {"changes": _versions(c, 2)}, "has or had this name"),
        (lambda c: {"changes": _versions(c, 4)}, "has or had this name"),
        (lambda c: {"changes": (c.changes[2], *c.changes[:2])}, "has or had this name"),
    ],
)
async def test_a_journal_in_which_a_name_is_taken_over_otherwise_is_refused(
    change: Any, why: str
) -> None:
    shop = Shop()
    await shop.upto(1, file(FIRST))
    await shop.applied(3, file([ORDERS, FINER]))
    new = file([ORDERS, FEW])
    await shop.applied(5, new)
    assert [type(c) for c in shop.changes] == [Applied, Created, Halted, Applied, Created]
    shop.rewrite(lambda commit: change(commit) if len(commit.changes) == 3 else {})
    with pytest.raises(FailClosed, match=why):
        await shop.upto(7, new)


def _versions(commit: Any, version: int) -> tuple[Any, ...]:
    return tuple(
        changed(k, version=version) if isinstance(k, Created) else k for k in commit.changes
    )


async def test_answers_are_never_those_of_the_version_before() -> None:
    shop = Shop(noise=zero)
    await shop.upto(4, file(FIRST))
    new = file([ORDERS, FEW])
    changing = await shop.change(new)
    shop.__dict__["built"] = changing.built
    source = Stopping(4)
    ports = shop.engine(source)._ports
    engine = shop.started(ports, change=changing.change)
    run = asyncio.create_task(engine.run())
    for _ in range(1000):
        await asyncio.sleep(0)
    live = engine.admission.registry.named("countries")
    assert live is not None
    assert live.series.version == 2
    with pytest.raises(UsageError, match="has released nothing yet"):
        engine._changes.last_of(live.series, {})
    source.go(HORIZON)
    await shop.until(6, run)
    told = engine._changes.last_of(live.series, {"keys": ["DE"]})
    assert told["version"] == 2
    engine.stop()
    await run


async def test_series_that_are_released_together_have_their_own_versions() -> None:
    """Counts of one mechanism and start, which one block writes after a start: two second versions, and a first one."""
    low, more = {"epsilon": "0.2"}, {"name": "more", "epsilon": "0.2"}
    shop = Shop()
    await shop.upto(2, file([ORDERS, DEAR, COUNTRIES]))
    new = file([ORDERS | low, DEAR | low, COUNTRIES, DEAR | more])
    await shop.applied(4, new)
    await shop.upto(6, new)
    for name, version in (("orders", 2), ("dear", 2), ("more", 1)):
        versions = {tick: version for tick, (version, _) in told(shop, name).items()}
        assert versions == ({} if version == 1 else dict.fromkeys(range(3), 1)) | dict.fromkeys(
            range(3, 7), version
        )


async def test_a_reader_keeps_the_keys_of_each_version_apart() -> None:
    shop, as_array = Shop(noise=zero), {"releases": {"values": "array"}}
    other = COUNTRIES | {"epsilon": "0.2", "windows": ["1h", "2h"]}
    await shop.upto(4, file(FIRST, **as_array))
    await shop.applied(8, file([ORDERS, other], **as_array))
    reader = ReleaseReader({})
    read = [reader.read(body) for body in shop.bodies if b"countries" in body]
    assert [one.version for one in read] == [1] * 5 + [2] * 4
    assert {bool(one.windows) for one in read[5:]} == {True}
    reader = ReleaseReader({"countries": ("DE", "FR")})
    with pytest.raises(KeysUnknown):
        reader.read(shop.bodies[-1])

    async def bodies() -> AsyncIterator[bytes]:
        for body in shop.bodies:
            yield body

    await find_keys(reader, shop.bodies[-1], bodies())
    assert reader.read(shop.bodies[-1]) == read[-1]


async def _watched() -> tuple[Shop, list[list[int]]]:
    """A monitor of the first file, with one more watch and an ended one; then its second version, with another watch in
    the place of the first one, and the ended one as in its definition. Both of DE, by this many events.
    """
    german = {"name": "german", "where": [{"field": "country", "equals": "DE"}], "above": 35}
    spare = MONITOR | {"watch": [german | {"name": "own", "above": "35"}]}
    more = {"privacy": PIPELINE_M["privacy"]}
    old, new = (
        file([ORDERS, spare | {"epsilon": "1"}], **more),
        file([ORDERS, spare | {"epsilon": "1.2"}], **more),
    )
    shop = Shop(noise=zero, read_again=3_600_000)

    async def to(spec: Any, first: int, last: int, *watches: Any) -> None:
        known = (await shop.summary()).applied if shop.store.commits else None
        shop.__dict__["built"] = build_again(spec, None, known)
        source = Stopping(first)
        engine = shop.engine(source)
        run = asyncio.create_task(engine.run())
        await shop.until(first, run)

        async def act() -> None:
            live = engine.admission.registry.named("m")
            assert live is not None
            for watch in watches:
                given = watch if isinstance(watch, str) else json.dumps(watch).encode()
                await engine._changes.watch(
                    live, given, "", accept_noise=True, worked=lambda *_: None
                )
                await engine._changes.flush()
                live = engine.admission.registry.named("m")
                assert live is not None

        await engine._inbox.executed(act)
        source.go(last)
        await shop.until(last, run)
        engine.stop()
        source.go(HORIZON)
        await run

    await to(old, 1, 3, FR, "own")
    await shop.applied(5, new)
    await to(new, 6, 10, german)
    await shop.upto(HORIZON - 1, new)
    starts = [change.at for change in shop.changes if isinstance(change, Watched | Applied)]
    return shop, [expected(start, HORIZON, {"equals": "DE"}, 35) for start in starts[1:]]


async def test_watches_of_the_version_before_count_nowhere_in_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop, wanted = await _watched()
    places = [change.place for change in shop.changes if isinstance(change, Watched)]
    assert places[0] == places[1]
    fired = shop.releases("m")
    assert wanted == [
        [tick for tick, names in fired.items() if name in names and tick > 3]
        for name in ("own", "german")
    ]
    assert any("fr" in names for tick, names in fired.items() if tick <= 3)
    assert not any("fr" in names for tick, names in fired.items() if tick > 3)
    close = LiveSeriesPlanner.close

    def forgets(self: LiveSeriesPlanner, number: int) -> Mapping[str, Any]:
        return close(self, number) if number in self.running else {}

    monkeypatch.setattr(LiveSeriesPlanner, "close", forgets)
    shop, wanted = await _watched()
    assert wanted[0]
    assert not any("own" in names for names in shop.releases("m").values())


async def test_workers_count_a_watch_of_a_later_version_by_its_own_filter() -> None:
    """Both versions count the same in the same columns, but only the second sees no records of other countries."""
    country = [{"field": "country", "equals": "DE"}]
    own = {"name": "own", "where": country, "above": "35"}
    first, more = MONITOR | {"watch": [own]}, {"privacy": PIPELINE_M["privacy"]}
    old, new = (
        file([ORDERS, first], **more),
        file([ORDERS, first | {"where": country}], **more),
    )
    shop = Shop(noise=zero)
    await shop.upto(1, old)
    await shop.applied(3, new)
    source = Stopping(4)
    shop.__dict__["built"] = build_again(new, None, (await shop.summary()).applied)
    engine = shop.engine(source)
    run = asyncio.create_task(engine.run())
    await shop.until(4, run)

    async def act() -> None:
        live = engine.admission.registry.named("m")
        assert live is not None
        dear = json.dumps({"name": "dear", "where": WHERE, "above": 4}).encode()
        await engine._changes.watch(live, dear, "", accept_noise=True, worked=lambda *_: None)
        await engine._changes.flush()

    await engine._inbox.executed(act)
    engine.stop()
    source.go(HORIZON)
    await run
    (created,) = (change for change in shop.changes if isinstance(change, Created))
    router = engine.admission.planner.router  # type: ignore[union-attr]
    layout = router.layout
    assert created.column == layout.features[layout.series["m"]].start
    counting, there = router.counting(), OpenRouter(shop.built.spec, 0)
    there.count(counted_there(shop.built.spec, counting.told, [], counting.width))
    assert len(counting.added) == 1
    assert [*there.counting().added] == [*counting.added]
    router.close(created.number)
    assert not router.counting().told


async def test_a_watch_of_a_later_version_has_not_fired_yet() -> None:
    """Also when a release of the version before is taken only then."""
    once = {
        "name": "once",
        "where": [{"field": "country", "equals": "DE"}],
        "above": "30",
        "rearm": "false",
    }
    first, more = MONITOR | {"watch": [once]}, {"privacy": PIPELINE_M["privacy"]}
    shop = Shop(noise=zero)
    await shop.upto(4, file([ORDERS, first], **more))
    engine = await shop.applied(5, file([ORDERS, first | {"epsilon": "1.2"}], **more))
    fired, registry = shop.words.fired, engine.admission.registry
    live = registry.named("m")
    assert live is not None
    (watch,) = live.series.asking.placed  # type: ignore[union-attr]
    assert {tick for tick, names in shop.releases("m").items() if names} == {4}
    assert fired.ends(live, watch) == {}
    for body in shop.bodies:
        fired.take(release_of(body), registry)
    assert fired.ends(live, watch) == {}


async def _twin() -> tuple[Mapping[int, Any], Fraction]:
    shop = Shop(noise=zero)
    await shop.upto(4, file(FIRST))
    engine = await shop.applied(8, file([ORDERS, FINER]))
    return told(shop, "countries"), spent(engine)


async def test_the_twin_whose_later_version_has_counts_of_before_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right, ledger = await _twin()
    assert right[8] == (2, counted(5, 8))
    assert ledger == reckoned([FIRST, [ORDERS, FINER]])[0][1]
    monkeypatch.setattr(Admission, "fresh_columns", lambda *_: slice(0, 0))
    wrong, _ = await _twin()
    assert wrong[8] != right[8]  # the early record, which was read before the cut


async def test_the_twin_that_forgets_what_the_one_before_was_charged_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    charge = Subledgers.charge

    def forgets(self: Subledgers, entry: Any, analyst: str = "", start: int = 0) -> None:
        if entry.name != "countries":
            charge(self, entry, analyst, start)
        else:
            self.running[entry.name] = (analyst, entry)

    monkeypatch.setattr(Subledgers, "charge", forgets)
    _, ledger = await _twin()
    assert ledger != reckoned([FIRST, [ORDERS, FINER]])[0][1]


async def test_the_twin_without_the_version_behind_a_recovery_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop, new = Shop(), file([ORDERS, FINER])
    await shop.upto(4, file(FIRST))
    await shop.applied(6, new)
    admit = Admission._admit

    def forgets(self: Admission, proposal: Any, created: Created, *rest: Any) -> Any:
        return admit(self, proposal, changed(created, version=1), *rest)

    monkeypatch.setattr(Admission, "_admit", forgets)
    with pytest.raises(FailClosed, match="does not give the recorded bytes"):
        await shop.upto(8, new)


def acting(*acts: tuple[str, Any]) -> Any:
    """What is done at a cut: watches of the monitor that come (a definition) or go (a name), and files to apply."""

    async def act(shop: Shop, engine: Any) -> None:
        for number, (do, what) in enumerate(acts):
            if do == "apply":
                answer = await sent(shop, engine, what, name=f"{number}")
                assert "refused" not in answer, answer
                continue

            async def watch(what: Any = what) -> None:
                live = engine.admission.registry.named("m")
                given = what if isinstance(what, str) else json.dumps(what).encode()
                await engine._changes.watch(
                    live, given, "", accept_noise=True, worked=lambda *_: None
                )
                await engine._changes.flush()

            await engine._inbox.executed(watch)

    return act


async def acted(shop: Shop, spec: Any, tick: int, act: Any, fuse: Fuse | None = None) -> bool:
    """Run to a tick, act at its cut, and run two ticks more; say whether it crashed."""
    known = (await shop.summary()).applied if shop.store.commits else None
    shop.__dict__["built"] = build_again(spec, None, known)
    source = Stopping(tick)
    engine = shop.engine(source, CrashingJournal(shop.store, fuse or Fuse()))
    run = asyncio.create_task(engine.run())
    try:
        with suppress(WorldError):  # the engine ended
            await shop.until(tick, run)
            if not run.done():
                await act(shop, engine)
                source.go(tick + 2)
                await shop.until(tick + 2, run)
            engine.stop()
        source.go(HORIZON)
        await run
    except Crash:
        return True
    return False


async def audited(shop: Shop, spec: Any) -> tuple[int, int]:
    """The creations and halts of a trace that gives the same bytes, whose ledger adds up and whose seeds are new."""
    summary, seeds = await shop.summary(), [s for c in shop.commits() for s in c.seeds]
    assert len(set(seeds)) == len(seeds)
    assert [r.body for c in shop.commits() for r in c.releases] == shop.bodies
    ledger_json(build_again(spec, summary.header, summary.applied), summary)
    if summary.begin:
        return 0, 0  # an audit needs the whole journal
    journal = MemoryJournal(shop.store)
    await journal.open()
    report = await compared(build_again(spec, None, summary.applied), SEALER, journal.read())
    return report.counts.creations, report.counts.halts


@pytest.mark.parametrize("read_again", [3_600_000, 1])
async def test_a_definition_of_before_comes_back_with_noise_of_its_own_whatever_crashes(
    read_again: int,
) -> None:
    """Two changes at one cut, the second back to the first file, between watches that come and go; then one more. Where
    nothing is read again, the version between has no tick, and a watch of the version before never begins.
    """
    more = {"privacy": PIPELINE_M["privacy"] | {"epsilon": "9"}}
    first = file([ORDERS, COUNTRIES, MONITOR], **more)
    second = file([ORDERS, FINER, MONITOR | {"epsilon": "1.2"}], **more)
    act = acting(
        ("watch", FR), ("apply", second), ("watch", FR), ("watch", "large"), ("apply", first), ("watch", FR)
    )  # fmt: skip
    lead, ends = int(read_again == 1), dict[int, tuple[int, int]]()
    for place in (None, *range(8, 21, 3)):
        shop = Shop(read_again=read_again)
        crashed = await acted(shop, first, 2, act, None if place is None else Fuse(place))
        assert crashed == (place is not None)
        durable = sum(isinstance(change, Applied) for change in shop.changes)
        spec = second if durable == 1 else first
        versions = {
            live.version for live in (await shop.upto(6, spec)).admission.registry.releasing
        }
        await shop.applied(8, second)
        ends[durable] = await audited(shop, second)
        if place is None:
            assert versions == {1, 3}
            assert [tick for tick, (version, _) in told(shop, "countries").items() if version == 3] == [
                *range(3 + lead, 7)
            ]  # fmt: skip
        await shop.upto(9, second)
        with pytest.raises(FailClosed):
            await shop.upto(10, first)
    wanted = {0: (5, 2), 1: (5, 2), 2: (9, 6)}
    assert ends.keys() == wanted.keys()
    assert all(found in ((0, 0), wanted[durable]) for durable, found in ends.items())


USERS = {"unit": "user", "user": "country", "max_events": "2", "per": "4h"}
TOTAL = {"total": {"of": "amount", "clamp": ["0", "9"], "at_most": "9"}}
ALL = SUM | {"shared_total": "true"}


def shared(tick: int, now: dict[str, Any], lead: int) -> Fraction | None:
    """What is spent once a sum within users' total, which runs from tick 1 on, becomes another series at this tick;
    None if that is refused. The ledger is saved and loaded before.
    """
    more = {"privacy": {"epsilon": "1"} | USERS | TOTAL}
    built = build(file([ORDERS], **more))
    config = built.run_config(0)

    def empty() -> Admission:
        planner = LiveSeriesPlanner(built.spec, OpenRouter(built.spec, config.origin, built.layout))
        return Admission(config.registry(), built.subledgers(), planner)

    admission = empty()
    for at, series in ((1, ALL), (tick, now)):
        saved, admission = admission.save(), empty()
        admission.load(saved)
        assert admission.save() == saved
        try:
            change, _ = changed_now(built, admission, says(file([ORDERS, series], **more)), at)
            assert change is not None
            begins = [(of, 1) for of in change.created]
            for name in change.halted:
                admission.halt(name, at, by_file=True)
            admission.apply(changed(change.applied, at=at))
            for definition, version in (*begins, *change.changed):
                proposal = admission.propose(definition, at + lead, version)
                admission.create(proposal, "", at + lead, version)
        except BudgetRefused:
            return None
        admission.left.clear()
    return Fraction(admission.subledgers.main.used.amount, UNITS)


def test_the_version_before_stays_charged_while_the_window_of_a_shared_total_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A user may have spent the total on it in this window, of ticks 0 to 3, and meet a count now beside it, but
    divides the total between two sums. The block of the first file costs 0.5, the sum 0.3.
    """

    def count(epsilon: str) -> dict[str, Any]:
        return DEAR | {"name": "sum", "epsilon": epsilon}

    for lead in (0, 1):
        assert shared(2, count("0.2"), lead) == 1
        assert shared(2, count("0.21"), lead) is None
        assert shared(4, count("0.2"), lead) == Fraction("0.7")
        assert shared(4, count("0.5"), lead) == 1
        assert shared(2, ALL | {"epsilon": "0.5"}, lead) == 1
        assert shared(2, ALL | {"epsilon": "0.51"}, lead) is None
    assert shared(3, count("0.5"), 0) is None
    assert shared(3, count("0.5"), 1) == 1
    monkeypatch.setattr(Loads, "_holding", lambda self, *_: self.held)
    assert shared(2, count("0.21"), 0) is not None


@pytest.mark.parametrize("read_again", [3_600_000, 1])
async def test_no_change_leaves_a_tick_without_a_release(read_again: int) -> None:
    """What comes a tick later does not count as what stays; nor does a message halt what is left alone."""
    shop, low = Shop(read_again=read_again), ORDERS | {"epsilon": "0.2"}
    both = file([low, SUM])

    async def act(shop: Shop, engine: Any) -> None:
        assert "refused" not in await sent(shop, engine, file([ORDERS, SUM]), name="both")
        again = await sent(shop, engine, both, name="again")
        assert ("refused" in again) == (read_again == 1)
        if read_again == 1:
            assert "First apply a file that adds another series" in again["refused"]["detail"]

    await acted(shop, file([ORDERS]), 2, act)
    await shop.applied(7, both)
    await shop.applied(8, file([SUM]))
    ends = dict[str, str]()

    async def halt(shop: Shop, engine: Any) -> None:
        for name in ("sum", "mine"):
            try:
                await halt_series(engine, name)
            except UsageError as refusal:
                ends[name] = str(refusal)
                await create_series(engine, question("mine", "0.1"))

    await acted(shop, file([SUM]), 9, halt)
    assert "is the last one that runs" in ends["sum"]
    assert {json.loads(body)["tick"] for body in shop.bodies} == {*range(12)}
    assert (await audited(shop, file([SUM])))[1] == 3
