"""The guard for users beside the work that a record costs in any case: decoding and counting it.

    python tests/benchmarks/bench_user_guard.py [USERS]

Prints, for a window with so many users (1,000,000), CPU time a record: of the guard, of the router, which decodes the
record for both, and their ratio, which does not depend on the machine; and bytes a user.
"""

import sys
import time
from collections.abc import Iterator

import numpy as np

from stream_dp.engine.ports import Batch
from stream_dp.pipeline.router import Router
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_guard import UserGuard

USERS, AT_ONCE = 1_000_000, 8192
SPEC = PipelineSpec.model_validate(
    {
        "version": 1,
        "name": "users",
        "source": {"kind": "kafka", "topic": "t", "bootstrap": "127.0.0.1:1"},
        "schema": {
            "customer": {"type": "text"},
            "destination": {"type": "category", "domain": ["ATL", "BOS", "LAX"]},
            "amount": {"type": "integer"},
        },
        "privacy": {
            "unit": "user",
            "user": "customer",
            "max_events": 20,
            "per": "1d",
            "epsilon": 1,
        },
        "clock": {"kind": "wall", "step": "1m"},
        "journal": {"kind": "kafka"},
        "series": [
            {"name": "all", "statistic": "count", "epsilon": "1/2"},
            {
                "name": "by_destination",
                "statistic": "histogram",
                "by": "destination",
                "epsilon": "1/2",
            },
        ],
    }
)


def batches(users: list[int]) -> Iterator[Batch]:
    for begin in range(0, len(users), AT_ONCE):
        some = users[begin : begin + AT_ONCE]
        values = [
            b'{"customer":"customer-%08d","destination":"BOS","amount":7}' % user for user in some
        ]
        yield Batch(0, values, range(begin, begin + len(some)), begin + len(some), tick=1)


def main(users: int = USERS) -> None:
    """Fill a window with users, then read records of users who are there."""
    chance = np.random.default_rng(1)
    guard, router = UserGuard(SPEC, 0, bytes(32)), Router(SPEC, 0)
    guard.begin((0,))
    known = chance.integers(0, users, users // 2)
    for name, order in (("new users", np.arange(users)), ("known ones", known)):
        spent = {"guard": 0.0, "router": 0.0}
        for batch in batches(chance.permutation(order).tolist()):
            begin = time.process_time()
            decoded = router.decode(batch)
            ready = time.process_time()
            admitted = guard.admit(decoded, -1)
            decided = time.process_time()
            router.route(admitted)
            spent["guard"] += decided - ready
            spent["router"] += ready - begin + time.process_time() - decided
        guarding, routing = (seconds / len(order) * 1e6 for seconds in spent.values())
        sys.stdout.write(
            f"{name}: guard {guarding:.2f} µs a record, router {routing:.2f} µs, ratio {guarding / routing:.1f}\n"
        )
    sys.stdout.write(f"{guard.memory._table._rows.nbytes / users:.0f} bytes a user\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
