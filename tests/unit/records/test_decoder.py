"""One payload at a time: what is read, which reason a refusal gives, and that no content is kept."""

import json
from collections.abc import Callable, Sequence
from operator import attrgetter
from random import Random
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pytest

from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.records import decoder as decoding
from stream_dp.records import list_columns
from stream_dp.records.decoder import Decoded, ListDecoder, RecordDecoder, Refusal
from stream_dp.records.list_columns import Entries, ListReader, TextCodes
from stream_dp.records.schema import (
    CategoryField,
    FieldSpec,
    IntegerField,
    ListField,
    TextField,
    key_path,
)

Data = dict[str, Any]
GOOD = b'{"time":"2013-01-01T10:00:00Z","airline":"AA","delay":5,"fare":1,"late":true,"x":[{}]}'


@pytest.fixture
def decoder(data: Data) -> RecordDecoder:
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
        (b'"AA"', b'"\xff"', "not_json", None),
        (b'"AA"', b'"\\ud800"', "not_json", None),
        (b"1,", b"NaN,", "not_json", None),
        (b"[{}]", b"[" * 10**5 + b"]" * 10**5, "not_json", None),
        (b'"airline"', b'"carrier"', "missing_field", "airline"),
        (b'"AA"', b"null", "wrong_type", "airline"),
        (b'"AA"', b"7", "wrong_type", "airline"),
        (b"5", b"5.0", "wrong_type", "delay"),
        (b"5", b"true", "wrong_type", "delay"),
        (b"5", b"9223372036854775808", "wrong_type", "delay"),
        (b"1,", b"1e999,", "wrong_type", "fare"),
        (b"true", b"1", "wrong_type", "late"),
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


def test_a_tombstone_and_the_ends_of_int64(decoder: RecordDecoder) -> None:
    ends = [GOOD.replace(b"5", n) for n in (b"9223372036854775807", b"-9223372036854775808")]
    payloads: Any = [None, *ends, GOOD]
    assert decoder.decode(payloads).refused == [Refusal(0, "not_json", None)]


def test_the_last_of_duplicate_keys_counts(decoder: RecordDecoder) -> None:
    (record,) = decoder.decode([GOOD.replace(b'"AA"', b'"AA","airline":"UA"')]).records
    assert getattr(record, decoder.attribute("airline")) == "UA"


PLACED: dict[str, FieldSpec] = {
    "flat": IntegerField(),
    "renamed": TextField(path="Customer ID"),
    "amount": IntegerField(path="payment.amount"),
    "note": TextField(path="payment.note", nullable=True),
    "street": TextField(path="to.home.street", nullable=True),
    "zip": IntegerField(path="to.home.zip", nullable=True),
    "floor": IntegerField(path="to.floor", nullable=True),
    "tags": ListField(domain=("x", "y"), most=2, path="to.tags", nullable=True),
}
WHOLE: Data = {
    "flat": 1, "Customer ID": "c", "payment": {"amount": 2, "note": "n"},
    "to": {"home": {"street": "s", "zip": 3}, "floor": 4, "tags": ["x"]},
}  # fmt: skip


def read_slowly(record: Any, field: FieldSpec, path: Sequence[str]) -> Any:
    """The value at a path, or why there is none: a walk through the whole object."""
    for key in path:
        if not isinstance(record, dict):
            missing = record is None and getattr(field, "nullable", False)
            return None if missing else ("wrong_type",)
        if key not in record:
            return None if getattr(field, "nullable", False) else ("missing_field",)
        record = record[key]
    kinds = {"integer": int, "text": str, "list": list}
    if record is None and getattr(field, "nullable", False):
        return None
    return record if type(record) is kinds[field.type] else ("wrong_type",)


def spoilt(value: Any, chance: Random) -> Any:
    """The object with some keys left out, null, or of another type, at any depth."""
    if chance.random() < 0.08:
        return chance.choice([None, 7.5, "text", [], {}])
    if not isinstance(value, dict):
        return value
    return {key: spoilt(of, chance) for key, of in value.items() if chance.random() > 0.05}


@pytest.mark.parametrize(
    "used", [list(PLACED), ["note", "amount", "street"], ["note", "tags", "floor"]]
)
def test_values_at_paths_are_those_of_a_walk(used: list[str]) -> None:
    chance = Random(7)
    fields = {name: PLACED[name] for name in used}
    decoder = RecordDecoder(fields, PLACED)
    objects = [spoilt(WHOLE, chance) for _ in range(2_000)]
    decoded = decoder.decode([json.dumps(each).encode() for each in objects])
    refused = {dead.position: dead for dead in decoded.refused}
    read = dict(zip(decoded.positions, decoded.records, strict=True))
    assert 200 < len(refused) < 1_800
    for at, each in enumerate(objects):
        walked = {name: read_slowly(each, of, key_path(name, of)) for name, of in fields.items()}
        wrong = {(name, *of) for name, of in walked.items() if isinstance(of, tuple)}
        if not isinstance(each, dict):
            assert refused[at][1:] == ("wrong_type", None)
        elif wrong:
            found = (refused[at].field, refused[at].reason)
            assert found in wrong or (found[1] == "wrong_type" and sharing(found[0], wrong))
        else:
            values = {name: attrgetter(decoder.attribute(name))(read[at]) for name in fields}
            assert values == walked


def sharing(name: str | None, wrong: set[tuple[str, str]]) -> bool:
    """Whether an object above this field is above one that is wrong: the refusal may name either."""
    above = () if name is None else key_path(name, PLACED[name])[:1]
    return any(key_path(other, PLACED[other])[:1] == above for other, _ in wrong)


def test_field_names_are_only_those_of_the_schema(data: Data) -> None:
    odd = {"a` - at `$.b": {"type": "integer"}, "b": {"type": "integer"}, "class": {"type": "text"}}
    data["schema"] |= odd
    fields = PipelineSpec.model_validate(data).fields
    decoder = RecordDecoder({name: fields[name] for name in odd})
    refused = decoder.decode([b'{"b":"secret","class":"x"}', b'{"b":1,"secret":1}']).refused
    assert [r.field for r in refused] == ["b", "a` - at `$.b"]


# Beginnings of each other, longer than a word and than four, not ASCII, what needs escapes, and NUL.
DOMAIN = (
    "a", "ab", "abcdefgh", "abcdefghi", "x" * 32, "x" * 33, "ü", "日本", 'q"', "b\\", "a\0", "[", ",", "null",
)  # fmt: skip
LISTS = {
    "tags": ListField(domain=DOMAIN, most=3, nullable=True),
    "few": ListField(domain=tuple(f"t{number}" for number in range(50)), most=4),
}
FIELDS = LISTS | {"size": IntegerField()}
STRICT = RecordDecoder(FIELDS)
STRANGE = (
    "", "A", "abcdefg", "abcdefghij", "x" * 31, "x" * 34, "x" * 99, "é", "\0", " ", '","', "\n", "a ",
)  # fmt: skip
WRONG = (
    b"null", b"{}", b'{"a":"b"}', b'"a"', b"3", b"[3]", b'["a",3]', b'[["a"]]', b'["a",null]', b'[{"a":"b"}]',
    b'["a","a","a","a"]', b'["a","a","a","a","a"]', b'["\xff"]', b'["\xc3"]', b'["\\ud800"]', b'["\\u0061"]',
    b"[ ]", b'[ "a" ]', b'["a" , "ab"]', b'[\n"a"]', b'["a",]', b'["a" "b"]', b'["a', b'["\x01"]', b'[""]', b"true",
)  # fmt: skip
KEYS = (b'"tags"', b'"few"', b'"size"', b'"t\\u0061gs"', b'"f\\u0065w"', b'"tags":5,"tags"', b'"few":[5],"few"',
        b'"other":["tags"],"tags"', b'"x":"\\u0074ags","tags"', b'"few" ')  # fmt: skip
Sets: TypeAlias = list[tuple[int, set[int], set[int]]]
_read, _make = ListReader._read, ListReader.__init__


def hostile(draw: Random) -> bytes:

    def some(texts: Sequence[str], most: int) -> bytes:
        chosen = [draw.choice(texts) for _ in range(draw.randint(0, most))]
        made = msgspec.json.encode(chosen)
        return made.replace(b'","', b'", "') if draw.random() < 0.3 else made

    tags = some([*DOMAIN, *STRANGE, *DOMAIN[:3]], 3)
    few = some([f"t{number}" for number in range(55)], 4)
    values = [tags, few, b"1"]
    keys = list(KEYS[:3])
    if draw.random() < 0.3:
        values[draw.randrange(3)] = draw.choice(WRONG)
    if draw.random() < 0.1:
        keys[draw.randrange(3)] = draw.choice(KEYS)
    pairs = [b"%b:%b" % pair for pair in zip(keys, values, strict=True)]
    if draw.random() < 0.1:
        del pairs[draw.randrange(3)]
    draw.shuffle(pairs)
    payload = bytearray(b"{%b}" % b",".join(pairs))
    if draw.random() < 0.05:
        payload[draw.randrange(len(payload))] = draw.choice(b'\xff\\"[]{},: a\x00')
    return bytes(payload)


def one_by_one(payloads: Sequence[bytes]) -> tuple[Sets, list[Refusal]]:
    """What each payload alone says: its place, and the codes in its lists; or why it is refused."""
    read, refused = [], []
    for at, payload in enumerate(payloads):
        decoded = STRICT.decode([payload])
        refused += [refusal._replace(position=at) for refusal in decoded.refused]
        for record in decoded.records:
            codes = []
            for name, field in LISTS.items():
                domain = field.domain
                texts = getattr(record, STRICT.attribute(name))
                texts = ["no text of the domain"] if texts is None else texts
                codes.append({domain.index(t) if t in domain else len(domain) for t in texts})
            read.append((at, codes[0], codes[1]))
    return read, refused


def sets(decoded: Decoded, decoder: ListDecoder) -> Sets:
    """Where records stand and what is in their lists; an entry that is listed twice fails."""
    columns = []
    for name in LISTS:
        codes, records = decoded.lists[decoder.attribute(name)]
        assert records is not None
        assert (np.diff(records) >= 0).all()
        column: list[set[int]] = [set() for _ in decoded.records]
        for code, record in zip(codes.tolist(), records.tolist(), strict=True):
            assert code not in column[record]
            column[record].add(code)
        columns.append(column)
    return list(zip(decoded.positions, *columns, strict=True))


def check(batches: int, size: int = 40) -> int:
    """Compare batches with their payloads one by one, and return how many records were read."""
    read = 0
    for seed in range(batches):
        draw = Random(seed)
        payloads = [hostile(draw) for _ in range(draw.randrange(size))]
        if seed % 2:  # what is wrong stands alone among good ones
            payloads = [p for p in payloads if not one_by_one([p])[1]] + payloads[:1]
        decoder = ListDecoder(FIELDS)
        decoded = decoder.decode(payloads)
        expected, refused = one_by_one(payloads)
        assert sets(decoded, decoder) == expected
        assert decoded.refused == refused
        again = decoder.decode(payloads)  # strictly where most were not plain
        assert (sets(again, decoder), again.refused) == (expected, refused)
        stays = [draw.random() < 0.7 for _ in payloads]
        kept = [payload for payload, stay in zip(payloads, stays, strict=True) if stay]
        part = decoded.part(stays)
        assert (sets(part, decoder), part.refused) == one_by_one(kept)
        read += len(expected)
    return read


@pytest.mark.parametrize("together", [1, 300, 1 << 16])
def test_lists_read_together_equal_lists_read_alone(
    together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_columns, "_TOGETHER", together)
    assert check(60) > 500


def longer(reader: ListReader, name: str, field: Any) -> None:
    _make(reader, name, field)
    reader._most += 1


def without_other(numbers: Any, codes: Any, keys: int) -> Entries:
    cells = np.unique(np.repeat(np.arange(len(numbers)), numbers) * keys + codes)
    cells = cells[cells % keys != keys - 1]
    return Entries(cells % keys, cells // keys)


TWINS: dict[str, tuple[Any, str, Any]] = {
    "an entry counts twice": (
        list_columns,
        "_once",
        lambda numbers, codes, _: Entries(codes, np.repeat(np.arange(len(numbers)), numbers)),
    ),
    "other is lost": (list_columns, "_once", without_other),
    "null is no entry": (list_columns, "_NULL", ()),
    "one entry too many": (ListReader, "__init__", longer),
    "any JSON is a list of its texts": (ListReader, "_read", lambda *a: (*_read(*a)[:2], set())),
    "the last of two keys counts": (ListReader, "_perhaps_twice", lambda *_: set()),
    "what is no UTF-8 is text": (list_columns, "_is_simple", lambda text: b"\\" not in text),
    "escapes are text": (list_columns, "_is_simple", lambda text: text.isascii()),
    "a hash is a text": (TextCodes, "_astray", lambda *_: np.zeros(0, np.int64)),
}


@pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS)
def test_a_reader_that_reads_something_else_is_caught(
    twin: tuple[Any, str, Callable[..., Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*twin)
    with pytest.raises((AssertionError, ValueError)):
        check(60)


# Categories whose texts are expected from their domains, against texts that are made of every record.
SORTED: dict[str, Any] = {
    "kind": CategoryField(domain=DOMAIN),
    "size": IntegerField(nullable=True),
    "place": CategoryField(
        domain=("x", "y"), map={"ü": "x", "a\0": "y"}, nullable=True, path="of.it"
    ),
    "many": CategoryField(domain=tuple(f"t{number}" for number in range(2000)), nullable=True),
}
ALONE = RecordDecoder(SORTED)
vars(ALONE)["_first"] = ALONE._decode
_known_kind = decoding._known_kind


def with_categories(draw: Random, unknown: float) -> bytes:
    """A record whose categories are mostly of their domains, but for the share `unknown`; or something hostile."""

    def text(domain: Sequence[str]) -> bytes:
        chosen = draw.choice(STRANGE if draw.random() < unknown else domain)
        made = msgspec.json.encode(chosen)
        if chosen and draw.random() < 0.1:
            made = b'"\\u%04x%b' % (ord(chosen[0]), msgspec.json.encode(chosen[1:])[1:])
        return made

    kind, place = text(DOMAIN), text(("x", "y", "ü", "a\0"))
    values = [kind, b"%d" % draw.randrange(9), b'{"it":%b}' % place, text(("t1", "t1999"))]
    if draw.random() < unknown:
        values[draw.randrange(4)] = draw.choice(WRONG)
    pairs = [
        b'"%b":%b' % pair for pair in zip((b"kind", b"size", b"of", b"many"), values, strict=True)
    ]
    if draw.random() < unknown:
        pairs.append(b'"kind":%b' % text(DOMAIN))  # the last one counts
    if draw.random() < unknown:
        del pairs[draw.randrange(4)]
    draw.shuffle(pairs)
    payload = bytearray(b"{%b}" % b",".join(pairs))
    if draw.random() < unknown:
        payload[draw.randrange(len(payload))] = draw.choice(b'\xff\\"[]{},: a\x00')
    return bytes(payload)


def expected_texts_are_read_as_others(batches: int) -> int:
    """Compare batches with records read alone, and return how many were read."""
    read, values_of = 0, attrgetter(*map(ALONE.attribute, SORTED))
    for seed in range(batches):
        draw, decoder = Random(seed), RecordDecoder(SORTED)
        unknown = draw.choice((0, 0.003, 0.003, 0.05, 1))
        payloads: list[Any] = [with_categories(draw, unknown) for _ in range(draw.randrange(80))]
        if payloads and draw.random() < 0.1:
            payloads[draw.randrange(len(payloads))] = None
        each = [ALONE.decode([payload]) for payload in payloads]
        wanted = [values_of(record) for one in each for record in one.records]
        refused = [
            dead._replace(position=at) for at, one in enumerate(each) for dead in one.refused
        ]
        for _ in range(2):  # again strictly, where many others came
            decoded = decoder.decode(payloads)
            assert list(map(values_of, decoded.records)) == wanted
            assert list(decoded.positions) == [at for at, one in enumerate(each) if one.records]
            assert decoded.refused == refused
        read += len(wanted)
    return read


@pytest.mark.parametrize("often", [2, 128])
def test_texts_of_the_domain_are_read_as_all_others(
    often: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "_OFTEN", often)
    assert expected_texts_are_read_as_others(150) > 3000


def ending_early(read: Callable[[Any], Any], payloads: Sequence[Any]) -> Any:
    yield from (read(payload) for payload in payloads)


@pytest.mark.parametrize(
    ("owner", "name", "broken"),
    [
        (decoding, "_known_kind", lambda field: _known_kind(field) | None),
        (decoding, "_known_kind", lambda field: int | _known_kind(field)),
        (decoding, "map", ending_early),
        (RecordDecoder, "_decode", property(lambda self: self._first, lambda *_: None)),
    ],
    ids=["null is of a domain", "so is a number", "what follows an error is lost", "others are dead"],
)  # fmt: skip
def test_a_decoder_that_expects_too_much_is_caught(
    owner: Any, name: str, broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "_OFTEN", 2)
    monkeypatch.setattr(owner, name, broken, raising=False)
    with pytest.raises(AssertionError):
        expected_texts_are_read_as_others(60)
