"""Quantities that somebody brings along: right ones are taken, wrong ones and those with a state are refused.

Each wrong function breaks one property. What is refused leaves nothing behind: no entry, no noise, no other state.
"""

import itertools
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from stream_dp.core.messages import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import FailClosed, UsageError
from stream_dp.mechanisms import registered_quantity as registry
from stream_dp.mechanisms.fingerprint import mechanism_fingerprint
from stream_dp.mechanisms.hss import HSS
from stream_dp.mechanisms.quantity_checks import points
from stream_dp.mechanisms.registered_quantity import RegisteredQuantity, register_quantity
from stream_dp.mechanisms.states import STATES
from stream_dp.testing.noise import SeededNoise, ZeroNoise

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
ONE = Fraction(1)


@pytest.fixture(autouse=True)
def nothing_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry of its own for each test."""
    monkeypatch.setattr(registry, "_KNOWN", {})


def middle(sums: IntArray) -> int:
    """The median: right under every relation, 1-Lipschitz."""
    return int(np.sort(sums)[len(sums) // 2])


def first(sums: IntArray) -> int:
    """One column."""
    return int(sums[0])


def half_of_all(sums: IntArray) -> int:
    """Half the sum: changed by at most 1 by one event of up to two ones."""
    return int(sums.sum()) // 2


@pytest.mark.parametrize(
    ("function", "width", "relation", "ones", "lipschitz"),
    [
        (middle, 3, ADD, 1, 1),
        (middle, 3, REPLACE, 3, 1),
        (middle, 200, ADD, 5, 1),
        (first, 1, REPLACE, 1, 1),
        (first, 4, ADD, 4, 1),
        (half_of_all, 4, ADD, 2, 2),
        (half_of_all, 4, REPLACE, 1, 2),
    ],
)
def test_what_holds_is_taken(
    function: Callable[[IntArray], int], width: int, relation: Neighbors, ones: int, lipschitz: int
) -> None:
    mine = register_quantity(
        "mine", function, width=width, neighbors=relation, ones=ones, lipschitz=lipschitz
    )
    assert mine.lipschitz(width) == lipschitz
    assert mine.sensitivity(relation, width, ones) == 1
    again = register_quantity(
        "mine", function, width=width, neighbors=relation, ones=ones, lipschitz=lipschitz
    )
    assert again == mine
    hss = HSS(width, mine, ONE, ONE, ONE, relation, 10, ones=ones)
    shown = str(hss.derivation())
    assert "evidence, no proof" in shown
    assert hss.derivation().guarantee == hss.guarantee


CALLS = itertools.count()
HISTORY: list[int] = []


def falls(sums: IntArray) -> int:
    """Broken: not monotone."""
    return max(0, 100 - int(sums.max()))


def falls_late(sums: IntArray) -> int:
    """Broken: monotone on small sums only."""
    return int(sums.max()) if sums.max() < 1 << 20 else 0


def dips(sums: IntArray) -> int:
    """Broken: at one of eight large sums an event takes 1 away; points far from each other do not show it."""
    largest = int(sums.max())
    return largest // 8 + (largest > 1000 and largest % 8 == 3)


def doubled(sums: IntArray) -> int:
    """Broken: one event changes it by 2."""
    return 2 * int(sums.max())


def everything(sums: IntArray) -> int:
    """Broken for several ones: the sum."""
    return int(sums.sum())


def leap(sums: IntArray) -> int:
    """Broken: two columns together give 2 more."""
    return 2 * int(sums.min())


def counts_its_calls(sums: IntArray) -> int:
    """Broken: a state in an object it reads."""
    return int(sums.max()) + next(CALLS) // 50


def remembers(sums: IntArray) -> int:
    """Broken: the largest that it has ever seen."""
    HISTORY.append(int(sums.max()))
    return max(HISTORY)


def random_now_and_then(sums: IntArray) -> int:
    """Broken: not the same twice."""
    return int(sums.max()) + (random.random() < 0.3)


def writes_a_global(sums: IntArray) -> int:
    """Broken: writes what outlives the call."""
    global WRITTEN
    WRITTEN = int(sums.max())
    return WRITTEN


WRITTEN = 0


def writes_an_attribute(sums: IntArray) -> int:
    """Broken: a state on itself."""
    writes_an_attribute.seen = 1  # type: ignore[attr-defined]
    return int(sums.max())


def calls_a_writer(sums: IntArray) -> int:
    """Broken one call further down."""
    return writes_a_global(sums)


def closure() -> Callable[[IntArray], int]:
    """Broken: a state in a closure."""
    seen = 0

    def function(sums: IntArray) -> int:
        nonlocal seen
        seen = max(seen, int(sums.max()))
        return seen

    return function


def default(sums: IntArray, seen: list[int] = []) -> int:  # noqa: B006 - a twin
    """Broken: a state in a default."""
    seen.append(1)
    return int(sums.max())


class Keeps:
    """Broken: an object."""

    def __call__(self, sums: IntArray) -> int:
        """Would be right."""
        return int(sums.max())


def spoils(sums: IntArray) -> int:
    """Broken: writes to its argument."""
    sums += 1
    return int(sums.max())


def fails(sums: IntArray) -> int:
    """Broken: raises, with a number in its text."""
    raise ValueError(str(sums))


BROKEN: list[tuple[Any, dict[str, Any], str]] = [
    (falls, {}, "not monotone"),
    (falls_late, {}, "not monotone"),
    (dips, {"width": 1}, "not monotone"),
    (doubled, {}, "one event changes it by 2 under add_remove"),
    (everything, {"ones": 2}, "one event changes it by 2"),
    (everything, {"neighbors": REPLACE, "ones": 2, "lipschitz": 3}, "one event changes it by 2"),
    (everything, {}, "not 1-Lipschitz"),
    (half_of_all, {}, "not 1-Lipschitz"),
    (leap, {"width": 2, "ones": 2}, "one event changes it by 2"),
    (counts_its_calls, {}, "reads a count from outside"),
    (remembers, {}, "reads a list from outside"),
    (random_now_and_then, {}, "depend on nothing else|one event|not monotone|Lipschitz"),
    (writes_a_global, {}, "writes to something that outlives a call"),
    (writes_an_attribute, {}, "writes to something that outlives a call"),
    (calls_a_writer, {}, "writes to something that outlives a call"),
    (closure(), {}, "writes to something that outlives a call"),
    (default, {}, "reads a list from outside"),
    (Keeps(), {}, "must be a plain function"),
    (spoils, {}, "it raises ValueError"),
    (fails, {}, "it raises ValueError"),
    (lambda sums: sums.max() / 1, {}, "returns a float64"),
    (lambda sums: bool(sums.max()), {}, "returns a bool"),
    (lambda sums: int(sums.max()) - 1, {}, "outside 0 to 2\\^60"),
    (middle, {"width": 0}, "the width must lie"),
    (middle, {"ones": 0}, "at least 1"),
    (middle, {"neighbors": Neighbors.REPLACE_ANY_TICK}, "for add_remove or replace"),
]


@pytest.mark.parametrize(
    ("function", "more", "why"),
    [pytest.param(f, more, why, id=f"{i}-{why[:20]}") for i, (f, more, why) in enumerate(BROKEN)],
)
def test_what_does_not_hold_is_refused_and_leaves_nothing(
    function: Any, more: dict[str, Any], why: str
) -> None:
    randomness, numpys = random.getstate(), str(np.random.get_state())
    with pytest.raises(UsageError, match=why) as refused:
        register_quantity("mine", function, **{"width": 3, "neighbors": ADD, **more})
    assert "Nothing was registered" in str(refused.value)
    assert len(str(refused.value)) < 400
    assert registry._KNOWN == {}
    assert str(np.random.get_state()) == numpys
    if function is not random_now_and_then:
        assert random.getstate() == randomness
    with pytest.raises(UsageError, match="not registered in this process"):
        RegisteredQuantity("mine", 1, more.get("lipschitz", 1))


def test_a_name_and_version_belong_to_one_function() -> None:
    register_quantity("mine", middle, width=3, neighbors=ADD)
    before = dict(registry._KNOWN)
    with pytest.raises(UsageError, match="registered already"):
        register_quantity("mine", first, width=3, neighbors=ADD)
    with pytest.raises(UsageError, match="registered already"):
        register_quantity("mine", middle, width=4, neighbors=ADD)
    assert before == registry._KNOWN
    assert register_quantity("mine", first, width=3, neighbors=ADD, version=2).version == 2
    with pytest.raises(UsageError, match="letters, digits"):
        register_quantity("not a name", first, width=3, neighbors=ADD)


def test_it_is_for_the_rows_that_it_was_tested_for() -> None:
    mine = register_quantity("mine", middle, width=3, neighbors=ADD)
    for width, relation, ones in ((4, ADD, 1), (3, REPLACE, 1), (3, ADD, 2)):
        with pytest.raises(
            UsageError, match=r"tested for 3 column\(s\), 1 set by an event, under add_r"
        ):
            HSS(width, mine, ONE, ONE, ONE, relation, 10, ones=ones)
    wider = register_quantity("wider", middle, width=3, neighbors=REPLACE, ones=3)
    HSS(3, wider, ONE, ONE, ONE, ADD, 10)  # what holds for more events holds for fewer


def test_it_runs_and_is_written_by_name() -> None:
    mine = register_quantity("mine", middle, width=3, neighbors=ADD)
    hss = HSS(3, mine, ONE, ONE, ONE, ADD, 10)
    noise = SeededNoise(1)
    state = hss.init(noise)
    for _ in range(6):
        state, _ = hss.step(state, Update(np.array([500, 90, 700])), noise)
        state, answer = hss.step(state, Query(), noise)
    assert answer is not None
    assert abs(int(answer[0]) - 3000) < 900
    restored = STATES.decode(STATES.encode(state))
    assert restored.parts.live[restored.watcher].mechanism.quantity == mine
    other = register_quantity("other", middle, width=3, neighbors=ADD)
    twin = HSS(3, other, ONE, ONE, ONE, ADD, 10)
    assert mechanism_fingerprint(twin) != mechanism_fingerprint(hss)


def test_a_process_without_it_reads_no_state_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    hss = HSS(3, register_quantity("mine", middle, width=3, neighbors=ADD), ONE, ONE, ONE, ADD, 10)
    data = STATES.encode(hss.init(ZeroNoise()))
    monkeypatch.setattr(registry, "_KNOWN", {})
    with pytest.raises(UsageError, match="'mine', version 1: not registered in this process"):
        STATES.decode(data)


def test_one_that_goes_wrong_later_stops_everything_without_a_number() -> None:
    """The test cannot see everything: what comes out is looked at for as long as it runs."""

    def late(sums: IntArray) -> int:
        return int(sums.max()) if sums.max() != 777_777 else -5

    hss = HSS(1, register_quantity("late", late, width=1, neighbors=ADD), ONE, ONE, ONE, ADD, 10)
    state, _ = hss.step(hss.init(ZeroNoise()), Update(np.array([777_777])), ZeroNoise())
    before, noise = STATES.encode(state), SeededNoise(1)
    with pytest.raises(FailClosed, match="quantity 'late'") as stopped:
        hss.step(state, Query(), noise)
    assert "777" not in str(stopped.value)
    assert not noise.calls
    assert STATES.encode(state) == before


def test_all_of_a_lattice_and_every_size_is_tried() -> None:
    tried = list(points(2))
    assert set(itertools.product(range(6), repeat=2)) <= set(tried)
    assert max(max(point) for point in tried) > 1 << 36
    assert any(x == y > 9 for x, y in tried)
    assert list(points(2)) == tried
    assert len(list(points(900))) < 200
