"""What an engine did, as a trace of the concurrent composition: releases and states are those of the theory's object.

Real noise under seeds that are the same in every run of the tests, live series, snapshots and restarts; twins of the
engine, of the journal and of the trace are caught.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from oracles.trace_pairs import pair_accepted
from unit.live.live_series_worlds import HORIZON, PIPELINE, World
from unit.operate.audit.trace_worlds import APART, RICH, SEALER, blobs, lived, seeded, steps

from stream_dp.core.composition import Ask, Create, Halt
from stream_dp.core.mechanism import Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.engine import actor, recovery
from stream_dp.errors import FailClosed, RejectedMessage
from stream_dp.journal import commit
from stream_dp.journal.commit import Commit, digest, encode
from stream_dp.noise import NoiseStream
from stream_dp.operate.audit import trace_check
from stream_dp.operate.audit.trace_check import JournalTrace, TraceReport, TraceStep, compared
from stream_dp.verify.games.game import SeedUse, Sent, TracePlayer
from stream_dp.verify.relations.creation import own_or
from stream_dp.verify.relations.pair_conditions import Suitable
from stream_dp.verify.relations.streams import engine_relation

RELATIONS = [Neighbors.ADD_REMOVE, Neighbors.REPLACE, Neighbors.REPLACE_ANY_TICK]


def under(relation: Neighbors) -> dict[str, Any]:
    """The pipeline whose neighbours are these."""
    named = (
        {"neighbors": "add_remove"}
        if relation is Neighbors.ADD_REMOVE
        else {"neighbors": "replace"}
    )
    if relation is not Neighbors.ADD_REMOVE:
        named["moves"] = "within_tick" if relation is Neighbors.REPLACE else "any_tick"
    return {**RICH, "privacy": {**RICH["privacy"], **named}}


async def checked(world: World) -> TraceReport:
    """The check of a world's journal."""
    return await compared(world.built, SEALER, blobs(world))


@pytest.fixture
async def world() -> World:
    """A life with everything."""
    return await lived(seeded(RICH))


async def test_the_engine_is_the_composition(world: World) -> None:
    """Three series from the start, one for ticks 3 to 8, one from tick 9 on."""
    found = await checked(world)
    releases = sum(len(commit.releases) for commit in world.commits())
    assert releases == 3 * HORIZON + 6 + 3
    assert (found.ticks, found.releases) == (HORIZON, releases)
    assert (found.counts.creations, found.counts.asks, found.counts.halts) == (5, 2 * releases, 1)
    assert found.snapshots == sum(c.snapshot is not None for c in world.commits()) >= 2
    assert found.apart is True


@pytest.mark.parametrize("relation", RELATIONS)
async def test_under_every_relation(relation: Neighbors) -> None:
    found = await checked(await lived(seeded(under(relation))))
    assert (found.relation, found.apart) == (str(relation), True)


async def test_one_tick_cannot_show_that_two_are_refused() -> None:
    world = await lived(seeded(PIPELINE), live=False)
    del world.store.commits[2:]
    found = await checked(world)
    assert (found.ticks, found.apart) == (1, None)


def messages(world: World) -> list[Any]:
    """What was sent, without the noise."""
    return [step.sent.message for step in steps(world)]


def passes(relation: Neighbors, left: World, right: World) -> bool:
    """Whether the verifier of the claimed relation lets the pair of traces pass."""
    trace = JournalTrace(left.built)
    for each in left.commits():
        list(trace.steps(each))
    return pair_accepted(
        engine_relation(relation, own_or(trace.claims)), messages(left), messages(right)
    )


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("event", [(0, "DE"), (4, "DE"), (4, "FR"), (11, "other")])
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


async def test_two_events_that_no_series_sees_both_of_are_refused_too() -> None:
    """Each series by itself sees neighbours: a relation that judges mechanisms one by one lets the pair pass."""
    pipeline = {**PIPELINE, "series": APART}
    left, right = [
        await lived(seeded(pipeline), *added, live=False) for added in ((), ((2, "DE"), (7, "FR")))
    ]
    assert pair_accepted(Suitable(), messages(left), messages(right))
    assert not passes(Neighbors.ADD_REMOVE, left, right)


async def test_traces_of_two_lengths_are_no_pair(world: World) -> None:
    whole = messages(world)
    relation = engine_relation(Neighbors.ADD_REMOVE)
    assert pair_accepted(relation, whole, whole)
    assert not pair_accepted(relation, whole, whole[:-1])
    assert not pair_accepted(relation, whole[:-1], whole)


def asks_before_it_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A twin of the engine: the question comes before the tick's row."""

    def step(
        series: Any, grid: Any, state: Any, tick: int, sequence: int, row: Any, noise: Any
    ) -> Any:
        mechanism = series.mechanism
        state, answer = mechanism.step(state, Query(), noise)
        state, _ = mechanism.step(state, Update(row[series.rows]), noise)
        return state, series.body(grid, sequence, tick, state, answer)

    monkeypatch.setattr(actor, "step", step)
    monkeypatch.setattr(recovery, "step", step)


async def test_an_engine_that_asks_before_it_updates_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It recovers from its own journals without complaint: its recovery runs the same code."""
    asks_before_it_updates(monkeypatch)
    world = await lived(seeded(RICH))
    with pytest.raises(FailClosed, match="gives other bytes than the recorded release"):
        await checked(world)


async def test_an_engine_whose_series_share_noise_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = seeded(RICH)
    world.noise = lambda seed, number: NoiseStream(seed, 0)
    monkeypatch.setattr(
        type(world.built), "run_config", private_always(type(world.built).run_config)
    )
    with pytest.raises(FailClosed, match="gives other bytes"):
        await checked(await lived(world))


async def test_an_engine_that_draws_twice_from_one_seed_is_caught() -> None:
    """Its releases are those of the composition, its recovery is content, and every tick has the same noise."""
    seeds = iter([bytes([n]) * 32 for n in range(9)] + [bytes([8]) * 32] * 99)
    world = World(RICH, seeds=lambda: next(seeds))
    with pytest.raises(FailClosed, match="a seed that was drawn from before"):
        await checked(await lived(world))


def private_always(run_config: Any) -> Any:
    """As if this noise were the product's."""
    return lambda self, now, **_: run_config(self, now)


Change = Callable[[list[Commit]], None]


def _release(commits: list[Commit]) -> None:
    n, one = _ticked(commits)
    last = one.releases[-1]
    body = (
        last.body.replace(b'"value":', b'"value":1')
        if b'"value":' in last.body
        else last.body + b" "
    )
    changed = msgspec.structs.replace(last, body=body)
    commits[n] = msgspec.structs.replace(one, releases=(*one.releases[:-1], changed))


def _seed(commits: list[Commit]) -> None:
    n, one = _ticked(commits)
    commits[n] = msgspec.structs.replace(one, seeds=(bytes(32), *one.seeds[1:]))


def _first_seed(commits: list[Commit]) -> None:
    commits[0] = msgspec.structs.replace(commits[0], seeds=(bytes(32),))


def _row(commits: list[Commit]) -> None:
    n, one = _ticked(commits)
    commits[n] = msgspec.structs.replace(
        one, rows=((one.rows[0][0] + 1, *one.rows[0][1:]), *one.rows[1:])
    )


def _order(commits: list[Commit]) -> None:
    n, one = _ticked(commits)
    first, second, *rest = one.releases
    commits[n] = msgspec.structs.replace(one, releases=(second, first, *rest))


def _gone(commits: list[Commit]) -> None:
    n, one = _ticked(commits)
    commits[n] = msgspec.structs.replace(one, releases=one.releases[:-1])


def _more(commits: list[Commit]) -> None:
    n, one = _ticked(commits)
    commits[n] = msgspec.structs.replace(one, releases=(*one.releases, one.releases[-1]))


def _state(commits: list[Commit]) -> None:
    n = next(n for n, each in enumerate(commits) if each.snapshot is not None)
    states = dict(commits[n].snapshot.states)  # type: ignore[union-attr]
    states[0] = states[0].replace(b"\x01", b"\x02", 1)
    commits[n] = msgspec.structs.replace(commits[n], snapshot=commit.SavedStates(states))


def _halt(commits: list[Commit]) -> None:
    n = next(
        n
        for n, each in enumerate(commits)
        if any(isinstance(c, commit.Halted) for c in each.changes)
    )
    commits[n] = msgspec.structs.replace(commits[n], changes=())


def _ticked(commits: list[Commit]) -> tuple[int, Commit]:
    """A commit with ticks in the middle."""
    found = [(n, each) for n, each in enumerate(commits) if each.ticks]
    return found[len(found) // 2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_release, "gives other bytes than the recorded release"),
        (_seed, "gives other bytes than the recorded release"),
        (_first_seed, "gives other bytes than the recorded release"),
        (_row, "gives other bytes than the recorded release"),
        (_order, "holds no release of series"),
        (_gone, "holds no release of series|holds a release that no message"),
        (_more, "holds no release of series|holds a release that no message"),
        (_state, "in another state than the snapshot"),
        (_halt, "holds no release of series"),
    ],
)
async def test_an_altered_journal_is_caught(world: World, change: Change, message: str) -> None:
    """Sealed with the right key, in an unbroken chain; nothing of what it holds is in the error."""
    commits, previous = world.commits(), b""
    change(commits)
    world.store.commits.clear()
    for each in commits:
        sealed = SEALER.seal(
            each.sequence, encode(msgspec.structs.replace(each, previous=previous))
        )
        world.store.commits.append(sealed)
        previous = digest(sealed)
    with pytest.raises(FailClosed, match=message):
        await checked(world)


def played(trace: list[TraceStep]) -> list[bytes | None]:
    """What the composition answers, as bytes."""
    player = TracePlayer(NoiseStream)
    return [None if (a := player.play(step.sent)) is None else a.tobytes() for step in trace]


async def test_a_trace_with_two_messages_exchanged_answers_otherwise(world: World) -> None:
    """The question before the row; and the same trace with one seed that was never drawn."""
    trace = steps(world)
    right = played(trace)
    assert right == played(trace)
    place = next(n for n, step in enumerate(trace) if step.tick == 6 and step.release is not None)
    exchanged = [*trace[: place - 1], trace[place], trace[place - 1], *trace[place + 1 :]]
    assert [a for a in played(exchanged) if a is not None] != [a for a in right if a is not None]
    other = [
        replace(step, sent=Sent(step.sent.message, SeedUse(bytes(32), 7)))
        if step.tick == 6
        else step
        for step in trace
    ]
    assert played(other) != right


async def test_the_trace_says_what_the_theory_allows(world: World) -> None:
    trace = steps(world)
    kinds = [type(step.sent.message) for step in trace]
    assert kinds[:3] == [Create] * 3
    assert kinds.count(Halt) == 1
    player = TracePlayer(NoiseStream)
    with pytest.raises(RejectedMessage, match="no live mechanism"):
        player.play(Sent(Ask(0, Query())))
    with pytest.raises(ValueError, match="no seed was recorded"):
        player.play(Sent(trace[2].sent.message))
    assert player.live == ()


async def test_another_pipelines_journal_is_refused(world: World) -> None:
    with pytest.raises(FailClosed, match="written for something else"):
        await compared(World(under(Neighbors.REPLACE)).built, SEALER, blobs(world))
    world.store.commits.clear()
    with pytest.raises(FailClosed, match="never ran"):
        await checked(world)


async def test_a_relation_that_is_too_narrow_is_noticed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were the claim for fewer pairs than it says, the check would say so; and were it for more."""
    monkeypatch.setattr(trace_check, "same_tick", lambda message, row: replace(message, index=99))
    with pytest.raises(FailClosed, match="beside a neighbour"):
        await checked(world)
    monkeypatch.setattr(trace_check, "same_tick", lambda message, row: message)
    assert (await checked(world)).apart is False
