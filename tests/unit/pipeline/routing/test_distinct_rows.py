"""Rows of `distinct` on the real path: what the definition says, and how much a neighbour changes of them.

Guard, router, assembler and memory run as in the engine; batches are cut by lot. Neighbouring logs differ in one event,
or in all of a user's; the difference of the rows is measured, and is at most what the mechanism is made for.
"""

import itertools
from collections.abc import Iterable, Iterator
from random import Random

import numpy as np
import pytest
from oracles.user_caps import Event, Log, Mark
from unit.pipeline.routing.seen_worlds import expected, rows_of, specification
from unit.pipeline.routing.user_worlds import FOR_EVER, SEALER, hashed, payload, some_log

from stream_dp.engine.ports import Batch
from stream_dp.mechanisms.linear.arrival_counter import ArrivalCounter
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.spec import PipelineSpec

NAMES = ("u", "v")
TICKS = 5
PER_WINDOW = {"unit": "user", "user": "customer", "max_events": "3", "per": "4s", "epsilon": "100"}
TWO = {
    "source": {"kind": "kafka", "topic": "t", "bootstrap": "a:1"},
    "journal": {"kind": "sqlite", "path": "j"},
    "releases": {"path": "r"},
}


@pytest.mark.parametrize("seed", range(12))
def test_rows_are_those_of_the_definition(seed: int) -> None:
    users = [f"user {number}" for number in range(7)]
    logs: dict[int, Log] = {
        each: some_log(Random(3 * seed + each), users, 80) for each in range(1 + seed % 3)
    }
    spec = specification(**TWO) if len(logs) > 1 else specification()
    for lot in (1, 2):
        assert list(map(tuple, rows_of(spec, logs, Random(lot)).tolist())) == expected(logs)


def small_logs() -> Iterator[list[Event | Mark]]:
    """Few events of few ticks, some of them out of order, under one mark for each tick."""
    for seed in range(150):
        random = Random(seed)
        log: list[Event | Mark] = []
        for tick in range(TICKS):
            for _ in range(random.randrange(3)):
                at = min(TICKS - 1, tick + random.randrange(3))
                log.append(Event(random.choice(NAMES), at, random.choice("abc")))
            log.append(Mark(tick))
        yield [*log, Mark(23)]


def changes_of(spec: PipelineSpec) -> list[int]:
    found = [chosen.mechanism for chosen in build(spec).chosen]
    return [each.rows.changes for each in found if isinstance(each, ArrivalCounter)]


def apart(spec: PipelineSpec, left: Log, rights: Iterable[Log], lot: int) -> list[int]:
    """By how many units the rows of a log and of others differ at most, of each series of identifiers."""
    one = rows_of(spec, {0: left}, Random(lot))
    others = [rows_of(spec, {0: log}, Random(lot)) for log in rights]
    differences = [np.abs(one - other).sum(axis=0)[:3] for other in others]
    most: list[int] = np.max([np.zeros(3, np.int64), *differences], axis=0).tolist()
    return most


def test_one_event_more_changes_what_the_noise_is_for() -> None:
    spec, worst = specification(), [0, 0, 0]
    for lot, log in enumerate(small_logs()):
        random = Random(lot)
        place = random.randrange(len(log) - 1)
        extra = Event(random.choice(NAMES), random.randrange(TICKS), random.choice("abc"))
        found = apart(spec, log, [[*log[:place], extra, *log[place:]]], lot)
        worst = [max(pair) for pair in zip(worst, found, strict=True)]
    assert worst == changes_of(spec) == [2, 2, 1]


def test_one_event_in_place_of_another_in_its_tick_changes_no_more() -> None:
    spec = specification(
        privacy={"unit": "event", "epsilon": "100", "neighbors": "replace", "moves": "within_tick"}
    )
    worst = [0, 0, 0]
    for lot, log in enumerate(itertools.islice(small_logs(), 75)):
        places = [at for at, item in enumerate(log) if isinstance(item, Event)]
        others = [
            [*log[:at], other, *log[at + 1 :]]
            for at, name, key in itertools.product(places[:2], NAMES, "ac")
            if (other := Event(name, log[at].tick, key)) != log[at]
        ]
        found = apart(spec, log, others, lot)
        worst = [max(pair) for pair in zip(worst, found, strict=True)]
    assert worst == changes_of(spec) == [2, 2, 1]


@pytest.mark.parametrize(
    ("privacy", "changes"), [(PER_WINDOW, [2, 1, 3]), (FOR_EVER, [1, 3, 3])], ids=["window", "ever"]
)
def test_a_user_changes_what_the_noise_is_for(privacy: dict[str, str], changes: list[int]) -> None:
    """All of a user's events of one window of the cap, or all there are; of single ticks as many as the cap."""
    spec, worst = specification(privacy=privacy), [0, 0, 0]
    size = 4 if privacy is PER_WINDOW else 24
    for lot in range(120):
        random, log = Random(lot), list[Event | Mark]()
        for tick in range(12):
            log += [Event(random.choice(NAMES), tick, "a") for _ in range(random.randrange(2))]
            log.append(Mark(tick))
        log.append(Mark(23))
        window = random.randrange(3) if size == 4 else 0
        without = [
            item
            for item in log
            if isinstance(item, Mark) or item.user != "u" or item.tick // size != window
        ]
        found = apart(spec, log, [without], lot)
        worst = [max(pair) for pair in zip(worst, found, strict=True)]
    assert worst == changes_of(spec) == changes


def test_an_identifier_that_is_no_user_has_a_share_of_each_event() -> None:
    series = [{"name": "ever", "statistic": "distinct", "of": "key", "epsilon": "2"}]
    (chosen,) = build(specification(privacy=FOR_EVER, series=series)).chosen
    assert isinstance(chosen.mechanism, ArrivalCounter)
    assert chosen.mechanism.epsilon * 3 == chosen.spec.epsilon
    assert chosen.mechanism.rows.changes == 2
    assert chosen.derivation.rule == "all events of one user"


def test_identifiers_are_keyed_hashes_of_their_text() -> None:
    """By another library's code; and under another key they are others."""
    batch = Batch(0, [payload(Event("u", 2, "a"))] * 2, range(2), 2)
    found = {}
    for key in (SEALER.user_key(), bytes(32)):
        routed = OpenRouter(specification(), 0, None, key).route(batch)
        assert routed.arrived.keys() == {2}
        found[key] = [routed.arrived[2][column].astype("<u8").tobytes() for column in (0, 1, 2)]
    assert found[SEALER.user_key()] == [hashed("u")] * 3
    assert found[bytes(32)] != found[SEALER.user_key()]
