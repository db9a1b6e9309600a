"""Caps of a user's events in each tick and by the values of a field, beside that of a window.

First every sequence of records of one user on a small grid: the largest norms of the change of the table of ticks and
keys are those of the formulas. Then the real guard, router and assembler against the oracle, and crashing engines.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
from faults.test_user_caps import crashes
from oracles.user_caps import Event, Log, Mark, judge
from unit.pipeline.routing.user_worlds import (
    CAP,
    FOR_EVER,
    HORIZON,
    KEYS,
    PIPELINE,
    SEALER,
    WINDOW,
    UserWorld,
    cut,
    payload,
    some_log,
    specification,
)

from stream_dp.core.mechanism import IntArray
from stream_dp.core.neighbors import Users
from stream_dp.core.row_relations import Arrivals
from stream_dp.engine.memories import KeyCapMemory, KeysMemory, TickCapMemory
from stream_dp.engine.ports import Batch
from stream_dp.engine.tick_assembler import Cut, TickAssembler
from stream_dp.errors import FailClosed
from stream_dp.pipeline import user_guard
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.fingerprints import fingerprint
from stream_dp.pipeline.promise import unit_json, unit_words
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_guard import UserGuard, guard_of

USERS = tuple(f"user {number}" for number in range(5))
GRID = 3


class Shape(NamedTuple):
    """k events in a window of so many ticks (None: for ever), a of a tick, b of a key, of m keys."""

    cap: int
    window: int | None = WINDOW
    per_tick: int | None = None
    per_key: int | None = None
    keys: int | None = None

    @property
    def by_key(self) -> bool:
        return self.per_key is not None or self.keys is not None

    @property
    def spec(self) -> PipelineSpec:
        caps = {"per_tick": self.per_tick, "per_key": self.per_key, "keys": self.keys}
        written = {name: str(most) for name, most in caps.items() if most is not None}
        for_window = {"max_events": str(self.cap), "per": f"{self.window}s"}
        written |= {"overall": str(self.cap)} if self.window is None else for_window
        rest = {"unit": "user", "user": "customer", "epsilon": "100"}
        rest |= {"key": "key"} if self.by_key else {}
        return specification(privacy=rest | written)


def fill(total: int, most: int) -> int:
    """The largest sum of squares of numbers up to `most` that add up to `total`."""
    whole, rest = divmod(total, most)
    return whole * most**2 + rest**2


SMALL = [
    Shape(5, 3, 1, 2, 2),
    Shape(4, 3, 2, 3, 1),
    Shape(6, 3, 2, 1, 3),
    Shape(6, 3, None, 2, 2),
    Shape(3, 3, 2, 2, None),
    Shape(4, 3, 3, None, 2),
    Shape(6, 3, 1, None, 1),
    Shape(5, 3, 2, 2, 3),
    Shape(2, 3, 1),
    Shape(4, 3, 1),
    Shape(5, 3, 2),
]


@pytest.mark.parametrize("shape", SMALL, ids=str)
def test_all_records_of_a_user_change_what_the_formulas_say(shape: Shape) -> None:
    """l1 = min(k, m b, a T), l-infinity = min(a, b, k), and l2 squared = fill(l1, that), in a window."""
    largest = [0, 0, 0]
    cells = [Event("u", tick, key) for tick in range(GRID) for key in KEYS[:3]]
    for number in range(1, shape.cap + 1):
        for events in itertools.combinations_with_replacement(cells, number):
            rows = judge({0: events}, *shape[:2], None, None, *shape[2:]).rows.values()
            norms = [sum(rows), max(rows), sum(n * n for n in rows)]
            largest = [max(pair) for pair in zip(largest, norms, strict=True)]
    cap, window, per_tick, per_key, keys = (1000 if most is None else most for most in shape)
    total, most = min(cap, per_tick * window, per_key * min(keys, 3)), min(cap, per_tick, per_key)
    assert largest == [total, most, fill(total, most)]
    booked = shape.spec.protection.users
    assert booked == Users(total, 3) or (shape.keys is None and booked == Users(shape.cap, 3))


def test_orders_of_records_change_what_counts_and_not_how_much_at_most() -> None:
    """Every sequence of four records under caps that are all in the way."""
    kinds = [Event("u", tick, key) for tick in range(GRID) for key in KEYS[:3]]
    for shape in (Shape(3, 3, 1, 1, 2), Shape(3, 3, 2, 2, 1), Shape(3, 3, 1)):
        most = shape.spec.privacy.most_events(shape.spec.clock)
        for events in itertools.product(kinds, repeat=4):
            verdict = judge({0: events}, *shape[:2], None, None, *shape[2:])
            assert sum(verdict.rows.values()) <= most
            assert sum(verdict.rows.values()) + verdict.capped == 4


def rows_of(spec: PipelineSpec, logs: dict[int, Log], random: Random) -> tuple[IntArray, int]:
    """The rows by key of the real path, without an engine, and how many records were capped; batches are by lot."""
    router = OpenRouter(spec, 0, None, SEALER.user_key())
    guard: Any = guard_of(spec, 0, SEALER.user_key())
    guard.begin(sorted(logs))
    ticks = TickAssembler(sorted(logs), router.width)
    rows, capped = list[IntArray](), 0
    for batch in cut(logs, random):
        admitted = guard.admit(router.decode(batch), ticks.passed(batch.partition))
        ticks.add(admitted, router.route(admitted))
        capped += admitted.capped
        while closed := ticks.closed(random.randint(1, 3)):
            for memory in guard.memories:
                memory.record(closed)
            rows += [one.row for one in closed]
    assert all(memory._pending == {} for memory in guard.memories)
    return np.array(rows)[:, 1:5], capped


CAPS = [
    Shape(5, WINDOW, 2, 1, 3),
    Shape(3, WINDOW, None, 2, 1),
    Shape(6, WINDOW, 2, 2, 2),
    Shape(4, WINDOW, None, None, 2),
    Shape(4, WINDOW, 3, 1, None),
    Shape(7, None, 1, 3, 2),
    Shape(3, WINDOW, 2),
    Shape(7, WINDOW, 1),
    Shape(6, None, 2),
]


def judged(logs: Mapping[int, Log], shape: Shape) -> Any:
    return judge(logs, shape.cap, shape.window, None, None, *shape[2:])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", CAPS, ids=str)
def test_the_records_that_count_are_those_of_the_oracle(shape: Shape, seed: int) -> None:
    logs: dict[int, Log] = {0: some_log(Random(seed), USERS, 160)}
    verdict = judged(logs, shape)
    for lot in (1, 2):
        rows, capped = rows_of(shape.spec, logs, Random(lot))
        by_key = {
            (t, k): n
            for t, row in enumerate(rows.tolist())
            for k, n in zip(KEYS, row, strict=True)
            if n
        }
        assert by_key == verdict.rows
        assert capped == verdict.capped > 0


def test_noise_is_for_what_all_caps_let_count() -> None:
    assert Shape(9, 4, None, 2, 3).spec.protection.users == Users(6, 4)
    assert Shape(9, 4, 1, 2, 3).spec.protection.users == Users(4, 4)
    assert Shape(5, 4, None, 2, 3).spec.protection.users == Users(5, 4)
    assert Shape(9, 4, None, 2).spec.protection.users == Users(9, 4)  # of so many keys as there are
    assert Shape(9, 4, None, None, 3).spec.protection.users == Users(9, 4)
    assert Shape(9, None, 1, 2, 3).spec.protection.users == Users(6)
    assert Shape(3, 4, 1).spec.protection.users == Users(3, 4)
    assert Shape(60, None, 1).spec.protection.users == Users(60)
    seven, four = (
        build(spec)
        for spec in (
            Shape(7, 4, 1).spec,
            specification(privacy=PIPELINE["privacy"] | {"max_events": "4"}),
        )
    )
    assert seven.spec.protection.users == Users(4, 4)
    assert [c.mechanism for c in seven.chosen] == [c.mechanism for c in four.chosen]


def records_of(spec: PipelineSpec, records: Sequence[Any]) -> list[int]:
    """Which of these records of one batch count, by their places: whether the router has decoded them or not."""
    values = [json.dumps({"time": 1000, "customer": "u"} | record).encode() for record in records]
    batch = Batch(0, values, range(len(values)), len(values))
    decoded, plain = (
        list(map(int, _guard(spec).admit(each, -1).labels))
        for each in (OpenRouter(spec, 0, None, SEALER.user_key()).decode(batch), batch)
    )
    assert decoded == plain
    return plain


def _guard(spec: PipelineSpec) -> Any:
    guard: Any = guard_of(spec, 0, SEALER.user_key())
    guard.begin((0,))
    return guard


def with_key(kind: dict[str, Any], **caps: str) -> PipelineSpec:
    """A pipeline whose field `where` has this type, with caps by it."""
    rest = {
        "unit": "user",
        "user": "customer",
        "max_events": "9",
        "per": "4s",
        "key": "where",
        "epsilon": "100",
    }
    schema = PIPELINE["schema"] | {"key": {"type": "text", "nullable": True}, "where": kind}
    series = [{"name": "all", "statistic": "count", "epsilon": "2"}]
    return specification(privacy=rest | caps, schema=schema, series=series)


def test_null_is_a_key_of_its_own_and_so_is_all_outside_a_domain() -> None:
    texts = ["a", "b", "x", "y", None, "", "a", "x", "None"]
    records = [{"where": text} for text in texts] + [{}]
    category = {"type": "category", "domain": ["a", "b"], "nullable": "true"}
    assert records_of(with_key(category, per_key="1"), records) == [0, 1, 2, 4]
    assert records_of(with_key({"type": "text", "nullable": "true"}, per_key="1"), records) == [
        *(0, 1, 2, 3, 4, 5, 8)
    ]
    numbers = [{"where": 7}, {"where": 7}, {"where": -7}, {"where": None}]
    assert records_of(with_key({"type": "integer", "nullable": "true"}, keys="2"), numbers) == [
        *(0, 1, 2)
    ]


def test_long_keys_and_pairs_that_look_alike_are_told_apart() -> None:
    text = with_key({"type": "text"}, keys="1")
    long = "x" * 5000
    assert records_of(text, [{"where": long}, {"where": long + "y"}, {"where": long}]) == [0, 2]
    made: Any = guard_of(text, 0, SEALER.user_key())
    pairs = made._by_key.pairs
    record = made._decoder.decode(
        [b'{"time": 0, "customer": "u", "where": %s}' % where for where in (b'"bc"', b'"c"')]
    ).records
    assert len({*pairs([b"a", b"ab", b"a"], [record[0], record[1], record[1]])}) == 3


def test_a_record_whose_key_cannot_be_read_is_a_dead_letter_and_uses_nothing() -> None:
    spec = with_key({"type": "text"}, keys="1")
    records = [{"where": 3}, {}, {"where": None}, {"where": "a"}, {"where": "b"}, {"where": "a"}]
    assert records_of(spec, records) == [3, 5]


def test_a_record_that_one_cap_excludes_uses_no_other() -> None:
    """Each of the three ways in which one cap could use up another."""
    tick_by_key = [{"where": "a"}, {"where": "a"}, {"where": "b"}]
    assert records_of(with_key({"type": "text"}, per_key="1", per_tick="2"), tick_by_key) == [0, 2]
    key_by_tick = [{"where": "a"}, {"where": "b"}, {"where": "b", "time": 2000}]
    assert records_of(with_key({"type": "text"}, per_key="1", per_tick="1"), key_by_tick) == [0, 2]
    keys_by_tick = [{"where": "a"}, {"where": "b"}, {"where": "c", "time": 2000}]
    assert records_of(with_key({"type": "text"}, keys="2", per_tick="1"), keys_by_tick) == [0, 2]


def test_a_record_that_no_series_can_read_uses_the_caps_by_key_all_the_same() -> None:
    added = {"name": "sum", "statistic": "sum", "of": "amount", "clamp": ["0", "3"], "epsilon": "2"}
    plain = Shape(5, WINDOW, 2, 1, 3).spec
    privacy = plain.model_dump(mode="json", include={"privacy"}, exclude_none=True)["privacy"]
    more = specification(privacy=privacy, series=[*PIPELINE["series"], added])
    guards: list[Any] = []
    for spec in (plain, more):
        router = OpenRouter(spec, 0, None, SEALER.user_key())
        guards.append(guard_of(spec, 0, SEALER.user_key()))
        guards[-1].begin((0,))
        for batch in cut({0: some_log(Random(3), USERS, 160)}, Random(1)):
            odd = [value.replace(b'"amount": 0', b'"amount": "?"') for value in batch.payloads]
            guards[-1].admit(router.decode(replace(batch, payloads=odd)), -1)
    for memories in zip(*(guard.memories for guard in guards), strict=True):
        one, other = (sorted(map(tuple, memory._table._rows.tolist())) for memory in memories)
        assert one == other


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("shape", CAPS, ids=str)
async def test_caps_hold_through_crashes_anywhere(shape: Shape, seed: int) -> None:
    world = world_of(seed, shape)
    assert await crashes(world, Random(seed)) > 1
    assert world.rows() == judged(world.logs, shape).rows
    kinds = {kind for commit in world.commits() for kind in commit.parts}
    assert ("users by key" in kinds) == shape.by_key
    assert ("keys of users" in kinds) == (shape.keys is not None)
    for commit in world.commits():
        if commit.ticks and "users by tick" in commit.parts:
            assert shape.per_tick is not None
            again = TickCapMemory(shape.per_tick, 1)
            again.replay(commit)  # of open ticks alone
            assert len(again._table) > 0


def world_of(seed: int, shape: Shape) -> UserWorld:
    logs = {0: some_log(Random(seed), USERS, 160)}
    return UserWorld(logs, shape.spec, group=1 + seed % 4)


@pytest.mark.parametrize("kind", [None, KeyCapMemory, KeysMemory, TickCapMemory])
def test_what_was_read_behind_the_cut_is_given_back_to_all_caps(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same records count when they are read again, unless one memory of the twin keeps what it counted."""
    if kind is not None:
        monkeypatch.setattr(kind, "rewind", lambda _, cut: cut)
    guard: Any = guard_of(Shape(5, WINDOW, 2, 1, 2).spec, 0, SEALER.user_key())
    guard.begin((0,))
    log = [
        Event("u", tick, key) for tick, key in ((0, "a"), (0, "a"), (0, "b"), (1, "c"), (2, "b"))
    ]
    batch = Batch(0, [payload(event) for event in log], range(len(log)), len(log))
    for again in range(3):
        admitted = guard.admit(batch, -1)
        if again and kind is not None:
            assert list(admitted.labels) != [0, 2]
            return
        assert list(admitted.labels) == [0, 2]
        assert admitted.capped == 3
        kinds = ["users by key", "keys of users", "users by tick", "users"]
        assert [used.kind for used in admitted.used] == kinds
        for memory in guard.memories:
            memory.rewind(Cut())


@pytest.mark.parametrize(("caps", "kept"), [
    ({"keys": "3", "per_key": "2"}, [1, 3, 1]), ({"per_key": "2"}, [1, 9]), ({"keys": "3"}, [1, 3, 1]),
])  # fmt: skip
def test_what_it_remembers_is_bounded_by_the_caps_and_forgotten_with_the_window(
    caps: dict[str, str], kept: list[int]
) -> None:
    """Of a user with thousands of keys no more is kept than the caps let count."""
    spec = with_key({"type": "text"}, **caps)
    guard: Any = guard_of(spec, 0, SEALER.user_key())
    guard.begin((0,))
    for begin in range(0, 20_000, 1000):
        records = [{"time": 1000, "customer": "u", "where": f"{begin + at}"} for at in range(1000)]
        values = [json.dumps(record).encode() for record in records]
        guard.admit(Batch(0, values, range(1000), 1000), -1)
    assert [len(memory._table) for memory in guard.memories] == kept
    for memory in guard.memories:
        assert memory._table._rows.nbytes < 200_000
        memory._forget(3)
        assert len(memory._table) > 0
        memory._forget(4)
        assert len(memory._table) == 0


def without_the_user(self: Any, users: Any, records: Any) -> list[bytes]:
    return ["".join(map(str, [self._value_of(record)])).encode() for record in records]


def every_record(memory: TickCapMemory, users: Any, windows: Any) -> Any:
    return np.ones(len(users), np.bool_), None


TWINS: list[tuple[str, Any, str, Any]] = [
    ("forgotten", KeyCapMemory, "replay", lambda *_: None),
    ("keys forgotten", KeysMemory, "replay", lambda *_: None),
    ("ticks forgotten", TickCapMemory, "replay", lambda *_: None),
    ("no cap of ticks", TickCapMemory, "admit", every_record),
    ("all users together", user_guard.KeyCaps, "pairs", without_the_user),
]


@pytest.mark.parametrize(
    ("owner", "method", "twin"), [t[1:] for t in TWINS], ids=[t[0] for t in TWINS]
)
async def test_caps_that_are_wrong_are_caught(
    owner: Any, method: str, twin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, method, twin)
    wrong = 0
    for seed in range(4):
        for shape in (CAPS[0], CAPS[2], CAPS[5], CAPS[8]):
            world = world_of(seed, shape)
            try:
                await crashes(world, Random(seed))
            except (FailClosed, ExceptionGroup):
                wrong += 1
            else:
                wrong += world.rows() != judged(world.logs, shape).rows
            if wrong:
                return
    pytest.fail("nothing was wrong")


def test_a_pipeline_without_them_is_the_same_as_before() -> None:
    plain = specification()
    assert fingerprint(plain) == fingerprint(specification(privacy=PIPELINE["privacy"]))
    assert plain.protection.users == Users(CAP, WINDOW)
    shapes = (*CAPS, Shape(CAP, WINDOW, None, 1))
    assert len({fingerprint(spec) for spec in (plain, *(s.spec for s in shapes))}) == len(CAPS) + 2
    guard: Any = UserGuard(plain, 0, SEALER.user_key())
    assert [memory.kind for memory in guard.memories] == ["users"]


def test_the_unit_says_all_its_caps() -> None:
    spec = Shape(9, 4, 2, 2, 3).spec
    words = "of which at most 6 count, 2 of a tick, 2 of a key and 3 values of key"
    assert words in unit_words(spec)
    users = unit_json(spec)["users"]
    assert (users["key"], users["per_key"], users["keys"], users["per_tick"]) == ("key", 2, 3, 2)
    of_ticks = Shape(7, 4, 1).spec
    assert "of which at most 4 count, and 1 of a tick" in unit_words(of_ticks)
    assert unit_json(of_ticks)["users"]["per_tick"] == 1
    plain = unit_json(specification())["users"].keys()
    assert not {"key", "per_key", "keys", "per_tick"} & plain


def counting_keys(kind: dict[str, Any], window: str | None, **caps: str) -> PipelineSpec:
    """A pipeline that counts the different values of the key of these caps."""
    spec = with_key(kind, **caps)
    own = {} if window is None else {"every": window, "running": "true"}
    series = [{"name": "keys", "statistic": "distinct", "of": "where", "epsilon": "2", **own}]
    privacy = spec.model_dump(mode="json", include={"privacy"}, exclude_none=True)["privacy"]
    fields = {name: field.model_dump(mode="json") for name, field in spec.fields.items()}
    return specification(privacy=privacy, schema=fields, series=series)


CATEGORY = {"type": "category", "domain": ["a", "b"]}


def test_different_values_of_the_key_go_by_the_number_of_keys() -> None:
    """And not where all values outside a domain are one key for caps, and as many as they are in the series."""

    def chosen_for(kind: dict[str, Any], window: str | None, **caps: str) -> Any:
        return build(counting_keys(kind, window, **caps)).chosen[0]

    text = {"type": "text", "nullable": "true"}
    chosen = chosen_for(text, "4s", keys="2")
    assert chosen.mechanism.arrivals == Arrivals(4, Users(9, 4), values=2)
    assert chosen.derivation.rule == "first ticks of identifiers"
    assert chosen_for(text, None, keys="2", per_key="1").mechanism.arrivals.changes == 4
    for other in (chosen_for(text, "4s", per_key="2"), chosen_for(CATEGORY, "4s", keys="2")):
        assert other.derivation.rule == "all events of one user"
        assert other.mechanism.arrivals == Arrivals(4)
        assert other.mechanism.epsilon * 9 == chosen.mechanism.epsilon


def test_they_hold_for_ever_beside_a_cap_for_ever() -> None:
    spec = specification(privacy=FOR_EVER | {"overall": "9", "key": "key", "keys": "2"})
    logs: dict[int, Log] = {
        0: [*(Event("u", t, KEYS[t % 4]) for t in range(HORIZON)), Mark(HORIZON - 1)]
    }
    rows, _ = rows_of(spec, logs, Random(1))
    assert np.count_nonzero(rows.sum(axis=0)) == 2
