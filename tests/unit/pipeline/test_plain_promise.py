"""The promise in one line: who, what it means, and a factor that is never rounded down."""

import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from stream_dp.pipeline.promise import plain_promise, times
from stream_dp.pipeline.yaml import load

FILE = """\
version: 1
name: shop
source: {{kind: file, path: shop.jsonl}}
schema: {{time: {{type: time}}, customer: {{type: integer}}}}
privacy: {{{privacy}}}
clock: {{kind: replay, field: time, start: "2026-01-01T00:00:00Z", step: 1h, horizon: 48}}
series: [{{name: orders, statistic: count, epsilon: 0.1}}]
"""
PER = "unit: user, user: customer, max_events: 5, per: 1d, epsilon: 1"
SAYS = [
    (
        "epsilon: 2",
        "shop protects one event: no single event can be told from what is published: with or without it every "
        "outcome is at most 7.39 times as likely.",
    ),
    (
        "epsilon: 0.5, neighbors: replace",
        "shop protects one event: no single event can be told from what is published: with it or with another in "
        "its place, at any time, every outcome is at most 1.65 times as likely.",
    ),
    (
        "epsilon: 0.5, neighbors: replace, moves: within_tick",
        "shop protects one event: no single event can be told from what is published: with it or with another in "
        "its place every outcome is at most 1.65 times as likely, if a replacement keeps its tick (moves: "
        "within_tick).",
    ),
    (
        PER,
        "shop protects (user, day): no single customer's events of one day can be told from what is published: "
        "with or without them every outcome is at most 2.72 times as likely.",
    ),
    (
        "unit: user, user: customer, overall: 5, epsilon: 1, delta: 1e-9, filter: zcdp",
        "shop protects user, for ever: no single customer's events can be told from what is published: with or "
        "without them every outcome is at most 2.72 times as likely, apart from a probability of 0.000000001.",
    ),
    (
        "epsilon: 10",
        "shop protects one event: one event may show in what is published: with or without it every outcome is at "
        "most 22,100 times as likely.",
    ),
]


@pytest.mark.parametrize(("privacy", "says"), SAYS)
def test_it_says_who_is_protected_and_what_that_means(
    tmp_path: Path, privacy: str, says: str
) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(FILE.format(privacy=privacy))
    assert plain_promise(load(path)) == says


@pytest.mark.parametrize("epsilon", [Fraction(n, d) for n in (1, 2, 7, 99) for d in (1, 3, 1000)])
def test_the_factor_is_three_digits_and_never_too_small(epsilon: Fraction) -> None:
    found, exact = times(epsilon), Decimal(math.exp(epsilon))
    assert exact * Decimal("0.9999999") <= found <= exact * Decimal("1.0101")
    assert len(found.normalize().as_tuple().digits) <= 3
    assert found >= 1 + Decimal(epsilon.numerator) / Decimal(epsilon.denominator)
