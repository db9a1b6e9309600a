"""The oracle of tick rows, against rows made by hand."""

import pytest
from oracles.tick_rows import Comparison, Counted, Named, Scalar, tick_rows

LARGE = Comparison("n", "at_least", (2**53 + 1,))
FEATURES = [
    Counted(0, (), ()),
    Counted(1, (Named("kind", ("a", "b")),), ()),
    Counted(4, (), (LARGE, Comparison("kind", "one_of", ("b", "c")))),
]


def test_rows_by_hand() -> None:
    records: list[dict[str, Scalar | None]] = [
        {"kind": "a", "n": 2**53 + 1},
        {"kind": "b", "n": 2**53},
        {"kind": "b", "n": 2**53 + 1},
        {"kind": None, "n": None},
        {"kind": "?", "n": 2**62},
    ]
    assert tick_rows(records, [4, 4, 4, 4, 7], FEATURES, 5) == {
        4: [4, 1, 2, 1, 1],
        7: [1, 0, 0, 1, 0],
    }
    assert tick_rows([], [], FEATURES, 5) == {}


@pytest.mark.parametrize(
    ("operator", "values", "passing"),
    [
        ("at_least", (0.0,), [0.0, -0.0, 1e-300]),
        ("at_most", (0.0,), [-1.0, 0.0, -0.0]),
        ("equals", (0.0,), [0.0, -0.0]),
        ("one_of", (-1.0, 1e-300), [-1.0, 1e-300]),
    ],
)
def test_comparisons(operator: str, values: tuple[Scalar, ...], passing: list[float]) -> None:
    test = Comparison("x", operator, values)
    among = [None, -1.0, 0.0, -0.0, 1e-300]
    assert [value for value in among if test.passes(value)] == passing
