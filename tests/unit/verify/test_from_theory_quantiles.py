"""Quantiles from raw records: their exact law is that of the description, and that law loses at most what is stated.

The oracle (`oracles.selected_quantile`) has every chance as a Fraction; one unit of epsilon is ln 2 here. The real law
is the pipeline's, from records to releases, with noise cut off at a radius: it lies within what is cut off.
"""

import itertools
import json
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
from oracles.selected_quantile import bucket_of, distances, law
from unit.verify.exact.raw_streams import Item, Logs, World, cut_off, event, pipeline

HALF = Fraction(1, 2)
WITHIN = {"neighbors": "replace", "moves": "within_tick"}
ANY = {"neighbors": "replace"}
USERS = {"unit": "user", "user": "who", "max_events": "2", "per": "1s"}
VALUES = (-3, 0, 1.5, 2, 1e308)


def world_of(
    at: Sequence[str], epsilon: Fraction | int, privacy: dict[str, str], radius: int, ticks: int = 1
) -> World:
    """One window of all ticks, of [0, 2) in one bucket and one on either side."""
    series = {
        "name": "q", "statistic": "quantiles", "of": "amount", "edges": ["0", "2"], "at": list(at),
        "every": [f"{ticks}s"], "epsilon": str(epsilon),
    }  # fmt: skip
    return World(pipeline([series], privacy, ticks), radius, HALF)


def sensitivity(at: str, privacy: dict[str, str]) -> int:
    """How far one record moves a distance, from the description: another one in its place counts twice elsewhere."""
    p, s = Fraction(at).numerator, Fraction(at).denominator
    return s if privacy == WITHIN else max(p, s - p)


def said(bodies: tuple[bytes, ...]) -> tuple[int, ...]:
    """The buckets that the last release tells, by their ends."""
    (window,) = json.loads(bodies[-1])["windows"].values()
    ends = [(0, 0), (0, 2), (2, 2)]
    return tuple(ends.index(tuple(each["bucket"])) for each in window["quantiles"].values())


def logs_of(values: Sequence[Any], ticks: int = 1) -> Logs:
    """Records with these values, of a user each, and one without a value in each tick."""
    records: list[list[Item]] = [[event(t, amount=None)] for t in range(ticks)]
    for number, value in enumerate(values):
        records[number % ticks].append(event(number % ticks, who=str(number), amount=value))
    return (tuple(item for t, those in enumerate(records) for item in (*those, t)),)


@pytest.mark.parametrize("at", ["1/2", "3/4", "1/4"])
@pytest.mark.parametrize(
    ("privacy", "parts"), [({}, 1), (WITHIN, 1), (ANY, 2), (USERS, 2)], ids=["one more", "within", "any", "user"]
)  # fmt: skip
def test_a_release_has_the_law_of_the_description(
    at: str, privacy: dict[str, str], parts: int
) -> None:
    """At the epsilon where noise has scale 1: any other scale would give other chances."""
    at = str(float(Fraction(at)))
    world = world_of([at], 2 * sensitivity(at, privacy) * parts, privacy, 10)
    for number in range(3):
        for values in itertools.combinations_with_replacement(VALUES[::2], number):
            real: dict[tuple[int, ...], Fraction] = {}
            rows = world.rows(logs_of(values))
            for bodies, chance in world.law(0, rows).items():
                real[said(bodies)] = real.get(said(bodies), Fraction(0)) + chance
            slack = cut_off(world.law(0, rows))
            assert 0 < slack < Fraction(1, 500)
            assert all(
                abs(real[(b,)] - chance) <= slack
                for b, chance in enumerate(exact(at, values, HALF))
            )
            assert any(
                abs(real[(b,)] - p) > slack for b, p in enumerate(exact(at, values, HALF**2))
            )


@cache
def exact(at: str, values: tuple[float, ...], a: Fraction) -> tuple[Fraction, ...]:
    """The oracle's law."""
    places = [bucket_of(value, Fraction(0), Fraction(2), 1) for value in values]
    return tuple(law(distances(places, 3, Fraction(at)), a))


def neighbours(
    privacy: dict[str, str], most: int
) -> Iterator[tuple[tuple[float, ...], tuple[float, ...]]]:
    """Values of a window and of a neighbour's; order does not count."""
    some = (-3, 0, 2)
    for number in range(most):
        for values in itertools.combinations_with_replacement(some, number):
            more = [tuple(sorted((*values, one))) for one in some]
            if privacy == WITHIN:
                yield from itertools.permutations((*more, values), 2)
            elif privacy == USERS:
                for both in itertools.combinations_with_replacement(some, 2):
                    yield values, tuple(sorted((*values, *both)))
            else:
                yield from ((values, each) for each in more)


@pytest.mark.parametrize("at", ["1/2", "3/4", "1/4", "9/10"])
@pytest.mark.parametrize(
    ("privacy", "parts"), [({}, 1), (WITHIN, 1), (USERS, 2)], ids=["one more", "within", "user"]
)  # fmt: skip
def test_the_law_loses_at_most_what_is_stated(at: str, privacy: dict[str, str], parts: int) -> None:
    """And more than half of it; noise made for half of what one record moves loses more than is stated."""
    at = str(float(Fraction(at)))
    epsilon = 2 * sensitivity(at, privacy) * parts
    assert world_of([at], epsilon, privacy, 1).stated == epsilon

    def loss(a: Fraction) -> Fraction:
        pairs = [(exact(at, x, a), exact(at, y, a)) for x, y in neighbours(privacy, 8)]
        return max(max(p / q, q / p) for one, two in pairs for p, q in zip(one, two, strict=True))

    stated = Fraction(2) ** epsilon
    assert stated >= loss(HALF) > Fraction(2) ** (epsilon // 2)
    assert loss(HALF**2) > stated


@pytest.mark.parametrize("ticks", [1, 2])
def test_two_quantiles_of_one_window_share_its_epsilon(ticks: int) -> None:
    """Drawn by themselves: the joint law is the product, each at half of the epsilon."""
    world = world_of(["0.25", "0.5"], 12, {}, 4, ticks)
    values = (0, 2)
    rows = world.rows(logs_of(values, ticks))
    real: dict[tuple[int, ...], Fraction] = {}
    for bodies, chance in world.law(0, rows).items():
        real[said(bodies)] = real.get(said(bodies), Fraction(0)) + chance
    first, second = exact("0.25", values, HALF), exact("0.5", values, HALF**3)
    slack = cut_off(world.law(0, rows))
    for pair in itertools.product(range(3), repeat=2):
        assert abs(real.get(pair, 0) - first[pair[0]] * second[pair[1]]) <= slack
    assert slack < Fraction(1, 8)
