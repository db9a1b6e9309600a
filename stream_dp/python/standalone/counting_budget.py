"""What a budget pays for that counts or adds up, so far or over sliding windows: counts, sums and top lists.

Rules: all arguments are checked before anything is charged. This file draws no noise.
"""

from collections.abc import Iterable
from functools import partial
from typing import Literal, TypeAlias, overload

from stream_dp.core.how_many import how_many
from stream_dp.errors import UsageError
from stream_dp.python.standalone import blocks
from stream_dp.python.standalone.asked_windows import windows_from
from stream_dp.python.standalone.budget_ledger import BudgetLedger
from stream_dp.python.standalone.continual_counter import ContinualCounter
from stream_dp.python.standalone.continual_histogram import ContinualHistogram
from stream_dp.python.standalone.continual_sum import ContinualSum, ContinualSums
from stream_dp.python.standalone.continual_top import ContinualTop
from stream_dp.python.standalone.keyed import declared
from stream_dp.python.standalone.numbers import (
    Amount,
    clamp_from,
    epsilon_from,
    grid_from,
    positive,
    positive_or_none,
)
from stream_dp.python.standalone.tick_release import Window

CountMethod: TypeAlias = Literal["auto", "tree", "gaussian"]
Method: TypeAlias = Literal["tree", "hss", "auto", "gaussian"]
EventShape: TypeAlias = Literal["even", "zipf", "bursts"]


class CountingBudget(BudgetLedger):
    """A budget that pays for counts, sums and top lists; `Budget` says what it is for."""

    __slots__ = ()

    def counter(
        self,
        *,
        epsilon: Amount,
        horizon: int | None = None,
        windows: Iterable[Window] = (),
        method: CountMethod = "auto",
        confidence: Amount | float = "0.95",
        name: str | None = None,
    ) -> ContinualCounter:
        """Charge for a continual count and create it.

        Parameters
        ----------
        epsilon : int, str, Fraction or Decimal
            What it costs, for all its releases together.
        horizon : int, optional
            How many ticks there will be at most; without it there is no limit, and the error is larger.
        windows : iterable of int or "ever", optional
            Release sliding windows of so many ticks, and the single tick first, in place of all ticks so far (which is
            the window ``"ever"``); all at the one price, from one forest of noisy counts.
        method : {"auto", "tree", "gaussian"}
            A tree counter; or Gaussian noise, for a budget whose filter is ``zcdp``, ``renyi`` or ``gdp``: `epsilon` is
            what it would be alone, at the budget's delta, and squares add up. ``auto`` compares the errors predicted.
        confidence : float, int, str, Fraction or Decimal
            With which the band of each release holds.
        name : str, optional
            Its name in the ledger; a name is used once.

        Returns
        -------
        ContinualCounter
            It has been paid for.

        Raises
        ------
        UsageError
            A float as epsilon, or another argument out of range.
        BudgetRefused
            It does not fit; nothing was created, charged or drawn.
        """
        _require(method, "auto", "tree", "gaussian")
        setting = self._setting(1, horizon, confidence)
        shown = windows_from(windows, setting.horizon)
        choose = partial(
            blocks.choose_counter, epsilon=epsilon_from(epsilon), method=method, windows=shown
        )
        return ContinualCounter(self._paid("counter", name, setting, choose, windows=shown))

    def histogram(
        self,
        *,
        epsilon: Amount,
        keys: Iterable[str],
        horizon: int | None = None,
        windows: Iterable[Window] = (),
        method: Method = "auto",
        most: int = 1,
        expected_events: int | None = None,
        expected_shape: EventShape | None = None,
        confidence: Amount | float = "0.95",
        name: str | None = None,
    ) -> ContinualHistogram:
        """Charge for a continual histogram and create it; HSS takes a second to be chosen.

        Parameters
        ----------
        epsilon : int, str, Fraction or Decimal
            What it costs, for all keys and all its releases together.
        keys : iterable of str
            The keys, public; they are not to be taken from the events.
        horizon : int, optional
            How many ticks there will be at most.
        windows : iterable of int or "ever", optional
            Sliding windows, as `counter` says.
        method : {"auto", "tree", "hss", "gaussian"}
            A tree counter for each key, or sparse vector intervals; ``auto`` compares the errors predicted for
            `expected_events`. ``gaussian``: all keys together, as `counter` says.
        most : int
            At how many of the keys one event counts at most, as `add_list` adds them.
        expected_events : int, optional
            A public guess at the number of events over the horizon, which ``auto`` compares errors for (without: one
            a tick); no threshold depends on it.
        expected_shape : {"even", "zipf", "bursts"}, optional
            A public guess at how they fall: on all keys alike, most on few keys, or all in a few ticks; without,
            ``auto`` takes what is near the smallest error for both of the first two.
        confidence : float, int, str, Fraction or Decimal
            With which the band of each release holds for one of its values.
        name : str, optional
            Its name in the ledger; a name is used once.

        Returns
        -------
        ContinualHistogram
            It has been paid for.

        Raises
        ------
        UsageError
            A float as epsilon, keys that are none, or another bad argument.
        BudgetRefused
            It does not fit; nothing was created, charged or drawn.
        """
        _require(method, "tree", "hss", "auto", "gaussian")
        found = declared(keys)
        setting = self._setting(len(found), horizon, confidence, most)
        shown = windows_from(windows, setting.horizon)
        choose = partial(
            blocks.choose_histogram,
            epsilon=epsilon_from(epsilon),
            method=method,
            expected=positive_or_none("expected_events", expected_events),
            shape=_shape(expected_shape),
            windows=shown,
        )
        return ContinualHistogram(self._paid("histogram", name, setting, choose, found, shown))

    @overload
    def sum(
        self,
        *,
        epsilon: Amount,
        clamp: tuple[Amount, Amount],
        step: Amount = 1,
        keys: None = None,
        horizon: int | None = None,
        windows: Iterable[Window] = (),
        most: int = 1,
        confidence: Amount | float = "0.95",
        name: str | None = None,
    ) -> ContinualSum: ...
    @overload
    def sum(
        self,
        *,
        epsilon: Amount,
        clamp: tuple[Amount, Amount],
        step: Amount = 1,
        keys: Iterable[str],
        horizon: int | None = None,
        windows: Iterable[Window] = (),
        most: int = 1,
        confidence: Amount | float = "0.95",
        name: str | None = None,
    ) -> ContinualSums: ...
    def sum(
        self,
        *,
        epsilon: Amount,
        clamp: tuple[Amount, Amount],
        step: Amount = 1,
        keys: Iterable[str] | None = None,
        horizon: int | None = None,
        windows: Iterable[Window] = (),
        most: int = 1,
        confidence: Amount | float = "0.95",
        name: str | None = None,
    ) -> ContinualSum | ContinualSums:
        """Charge for a continual sum of a clamped number, or one for each key, and create it.

        Parameters
        ----------
        epsilon : int, str, Fraction or Decimal
            What it costs, for all keys and all its releases together.
        clamp : tuple of two of int, str, Fraction or Decimal
            The least and the largest amount of an event, whole numbers of steps: public, and not taken from the events.
            Noise is made for the amount of one event that is farthest from 0.
        step : int, str, Fraction or Decimal
            The grid: amounts are rounded to it, and released on it, as exact decimals. ``"0.01"`` for cents.
        keys : iterable of str, optional
            The keys, public; without, there is one sum over all events.
        horizon : int, optional
            How many ticks there will be at most; without it there is no limit, and the error is larger.
        windows : iterable of int or "ever", optional
            Sliding windows, as `counter` says.
        most : int
            At how many of the keys one event adds its amount at most, as `add_list` adds it.
        confidence : float, int, str, Fraction or Decimal
            With which the band of each release holds for one of its values.
        name : str, optional
            Its name in the ledger; a name is used once.

        Returns
        -------
        ContinualSum or ContinualSums
            It has been paid for; with keys `ContinualSums`.

        Raises
        ------
        UsageError
            A float as epsilon, clamp or step, a bound that is not on the grid, or another argument out of range.
        BudgetRefused
            It does not fit; nothing was created, charged or drawn.
        """
        amount = blocks.amount_of(clamp_from(clamp), grid_from("step", step))
        found = None if keys is None else declared(keys)
        setting = self._setting(len(found or ("",)), horizon, confidence, most)
        shown = windows_from(windows, setting.horizon)
        choose = partial(
            blocks.choose_sum,
            epsilon=epsilon_from(epsilon),
            amount=amount,
            keyed=found is not None,
            windows=shown,
        )
        if found is None:
            return ContinualSum(self._paid("sum", name, setting, choose, (), shown), amount)
        return ContinualSums(self._paid("sum", name, setting, choose, found, shown), amount)

    def top(
        self,
        *,
        epsilon: Amount,
        keys: Iterable[str],
        k: int,
        horizon: int | None = None,
        windows: Iterable[Window] = (),
        method: Method = "auto",
        most: int = 1,
        expected_events: int | None = None,
        expected_shape: EventShape | None = None,
        confidence: Amount | float = "0.95",
        name: str | None = None,
    ) -> ContinualTop:
        """Charge for a continual top list (the keys with most events, and who is not told apart) and create it.

        Parameters
        ----------
        epsilon : int, str, Fraction or Decimal
            What it costs, for all its releases together: ranks are read off noisy counts of all keys.
        keys : iterable of str
            The keys, public; they are not to be taken from the events.
        k : int
            How many are told; at most 100, and no more than there are keys.
        horizon : int, optional
            How many ticks there will be at most.
        windows : iterable of int or "ever", optional
            A list for each sliding window, as `counter` says.
        method : {"auto", "tree", "hss", "gaussian"}
            How the keys are counted, as `histogram` says; ``auto`` takes the one whose bands are narrower in the end.
        most : int
            At how many of the keys one event counts at most, as `add_list` adds them.
        expected_events : int, optional
            A public guess at the number of events over the horizon; it moves the error that is predicted, nothing else.
        expected_shape : {"even", "zipf", "bursts"}, optional
            A public guess at how they fall, as `histogram` says.
        confidence : float, int, str, Fraction or Decimal
            With which the band of each release holds, for all values of a list at once.
        name : str, optional
            Its name in the ledger; a name is used once.

        Returns
        -------
        ContinualTop
            It has been paid for.

        Raises
        ------
        UsageError
            A float as epsilon, more ranks than keys, keys that are none, or another bad argument.
        BudgetRefused
            It does not fit; nothing was created, charged or drawn.
        """
        _require(method, "tree", "hss", "auto", "gaussian")
        found = declared(keys)
        if positive("k", k) > len(found):
            raise UsageError(f"k: for {how_many(len(found), 'key')} ask for no more ranks")
        setting = self._setting(len(found), horizon, confidence, most)
        shown = windows_from(windows, setting.horizon)
        choose = partial(
            blocks.choose_top,
            epsilon=epsilon_from(epsilon),
            k=k,
            method=method,
            expected=positive_or_none("expected_events", expected_events),
            shape=_shape(expected_shape),
            windows=shown,
        )
        return ContinualTop(self._paid("top", name, setting, choose, found, shown))


def _shape(expected: EventShape | None) -> EventShape | None:
    """The shape, if there is such a one (UsageError)."""
    if expected not in (None, "even", "zipf", "bursts"):
        raise UsageError("expected_shape: must be even, zipf or bursts")
    return expected


def _require(method: str, *known: str) -> None:
    """Refuse a method that there is not (UsageError)."""
    if method not in known:
        raise UsageError(f"method: must be {', '.join(known[:-1])} or {known[-1]}")
