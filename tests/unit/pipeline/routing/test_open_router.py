"""Features added while records are read: they count what a router built for them alone would count."""

import numpy as np
import pytest
from unit.live.live_series_worlds import PIPELINE, batches, record

from stream_dp.engine.ports import Batch
from stream_dp.errors import FailClosed
from stream_dp.journal.dead_letters import Span
from stream_dp.pipeline.layout import Feature, RowLayout, feature_of
from stream_dp.pipeline.router import OpenRouter, Router
from stream_dp.pipeline.spec import PipelineSpec, diagnose_series

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


@pytest.mark.parametrize(
    "added", [[LARGE], [COUNTRY, LARGE], [LARGE, COUNTRY, HUGE, LARGE_COUNTRY]]
)
def test_every_feature_counts_as_if_it_were_alone(added: list[Feature]) -> None:
    router = OpenRouter(SPEC, START)
    places = [router.open(each, router.place(each), n) for n, each in enumerate(added)]
    alone = [Router(SPEC, START, RowLayout.alone(SPEC, each)) for each in added]
    base = Router(SPEC, START)
    seen = 0
    for batch in batches():
        routed = router.route(batch)
        parts = [(slice(0, base.width), base), *zip(places, alone, strict=True)]
        for rows, one in parts:
            expected = one.route(batch).rows
            for tick, row in routed.rows.items():
                assert np.array_equal(row[rows], expected.get(tick, np.zeros(one.width, np.int64)))
                seen += int(row[rows].sum())
            assert expected.keys() <= routed.rows.keys()
        assert routed.records == base.route(batch).records
    assert seen > 100


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
