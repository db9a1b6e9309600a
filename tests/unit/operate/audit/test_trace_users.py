"""What an engine did for users, against the theory: series come and go, and a user's events lie in several ticks."""

from fractions import Fraction
from typing import Any

import pytest
from oracles.trace_pairs import pair_accepted
from unit.operate.audit.trace_worlds import RICH, SEALER, blobs, lived, seeded, steps

from stream_dp.accounting.situations import Alive
from stream_dp.core.guarantee import PureDP
from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.engine.history import read_summary
from stream_dp.operate.audit.ledger_view import derived_again
from stream_dp.operate.audit.trace_check import JournalTrace, compared
from stream_dp.verify.relations.creation import own_or
from stream_dp.verify.relations.streams import engine_relation

CAPS: list[dict[str, str]] = [{"max_events": "3", "per": "4h"}, {"overall": "3"}]


def pipeline(caps: dict[str, str]) -> dict[str, Any]:
    """Users are who buys; of each three events count."""
    privacy = {**RICH["privacy"], "unit": "user", "user": "country", **caps}
    return {**RICH, "privacy": privacy}


@pytest.mark.parametrize("caps", CAPS)
async def test_the_trace_beside_all_events_of_one_user(caps: dict[str, str]) -> None:
    """The check of the command, and a run with a user more who has events in two ticks of one window."""
    left = await lived(seeded(pipeline(caps)))
    report = await compared(left.built, SEALER, blobs(left))
    users = Users(3, 4 if "per" in caps else None)
    assert (report.users, report.apart) == (users, True)
    assert report.json()["one_more_is_refused"] is True
    right = await lived(seeded(pipeline(caps), 1), (4, "CH"), (4, "CH"), (6, "CH"))
    trace = JournalTrace(left.built)
    for commit in left.commits():
        list(trace.steps(commit))
    pair = [[step.sent.message for step in steps(world)] for world in (left, right)]
    truth = own_or(trace.claims)
    assert pair_accepted(engine_relation(Neighbors.ADD_REMOVE, truth, users), *pair)
    assert not pair_accepted(engine_relation(Neighbors.ADD_REMOVE, truth, Users(1)), *pair)
    assert not pair_accepted(engine_relation(Neighbors.ADD_REMOVE, truth, Users(3, 2)), *pair)
    assert not pair_accepted(engine_relation(Neighbors.ADD_REMOVE, truth), *pair)


@pytest.mark.parametrize("caps", CAPS)
async def test_a_journal_for_users_is_derived_again(caps: dict[str, str]) -> None:
    """One live series at ticks 3 to 8, another from tick 9 on: what was halted is free for users too, also for ever."""
    world = await lived(seeded(pipeline(caps)))
    summary = await read_summary(blobs(world), SEALER, world.built.spec.name)
    admission, total, parts = derived_again(world.built, summary)
    users = Users(3, 4 if "per" in caps else None)
    assert total.guarantee.users == users
    assert [alive for _, alive in parts] == [Alive(0, None), Alive(3, 8), Alive(9, None)]
    assert all(part.guarantee.users == users for part, _ in parts)
    (ticked,) = total.premises
    assert ticked.guarantee.measure == PureDP(Fraction(4))  # 3 and 1, not 3 and 1/4 and 1
    assert admission.subledgers.main.peak.amount == 4 * 10**12
    assert all(f", for {users}" in charge.rule for _, charge in summary.charges)
