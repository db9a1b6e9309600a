"""Rows of `distinct` on the real path are what the definition says.

Guard, router, assembler and memory run as in the engine; batches are cut by lot. How much a neighbour changes of such
rows is in `unit/mechanisms/test_arrivals_exact`, from raw records in `unit/verify/test_from_theory_distinct`.
"""

from random import Random

import pytest
from oracles.user_caps import Event, Log
from unit.pipeline.routing.seen_worlds import expected, rows_of, specification
from unit.pipeline.routing.user_worlds import FOR_EVER, SEALER, hashed, payload, some_log

from stream_dp.engine.ports import Batch
from stream_dp.mechanisms.linear.arrival_counter import ArrivalCounter
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.router import OpenRouter

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
