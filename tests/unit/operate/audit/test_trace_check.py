"""What an engine did, as a trace of the concurrent composition: releases and states are those of the theory's object.

Real noise under seeds that are the same in every run of the tests, live series, snapshots and restarts; twins of the
engine, of the journal and of the trace are caught.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from oracles.trace_pairs import pair_accepted
from unit.live.live_series_worlds import HORIZON, World
from unit.live.message_worlds import WATCHED, WITH_ANALYSTS, MessageWorld, sealed, text
from unit.operate.audit.trace_worlds import (
    RICH,
    SEALER,
    blobs,
    checked,
    lived,
    resealed,
    seeded,
    steps,
)

from stream_dp.accounting.situations import Alive
from stream_dp.core.mechanism import Query, Update
from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.engine.history import read_summary
from stream_dp.engine.recovery import _as_recorded
from stream_dp.engine.series import Series
from stream_dp.errors import FailClosed
from stream_dp.journal.commit import Asked, Commit, Halted, Release, SavedStates
from stream_dp.journal.release import former
from stream_dp.noise import NoiseStream
from stream_dp.operate.audit import journal_trace
from stream_dp.operate.audit.journal_trace import JournalTrace
from stream_dp.operate.audit.ledger_check import derived_again, live_charges
from stream_dp.pipeline.builder import Built
from stream_dp.pipeline.derivations import heaviest_load
from stream_dp.verify.relations import engine_relation, own_or

RELATIONS = [Neighbors.ADD_REMOVE, Neighbors.REPLACE, Neighbors.REPLACE_ANY_TICK]


def under(relation: Neighbors) -> dict[str, Any]:
    named = {"neighbors": "add_remove"}
    if relation is not Neighbors.ADD_REMOVE:
        moves = "within_tick" if relation is Neighbors.REPLACE else "any_tick"
        named = {"neighbors": "replace", "moves": moves}
    return {**RICH, "privacy": {**RICH["privacy"], **named}}


@pytest.fixture
async def world() -> World:
    return await lived(seeded(RICH))


@pytest.mark.parametrize("relation", RELATIONS)
async def test_the_engine_is_the_composition(relation: Neighbors) -> None:
    """Three series from the start, one for ticks 3 to 8, one from tick 9 on."""
    world = await lived(seeded(under(relation)))
    found = await checked(world)
    releases = sum(len(commit.releases) for commit in world.commits())
    assert releases == 3 * HORIZON + 6 + 3
    assert (found.ticks, found.releases) == (HORIZON, releases)
    assert (found.counts.creations, found.counts.asks, found.counts.halts) == (5, 2 * releases, 1)
    assert found.snapshots == sum(c.snapshot is not None for c in world.commits()) >= 2
    assert (found.relation, found.apart) == (str(relation), True)


def messages(world: World) -> list[Any]:
    return [step.sent.message for step in steps(world)]


def claims(world: World) -> Any:
    trace = JournalTrace(world.built)
    for commit in world.commits():
        list(trace.steps(commit))
    return trace.claims


def passes(relation: Neighbors, left: World, right: World) -> bool:
    """Whether the verifier of the claimed relation lets the pair of traces pass."""
    claimed = engine_relation(relation, own_or(claims(left)))
    return pair_accepted(claimed, messages(left), messages(right))


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("event", [(0, "DE"), (4, "FR"), (11, "other")])
async def test_two_neighbouring_runs_are_a_pair_of_the_claimed_relation(
    relation: Neighbors, event: tuple[int, str]
) -> None:
    """Their noise and releases are their own; their messages are those of neighbours."""
    left, right = [
        await lived(seeded(under(relation), salt), *added)
        for salt, added in enumerate(((), (event,)))
    ]
    assert left.bodies != right.bodies
    for one, other in ((left, right), (right, left), (left, left)):
        assert passes(relation, one, other)


TWO = {
    "twice in one entry": ((4, "DE"), (4, "DE")),
    "two entries of one tick": ((4, "DE"), (4, "FR")),
    "two ticks": ((2, "DE"), (9, "DE")),
}


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("events", TWO)
async def test_two_events_are_no_neighbours(relation: Neighbors, events: str) -> None:
    left, right = [
        await lived(seeded(under(relation), salt), *added)
        for salt, added in enumerate(((), TWO[events]))
    ]
    assert not passes(relation, left, right)
    assert not passes(relation, right, left)


async def test_a_replaced_event_and_one_that_moved() -> None:
    """One event of one run is another one, in its tick or in a later one, in the other run."""
    kinds = {
        Neighbors.ADD_REMOVE: (False, False),
        Neighbors.REPLACE: (True, False),
        Neighbors.REPLACE_ANY_TICK: (True, True),
    }
    for relation, (replaced, moved) in kinds.items():
        left, other, later = [
            await lived(seeded(under(relation)), added)
            for added in ((2, "DE"), (2, "FR"), (9, "FR"))
        ]
        assert passes(relation, left, other) is replaced
        assert passes(relation, left, later) is moved


def asks_before_it_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A twin of the engine: the question comes before the tick's row."""

    def step(
        series: Any, grid: Any, state: Any, tick: int, sequence: int, row: Any, noise: Any
    ) -> Any:
        mechanism = series.mechanism
        state, answer = mechanism.step(state, Query(), noise)
        state, _ = mechanism.step(state, Update(row[series.rows]), noise)
        return state, series.body(grid, sequence, tick, state, answer)

    monkeypatch.setattr(Series, "step", step)


async def test_an_engine_that_asks_before_it_updates_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It recovers from its own journals without complaint: its recovery runs the same code."""
    asks_before_it_updates(monkeypatch)
    world = await lived(seeded(RICH))
    with pytest.raises(FailClosed, match="differs from the recorded release"):
        await checked(world)


async def test_an_engine_that_shares_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    world = seeded(RICH)
    world.noise = lambda seed, number: NoiseStream(seed, 0)
    own = Built.run_config  # as if this noise were the product's
    monkeypatch.setattr(Built, "run_config", lambda self, now, **_: own(self, now))
    with pytest.raises(FailClosed, match="differs from the recorded"):
        await checked(await lived(world))


async def test_an_engine_that_draws_twice_from_one_seed_is_caught() -> None:
    """Its releases are those of the composition, its recovery is content, and every tick has the same noise."""
    seeds = iter([bytes([n]) * 32 for n in range(9)] + [bytes([8]) * 32] * 99)
    world = World(RICH, seeds=lambda: next(seeds))
    with pytest.raises(FailClosed, match="uses a seed a second time"):
        await checked(await lived(world))


async def test_a_wrong_relation_is_noticed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the claim for fewer pairs than it says, the check would say so; and were it for more."""
    monkeypatch.setattr(journal_trace, "same_tick", lambda message, row: replace(message, index=99))
    with pytest.raises(FailClosed, match="with one more event"):
        await checked(world)
    monkeypatch.setattr(journal_trace, "same_tick", lambda message, row: message)
    assert (await checked(world)).apart is False


def ticked(commits: list[Commit]) -> int:
    places = [n for n, commit in enumerate(commits) if commit.ticks]
    return places[len(places) // 2]


def changed(commits: list[Commit], at: int, **fields: Any) -> None:
    commits[at] = msgspec.structs.replace(commits[at], **fields)


def another_release(commits: list[Commit]) -> None:
    *others, last = commits[at := ticked(commits)].releases
    body = last.body.replace(b'"value":', b'"value":1') + b" " * (b'"value":' not in last.body)
    changed(commits, at, releases=(*others, msgspec.structs.replace(last, body=body)))


def another_seed(commits: list[Commit]) -> None:
    at = ticked(commits)
    changed(commits, at, seeds=(bytes(32), *commits[at].seeds[1:]))


def another_row(commits: list[Commit]) -> None:
    (first, *others), *rows = commits[at := ticked(commits)].rows
    changed(commits, at, rows=((first + 1, *others), *rows))


def no_last_release(commits: list[Commit]) -> None:
    at = ticked(commits)
    changed(commits, at, releases=commits[at].releases[:-1])


def one_release_twice(commits: list[Commit]) -> None:
    releases = commits[at := ticked(commits)].releases
    changed(commits, at, releases=(*releases, releases[-1]))


def another_state(commits: list[Commit]) -> None:
    at = next(n for n, each in enumerate(commits) if each.snapshot is not None)
    states = dict(commits[at].snapshot.states)  # type: ignore[union-attr]
    states[0] = states[0].replace(b"\x01", b"\x02", 1)
    changed(commits, at, snapshot=SavedStates(states))


def no_halt(commits: list[Commit]) -> None:
    halts = (any(isinstance(c, Halted) for c in each.changes) for each in commits)
    changed(commits, list(halts).index(True), changes=())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (another_release, "differs from the recorded release"),
        (another_seed, "differs from the recorded release"),
        (another_row, "differs from the recorded release"),
        (no_last_release, "lacks the release of series|holds a release that answers no message"),
        (one_release_twice, "lacks the release of series|holds a release that answers no message"),
        (another_state, "differs from the snapshot"),
        (no_halt, "lacks the release of series"),
    ],
)
async def test_an_altered_journal_is_caught(
    world: World, change: Callable[[list[Commit]], None], message: str
) -> None:
    resealed(world, change)
    with pytest.raises(FailClosed, match=message):
        await checked(world)


CAPS: list[dict[str, str]] = [{"max_events": "3", "per": "4h"}, {"overall": "3"}]


def of_users(caps: dict[str, str]) -> dict[str, Any]:
    """Users are who buys; of each three events count."""
    privacy = {**RICH["privacy"], "unit": "user", "user": "country", **caps}
    return {**RICH, "privacy": privacy}


@pytest.mark.parametrize("caps", CAPS)
async def test_the_trace_beside_all_events_of_one_user(caps: dict[str, str]) -> None:
    """The check of the command, and a run with a user more who has events in two ticks of one window."""
    left = await lived(seeded(of_users(caps)))
    report = await checked(left)
    users = Users(3, 4 if "per" in caps else None)
    assert (report.users, report.apart) == (users, True)
    assert report.json()["one_more_is_refused"] is True
    right = await lived(seeded(of_users(caps), 1), (4, "CH"), (4, "CH"), (6, "CH"))
    pair, truth = [messages(left), messages(right)], own_or(claims(left))
    assert pair_accepted(engine_relation(Neighbors.ADD_REMOVE, truth, users), *pair)
    assert not pair_accepted(engine_relation(Neighbors.ADD_REMOVE, truth, Users(1)), *pair)
    assert not pair_accepted(engine_relation(Neighbors.ADD_REMOVE, truth, Users(3, 2)), *pair)
    assert not pair_accepted(engine_relation(Neighbors.ADD_REMOVE, truth), *pair)


async def test_the_trace_of_series_that_go_by_how_a_users_events_lie() -> None:
    """All of a user's events in one tick are no pair of theirs; as many as one tick may have are."""
    gaussian = {"statistic": "count", "method": "gaussian", "epsilon": "0.5"}
    data = of_users(
        {"max_events": "3", "per": "4h", "per_tick": "1", "filter": "zcdp", "delta": "1e-6"}
    )
    series = [{**gaussian, "name": "all"}, {**gaussian, "name": "day", "windows": ["4h"]}]
    left = await lived(seeded({**data, "series": series}))
    report = await checked(left)
    assert (report.users, report.apart) == (Users(3, 4), True)
    for events, neighbours in (((4, 5, 6), True), ((4, 4), False)):
        right = await lived(
            seeded({**data, "series": series}, 1), *((tick, "CH") for tick in events)
        )
        pair, truth = [messages(left), messages(right)], own_or(claims(left))
        claimed = engine_relation(Neighbors.ADD_REMOVE, truth, Users(3, 4))
        assert pair_accepted(claimed, *pair) == neighbours


@pytest.mark.parametrize("caps", CAPS)
async def test_a_journal_for_users_is_derived_again(caps: dict[str, str]) -> None:
    world = await lived(seeded(of_users(caps)))
    summary = await read_summary(blobs(world), SEALER, world.built.spec.name)
    admission, total, parts = derived_again(world.built, summary)
    users = Users(3, 4 if "per" in caps else None)
    assert total.guarantee.users == users
    assert [part.alive for part in parts] == [Alive(0, None), Alive(3, 8), Alive(9, None)]
    assert all(part.derivation.guarantee.users == users for part in parts)
    main = admission.subledgers.main  # 3 and 1, not 3 and 1/4 and 1
    assert heaviest_load(main.filter, parts) == main.peak.amount == 4 * 10**12
    assert all(f", for {users}" in charge.rule for charge in summary.first_charges)
    assert all(f", for {users}" in live.charge.rule for live in live_charges(summary))


OF = {"statistic": "quantiles", "of": "amount", "clamp": ["0", "12"], "buckets": "12", "at": ["0.5"]}  # fmt: skip
QUANTILES: dict[str, Any] = {
    **RICH,
    "series": [
        {**OF, "name": "sliding", "windows": ["2h", "ever"], "epsilon": "1"},
        {**OF, "name": "all", "epsilon": "1"},
        {**OF, "name": "ending", "every": "2h", "epsilon": "1"},
    ],
}
ENDS = ["low", "high"]


@pytest.fixture
async def chosen() -> World:
    """A life with restarts, snapshots, and series that come and go."""
    return await lived(seeded(QUANTILES))


async def test_a_journal_with_the_bodies_of_former_versions_is_theirs(chosen: World) -> None:
    """They wrote a chosen bucket as `low` and `high`; recovery takes the recorded bytes, and no others."""
    changed: list[Release] = []

    def change(commits: list[Commit]) -> None:
        for place, commit in enumerate(commits):
            old = [msgspec.structs.replace(one, body=former(one.body)) for one in commit.releases]
            changed.extend(one for one in commit.releases if former(one.body) != one.body)
            commits[place] = msgspec.structs.replace(commit, releases=tuple(old))

    resealed(chosen, change)
    found = await checked(chosen)
    assert found.releases > len(changed) > 5
    new = changed[0]
    old = msgspec.structs.replace(new, body=former(new.body))
    assert _as_recorded(new.body, old, "ending", 3) == old.body
    with pytest.raises(FailClosed, match="does not give the recorded bytes"):
        _as_recorded(new.body.replace(b'"bucket":[', b'"bucket":[1'), old, "ending", 3)


@pytest.mark.parametrize(
    ("series", "key"),
    [
        ("sliding", "value"),
        ("sliding", "band"),
        ("all", "high"),
        ("ending", "low"),
        ("ending", "band"),
    ],
)
async def test_one_number_that_differs_is_caught(chosen: World, series: str, key: str) -> None:
    def change(commits: list[Commit]) -> None:
        place = next(n for n in range(len(commits) - 1, -1, -1) if commits[n].ticks)
        releases = list(commits[place].releases)
        at = next(n for n, one in enumerate(releases) if one.series == series)
        told = json.loads(releases[at].body)
        part = next(iter(told["windows"].values()))
        found = part["quantiles"]["0.5"]
        if "bucket" in found and key in ENDS:
            found["bucket"][ENDS.index(key)] += 1
        else:
            (part if key == "band" else found)[key] += 1
        body = msgspec.json.encode(told)
        releases[at] = msgspec.structs.replace(releases[at], body=body)
        commits[place] = msgspec.structs.replace(commits[place], releases=tuple(releases))

    resealed(chosen, change)
    with pytest.raises(FailClosed, match="differs from the recorded release"):
        await checked(chosen)


SCRIPT = [
    (tick, sealed(text(f"q{tick}", "ask", series="watched", threshold=threshold)))
    for tick, threshold in ((1, 500), (3, 600), (5, 700), (8, 10))
]


@pytest.fixture
async def talk(watched: None) -> MessageWorld:
    """A life in which a series is asked four times, the last time with a threshold far below its count."""
    chosen = MessageWorld(WITH_ANALYSTS, script=list(SCRIPT))
    await chosen.live()
    return chosen


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the pipeline's second series be the one that is asked, as the world's engine has it."""
    before = Built.run_config

    def run_config(self: Built, now: int, **more: Any) -> Any:
        config = before(self, now, **more)
        return replace(config, series=(config.series[0], WATCHED))

    monkeypatch.setattr(Built, "run_config", run_config)


async def test_what_was_asked_is_answered_by_the_composition(talk: MessageWorld) -> None:
    found = await checked(talk)
    asked = [c for commit in talk.commits() for c in commit.changes if isinstance(c, Asked)]
    assert found.answers == len(asked) == 4
    assert found.counts.asks == 2 * found.releases + found.answers
    assert found.apart is True
    told = [json.loads(body)["answer"]["above"] for body in talk.answers]
    assert told[-1] is True


async def test_an_altered_answer_is_caught(talk: MessageWorld) -> None:
    def change(commits: list[Commit]) -> None:
        for at, commit in enumerate(commits):
            told = tuple(
                msgspec.structs.replace(each, body=each.body.replace(b"false", b"true"))
                for each in commit.answers
            )
            commits[at] = msgspec.structs.replace(commit, answers=told)

    resealed(talk, change)
    with pytest.raises(FailClosed, match="differs from the recorded answer"):
        await checked(talk)
