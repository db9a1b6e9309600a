"""Rows of sums that share a total, on the real path: what the definition says, what a user changes, and after crashes.

Guard, router, assembler and memories run as in the engine. Twins are guards that count the total after a series'
conditions, before other caps, or that a crash would make wrong.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from commit_parts import part_of
from faults.test_user_caps import crashes
from oracles.cut_users import on_time
from oracles.first_arrivals import first_arrivals
from oracles.user_caps import Caps, Event, Log, Mark
from oracles.user_totals import Added as AddedBy
from oracles.user_totals import shared
from unit.pipeline.routing.test_user_total_rows import amount, rows_of
from unit.pipeline.routing.user_worlds import (
    HORIZON,
    KEYS,
    PIPELINE,
    SEALER,
    WINDOW,
    UserWorld,
    hashed,
    payload,
    some_log,
)

from stream_dp.core.mechanism import IntArray
from stream_dp.engine.memories import Memory, SharedTotalMemory, UserMemory
from stream_dp.engine.ports import Batch
from stream_dp.engine.tick_assembler import Cut
from stream_dp.errors import FailClosed
from stream_dp.journal.commit import Commit, part
from stream_dp.mechanisms.linear.pairs import SharedSums
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.feature_counts import _By
from stream_dp.pipeline.fingerprints import fingerprint
from stream_dp.pipeline.layout import Feature
from stream_dp.pipeline.router import OpenRouter, memories_of
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_guard import Added, TotalCap, UserGuard, guard_of
from stream_dp.records.conditions import Test
from stream_dp.records.list_columns import Entries

TOTAL = 4
SUM = {
    "statistic": "sum",
    "of": "amount",
    "clamp": ["0", "2"],
    "shared_total": "true",
    "epsilon": "2",
}
SOME = ("b", "c")
SERIES: list[dict[str, Any]] = [
    {"name": "so_far", **SUM},
    {"name": "some", **SUM, "where": [{"field": "key", "one_of": list(SOME)}]},
    {"name": "keyed", **SUM, "by": "key", "every": "4s"},
    {"name": "all", "statistic": "count", "epsilon": "2"},
]
CAPS = [
    Caps(3, WINDOW),
    Caps(3, None),
    Caps(6, WINDOW, 2, 2, 2),
    Caps(5, WINDOW, None, 1, None),
    Caps(7, None, 1),
]
USERS = tuple(f"user {number}" for number in range(5))


def spec_of(caps: Caps, total: int = TOTAL) -> PipelineSpec:
    own = {"per_tick": caps.per_tick, "per_key": caps.per_key, "keys": caps.keys}
    given: dict[str, Any] = {name: str(most) for name, most in own.items() if most is not None}
    window = {"max_events": str(caps.cap), "per": f"{caps.window}s"}
    given |= {"overall": str(caps.cap)} if caps.window is None else window
    given |= {"key": "key"} if given.keys() & {"per_key", "keys"} else {}
    given["total"] = {"of": "amount", "clamp": ["0", "2"], "at_most": str(total)}
    cut = {"name": "cut", "statistic": "cut_off", "cap": "total", "epsilon": "2"}
    cut |= {"window": f"{caps.window}s"} if caps.window else {}
    privacy = {"unit": "user", "user": "customer", "epsilon": "100", **given}
    return PipelineSpec.model_validate(PIPELINE | {"privacy": privacy, "series": [*SERIES, cut]})


def row_of(added: list[AddedBy]) -> tuple[int, ...]:
    by_key = [sum(one.units for one in added if one.event.key == key) for key in KEYS]
    some = sum(one.units for one in added if one.event.key in SOME)
    return (sum(by_key), some, *by_key, len(added))


def expected(logs: Mapping[int, Log], caps: Caps, total: int = TOTAL) -> list[tuple[int, ...]]:
    every = shared(logs, amount, total, caps)
    active, cut = ([set[str]() for _ in range(HORIZON)] for _ in range(2))
    for event in on_time(logs):
        active[event.tick].add(event.user)
    for one in every:
        cut[one.event.tick] |= {one.event.user} if one.cut else set()
    users = zip(*(first_arrivals(named, caps.window) for named in (active, cut)), strict=True)
    ticks = [[one for one in every if one.event.tick == tick] for tick in range(HORIZON)]
    return [(*row_of(added), *own) for added, own in zip(ticks, users, strict=True)]


def rows(spec: PipelineSpec, logs: dict[int, Log], lot: int) -> list[tuple[int, ...]]:
    return list(map(tuple, rows_of(spec, logs, Random(lot)).tolist()))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("caps", CAPS, ids=str)
def test_rows_are_those_of_the_definition(caps: Caps, seed: int) -> None:
    """However records are cut into batches and ticks are closed; also who was cut off by the total."""
    logs: dict[int, Log] = {0: some_log(Random(seed), USERS, 120)}
    wanted = expected(logs, caps, 3)
    for lot in (1, 2):
        assert rows(spec_of(caps, 3), logs, lot) == wanted
    assert sum(row[-1] for row in wanted) > 0


def records_of_one(most: int) -> Iterator[tuple[Event, ...]]:
    """Every sequence of so many records of one user in two ticks."""
    kinds = [Event("u", tick, key) for tick in (0, 1) for key in KEYS[:3]]
    for number in range(1, most + 1):
        yield from itertools.product(kinds, repeat=number)


def changes(spec: PipelineSpec, other: list[Event | Mark], most: int) -> tuple[int, int]:
    """The most that all records of a user change in one series, and in all three of sums without what two of them see.

    The sums of the records of key c and of those without: no record is in both.
    """
    gone, one, all_of_them = rows_of(spec, {0: other}, Random(0)), 0, 0
    for lot, events in enumerate(records_of_one(most)):
        apart = np.abs(rows_of(spec, {0: [*events, *other]}, Random(lot)) - gone).sum(axis=0)
        one = max(one, int(apart[0]), int(apart[1]), int(apart[2:6].sum()))
        all_of_them = max(all_of_them, int(apart[:2].sum()))
    return one, all_of_them


OTHER: list[Event | Mark] = [Event("v", 1, "c")] * 3 + [Mark(1), Mark(HORIZON - 1)]
APART: list[dict[str, Any]] = [
    {"name": "c", **SUM, "where": [{"field": "key", "equals": "c"}]},
    {"name": "ab", **SUM, "where": [{"field": "key", "one_of": ["a", "b"]}]},
    {"name": "keyed", **SUM, "by": "key"},
]


def apart(caps: Caps, total: int) -> PipelineSpec:
    spec = spec_of(caps, total)
    made = PIPELINE | {"privacy": spec.privacy, "series": APART}
    return PipelineSpec.model_validate(made)


class AfterWhere(_By):
    """A twin: each series keeps a total of 2 by itself, after its conditions. Nobody else adds anything."""

    added = 0

    def count(self, rows: Any, codes: Any, passing: Any, at: Any) -> None:
        assert self._amount is not None
        whole, units = codes[self._amount].codes, []
        sees = np.ones(len(whole), np.bool_) if self._where is None else passing[self._where]
        for value, here in zip(whole.tolist(), sees.tolist(), strict=True):
            more = min(2, self.added + value) - self.added if here else 0
            self.added += more
            units.append(more)
        own = codes | {self._amount: Entries(np.array(units, np.int64))}
        super().count(rows, own, passing, at)


def test_a_user_changes_all_series_together_by_the_total() -> None:
    """Two series that see different records, by as much as one alone."""
    for total in (1, 2, 3):
        assert changes(apart(Caps(2, WINDOW), total), OTHER, 3) == (total, total)


def test_totals_after_a_where_change_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Booked as shared, two of them lose more than is booked."""
    quiet = [item._replace(key="a") if isinstance(item, Event) else item for item in OTHER]
    assert changes(apart(Caps(2, WINDOW), 2), quiet, 2) == (2, 2)
    made = SharedTotalMemory
    monkeypatch.setattr(
        "stream_dp.pipeline.user_guard.SharedTotalMemory",
        lambda most, window, of: made(100, window, of),
    )
    monkeypatch.setattr("stream_dp.pipeline.feature_counts._By", AfterWhere)
    assert changes(apart(Caps(2, WINDOW), 2), quiet, 2) == (2, 3)


class First(UserGuard):
    """A twin: the total is used by what other caps refuse, too."""

    def _first_ones(self, users: Any, ticks: Any, counting: Any, records: Any) -> Any:
        (total,) = self._totals
        own = [record for record, some in zip(records, counting, strict=True) if some]
        before = total.added(self._hash.of(users.texts)[counting], ticks[counting], own)
        places = {id(record): at for at, record in enumerate(own)}

        def of_kept(_users: Any, _ticks: Any, kept: Any) -> Added:
            at = [places[id(record)] for record in kept]
            return Added(before.units[at], before.cut[at], before.used)

        one: Any = SimpleNamespace(added=of_kept, of=total.of)
        self._totals = [one]
        result = super()._first_ones(users, ticks, counting, records)
        self._totals = [total]
        return result


class Unsaved(SharedTotalMemory):
    """A twin: a start knows nothing of what users have added."""

    def replay(self, commit: Commit) -> None:
        self.recall({}, commit)


class Unending(SharedTotalMemory):
    """A twin: a total is for ever, and not for a window."""

    def windows(self, ticks: IntArray) -> IntArray:
        return np.zeros_like(ticks)


@dataclass
class SharedWorld(UserWorld):
    def memories(self) -> list[Memory]:
        return [*memories_of(self.built.layout, self.built.spec)]

    def recorded(self) -> list[tuple[int, ...]]:
        return [tuple(row) for commit in self.commits() for row in commit.rows]


def world_of(seed: int, caps: Caps, **made: Any) -> SharedWorld:
    logs: dict[int, Log] = {0: some_log(Random(seed), USERS, 90)}
    return SharedWorld(logs, spec_of(caps, 3), group=1 + seed % 4, **made)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("caps", CAPS, ids=str)
async def test_a_shared_total_holds_through_crashes_anywhere(caps: Caps, seed: int) -> None:
    """And what commits record of it, each user once, is what users have added."""
    world = world_of(seed, caps)
    assert await crashes(world, Random(seed)) > 1
    assert world.recorded() == expected(world.logs, caps, 3)
    added: dict[tuple[int, bytes], int] = {}
    for commit in world.commits():
        for window, entries in part_of(commit, "shared total").items():
            for at in range(0, len(entries), 20):
                user, units = (
                    entries[at : at + 16],
                    int.from_bytes(entries[at + 16 : at + 20], "little"),
                )
                added[window, user] = added.get((window, user), 0) + units
    whole: dict[tuple[int, bytes], int] = {}
    for one in shared(world.logs, amount, 3, caps):
        place = one.event.tick // caps.window if caps.window else 0, hashed(one.event.user)
        whole[place] = whole.get(place, 0) + one.units
    used = {place: units for place, units in whole.items() if units}
    assert all(units <= used[place] for place, units in added.items())  # some windows were over
    assert added == used or caps.window


async def wrong(caps: Caps, **made: Any) -> int:
    """In how many of four runs rows are wrong, or the next start does not know them."""
    number = 0
    for seed in range(4):
        world = world_of(seed, caps, **made)
        try:
            await crashes(world, Random(seed))
        except (FailClosed, ExceptionGroup):
            number += 1
        else:
            number += world.recorded() != expected(world.logs, caps, 3)
    return number


@pytest.mark.parametrize("twin", [Unsaved, Unending])
async def test_memories_that_are_wrong_are_caught(
    twin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_dp.pipeline.user_guard.SharedTotalMemory", twin)
    assert await wrong(Caps(3, WINDOW)) > 0


@pytest.mark.parametrize("back", [True, False])
def test_what_was_read_behind_the_cut_is_given_back(
    back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A twin that keeps it used adds less when it is read again."""
    if not back:
        monkeypatch.setattr(SharedTotalMemory, "rewind", lambda _, cut: cut)
    guard = guard_of(spec_of(Caps(3, WINDOW), 3), 0, SEALER.user_key())
    guard.begin((0,))
    values = [payload(Event("u", tick, "c")) for tick in (0, 1)]
    added = []
    for _ in range(2):
        admitted = guard.admit(Batch(0, values, range(2), 2), -1)
        added.append(admitted.units["amount"].tolist())
        for memory in guard.memories:
            memory.rewind(Cut(0))
    assert added == [[2, 1], [2, 1] if back else [0, 0]]


async def test_a_total_before_other_caps_is_caught() -> None:
    """Where records that caps refuse stand before others that count."""
    assert await wrong(Caps(6, WINDOW, 2, 2, 2), make_guard=First) > 0


def test_records_that_caps_refuse_use_nothing_of_the_total() -> None:
    """Nor do late ones, those of nobody, and null; what is left is in the order of the partition, not of ticks."""
    spec = spec_of(Caps(4, WINDOW, 1), 3)
    guard = guard_of(spec, 0, SEALER.user_key())
    guard.begin((0,))
    log = [
        Event("u", 1, "c"),
        Event("u", 1, "c"),
        Event("u", 0, "c"),
        Event("u", 2, "c"),
        Event("v", 3, "c"),
    ]
    values = [*map(payload, log), payload(log[-1]).replace(b'"amount": 2', b'"amount": null')]
    admitted = guard.admit(Batch(0, values, range(6), 6), 0)
    units = admitted.units["amount"].tolist()
    assert list(zip(admitted.labels, units, strict=True)) == [
        (0, 2),
        (2, 0),
        (3, 1),
        (4, 2),
    ]


def test_a_record_whose_amount_cannot_be_read_is_a_dead_letter_and_uses_nothing() -> None:
    """Also where only a live series reads a field that it lacks: it adds what it added before, once."""
    schema = PIPELINE["schema"] | {"note": {"type": "text"}}
    plain = spec_of(Caps(6, None), 5)
    made = PIPELINE | {"privacy": plain.privacy, "series": plain.series, "schema": schema}
    spec = PipelineSpec.model_validate(made)
    values = [payload(Event("u", tick, "c")) for tick in range(4)]
    values[1] = values[1].replace(b'"amount": 2', b'"amount": "2"')
    values[2] = values[2].replace(b"{", b'{"note": "n", ', 1)
    found = []
    for live in (False, True):
        router, guard = (
            OpenRouter(spec, 0, None, SEALER.user_key()),
            guard_of(spec, 0, SEALER.user_key()),
        )
        guard.begin((0,))
        if live:
            feature = Feature(None, frozenset([Test("note", "equals", frozenset(["n"]))]))
            router.open(feature, router.place(feature), 7)
        admitted = guard.admit(router.decode(Batch(0, values, range(4), 4)), -1)
        routed = router.route(admitted)
        found.append({tick: np.asarray(row)[:7].tolist() for tick, row in routed.rows.items()})
        assert [span.field for span in admitted.refused] == ["amount"]
    assert found[0] == found[1]
    assert [row[0] for row in found[0].values()] == [2, 2, 1]


def test_thin_rows_say_the_same() -> None:
    """Several ticks in a batch, of which each has a very wide row."""
    domain = [*KEYS[:-1], *(f"k{n}" for n in range(20_000))]
    caps = Caps(6, WINDOW)
    schema = PIPELINE["schema"] | {"key": {"type": "category", "domain": domain}}
    plain = spec_of(caps, 5)
    made = PIPELINE | {"privacy": plain.privacy, "series": plain.series, "schema": schema}
    spec = PipelineSpec.model_validate(made)
    log = [item for item in some_log(Random(1), USERS, 60) if isinstance(item, Event)]
    logs: dict[int, Log] = {0: [*log, *(Mark(tick) for tick in range(HORIZON))]}
    own, other = rows_of(spec, logs, Random(3)), domain.index("k19999") + 3
    assert list(map(tuple, own[:, [0, 1, 2, 3, 4, other, -3, -2, -1]].tolist())) == expected(
        logs, caps, 5
    )


def test_a_part_that_this_memory_has_not_written_is_refused() -> None:
    entry = bytes(16) + (5).to_bytes(4, "little")
    for written in ({0: entry}, {0: entry[:-1]}):
        memory = SharedTotalMemory(TOTAL, WINDOW)
        with pytest.raises(FailClosed, match="a memory of users"):
            memory.replay(Commit(1, b"", ticks=(0,), parts={"shared total": part(written)}))


def test_an_amount_of_many_steps_fits() -> None:
    """As many as a total may have, in the last window of a long run."""
    memory: UserMemory = SharedTotalMemory(10**9, 1)
    users, windows = np.array([[7, 7]] * 2, np.uint64), np.array([2**31, 2**31])
    assert isinstance(memory, SharedTotalMemory)
    memory.add(users, windows, np.array([10**9 - 1, 1]))
    assert memory.room(users, windows)[2].tolist() == [0]
    assert memory.room(users, windows - 1)[2].tolist() == [10**9]


def test_its_series_change_by_the_total_and_cost_their_epsilon() -> None:
    built = build(spec_of(Caps(3, WINDOW), 3))
    assert [chosen.mechanism.rows.changes for chosen in built.chosen[:3]] == [3, 3, 3]
    assert all(chosen.derivation.guarantee.measure.epsilon == 2 for chosen in built.chosen)  # type: ignore[union-attr]
    assert isinstance(guard_of(built.spec, 0, bytes(32)).memories[-1], SharedTotalMemory)
    assert TotalCap.added.__annotations__["return"].__name__ == "Added"


PIECES = {
    "statistic": "sum",
    "of": "pieces",
    "clamp": ["0", "3"],
    "shared_total": "true",
    "epsilon": "2",
}
TOTALS = [
    {"of": "amount", "clamp": ["0", "2"], "at_most": "3"},
    {"of": "pieces", "clamp": ["0", "3"], "at_most": "5"},
]
SEVERAL: list[dict[str, Any]] = [
    {"name": "amounts", **SUM},
    {"name": "pieces", **PIECES, "where": [{"field": "key", "one_of": list(SOME)}]},
    {"name": "mean", **SUM, "statistic": "mean"},
    {"name": "means", **PIECES, "statistic": "mean", "by": "key", "every": "4s"},
    {"name": "cut", "statistic": "cut_off", "cap": "total", "epsilon": "2"},
    {"name": "cut_pieces", "statistic": "cut_off", "cap": "total", "of": "pieces", "epsilon": "2"},
]  # fmt: skip


def pieces(event: Event) -> int:
    """The second amount of the record: 3 where the first is 0, and so on."""
    return len(KEYS) - 1 - KEYS.index(event.key)


def with_totals(caps: Caps, totals: Any = TOTALS, series: Any = SEVERAL) -> PipelineSpec:
    """Two totals, of an amount each."""
    given = spec_of(caps).privacy.model_dump(mode="json", exclude_unset=True, exclude={"total"})
    schema = PIPELINE["schema"] | {"pieces": {"type": "integer", "nullable": "true"}}
    window = {"window": f"{caps.window}s"} if caps.window else {}
    own = [one | window if one["statistic"] == "cut_off" else one for one in series]
    made = {"privacy": _written(given) | {"totals": totals}, "series": own, "schema": schema}
    return PipelineSpec.model_validate(PIPELINE | made)


def _written(given: dict[str, Any]) -> dict[str, Any]:
    kept = {key: str(value) for key, value in given.items() if key != "per"}
    return kept | ({"per": f"{given['per']}ms"} if given.get("per") else {})


def mean_of(added: list[AddedBy], keys: tuple[str, ...] | None = None) -> list[int]:
    """The units of the records that fit wholly, and how many they are, by key."""
    fit = [one for one in added if not one.cut]
    groups = [fit] if keys is None else [[o for o in fit if o.event.key == key] for key in keys]
    return [sum(one.units for one in each) for each in groups] + [len(each) for each in groups]


def expected_of_two(logs: Mapping[int, Log], caps: Caps) -> list[tuple[int, ...]]:
    amounts, others = shared(logs, amount, 3, caps), shared(logs, pieces, 5, caps)
    active, cut, of_pieces = ([set[str]() for _ in range(HORIZON)] for _ in range(3))
    for event in on_time(logs):
        active[event.tick].add(event.user)
    for one in (*amounts, *others):
        cut[one.event.tick] |= {one.event.user} if one.cut else set()
    for one in others:
        of_pieces[one.event.tick] |= {one.event.user} if one.cut else set()
    users = [first_arrivals(named, caps.window) for named in (active, cut, active, of_pieces)]
    rows = []
    for tick in range(HORIZON):
        first, second = ([o for o in e if o.event.tick == tick] for e in (amounts, others))
        some = sum(one.units for one in second if one.event.key in SOME)
        sums = [sum(one.units for one in first), some]
        own = [column[tick] for column in users]
        rows.append((*sums, *mean_of(first), *mean_of(second, KEYS), *own))
    return rows


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("caps", CAPS, ids=str)
def test_rows_of_two_totals_and_of_means_are_those_of_the_definition(caps: Caps, seed: int) -> None:
    """Whatever one total has left, the other has its own; a mean counts the records that fit wholly."""
    logs: dict[int, Log] = {0: some_log(Random(seed), USERS, 120)}
    wanted = expected_of_two(logs, caps)
    for lot in (1, 2):
        assert rows(with_totals(caps), logs, lot) == wanted
    assert sum(row[-3] for row in wanted) > 0


@pytest.mark.parametrize("caps", CAPS, ids=str)
async def test_two_totals_hold_through_crashes_anywhere(caps: Caps) -> None:
    for seed in range(2):
        logs: dict[int, Log] = {0: some_log(Random(seed), USERS, 90)}
        world = SharedWorld(logs, with_totals(caps), group=1 + seed)
        assert await crashes(world, Random(seed)) > 1
        assert world.recorded() == expected_of_two(logs, caps)
        kinds = {kind for commit in world.commits() for kind in commit.parts}
        assert {"shared total of amount", "shared total of pieces"} <= kinds


async def test_a_start_that_forgets_one_total_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    class OneForgotten(SharedTotalMemory):
        """A twin: a start knows nothing of what users have added to the second total."""

        def replay(self, commit: Commit) -> None:
            self.recall({}, commit) if self.kind.endswith("pieces") else super().replay(commit)

    monkeypatch.setattr("stream_dp.pipeline.user_guard.SharedTotalMemory", OneForgotten)
    wrong_runs = 0
    for seed in range(4):
        logs: dict[int, Log] = {0: some_log(Random(seed), USERS, 90)}
        world = SharedWorld(logs, with_totals(Caps(3, WINDOW)), group=1 + seed)
        await crashes(world, Random(seed))
        wrong_runs += world.recorded() != expected_of_two(logs, Caps(3, WINDOW))
    assert wrong_runs > 0


MEANS: list[dict[str, Any]] = [
    {"name": "mean", **SUM, "statistic": "mean", "where": [{"field": "key", "equals": "c"}]},
    {"name": "others", **SUM, "statistic": "mean", "where": [{"field": "key", "one_of": ["a", "b"]}]},
    {"name": "keyed", **SUM, "statistic": "mean", "by": "key"},
]  # fmt: skip


def test_totals_that_no_series_shares_change_no_rows_and_their_order_means_nothing() -> None:
    logs: dict[int, Log] = {0: some_log(Random(7), USERS, 60)}
    every = rows(with_totals(CAPS[0]), logs, 1)
    for totals in (TOTALS, TOTALS[::-1]):
        assert rows(with_totals(CAPS[0], totals), logs, 1) == every
        assert rows(with_totals(CAPS[0], totals, SEVERAL[:1]), logs, 1) == [r[:1] for r in every]
    one, other = (fingerprint(with_totals(CAPS[0], each)) for each in (TOTALS, TOTALS[::-1]))
    assert (
        one == other != fingerprint(with_totals(CAPS[0], [TOTALS[0] | {"at_most": "2"}, TOTALS[1]]))
    )


@pytest.mark.parametrize("totals", [TOTALS, TOTALS[::-1]], ids=["given", "the other way round"])
def test_noise_is_for_the_total_of_its_own_amount(totals: Any) -> None:
    alone = {name: value for name, value in SUM.items() if name != "shared_total"}
    built = build(with_totals(CAPS[0], totals, [*SEVERAL[:4], {"name": "alone", **alone}]))
    sums: dict[str, Any] = {
        each.spec.name: getattr(each.mechanism, "sums", each.mechanism) for each in built.chosen
    }
    assert built.chosen[-1].spec.shares is None
    assert not isinstance(sums.pop("alone"), SharedSums)
    found = {name: (each.of, each.total) for name, each in sums.items()}
    amounts, others = ("amount", 3), ("pieces", 5)
    assert found == {"amounts": amounts, "pieces": others, "mean": amounts, "means": others}


def halves(spec: PipelineSpec, most: int) -> tuple[int, int]:
    """The most that all records of a user change the sums, and the numbers of records, of two means apart, or of one by
    key.
    """
    gone, sums, counts = rows_of(spec, {0: OTHER}, Random(0)), 0, 0
    for lot, events in enumerate(records_of_one(most)):
        gap = np.abs(rows_of(spec, {0: [*events, *OTHER]}, Random(lot)) - gone).sum(axis=0)
        sums = max(sums, int(gap[0] + gap[2]), int(gap[4:8].sum()))
        counts = max(counts, int(gap[1] + gap[3]), int(gap[8:].sum()))
    return sums, counts


def test_a_user_changes_the_sums_of_means_by_the_total_and_the_counts_by_the_cap() -> None:
    """A total of 3 and a cap of 2 records; of 1 and 3: neither half is bounded by what bounds the other."""
    for cap, total in ((2, 3), (3, 1)):
        spec = spec_of(Caps(cap, WINDOW), total)
        made = PIPELINE | {"privacy": spec.privacy, "series": MEANS}
        assert halves(PipelineSpec.model_validate(made), 3) == (total, cap)
