"""Records that are fed: each lies in its user's partition, so the guard finds it there."""

import json
from collections import defaultdict

import pytest
from unit.pipeline.routing.user_worlds import KEYED, specification

from stream_dp.engine.ports import Batch, Placement, by_content
from stream_dp.errors import UsageError
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_guard import UserGuard
from stream_dp.pipeline.user_homes import LONGEST_NAME, placement_of

PARTITIONS = (0, 1, 2, 5)
RECORDS = [
    json.dumps({"time": 1000 * (at % 5), "customer": f"user {at % 40}", "key": "a"}).encode()
    for at in range(400)
]


def keyed(partitioner: str = "murmur2") -> PipelineSpec:
    source = KEYED | {"partitioner": partitioner}
    privacy = {"unit": "user", "user": "customer", "overall": "1000", "epsilon": "100"}
    return specification(source=source, journal={"kind": "kafka"}, releases=None, privacy=privacy)


def dead_of(spec: PipelineSpec, place: Placement, payloads: list[bytes]) -> int:
    """How many records a guard refuses where they were put."""
    guard = UserGuard(spec, 0, bytes(32))
    guard.begin(PARTITIONS)
    lanes = defaultdict[int, list[bytes]](list)
    for payload, partition in zip(payloads, place(payloads, PARTITIONS), strict=True):
        lanes[partition].append(payload)
    dead = 0
    for partition, lane in lanes.items():
        batch = Batch(partition, lane, range(len(lane)), len(lane))
        dead += sum(span.records for span in guard.admit(batch, -1).refused)
    return dead


@pytest.mark.parametrize("partitioner", ["murmur2", "crc32"])
def test_what_is_fed_lies_where_the_guard_looks_for_it(partitioner: str) -> None:
    spec = keyed(partitioner)
    assert dead_of(spec, placement_of(spec), RECORDS) == 0
    assert dead_of(spec, by_content, RECORDS) > len(RECORDS) / 2  # where it was put before


def test_what_names_nobody_is_put_by_its_content() -> None:
    spec = keyed()
    nobody = [
        b"{",
        b"[]",
        b'{"time":0}',
        json.dumps({"customer": "x" * (LONGEST_NAME + 1)}).encode(),
    ]
    assert placement_of(spec)(nobody, PARTITIONS) == by_content(nobody, PARTITIONS)
    mixed = [nobody[0], RECORDS[0], nobody[3], RECORDS[1]]
    alone = [placement_of(spec)([each], PARTITIONS)[0] for each in mixed]
    assert placement_of(spec)(mixed, PARTITIONS) == alone


def test_without_a_declared_key_several_partitions_are_refused_and_one_is_not() -> None:
    spec = specification()
    with pytest.raises(UsageError, match=r"source\.keyed_by: customer"):
        placement_of(spec)((), PARTITIONS)
    assert placement_of(spec)(RECORDS, (3,)) == [3] * len(RECORDS)


def test_events_without_users_are_put_by_their_content() -> None:
    assert placement_of(specification(privacy={"epsilon": "100"})) is by_content
