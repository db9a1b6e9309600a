"""A start from a checkpoint restores what a start from the first commit restores: history, memories, releases.

Every start here reads the journal twice, from its checkpoint and from its first commit, and compares all that it got.
What a checkpoint holds is left out part by part, and each time that must show.
"""

import asyncio
import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from faults import test_distinct_crashes as distinct
from faults import test_total_crashes as totals
from faults import test_user_caps as caps
from oracles.user_caps import Log
from unit.engine.recovery.test_recovery import check_whole
from unit.engine.recovery.test_saved_series import outcome, some_step, standing
from unit.journal.runtime_worlds import Crash, Fuse, World, batches, plan
from unit.live import test_changed_series as changes
from unit.live import test_live_series_crashes as live
from unit.live import test_messages as messages
from unit.live import test_sum_watches as watches
from unit.live.live_series_worlds import World as LiveWorld
from unit.live.message_worlds import findings
from unit.pipeline.routing import test_caps as key_caps
from unit.pipeline.routing import test_shared_total_rows as shared_totals
from unit.pipeline.routing.test_user_total_rows import CAPS as TOTALS
from unit.pipeline.routing.test_user_total_rows import net_expected, net_payload, net_specification
from unit.pipeline.routing.user_worlds import WINDOW, some_log

from stream_dp.engine import engine, gate, history, recovery
from stream_dp.engine.admission import Admission
from stream_dp.engine.engine import Engine
from stream_dp.engine.ensemble import Ensemble
from stream_dp.engine.gate import CommitChain
from stream_dp.engine.history import Heads, History
from stream_dp.engine.memories import UserMemory
from stream_dp.engine.messages.conversation import Conversation
from stream_dp.engine.ports import Journal
from stream_dp.engine.recovery import Recovered
from stream_dp.engine.tick_assembler import ClosedTick, Cut
from stream_dp.engine.user_table import UserTable
from stream_dp.errors import EngineEnded, FailClosed, WorldError
from stream_dp.files.memory import MemoryJournal
from stream_dp.journal import checkpoint as form
from stream_dp.journal.checkpoint import (
    Checkpoint,
    Places,
    Standing,
    Totals,
    known_after,
    pieces_of,
)
from stream_dp.journal.commit import Commit, SavedStates, encode, part
from stream_dp.journal.dead_letters import DeadLetters
from stream_dp.journal.keys import Sealer
from stream_dp.mechanisms.states import STATES
from stream_dp.pipeline.fingerprints import text_of
from stream_dp.pipeline.user_guard import UserHash

USERS = {
    "users", "users by tick", "users by key", "keys of users", "shared total", "arrived", "totals",
}  # fmt: skip


class FromTheFirstCommit:
    """A journal without its checkpoints."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    @property
    def begin(self) -> int:
        return self._journal.begin

    def checkpoints(self) -> Sequence[int]:
        return ()

    def read(self, begin: int = 0) -> AsyncIterator[bytes]:
        assert begin in (0, self.begin)
        return self._journal.read(begin)


class Seen:
    """Which commits a start reads."""

    def __init__(self) -> None:
        self.commits: list[int] = []

    def replay(self, commit: Commit) -> None:
        self.commits.append(commit.sequence)


def held(memories: Any) -> dict[str, Any]:
    """What the memories save, of users in any order."""
    saved = {kind: msgspec.msgpack.decode(part) for kind, part in memories.save().items()}
    saved.pop("fired", None)  # what releases showed, which no commit is needed for
    users = {
        kind: {n: in_any_order(part) for n, part in saved.pop(kind).items()}
        for kind in USERS & saved.keys()
    }
    return saved | users


def in_any_order(entries: bytes | dict[int, bytes]) -> Any:
    """The entries of users, 20 bytes each, sorted."""
    if isinstance(entries, dict):
        return {window: in_any_order(held) for window, held in entries.items()}
    return sorted(entries[at : at + 20] for at in range(0, len(entries), 20))


def restored(read: Any, memories: Any) -> dict[str, Any]:
    """All that a start gets from a journal."""
    names = ("since", "last", "previous", "after_head", "unanswered", "ticked", "partitions")  # fmt: skip
    past = {"numbers": read.past.numbers.runs}
    past |= {name: getattr(read.past, name) for name in ("first", "answer", "totals", "places")}
    return {name: getattr(read, name) for name in names} | past | held(memories)


def rebuilt(recovered: Recovered, admission: Admission) -> dict[str, Any]:
    """All that a start makes of it, beside what it got from the journal."""
    names = ("previous", "next_commit", "next_release", "replayed", "partitions", "latest")
    states = {number: STATES.encode(state) for number, state in recovered.states.items()}
    coming = [(each.number, each.fresh, each.seed, each.query) for each in recovered.coming]
    live = standing(admission) if admission.planner is not None else {}
    cut = replace(recovered.cut, pending={}), recovered.cut.sparse
    return {name: getattr(recovered, name) for name in names} | {
        "states": states,
        "coming": coming,
        "live": live,
        "cut": cut,
    }


def going_on(recovered: Recovered, admission: Admission) -> list[Any]:
    """What the next changes and looks give, refusals too."""
    if admission.planner is None or recovered.coming:
        return []
    random, at = Random(recovered.next_commit), recovered.cut.next_tick
    return [outcome(admission, some_step(random, at)) for _ in range(12)]


@pytest.fixture(autouse=True)
def short_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a file says would make checkpoints rare in runs as short as these; `test_changed_file` looks at it."""
    monkeypatch.setattr("stream_dp.pipeline.builder.text_of", lambda spec: b"")


@pytest.fixture
def begins(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Snapshots and checkpoints often, in many pieces; where each start began, compared with one from the beginning."""
    read_history, found = history.read_history, list[int]()
    rebuild, others = recovery._rebuild, dict[int, History]()

    async def twice(journal: Any, sealer: Any, name: str, heads: Heads, memories: Any, seen: Any) -> Any:  # fmt: skip
        again, seen_now, seen_again = deepcopy((heads, memories)), Seen(), Seen()
        read = await read_history(journal, sealer, name, heads, memories, seen_now)
        whole: Any = FromTheFirstCommit(journal)
        other = await read_history(whole, sealer, name, *again, seen_again)
        if read is None or other is None:
            assert read is other
        else:
            assert restored(read, memories) == restored(other, again[1])
            others[id(read)] = other
            found.append(max(0, len(seen_again.commits) - len(seen_now.commits) - 1))
        return read

    async def rebuild_twice(read: History, admission: Admission, *more: Any) -> Recovered:
        again = deepcopy(admission)
        recovered = await rebuild(read, admission, *more)
        other = await rebuild(others.pop(id(read)), again, *more)
        assert rebuilt(recovered, admission) == rebuilt(other, again)
        assert going_on(recovered, deepcopy(admission)) == going_on(other, again)
        return recovered

    def empty(table: UserTable, _: Any) -> UserTable:
        assert not len(table)
        return UserTable(int(table._bits))

    monkeypatch.setattr(UserTable, "__deepcopy__", empty, raising=False)
    monkeypatch.setattr(UserHash, "__deepcopy__", lambda same, _: same, raising=False)
    monkeypatch.setattr(recovery, "read_history", twice)
    monkeypatch.setattr(recovery, "_rebuild", rebuild_twice)
    monkeypatch.setattr(engine, "SNAPSHOT_TICKS", 3)
    monkeypatch.setattr(form, "PIECE_BYTES", 900)
    return found


async def a_plain_one() -> None:
    for seed in range(8):
        random = Random(seed)
        world = World(plan(block=random.choice([1, 5]), group=random.randint(1, 2)), batches(seed))
        while True:
            try:
                await world.run(Fuse(random.randint(5, 40)))
            except Crash:
                continue
            break
        await check_whole(world)


async def users() -> None:
    for seed in range(3):
        await caps.test_a_cap_holds_through_crashes_anywhere(seed, WINDOW)
        await caps.test_a_cap_holds_through_crashes_anywhere(seed, None)


async def identifiers() -> None:
    for seed in range(3):
        await distinct.test_identifiers_are_counted_once_through_crashes_anywhere(seed, 2)


async def totals_of_users() -> None:
    for privacy, window in TOTALS:
        await totals.test_a_total_holds_through_crashes_anywhere(privacy, window, 1)


async def totals_that_series_share() -> None:
    for caps_of in shared_totals.CAPS[:3]:
        await shared_totals.test_a_shared_total_holds_through_crashes_anywhere(caps_of, 1)


async def totals_of_both_signs() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unit.pipeline.routing.user_worlds.payload", net_payload)
        for seed in range(3):
            logs: dict[int, Log] = {0: some_log(Random(seed), caps.USERS[:6], 90)}
            world = totals.TotalWorld(logs, net_specification(), group=1 + seed)
            assert await caps.crashes(world, Random(seed)) > 1
            assert world.recorded() == net_expected(logs)


async def users_by_key() -> None:
    for seed in range(2):
        await distinct.test_users_are_counted_once_by_key_through_crashes_anywhere(seed)


async def keys_of_users() -> None:
    for shape in key_caps.CAPS:
        await key_caps.test_caps_hold_through_crashes_anywhere(shape, 1)


async def live_series() -> None:
    for place in range(1, 60, 3):
        await live.restarted(LiveWorld(), place)


async def analysts() -> None:
    for left in range(1, 200, 7):
        world = messages.scripted()
        burnt = await messages.crashed(world, left)
        assert findings(world) == []
        if not burnt:
            return


async def watched_sums() -> None:
    for left in (19, 29, 34):
        await watches.test_after_a_crash_signed_sums_go_on_with_the_same_bytes(left)


async def versions() -> None:
    """Its header says the file, and checkpoints come nevertheless: all of one is in the next commit."""
    changed = changes.test_a_definition_of_before_comes_back_with_noise_of_its_own_whatever_crashes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stream_dp.pipeline.builder.text_of", text_of)
        patch.setattr(form, "PIECE_BYTES", 90_000)
        for read_again in (3_600_000, 1):
            await changed(read_again)


SCENARIOS = [
    a_plain_one, users, users_by_key, identifiers, totals_of_users, totals_that_series_share, totals_of_both_signs,
    keys_of_users, live_series, analysts, watched_sums, versions,
]  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_start_from_a_checkpoint_is_one_from_the_first_commit(
    scenario: Callable[[], Awaitable[None]], begins: list[int]
) -> None:
    await scenario()
    assert sum(begin > 0 for begin in begins) >= 2


class PrunedJournal:
    """A memory journal whose store keeps all commits, for what checks a world; engines read those that are left."""

    begun: ClassVar[list[int]] = []

    async def prune(self: Any, before: int) -> None:
        fuse = getattr(self, "_fuse", Fuse())
        assert before <= self._store.checkpoints[-1]  # two are kept
        fuse.burn()
        self._store.begin = before
        PrunedJournal.begun.append(before)
        fuse.burn()

    async def read(self: Any, begin: int = 0) -> AsyncIterator[bytes]:
        for sealed in tuple(self._store.commits[max(begin, self.begin) :]):
            yield sealed

    async def append(self: Any, commit: Commit, sealed: bytes) -> None:
        self._check_lease()
        assert commit.sequence == len(self._store.commits)
        self._store.commits.append(sealed)
        self._store.checkpoints = known_after(commit, self._store.checkpoints)
        self._store.positions.update(commit.positions)


class PruningEngine:
    """What an engine does here: it deletes what lies two ticks back, if that takes long, too."""

    init, run_alone = Engine.__init__, Engine.run

    def __init__(self: Any, config: Any, router: Any, *args: Any, **more: Any) -> None:
        self.again = deepcopy((router, more)), (config, *args[:2])
        PruningEngine.init(self, config, router, *args, **more)

    def made_again(self: Any) -> Engine:
        (router, more), (config, ports, noise) = deepcopy(self.again[0]), self.again[1]
        return Engine(config, router, ports, noise, **more)

    async def run(self: Any) -> None:
        """Its end is that of the engine, or comes with a deletion that fails."""

        async def retain() -> None:
            with suppress(EngineEnded, WorldError):
                await self.retain(2, lambda: PruningEngine.made_again(self))

        task = asyncio.create_task(retain())
        run = asyncio.create_task(PruningEngine.run_alone(self))
        task.add_done_callback(
            lambda done: run.cancel() if not done.cancelled() and done.exception() else None
        )
        try:
            await run
        except asyncio.CancelledError:
            task.result()
            raise
        finally:
            task.cancel()
            await asyncio.wait({task})


@pytest.fixture
def prunes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every engine prunes, and may die before and behind that; where journals begin then."""
    add = CommitChain.add

    async def at_once(call: Any, *args: Any) -> Any:
        return call(*args)

    async def patient(self: Any, commit: Commit) -> None:
        await add(self, commit)
        for _ in range(100 if commit.ticks else 0):  # so that there is time to prune
            await asyncio.sleep(0)

    hashing = type(Cipher(AES(bytes(16)), ECB()).encryptor())  # noqa: S305 - its class alone is wanted
    monkeypatch.setitem(copy._deepcopy_dispatch, hashing, lambda same, _: same)  # type: ignore[attr-defined]
    monkeypatch.setattr(Sealer, "__deepcopy__", lambda same, _: same, raising=False)
    monkeypatch.setattr(asyncio, "to_thread", at_once)
    monkeypatch.setattr(engine, "LOOK_S", 0)
    monkeypatch.setattr(CommitChain, "add", patient)
    for of, names in ((Engine, ("__init__", "run")), (MemoryJournal, ("prune", "read", "append"))):
        by = PruningEngine if of is Engine else PrunedJournal
        for name in names:
            monkeypatch.setattr(of, name, getattr(by, name))
    PrunedJournal.begun.clear()
    return PrunedJournal.begun


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_start_needs_nothing_that_was_pruned(
    scenario: Callable[[], Awaitable[None]], begins: list[int], prunes: list[int]
) -> None:
    await scenario()
    assert prunes


def written(change: Callable[[Checkpoint], Checkpoint]) -> Callable[[Any], None]:
    """Other checkpoints in the journal than the engine made."""

    def twin(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(gate, "pieces_of", lambda made, after: pieces_of(change(made), after))

    return twin


def without(kind: str) -> Callable[[Any], None]:
    """A checkpoint that leaves out a memory."""
    return written(
        lambda made: msgspec.structs.replace(
            made, memories={name: saved for name, saved in made.memories.items() if name != kind}
        )
    )


def other(**fields: Any) -> Callable[[Any], None]:
    """A checkpoint with other fields."""
    return written(lambda made: msgspec.structs.replace(made, **fields))


async def test_where_nothing_can_be_deleted_the_engine_goes_on(
    prunes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "SNAPSHOT_TICKS", 3)
    world = World()

    async def denied(*_: object) -> None:
        raise WorldError("no right to delete")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryJournal, "prune", denied)
        await world.run()
    await check_whole(world)
    said = [commit.parts[form.PRUNED] for commit in world.commits() if form.PRUNED in commit.parts]
    assert (len(said), prunes, world.store.begin) == (1, [], 0)
    await world.run()
    assert part(prunes[0]) == said[0]


async def test_a_start_deletes_what_an_engine_left_that_had_said_so(prunes: list[int]) -> None:
    world = World()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "SNAPSHOT_TICKS", 3)
        await world.run()
    world.store.begin, wanted = 0, prunes[-1]
    prunes.clear()
    await world.run()
    assert (prunes, world.store.begin) == ([wanted], wanted)


def forgetful_later(patch: pytest.MonkeyPatch) -> None:
    """Checkpoints after the first one hold nothing of series that ended."""

    def later(made: Checkpoint) -> Checkpoint:
        ended = () if made.places.commits else made.series.ended
        return msgspec.structs.replace(
            made, series=msgspec.structs.replace(made.series, ended=ended)
        )

    written(later)(patch)


def stale(patch: pytest.MonkeyPatch) -> None:
    """Snapshots after the first one hold the states of the one before."""
    states, last = Ensemble.states, list[SavedStates]()

    async def before(self: Ensemble) -> SavedStates:
        last.append(await states(self))
        return last[max(0, len(last) - 2)]

    patch.setattr(Ensemble, "states", before)


WHOLE = Checkpoint(Commit(0, b""), Standing(), (), (), {}, (0, b""), Totals(), Places())
FEWER_PARTITIONS = other(partitions=(0,))
TWINS = [
    (users, without("users")),
    (identifiers, without("arrived")),
    (identifiers, without("arriving")),
    (totals_of_users, without("totals")),
    (totals_that_series_share, without("shared total")),
    (totals_of_both_signs, without("net totals")),
    (keys_of_users, without("users by key")),
    (analysts, without("messages")),
    (live_series, other(series=Standing())),
    (live_series, forgetful_later),
    (analysts, other(series=Standing())),
    (live_series, other(numbers=())),
    (analysts, other(answer=(0, b""))),
    (a_plain_one, FEWER_PARTITIONS),
    (a_plain_one, other(totals=Totals())),
    (a_plain_one, other(places=Places())),
]


@pytest.mark.parametrize(("scenario", "twin"), TWINS)
async def test_whatever_a_checkpoint_leaves_out_shows(
    scenario: Callable[[], Awaitable[None]],
    twin: Callable[[Any], None],
    begins: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    twin(monkeypatch)
    with pytest.raises((AssertionError, FailClosed, KeyError, ValueError)):
        await scenario()


@pytest.mark.usefixtures("prunes")
@pytest.mark.parametrize(("scenario", "twin"), [t for t in TWINS if t[1] is not FEWER_PARTITIONS])
async def test_nothing_is_pruned_where_a_checkpoint_restores_less(
    scenario: Callable[[], Awaitable[None]],
    twin: Callable[[Any], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "SNAPSHOT_TICKS", 3)
    twin(monkeypatch)
    with pytest.raises((FailClosed, ValueError), match=r"nothing was deleted|the next series has"):
        await scenario()


async def test_states_of_another_tick_show_before_anything_is_deleted(
    prunes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "SNAPSHOT_TICKS", 3)
    stale(monkeypatch)
    with pytest.raises(FailClosed, match="nothing was deleted"):
        await World().run()
    assert not prunes


def test_what_was_read_behind_the_cut_is_not_saved() -> None:
    memory, hashes = UserMemory(3, 4), np.array([[1, 1], [2, 2]], np.uint64)
    _, taken = memory.admit(hashes, np.array([0, 0]))
    memory.admit(hashes, np.array([0, 1]))  # behind the cut
    assert taken is not None
    row = np.zeros(1, np.int64)
    memory.record([ClosedTick(1, row, {}, {}, {}, DeadLetters(), 0, 0, used=[taken])])
    saved = memory.save()
    assert saved is not None
    memory.rewind(Cut(2))
    assert in_any_order(msgspec.msgpack.decode(memory.save() or b"")) == in_any_order(
        msgspec.msgpack.decode(saved)
    )
    again = UserMemory(3, 4)
    again.load(Commit(1, b"", ticks=(1,), parts={"users": saved}))
    assert in_any_order(msgspec.msgpack.decode(again.save() or b"")) == in_any_order(
        msgspec.msgpack.decode(saved)
    )


async def played(monkeypatch: pytest.MonkeyPatch) -> World:
    """A world at its end, with checkpoints in its journal."""
    monkeypatch.setattr(engine, "SNAPSHOT_TICKS", 5)
    world = World()
    await world.run()
    assert len(world.store.checkpoints) == 2
    return world


async def test_a_start_reads_from_the_newest_checkpoint_before_all_unread_facts(
    begins: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await played(monkeypatch)
    newest, older = world.store.checkpoints
    whole = list(world.bodies)
    for begin, before in ((newest, older), (older, 0)):
        first = world.commits()[begin].releases[0].sequence
        for public, expected in ((first, begin), (first - 1, before)):
            del world.bodies[public:]
            begins.clear()
            await world.run()
            assert (world.bodies, begins) == (whole, [expected])


@pytest.mark.parametrize("listed", [(1,), (2, 1), (10**6,)])
async def test_a_place_without_a_whole_checkpoint_is_not_used(
    listed: tuple[int, ...], begins: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await played(monkeypatch)
    world.store.checkpoints, bodies = listed, list(world.bodies)
    begins.clear()
    await world.run()
    assert (world.bodies, begins) == (bodies, [0])


async def test_a_checkpoint_of_another_form_is_not_used(
    begins: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await played(monkeypatch)
    monkeypatch.setattr(form, "_DECODER", msgspec.msgpack.Decoder(int))
    begins.clear()
    await world.run()
    assert begins == [0]


async def test_a_start_deletes_nothing_before_all_is_public_again(
    prunes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "SNAPSHOT_TICKS", 3)
    for left in range(10, 200):
        world = World()
        with pytest.raises(Crash):
            await world.run(Fuse(left))
        if not prunes and (said := world.commits()[-1].parts.get(form.PRUNED)):
            break
    del world.bodies[5:]  # what is public was set back
    for left in range(1, 40):
        again = replace(world, store=deepcopy(world.store), bodies=list(world.bodies), told=[])
        with pytest.raises(Crash):
            await again.run(Fuse(left))
        await again.run()
        assert again.store.begin >= msgspec.msgpack.decode(said or b"")
        await check_whole(again)


class FormerPiece(msgspec.Struct, array_like=True, tag="piece"):
    """A piece of a checkpoint as former versions wrote them, which hold other checkpoints."""

    after: int
    number: int
    pieces: int
    content: bytes


async def test_a_journal_with_checkpoints_of_a_former_version_is_pruned_once_it_has_others(
    begins: list[int], prunes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "SNAPSHOT_TICKS", 2)
    world, former = World(), list[int]()

    def written(_: Checkpoint, after: int) -> list[bytes]:
        former.append(after)
        return [part(FormerPiece(after, 0, 1, b"former"))]

    with monkeypatch.context() as patch:
        patch.setattr(gate, "pieces_of", written)
        patch.setattr(Engine, "run", PruningEngine.run_alone)
        with pytest.raises(Crash):
            await world.run(Fuse(40))
    world.store.checkpoints = (former[-1], former[-2])
    assert not prunes
    await world.run()
    assert begins == [0]
    assert prunes
    assert min(prunes) > former[-1]
    await check_whole(world)


@pytest.mark.parametrize("left", [-1, 20])
async def test_checkpoints_take_no_more_room_than_all_else_and_one_of_them(
    left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also over restarts, and where the memories are large."""
    ids = tuple((str(number), bytes(32), number, 10**15) for number in range(3000))
    monkeypatch.setattr(engine, "SNAPSHOT_TICKS", 1)
    monkeypatch.setattr(Conversation, "save", lambda self: part((-1, (), 1, 0, ids)))
    world = World(plan(horizon=60), batches(1, 60))
    while await ended_early(world, left):
        pass
    pieces = [len(commit.parts.get(form.KIND, b"")) for commit in world.commits()]
    others = sum(len(encode(commit)) for commit in world.commits()) - sum(pieces)
    assert max(pieces) < sum(pieces) <= others + max(pieces)


async def test_runs_that_end_soon_complete_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SNAPSHOT_TICKS", 2)
    monkeypatch.setattr(form, "PIECE_BYTES", 60)
    monkeypatch.setattr(form, "MOST_PIECES", 5)
    world = World(plan(horizon=60), batches(1, 60))
    while await ended_early(world, 35):
        pass
    assert world.store.checkpoints


async def ended_early(world: World, left: int) -> bool:
    try:
        await world.run(Fuse(left))
    except Crash:
        return True
    return False


async def test_a_journal_that_is_older_than_its_releases_is_refused_from_a_checkpoint_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await played(monkeypatch)
    newest, _ = world.store.checkpoints
    del world.store.commits[newest + 1 :]
    with pytest.raises(FailClosed, match="older than, or differs from"):
        await world.run()


def test_places_are_few_and_lie_where_something_is_left() -> None:
    places, at = Places(), 0
    for at in range(1, 1_001):
        piece = {"checkpoint": pieces_of(WHOLE, at)[0]}
        places = places.plus(Commit(at, b"", ticks=(2 * at,), parts=piece))
        assert len(places.commits) <= form.MOST_PLACES
        assert (places.commits[0], places.commits[-1]) == ((1, 2), (at, 2 * at))
    ticks = [tick for _, tick in places.commits]
    assert (
        max(after - before for before, after in pairwise(ticks)) <= 2 * at / 32
    )  # evenly, a 128th
    assert places.next(1, 1_000) == places.commits[1][0]
    assert places.next(at, 10**6) is places.next(0, 1) is None
    pruned = places.plus(Commit(at + 1, b"", parts={"pruned": part(500)}))
    assert pruned.commits == tuple(place for place in places.commits if place[0] >= 500)
    again = pruned.plus(Commit(at + 2, b"", parts={"pruned": part(700)}))
    assert [again.allow(begin) for begin in (0, 500, 700, 701)] == [True, True, True, False]
