"""Continual sums that run alone: how much, of a clamped number, over all or for each key.

Rules: a number becomes whole units of the declared grid before it is added, as in a pipeline; what is released are
exact decimals on that grid, and no float comes near them.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Generic, TypeVar

from stream_dp.core.messages import IntArray
from stream_dp.errors import RejectedMessage
from stream_dp.python.standalone import blocks
from stream_dp.python.standalone.continual import Charged, Continual
from stream_dp.python.standalone.keyed import WithKeys
from stream_dp.python.standalone.numbers import Number, plain_numbers
from stream_dp.python.standalone.tick_release import ByWindow, SumRelease, Sums, TickWindow

V = TypeVar("V")
T = TypeVar("T")


class Summing(Continual[SumRelease[V], T], Generic[V, T]):
    """A mechanism whose releases hold sums."""

    __slots__ = ("_amount",)

    _most = blocks.MOST_UNITS_A_TICK
    _too_much = "a tick holds sums of at most 2^60 steps; nothing was added"

    def __init__(self, charged: Charged, amount: blocks.Amount) -> None:
        self._amount = amount
        super().__init__(charged)

    def _units(self, amounts: Iterable[Number]) -> int:
        """What events with these numbers add, in units (RejectedMessage)."""
        return blocks.units_of(self._amount, plain_numbers(amounts))

    def _released(self, tick: int, answer: IntArray, state: Any) -> SumRelease[V]:
        told = [
            TickWindow(
                self._value(view if self._amount.lowest < 0 else blocks.clipped(view)),
                self._number(band),
            )
            for view, band in self._views(tick, answer, state)
        ]
        first, windows = told[0], self.windows
        by_window = ByWindow(windows, tuple(told[: len(windows)]))
        return SumRelease(tick, first.value, first.band, self._charged.confidence, by_window)

    def _number(self, units: int) -> Decimal:
        """An exact decimal, from a number of units."""
        return Decimal(blocks.told_number(units, self._amount.step))

    def _value(self, answer: IntArray) -> V:
        """The public value of a view's sums."""
        raise NotImplementedError


class ContinualSum(Summing[Decimal, Iterable[Number]]):
    """How much so far, or over windows, released once each tick; made by `Budget.sum` without keys.

    Privacy claim: `guarantee` (epsilon-DP) for all releases together, adaptively. Neighbouring streams differ in one
    event: any amount within the clamp, added in one tick, or under `replace` another amount in its place. The
    derivation is in `derivation` (tree noise for integer rows, arXiv 2408.07021; for windows discrete Laplace noise per
    node of a forest). Where a person has several events, each is protected for itself, not all together.

    Examples
    --------
    >>> from stream_dp import Budget
    >>> volume = Budget(epsilon=1).sum(epsilon="0.5", clamp=(0, 240), step="0.01", windows=[24], horizon=8760)
    >>> volume.add(12.5, 300)  # two events; 300 counts as 240
    >>> release = volume.release()
    >>> list(release.windows), type(release.windows[24].value)
    ([1, 24], <class 'decimal.Decimal'>)
    """

    __slots__ = ()

    def add(self, *amounts: Number) -> None:
        """Add events with these numbers to the open tick.

        Parameters
        ----------
        *amounts : int, float, Decimal or Fraction
            One for each event, which is protected on its own. Each is clamped, and rounded to the grid.

        Raises
        ------
        RejectedMessage
            What is no finite number, or the horizon is reached; nothing has changed.
        FailClosed
            In a forked process.
        """
        self._add(self._changes(amounts))

    def _changes(self, events: Iterable[Number]) -> dict[int, int]:
        return {0: self._units(events)}

    def _value(self, answer: IntArray) -> Decimal:
        return self._number(int(answer[0]))


class ContinualSums(WithKeys, Summing[Sums, Mapping[str, Iterable[Number]]]):
    """How much so far, or over windows, for each of the declared keys; made by `Budget.sum` with keys.

    Privacy claim: that of `ContinualSum`, for all keys together. One event adds its amount at up to `most` keys in one
    tick, or under `replace` another amount at others of the same tick.

    Examples
    --------
    >>> from stream_dp import Budget
    >>> volume = Budget(epsilon=1).sum(epsilon="0.5", clamp=(-20, 240), keys=["DE", "FR"], horizon=24)
    >>> volume.add("DE", 30, -4)
    >>> list(volume.release().value)
    ['DE', 'FR']
    """

    __slots__ = ()

    def add(self, key: str, *amounts: Number) -> None:
        """Add events with this key and these numbers to the open tick.

        Parameters
        ----------
        key : str
            One of the declared keys.
        *amounts : int, float, Decimal or Fraction
            One for each event, which is protected on its own. Each is clamped, and rounded to the grid.

        Raises
        ------
        RejectedMessage
            Another key, what is no finite number, or the horizon is reached; nothing has changed.
        FailClosed
            In a forked process.
        """
        self._add({self._place(key): self._units(amounts)})

    def add_list(self, keys: Iterable[str], amount: Number) -> None:
        """Add one event that adds its amount at each of these keys to the open tick.

        Parameters
        ----------
        keys : iterable of str
            Declared keys, at most `most` of them; one that is named twice counts once. All of them are protected
            together, as one event.
        amount : int, float, Decimal or Fraction
            What it adds at each of them.

        Raises
        ------
        RejectedMessage
            More keys, another key, no finite number, or the horizon is reached; nothing has changed.
        FailClosed
            In a forked process.
        """
        self._add(dict.fromkeys(self._listed(keys), self._units([amount])))

    def _changes(self, events: Mapping[str, Iterable[Number]]) -> dict[int, int]:
        if not isinstance(events, Mapping):
            raise RejectedMessage(
                "the events of a tick are a mapping from keys to lists of numbers"
            )
        return {self._place(key): self._units(amounts) for key, amounts in events.items()}

    def _value(self, answer: IntArray) -> Sums:
        return Sums(self.keys, tuple(map(self._number, answer.tolist())))
