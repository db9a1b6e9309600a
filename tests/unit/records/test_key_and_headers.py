"""Fields in the key and in headers of Kafka records, against a reader that goes slowly over one record at a time."""

import json
from collections.abc import Mapping, Sequence
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from unit.kafka.source.record_worlds import batch, record
from unit.records.value_worlds import HEAD, spec_of

from stream_dp.journal.dead_letters import MISSING_FIELD, NOT_JSON, WRONG_TYPE
from stream_dp.kafka.source.record_batches import RecordBatch, Unpacked, record_batches
from stream_dp.kafka.source.unpacker import Unpacker
from stream_dp.pipeline.fingerprints import fingerprint
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_homes import placement_of
from stream_dp.records.cells import MOST_HEADERS, KeyAndHeaders, Reading, joined
from stream_dp.records.decoder import RecordDecoder
from stream_dp.records.schema import HEADER_PLACE, KEY_PLACE

FIELDS: dict[str, dict[str, Any]] = {
    "who": {"type": "text", "from_key": "true"},
    "tenant": {"type": "category", "domain": ["a", "b"], "from_header": "x-tenant"},
    "many": {"type": "integer", "from_header": "many", "nullable": "true"},
    "share": {"type": "number", "from_header": "share", "nullable": "true"},
    "paid": {"type": "boolean", "from_header": "paid", "nullable": "true"},
    "cents": {"type": "integer", "nullable": "true"},
}
OUTSIDE = {name: field for name, field in FIELDS.items() if name != "cents"}
COUNT = [{"name": "s", "statistic": "count", "epsilon": "0.5"}]


def spec_with(schema: Mapping[str, Any], **keys: Any) -> PipelineSpec:
    return spec_of(None, None, **{"schema": schema, "series": COUNT, **keys})  # type: ignore[arg-type]


SPEC = spec_with(FIELDS)
DECODER = RecordDecoder(SPEC.fields)
Headers = Sequence[tuple[bytes, bytes | None]]
Outcome = dict[str, Any] | frozenset[tuple[str, str | None]]
"""A record's fields, or the reasons of which its refusal has one."""
ANY = frozenset(
    (reason, name) for reason in (NOT_JSON, WRONG_TYPE, MISSING_FIELD) for name in (None, *FIELDS)
)
"""Of what is no object: the reader stops at the first thing that is wrong."""


def wanted(value: bytes | None, key: bytes | None, headers: Headers) -> Outcome:
    """The oracle: what one record is, by `json.loads` and the declaration of each field."""
    try:
        whole = json.loads((value or b"").decode(), parse_constant=_none)
    except (ValueError, RecursionError):
        whole = None
    if not isinstance(whole, dict):
        return ANY
    values = {"cents": whole.get("cents")}
    wrong = set[tuple[str, str | None]]()
    if values["cents"] is not None and not _whole(values["cents"]):
        wrong.add((WRONG_TYPE, "cents"))
    for name, field in OUTSIDE.items():
        try:
            values[name] = typed(field["type"], text_of(field, key, headers))
        except ValueError:
            wrong.add((WRONG_TYPE, name))
        else:
            if values[name] is None and "nullable" not in field:
                wrong.add((MISSING_FIELD, name))
    return frozenset(wrong) if wrong else values


def text_of(field: Mapping[str, Any], key: bytes | None, headers: Headers) -> bytes | None:
    text = key if "from_key" in field else None
    for header, content in headers[:MOST_HEADERS]:
        if header.decode(errors="replace") == field.get("from_header"):
            text = content
    return text


def _none(_: str) -> None:
    raise ValueError


def _whole(value: object) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def typed(kind: str, data: bytes | None) -> Any:
    if data is None:
        return None
    text = data.decode()  # UnicodeDecodeError is a ValueError
    if kind == "integer":
        if not _whole(value := int(text)) or not text.lstrip("-").isdecimal():
            raise ValueError
        return value
    if kind == "number":
        if text.strip("0123456789+-.eE") or not abs(number := float(text)) < float("inf"):
            raise ValueError
        return number
    if kind == "boolean":
        if text.lower() not in ("true", "false", "1", "0"):
            raise ValueError
        return text.lower() in ("true", "1")
    return text


def paths(rows: Sequence[tuple[bytes | None, bytes | None, Headers]]) -> list[RecordBatch]:
    """The records as a batch for the library's parser, as one that it refuses, and as the library has unpacked them."""
    raw = [record(value, at, key, headers) for at, (value, key, headers) in enumerate(rows)]
    broken = [*raw, record(b"", len(raw), tail=b"\xff")]
    parsed, walked = (next(iter(record_batches(batch(part), 0))) for part in (raw, broken))
    theirs = [
        SimpleNamespace(
            value=value, key=key, offset=at,
            headers=[(name.decode(errors="replace"), content) for name, content in headers],
        )
        for at, (value, key, headers) in enumerate(rows)
    ]  # fmt: skip
    return [parsed, walked, parsed._replace(content=theirs)]


def outcomes(unpacked: Unpacked) -> list[Outcome]:
    decoded = DECODER.decode(unpacked.values)
    named = {name: attrgetter(DECODER.attribute(name)) for name in FIELDS}
    found: dict[int, Outcome] = {
        at: {name: of(each) for name, of in named.items()}
        for at, each in zip(decoded.positions, decoded.records, strict=True)
    }
    found |= {dead.position: frozenset({(dead.reason, dead.field)}) for dead in decoded.refused}
    return [found[at] for at in range(len(unpacked.values))]


def agree(outcome: Outcome, right: Outcome) -> bool:
    if isinstance(right, dict):
        return outcome == right
    return isinstance(outcome, frozenset) and outcome <= right


PIECES = st.sampled_from(
    ['{', '}', '"', ',', ':', '[', ']', ' ', '\\', '"a":1', '"cents":5', '1', 'null', '{}', f'"{KEY_PLACE}":"me"',
     f'"{HEADER_PLACE}x-tenant":"b"', '"cents":"x"', '"b":{"c":[]}', '\n', '"', f'"{HEADER_PLACE}many":7']
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip
OBJECTS = st.dictionaries(st.sampled_from(["cents", "who", "x", ""]), JSON, max_size=3)
VALUES = st.one_of(
    st.none(),
    st.lists(PIECES, max_size=9).map(lambda parts: "".join(parts).encode()),
    st.lists(PIECES, max_size=5).map(lambda parts: ("{" + ",".join(parts) + "}").encode()),
    OBJECTS.map(lambda whole: json.dumps(whole, ensure_ascii=False).encode("utf-8", "ignore")),
    st.integers(0, 99).map(lambda cents: b'{"cents": %d }\n ' % cents),
    st.binary(max_size=6),
)
TEXTS = st.one_of(
    st.none(),
    st.binary(max_size=3),
    st.sampled_from(
        [b"", b"a", b"b", b"7", b"-0", b"007", b"1.5", b"1e3", b"True", b"0", b"9223372036854775808", b"1e999",
         b'"', b'","cents":1,"', b"}", "ü€😀".encode(), b"\xff", b" 7", b"-", b".5", b"null",
         b"9" * 50]
    ),
)  # fmt: skip
HEADERS = st.lists(
    st.tuples(st.sampled_from([b"x-tenant", b"many", b"share", b"paid", b"other", b"\xff"]), TEXTS),
    max_size=6,
)
ROWS = st.lists(st.tuples(VALUES, TEXTS, HEADERS), min_size=1, max_size=5)


@given(ROWS)
def test_each_record_is_what_the_slow_reader_makes_of_it(
    rows: list[tuple[bytes | None, bytes | None, Headers]],
) -> None:
    unpacker = Unpacker(marks=False, read=Reading(beside=KeyAndHeaders.of(SPEC.fields)))
    right = [wanted(*row) for row in rows]
    for made in paths(rows):
        found = outcomes(unpacker.unpack(made))
        assert len(found) == len(right)
        assert all(map(agree, found, right)), (found, right)


def test_the_slow_reader_catches_headers_of_the_neighbour_and_the_first_of_two() -> None:
    """Broken twins: one takes the headers of the record before, one the first of two, one what a value says."""
    rows = [
        (b"{}", b"u", [(b"x-tenant", b"a"), (b"x-tenant", b"b")]),
        (b'{"cents":1}', b"v", [(b"x-tenant", b"a"), (b"many", b"5")]),
        (b'{"%b":"z"}' % KEY_PLACE.encode(), b"w", [(b"x-tenant", b"c")]),
    ]
    beside = KeyAndHeaders.of(SPEC.fields)
    assert beside is not None
    plain = [(value, key, [(n.decode(), c) for n, c in h]) for value, key, h in rows]
    members = [beside.members(key, headers) for _, key, headers in plain]

    def as_decoded(values: Sequence[bytes]) -> list[bool]:
        found = outcomes(Unpacked(list(values), range(len(values)), [], {}))
        return [agree(one, wanted(*row)) for one, row in zip(found, rows, strict=True)]

    values = [value for value, _, _ in rows]
    assert as_decoded(list(map(joined, values, members))) == [True] * 3
    shifted = [members[-1], *members[:-1]]
    assert as_decoded(list(map(joined, values, shifted))) == [False] * 3
    first = [beside.members(key, headers[::-1]) for _, key, headers in plain]
    assert as_decoded(list(map(joined, values, first))) == [False, True, True]
    before = [
        b"{%b%b%b" % (m, b"," * (v != b"{}"), v[1:]) for v, m in zip(values, members, strict=True)
    ]
    assert as_decoded(before) == [True, True, False]


def test_no_member_of_a_value_passes_for_a_key_or_a_header_that_is_not_there() -> None:
    unpacker = Unpacker(marks=False, read=Reading(beside=KeyAndHeaders.of(SPEC.fields)))
    forged = json.dumps({KEY_PLACE: "me", f"{HEADER_PLACE}x-tenant": "b", f"{HEADER_PLACE}many": 7})
    rows: list[Any] = [
        (value, key, headers)
        for value in (forged.encode(), forged.replace("\x7f", "\\u007f").encode())
        for key, headers in ((None, []), (b"u", []), (b"u", [(b"x-tenant", b"a")]))
    ]
    for made in paths(rows):
        found = outcomes(unpacker.unpack(made))
        assert all(agree(one, wanted(*row)) for one, row in zip(found, rows, strict=True))
        assert [isinstance(one, dict) for one in found] == [False, False, True] * 2
        assert isinstance(found[2], dict)
        assert found[2]["many"] is None


def test_headers_behind_the_first_are_not_read_whoever_reads_the_batch() -> None:
    unpacker = Unpacker(marks=False, read=Reading(beside=KeyAndHeaders.of(SPEC.fields)))
    fill = [(b"other", b"")] * (MOST_HEADERS - 1)
    rows: list[Any] = [(b"{}", b"u", [(b"x-tenant", b"a"), *fill, (b"x-tenant", b"b")])]
    for made in paths(rows):
        assert agree(outcomes(unpacker.unpack(made))[0], wanted(*rows[0]))
    assert isinstance(wanted(*rows[0]), dict)


def test_a_value_behind_a_schema_number_has_key_and_headers_too() -> None:
    source = SPEC.source.model_dump() | {"values": {"format": "json", "ids": [7]}}
    spec = spec_with(FIELDS, source={key: of for key, of in source.items() if of is not None})
    unpacker = Unpacker(marks=False, read=spec.source.read(spec.fields))  # type: ignore[attr-defined]
    rows: list[Any] = [
        (HEAD + b'{"cents":3}', b"u", [(b"x-tenant", b"a")]),
        (b"\0\0\0\0\x08{}", b"u", [(b"x-tenant", b"b")]),
        (HEAD + b"{}", b"v", [(b"x-tenant", b"b")]),
    ]
    unpacked = unpacker.unpack(paths(rows)[0])
    assert list(unpacked.offsets) == [0, 2]
    assert [each["who"] for each in outcomes(unpacked) if isinstance(each, dict)] == ["u", "v"]


@given(OBJECTS, st.sampled_from(["a", "q", 5, None]), st.sampled_from([7, "7", 1.5, None, True]))
def test_a_file_is_read_as_its_topic_would_be(
    whole: dict[str, Any], tenant: Any, many: Any
) -> None:
    """What `replay` sends of a line, and what `check` says of the file, are one thing."""
    line = json.dumps({**whole, "who": "u1", "tenant": tenant, "many": many}).encode()
    beside = KeyAndHeaders.of(SPEC.fields)
    assert beside is not None
    key, headers = beside.sent(line)
    assert joined(line, beside.members(key, headers)) == beside.placed(line)
    assert beside.placed(beside.placed(line)) == beside.placed(line)
    right = wanted(line, key, [(name.encode(), text) for name, text in headers])
    assert agree(outcomes(Unpacked([beside.placed(line)], range(1), [], {}))[0], right)
    assert key == b"u1"


def test_records_of_the_user_in_the_key_lie_where_the_key_puts_them() -> None:
    user = {
        "privacy": {"unit": "user", "user": "who", "max_events": "2", "per": "1s", "epsilon": "1"}
    }
    source = {"kind": "kafka", "topic": "orders", "bootstrap": "localhost:9092", "keyed_by": "who"}
    spec = spec_with(FIELDS, source=source, **user)
    inside = spec_with({"who": {"type": "text"}}, source=source, **user)
    lines = [b'{"who":"u%d"}' % at for at in range(50)]
    assert placement_of(spec)(lines, range(8)) == placement_of(inside)(lines, range(8))


def refusal(schema: Mapping[str, Any], **keys: Any) -> str:
    with pytest.raises(ValidationError) as refused:
        spec_with(schema, **keys)
    return str(refused.value)


def test_refusals_say_what_to_do() -> None:
    file = {
        "source": {"kind": "file", "path": "a.csv"},
        "clock": {"kind": "replay", "field": "at", "start": "1970-01-01T00:00:00Z", "step": "1s", "horizon": "3"},
    }  # fmt: skip
    time = {"at": {"type": "time"}}
    assert "a file has no keys and headers" in refusal({**FIELDS, **time}, **file)
    twice = {"a": {"type": "text", "from_key": "true"}, "b": {"type": "text", "from_key": "true"}}
    assert "is the place of field 'a'" in refusal(twice)
    both = {"a": {"type": "text", "from_key": "true", "path": "x"}}
    assert "as from_key does: leave one out" in refusal(both)
    listed = {"a": {"type": "list", "domain": ["x"], "most": "2", "from_header": "x"}}
    assert "a key or a header is one text" in refusal(listed)
    made = {"b": {"type": "integer"}, "a": {"type": "number", "from": "b * 2", "from_header": "x"}}
    assert "is of a number that lies in the record" in refusal(made)


def test_where_a_field_lies_is_in_the_fingerprint_and_nowhere_is_not() -> None:
    plain = {name: {k: v for k, v in of.items() if k[:5] != "from_"} for name, of in FIELDS.items()}
    explicit = {name: {**of, "from_key": "false"} for name, of in plain.items()}
    assert fingerprint(spec_with(plain)) == fingerprint(spec_with(explicit))
    prints = {fingerprint(spec_with({**plain, name: FIELDS[name]})) for name in FIELDS}
    assert len(prints) == len(FIELDS)
    points = {"cents": {"type": "integer", "nullable": "true", "from_header": "."}}
    assert fingerprint(spec_with(plain)) != fingerprint(spec_with(plain | points))
