"""`privacy.delta`, `filter`, `order` and `analysts`: what is refused, where, and what the right ones make."""

from fractions import Fraction
from typing import Any

import pytest

from stream_dp.accounting.filters.linear import BasicFilter, PureFilter, RenyiFilter
from stream_dp.accounting.filters.squares import GaussianFilter, TightApproximateFilter, ZCDPFilter
from stream_dp.errors import BudgetRefused
from stream_dp.pipeline.budget import filter_of, opened
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.fingerprints import fingerprint
from stream_dp.pipeline.spec import PipelineSpec, Privacy

Data = dict[str, Any]


@pytest.mark.parametrize(
    ("privacy", "kind"),
    [
        ({}, PureFilter),
        ({"filter": "basic", "delta": "1e-9"}, BasicFilter),
        ({"filter": "gdp", "delta": "1e-9"}, GaussianFilter),
        ({"filter": "tight_approximate", "delta": "1e-9"}, TightApproximateFilter),
        ({"filter": "zcdp", "delta": "1e-9"}, ZCDPFilter),
        ({"filter": "renyi", "delta": "1e-9", "order": "13"}, RenyiFilter),
    ],
)
def test_the_filter_is_the_one_that_is_named(privacy: Data, kind: type) -> None:
    assert type(filter_of(Privacy.model_validate({"epsilon": "2"} | privacy))) is kind


def test_keys_at_their_defaults_leave_the_fingerprint_as_it_was(data: Data) -> None:
    plain = fingerprint(PipelineSpec.model_validate(data))
    named = data["privacy"] | {"filter": "pure", "delta": "0", "analysts": []}
    assert fingerprint(PipelineSpec.model_validate(data | {"privacy": named})) == plain
    other = data["privacy"] | {"analysts": [{"name": "ann", "epsilon": "0.1"}]}
    assert fingerprint(PipelineSpec.model_validate(data | {"privacy": other})) != plain


def test_analysts_are_paid_for_before_the_series(data: Data) -> None:
    ann = [{"name": "ann", "epsilon": "0.5"}]
    built = build(
        PipelineSpec.model_validate(data | {"privacy": data["privacy"] | {"analysts": ann}})
    )
    assert [entry.name for entry in built.ledger.entries] == [
        "analyst ann",
        "flights: series of the first start",
    ]
    assert built.subledgers().ledgers["ann"].left == 5 * 10**11
    ann[0]["epsilon"] = "0.6"
    with pytest.raises(
        BudgetRefused, match=r"asks for epsilon 1\.5; of 2 the ledger has spent 0\.6"
    ):
        build(PipelineSpec.model_validate(data | {"privacy": data["privacy"] | {"analysts": ann}}))
    with pytest.raises(BudgetRefused, match="analyst ann asks for epsilon 3"):
        opened(
            Privacy.model_validate(
                {"epsilon": "2", "analysts": [{"name": "ann", "epsilon": Fraction(3)}]}
            )
        )
