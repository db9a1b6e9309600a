"""Guard and router share one decoding, and all comes out as if the guard and every series had read records alone.

The oracle decodes twice: the guard reads user and time of the payloads, then a router which knows no user reads what
the series need. Rows, identifiers, dead letters, late and capped records, and the memory of users must be equal.
"""

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from commit_parts import held
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.pipeline.routing.seen_worlds import SERIES
from unit.pipeline.routing.user_worlds import HORIZON, KEYED, SEALER, specification

from stream_dp.engine.ports import Batch
from stream_dp.engine.tick_assembler import TickAssembler, dense
from stream_dp.pipeline import router
from stream_dp.pipeline.layout import Feature
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_guard import UserGuard
from stream_dp.records.conditions import Test
from stream_dp.records.decoder import Decoded, RecordDecoder
from stream_dp.records.endpoints import ReplayClock

SCHEMA: dict[str, dict[str, Any]] = {
    "time": {"type": "time", "format": "epoch_ms"},
    "customer": {"type": "text", "nullable": "true"},
    "key": {"type": "category", "domain": ["a", "b", "c"]},
    "amount": {"type": "integer", "nullable": "true"},
    "words": {"type": "list", "domain": ["x", "y"], "most": "2", "nullable": "true"},
    "note": {"type": "text"},
}
PORTS = {"source": KEYED, "journal": {"kind": "sqlite", "path": "j"}, "releases": {"path": "r"}}
COUNTED = [*SERIES, {"name": "capped", "statistic": "cut_off", "window": "4s", "epsilon": "2"}]
REPLAYED = specification(schema=SCHEMA, series=COUNTED, **PORTS)
STAMPED = specification(
    schema=SCHEMA, series=COUNTED, clock={"kind": "wall", "step": "1s"}, **PORTS
)
LIVE = (
    Feature(None, frozenset([Test("amount", "at_least", frozenset([2]))])),
    Feature("words", frozenset()),
    Feature("key", frozenset([Test("note", "one_of", frozenset(["n"]))])),
)
GOOD = {
    "time": b"1000", "customer": b'"ann"', "key": b'"a"', "amount": b"3", "words": b'["x"]', "note": b'"n"',
}  # fmt: skip
HOME = 0  # the partition of ann, bob and eve
LONG = b'"' + b"l" * 1100 + b'"'
VALUES: dict[str, tuple[bytes, ...]] = {
    "time": (b"2000", b"5000", b"5001", b"null", b'"1000"', b"1e3", b"-1", b"99999999", b"1" + b"0" * 400),
    "customer": (b'"bob"', b'"eve"', b'"\\u00e9"', b"null", b"7", b'"\xff"', b'"\\ud800"', b'"a\\q"', LONG, b"[]"),
    "key": (b'"b"', b'"?"', b"null", b"4", b'"\xff"', b'"\\ud800"', b'"a\\q"'),
    "amount": (b"1", b"null", b'"many"', b"1.5", b"1e999", b"9" * 30, b"01", b"tru"),
    "words": (b"[]", b'["y","y"]', b'["x","y","?"]', b"[1]", b'["\xff"]', b"null", b'["x",]'),
    "note": (b'""', b"null", b'"\x01"', b"{}"),
    "unused": (b"1e999", b'"\xff"', b'"\\ud800"', b'"a\\q"', b"[" * 3000, b"{}", b"nul", b'{"customer":7}'),
}  # fmt: skip
JUNK: tuple[Any, ...] = (b"", b"{", b"[]", b"7", b"\xff", None, b"[" * 3000)


PATHS = {
    "time": "at.time", "customer": "who.is.id", "amount": "sold.amount", "words": "sold.words", "note": "Note of it",
}  # fmt: skip
PLACED = specification(
    schema={name: of | ({"path": PATHS[name]} if name in PATHS else {}) for name, of in SCHEMA.items()},
    series=COUNTED, **PORTS,
)  # fmt: skip


def written(pairs: Sequence[tuple[str, bytes]], *, cut: bool = False) -> bytes:
    """The object with these members."""
    text = b"{" + b",".join(b'"%s":%s' % (name.encode(), value) for name, value in pairs) + b"}"
    return text[:-2] if cut else text


def placed(pairs: Sequence[tuple[str, bytes]], *, cut: bool = False) -> bytes:
    """The same with each member at its path."""
    whole, inner = list[tuple[str, bytes]](), dict[str, list[tuple[str, bytes]]]()
    for name, value in pairs:
        key, _, rest = PATHS.get(name, name).partition(".")
        inner.setdefault(key, []).append((rest, value))
    for key, members in inner.items():
        while members[0][0].partition(".")[2]:
            key_within = members[0][0].partition(".")[0]
            members = [(key_within, written([(n.partition(".")[2], v) for n, v in members]))]
        whole += [(key, written(members))] if members[0][0] else [(key, v) for _, v in members]
    return written(whole, cut=cut)


@st.composite
def payloads(draw: st.DrawFn, forms: Sequence[Any] = (written,)) -> Any:
    """A record that is good but for a few fields: other values, twice there, or missing; or no record at all. It comes
    in each of the forms, alone if there is one.
    """
    many = draw(_records(forms))
    return many if len(forms) > 1 else many[0]


@st.composite
def _records(draw: st.DrawFn, forms: Sequence[Any]) -> Any:
    if draw(st.integers(0, 9)) == 9:
        return [draw(st.sampled_from(JUNK))] * len(forms)
    members = dict(GOOD) | {"customer": draw(st.sampled_from((b'"ann"', b'"ann"', b'"bob"')))}
    if draw(st.booleans()):
        some = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=2, unique=True))
        members |= {name: draw(st.sampled_from(VALUES[name])) for name in some}
    pairs = draw(st.permutations(list(members.items())))
    change = draw(st.sampled_from(("none", "none", "none", "missing", "twice", "cut")))
    if change == "missing":
        pairs = pairs[1:]
    elif change == "twice":
        name = draw(st.sampled_from(sorted(VALUES)))
        pairs = [*pairs, (name, draw(st.sampled_from(VALUES[name])))]
    return [form(pairs, cut=change == "cut") for form in forms]


def batches(spec: PipelineSpec, values: Sequence[Any], seed: int) -> list[Batch]:
    """Batches of two partitions, some with a mark; what is read late is among them."""
    chance = Random(seed)
    ends = sorted({0, len(values), *(chance.randrange(len(values) + 1) for _ in range(4))})
    stamped, marks, found = not isinstance(spec.clock, ReplayClock), [-1, -1], list[Batch]()
    for begin, end in pairwise(ends):
        partition = chance.choice((HOME, HOME, HOME, 1 - HOME))
        tick = chance.randrange(4) if stamped else None
        mark = chance.choice((None, None, chance.randrange(4)))
        marks[partition] = max(marks[partition], -1 if mark is None else mark)
        labels = range(10 + begin, 10 + end)
        found.append(Batch(partition, values[begin:end], labels, 10 + end, tick, mark))
    stop = 10 + len(values)
    return [*found, *(Batch(partition, (), (), stop, mark=HORIZON - 1) for partition in (0, 1))]


def outcome(
    spec: PipelineSpec, given: Sequence[Batch], live: int, shared: Callable[[OpenRouter, Batch], Batch]
) -> Any:  # fmt: skip
    """All that comes of these batches, tick by tick, and what the guard remembers."""
    guard, routes = (
        UserGuard(spec, 0, SEALER.user_key()),
        OpenRouter(spec, 0, None, SEALER.user_key()),
    )
    guard.begin((0, 1))
    for user, feature in enumerate(LIVE[:live]):
        routes.open(feature, routes.place(feature), user)
    ticks, capped, used = TickAssembler((0, 1), routes.width), list[int](), list[Any]()
    for batch in given:
        admitted = guard.admit(shared(routes, batch), ticks.passed(batch.partition))
        routed = routes.route(admitted)
        ticks.add(admitted, routed)
        capped.append(admitted.capped)
        used += [(each.number, *(part.tolist() for part in each.counted)) for each in admitted.used]
    closed = [
        (
            one.tick,
            dense(one.row, routes.width).tolist(),
            one.dead_letters.sealed(),
            (one.late, one.records, one.capped),
            {column: hashes.tolist() for column, hashes in one.arrived.items()},
        )
        for one in ticks.closed(HORIZON)
    ]
    return closed, capped, used, held(guard.memory)


def decoded_twice(spec: PipelineSpec, given: Sequence[Batch], live: int) -> Any:
    """The oracle: the guard decodes by itself, and the routers read nothing but what the series need."""

    def fields(_: PipelineSpec, features: Any) -> list[str]:
        own = [spec.clock.field] if isinstance(spec.clock, ReplayClock) else []
        return list(dict.fromkeys([*own, *(name for each in features for name in each.fields)]))

    with pytest.MonkeyPatch.context() as patch:
        for module in (router, router):
            patch.setattr(module, "decoded_fields", fields)
        return outcome(spec, given, live, lambda _, batch: batch)


def decoded_once(spec: PipelineSpec, given: Sequence[Batch], live: int) -> Any:
    return outcome(spec, given, live, OpenRouter.decode)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([REPLAYED, STAMPED]),
    st.lists(payloads(), max_size=24),
    st.integers(0, len(LIVE)),
    st.integers(0, 99),
)
def test_one_decoding_changes_nothing(
    spec: PipelineSpec, values: list[Any], live: int, seed: int
) -> None:
    given = batches(spec, values * 3, seed)
    assert decoded_once(spec, given, live) == decoded_twice(spec, given, live)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(payloads((written, placed)), max_size=24),
    st.integers(0, len(LIVE)),
    st.integers(0, 99),
)
def test_values_at_paths_count_as_flat_ones(values: list[Any], live: int, seed: int) -> None:
    """All is equal but which of two faults of a record is named."""
    flat, nested = (
        decoded_once(spec, batches(spec, [both[form] for both in values] * 3, seed), live)
        for form, spec in enumerate((REPLAYED, PLACED))
    )
    for outcome_of in (flat, nested):
        for at, (tick, row, dead, *others) in enumerate(outcome_of[0]):
            outcome_of[0][at] = (tick, row, sum(letter.records for letter in dead), *others)
    assert flat == nested


TABLE = {"first": "b", "eerste": "a", "b": "c"}
BY_KEY = {"key": "key", "keys": "1", "per_key": "2"}
MAPPED, AS_MAPPED = (
    specification(
        schema=SCHEMA | {"key": SCHEMA["key"] | more}, series=COUNTED, **PORTS,
        privacy={**dict(REPLAYED.privacy.model_dump(mode="json", exclude_defaults=True)), **BY_KEY},
    )
    for more in ({"map": TABLE}, {})
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["a", "b", "c", "first", "eerste", "?"]), max_size=12),
    st.integers(0, 99),
)
def test_a_table_means_what_records_with_its_values_mean(texts: list[str], seed: int) -> None:
    """Also for caps by that field: two texts of one value are one key."""
    first, second = (
        [written([*(GOOD | {"key": json.dumps(text).encode()}).items()]) for text in each]
        for each in (texts, [TABLE.get(text, text) for text in texts])
    )
    assert decoded_once(MAPPED, batches(MAPPED, first, seed), 1) == decoded_once(
        AS_MAPPED, batches(AS_MAPPED, second, seed), 1
    )


BAD_FOR_A_SERIES = b'{"time":1000,"customer":"ann","key":4,"amount":3,"words":[],"note":""}'
FINE = BAD_FOR_A_SERIES.replace(b"4,", b'"a",')
BAD_USER = FINE.replace(b'"ann"', b"7")
BAD_USER_AND_KEY = BAD_FOR_A_SERIES.replace(b'"ann"', b"null")


def differs(*values: bytes) -> bool:
    """Whether one decoding makes something else of these records, in partition 0 or 1."""
    for partition in (0, 1):
        given = [Batch(partition, values, range(len(values)), len(values), mark=2)]
        given += [Batch(other, (), (), 9, mark=HORIZON - 1) for other in (0, 1)]
        if decoded_once(REPLAYED, given, 0) != decoded_twice(REPLAYED, given, 0):
            return True
    return False


def _of_series_only(guard: UserGuard, batch: Batch) -> Decoded:
    """A broken guard: what a series cannot read is refused for all, and uses no cap."""
    found: Decoded = batch.decoded or guard._decoder.decode(batch.payloads)
    return found


def test_a_broken_guard_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [BAD_FOR_A_SERIES, *[FINE] * 4, BAD_USER, BAD_USER_AND_KEY]
    assert not differs(*records)
    monkeypatch.setattr(UserGuard, "_read", _of_series_only)
    assert differs(*records)


def test_good_records_of_users_are_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[int]()
    decode = RecordDecoder.decode

    def noted(decoder: RecordDecoder, values: Sequence[bytes]) -> Decoded:
        read.append(len(values))
        return decode(decoder, values)

    monkeypatch.setattr(RecordDecoder, "decode", noted)
    values = [FINE] * 9
    decoded_once(REPLAYED, [Batch(0, values, range(9), 9)], 1)
    assert read == [9]
    decoded_once(REPLAYED, [Batch(0, [*values, BAD_FOR_A_SERIES], range(10), 10)], 0)
    assert read[1:] == [10, 1]
