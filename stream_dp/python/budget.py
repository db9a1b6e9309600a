"""A privacy budget in a program: it pays for series before they exist, and refuses what it does not cover.

Rules: one filter, named when the budget is made, as in `privacy:` of a pipeline file. All arguments are checked before
anything is charged, and a refusal changes nothing, neither ledger nor randomness. Nothing is ever given back: series of
a program share no clock, so that one has ended tells nothing about when another's events happened (docs/time.md needs a
common one). Every method here but `series` is a short name for one statistic: its events, and no other arithmetic.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import wraps
from inspect import Parameter, signature
from itertools import count
from threading import RLock
from typing import (
    Any,
    Literal,
    ParamSpec,
    Required,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)
from weakref import WeakValueDictionary

from stream_dp.accounting.amounts import budget_units, text
from stream_dp.accounting.amounts import exact as amount_of
from stream_dp.accounting.derive import derive as tightest
from stream_dp.accounting.filters.filter import DP, largest_pure
from stream_dp.accounting.filters.linear import by_ticks
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.situations import Alive, Filtered
from stream_dp.client.frames import html_table
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import Guarantee, Measure, PureDP
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import BudgetRefused, FailClosed, UsageError
from stream_dp.pipeline.budget import filter_of, target
from stream_dp.pipeline.derivations import Part, whole
from stream_dp.python.series import ContinualSeries, MadeContinual, Prepared, Single
from stream_dp.python.short_names import (
    ContinualAlerts,
    ContinualCounter,
    ContinualHistogram,
    ContinualMaximum,
    ContinualSum,
    ContinualSums,
    ContinualTop,
    Window,
    declared,
    row_schema,
    windows_from,
)
from stream_dp.python.statistic import (
    Alerts,
    Amount,
    Count,
    Histogram,
    Maximum,
    Request,
    Schema,
    Statistic,
    Sum,
    Top,
    checked_parts,
    present,
)
from stream_dp.records.privacy import FilterName

P = ParamSpec("P")
R = TypeVar("R")
NeighborsName: TypeAlias = Neighbors | Literal["add_remove", "replace"]

_EXAMPLES = {"epsilon": '"0.1"', "keys": '["DE", "FR"]', "k": "10", "threshold": "50"}

SUBJECT = "all that this budget ever pays for"


class Unit(TypedDict, total=False):
    """Who is protected, by the keys of `privacy:` of a pipeline file; one event where nothing is said."""

    unit: Literal["event", "user"]
    user: str
    max_events: int
    per_tick: int
    key: str
    per_key: int
    keys: int
    total: Mapping[str, Any]
    totals: Sequence[Mapping[str, Any]]
    per: str
    overall: int
    share: Amount


class Running(TypedDict, total=False):
    """What `series` and every short name take."""

    horizon: int | None
    confidence: Amount | float
    name: str | None


class Listed(Running, total=False):
    """What the short names with keys take beside these; `alerts` no more."""

    most: int


class Adding(Listed, total=False):
    """What `sum` takes beside its keys."""

    clamp: Required[tuple[Amount, Amount]]
    step: Amount
    windows: Iterable[Window]


class Guessed(Listed, total=False):
    """What `maximum` takes beside its keys."""

    expected_events: int | None


class Counted(Guessed, total=False):
    """What `histogram` and `top` take beside their keys."""

    windows: Iterable[Window]
    method: Literal["tree", "hss", "auto", "gaussian", "correlated", "nested"]
    expected_shape: Literal["even", "zipf", "bursts"] | None


def _by_name(method: Callable[P, R]) -> Callable[P, R]:
    """Raise UsageError, which says how to call `method`, where arguments lack or stand without their names."""
    parameters = signature(method).parameters.values()
    unnamed = [p.name for p in parameters if p.kind is Parameter.POSITIONAL_OR_KEYWORD]
    needed = [
        p.name
        for p in parameters
        if p.kind is Parameter.KEYWORD_ONLY and p.default is Parameter.empty
    ]

    @wraps(method)
    def called(*given: P.args, **named: P.kwargs) -> R:
        missing = [name for name in needed if name not in named]
        if len(given) > len(unnamed) or missing:
            shown = [*unnamed[1:], *(f"{name}={_EXAMPLES[name]}" for name in needed or ["epsilon"])]
            word = method.__name__
            raise UsageError(
                f"{word}: give each argument by its name, as in {word}({', '.join(shown)})"
                + (f"; missing: {', '.join(missing)}" if missing else "")
            )
        return method(*given, **named)

    return called


class Budget(Single):
    """A privacy budget and its ledger.

    Privacy claim: whoever sees everything that is released by series created from this budget, in any order, and
    chooses by it what to create and what to ask next, learns about a single event at most (epsilon, delta). Source:
    [HSV] Thm 12.4 for the filter. One event is one record in one tick of each series that it is added to. With
    ``unit="user"`` it is all events of a user that count: a guard in front of each series lets as many through as the
    cap says, and as much of an amount as its total says to each series: what these cost adds up, whatever they see.
    The number of ticks, and when series are created and released, must not depend on events. Two budgets over
    the same events add up. Noise comes from ChaCha20 under fresh seeds of the operating system: adversaries are
    computationally bounded.

    Nothing is given back when a series ends. A budget belongs to the process that made it and is stored nowhere;
    several threads may use it. Use a pipeline, which has a journal, where a budget must outlive the process.

    Parameters
    ----------
    epsilon : int, str, Fraction or Decimal
        The budget, exactly: ``1``, ``"0.5"``, ``"1/3"``. Floats are refused.
    delta : int, str, Fraction or Decimal
        Greater than 0 with every filter but ``pure``, such as ``"1e-9"``.
    filter : {"pure", "basic", "tight_approximate", "zcdp", "renyi", "gdp"}
        What admits every charge. ``pure`` adds epsilons up; the others are for many small series, and ``zcdp``,
        ``renyi`` and ``gdp`` for Gaussian noise. The filter ``optimal`` of pipelines needs their one clock.
    order : int, str, Fraction or Decimal, optional
        The order of a ``renyi`` filter; if not given, the best for many small series.
    neighbors : Neighbors or {"add_remove", "replace"}
        Which streams are neighbours: one event more, or one event with other content in the same tick.
    schema : mapping, optional
        The fields of events, each as in ``schema:`` of a pipeline file: ``{"amount": {"type": "number"}}``.
    tick : str
        How long a tick is, so that windows can be named by durations: ``"1h"``.
    start : str, optional
        When tick 0 begins, for groupings by hour and for the ends that releases name; now if not given.
    **unit
        ``unit``, ``user``, ``max_events``, ``per_tick``, ``key``, ``per_key``, ``keys``, ``total``, ``totals``,
        ``per``, ``overall`` and ``share``, as in ``privacy:`` of a pipeline file.

    Raises
    ------
    UsageError
        A float, an amount out of range, a delta without a filter that has one, and what else is wrong, all at once.

    Examples
    --------
    >>> import stream_dp as sdp
    >>> budget = sdp.Budget(epsilon=1, schema={"country": {"type": "category", "domain": ["DE", "FR"]}})
    >>> orders = budget.series(sdp.Histogram(by="country"), epsilon="0.1", horizon=8760)
    >>> orders.add({"country": "DE"})
    >>> list(orders.release().value), budget.spent, budget.left
    (['DE', 'FR', 'other'], Fraction(1, 10), Fraction(9, 10))
    """

    __slots__ = (
        *("_busy", "_clock", "_derivations", "_file", "_ledger", "_lock", "_names", "_privacy"),
        *("_protection", "_schema", "_series"),
    )

    def __init__(
        self,
        epsilon: Amount,
        *,
        delta: Amount = 0,
        filter: FilterName = "pure",  # noqa: A002 - the name it has in pipeline files
        order: Amount | None = None,
        neighbors: NeighborsName = "add_remove",
        schema: Schema | None = None,
        tick: str = "1s",
        start: str | None = None,
        **unit: Unpack[Unit],
    ) -> None:
        super().__init__()
        whole = {"epsilon": epsilon, "delta": delta, "filter": filter, "order": order}
        self._file = {
            "privacy": present({**whole, "neighbors": neighbors, **_only(unit, Unit)}),
            "clock": present({"kind": "wall", "step": tick, "start": start}),
        }
        self._schema = dict(schema or {})
        spec = checked_parts({**self._file, "schema": self._schema})
        self._privacy, self._clock, self._protection = spec.privacy, spec.clock, spec.protection
        if self._privacy.filter == "optimal":
            raise UsageError(
                "filter: optimal needs one clock for all series, as a pipeline has, because it adds "
                "up what one event costs at one tick. In this budget, an event may be added to a "
                "series that was created after the event. Use another filter: basic, "
                "tight_approximate, zcdp"
            )
        protected = self._protection.protected
        self._ledger = Ledger.under(
            filter_of(self._privacy, protected),
            protected=protected,
            shares=bool(self._privacy.shared),
        )
        self._lock = RLock()
        self._busy = False
        self._names: set[str] = set()
        self._derivations: dict[str, Derivation] = {}
        # no series is made of one that nobody holds any more
        self._series: WeakValueDictionary[str, ContinualSeries] = WeakValueDictionary()

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
        """The largest epsilon that one more series may have; 0 where none fits."""
        return amount_of(largest_pure(self._ledger.filter, self._ledger.used))

    @property
    def promise(self) -> Guarantee:
        """What holds for everything that this budget ever pays for."""
        stated, protected = target(self._privacy), self._protection.protected
        measure: Measure = stated if stated.delta else PureDP(stated.epsilon)
        return Guarantee(measure, protected.neighbors, users=protected.users)

    @property
    def derivation(self) -> Derivation:
        """Why the promise holds for what was created so far: a tree of theorems; `print` shows it.

        Raises NotDerivable where nothing has been created yet, so that there is nothing to derive from.
        """
        parts, filter_ = tuple(self._derivations.values()), self._ledger.filter
        if by_ticks(filter_):  # no clock is shared: when a part was alive derives nothing
            return tightest(parts, Filtered(SUBJECT, filter_))
        ever = [Part(part, Alive(0, None)) for part in parts]
        return whole("budget", filter_, ever, target(self._privacy))

    @_by_name
    def series(
        self,
        statistic: Statistic,
        *,
        epsilon: Amount | None = None,
        name: str | None = None,
        schema: Schema | None = None,
        horizon: int | None = None,
        confidence: Amount | float = "0.95",
    ) -> ContinualSeries:
        """Charge for a statistic of events and create it.

        The `statistic` says what is asked, by the keys of pipeline files: ``Mean(of="amount", clamp=(0, 240))``. All
        its releases together cost `epsilon`; what is made of the releases of other series, as a ratio is, costs nothing
        and takes no events. A `name` in the ledger and in releases is used once. `schema` has fields of its events
        beside those of the budget, or in their place. At most `horizon` ticks will be released; without it there is no
        limit, and most errors are larger. The band of each release holds with `confidence`.

        Raises UsageError with every problem of the statistic, the schema and these arguments, each with its key;
        BudgetRefused where it does not fit and NotDerivable where no rule covers it: nothing was created, charged or
        drawn.
        """
        running: Running = {"horizon": horizon, "confidence": confidence, "name": name}
        with self._alone():
            request = self._request(statistic, epsilon, running, {**self._schema, **(schema or {})})
            spec = request.checked()
            if inputs := spec.series[-1].inputs:
                sources = [self._series[name] for name in inputs]
                series: ContinualSeries = MadeContinual(request, spec, sources)
                self._names.add(series.name)
            else:
                series = ContinualSeries(self._paid(Prepared.of(request, spec)))
            self._series[series.name] = series
        return series

    @_by_name
    def counter(
        self,
        *,
        epsilon: Amount,
        windows: Iterable[Window] = (),
        method: Literal["auto", "tree", "gaussian", "correlated", "nested"] = "auto",
        **running: Unpack[Running],
    ) -> ContinualCounter:
        """Charge for a count of events and create it; errors are those of `series`, here and below.

        With `windows`, sliding ones of so many ticks are released, and the single tick first, in place of all ticks so
        far (which is the window ``"ever"``); all at the one price. The `method` ``"gaussian"`` is for a budget whose
        filter is ``zcdp``, ``renyi`` or ``gdp``: `epsilon` is then what it would be alone, at the budget's delta, and
        squares add up. ``"correlated"`` is one such noise for all windows and ``"nested"`` a pure one; ``"auto"``
        compares the errors predicted, without these two. The keys of `running` are those of `series`: ``horizon``,
        ``confidence`` and ``name``.
        """
        given = {**_only(running, Running), "windows": windows}
        return ContinualCounter(*self._short(Count(method=method), epsilon, given))

    @_by_name
    def histogram(
        self, *, epsilon: Amount, keys: Iterable[str], **counted: Unpack[Counted]
    ) -> ContinualHistogram:
        """Charge for a count of events by key and create it; HSS takes a second to be chosen.

        The `keys` are public, and not to be taken from the events. `epsilon` and `counted` are what `counter` takes;
        ``method`` may be ``"hss"``, with public guesses ``expected_events`` and ``expected_shape``. ``most``: at how
        many of the keys one event counts at most, as `add_list` adds them.
        """
        asked = Histogram(by="key", **_own(counted, Counted))
        return ContinualHistogram(*self._short(asked, epsilon, counted, keys))

    @_by_name
    def top(
        self, *, epsilon: Amount, keys: Iterable[str], k: int, **counted: Unpack[Counted]
    ) -> ContinualTop:
        """Charge for a top list (the `k` keys with most events, and which are not told apart) and create it.

        `k` is at most 100, and no more than there are keys. `epsilon`, `keys` and `counted` are as in `histogram`;
        ``auto`` takes the method whose bands are narrower in the end.
        """
        asked = Top(by="key", k=k, **_own(counted, Counted))
        return ContinualTop(*self._short(asked, epsilon, counted, keys))

    @overload
    def sum(
        self, *, epsilon: Amount, keys: None = None, **adding: Unpack[Adding]
    ) -> ContinualSum: ...
    @overload
    def sum(
        self, *, epsilon: Amount, keys: Iterable[str], **adding: Unpack[Adding]
    ) -> ContinualSums: ...
    @_by_name
    def sum(
        self, *, epsilon: Amount, keys: Iterable[str] | None = None, **adding: Unpack[Adding]
    ) -> ContinualSum | ContinualSums:
        """Charge for a sum of a clamped number, or one for each of the `keys`, and create it.

        `epsilon` and `adding` are as in `histogram`, and ``clamp``: the least and the largest amount of an event,
        exact, public, and not taken from the events; ``step``: the grid that amounts are rounded to, 1 if not given.
        """
        by = {} if keys is None else {"by": "key"}
        asked = Sum(of="amount", **by, **_own(adding, Adding))
        given = self._short(asked, epsilon, adding, keys)
        return ContinualSum(*given) if keys is None else ContinualSums(*given)

    @_by_name
    def maximum(
        self, *, epsilon: Amount, keys: Iterable[str], **guessed: Unpack[Guessed]
    ) -> ContinualMaximum:
        """Charge for a maximum (how many events at the key that has most, and which) and create it.

        `epsilon`, `keys` and `guessed` are as in `histogram`.
        """
        asked = Maximum(by="key", **_own(guessed, Guessed))
        return ContinualMaximum(*self._short(asked, epsilon, guessed, keys))

    @_by_name
    def alerts(
        self, *, epsilon: Amount, keys: Iterable[str], threshold: int, **listed: Unpack[Listed]
    ) -> ContinualAlerts:
        """Charge for alerts per key, re-armed for ever, and create them.

        A key fires when it has had about `threshold` events since it fired last; `epsilon`, `keys` and `listed` are as
        in `histogram`.
        """
        asked = Alerts(by="key", threshold=threshold, **_own(listed, Listed))
        return ContinualAlerts(*self._short(asked, epsilon, listed, keys))

    def _short(
        self,
        statistic: Statistic,
        epsilon: Amount,
        given: Mapping[str, Any],
        keys: Iterable[str] | None = None,
    ) -> tuple[Prepared, tuple[str, ...], tuple[Window, ...]]:
        """Charge for a statistic whose rows the program fills, one entry for each key."""
        if self._privacy.unit == "user":
            raise UsageError(
                "these events have no users, so a count or a sum cannot protect users: use `series`"
            )
        running: Any = {k: value for k, value in given.items() if k in Running.__annotations__}
        entries = None if keys is None else declared(keys)
        shown = windows_from(given.get("windows", ()), running.get("horizon"))
        if shown:
            step, spans = self._clock.step, [window for window in shown if window != 1] or [1]
            statistic.keys["windows"] = [
                span if isinstance(span, str) else f"{span * step}ms" for span in spans
            ]
        with self._alone():
            schema = row_schema(entries, given.get("most", 1))
            request = self._request(statistic, epsilon, running, schema)
            prepared = self._paid(Prepared.of(request, request.checked(), entries))
        return prepared, entries or (), shown

    def _request(
        self, statistic: Statistic, epsilon: Amount | None, running: Running, schema: Schema
    ) -> Request:
        """Return what is asked for, with the series that it names, which it may be made of."""
        name, confidence = running.get("name"), running.get("confidence", "0.95")
        if name is None:
            numbers = (f"{statistic.word}-{n}" for n in count(len(self._names) + 1))
            name = next(free for free in numbers if free not in self._names)
        values = [value for value in statistic.keys.values() if isinstance(value, str)]
        inputs = [self._series[value].request for value in values if value in self._series]
        clock = {**self._file["clock"], **present({"horizon": running.get("horizon")})}
        sure = repr(float(confidence)) if isinstance(confidence, float) else confidence
        parts = {**self._file, "clock": clock, "schema": schema, "confidence": sure}
        return Request(statistic.entry(name, epsilon), parts, inputs, name in self._names)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one request at a time change the ledger; raise FailClosed in a forked process.

        And where a signal handler or a finalizer asks in the midst of another request: its charge would be lost.
        """
        self._require_own_process()
        with self._lock:
            if self._busy:
                raise FailClosed(
                    "a signal handler or a finalizer asked for a series during another request; ask "
                    "outside of handlers and finalizers"
                )
            self._busy = True
            try:
                yield
            finally:
                self._busy = False

    def _paid(self, prepared: Prepared) -> Prepared:
        """Charge the ledger for what is prepared, and return it: only then a series may be made of it."""
        # each series counts its own ticks: a window of the one may lie across two of the other, at twice the price
        if self._privacy.per is not None and self._derivations:
            raise UsageError(
                "per: a budget with windows can hold only one series, because the windows of a "
                "second series could begin at other times. Give the argument `overall` "
                "instead of `max_events` and `per`, or use a pipeline, where all series have the same ticks"
            )
        name, derivation = prepared.runs.name, prepared.chosen.derivation
        self._ledger = self._after(derivation)
        self._names.add(name)
        self._derivations[name] = derivation
        return prepared

    def _after(self, derivation: Derivation) -> Ledger:
        """Return the ledger after this charge; it is not yet the budget's."""
        entry = self._ledger.price(derivation)
        if not self._ledger.preview(entry).fits:
            more = "series" if entry.measure == DP else "pure series"
            raise BudgetRefused(
                f"{derivation.subject} does not fit: {self._state()}. One more {more} may have at "
                f"most epsilon {text(self.largest_epsilon)}. Nothing was created or charged; lower "
                "the epsilon"
            )
        return self._ledger.charge(entry)

    def _state(self) -> str:
        total = text(budget_units(self.spent + self.left))
        return f"{text(self.spent)} of {total} {self.unit} spent"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} ({self._privacy.filter}): {self._state()}>"

    def _repr_html_(self) -> str:
        rows = [(e.name, text(e.epsilon), e.measure) for e in self._ledger.entries]
        note = f"One more series may cost epsilon {text(self.largest_epsilon)}."
        return html_table(self._state(), ("series", "cost", "measure"), rows, note)


def _only(given: Mapping[str, Any], known: type[Any]) -> Mapping[str, Any]:
    """Return what is given; raise TypeError for what is no key of a typed dict."""
    if unknown := given.keys() - known.__annotations__.keys():
        raise TypeError(f"unexpected: {', '.join(sorted(unknown))}")
    return given


def _own(given: Mapping[str, Any], known: type[Any]) -> dict[str, Any]:
    """Return the statistic's keys in what a short name is given: windows are in ticks there, `most` is of events."""
    others = {*Running.__annotations__, "windows", "most"}
    return {key: value for key, value in present(_only(given, known)).items() if key not in others}
