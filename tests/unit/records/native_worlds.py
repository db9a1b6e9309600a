"""The compiled step as built here, perhaps broken on purpose, and hostile records to read with it and without it."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from stream_dp import __version__
from stream_dp.records import decoder as decoding
from stream_dp.records import native
from stream_dp.records.decoder import Decoded, ListDecoder
from stream_dp.records.schema import (
    BooleanField,
    CategoryField,
    FieldSpec,
    IntegerField,
    NumberField,
    TextField,
    TimeField,
)
from stream_dp.testing.kafka import missing

SOURCE = Path(__file__).parents[3] / "deploy" / "native" / "stream_dp_native.c"
BUILT = os.environ.get("STREAM_DP_NATIVE_FLAGS", "-O2").split()


def built(folder: Path, *changes: tuple[str, str]) -> native.Step:
    """Compile the step with these changes of its source; skip, or fail where CI wants it, without a compiler."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        missing("compiler", "there is no C compiler (cc)")
    source, library = (
        SOURCE.read_text(encoding="ascii"),
        folder / f"step{len(list(folder.iterdir()))}.so",
    )
    for old, new in changes:
        assert old in source, old
        source = source.replace(old, new, 1)
    named = [
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-shared",
        "-fPIC",
        f'-DSTREAM_DP_VERSION="{__version__}"',
    ]
    line = [str(compiler), *named, *BUILT, "-x", "c", "-", "-o", str(library)]
    subprocess.run(line, input=source, text=True, check=True)
    return native.Step(str(library))


@contextmanager
def using(step: native.Step | None, fewest: int = 1, odd: float = 1) -> Iterator[None]:
    """Let new decoders use this step, or none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "used", lambda: native.Use(step, "as the test says"))
        for module in (native, decoding):
            patch.setattr(module, "FEWEST", fewest)
        patch.setattr(decoding, "MOST_ODD", odd)
        yield


DOMAIN = ("a", "ab", "abcdefgh", "abcdefghi", "x" * 40, "ü", "日本", "a\0", "null", " ")
SCHEMA: dict[str, FieldSpec] = {
    "kind": CategoryField(domain=DOMAIN, map={"first": "a", "a": "ab", "é": "日本"}, nullable=True),
    "place": CategoryField(domain=tuple(f"D{at:02d}" for at in range(70))),
    "size": IntegerField(),
    "count": IntegerField(nullable=True, path="of.it.count"),
    "fare": NumberField(nullable=True, path="of.fare"),
    "price": NumberField(),
    "late": BooleanField(nullable=True),
    "name": TextField(path="who.name"),
    "note": TextField(nullable=True, path="of.it.Ünote"),
    "at": TimeField(),
    "stamp": TimeField(format="epoch_ms", path="when.ms"),
    "seconds": TimeField(format="epoch_float", path="when.s"),
}  # fmt: skip
TEXTS = (
    b'"a"', b'"ab"', b'"first"', b'"x"', b'""', b'"\\u0061"', b'"a\\n"', b'"\xc3\xbc"', b'"\xe6\x97\xa5\xe6\x9c\xac"',
    b'"\xc3"', b'"\xff"', b'"\xed\xa0\x80"', b'"\xc0\x80"', b'"\xf0\x9f\x98\x80"', b'"\xf4\x90\x80\x80"',
    b'"\xe0\x80\xaf"', b'"a\x00"', b'"a\x01b"', b'"\x7f"', b'"\\ud800"', b'"a', b'a"', b"'a'", b'"' + b"y" * 300 + b'"',
    b'"abcdefg"', b'"abcdefgh"', b'"abcdefghi"', b'"D00"', b'"D69"', b'"D70"', b'"\\"', b'"\\x"', b'"null"', b'" "',
    b'"2013-01-01T10:00:00Z"', b'"\xf0\x80\x80\x80"', b'"1234567\xc3\xa9"', b'"12345678\x1f"', b'"\\u00e9"',
)  # fmt: skip
NUMBERS = (
    b"0", b"-0", b"1", b"-1", b"01", b"-01", b"00", b"1.", b".5", b"1.0", b"5e0", b"1e2", b"1E+2", b"1e-2", b"1e",
    b"1e+", b"+1", b"--1", b"-", b"9223372036854775807", b"9223372036854775808", b"-9223372036854775808",
    b"-9223372036854775809", b"18446744073709551615", b"18446744073709551616", b"9007199254740993", b"0.1", b"-0.0",
    b"1e22", b"1e23", b"1e-22", b"1e-23", b"123456789012345678e-5", b"9007199254740992e22", b"1e308", b"1e999", b"1e99",
    b"NaN", b"Infinity", b"0x1", b"1_0", b"1.5.2", b"0.30000000000000004", b"4.35", b"2.675", b"-1.005e3", b"0e99",
    b"9" * 19, b"9" * 20, b"1" + b"0" * 400, b"0." + b"0" * 30 + b"1", b"1357034400500", b"1.25e9",
)  # fmt: skip
OTHERS = (
    b"null", b"true", b"false", b"nul", b"tru", b"True", b"[]", b"{}", b"[1,]", b"[,]", b"{,}", b'{"a"}', b'{"a":}',
    b'{"a":1,}', b"[1 2]", b"[[1],{\"a\":[null]}]", b"[" * 40 + b"]" * 40, b"[" * 3000,
    b'{"a":' * 33 + b"1" + b"}" * 33, b'["\xff"]', b'{"\xff":1}', b'{"a\\n":"\\t"}', b'["\\u12"]',
    b"", b" ", b"\xef\xbb\xbf1", b"/**/1",
)  # fmt: skip
SPACES = (b" ", b"  ", b"\n", b"\t\r", b"\x0b", b"\x00", b"\xc2\xa0")
MARKS = b'{}[]",:\\0123456789-+.eEntf \n\x00\x1f\x7f\x80\xbf\xc3\xe2\xed\xf0\xff'
GOOD = {
    "kind": [b'"a"', b'"ab"', b'"zz"', b"null", b'"\xc3\xbc"', b'"first"'], "place": [b'"D07"', b'"D69"', b'"?"'],
    "size": [b"5", b"-77", b"0", b"123456789"], "count": [b"1", b"null"], "fare": [b"1.5", b"null", b"-12", b"1e3"],
    "price": [b"4.35", b"19", b"0.1"], "late": [b"true", b"false", b"null"], "name": [b'"ann"', b'"\xc3\xa9ve"', b'""'],
    "note": [b'"n"', b"null"], "at": [b'"2013-01-01T10:00:00Z"'], "stamp": [b"1357034400500"], "seconds": [b"1.25e9"],
}  # fmt: skip


def members(pairs: Sequence[tuple[bytes, bytes]], chance: Random) -> bytes:
    apart, behind = chance.choice(((b",", b":"), (b", ", b": "), (b" ,\n", b" :\t")))
    return b"{" + apart.join(b'"' + key + b'"' + behind + value for key, value in pairs) + b"}"


def record(chance: Random) -> bytes:
    """A record that is good, but for a member or a byte or two."""
    values = {name: chance.choice(some) for name, some in GOOD.items()}
    twisted = chance.random()
    if twisted < 0.25:
        for name in chance.sample(sorted(values), chance.randint(1, 2)):
            values[name] = chance.choice(
                chance.choice((TEXTS, NUMBERS, OTHERS, (decimal(chance),)))
            )
    tree: dict[bytes, Any] = {}
    for name, value in values.items():
        field = SCHEMA[name]
        *above, key = (field.path or name).encode().split(b".")
        if chance.random() < 0.005:
            continue
        inner = tree
        for each in above:
            inner = inner.setdefault(each, {})
        inner[key] = value
    if chance.random() < 0.3:
        tree[chance.choice((b"more", b"siz", b"sizes", b"", b"KIND", b"k\\u0069nd", b"\xff"))] = (
            chance.choice((*OTHERS, *NUMBERS, *TEXTS, b'{"size":1,"of":{"fare":2}}'))
        )
    data = written(tree, chance)
    if 0.25 < twisted < 0.35:
        data = bitten(data, chance)
    return data


def decimal(chance: Random) -> bytes:
    """A number of 15 to 19 digits, most of which no double has, with its point anywhere."""
    digits = str(chance.randrange(10 ** chance.randint(15, 19))).encode()
    point = chance.randint(1, len(digits))
    exponent = b"" if chance.random() < 0.7 else b"e%d" % chance.randint(-24, 24)
    return digits[:point] + (b"." + digits[point:] if digits[point:] else b"") + exponent


def written(tree: dict[bytes, Any], chance: Random) -> bytes:
    pairs = [(key, written(of, chance) if isinstance(of, dict) else of) for key, of in tree.items()]
    if chance.random() < 0.3:
        chance.shuffle(pairs)
    if pairs and chance.random() < 0.02:
        pairs.append(
            chance.choice(pairs) if chance.random() < 0.5 else (chance.choice(pairs)[0], b"null")
        )
    pairs = [(k, chance.choice((b"null", b"7", b"[]")) if v[:1] == b"{" and chance.random() < 0.01 else v)
             for k, v in pairs]  # fmt: skip
    return members(pairs, chance)


def bitten(data: bytes, chance: Random) -> bytes:
    """The same with some bytes changed, left out, put in, doubled, or cut off."""
    for _ in range(chance.randint(1, 2)):
        at = chance.randrange(len(data) + 1)
        end = min(len(data), at + chance.choice((0, 1, 1, 2, 9)))
        put = chance.choice(
            (b"", bytes([chance.choice(MARKS)]), chance.choice(SPACES), data[at:end] * 2)
        )
        data = data[:at] if chance.random() < 0.1 else data[:at] + put + data[end:]
    return data


def junk(chance: Random) -> bytes:
    return chance.choice(
        (
            b"",
            b"{",
            b"{}",
            b"[]",
            b"7",
            b"null",
            b"\xff",
            b"{\x00}",
            bytes(chance.choices(MARKS, k=9)),
        )
    )


def hostile(chance: Random, number: int) -> list[bytes]:
    return [junk(chance) if chance.random() < 0.01 else record(chance) for _ in range(number)]


NAMES = list(SCHEMA)
USES: tuple[list[str], ...] = (
    NAMES, ["size", "kind", "place"], ["at", "name", "note"], ["count", "note", "fare"], ["stamp", "seconds", "late"],
    ["price", "size"], [],
)  # fmt: skip


def differences(
    step: native.Step, payloads: Sequence[bytes], names: Sequence[str], chance: Random
) -> tuple[list[bytes], int]:
    """The records that the step and Python alone read otherwise, and how many records the step itself has read."""
    fields = {name: SCHEMA[name] for name in names}
    with using(None):
        alone = ListDecoder(fields, SCHEMA)
        wanted = alone.decode(payloads)
    with using(step):
        decoder = ListDecoder(fields, SCHEMA)
        plain = 0
        if decoder._step is not None:
            plain = int(decoder._step.read(native.Values.of(payloads))[1].sum())
        half = chance.randrange(len(payloads) + 1)  # as a source joins batches
        parts = [native.Values.of(part) for part in (payloads[:half], payloads[half:]) if part]
        values = parts[0] if len(parts) == 1 else native.together(*parts)
        found = decoder.decode(values)
    shown, alike = seen(wanted, alone, names), seen(found, decoder, names)
    wrong = [payload for at, payload in enumerate(payloads) if shown[at] != alike[at]]
    return wrong or [payload for payload in payloads if shown.get(-1) != alike.get(-1)], plain


def seen(decoded: Decoded, decoder: ListDecoder, names: Sequence[str]) -> dict[int, Any]:
    """What is read of each record, by its place, in a way that tells 0 from -0 and null from the rest."""
    read: dict[int, Any] = {dead.position: tuple(dead) for dead in decoded.refused}
    columns = [of_field(decoded, decoder.attribute(name), SCHEMA[name]) for name in names]
    rows = zip(*columns, strict=True) if columns else iter([()] * len(decoded.records))
    for name in names[:2]:  # also by the records, which are made when they are asked for
        made = list(map(attrgetter(decoder.attribute(name)), decoded.records))
        read[-1] = repr(made) == repr(decoded.values(decoder.attribute(name)))
    for position, row in zip(decoded.positions, rows, strict=True):
        assert position not in read
        read[position] = row
    return read


def of_field(decoded: Decoded, attribute: str, field: FieldSpec) -> list[str]:
    column = decoded.columns.get(attribute)
    if not isinstance(field, CategoryField):
        return list(map(repr, decoded.values(attribute)))
    codes = {text: code for code, text in enumerate(field.domain)}
    other = len(codes)
    if column is not None:
        return list(map(repr, zip(column.values.tolist(), column.known.tolist(), strict=True)))
    values = list(map(attrgetter(attribute), decoded.records))
    return [repr((codes.get(value, other), value is not None)) for value in values]
