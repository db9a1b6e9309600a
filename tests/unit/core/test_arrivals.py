"""What first ticks may change, in numbers and words.

`unit/mechanisms/test_arrivals_exact` plays every small stream, `unit/pipeline/test_distinct_prices` every cap.
"""

import pytest

from stream_dp.core.neighbors import Users
from stream_dp.core.row_relations import Arrivals
from stream_dp.errors import InvalidCost


def test_numbers_of_users_by_key_are_those_that_the_theory_says() -> None:
    """m in windows of the cap and for ever under `overall`; twice as many where the next window has the user again."""
    for m in (1, 2, 3):
        day, ever = Users(20, 24), Users(20)
        assert Arrivals(24, day, entries=m).changes == m
        assert Arrivals(None, ever, entries=m).changes == m
        assert (
            Arrivals(None, day, entries=m).changes == Arrivals(48, day, entries=m).changes == 2 * m
        )
        assert Arrivals(48, day, ended=True, entries=m).changes == m
        assert Arrivals(6, day, entries=m).changes == 4 * m
        assert Arrivals(24, ever, ended=True, entries=m).changes == 20
    assert Arrivals(24, entries=2).changes == 2 * Arrivals(24).changes


def test_it_says_what_it_is_and_refuses_what_is_none() -> None:
    assert str(Arrivals(24)) == "first ticks of identifiers in windows of 24 ticks"
    assert str(Arrivals(1, Users(2))) == "first ticks of users in windows of 1 tick"
    assert str(Arrivals()) == "first ticks of identifiers"
    assert str(Arrivals(24, ended=True)) == "numbers of identifiers in whole windows of 24 ticks"
    day = Users(20, 24)
    assert "first ticks of identifiers, at most 3 of a user" in str(Arrivals(24, day, values=3))
    for users, values in ((None, 3), (day, 0), (day, 1.5)):
        with pytest.raises(InvalidCost, match="values of a user's events"):
            Arrivals(24, users, values=values)  # type: ignore[arg-type]
    with pytest.raises(InvalidCost, match="never ends"):
        Arrivals(ended=True)
    for window in (0, -1, 1.5, True):
        with pytest.raises(InvalidCost, match="whole number"):
            Arrivals(window)  # type: ignore[arg-type]
