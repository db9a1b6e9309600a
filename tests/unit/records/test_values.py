"""Values of a topic in Avro, in Protobuf and behind a schema's number: what they count, and what none of them moves."""

import json
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from random import Random

import pytest
from unit.records.topic_worlds import as_read, packed, released
from unit.records.value_worlds import (
    HEAD,
    SECOND,
    events,
    payloads,
    spec_of,
    written,
)

from stream_dp.errors import UsageError
from stream_dp.journal.dead_letters import NO_SCHEMA_ID, UNKNOWN_SCHEMA, UNREADABLE_VALUE
from stream_dp.kafka.source.unpacker import Unpacker
from stream_dp.operate.run.settings import written_to
from stream_dp.pipeline.fingerprints import fingerprint, fingerprints
from stream_dp.pipeline.router import Router
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.records.cells import Reading
from stream_dp.records.endpoints import KafkaSourceSpec
from stream_dp.records.leaf_values import Read

FORMS = ("plain", "json", "avro", "protobuf")
FRAMED = FORMS[1:]
NUMBER = 60


def reading(spec: PipelineSpec) -> Read:
    assert isinstance(spec.source, KafkaSourceSpec)
    read = spec.source.read(spec.fields)
    assert read is not None
    assert read.value is not None
    return read.value


def test_the_same_topic_in_each_format_flat_and_nested_gives_the_same_releases(
    tmp_path: Path,
) -> None:
    told, every = events(1), []
    for nested, form in product((False, True), FORMS):
        folder = tmp_path / f"{form}-{nested}"
        folder.mkdir()
        spec = spec_of(folder, written(folder, form, nested=nested), nested=nested)
        every.append(released(spec, payloads(form, told, nested=nested)))
    first, *others = every
    assert len(first) >= 3 * 11
    assert others == [first] * 7
    assert any(release["value"] for release in first if release["series"] == "s0")


Outcome = bytes | str
Batched = Callable[[Sequence[bytes]], list[Outcome]]


def moved(read: Batched, values: Sequence[bytes], at: int, broken: bytes) -> list[int]:
    """Which other records of a batch become something else where one of them is broken."""
    before = read(values)
    after = read([*values[:at], broken, *values[at + 1 :]])
    return [n for n in range(len(values)) if n != at and after[n : n + 1] != before[n : n + 1]]


def each_alone(spec: PipelineSpec) -> Batched:
    """What the engine's source makes of each record of a batch."""
    unpacker = Unpacker(marks=False, read=Reading(reading(spec)))

    def read(values: Sequence[bytes]) -> list[Outcome]:
        unpacked = unpacker.unpack(packed(values, 0, 0))
        found: dict[int, Outcome] = dict(zip(unpacked.offsets, unpacked.values, strict=True))
        for span in unpacked.refused:
            found |= dict.fromkeys(range(span.first, span.last + 1), span.reason)
        return [found[at] for at in range(len(values))]

    return read


def glued(spec: PipelineSpec) -> Batched:
    """The broken twin: reads a batch as one sequence of records, as who puts payloads into an Avro container does."""
    one = reading(spec)

    def read(values: Sequence[bytes]) -> list[Outcome]:
        whole = b"".join(value[len(HEAD) :] for value in values)
        found, begin = list[Outcome](), 0
        while begin < len(whole):
            ends = range(begin + 1, len(whole) + 1)
            end = next(
                (e for e in ends if isinstance(one(HEAD + whole[begin:e]), bytes)), len(whole)
            )
            found.append(one(HEAD + whole[begin:end]))
            begin = end
        return found

    return read


def spoiled(value: bytes, lot: Random) -> bytes:
    """The value cut, with more behind it, or with other bytes in it."""
    at, kind = lot.randrange(len(value)), lot.randrange(4)
    if kind == 0:
        return value[:at]
    if kind == 1:
        return value + lot.randbytes(lot.randrange(1, 9))
    if kind == 2:
        return value[:at] + lot.randbytes(1) + value[at + 1 :]
    return value[: len(HEAD)] + lot.randbytes(lot.randrange(40))


@pytest.mark.parametrize("form", FRAMED)
def test_a_broken_record_moves_no_other_one(tmp_path: Path, form: str) -> None:
    spec = spec_of(tmp_path, written(tmp_path, form, nested=True), nested=True)
    values, lot = payloads(form, events(2, NUMBER), nested=True), Random(3)
    read = each_alone(spec)
    for _ in range(200):
        at = lot.randrange(NUMBER)
        assert moved(read, values, at, spoiled(values[at], lot)) == []


def test_gluing_payloads_is_caught(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, written(tmp_path, "avro", nested=False))
    values = payloads("avro", events(2, 5), nested=False)
    read = glued(spec)
    assert read(values) == each_alone(spec)(values)
    assert moved(read, values, 1, values[1][:-3]) != []
    assert moved(each_alone(spec), values, 1, values[1][:-3]) == []


@pytest.mark.parametrize("form", FRAMED)
def test_dead_letters_say_why(tmp_path: Path, form: str) -> None:
    spec = spec_of(tmp_path, written(tmp_path, form, nested=False))
    (good,) = payloads(form, events(4, 1), nested=False)
    read = reading(spec)
    assert isinstance(read(good), bytes)
    for head in (b"", b"\0", HEAD[:4], b"\1" + HEAD[1:], b"{}", b'{"a": 1}'):
        assert read(head) == NO_SCHEMA_ID
    for number in (0, 6, 8, 2**32 - 1):
        assert read(b"\0" + number.to_bytes(4, "big") + good[5:]) == UNKNOWN_SCHEMA
    if form != "json":  # its text is for the decoder
        cut = [read(good[:end]) for end in range(len(HEAD), len(good))]
        assert all(
            isinstance(one, bytes) or one in (UNKNOWN_SCHEMA, UNREADABLE_VALUE) for one in cut
        )
        assert read(good + b"\xff") == UNREADABLE_VALUE
    if form == "avro":
        assert set(cut) == {UNREADABLE_VALUE}
        assert read(good + b"\0") == UNREADABLE_VALUE
    if form == "protobuf":
        for other in (b"\0", b"\2\0", b"\2\4", b"\4\2\0", b"\xff" * 20, b""):
            assert read(HEAD + other + good[7:]) in (UNKNOWN_SCHEMA, UNREADABLE_VALUE)
        assert read(HEAD + b"\0" + good[7:]) == UNKNOWN_SCHEMA


@pytest.mark.parametrize("form", FRAMED)
def test_no_bytes_raise(tmp_path: Path, form: str) -> None:
    """And each record is one thing: counted, or a dead letter with its place."""
    spec = spec_of(tmp_path, written(tmp_path, form, nested=True), nested=True)
    values, lot = payloads(form, events(5, NUMBER), nested=True), Random(6)
    hostile = [spoiled(lot.choice(values), lot) for _ in range(3000)]
    hostile += [HEAD + SECOND + lot.randbytes(lot.randrange(200)) for _ in range(3000)]
    batches = as_read(spec, hostile)
    router = Router(spec, spec.clock.start or 0)
    for batch in batches:
        routed = router.route(batch)
        dead = sum(span.records for span in routed.dead)
        lost = sum(span.records for span in batch.refused)
        assert sum(routed.records.values()) + dead == len(batch.payloads) + lost


@pytest.mark.parametrize("form", FRAMED)
def test_who_writes_plain_json_refuses_such_a_topic(tmp_path: Path, form: str) -> None:
    with pytest.raises(UsageError, match=r"orders reads values that are not plain JSON"):
        written_to(spec_of(tmp_path, written(tmp_path, form, nested=False)))
    assert written_to(spec_of(tmp_path, None)).topic == "orders"


def test_the_fingerprint_covers_schemas_and_numbers(tmp_path: Path) -> None:
    avro = written(tmp_path, "avro", nested=False)
    assert avro is not None
    plain, own = fingerprint(spec_of(tmp_path, None)), fingerprint(spec_of(tmp_path, avro))
    assert plain == "4f2b864e446b5689683b055139c891fa1b765465b3118eba9e6c85352cae6e33"  # of before
    assert "source" not in fingerprints(spec_of(tmp_path, None)).parts
    (tmp_path / "same").write_bytes((tmp_path / "avro-False").read_bytes())
    assert fingerprint(spec_of(tmp_path, avro | {"schemas": {"7": "same"}})) == own
    (tmp_path / "other").write_text(json.dumps({"type": "record", "name": "O", "fields": []}))
    others = [
        avro | {"schemas": {"8": "same"}},
        avro | {"schemas": {"7": "same", "8": "same"}},
        avro | {"schemas": {"7": "other"}},
        written(tmp_path, "protobuf", nested=False),
        {"format": "json", "ids": ["7"]},
        {"format": "json", "ids": ["7", "8"]},
    ]
    all_of_them = [fingerprint(spec_of(tmp_path, other)) for other in others]
    assert len({plain, own, *all_of_them}) == 2 + len(others)
    assert fingerprint(spec_of(tmp_path, {"format": "json", "ids": ["8", "7"]})) == all_of_them[-1]
