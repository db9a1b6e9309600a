"""Watches on sums from raw records, exact: one record more, of any amount, beside sums below and above the threshold.

The description says that a watch pays for each unit that a record changes: what the engine's releases lose is what
`plan` states, and a watch on a sum with the noise of a count, a half of it here, loses more.
"""

from typing import Any

import pytest
from unit.verify.exact.raw_streams import Item, Logs, World, event, one_more, pipeline, worst

CASH = {"name": "m", "statistic": "monitor", "of": "amount", "clamp": ["-1", "2"]}
MOST = 2
"""The largest amount of the clamp, its sign left out."""


def logs_of(*amounts: int) -> Logs:
    """A record of this amount in each tick."""
    found: list[Item] = []
    for tick, amount in enumerate(amounts):
        found += [event(tick, who="you", amount=amount), tick]
    return (tuple(found),)


PAIRS = [
    pair
    for logs in (logs_of(1, 1), logs_of(2, 0), logs_of(0, 0))
    for pair in one_more(logs, [event(t, amount=a) for t in (0, 1) for a in (9, -9, None)])
]


@pytest.mark.parametrize(
    "watch", [{}, {"over": "tick"}, {"rearm": "false"}], ids=["since it fired", "ticks", "once"]
)
def test_a_watch_on_a_sum_loses_what_plan_states_and_at_the_scale_of_a_count_more(
    watch: dict[str, Any],
) -> None:
    """One more unit than is stated would be seen, and so would one less."""
    series = CASH | {"epsilon": str(MOST), "watch": [{"name": "w", "above": "3"} | watch]}
    world = World(pipeline([series], {}, 2), 4)
    found, where = worst(world, PAIRS)
    assert found == world.stated == MOST, where
    mechanism: Any = world.series[0].mechanism
    assert worst(world.twin(epsilon=MOST * mechanism.epsilon), PAIRS)[0] > world.stated
