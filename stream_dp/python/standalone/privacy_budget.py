"""A privacy budget in a program: it pays for mechanisms before they exist, and refuses what it does not cover.

Rules: a method for each statistic, those of counts and sums in `counting_budget`; all arguments are checked before
anything is charged. Nothing is ever given back: mechanisms that run alone share no clock, so that one has ended tells
nothing about when another's events happened (docs/time.md needs a common one). This file draws no noise.
"""

from collections.abc import Iterable
from functools import partial

from stream_dp.python.standalone import blocks
from stream_dp.python.standalone.continual_alerts import ContinualAlerts
from stream_dp.python.standalone.continual_maximum import ContinualMaximum
from stream_dp.python.standalone.counting_budget import CountingBudget
from stream_dp.python.standalone.keyed import declared
from stream_dp.python.standalone.numbers import Amount, epsilon_from, positive, positive_or_none


class Budget(CountingBudget):
    """A privacy budget and its ledger.

    Privacy claim: whoever sees everything that is released by mechanisms created from this budget, in any order, and
    chooses by it what to create and what to ask next, learns about a single event at most (epsilon, delta): [HSV]
    Thm 12.4 for the filter. One event is +1, or one amount of a sum, in one tick of each mechanism it is added to, at
    up to `most` of its keys where it is made for that. The number of ticks, and when mechanisms are created and
    released, must not depend on events. Two budgets over the same events add up. Noise comes from ChaCha20 under fresh
    seeds of the operating system: adversaries are computationally bounded.

    Nothing is given back, whatever ends. It belongs to the process that made it, may be used by several threads, and
    lives as long as the process: it is written down nowhere. Pipelines have a journal for that.

    Parameters
    ----------
    epsilon : int, str, Fraction or Decimal
        The budget, exactly: ``1``, ``"0.5"``, ``"1/3"``. Floats are refused.
    delta : int, str, Fraction or Decimal
        Greater than 0 with every filter but ``pure``, such as ``"1e-9"``.
    filter : {"pure", "basic", "tight_approximate", "zcdp", "renyi", "gdp"}
        What admits every charge. ``pure`` adds epsilons up; the others are for many small mechanisms, and ``zcdp``,
        ``renyi`` and ``gdp`` for Gaussian noise.
    order : int, str, Fraction or Decimal, optional
        The order of a ``renyi`` filter; 8 if not given.
    neighbors : Neighbors or {"add_remove", "replace"}
        Which streams are neighbours: one event more, or one event with other content in the same tick.
    unit : {"event"}
        Who is protected: each single event.

    Raises
    ------
    UsageError
        A float, an amount out of range, a delta without a filter that has one, or the other way round.

    Examples
    --------
    >>> from stream_dp import Budget
    >>> budget = Budget(epsilon=1)
    >>> counter = budget.counter(epsilon="0.1", horizon=8760)
    >>> budget.spent, budget.left
    (Fraction(1, 10), Fraction(9, 10))
    """

    __slots__ = ()

    def maximum(
        self,
        *,
        epsilon: Amount,
        keys: Iterable[str],
        most: int = 1,
        expected_events: int | None = None,
        horizon: int | None = None,
        confidence: Amount | float = "0.95",
        name: str | None = None,
    ) -> ContinualMaximum:
        """Charge for a continual maximum (how many events at the key that has most, and which) and create it.

        It takes a second.

        Parameters
        ----------
        epsilon : int, str, Fraction or Decimal
            What it costs, for all its releases together.
        keys : iterable of str
            The keys, public.
        most : int
            At how many of the keys one event counts at most, as `add_list` adds them.
        expected_events : int, optional
            A public guess at the number of events over the horizon; it moves the error that is predicted, nothing else.
        horizon : int, optional
            How many ticks there will be at most.
        confidence : float, int, str, Fraction or Decimal
            With which the band of each release holds.
        name : str, optional
            Its name in the ledger; a name is used once.

        Returns
        -------
        ContinualMaximum
            It has been paid for.

        Raises
        ------
        UsageError
            A float as epsilon, or another argument out of range.
        BudgetRefused
            It does not fit; nothing was created, charged or drawn.
        """
        guess = positive_or_none("expected_events", expected_events)
        choose = partial(blocks.choose_maximum, epsilon=epsilon_from(epsilon), expected=guess)
        found = declared(keys)
        setting = self._setting(len(found), horizon, confidence, most)
        return ContinualMaximum(self._paid("maximum", name, setting, choose, found))

    def alerts(
        self,
        *,
        epsilon: Amount,
        keys: Iterable[str],
        threshold: int,
        most: int = 1,
        confidence: Amount | float = "0.95",
        name: str | None = None,
    ) -> ContinualAlerts:
        """Charge for alerts per key, re-armed for ever, and create them.

        Parameters
        ----------
        epsilon : int, str, Fraction or Decimal
            What they cost, for all keys and all alerts together.
        keys : iterable of str
            The keys, public.
        threshold : int
            A key fires when it has had about so many events since it fired last.
        most : int
            At how many of the keys one event counts at most, as `add_list` adds them.
        confidence : float, int, str, Fraction or Decimal
            With which an alert comes within the band of the threshold.
        name : str, optional
            Their name in the ledger; a name is used once.

        Returns
        -------
        ContinualAlerts
            They have been paid for.

        Raises
        ------
        UsageError
            A float as epsilon, or another argument out of range.
        BudgetRefused
            They do not fit; nothing was created, charged or drawn.
        """
        least = positive("threshold", threshold)
        choose = partial(blocks.choose_alerts, epsilon=epsilon_from(epsilon), threshold=least)
        found = declared(keys)
        setting = self._setting(len(found), None, confidence, most)
        return ContinualAlerts(self._paid("alerts", name, setting, choose, found))
