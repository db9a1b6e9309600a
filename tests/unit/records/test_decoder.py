"""One payload at a time: what is read, which reason a refusal gives, and that no content is kept."""

from typing import Any

import pytest

from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.records.decoder import RecordDecoder, Refusal

Data = dict[str, Any]
GOOD = b'{"time":"2013-01-01T10:00:00Z","airline":"AA","delay":5,"fare":1,"late":true,"x":[{}]}'


@pytest.fixture
def decoder(data: Data) -> RecordDecoder:
    """For all fields of the schema."""
    return RecordDecoder(PipelineSpec.model_validate(data).fields)


def test_records(decoder: RecordDecoder) -> None:
    (record,) = decoder.decode([GOOD]).records
    values = {
        n: getattr(record, decoder.attribute(n)) for n in ("airline", "delay", "note", "fare")
    }
    assert values == {"airline": "AA", "delay": 5, "note": None, "fare": 1.0}


@pytest.mark.parametrize(
    ("old", "new", "reason", "field"),
    [
        (b"}", b"", "not_json", None),
        (b"{", b"\xef\xbb\xbf{", "not_json", None),
        (b'"AA"', b'"\xff"', "not_json", None),
        (b'"AA"', b'"\\ud800"', "not_json", None),
        (b"1,", b"NaN,", "not_json", None),
        (b"[{}]", b"[" * 10**5 + b"]" * 10**5, "not_json", None),
        (b'"airline"', b'"carrier"', "missing_field", "airline"),
        (b'"AA"', b"null", "wrong_type", "airline"),
        (b'"AA"', b"7", "wrong_type", "airline"),
        (b"5", b"5.0", "wrong_type", "delay"),
        (b"5", b'"5"', "wrong_type", "delay"),
        (b"5", b"true", "wrong_type", "delay"),
        (b"5", b"9223372036854775808", "wrong_type", "delay"),
        (b"5", b"-9223372036854775809", "wrong_type", "delay"),
        (b"5", b"9" * 10**5, "wrong_type", "delay"),
        (b"1,", b"1e999,", "wrong_type", "fare"),
        (b"true", b"1", "wrong_type", "late"),
        (GOOD, b"[1]", "wrong_type", None),
        (GOOD, b"null", "wrong_type", None),
        (GOOD, b"", "not_json", None),
    ],
)
def test_reasons(
    decoder: RecordDecoder, old: bytes, new: bytes, reason: str, field: str | None
) -> None:
    bad = GOOD.replace(old, new, 1) if old != b"}" else GOOD[:-1]
    decoded = decoder.decode([GOOD, bad, GOOD])
    assert decoded.refused == [Refusal(1, reason, field)]
    assert (len(decoded.records), list(decoded.positions)) == (2, [0, 2])


def test_a_tombstone(decoder: RecordDecoder) -> None:
    payloads: Any = [None, GOOD]
    assert decoder.decode(payloads).refused == [Refusal(0, "not_json", None)]


@pytest.mark.parametrize("number", [b"9223372036854775807", b"-9223372036854775808", b"null"])
def test_the_ends_of_int64(decoder: RecordDecoder, number: bytes) -> None:
    assert decoder.decode([GOOD.replace(b"5", number)]).refused == []


def test_the_last_of_duplicate_keys_counts(decoder: RecordDecoder) -> None:
    (record,) = decoder.decode([GOOD.replace(b'"AA"', b'"AA","airline":"UA"')]).records
    assert getattr(record, decoder.attribute("airline")) == "UA"


def test_field_names_are_only_those_of_the_schema(data: Data) -> None:
    odd = {
        "a` - at `$.b": {"type": "integer"},
        "b": {"type": "integer"},
        "class": {"type": "text"},
    }
    data["schema"] |= odd
    fields = PipelineSpec.model_validate(data).fields
    decoder = RecordDecoder({name: fields[name] for name in odd})
    refused = decoder.decode([b'{"b":"secret","class":"x"}', b'{"b":1,"secret":1}']).refused
    assert [r.field for r in refused] == ["b", "a` - at `$.b"]
