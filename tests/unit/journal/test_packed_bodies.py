"""Packed bodies come back byte for byte, whatever they hold, and a quiet tick takes few bytes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.core.time import moment_text
from stream_dp.files.sqlite import read_sealed
from stream_dp.journal import commit as wire
from stream_dp.journal.commit import PHRASES, Commit, Release, decode, encode, packed
from stream_dp.journal.keys import Sealer
from stream_dp.journal.release import Released, WindowPart, write
from stream_dp.operate.run.running import Run
from stream_dp.operate.run.wiring import PRODUCT, open_ports
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.yaml import load

TICK_MS = 1000
START = 1_767_225_600_000  # 2026
NAMES = st.text(min_size=1, max_size=5)
NUMBERS = st.integers(-(2**53), 2**53)
PARTS = st.one_of(
    st.builds(lambda value, band: {"value": value, "band": band}, NUMBERS, NUMBERS),
    st.builds(lambda values: {"values": values, "band": 3}, st.dictionaries(NAMES, NUMBERS)),
    st.builds(lambda fired: {"fired": fired, "band": 3}, st.lists(NAMES).map(tuple)),
    st.builds(
        lambda name, value: {"windows": {name: WindowPart(value=value, band=1)}}, NAMES, NUMBERS
    ),
)


def release(number: int, name: str, tick: int, step: int = TICK_MS, **fields: Any) -> Release:
    """A release as the engine writes it, of a tick that began at `START` + `tick` steps."""
    confidence = fields.pop("confidence", 0.95)
    end = moment_text(START + (tick + 1) * step)
    told = Released(v=1, sequence=number, series=name, tick=tick, end=end, **fields, confidence=confidence)  # fmt: skip
    return Release(number, name, tick, write(told))


def commit(ticks: Sequence[int], releases: Sequence[Release], **fields: Any) -> Commit:
    """A commit of these ticks and releases."""
    return Commit(7, bytes(32), ticks=tuple(ticks), releases=tuple(releases), **fields)


@given(
    first=st.integers(0, 2**40),
    ticks=st.integers(1, 4),
    step=st.sampled_from([1, 250, TICK_MS, 86_400_000]),
    told=st.lists(st.tuples(NAMES, PARTS), min_size=1, max_size=4),
    confidence=st.sampled_from([0.95, 0.9, 0.999]),
)
def test_releases_come_back_as_they_were(
    first: int, ticks: int, step: int, told: list[tuple[str, Any]], confidence: float
) -> None:
    every = range(5, 5 + ticks)
    pairs = enumerate(((tick, *one) for tick in every for one in told), first)
    releases = [
        release(number, name, tick, step, **fields, confidence=confidence)
        for number, (tick, name, fields) in pairs
    ]
    made = commit(every, releases)
    assert decode(encode(made)) == made
    plain = all(name.isascii() and name.isalnum() for name, _ in told)
    assert not plain or packed(tuple(every), releases) is not None


BODIES = st.one_of(st.binary(max_size=30), st.builds(b"".join, st.lists(st.sampled_from(PHRASES))))
ANY = st.builds(Release, st.integers(0, 3), NAMES, st.integers(0, 3), BODIES)


@given(st.lists(st.integers(0, 3), max_size=3), st.lists(ANY, max_size=4), BODIES)
def test_what_is_no_body_comes_back_too(
    ticks: list[int], releases: list[Release], tail: bytes
) -> None:
    made = commit(ticks, releases)
    assert decode(encode(made)) == made
    whole = release(4, "all", 9, value=5, band=1)
    for body in (whole.body + tail, whole.body[:-1] + tail, whole.body.replace(b":0", tail)):
        made = commit((9,), (replaced(whole, body=body),))
        assert decode(encode(made)) == made


def replaced(one: Release, **fields: Any) -> Release:
    """A release with other fields."""
    return msgspec.structs.replace(one, **fields)


FOUR = [release(40 + at, name, 9, value=100 + at, band=42) for at, name in enumerate("abcd")]


@pytest.mark.parametrize(
    ("ticks", "releases"),
    [
        ((9,), FOUR[::-1]),
        ((9,), [*FOUR[:2], *FOUR[3:]]),
        ((9, 10), FOUR),
        ((9, 9), FOUR),
        ((8,), FOUR),
        ((), FOUR),
        ((9,), [replaced(FOUR[0], tick=8), *FOUR[1:]]),
        ((9,), [replaced(FOUR[0], series="other"), *FOUR[1:]]),
        ((9,), [*FOUR[:3], replaced(FOUR[3], body=FOUR[3].body.replace(b"0Z", b"1Z"))]),
        ((9,), [replaced(FOUR[0], body=FOUR[0].body + b"\n")]),
        ((9,), [replaced(FOUR[0], body=FOUR[0].body.replace(b"0Z", b"0+00:00"))]),
        ((9,), [release(4, 'a"b', 9, value=5, band=1)]),
        ((9,), [release(4, "wide", 9, values={f"k{at}": at for at in range(200)}, band=1)]),
    ],
)
def test_what_would_not_come_back_is_not_packed(
    ticks: Sequence[int], releases: Sequence[Release]
) -> None:
    assert packed((9,), FOUR) is not None
    assert packed(ticks, releases) is None
    made = commit(ticks, releases)
    assert decode(encode(made)) == made


def test_a_body_that_holds_a_code_would_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: where a tab counts as text, another body comes back."""
    odd = [replaced(FOUR[0], body=FOUR[0].body.replace(b"100", b"\t"))]
    assert packed((9,), odd) is None
    monkeypatch.setattr(wire, "_NO_JSON", b"\n")
    told = packed((9,), odd)
    assert told is not None
    assert next(told.unpacked((9,)))[3] != odd[0].body


def test_phrases_keep_their_places() -> None:
    """Add at the end; a journal holds the places of these."""
    assert PHRASES == (
        b',"confidence":0.95}\n', b',"confidence":0.95}', b'","value":', b',"band":', b'","values":{"', b'},"band":',
        b'","windows":{"', b'{"value":', b'{"values":{"', b',"low":', b',"high":', b',"confidence":', b'},"', b'":',
        b',"',
    )  # fmt: skip
    assert len(PHRASES) <= len(wire._CODES)


@given(st.lists(st.one_of(st.just(0), st.integers(-(2**60), 2**60)), max_size=60).map(tuple))
def test_rows_come_back_as_they_were_and_take_no_more(row: tuple[int, ...]) -> None:
    made = commit((9,), (), rows=(row,))
    assert decode(encode(made)) == made
    empty = len(encode(commit((9,), (), rows=((),))))
    assert len(encode(made)) <= empty - 1 + len(msgspec.msgpack.encode(row))


def test_a_wide_row_of_zeros_takes_no_room() -> None:
    row = [0] * 100_000
    row[5] = row[70_000] = 3
    made = commit((9,), (), rows=(tuple(row),))
    assert decode(encode(made)) == made
    assert len(encode(made)) < 120


PIPELINE = """
version: 1
name: quiet
source: {kind: file, path: events.jsonl}
schema: {time: {type: time}, amount: {type: integer}}
privacy: {epsilon: 4}
clock: {kind: replay, field: time, start: "2026-01-01T00:00:00Z", step: 1s, horizon: 30}
series:
  - {name: all, statistic: count, epsilon: 1}
  - {name: large, statistic: count, epsilon: 1, where: [{field: amount, at_least: 5}]}
  - {name: small, statistic: count, epsilon: 1, where: [{field: amount, at_most: 2}]}
  - {name: spent, statistic: sum, of: amount, clamp: [0, 10], epsilon: 1}
"""


async def test_the_size_of_a_quiet_tick_of_four_scalars(tmp_path: Path) -> None:
    """At most 250 B sealed, with four bodies of 110 B or more in it; version 4 took 950."""
    (tmp_path / "quiet.yaml").write_text(PIPELINE)
    (tmp_path / "events.jsonl").write_text('{"time":"2026-01-01T00:00:02.5Z","amount":7}\n')
    spec, sealer = load(tmp_path / "quiet.yaml"), Sealer(bytes(range(32)), "quiet")
    ports = open_ports(spec, sealer, marks=tmp_path / "marks")
    await Run(build(spec), ports, replace(PRODUCT, group=1)).until_end()
    _, *ticks = read_sealed(tmp_path / "quiet.journal")
    assert len(ticks) == 30
    assert max(map(len, ticks)) <= 250
    for number, sealed in enumerate(ticks, 1):
        bodies = [each.body for each in decode(sealer.open(number, sealed)).releases]
        assert len(bodies) == 4
        assert min(map(len, bodies)) >= 110


def test_a_commit_of_defaults_comes_back() -> None:
    assert decode(encode(Commit(0, b""))) == Commit(0, b"")
