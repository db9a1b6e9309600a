"""`check` under the unit user: who names nobody is a dead letter, and undeclared partitions are refused."""

import json

import pytest
from unit.pipeline.routing.user_worlds import KEYED, specification

from stream_dp.errors import UsageError
from stream_dp.operate.fitting import Piece, Sample, fitting_of
from stream_dp.pipeline.user_homes import PARTITIONERS

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
    says = "a record that names no user cannot be counted: write whose it is, or leave such records out"
    assert [each.says for each in found.hints] == [f"customer: null; {says}"]
    absent = Piece(0, [b'{"time": 0, "key": "a"}'], range(1))
    (hint,) = fitting_of(specification(), Sample("topic t", [absent])).hints
    assert hint.says == f"customer: absent; {says}"


def test_partitions_that_say_nothing_of_users_are_refused() -> None:
    sample = Sample("topic t", [piece(0, "ann")], partitions=(0, 1))
    with pytest.raises(UsageError, match=r"source\.keyed_by: customer"):
        fitting_of(specification(), sample)
    alone = Sample("topic t", [piece(0, "ann")])
    assert fitting_of(specification(), alone).dead == 0


def homes(partitioner: str) -> list[Piece]:
    """Records of twenty users, where producers of this kind put them in three partitions."""
    users = [f"user {number}" for number in range(20)]
    found = PARTITIONERS[partitioner]([user.encode() for user in users], 3).tolist()
    return [piece(n, *(u for u, at in zip(users, found, strict=True) if at == n)) for n in range(3)]


@pytest.mark.parametrize("partitioner", ["murmur2", "crc32"])
def test_producers_that_place_users_otherwise_than_declared_are_found(partitioner: str) -> None:
    """A guard that was begun for each piece alone took every partition for everybody's."""
    declared = KAFKA | {"source": KEYED | {"partitioner": partitioner}}
    other = {"murmur2": "crc32", "crc32": "murmur2"}[partitioner]
    right = Sample("topic t", homes(partitioner), partitions=range(3))
    assert fitting_of(specification(**declared), right).dead == 0
    wrong = fitting_of(
        specification(**declared), Sample("topic t", homes(other), partitions=range(3))
    )
    assert [each.name for each in wrong.reasons] == ["wrong_partition in customer"]
    assert wrong.dead > 5
    says = {each.says: each.records for each in wrong.hints}
    hint = f"records lie where `partitioner: {other}` puts their users; declare that in `source:`"
    assert says[hint] == wrong.dead
