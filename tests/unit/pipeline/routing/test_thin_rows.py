"""Rows that are wide and hold little: the same counts as dense ones, in room that the records bound."""

import tracemalloc
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.records.columns_worlds import SPEC, START, laid_out, payload
from unit.records.test_router_oracle import ONE_OF_EACH, TOGETHER, awkward

from stream_dp.core.mechanism import IntArray
from stream_dp.engine.ports import Batch
from stream_dp.engine.tick_assembler import (
    NARROW,
    Cut,
    Routed,
    Row,
    ThinRow,
    TickAssembler,
    dense,
    thin,
)
from stream_dp.pipeline import feature_counts
from stream_dp.pipeline import router as routers
from stream_dp.pipeline.router import Router
from stream_dp.pipeline.spec import PipelineSpec

WIDE = 3 * NARROW


def both_ways(monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether awkward records give the same rows thin as dense, which the oracle of dense rows vouches for."""
    monkeypatch.setattr(feature_counts, "MANY", 2)
    router = Router(SPEC, START, laid_out(list(dict.fromkeys([*ONE_OF_EACH, *TOGETHER]))))
    batch = Batch(0, [payload(record) for record in awkward(7, 400)], range(400), 0)
    wide = router.route(batch)
    monkeypatch.setattr(routers, "_CELLS", -(1 << 60))
    few = router.route(batch)
    assert all(isinstance(row, ThinRow) for row in few.rows.values())
    assert (few.records, few.dead) == (wide.records, wide.dead)
    rows = {tick: dense(row, router.width).tolist() for tick, row in few.rows.items()}
    return rows == {tick: dense(row, router.width).tolist() for tick, row in wide.rows.items()}


def test_records_count_in_thin_rows_as_in_dense_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    assert both_ways(monkeypatch)


@pytest.mark.parametrize("part", ["_By", "_Together"])
def test_the_check_catches_a_part_that_forgets_its_conditions(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, chosen = getattr(feature_counts, part).cells, feature_counts._chosen

    def cells(self: Any, *read: Any) -> Any:
        with monkeypatch.context() as inside:
            inside.setattr(
                feature_counts,
                "_chosen",
                lambda entries, _where, passing, at: chosen(entries, None, passing, at),
            )
            return whole(self, *read)

    monkeypatch.setattr(getattr(feature_counts, part), "cells", cells)
    assert not both_ways(monkeypatch)


def row_of(columns: list[int]) -> IntArray:
    found = np.zeros(WIDE, np.int64)
    np.add.at(found, np.array(columns, np.int64), 1)
    return found


COLUMNS = st.lists(st.integers(0, WIDE - 1), max_size=6) | st.just(list(range(0, WIDE, 2)))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), COLUMNS, st.booleans()), max_size=12))
def test_an_assembler_adds_up_both_kinds(added: list[tuple[int, list[int], bool]]) -> None:
    """Marks lie after every third batch; a start from the cut of each tick goes on with the same rows."""
    ticks = TickAssembler((0,), WIDE)
    expected = {tick: row_of([]) for tick in range(9)}
    found: dict[int, list[int]] = {}
    for number, (tick, columns, few) in enumerate(added):
        row: Row = thin(row_of(columns)) if few else row_of(columns)
        mark = number // 3 if number % 3 == 2 else None
        if tick >= number // 3:
            expected[tick] += row_of(columns)
        batch = Batch(0, (b"",), (number,), number + 1, mark=mark)
        ticks.add(batch, Routed({tick: row}, (), {tick: 1}))
        for closed in ticks.closed(1):
            found[closed.tick] = closed.row.tolist()
            cut = closed.cut
            again = Cut.of(cut.next_tick, cut.positions, cut.marks, cut.sparse, {})
            fresh = slice(2, 5)
            opened = again.opened(WIDE, fresh)
            assert opened.sparse == cut.opened(WIDE, fresh).sparse
            assert not any(set(row) & {2, 3, 4} for row in opened.sparse.values())
            ticks = TickAssembler((0,), WIDE, again.opened(WIDE, slice(0, 0)))
    assert found == {tick: expected[tick].tolist() for tick in range(len(added) // 3)}


def wide_pipeline(keys: int) -> PipelineSpec:
    domain = [f"k{n}" for n in range(keys)]
    return PipelineSpec.model_validate(
        {
            "version": "1", "name": "wide", "source": {"kind": "file", "path": "unused.jsonl"},
            "schema": {"at": {"type": "time"}, "key": {"type": "category", "domain": domain}},
            "privacy": {"epsilon": "2"},
            "clock": {"kind": "replay", "field": "at", "start": "2025-01-01T00:00:00Z", "step": "1h",
                "horizon": "8760"},
            "series": [{"name": "by_key", "statistic": "histogram", "by": "key", "epsilon": "1"}],
        }
    )  # fmt: skip


def test_a_year_of_hours_out_of_order_takes_no_more_room_than_its_records() -> None:
    """Dense rows of 100,000 categories in 8,760 hours would be 7 GB, and those of one batch 400 MB."""
    spec, random, start = wide_pipeline(100_000), Random(5), datetime(2025, 1, 1, tzinfo=UTC)
    router = Router(spec, int(start.timestamp() * 1000))
    ticks = TickAssembler((0,), router.width)
    hours = [random.randrange(8760) for _ in range(10_000)]
    times = [(start + timedelta(hours=hour)).isoformat().encode() for hour in hours]
    records = [b'{"at":"%s","key":"k%d"}' % (at, random.randrange(100_000)) for at in times]
    router.route(Batch(0, records[:1], [0], 0))
    tracemalloc.start()
    try:
        for at in range(0, len(records), 500):
            mark = 8759 if at == 9500 else None
            batch = Batch(0, records[at : at + 500], range(at, at + 500), at + 500, mark=mark)
            ticks.add(batch, router.route(batch))
        counted = [int(ticks.closed(1)[0].row.sum()) for _ in range(200)]
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert counted == [hours.count(hour) for hour in range(200)]
    assert most < 64 * 2**20
