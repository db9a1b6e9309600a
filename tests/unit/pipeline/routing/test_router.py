"""Batches become tick rows: against a slow oracle, record by record, and whatever a payload holds."""

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.engine.ports import Batch
from stream_dp.engine.tick_assembler import Routed
from stream_dp.journal.dead_letters import Span
from stream_dp.pipeline.layout import RowLayout
from stream_dp.pipeline.router import Router
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.records.decoder import Decoded

Data = dict[str, Any]
HOUR, START = 3_600_000, 1_357_034_400_000
SERIES: list[Data] = [
    {"name": "all", "statistic": "count"},
    {"name": "by", "statistic": "histogram", "by": "destination", "method": "tree"},
    {"name": "long", "statistic": "count", "where": [{"field": "delay", "at_least": 60}]},
    {"name": "late", "statistic": "alerts", "by": "airline", "threshold": 1,
     "where": [{"field": "delay", "at_least": 60}, {"field": "fare", "at_most": "0.5"}]},
    {"name": "some", "statistic": "alerts", "by": "destination", "threshold": 1,
     "where": [{"field": "airline", "one_of": ["AA", "UA"]}]},
    {"name": "note", "statistic": "count", "where": [{"field": "note", "equals": "x"}]},
    {"name": "flag", "statistic": "count", "where": [{"field": "late", "equals": True}]},
]  # fmt: skip
SCHEMA = {
    "time": {"type": "time"},
    "airline": {"type": "category", "domain": ["AA", "NO", "UA"]},
    "destination": {"type": "category", "domain": ["ATL", "BOS"], "nullable": True},
    "delay": {"type": "integer", "nullable": True},
    "fare": {"type": "number"},
    "note": {"type": "text", "nullable": True},
    "late": {"type": "boolean"},
}
CLOCK = {"kind": "replay", "field": "time", "start": START, "step": HOUR, "horizon": 5}
PIPELINE: Data = {
    "version": 1,
    "name": "t",
    "source": {"kind": "kafka", "topic": "t", "bootstrap": "localhost:1"},
    "schema": SCHEMA,
    "privacy": {"epsilon": 1},
    "clock": CLOCK,
    "series": [series | {"epsilon": "0.1"} for series in SERIES],
}
REPLAY = Router(PipelineSpec.model_validate(PIPELINE), START)
WALL = Router(
    PipelineSpec.model_validate(PIPELINE | {"clock": {"kind": "wall", "step": "1s"}}), START
)


def batch(payloads: list[bytes], tick: int | None = None) -> Batch:
    return Batch(3, payloads, range(100, 100 + len(payloads)), 0, tick=tick)


def flat(routed: Routed) -> tuple[dict[int, list[int]], list[Span]]:
    return {tick: row.tolist() for tick, row in routed.rows.items()}, singles(routed.dead)


def singles(dead: Iterable[Span]) -> list[Span]:
    return [
        one._replace(first=at, last=at) for one in dead for at in range(one.first, one.last + 1)
    ]


def flight(**changes: Any) -> bytes:
    record = {
        "time": "2013-01-01T10:30:00Z", "airline": "AA", "destination": "BOS", "delay": 60, "fare": 0.5, "note": None,
        "late": False,
    }  # fmt: skip
    return json.dumps(record | changes).encode()


TIMES = st.sampled_from(
    ["2013-01-01T10:00:00Z", "2013-01-01T10:59:59.999Z", "2013-01-01T13:00:00+01:00", "2013-01-01T15:00:00Z",
     "2013-01-01T09:59:59Z", "2013-01-01T12:00:00"]
)  # fmt: skip
FLIGHTS = st.builds(
    flight, time=TIMES, airline=st.sampled_from(["AA", "UA", "ZZ", "other"]), late=st.booleans(),
    destination=st.sampled_from(["ATL", "BOS", "QQQ", None]), fare=st.sampled_from([0, 0.5, 0.6]),
    delay=st.one_of(st.none(), st.integers(58, 62), st.integers()), note=st.sampled_from(["x", "y", None]),
)  # fmt: skip
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
    lambda inner: st.one_of(
        st.lists(inner), st.dictionaries(st.one_of(st.sampled_from(list(SCHEMA)), st.text()), inner)
    ),
    max_leaves=5,
)
ANYTHING = st.one_of(
    FLIGHTS,
    st.binary(),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.builds(flight, **dict.fromkeys(SCHEMA, JSON)),
    st.dictionaries(st.sampled_from(list(SCHEMA)), JSON).map(lambda changes: flight(**changes)),
    st.tuples(FLIGHTS, st.integers(0, 150), st.binary(max_size=3)).map(
        lambda cut: cut[0][: cut[1]] + cut[2] + cut[0][cut[1] + 1 :]
    ),
)


def test_one_record() -> None:
    rows, dead = flat(REPLAY.route(batch([flight()])))
    assert rows == {0: [1, 0, 1, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0]}
    assert dead == []
    assert REPLAY.width == 14
    assert all(row.dtype == np.int64 for row in REPLAY.route(batch([flight()])).rows.values())


def additive(router: Router, payloads: list[bytes], gone: int, tick: int | None) -> bool:
    """A batch is the sum of one of its records alone and of all the others without it."""
    whole = router.route(batch(payloads, tick))
    alone = router.route(batch([payloads[gone]], tick))
    rest = router.route(batch(payloads[:gone] + payloads[gone + 1 :], tick))
    zero = np.zeros(router.width, np.int64)
    same = all(
        np.array_equal(whole.rows.get(at, zero), alone.rows.get(at, zero) + rest.rows.get(at, zero))
        for at in whole.rows.keys() | alone.rows.keys() | rest.rows.keys()
    )
    reasons = [sorted(str((d.reason, d.field)) for d in dead)
               for dead in (singles(whole.dead), singles([*alone.dead, *rest.dead]))]  # fmt: skip
    one_hot = len(alone.dead) + len(alone.rows) == 1
    one_hot &= all(row.max() <= 1 for row in alone.rows.values())
    return same and one_hot and reasons[0] == reasons[1]


@pytest.mark.parametrize(("router", "tick"), [(REPLAY, None), (WALL, 7)])
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_record_influences_nothing_but_its_own(
    router: Router, tick: int | None, data: st.DataObject
) -> None:
    payloads = data.draw(st.lists(ANYTHING, min_size=1, max_size=6))
    gone = data.draw(st.integers(0, len(payloads) - 1))
    assert additive(router, payloads, gone, tick)
    assert {d.field for d in router.route(batch(payloads, tick)).dead} <= {None, *SCHEMA}


def test_the_check_catches_a_decoder_that_drops_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    payloads = [flight(), b"{", flight()]
    assert additive(REPLAY, payloads, 1, None)
    decode = REPLAY.decoder.decode

    def all_or_none(payloads: list[bytes]) -> Decoded:
        decoded = decode(payloads)
        return Decoded([], [], []) if decoded.refused else decoded

    monkeypatch.setattr(REPLAY.decoder, "decode", all_or_none)
    assert not additive(REPLAY, payloads, 1, None)


@pytest.mark.parametrize(
    ("time", "reason"),
    [
        ("2013-01-01T09:59:59.999Z", "time_out_of_range"),
        ("2013-01-01T15:00:00Z", "time_out_of_range"),
        ("0001-01-01T00:00:00+23:59", "time_out_of_range"),
        ("9999-12-31T23:59:59-23:59", "time_out_of_range"),
        ("2013-01-01T10:00:00", "wrong_type"),
        ("yesterday", "wrong_type"),
        ("2" * 10**6, "wrong_type"),
        (1_357_034_400_000, "wrong_type"),
        (None, "wrong_type"),
    ],
)
def test_bad_times(time: Any, reason: str) -> None:
    rows, dead = flat(REPLAY.route(batch([flight(), flight(time=time)])))
    assert dead == [Span(reason, "time", 101, 101)]
    assert rows[0][0] == 1


@pytest.mark.parametrize(
    ("form", "per_s"), [("epoch_s", 1), ("epoch_ms", 1000), ("epoch_us", 10**6)]
)
def test_integers_of_each_unit_lie_in_their_ticks(form: str, per_s: int) -> None:
    schema = SCHEMA | {"time": {"type": "time", "format": form}}
    router = Router(PipelineSpec.model_validate(PIPELINE | {"schema": schema}), START)
    first, hour = START * per_s // 1000, 3600 * per_s
    moments = [first, first + 3 * hour - 1, first - 1, first + 5 * hour, 2**63 - 1, -(2**63)]
    others = [2**63, 1.5, str(first), True, None, "2013-01-01T10:00:00Z"]
    rows, dead = flat(router.route(batch([flight(time=moment) for moment in moments + others])))
    assert {tick: row[0] for tick, row in rows.items()} == {0: 1, 2: 1}
    assert [d.reason for d in dead] == ["time_out_of_range"] * 4 + ["wrong_type"] * 6


def test_local_times_of_a_declared_zone() -> None:
    schema = SCHEMA | {"time": {"type": "time", "zone": "Asia/Tokyo"}}
    router = Router(PipelineSpec.model_validate(PIPELINE | {"schema": schema}), START)
    times = ["2013-01-01 19:00:00", "2013-01-01 10:59:59,999 UTC", "2013-01-01T20:00:00"]
    rows, dead = flat(router.route(batch([flight(time=time) for time in [*times, "2013-01-01"]])))
    assert {tick: row[0] for tick, row in rows.items()} == {0: 2, 1: 1}
    assert [(d.reason, d.first) for d in dead] == [("wrong_type", 103)]


def test_the_clock_gives_the_tick() -> None:
    rows, dead = flat(WALL.route(batch([b'{"airline":"AA","fare":1,"late":true}'], tick=9)))
    assert list(rows) == [9]
    assert dead == []
    with pytest.raises(ValueError, match="wall clock"):
        WALL.route(batch([flight()]))


def test_a_given_tick_outside_the_grid() -> None:
    rows, dead = flat(REPLAY.route(batch([flight(), b"{"], tick=5)))
    assert rows == {}
    assert [d.reason for d in dead] == ["time_out_of_range", "not_json"]


def test_rows_may_be_added_to() -> None:
    routed = REPLAY.route(batch([flight(), flight(time="2013-01-01T12:30:00Z")]))
    routed.rows[0] += 1
    assert routed.rows[2][0] == 1


def test_equal_features_share_a_slice(data: Data) -> None:
    one, two = {"field": "delay", "at_least": "60"}, {"field": "fare", "one_of": ["1", "2"]}
    same = {"field": "fare", "one_of": ["2.0", "1e0"]}
    count = {"statistic": "count", "epsilon": "1"}
    data["series"] = [
        count | {"name": "a", "where": [one, two]},
        count | {"name": "b", "where": [same, one]},
        count | {"name": "c", "where": [one]},
        count | {"name": "d"},
    ]
    layout = RowLayout.of(PipelineSpec.model_validate(data))
    assert layout.width == 3
    assert layout.slice("a") == layout.slice("b") == slice(0, 1)
    assert layout.slice("c") == slice(1, 2)
    assert layout.slice("d") == slice(2, 3)
