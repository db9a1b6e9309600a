"""Records read by the compiled step are those that Python alone reads, dead letters included.

The oracle is the decoder without the step. Built here from its source, the step is also broken on purpose, in ways
that the comparison must find. `-m full` compares a million records; STREAM_DP_NATIVE_FLAGS are the compiler's.
"""

import os
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from unit.pipeline.routing import test_users_decoded_once as users
from unit.pipeline.routing.user_worlds import specification
from unit.records.native_worlds import NAMES, SCHEMA, USES, built, differences, hostile, using

from stream_dp import __version__
from stream_dp.kafka.source.record_batches import HEADER, RecordBatch, _checksum, record_batches
from stream_dp.kafka.source.unpacker import Unpacker
from stream_dp.records import native
from stream_dp.records.decoder import Decoded, ListDecoder
from stream_dp.records.native import Step, Values, plan_of
from stream_dp.records.record_columns import RecordColumns
from stream_dp.records.schema import ListField, NumberField

BROKEN = {
    "the end of int64": ("(uint64_t)INT64_MAX + (uint64_t)read.negative", "(uint64_t)INT64_MAX + 1"),
    "leading zeros": ("if (*at == '0' && digit(at + 1, end)) return NULL;", ""),
    "a key that is there twice": ("if (this->seen & bit) return NULL;", ""),
    "surrogates in UTF-8": ("if (first == 0xED) high = 0x9F;", ""),
    "what is behind the record": ("if (space(at, this->end) != this->end) return 0;", ""),
    "a missing field": ("if (!member->nullable) return 0;", ""),
    "minus zero": ("(read->digits || !read->negative)", "1"),
    "numbers that are rounded twice": ("read->digits <= EXACT_INTEGER && ", ""),
    "control characters": ("BELOW(word, 0x20) | ", ""),
    "null where there is none": ("if (member->kind != OBJECT && !member->nullable) return NULL;", ""),
}  # fmt: skip


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Step:
    return built(tmp_path_factory.mktemp("step"))


def found(step: Step, seed: int, batches: int, size: int = 400) -> tuple[list[bytes], float]:
    """The first records that are read otherwise, and the share of all that the step read itself."""
    plain, chance = 0, Random(seed)
    for at in range(batches):
        names = USES[at % len(USES)]
        wrong, read = differences(step, hostile(chance, size), names, chance)
        plain += read
        if wrong:
            return wrong, plain / (batches * size)
    return [], plain / (batches * size)


def test_hostile_records_are_read_as_python_reads_them(step: Step) -> None:
    wrong, plain = found(step, 1, 28)
    assert not wrong
    assert 0.4 < plain < 0.9  # the comparison is of both ways


@pytest.mark.full
def test_a_million_hostile_records_are_read_as_python_reads_them(step: Step) -> None:
    assert not found(step, 2, 2500)[0]


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_step_is_found(name: str, tmp_path: Path) -> None:
    assert found(built(tmp_path, BROKEN[name]), 1, 280)[0]


def test_each_record_alone_and_cut_anywhere(step: Step) -> None:
    """Cut records lie at the very end of their bytes, so that a sanitizer sees what is read behind them."""
    chance = Random(3)
    for payload in hostile(chance, 30):
        cut = [payload[:end] for end in range(len(payload))]
        assert not differences(step, cut, NAMES, chance)[0]
        for each in cut[-3:]:
            assert not differences(step, [each], NAMES, chance)[0]


def test_what_the_step_cannot_read_it_does_not_begin(step: Step) -> None:
    odd = SCHEMA | {
        "tags": ListField(domain=("a",), most=2),
        "made": NumberField(**{"from": "price * price"}),
    }
    good = hostile(Random(4), 500)
    with using(step):
        assert native.used().step is step
        for names, reads in ((NAMES, True), ([*NAMES, "tags"], False), ([*NAMES, "made"], False)):
            decoder = ListDecoder({name: odd[name] for name in names}, odd)
            assert bool(decoder.decode(good).columns) is reads
            assert decoder.says.startswith("as the test says" if reads else "by Python alone")
        leaf = SCHEMA["size"]
        assert plan_of([((str(at),), f"f{at}", leaf) for at in range(64)]) is not None
        assert plan_of([((str(at),), f"f{at}", leaf) for at in range(65)]) is None
        assert plan_of([(("a",), "f1", leaf), (("a", "b"), "f2", leaf)]) is None


def test_few_records_and_mostly_odd_ones_are_read_by_python(step: Step) -> None:
    good = [b'{"size":%d}' % at for at in range(64)]
    with using(step, 64, 0.5):
        decoder = ListDecoder({"size": SCHEMA["size"]}, SCHEMA)
        assert decoder.decode(good).columns
        assert not decoder.decode(good[:63]).columns
        assert not decoder.decode([b"{}"] * 33 + good[:31]).columns
        assert [at for at in range(17) if decoder.decode(good).columns] == [15, 16]
        assert len(decoder.decode([b""] * 99).refused) == 99
        tombstones: Any = [*good, None, b""]
        assert [dead.position for dead in decoder.decode(tombstones).refused] == [64, 65]


def test_columns_are_taken_apart_as_records_are(step: Step) -> None:
    chance = Random(5)
    names = ["kind", "size", "fare", "note", "late"]
    fields = {name: SCHEMA[name] for name in names}
    for _ in range(20):
        payloads = hostile(chance, 200)
        read: list[list[list[Any]]] = []
        for which in (None, step):
            with using(which):
                decoder = ListDecoder(fields, SCHEMA)
                decoded = decoder.decode(payloads)
            assert bool(decoded.columns) is (which is not None)
            stays = [at % 3 > 0 for at in range(len(payloads))]
            places = np.arange(len(decoded.records))[::-2]
            parts = decoded.at(places), decoded.part(stays), decoded.part(stays).at(np.arange(9))
            joined = Decoded.joined([decoded, decoded])
            columns = RecordColumns(
                ["size", "fare"], [], SCHEMA, decoder.attribute, {"kind": (), "note": ("n",)}
            )
            read.append([])
            for part in (decoded, *parts, joined):
                read[-1] += [part.values(decoder.attribute(name)) for name in names]
                whole = columns(part)
                read[-1] += [entries.codes.tolist() for entries in whole.codes.values()]
                for values, known in whole.numbers.values():
                    there = [True] * len(values) if known is None else known.tolist()
                    read[-1].append(
                        [
                            v if here else None
                            for v, here in zip(values.tolist(), there, strict=True)
                        ]
                    )
                read[-1].append([*part.positions])
                read[-1].append([*part.refused])
        assert read[0] == read[1]


# --- users' caps, ticks and rows ------------------------------------------------------------------

PLAIN = {name: of for name, of in users.SCHEMA.items() if name != "words"}
COUNTED = [
    *users.COUNTED,
    {"name": "by_key", "statistic": "histogram", "by": "key", "epsilon": "1"},
]
WORLDS = [
    specification(schema=PLAIN, series=COUNTED, **users.PORTS),
    specification(schema=PLAIN, series=COUNTED, clock={"kind": "wall", "step": "1s"}, **users.PORTS),
]  # fmt: skip


def some_of_users(chance: Random, number: int) -> list[bytes]:
    records = []
    for _ in range(number):
        values = dict(users.GOOD) | {
            "customer": chance.choice((b'"ann"', b'"bob"', b'"\xc3\xa9ve"', b'"eve"'))
        }
        values["time"] = b"%d" % chance.randrange(6000)
        if chance.random() < 0.2:
            name = chance.choice(sorted(users.VALUES))
            values[name] = chance.choice(users.VALUES[name])
        records.append(users.written([*values.items()], cut=chance.random() < 0.02))
    return records


@pytest.mark.parametrize("seed", range(24))
def test_rows_caps_and_dead_letters_are_those_of_python_alone(step: Step, seed: int) -> None:
    chance = Random(seed)
    spec, payloads = WORLDS[seed % 2], some_of_users(chance, 300)
    outcomes = []
    for which in (None, step):
        with using(which):
            given = users.batches(spec, payloads, seed)
            if which is not None:
                given = [replace(each, payloads=Values.of(each.payloads)) for each in given]
            live = seed // 2 % 2
            outcomes.append(
                users.outcome(spec, given, live, lambda routes, batch: routes.decode(batch))
            )
    assert outcomes[0] == outcomes[1]


# --- record batches of Kafka ----------------------------------------------------------------------


def batch_of(chance: Random) -> RecordBatch:
    """A batch whose records have keys, headers and null here and there, perhaps bitten."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    number = chance.randint(1, 6)
    for at in range(number):
        headers = [("trace", b"1" * chance.randrange(70))] if chance.random() < 0.2 else []
        key = chance.choice((None, None, b"", b"key"))
        value = chance.choice((None, b"", b"x" * chance.randrange(200)))
        builder.append(at, chance.randrange(1 << 40), key, value, headers)
    raw = bytearray(builder.build())
    bitten = chance.random()
    for _ in range(chance.randint(0, 3) if bitten < 0.7 else 0):
        at = chance.randrange(HEADER.size, len(raw))
        near = (raw[at] + chance.choice((-2, 2))) % 256  # a length that is one more, or one less
        raw[at] = chance.choice((near, near, 0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    if bitten < 0.1:
        del raw[chance.choice((-1, chance.randrange(HEADER.size, len(raw)))) :]
    header = list(HEADER.unpack_from(raw))
    header[0], header[1], header[12] = (
        5,
        len(raw) - 12,
        number + (chance.randint(-2, 2) if bitten < 0.2 else 0),
    )
    HEADER.pack_into(raw, 0, *header)
    header[4] = _checksum()(memoryview(raw)[21:])
    HEADER.pack_into(raw, 0, *header)
    (batch,) = record_batches(bytes(raw), 0)
    return batch


def unequal_batches(step: Step, number: int) -> tuple[int, int]:
    """How many batches are unpacked otherwise with the step, and how many it has unpacked itself."""
    chance, wrong, own = Random(6), 0, 0
    for _ in range(number):
        batch = batch_of(chance)
        with using(None):
            alone = Unpacker(marks=False).unpack(batch)
        with using(step):
            found = Unpacker(marks=False).unpack(batch)
        wrong += (list(alone.values), [*alone.offsets], alone.refused) != (
            list(found.values), [*found.offsets], found.refused
        )  # fmt: skip
        own += isinstance(found.values, Values)
    return wrong, own


def test_values_of_batches_are_those_of_the_client_library(step: Step) -> None:
    wrong, own = unequal_batches(step, 4000)
    assert not wrong
    assert 1000 < own < 3900
    chance = Random(6)
    with using(step, 64):
        assert isinstance(Unpacker(marks=False).unpack(batch_of(chance)).values, list)


@pytest.mark.parametrize(
    ("old", "new"),
    [("*length > end - at", "*length > end - at + 1"),
     ("int part = 0; part < 3", "int part = 0; part < 2")],
)  # fmt: skip
def test_broken_bounds_of_values_are_found(old: str, new: str, tmp_path: Path) -> None:
    assert unequal_batches(built(tmp_path, (old, new)), 6000)[0]


# --- which step is used ---------------------------------------------------------------------------


def test_the_step_must_be_there_of_this_version_and_wanted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    of = {"library": built(tmp_path)}
    place = SimpleNamespace(origin=str(next(tmp_path.iterdir())))

    def use(version: str | None, origin: Any = place) -> native.Use:
        def asked(name: str) -> str:
            if name == "stream_dp":
                return __version__
            if version is None:
                raise PackageNotFoundError
            return version

        monkeypatch.setattr(native, "version", asked)
        monkeypatch.setattr(native, "find_spec", lambda _: origin)
        return native.used.__wrapped__()

    monkeypatch.delenv(native.VARIABLE, raising=False)
    assert of["library"].version == __version__
    assert use(__version__).step is not None
    assert use(__version__).says.startswith(f"by stream-dp-native {__version__}")
    other = tmp_path / "other.so"
    other.write_bytes(
        Path(place.origin).read_bytes().replace(__version__.encode(), b"9" * len(__version__))
    )
    (tmp_path / "none.so").write_bytes(b"no library")
    for version, origin in (
        (None, place), ("9.9.9", place), (__version__, None), (__version__, SimpleNamespace(origin=str(other))),
        (__version__, SimpleNamespace(origin=str(tmp_path / "none.so"))),
    ):  # fmt: skip
        assert use(version, origin).step is None
        assert use(version, origin).says.startswith("by Python alone")
    monkeypatch.setenv(native.VARIABLE, "0")
    assert use(__version__).step is None


# --- a whole run ----------------------------------------------------------------------------------

RUN = """
version: 1
name: sizes
public_data: true
source: {kind: file, path: sizes.jsonl}
schema:
  at: {type: time}
  kind: {type: category, domain: [a, b, c], nullable: true}
  size: {type: integer}
privacy: {epsilon: 4}
clock: {kind: replay, field: at, start: "2013-01-01T00:00:00Z", step: 1h, horizon: 24}
journal: {kind: sqlite, path: sizes.journal}
releases: {path: releases.jsonl}
series:
  - {name: all, statistic: count, epsilon: 1}
  - {name: kinds, statistic: histogram, by: kind, epsilon: 1}
  - {name: sizes, statistic: sum, of: size, clamp: [0, 100], epsilon: 1}
"""


def releases_of_a_run(folder: Path, library: Path | None) -> bytes:
    """Run the pipeline without noise in a process that finds this library installed, or none."""
    folder.mkdir()
    chance, home, site = Random(9), folder / "home", folder / "site"
    lines = []
    for at in range(4000):
        kind = chance.choice((*('"a"', '"b"', '"?"', "null") * 8, '"\\u0063"', "7"))
        time, size = f"2013-01-01T{at // 200:02d}:00:00Z", chance.randrange(-9, 200)
        lines.append(f'{{"at":"{time}","kind":{kind},"size":{size}}}')
    (folder / "sizes.jsonl").write_text("\n".join(lines))
    (folder / "pipeline.yaml").write_text(RUN)
    told = site / f"stream_dp_native-{__version__}.dist-info"
    told.mkdir(parents=True)
    told.joinpath("METADATA").write_text(
        f"Metadata-Version: 2.1\nName: stream-dp-native\nVersion: {__version__}\n"
    )
    if library is not None:
        (site / "stream_dp_native.abi3.so").write_bytes(library.read_bytes())
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    own = {
        "PYTHONPATH": path,
        "STREAM_DP_HOME": str(home),
        "STREAM_DP_NATIVE": "0" if library is None else "",
    }
    run = [
        sys.executable,
        "-m",
        "stream_dp.testing",
        "run",
        "--zero-noise",
        "--until-end",
        "pipeline.yaml",
    ]
    ended = subprocess.run(
        run, cwd=folder, env=os.environ | own, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return (folder / "releases.jsonl").read_bytes()


@pytest.mark.long
def test_a_run_releases_the_same_bytes_with_the_step_and_without(tmp_path: Path) -> None:
    """A step that counts null as the first kind shows that it is the one that is used."""
    sound, broken = tmp_path / "sound", tmp_path / "broken"
    for place, changes in ((sound, ()), (broken, (("? member->other : 0;", "? 0 : 0;"),))):
        place.mkdir()
        built(place, *changes)
    (library,), (wrong,) = sound.iterdir(), broken.iterdir()
    alone = releases_of_a_run(tmp_path / "alone", None)
    assert len(alone.splitlines()) == 3 * 24
    assert releases_of_a_run(tmp_path / "step", library) == alone
    assert releases_of_a_run(tmp_path / "wrong", wrong) != alone
