"""Records that nobody would send in good faith, by name: what Kafka 4.3.1 takes, and how it is to be counted.

Rules: each says what a broker does with it on a topic with append stamps, and how many of its records are good and how
many dead for a reader that unpacks up to 16 MiB and wants `{"kind": TEXT}`. The dear ones are built when asked for.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NoReturn, TypeAlias

from kafka.raw_batches import CODECS, GZIP, RawBatch, record, sized, varint

GOOD = b'{"kind": "red"}'
JUNK = b"\xde\xad\xbe\xef\xde\xad\xbe\xef"
MB = 1_000_000
Build: TypeAlias = Callable[[], RawBatch | bytes]


@dataclass(frozen=True, slots=True)
class Hostile:
    """A named batch; `good` and `dead` are the numbers of records it adds where it is `accepted`."""

    name: str
    build: Build
    accepted: bool = True
    good: int = 0
    dead: int = 0

    def encoded(self) -> bytes:
        built = self.build()
        return built if isinstance(built, bytes) else built.encoded()


def taken(name: str, batch: RawBatch, good: int = 0, dead: int = 0) -> Hostile:
    return Hostile(name, lambda: batch, True, good, dead)


def refused(name: str, batch: RawBatch | bytes) -> Hostile:
    return Hostile(name, lambda: batch, accepted=False)


def _one(value: bytes | None = GOOD, **how: object) -> RawBatch:
    """A batch of one record, made as `record` is told to."""
    return RawBatch([record(value, **how)])  # type: ignore[arg-type]


def _deltas(numbers: Sequence[int], codec: int = 0) -> RawBatch:
    return RawBatch([record(GOOD, delta) for delta in numbers], codec)


_HEADERS = (
    taken("header key not UTF-8", _one(headers=[(b"\xff\xfe\x80", b"1")]), 1),
    taken("header key of surrogates", _one(headers=[(b"\xed\xa0\x80", b"1")]), 1),
    taken("header key empty, value null", _one(headers=[(b"", None)]), 1),
    taken("header key of 1 MB", _one(headers=[(b"k" * MB, b"")]), 1),
    taken("20,000 headers", _one(headers=[(b"k", b"v")] * 20_000), 1),
    taken("the header of a tick mark", _one(headers=[(b"stream-dp-tick", b"9" * 18)]), 1),
    refused("header key null", _one(tail=sized(GOOD) + varint(1) + varint(-1) + varint(-1))),
    refused("-3 headers", _one(tail=sized(GOOD) + varint(-3))),
    refused("fewer headers than said", _one(tail=sized(GOOD) + varint(3) + sized(b"k") * 2)),
    Hostile(
        "4,000,000 empty headers in gzip",
        lambda: RawBatch([record(GOOD, tail=_empty_headers(4 * MB))], GZIP),
        good=1,
    ),
    Hostile(
        "a header of 64 MB in gzip",
        lambda: RawBatch([record(GOOD, headers=[(b"k", bytes(64 * MB))])], GZIP),
        dead=1,
    ),
)


def _empty_headers(number: int) -> bytes:
    return sized(GOOD) + varint(number) + b"\x00\x01" * number


_BAD_VALUES: dict[str, bytes | None] = {
    "null": None,
    "empty": b"",
    "white space": b"  \n",
    "not JSON": b"no json",
    "cut JSON": b'{"kind": "red"',
    "two objects": GOOD + GOOD,
    "not UTF-8": b'{"kind": "\xff\xfe"}',
    "UTF-16": '{"kind": "red"}'.encode("utf-16"),
    "behind a byte order mark": b"\xef\xbb\xbf" + GOOD,
    "NUL bytes": bytes(200),
    "an array": b'["red"]',
    "a number": b"17",
    "a number of 100,000 digits": b"9" * 100_000,
    "NaN": b"NaN",
    "null as JSON": b"null",
    "no field": b"{}",
    "a field of another type": b'{"kind": 5}',
    "a field that is null": b'{"kind": null}',
    "a huge integer for a text": b'{"kind": ' + b"9" * 5_000 + b"}",
    "100,000 brackets": b"[" * 100_000,
    "100,000 brackets in a field": b'{"kind": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "an escape cut short": b'{"kind": "\\ud8"}',
}
_BAD = tuple(taken(f"value: {name}", _one(value), dead=1) for name, value in _BAD_VALUES.items())
_GOOD = tuple(
    taken(f"value: {name}", _one(value), 1)
    for name, value in {
        "unknown category": b'{"kind": "grey"}',
        "empty category": b'{"kind": ""}',
        "category of 1 MB": json.dumps({"kind": "x" * MB}).encode(),
        "the field twice": b'{"kind": "red", "kind": "blue"}',
        "unknown fields": b'{"a": [1e308, -0.0, {"kind": 7}], "kind": "red", "\\u0000": null}',
        "white space around": b" \r\n\t" + GOOD + b" \n" * 1000,
        "escapes": b'{"\\u006bind": "\\u0072ed"}',
    }.items()
)
_RECORDS = (
    taken("key null", _one(key=None), 1),
    taken("key and value null", _one(None, key=None), dead=1),
    taken("key of 1 MB", _one(key=bytes(MB)), 1),
    taken("length of the value -5", _one(tail=varint(-5) + varint(0)), dead=1),
    taken("attributes of a record", _one(attributes=0x7F), 1),
    taken("attributes of a record that go on", _one(attributes=0xFF), dead=1),
    taken("a time far ahead", _one(time=2**61), 1),
    taken("a time far back", _one(time=-(2**61)), 1),
    taken("a length in five bytes", _one(width=5), 1),
    refused("a length in six bytes", _one(width=6)),
    refused("bytes behind the headers", _one(tail=sized(GOOD) + varint(0) + JUNK)),
    refused("a value longer than its record", _one(tail=varint(1000) + GOOD)),
    refused("a record of length -1", RawBatch([varint(-1)])),
    refused("a record that ends the batch early", RawBatch([record(GOOD)[:-4]])),
)
_DELTAS = tuple(
    Hostile(f"deltas {list(numbers)}, {name}", partial(_deltas, numbers, codec), not codec, good=3)
    for numbers in ((0, 0, 0), (0, -1, 2), (-5, -5, -5), (0, 100, 2), (2, 1, 0))
    for name, codec in (("plain", 0), *CODECS.items())
)
BAD_VALUES = tuple(_BAD_VALUES.values())
RECORDS: tuple[Hostile, ...] = (*_HEADERS, *_BAD, *_GOOD, *_RECORDS, *_DELTAS)


def category(value: bytes | None) -> str | None:
    """The text that a value has under `kind`, None where it is a dead letter; by the standard library's JSON."""
    try:
        shown = json.loads((value or b"").decode(), parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None
    kind = shown.get("kind") if isinstance(shown, dict) else None
    return kind if isinstance(kind, str) else None


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)
