"""A memory of a new kind, given to the engine: what it records, gets back at a start, and is told to take back."""

from collections.abc import Sequence
from random import Random
from typing import ClassVar

import pytest
from commit_parts import parts
from unit.journal.runtime_worlds import Crash, Fuse, Router, World

from stream_dp.engine.engine import Engine
from stream_dp.engine.memories import Memories
from stream_dp.engine.tick_assembler import ClosedTick, Cut
from stream_dp.errors import FailClosed
from stream_dp.journal.commit import Commit


class Noting:
    """Counts the records of all ticks before the cut, and notes the cuts behind which was read."""

    kind: ClassVar[str] = "noted"

    def __init__(self) -> None:
        self.ticks = list[int]()
        self.records = 0
        self.rewound = list[int]()

    def replay(self, commit: Commit) -> None:
        self.ticks += commit.ticks
        self.records += commit.records

    def record(self, ticks: Sequence[ClosedTick]) -> tuple[Sequence[ClosedTick], bytes | None]:
        self.ticks += [closed.tick for closed in ticks]
        self.records += sum(closed.records for closed in ticks)
        return ticks, None

    def rewind(self, cut: Cut) -> Cut:
        self.rewound.append(cut.next_tick)
        return cut


async def test_a_new_memory_is_rebuilt_from_the_journal_wherever_an_engine_dies() -> None:
    whole, world, random, deaths = World(), World(), Random(1), 0
    await whole.run()
    records = sum(commit.records for commit in whole.commits())
    while True:
        memory = Noting()
        ports = world.ports(Fuse(random.randint(5, 20)))
        durable = [tick for commit in world.commits() for tick in commit.ticks]
        engine = Engine(world.plan, Router(), ports, world.noise, memories=[memory])
        try:
            await engine.run()
        except Crash:
            deaths += 1
            assert memory.rewound in ([], [len(durable)])
        else:
            break
    assert deaths > 2
    assert memory.rewound == [len(durable)]
    assert memory.ticks == list(range(world.plan.horizon or 0))
    assert memory.records == records > 0


async def test_memories_take_ticks_as_those_before_let_them_count() -> None:
    class Emptying(Noting):
        def record(self, ticks: Sequence[ClosedTick]) -> tuple[Sequence[ClosedTick], bytes | None]:
            ticks, _ = super().record(ticks)
            return [
                ClosedTick(c.tick, c.row * 0, c.positions, c.marks, c.pending, c.dead_letters, 0, 0)
                for c in ticks
            ], None

    world, behind = World(), Noting()
    memories = [Emptying(), behind]
    await Engine(world.plan, Router(), world.ports(), world.noise, memories=memories).run()
    assert behind.records == 0
    assert not any(any(row) for commit in world.commits() for row in commit.rows)


async def test_a_part_of_a_kind_that_no_memory_reads_is_refused() -> None:
    memories = Memories(Noting())
    memories.replay(Commit(1, b"", parts=parts(noted=1)))
    with pytest.raises(FailClosed, match=r"commit 2 .* of the kind 'later'"):
        memories.replay(Commit(2, b"", parts=parts(noted=1, later=2)))
