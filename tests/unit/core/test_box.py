"""Boxes against the points that lie in them, and their texts."""

import itertools
from math import inf, nextafter
from typing import Any

import pytest

from stream_dp.core.box import EVERYTHING, NOWHERE, Box, Side, Stretch, holds

NUMBERS = [None, -1, 0, 0.5, 1, 1.5, 2, 3]
SIDES: list[Side] = [
    *(Stretch(low, high) for low in (None, 0, 1) for high in (None, 0, 1, 2)),
    *(frozenset(values) for values in ([0], [1, 2], [0.5, 3], [None], [0, None])),
]
POINTS = [{"a": a, "b": b} for a in NUMBERS for b in (None, True, False)]


def inside(box: Box) -> list[dict[str, Any]]:
    """The points that lie in a box."""
    if box.nowhere:
        return []
    return [p for p in POINTS if all(holds(s, p[f]) for f, s in box.sides)]


def side(field: str, values: Side) -> Box:
    return Box(((field, values),))


def test_two_boxes_meet_in_the_points_of_both() -> None:
    truths = [frozenset([True]), frozenset([False])]
    boxes = [EVERYTHING, NOWHERE, *(side("a", values) for values in SIDES)]
    boxes += [Box((("b", truth), ("a", values))) for truth in truths for values in SIDES[::2]]
    for one, other in itertools.product(boxes, boxes):
        both = [point for point in inside(one) if point in inside(other)]
        assert inside(one.cut(other)) == both
        assert one.meets(other) == bool(both)
        assert one.cut(other) == other.cut(one)
        assert hash(one.cut(other)) == hash(other.cut(one))
        assert (one.order == other.order) == (one == other)


def test_sides_of_a_field_are_joined_in_one_form() -> None:
    low, high, few = Stretch(low=1), Stretch(high=3), frozenset([1, 3, 4])
    box = Box((("n", low), ("c", frozenset("x")), ("n", high)))
    assert box.sides == (("c", frozenset("x")), ("n", Stretch(1, 3)))
    assert Box((("n", few), ("n", high))) == side("n", frozenset([1, 3]))
    assert Box((("n", low), ("n", Stretch(high=1)))) == side("n", frozenset([1]))
    nothing = [
        Box((*box.sides, ("n", Stretch(4)))),
        side("n", Stretch(2, 1)),
        side("c", frozenset()),
    ]
    assert {EVERYTHING.cut(box) for box in nothing} == {NOWHERE}
    assert not EVERYTHING.nowhere


def test_values_that_python_takes_for_equal_stay_in_their_fields() -> None:
    both = Box((("flag", frozenset([True])), ("n", frozenset([1]))))
    assert both.meets(side("flag", frozenset([True])))
    assert not both.meets(side("flag", frozenset([False])))
    assert str(both) == "flag = true and n = 1"


@pytest.mark.parametrize(
    ("sides", "text"),
    [
        ([], "every record"),
        ([("c", frozenset())], "no record"),
        ([("country", frozenset(["DE"])), ("amount", Stretch(100.0))],
         "amount at least 100 and country = DE"),
        ([("n", Stretch(None, 2.5)), ("c", frozenset("ba"))], "c one of a, b and n at most 2.5"),
        ([("n", Stretch(nextafter(5, inf)))], "n above 5"),
        ([("n", Stretch(None, nextafter(0.25, -inf)))], "n below 0.25"),
        ([("n", Stretch(0.1))], "n at least 0.1"),
        ([("n", Stretch(-1, 7))], "n from -1 to 7"),
        ([("n", Stretch())], "n is not null"),
        ([("n", frozenset([None]))], "n is null"),
        ([("c", frozenset(["b", None, "a"]))], "c one of a, b, null"),
        ([("c", frozenset("abcdefg"))], "c one of a, b, c, d, e, ..."),
    ],
)  # fmt: skip
def test_a_box_in_words(sides: list[tuple[str, Side]], text: str) -> None:
    assert str(Box(tuple(sides))) == text
