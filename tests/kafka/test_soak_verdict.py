"""The judge of a soak, on what broken engines would leave."""

import json
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
from faults.evidence import Public
from kafka.soak_verdict import Verdict, judged
from oracles.kafka_log import Range, Said

TICKS = 4


@dataclass(slots=True)
class Left:
    """What an engine has left, and the log that it read."""

    commits: list[dict[str, Any]]
    public: list[Public]
    log: Said


def body(tick: int, value: int) -> bytes:
    return json.dumps({"series": "all", "tick": tick, "value": value}).encode()


def rightly() -> Left:
    """Two red records a tick, one late, one dead."""
    commits = [
        {
            "ticks": [tick],
            "rows": [[2, 2, 0, 0, 0]],
            "late": int(tick == 1),
            "dead_letters": [["dead-letter", 0, "not_json", None, 1, [[7, 7]]]]
            if tick == 2
            else [],
            "releases": [["release", tick, "all", tick, body(tick, tick)]],
        }
        for tick in range(TICKS)
    ]
    public = [Public(body(tick, tick), True, b"all", 0) for tick in range(TICKS)]
    ticks = {tick: Counter(red=2) for tick in range(TICKS)}
    return Left(commits, public, Said(ticks, [Range(0, 7, 7)], 1))


def _forgets_a_record(left: Left) -> None:
    left.commits[1]["rows"] = [[1, 1, 0, 0, 0]]


def _counts_a_record_twice(left: Left) -> None:
    left.commits[1]["rows"] = [[3, 3, 0, 0, 0]]


def _counts_a_late_one_in_its_tick(left: Left) -> None:
    left.commits[1] |= {"rows": [[3, 3, 0, 0, 0]], "late": 0}


def _takes_another_tick(left: Left) -> None:
    left.commits[1]["rows"], left.commits[2]["rows"] = [[1, 1, 0, 0, 0]], [[3, 3, 0, 0, 0]]


def _takes_another_kind(left: Left) -> None:
    left.commits[1]["rows"] = [[2, 1, 1, 0, 0]]


def _drops_a_dead_letter(left: Left) -> None:
    left.commits[2]["dead_letters"] = []


def _publishes_less(left: Left) -> None:
    del left.public[2]


def _publishes_twice(left: Left) -> None:
    left.public.append(left.public[-1])


def _shows_another_version(left: Left) -> None:
    left.public.insert(1, Public(body(1, 17), False, b"all", 0))


def _skips_a_tick(left: Left) -> None:
    del left.commits[2], left.public[2]


BROKEN: dict[Callable[[Left], None], str] = {
    _forgets_a_record: "lost",
    _counts_a_record_twice: "twice",
    _counts_a_late_one_in_its_tick: "twice",
    _takes_another_tick: "faults",
    _takes_another_kind: "faults",
    _drops_a_dead_letter: "lost",
    _publishes_less: "lost",
    _publishes_twice: "twice",
    _shows_another_version: "in_two_versions",
    _skips_a_tick: "faults",
}


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    left = rightly()
    found = judged(left.commits, left.public, left.log)
    assert found == Verdict(ticks=TICKS, records=2 * TICKS, late=1, dead=1)


def test_a_record_that_was_shown_late_is_late_and_no_fault() -> None:
    left = rightly()
    left.commits[1] |= {"rows": [[1, 1, 0, 0, 0]], "late": 2}
    found = judged(left.commits, left.public, left.log)
    assert (found.later, found.lost, found.twice, found.faults) == (1, 0, 0, [])


@pytest.mark.parametrize("broken", BROKEN)
def test_what_a_broken_engine_leaves_is_found(broken: Callable[[Left], None]) -> None:
    left = deepcopy(rightly())
    broken(left)
    assert getattr(judged(left.commits, left.public, left.log), BROKEN[broken])
