"""What a type checker sees of the public face: real types behind lazy names, and floats refused before anything runs.

mypy checks this file with all tests; an ignore that is not needed is an error there. It runs as well.
"""

from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import assert_type

import pytest

import stream_dp as sdp


async def none() -> AsyncIterator[int]:
    for tick in range(0):
        yield tick


def test_a_name_has_the_type_of_what_it_loads() -> None:
    budget = sdp.Budget(epsilon=1)
    assert_type(budget, sdp.Budget)
    assert_type(budget.left, Fraction)
    assert_type(budget.derivation if budget.spent else None, sdp.Derivation | None)
    assert_type(sdp.Neighbors.REPLACE.l0(3), int)
    assert_type(sdp.PureFilter.of(Fraction(1)), sdp.PureFilter)


def test_a_series_releases_what_a_pipeline_does() -> None:
    budget = sdp.Budget(epsilon=1, schema={"amount": {"type": "number"}})
    asked = assert_type(sdp.Mean(of="amount", clamp=(0, 9)), sdp.Statistic)
    mean = assert_type(budget.series(asked, epsilon="0.1"), sdp.ContinualSeries)
    mean.add({"amount": 2.5})
    mean.update([{"amount": 2.5}])
    assert_type(mean.release(), sdp.PublicRelease)
    assert_type(mean.last, sdp.PublicRelease | None)


def test_a_release_has_the_type_of_its_statistic() -> None:
    budget = sdp.Budget(epsilon=1)
    counter = assert_type(budget.counter(epsilon="0.1"), sdp.ContinualCounter)
    assert_type(counter.release(), sdp.TickRelease[int])
    assert_type(counter.last, sdp.TickRelease[int] | None)
    by_key = assert_type(budget.histogram(epsilon="0.1", keys=["a"]), sdp.ContinualHistogram)
    assert_type(by_key.release().value, sdp.Counts)
    alerts = assert_type(budget.alerts(epsilon="0.1", keys=["a"], threshold=3), sdp.ContinualAlerts)
    assert_type(alerts.release().value, tuple[str, ...])


def test_windows_and_sums_have_types_of_their_own() -> None:
    budget = sdp.Budget(epsilon=1)
    counter = budget.counter(epsilon="0.1", windows=[24, "ever"])
    assert_type(counter.release().windows["ever"], sdp.TickWindow[int, int])
    volume = assert_type(budget.sum(epsilon="0.1", clamp=(0, 9)), sdp.ContinualSum)
    volume.add(3, 2.5, Decimal("0.5"), Fraction(1, 2))
    release = assert_type(volume.release(), sdp.SumRelease[Decimal])
    assert_type(release.band, Decimal)
    sums = assert_type(budget.sum(epsilon="0.1", clamp=(0, "9"), keys=["a"]), sdp.ContinualSums)
    assert_type(sums.release().value, sdp.Sums)
    assert_type(sums.last, sdp.SumRelease[sdp.Sums] | None)
    top = assert_type(budget.top(epsilon="0.1", keys=["a", "b"], k=1), sdp.ContinualTop)
    assert_type(top.release().value, tuple[sdp.Ranked, ...])
    assert_type(volume.over([[1.5], []]), Iterator[sdp.SumRelease[Decimal]])
    assert_type(sums.over([{"a": [1.5]}]), Iterator[sdp.SumRelease[sdp.Sums]])


def test_over_is_plain_or_asynchronous_as_its_argument() -> None:
    counter = sdp.Budget(epsilon=1).counter(epsilon=1)
    assert_type(counter.over([1, 2]), Iterator[sdp.TickRelease[int]])
    assert_type(counter.over(none()), AsyncIterator[sdp.TickRelease[int]])


def test_mistakes_are_type_errors() -> None:
    with pytest.raises(sdp.UsageError):
        sdp.Budget(epsilon=0.5)  # type: ignore[arg-type]
    budget = sdp.Budget(epsilon=1)
    with pytest.raises(sdp.UsageError):
        budget.histogram(epsilon="0.1", keys=["a"], method="best")  # type: ignore[arg-type]
    with pytest.raises(sdp.UsageError):
        budget.counter(epsilon="0.1", windows=["1h"])  # type: ignore[list-item]
    with pytest.raises(sdp.UsageError):
        budget.sum(epsilon="0.1", clamp=(0, 0.5))  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        sdp.Bugdet  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(sdp.RejectedMessage):
        budget.counter(epsilon="0.1").add(1.5)  # type: ignore[arg-type]
