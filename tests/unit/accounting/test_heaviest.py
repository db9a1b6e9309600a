"""The heaviest boxes that hold one record, against every record of a small schema; and upper bounds at a limit."""

import itertools
import random
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from stream_dp.accounting import heaviest as module
from stream_dp.accounting.heaviest import Heaviest, heaviest
from stream_dp.core.box import EVERYTHING, NOWHERE, Box, Side, Stretch

VALUES: dict[str, list[Any]] = {
    "kind": [None, "?", "x", "y", "z"],
    "late": [None, False, True],
    "size": [None, *(half / 2 for half in range(-1, 6))],
    "share": [None, -1.0, 0.0, 0.1, 0.25, 9.0],
}
"""Of every field null, all values that boxes name, a value that none names, and numbers beside and between ends."""
NUMBERS: dict[str, list[float]] = {"size": [0, 1, 2], "share": [0.0, 0.25]}
POINTS = [dict(zip(VALUES, values, strict=True)) for values in itertools.product(*VALUES.values())]


def lies(point: Mapping[str, Any], box: Box) -> bool:
    for name, side in box.sides:
        value = point.get(name)
        if not isinstance(side, frozenset):
            if value is None:
                return False
            if side.low is not None and value < side.low:
                return False
            if side.high is not None and value > side.high:
                return False
        elif value not in side:
            return False
    return True


def brute(weights: Mapping[Box, int], inside: Box = EVERYTHING) -> int:
    totals = (
        sum(weight for box, weight in weights.items() if lies(point, box))
        for point in POINTS
        if lies(point, inside)
    )
    return max(totals, default=0)


def some_side(draw: random.Random, name: str) -> Side:
    numbers = NUMBERS.get(name)
    if numbers is None or draw.random() < 0.3:
        named = [*numbers, None] if numbers else [v for v in VALUES[name] if v != "?"]
        listed = frozenset(draw.sample(named, draw.randint(1, 2)))
        return listed if numbers or draw.random() < 0.9 else Stretch()
    low, high = sorted(draw.choices(numbers, k=2))
    return draw.choice([Stretch(low, high), Stretch(low), Stretch(None, high), Stretch()])


def some_box(draw: random.Random) -> Box:
    names = draw.sample(list(VALUES), draw.choice([0, 1, 1, 2, 2, 3]))
    return Box(tuple((name, some_side(draw, name)) for name in names))


def some_weights(seed: int) -> dict[Box, int]:
    draw = random.Random(seed)
    heavy = draw.choice([1, 3, 10**20])
    return {some_box(draw): draw.randint(1, heavy) for _ in range(draw.randint(0, 14))}


def holds_together(answer: Heaviest, weights: Mapping[Box, int], inside: Box) -> bool:
    """Whether one record lies in all boxes of an answer, and they weigh what it says."""
    total = sum(weights[box] for box in answer.boxes)
    return total == answer.weight and (
        not answer.boxes
        or any(lies(p, inside) and all(lies(p, box) for box in answer.boxes) for p in POINTS)
    )


def too_small(seeds: range, nodes: int) -> int:
    """How many answers are below the truth."""
    weights = map(some_weights, seeds)
    return sum(heaviest(some, nodes=nodes).weight < brute(some) for some in weights)


def wrong(seeds: range) -> int:
    """How many answers of an unlimited search are not the truth."""
    return sum(heaviest(some).weight != brute(some) for some in map(some_weights, seeds))


@pytest.mark.parametrize(("dense", "seeds"), [(module.DENSE, 300), (2, 80)])
def test_the_heaviest_boxes_are_those_of_all_records(
    dense: int, seeds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DENSE", dense)
    apart = 0
    for seed in range(seeds):
        weights = some_weights(seed)
        for inside in (EVERYTHING, some_box(random.Random(-seed))):
            answer = heaviest(weights, inside)
            assert answer.proven
            assert answer.weight == brute(weights, inside)
            assert holds_together(answer, weights, inside)
            apart += answer.weight < sum(weights.values())
    assert apart > seeds


@pytest.mark.parametrize("dense", [module.DENSE, 2])
def test_a_decision_is_that_of_the_largest_sum(dense: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DENSE", dense)
    for seed in range(200 if dense > 2 else 40):
        weights, inside = some_weights(seed), some_box(random.Random(-seed))
        truth = brute(weights, inside)
        for enough in (truth - 1, truth, truth + 1):
            answer = heaviest(weights, inside, enough=enough)
            assert (answer.weight <= enough) == (truth <= enough)
            assert answer.weight >= truth or (answer.proven and answer.weight > enough)
            assert not answer.proven or holds_together(answer, weights, inside)
            assert heaviest(weights, inside, enough=enough, nodes=1).weight >= min(
                truth, enough + 1
            )


def test_a_bound_at_the_limit_is_never_too_small_and_falls_with_more_nodes() -> None:
    open_ones = 0
    for seed in range(200):
        weights = some_weights(seed)
        answers = [heaviest(weights, nodes=nodes) for nodes in (0, 1, 2, 4, 8, 2_000)]
        bounds = [answer.weight for answer in answers]
        assert bounds == sorted(bounds, reverse=True)
        assert bounds[-1] == brute(weights)
        for answer in answers:
            assert answer.weight == sum(weights[box] for box in answer.boxes)
            assert not answer.proven or answer.weight == bounds[-1]
        open_ones += bounds[1] > bounds[-1]
    assert open_ones > 30


def test_the_order_of_the_boxes_changes_nothing() -> None:
    for seed in range(100):
        weights = some_weights(seed)
        again = random.Random(seed).sample(list(weights.items()), len(weights))
        for nodes in (1, 3, 2_000):
            assert heaviest(dict(again), nodes=nodes) == heaviest(weights, nodes=nodes)


def test_many_values_beside_a_range() -> None:
    values = {Box((("kind", frozenset([str(at)])),)): 1 for at in range(5_000)}
    low = Box((("size", Stretch(1)),))
    weight, boxes, proven = heaviest({**values, low: 3})
    assert (weight, len(boxes), boxes[-1], proven) == (4, 2, low, True)
    assert heaviest(values).weight == 1
    assert heaviest(values, NOWHERE) == (0, (), True)


def test_work_is_told_before_it_is_done() -> None:
    told: list[int] = []
    heaviest({EVERYTHING: 2, Box((("late", frozenset([True])),)): 1}, step=told.append)
    assert told == [3]
    weights = some_weights(3)
    assert len(weights) > 3
    heaviest(weights, step=told.append)
    sided = sum(bool(box.sides) for box in weights)
    assert told[1] == sided + 1
    assert len(told) > 3


# Broken twins: what the tests above would say of them.


def null_in_every_side(sums: Callable[..., dict[Any, int]]) -> Callable[..., dict[Any, int]]:
    def broken(sides: Any) -> dict[Any, int]:
        listed = list(sides)
        return {**sums(listed), None: sum(amount for _, amount in listed)}

    return broken


def null_in_no_set(sums: Callable[..., dict[Any, int]]) -> Callable[..., dict[Any, int]]:
    def broken(sides: Any) -> dict[Any, int]:
        return {point: amount * (point is not None) for point, amount in sums(sides).items()}

    return broken


def test_broken_twins_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrong(range(100)) == too_small(range(100), 2) == 0
    with monkeypatch.context() as patched:  # closed ends as open ones
        patched.setattr(module, "bisect_right", bisect_left)
        assert too_small(range(100), 2_000) > 5
    with monkeypatch.context() as patched:  # null in boxes with a condition
        patched.setattr(module, "_sums", null_in_every_side(module._sums))
        assert wrong(range(100)) > 30
    with monkeypatch.context() as patched:  # null in no set
        patched.setattr(module, "_sums", null_in_no_set(module._sums))
        assert too_small(range(100), 2_000) > 5
    with monkeypatch.context() as patched:  # the best that is known in place of the open bound
        run = module._Search.run

        def incumbent(search: Any, root: Any) -> Any:
            node, proven = run(search, root)
            search.left = 9
            search._dive(root)
            return search.best or node, proven

        patched.setattr(module._Search, "run", incumbent)
        assert too_small(range(100), 2) > 0
