"""Features added while records are read: records are read once, and count as if each feature read them alone."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.live.live_series_worlds import PIPELINE, record
from unit.records.columns_worlds import FEATURES, HORIZON, RECORDS, payload
from unit.records.columns_worlds import SPEC as WIDE
from unit.records.columns_worlds import START as BEGIN

from stream_dp.engine.ports import Batch
from stream_dp.engine.tick_assembler import Routed, dense
from stream_dp.errors import FailClosed
from stream_dp.journal.dead_letters import Span, as_spans
from stream_dp.pipeline.feature_counts import FeatureCounts
from stream_dp.pipeline.layout import Feature, RowLayout, feature_of
from stream_dp.pipeline.router import OpenRouter, Router
from stream_dp.pipeline.spec import PipelineSpec, diagnose_series
from stream_dp.records.conditions import Test
from stream_dp.records.decoder import Decoded, RecordDecoder

SPEC = PipelineSpec.model_validate(PIPELINE)
START = SPEC.clock.start or 0


def feature(by: str | None = None, at_least: str | None = None) -> Feature:
    where = [] if at_least is None else [{"field": "amount", "at_least": at_least}]
    data = {"name": "q", "epsilon": "1", "where": where}
    data |= (
        {"statistic": "count"}
        if by is None
        else {"statistic": "histogram", "by": by, "method": "tree"}
    )
    series = diagnose_series(data, SPEC)
    assert not isinstance(series, list)
    found = feature_of(SPEC, series)
    assert isinstance(found, Feature)
    return found


LARGE, HUGE, COUNTRY, LARGE_COUNTRY = (
    feature(at_least="5"), feature(at_least="9"), feature("country"), feature("country", "5"),
)  # fmt: skip


def test_a_record_bad_for_a_live_series_counts_elsewhere_and_is_one_dead_letter() -> None:
    router = OpenRouter(SPEC, START)
    for number, each in enumerate((LARGE, HUGE)):
        router.open(each, router.place(each), number)
    batch = Batch(0, [record(1, "DE", "many"), b"junk"], [40, 41], 42)
    routed = router.route(batch)
    assert routed.rows[1].tolist() == [1, 0, 0]
    assert list(routed.dead) == [("wrong_type", "amount", 40, 40), ("not_json", None, 41, 41)]


def test_columns_are_shared_by_equal_features_and_used_again_when_free() -> None:
    router = OpenRouter(SPEC, START)
    assert router.place(feature()) == 0  # as the series of the file
    assert [router.open(f, router.place(f), n) for n, f in enumerate((LARGE, COUNTRY, HUGE, LARGE))] == [
        slice(1, 2), slice(2, 5), slice(5, 6), slice(1, 2),
    ]  # fmt: skip
    router.close(0)
    assert router.place(LARGE_COUNTRY) == 6
    router.close(1)
    assert router.place(LARGE_COUNTRY) == 2
    router.close(3)
    assert router.place(feature(at_least="7")) == 1
    with pytest.raises(FailClosed, match="other columns"):
        router.open(LARGE_COUNTRY, 4, 9)


def test_a_closed_feature_counts_nothing_until_its_columns_are_used_again() -> None:
    router = OpenRouter(SPEC, START)
    router.open(LARGE, 1, 0)
    router.close(0)
    rows = router.route(Batch(0, [record(1, "DE", 9)], [0], 1)).rows
    assert rows[1].tolist() == [1, 0]
    assert router.width == 2


def test_muted_columns_count_nothing_until_their_series_is_closed() -> None:
    """Several of one series are muted one after the other, and another series that has them next counts there."""
    router = OpenRouter(SPEC, START)
    place = router.open(COUNTRY, router.place(COUNTRY), 0)
    batch = Batch(0, [record(1, country, 9) for country in ("DE", "FR", "PL")], range(3), 3)
    assert router.route(batch).rows[1][place].tolist() == [1, 1, 1]
    router.mute(slice(place.start, place.start + 1), 0)
    assert router.route(batch).rows[1][place].tolist() == [0, 1, 1]
    router.mute(slice(place.start + 1, place.stop), 0)
    assert router.route(batch).rows[1].tolist() == [3, 0, 0, 0]
    router.close(0)
    assert router.open(COUNTRY, router.place(COUNTRY), 1) == place
    assert router.route(batch).rows[1][place].tolist() == [1, 1, 1]


@pytest.mark.parametrize("added", [[], [LARGE, HUGE]])
def test_what_the_source_could_not_read_is_handed_on_once(added: list[Feature]) -> None:
    router = OpenRouter(SPEC, START)
    for number, each in enumerate(added):
        router.open(each, router.place(each), number)
    unread = Span("unreadable_batch", None, 30, 39)
    batch = Batch(0, [b"junk", b"junk", record(1, "DE", 7)], [40, 41, 42], 43, refused=[unread])
    assert list(router.route(batch).dead) == [unread, ("not_json", None, 40, 41)]
    alone = Batch(0, (), (), 40, mark=3, refused=[unread])
    assert list(router.route(alone).dead) == [unread]


GOOD: dict[str, Any] = {
    "at": BEGIN, "kind": "a", "place": "x", "note": "", "n": 3, "m": 0, "x": 0.5, "flag": True, "spoilt": None,
}  # fmt: skip


def batched(records: Sequence[dict[str, Any]], tick: int | None = None) -> Batch:
    """These records, and one that nobody can read, which is the second."""
    payloads = [payload(record) for record in records]
    return Batch(0, [*payloads[:1], b"{", *payloads[1:]], range(7, 1000), 0, tick=tick)


def opened(features: Sequence[Feature]) -> tuple[OpenRouter, list[slice]]:
    router = OpenRouter(WIDE, BEGIN)
    return router, [router.open(one, router.place(one), at) for at, one in enumerate(features)]


def apart(features: Sequence[Feature], places: Sequence[slice], what: Batch, width: int) -> Any:
    """Rows, numbers of records and dead letters where the file's series and each feature have a router of their own."""
    base = Router(WIDE, BEGIN)
    parts = [(slice(0, base.width), base)]
    for feature, place in zip(features, places, strict=True):
        if place.start >= base.width:
            parts.append((place, Router(WIDE, BEGIN, RowLayout.alone(WIDE, feature))))
    rows: dict[int, Any] = {}
    dead: dict[int, tuple[str, str | None]] = {}
    for place, router in parts:
        routed = router.route(what)
        for tick, row in routed.rows.items():
            counted = dense(row, router.width)
            rows.setdefault(tick, np.zeros(width, np.int64))[place] = counted
        for span in routed.dead:
            for at in range(span.first, span.last + 1):
                dead.setdefault(at, (span.reason, span.field))
    spans: list[Span] = as_spans((at, *dead[at]) for at in sorted(dead))
    return {tick: row.tolist() for tick, row in rows.items()}, base.route(what).records, spans


def together(router: OpenRouter, what: Batch) -> Any:
    routed = router.route(what)
    rows = {tick: dense(row, router.width).tolist() for tick, row in routed.rows.items()}
    return rows, routed.records, list(routed.dead)


@settings(max_examples=60, deadline=None)
@given(FEATURES, st.lists(RECORDS, max_size=8), st.sampled_from([None, 0, HORIZON]), st.data())
def test_sharing_a_reading_changes_nothing_in_one_shard_or_many(
    features: list[Feature], records: list[dict[str, Any]], tick: int | None, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        shard = data.draw(st.sampled_from([2, 256]))
        patch.setattr("stream_dp.pipeline.router.MOST_IN_A_SHARD", shard)
        router, places = opened(features)
        what = batched(records, tick)
        assert together(router, what) == apart(features, places, what, router.width)
        gone = data.draw(st.sets(st.integers(0, len(features))))
        for user in sorted(gone):
            router.close(user)
        left = [at for at in range(len(features)) if at not in gone]
        some = [features[at] for at in left], [places[at] for at in left]
        assert together(router, what) == apart(*some, what, router.width)


def test_a_change_builds_what_counts_one_shard_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many features there are: the file's and those of full shards are left alone."""
    router, what = OpenRouter(WIDE, BEGIN), batched([GOOD])
    built: list[int] = []
    make = FeatureCounts.__init__

    def noted(counts: FeatureCounts, features: Any, *more: Any) -> None:
        built.append(len(list(features := list(features))))
        make(counts, features, *more)

    monkeypatch.setattr(FeatureCounts, "__init__", noted)
    monkeypatch.setattr("stream_dp.pipeline.router.MOST_IN_A_SHARD", 3)
    for at in range(8):
        one = Feature(None, frozenset([Test("n", "at_least", frozenset([at]))]))
        router.open(one, router.place(one), at)
        router.route(what)
    assert built == [1, 2, 3, 1, 2, 3, 1, 2]
    router.close(0)
    router.route(what)
    assert built[8:] == [2]
    router.route(what)
    assert len(built) == 9


ADDED = [Feature(None, frozenset([Test("n", "at_least", frozenset([at]))])) for at in range(5)]


def test_a_batch_is_read_once_however_many_features_were_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    router, _ = opened(ADDED)
    what = Batch(0, [payload(GOOD)] * 10, range(10), 0)
    read: list[int] = []
    decode = RecordDecoder.decode

    def noted(decoder: RecordDecoder, payloads: Sequence[bytes]) -> Decoded:
        read.append(len(payloads))
        return decode(decoder, payloads)

    monkeypatch.setattr(RecordDecoder, "decode", noted)
    assert together(router, what)[0] == {0: [10, 10, 10, 10, 10, 0]}
    assert read == [10]
    router.route(batched([GOOD]))
    assert read == [10, 2, 1, 1]  # what is refused: for the file, and for all that read the same


def test_the_check_catches_a_record_that_is_dead_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    router, places = opened(ADDED)
    what = batched([GOOD, GOOD | {"spoilt": "n"}])
    wanted = apart(ADDED, places, what, router.width)
    assert wanted[0] == {0: [2, 1, 1, 1, 1, 0]}
    assert together(router, what) == wanted

    def refuse(_: OpenRouter, __: Batch, ___: Routed, refused: Any, ____: object) -> Any:
        return refused

    monkeypatch.setattr(OpenRouter, "_one_by_one", refuse)
    assert together(router, what) != wanted
