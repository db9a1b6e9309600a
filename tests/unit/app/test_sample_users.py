"""`check` under the unit user: who names nobody is a dead letter, and undeclared partitions are refused."""

import json

import pytest
from unit.pipeline.user_worlds import KEYED, specification

from stream_dp.app.sample_check.fitting import fitting_of
from stream_dp.app.sample_check.sample import Piece, Sample
from stream_dp.errors import UsageError

KAFKA = {"source": KEYED, "journal": {"kind": "kafka"}, "releases": None}


def record(user: str | None) -> bytes:
    return json.dumps({"time": 0, "customer": user, "key": "a"}).encode()


def piece(partition: int, *users: str | None) -> Piece:
    return Piece(partition, [record(user) for user in users], range(len(users)))


def test_who_names_nobody_could_not_be_used() -> None:
    sample = Sample("events.jsonl", [piece(0, "ann", None, *["bob"] * 9)], lines=True)
    found = fitting_of(specification(), sample)
    assert [(each.name, each.records, each.example) for each in found.reasons] == [
        ("wrong_type in customer", 1, "line 1")
    ]


def test_partitions_that_say_nothing_of_users_are_refused() -> None:
    sample = Sample("topic t", [piece(0, "ann"), piece(1, "bob")])
    with pytest.raises(UsageError, match=r"source\.keyed_by: customer"):
        fitting_of(specification(), sample)
    assert fitting_of(specification(**KAFKA), sample).dead == 0
