"""The bound on the loss that `ledger` shows of users: of one window, and never more than is derived."""

from fractions import Fraction

import pytest
from unit.pipeline.routing.user_worlds import FOR_EVER, PIPELINE, specification

from stream_dp.accounting.situations import Alive
from stream_dp.operate.audit.ledger_view import loss_json
from stream_dp.pipeline.budget import target
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.derivations import whole

WINDOWED = PIPELINE["privacy"]  # windows of four ticks
IN_TURN = [Alive(8 * at, 8 * at + 3) for at in range(3)]
IN_ONE = [Alive(4, 4), Alive(5, 5), Alive(6, None)]
AT_ONCE = [Alive(0, None)] * 3


def bound(privacy: object, times: list[Alive]) -> Fraction:
    """The bound for series of epsilon 2, alive at these times."""
    built = build(specification(privacy=privacy))
    parts = [(built.chosen[0].derivation, time) for time in times]
    total = whole("people", built.ledger.filter, parts, target(built.spec.privacy))
    return Fraction(loss_json(built, parts, total)["loss"]["bound"])


@pytest.mark.parametrize(
    ("times", "expected"), [(IN_TURN, 2), (IN_ONE, 2), (AT_ONCE, 6), (AT_ONCE[:1], 2)]
)
@pytest.mark.parametrize("privacy", [WINDOWED, FOR_EVER])
def test_what_was_never_there_at_once_does_not_add_up(
    privacy: object, times: list[Alive], expected: int
) -> None:
    """Each of a user's events costs a k-th; the sum of all three, 6, was shown for all of these."""
    assert bound(privacy, times) == expected


def test_many_small_parts_lose_less_than_their_sum() -> None:
    """By the odometer, where the parts of one window are small and many; those of other windows count nothing."""
    built = build(
        specification(privacy=WINDOWED, series=[PIPELINE["series"][0] | {"epsilon": "1/40"}])
    )
    ever = [(built.chosen[0].derivation, Alive(0, None))] * 400
    later = [(built.chosen[0].derivation, Alive(at, at)) for at in range(8, 24) for _ in range(400)]
    found = []
    for parts in (ever, [(part, Alive(0, 3)) for part, _ in ever] + later):
        total = whole("people", built.ledger.filter, parts, target(built.spec.privacy))
        found.append(Fraction(loss_json(built, parts, total)["loss"]["bound"]))
    assert found[0] < 5 < 10
    assert found[1] <= 10
