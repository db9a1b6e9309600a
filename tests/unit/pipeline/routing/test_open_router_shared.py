"""Records are read once for all features of an open router, and yet count as if each feature read them by itself."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.records.columns_worlds import FEATURES, HORIZON, RECORDS, SPEC, START, payload

from stream_dp.engine.ports import Batch
from stream_dp.engine.tick_assembler import dense
from stream_dp.journal.dead_letters import Span, as_spans
from stream_dp.pipeline.feature_counts import FeatureCounts
from stream_dp.pipeline.layout import Feature, RowLayout
from stream_dp.pipeline.router import OpenRouter, Routed, Router
from stream_dp.records.conditions import Test
from stream_dp.records.decoder import Decoded, RecordDecoder

GOOD: dict[str, Any] = {
    "at": START, "kind": "a", "place": "x", "note": "", "n": 3, "m": 0, "x": 0.5, "flag": True, "spoilt": None,
}  # fmt: skip


def batch(records: Sequence[dict[str, Any]], tick: int | None = None) -> Batch:
    """These records, and one that nobody can read, which is the second."""
    payloads = [payload(record) for record in records]
    return Batch(0, [*payloads[:1], b"{", *payloads[1:]], range(7, 1000), 0, tick=tick)


def opened(features: Sequence[Feature]) -> tuple[OpenRouter, list[slice]]:
    """A router to which these are added, and where each counts."""
    router = OpenRouter(SPEC, START)
    return router, [router.open(one, router.place(one), at) for at, one in enumerate(features)]


def apart(features: Sequence[Feature], places: Sequence[slice], what: Batch, width: int) -> Any:
    """Rows, numbers of records and dead letters where the file's series and each feature have a router of their own."""
    base = Router(SPEC, START)
    parts = [(slice(0, base.width), base)]
    for feature, place in zip(features, places, strict=True):
        if place.start >= base.width:
            parts.append((place, Router(SPEC, START, RowLayout.alone(SPEC, feature))))
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
    """The same of the open router."""
    routed = router.route(what)
    rows = {tick: dense(row, router.width).tolist() for tick, row in routed.rows.items()}
    return rows, routed.records, list(routed.dead)


@settings(max_examples=50, deadline=None)
@given(FEATURES, st.lists(RECORDS, max_size=8), st.sampled_from([None, 0, HORIZON]), st.data())
def test_sharing_changes_nothing(
    features: list[Feature], records: list[dict[str, Any]], tick: int | None, data: st.DataObject
) -> None:
    router, places = opened(features)
    what = batch(records, tick)
    assert together(router, what) == apart(features, places, what, router.width)
    left = data.draw(st.integers(0, len(features)))
    for user in range(left):
        router.close(user)
    again = apart(features[left:], places[left:], what, router.width)
    assert together(router, what) == again


@settings(max_examples=30, deadline=None)
@given(FEATURES, st.lists(RECORDS, max_size=8), st.data())
def test_shards_change_nothing(
    features: list[Feature], records: list[dict[str, Any]], data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stream_dp.pipeline.router.MOST_IN_A_SHARD", 2)
        router, places = opened(features)
        what = batch(records)
        assert together(router, what) == apart(features, places, what, router.width)
        gone = data.draw(st.sets(st.integers(0, len(features))))
        for user in sorted(gone):
            router.close(user)
        left = [at for at in range(len(features)) if at not in gone]
        some = [features[at] for at in left], [places[at] for at in left]
        assert together(router, what) == apart(*some, what, router.width)


def test_a_change_builds_what_counts_one_shard_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many features there are: the file's and those of full shards are left alone."""
    router, what = OpenRouter(SPEC, START), batch([GOOD])
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
    router.route(batch([GOOD]))
    assert read == [10, 2, 1, 1]  # what is refused: for the file, and for all that read the same


def test_the_check_catches_a_record_that_is_dead_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    router, places = opened(ADDED)
    what = batch([GOOD, GOOD | {"spoilt": "n"}])
    wanted = apart(ADDED, places, what, router.width)
    assert wanted[0] == {0: [2, 1, 1, 1, 1, 0]}
    assert together(router, what) == wanted

    def refuse(_: OpenRouter, __: Batch, ___: Routed, refused: Any, ____: object) -> Any:
        return refused

    monkeypatch.setattr(OpenRouter, "_one_by_one", refuse)
    assert together(router, what) != wanted
