"""Sums and windows that run alone: what they take, what they refuse with all as it was, and that bands cover.

Error probability: below 1e-9 for each statistical assertion on the product (a binomial tail).
"""

import asyncio
import copy
import pickle
from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from stream_dp import Budget, FailClosed, NotDerivable, RejectedMessage, Sums, UsageError
from stream_dp.python.standalone.tick_release import Window
from stream_dp.testing.noise import SeededNoise

KEYS = ("DE", "FR", "PL")
HORIZON = 12
MAKE: dict[str, Callable[..., Any]] = {
    "sum": lambda: Budget(epsilon=1).sum(
        epsilon=1, clamp=(-20, 240), step="0.01", horizon=HORIZON, windows=[3, "ever"]
    ),
    "sums": lambda: Budget(epsilon=1).sum(
        epsilon=1, clamp=(0, 240), keys=KEYS, most=2, horizon=HORIZON
    ),
}
every = pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)


def ticks_for(live: Any) -> list[Any]:
    """Amounts of some ticks, empty ones among them, in the form that `over` takes."""
    amounts = [[tick, 2.5, Decimal("0.25")][: tick % 4] for tick in range(HORIZON)]
    if not hasattr(live, "keys"):
        return amounts
    return [{"DE": each, "PL": [7]} if each else {} for each in amounts]


@pytest.mark.usefixtures("exact")
def test_without_noise_the_answers_are_those_of_the_events() -> None:
    volume, by_key = MAKE["sum"](), MAKE["sums"]()
    volume.add(12.5, 300, Fraction(1, 3))
    release = volume.release()
    assert str(release.value) == "252.83"
    assert {name: str(part.value) for name, part in release.windows.items()} == {
        1: "252.83", 3: "252.83", "ever": "252.83",
    }  # fmt: skip
    volume.add(-1e300)
    told = [
        (r.value, r.windows[3].value, r.windows["ever"].value) for r in volume.over([[], [], []])
    ]
    assert told == [tuple(map(Decimal, each)) for each in (
        ("-20.00", "232.83", "232.83"), ("0.00", "232.83", "232.83"), ("0.00", "-20.00", "232.83"),
    )]  # fmt: skip
    by_key.add("FR", 3, 5)
    by_key.add_list(["FR", "DE", "FR"], 10)
    assert by_key.release().value == {"DE": 10, "FR": 18, "PL": 0}
    assert by_key.release().windows == {}


@every
def test_over_is_add_and_release_plain_and_asynchronous(
    make: Callable[[], Any], opened: list[SeededNoise]
) -> None:
    over = make()
    released = list(over.over(ticks_for(over)))
    opened.clear()
    one = make()
    for tick, amounts in enumerate(ticks_for(one)):
        for key, each in amounts.items() if isinstance(amounts, dict) else [(None, amounts)]:
            one.add(*([] if key is None else [key]), *each)
        assert one.release() == released[tick]
    opened.clear()
    later = make()

    async def gather() -> list[Any]:
        async def ticks() -> AsyncIterator[Any]:
            for each in ticks_for(later):
                await asyncio.sleep(0)
                yield each

        return [release async for release in later.over(ticks())]

    assert asyncio.run(gather()) == released
    assert pickle.loads(pickle.dumps(released)) == released  # noqa: S301 - our own
    assert copy.deepcopy(released) == released


def refusals(live: Any) -> list[Callable[[], Any]]:
    """Bad rows for `add` and `over`."""
    bad: list[Any] = [float("nan"), float("inf"), "3", None, True, np.True_, 10**400, 1j, [1]]
    if not hasattr(live, "keys"):
        calls = [partial(live.add, 1, each) for each in bad]
        return [
            *calls,
            *(partial(next, live.over([each])) for each in ([1, "3"], 3, "35", {"DE": 1})),
        ]
    calls = [partial(live.add, "DE", 1, each) for each in bad]
    calls += [partial(live.add, key, 3) for key in ("Atlantis", 1, None, ["DE"])]
    calls += [partial(live.add_list, keys, 3) for keys in (KEYS, "DE", ["Atlantis"])]
    rows = ({"DE": [1], "Atlantis": [1]}, {"DE": 1}, {"DE": "35"}, ["DE"], 3)
    return [*calls, *(partial(next, live.over([row])) for row in rows)]


@every
def test_a_bad_row_changes_nothing(make: Callable[[], Any], opened: list[SeededNoise]) -> None:
    live = make()
    next(live.over(ticks_for(live)))
    now, row, streams = live._now, live._now.row.copy(), len(opened)
    for refused in refusals(live):
        with pytest.raises(RejectedMessage) as error:
            refused()
        assert "Atlantis" not in str(error.value)
        assert "35" not in str(error.value)
    assert live._now is now
    assert live._now.row.tolist() == row.tolist()
    assert len(opened) == streams
    assert live.release().tick == 1


@every
def test_it_ends_at_its_horizon_and_stays_in_its_process(
    make: Callable[[], Any], another_process: Callable[[], None]
) -> None:
    live = make()
    released = list(live.over(ticks_for(live)))
    given = ["DE", 1] if hasattr(live, "keys") else [1]
    for refused in (live.release, lambda: live.add(*given)):
        with pytest.raises(RejectedMessage, match="made for 12 ticks"):
            refused()
    assert live.last is released[-1]
    another_process()
    with pytest.raises(FailClosed, match="forked process"):
        live.add(*given)


@pytest.mark.usefixtures("exact")
def test_a_tick_holds_no_more_than_the_engine_takes() -> None:
    volume = Budget(epsilon=1).sum(epsilon=1, clamp=(-(10**9), 10**9))
    volume.add(-(10**9))
    volume._now.row[0] = -(2**60)
    with pytest.raises(RejectedMessage, match=r"at most 2\^60 steps"):
        volume.add(-1)
    assert volume.release().value == -(2**60)


WINDOWS: list[tuple[Any, str]] = [
    ([30], "30 ticks are more than the horizon of 20: ask a shorter window"),
    (3, "a list of numbers of ticks"),
    ("ever", "a list of numbers of ticks"),
    (["1h"], "a list of numbers of ticks"),
    ([0], "a list of numbers of ticks"),
    ([True], "a list of numbers of ticks"),
    ([2.0], "a list of numbers of ticks"),
    ([3, "ever", 3], "listed twice"),
    (range(2, 11), "9 are asked, and one forest answers at most 8"),
]
CLAMPS: list[tuple[dict[str, Any], str]] = [
    ({"clamp": (0, 2.5)}, r'clamp: 2.5 is a float; amounts are exact: write "2.5" or Fraction\(5, 2\)'),
    ({"clamp": (0, float("inf"))}, "clamp: inf is a float"),
    ({"clamp": (0, 10), "step": 0.01}, r'step: 0.01 is a float; .*write "0.01" or Fraction\(1, 100\)'),
    ({"clamp": ("0.5", 10)}, r"clamp.*'0.5' is no whole number of steps of 1"),
    ({"clamp": (10, 0)}, r"clamp.*must be greater than the lower bound '10'"),
    ({"clamp": (0, 0)}, r"clamp.*must be greater than the lower bound"),
    ({"clamp": 10}, r"clamp: the least and the largest amount are needed, such as \(0, 240\)"),
    ({"clamp": (1, 2, 3)}, "clamp: the least and the largest amount"),
    ({"clamp": (0, "x")}, "clamp.*must be a decimal"),
    ({"clamp": (0, 10**12)}, "more than 1,000,000,000 steps"),
    ({"clamp": (0, 10), "step": "0"}, "step: must be a decimal from 0.000001"),
    ({"clamp": (0, 10), "step": "1/3"}, "step: must be a decimal from 0.000001"),
    ({"clamp": (0, 10), "keys": "DE"}, "keys: a list of texts"),
    ({"clamp": (0, 10), "keys": ["DE"], "most": 0}, "most: must be a whole number"),
]  # fmt: skip


def refused_at_no_cost(call: Callable[[Budget], Any], said: str, opened: list[SeededNoise]) -> None:
    """It is bad usage, in words; nothing is charged or drawn."""
    budget = Budget(epsilon=1)
    with pytest.raises(UsageError, match=said):
        call(budget)
    assert budget.spent == len(budget.ledger.entries) == len(opened) == 0


@pytest.mark.parametrize(("windows", "said"), WINDOWS)
def test_windows_that_are_none_are_refused(
    windows: Any, said: str, opened: list[SeededNoise]
) -> None:
    calls: list[Callable[..., Any]] = [
        lambda b, **more: b.counter(**more),
        lambda b, **more: b.histogram(keys=KEYS, **more),
        lambda b, **more: b.sum(clamp=(0, 9), **more),
        lambda b, **more: b.sum(clamp=(0, 9), keys=KEYS, **more),
        lambda b, **more: b.top(keys=KEYS, k=1, **more),
    ]
    for call in calls:
        made = partial(call, epsilon=1, horizon=20, windows=windows)
        refused_at_no_cost(made, said, opened)


@pytest.mark.parametrize(("given", "said"), CLAMPS)
def test_amounts_that_are_none_are_refused(
    given: dict[str, Any], said: str, opened: list[SeededNoise]
) -> None:
    refused_at_no_cost(lambda budget: budget.sum(epsilon=1, **given), said, opened)


def test_ranks_and_methods_that_are_none_are_refused(opened: list[SeededNoise]) -> None:
    many = [str(number) for number in range(300)]
    calls: list[tuple[Callable[[Any], Any], str]] = [
        (lambda b: b.top(epsilon=1, keys=KEYS, k=4), "k: for 3 keys ask for no more ranks"),
        (lambda b: b.top(epsilon=1, keys=many, k=101), "k: must be less than or equal to 100"),
        (lambda b: b.top(epsilon=1, keys=KEYS, k=0), "k: must be a whole number"),
        (lambda b: b.top(epsilon=1, keys=KEYS, k=1, method="best"), "method: must be"),
        (lambda b: b.top(epsilon=1, keys=KEYS, k=1, method="gaussian"), "needs a budget with a delta"),
        (lambda b: b.histogram(epsilon=1, keys=KEYS, windows=[3], method="hss"), "leave method out"),
    ]  # fmt: skip
    for call, said in calls:
        refused_at_no_cost(call, said, opened)
    with pytest.raises(NotDerivable, match="would hold 1,500,000 numbers"):
        Budget(epsilon=1).histogram(epsilon=1, keys=many, windows=[5000])


@pytest.mark.parametrize("horizon", [None, 9])
def test_bands_of_all_windows_cover(horizon: int | None) -> None:
    """Every one of 400 keys at the last tick: a value of each window lies within its band at its rate.

    Too few are within with probability 1e-8, too many (some 0.81 are, of whole numbers) with one below 1e-9.
    """
    keys, sure = [str(number) for number in range(400)], 0.8
    sums = Budget(epsilon=1).sum(
        epsilon=1,
        clamp=(-50, 3),
        keys=keys,
        horizon=horizon,
        windows=[3, 5, "ever"],
        confidence=sure,
    )
    *_, last = sums.over([{key: [2, -50] for key in keys}] * 7)
    least = int(binom.ppf(1e-9, len(keys), sure))
    seen: dict[Window, int] = {1: 1, 3: 3, 5: 5, "ever": 7}
    for window, ticks in seen.items():
        told = last.windows[window]
        assert isinstance(told.value, Sums)
        near = sum(abs(value + 48 * ticks) <= told.band for value in told.value.values())
        assert least <= near <= 0.93 * len(keys)
