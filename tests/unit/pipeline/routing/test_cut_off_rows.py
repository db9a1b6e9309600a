"""Rows of users who were active and cut off, on the real path: what the definition says, and what one user changes.

Guard, router, assembler and memory run as in the engine. Neighbouring logs differ in all records of one user in one
window of the cap, beyond the cap too; every small log of one user is played, beside a second one.
"""

import itertools
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest
from oracles.cut_users import cut_users
from oracles.user_caps import Event, Log, Mark
from unit.pipeline.routing.seen_worlds import rows_of
from unit.pipeline.routing.user_worlds import CAP, FOR_EVER, HORIZON, PIPELINE, some_log

from stream_dp.core.mechanism import IntArray
from stream_dp.mechanisms.linear.arrival_counter import CutOffCounter
from stream_dp.pipeline import user_guard
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_guard import cap_uses

PER = {"unit": "user", "user": "customer", "max_events": "2", "per": "2s", "epsilon": "100"}
EVER = {"unit": "user", "user": "customer", "overall": "2", "epsilon": "100"}
TICKS = 4


def pipeline(privacy: Any, window: str | None) -> PipelineSpec:
    series = [
        {"name": "all", "statistic": "count", "epsilon": "2"},
        {"name": "capped", "statistic": "cut_off", "epsilon": "2"} | ({"window": window} if window else {}),
    ]  # fmt: skip
    return PipelineSpec.model_validate(PIPELINE | {"privacy": privacy, "series": series})


PER_WINDOW, OVERALL = pipeline(PER, "2s"), pipeline(EVER, None)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("privacy", "window"), [(PIPELINE["privacy"], 4), (FOR_EVER, None)])
def test_rows_are_those_of_the_definition(seed: int, privacy: Any, window: int | None) -> None:
    """Late records, marks that skip ahead, ticks in any order, batches anywhere."""
    spec = pipeline(privacy, None if window is None else f"{window}s")
    logs = {0: some_log(Random(seed), [f"user {number}" for number in range(7)], 80)}
    found = rows_of(spec, logs, Random(seed))
    assert list(map(tuple, found[:, 1:].tolist())) == cut_users(logs, CAP, window, HORIZON)
    assert found[:, 2].sum() > 0
    assert (found[:, 1:].cumsum(axis=0)[-1] > 0).all()


def test_users_outside_the_share_count_nowhere() -> None:
    logs = {0: some_log(Random(1), [f"user {number}" for number in range(40)], 400)}
    whole, half = (
        rows_of(pipeline(PER | share, "2s"), logs, Random(1))[:, 1:].sum(axis=0)
        for share in ({}, {"share": "1/4"})
    )
    assert (half > 0).all()
    assert (half < whole).all()


def small_logs() -> Iterator[tuple[list[Event | Mark], list[int]]]:
    """Every way in which a user has up to four records in each tick, beside another's; and how many there are."""
    for numbers in itertools.product((0, 1, 3, 4), repeat=TICKS):
        log: list[Event | Mark] = []
        for tick, number in enumerate(numbers):
            log += [Event("u", tick, "a")] * number
            log += [Event("v", tick, "a")] * (tick % 2 * 3)
            log.append(Mark(tick))
        yield [*log, Mark(HORIZON - 1)], list(numbers)


def without(log: Log, window: int, size: int) -> Log:
    """The log without all records of one user of one window."""
    return [e for e in log if isinstance(e, Mark) or e.user != "u" or e.tick // size != window]


def pairs(spec: PipelineSpec, size: int) -> Iterator[IntArray]:
    """The difference of the rows of every small log and each of its neighbours; shape (ticks, 2)."""
    for lot, (log, numbers) in enumerate(small_logs()):
        rows = rows_of(spec, {0: log}, Random(lot))[:, 1:]
        for window in range(0, TICKS, size):
            if any(numbers[window : window + size]):
                other = without(log, window // size, size)
                yield rows - rows_of(spec, {0: other}, Random(lot + 1))[:, 1:]


def made_for(spec: PipelineSpec) -> CutOffCounter:
    found = build(spec).chosen[1].mechanism
    assert isinstance(found, CutOffCounter)
    return found


@pytest.mark.parametrize(
    ("spec", "size"), [(PER_WINDOW, 2), (OVERALL, TICKS)], ids=["window", "ever"]
)
def test_a_user_changes_one_unit_of_each_entry_and_no_more(spec: PipelineSpec, size: int) -> None:
    """Of any number of records; the unit of who is cut off is never before that of who is active."""
    worst = 0
    for difference in pairs(spec, size):
        each = np.abs(difference).sum(axis=0)
        assert (each <= 1).all()
        assert (difference.cumsum(axis=0)[:, 0] >= difference.cumsum(axis=0)[:, 1]).all()
        worst = max(worst, int(each.sum()))
    assert worst == made_for(spec).rows.changes == 2


def of_records(slots: Any, users: Any, *more: Any) -> Any:
    """Counts the records beyond the cap: each as somebody of its own."""
    users = np.arange(2 * len(users), dtype=np.uint64).reshape(-1, 2) + users
    return cap_uses(slots, users, *more)


def test_a_guard_that_counts_records_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_guard, "cap_uses", of_records)
    assert max(np.abs(each).sum() for each in itertools.islice(pairs(PER_WINDOW, 2), 40)) > 2
