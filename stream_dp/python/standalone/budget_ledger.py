"""What pays: a ledger under one filter, which is charged before a mechanism exists.

Rules: one filter, named when the budget is made, as in `privacy:` of a pipeline file. A refusal changes nothing,
neither ledger nor randomness. Nothing is ever given back. This file draws no noise and knows no statistic.
"""

from collections.abc import Callable
from fractions import Fraction
from itertools import count
from threading import Lock
from typing import Any, Literal, TypeAlias

from pydantic import ValidationError

from stream_dp.accounting.amounts import budget_units, text
from stream_dp.accounting.amounts import exact as amount_of
from stream_dp.accounting.entry import DP
from stream_dp.accounting.filters.filter import largest_pure
from stream_dp.accounting.ledger import Ledger
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import Guarantee, Measure, Protected, PureDP
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import BudgetRefused, UsageError
from stream_dp.pipeline.budget import filter_of, target
from stream_dp.pipeline.file.spec import FilterName, Privacy
from stream_dp.python.standalone import blocks
from stream_dp.python.standalone.continual import Charged
from stream_dp.python.standalone.numbers import Amount, confidence_from, exactly, positive, words
from stream_dp.python.standalone.single import Single
from stream_dp.python.standalone.tick_release import Window

NeighborsName: TypeAlias = Neighbors | Literal["add_remove", "replace"]


class BudgetLedger(Single):
    """A filter and its ledger; `Budget` says what it is for."""

    __slots__ = ("_ledger", "_lock", "_parts", "_privacy")

    def __init__(
        self,
        epsilon: Amount,
        *,
        delta: Amount = 0,
        filter: FilterName = "pure",  # noqa: A002 - the name it has in pipeline files
        order: Amount | None = None,
        neighbors: NeighborsName = "add_remove",
        unit: Literal["event"] = "event",
    ) -> None:
        super().__init__()
        if unit != "event":
            raise UsageError(
                "budget: unit: 'user' is for pipeline files, where a guard enforces a cap of events for each user; "
                "here it is one event"
            )
        given: dict[str, Any] = {"filter": filter, "neighbors": neighbors, "unit": unit}
        for name, amount in (("epsilon", epsilon), ("delta", delta), ("order", order)):
            if amount is not None:
                given[name] = exactly(name, amount)
        try:
            self._privacy = Privacy.model_validate(given)
        except ValidationError as error:
            raise UsageError(words(error, "budget")) from None
        self._lock = Lock()
        whom = Protected(self._privacy.neighbors)
        self._ledger = Ledger.under(filter_of(self._privacy), protected=whom)
        self._parts: dict[str, Derivation] = {}

    @property
    def ledger(self) -> Ledger:
        """The ledger as it is now, a value; `ledger.entries` are all charges, first to last."""
        return self._ledger

    @property
    def unit(self) -> str:
        """What `spent` and `left` count: epsilon, or what the filter adds up in its place."""
        return self._ledger.filter.unit

    @property
    def spent(self) -> Fraction:
        """What is spent, exactly, in `unit`; costs are rounded up."""
        return Fraction(self._ledger.spent, self._ledger.filter.scale)

    @property
    def left(self) -> Fraction:
        """What is left, exactly, in `unit`."""
        return Fraction(self._ledger.left, self._ledger.filter.scale)

    @property
    def largest_epsilon(self) -> Fraction:
        """The largest epsilon that one more mechanism may have; 0 where none fits."""
        return amount_of(largest_pure(self._ledger.filter, self._ledger.remaining))

    @property
    def promise(self) -> Guarantee:
        """What holds for everything that this budget ever pays for."""
        whole = target(self._privacy)
        measure: Measure = whole if whole.delta else PureDP(whole.epsilon)
        return Guarantee(measure, self._privacy.neighbors)

    @property
    def derivation(self) -> Derivation:
        """Why the promise holds for what was created so far: a tree of theorems; `print` shows it.

        Raises
        ------
        NotDerivable
            Nothing has been created yet, so there is nothing to derive from.
        """
        parts = tuple(self._parts.values())
        return blocks.promise_of(self._ledger.filter, parts, target(self._privacy))

    def _setting(
        self, width: int, horizon: int | None, confidence: Amount | float, most: int = 1
    ) -> blocks.Setting:
        """What a mechanism is chosen for (UsageError)."""
        return blocks.Setting(
            width,
            self._privacy.neighbors,
            None if horizon is None else positive("horizon", horizon),
            confidence_from(confidence),
            self._privacy.stated_delta,
            gdp=self._privacy.filter == "gdp",
            by_rho=self._privacy.by_rho,
            ones=positive("most", most),
        )

    def _paid(
        self,
        kind: str,
        name: str | None,
        setting: blocks.Setting,
        choose: Callable[[blocks.Setting], blocks.Alone],
        keys: tuple[str, ...] = (),
        windows: tuple[Window, ...] = (),
    ) -> Charged:
        """Charge the ledger; whoever gets the answer may make the mechanism, which has drawn no noise yet.

        `choose` chooses it, by its setting alone.
        """
        self._require_own_process()
        alone = choose(setting)
        with self._lock:
            named = self._free(kind) if name is None else name
            if not isinstance(named, str) or not named or named in self._parts:
                raise UsageError("name: must be a text, and no mechanism may have it already")
            derivation = blocks.derivation_of(alone.mechanism, named)
            self._ledger = self._after(derivation)
            self._parts[named] = derivation
        return Charged(named, alone, derivation, setting.confidence, setting.horizon, keys, windows)

    def _free(self, kind: str) -> str:
        """A name by kind and number that no mechanism has."""
        numbers = count(len(self._parts) + 1)
        return next(name for n in numbers if (name := f"{kind} {n}") not in self._parts)

    def _after(self, derivation: Derivation) -> Ledger:
        """The ledger after this charge; it is not yet the budget's."""
        entry = self._ledger.price(derivation)
        if not self._ledger.preview(entry).fits:
            more = "mechanism" if entry.measure == DP else "pure mechanism"
            raise BudgetRefused(
                f"{derivation.subject} does not fit: {self._state()}; epsilon {text(self.largest_epsilon)} is the "
                f"most that one more {more} may have. Nothing was created or charged: lower its epsilon"
            )
        return self._ledger.charge(entry)

    def _state(self) -> str:
        """What is spent, rounded up, of how much, rounded down."""
        total = text(budget_units(self.spent + self.left))
        return f"{text(self.spent)} of {total} {self.unit} spent"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} ({self._privacy.filter}): {self._state()}>"
