"""Who is protected, and how much may be spent: the part `privacy:` of a pipeline file.

Rules: the unit is one event, or one user with a cap that a guard enforces: so many of their events within each public
window, or for ever. Public windows are counted from tick 0. What another part of the file has to do with it is checked
in `checks`. This file knows no series.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails

from stream_dp.accounting.conversions import best_order, renyi_budget
from stream_dp.core.guarantee import ApproxDP
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wording import meant
from stream_dp.errors import InvalidCost
from stream_dp.records.amount_units import Amount, Clamp, Step, clamp_problems, total_problems
from stream_dp.records.conditions import Where
from stream_dp.records.endpoints import Clock
from stream_dp.records.groupings import Place, decimal_text
from stream_dp.records.scalars import (
    Delta,
    Duration,
    Epsilon,
    Exact,
    FieldName,
    Frozen,
    Name,
    Order,
    PublicShare,
    Share,
    must,
    problem,
    refuse,
)

FilterName: TypeAlias = Literal[
    "pure", "optimal", "basic", "tight_approximate", "zcdp", "renyi", "gdp"
]
# never admitted more than tight_approximate; its journals are refused by name
GONE_FILTER = "approximate"
ALL_DELTA = ("basic", "optimal")  # filters of which series' own deltas may be all of delta
WITH_OWN_DELTA = (*ALL_DELTA, "tight_approximate")
MOST_EVENTS_OF_ONE = 10_000  # each of them takes its part of every epsilon
CAPS = ("per_tick", "per_key", "keys")  # beside the cap of a window
TOTAL = "total"
TOTALS, MOST_TOTALS = "totals", 8
OF_USERS = ("user", "max_events", *CAPS, "key", TOTAL, TOTALS, "per", "overall", "share")
GUESSED_OF_USERS = "users", "events", "per_tick", "keys"
GUESSES = "privacy.expect"
MOST_GUESSED = (
    20_000  # events of all typical users together, each of which `plan` counts for every other cap
)
_WRITTEN = (
    Neighbors.ADD_REMOVE,
    Neighbors.REPLACE,
)  # the clock says whether a replacement may move
_Written: TypeAlias = Literal["add_remove", "replace"]


def _written(value: object) -> object:
    if value not in _WRITTEN:
        raise ValueError(f"must be {' or '.join(_WRITTEN)}{meant(value, _WRITTEN)}")
    return value


def _filter(value: object) -> object:
    if value == GONE_FILTER:
        raise ValueError(
            "approximate was removed: use tight_approximate, which admits all that approximate "
            "admitted, and more, under the same guarantee. To keep the journal of a pipeline "
            "that ran with approximate, use the version that wrote the journal"
        )
    return value


Cap: TypeAlias = Annotated[int, Field(ge=1, le=MOST_EVENTS_OF_ONE)]


class Analyst(Frozen):
    """One who may create live series, from a ledger that is paid for in full at the start.

    With `where`, only series of records that pass it, so that nobody else's events pay for them.
    """

    name: Name
    epsilon: Epsilon
    where: Where = ()


class SharedTotal(Frozen):
    """How much a user may add of the field `of`, each value within `clamp` and on a grid of `step`: `at_most` in each
    window of the cap, or for ever, to all series with `shared_total` together, decided before any series' `where`.
    """

    of: FieldName
    clamp: Clamp
    at_most: Exact
    step: Step = Fraction(1)

    @model_validator(mode="after")
    def _sound(self) -> "SharedTotal":
        problems = clamp_problems(self.clamp, self.step)
        if self.clamp[0] < 0:
            why = "must not be below 0: negative amounts would make room for more amounts again and again"
            problems.append(problem(("clamp", 0), why))
        problems += [problem(("at_most",), why) for why in total_problems(self.at_most, self.step)]
        refuse(problems)
        return self

    @property
    def amount(self) -> Amount:
        return Amount(self.of, *self.clamp, self.step)

    @property
    def units(self) -> int:
        """How many steps a user may add."""
        return int(self.at_most / self.step)

    def __str__(self) -> str:
        return f"{decimal_text(self.at_most)} of {self.of}"


Guessed: TypeAlias = Annotated[int, Field(ge=1, le=10**15)]
Positive: TypeAlias = Annotated[Exact, must(lambda value: value > 0, "must be greater than 0")]


def _typical(value: object) -> object:
    return (value,) if isinstance(value, int | str) else value


def _by_window(value: object) -> object:
    return value if isinstance(value, Mapping) else {"": value}


ByWindow: TypeAlias = Annotated[
    dict[str, Exact],
    BeforeValidator(_by_window, json_schema_input_type=Exact | dict[str, Exact]),
]


class Guesses(Frozen):
    """Public guesses by which `plan` judges series and compares caps; they touch neither data nor guarantee, and no
    fingerprint.

    `records`: how many records count in a tick, on average. Of users that follows from `events`: how many each of some
    typical users has in a window of the cap, or for ever under `overall`; all of them are as many of the `users`. A
    user's events come `per_tick` in a tick, and have `keys` values of the key. By series: `passing`, the share of the
    records that use a cap that its `where` takes; of a sum typical `amounts`; and `typical`, what it shows itself, by
    window where it has several.
    """

    records: Positive | None = None
    users: Guessed | None = None
    events: Annotated[
        tuple[Guessed, ...],
        BeforeValidator(_typical, json_schema_input_type=Guessed | tuple[Guessed, ...]),
        Field(max_length=1000),
    ] = ()
    per_tick: Guessed = 1
    keys: Guessed = 1
    passing: dict[Name, Share] = Field(default_factory=dict)
    amounts: dict[Name, Exact] = Field(default_factory=dict)
    typical: dict[Name, ByWindow] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _countable(self) -> "Guesses":
        if (self.users is None) != (not self.events):
            given, other = ("users", "events") if self.users else ("events", "users")
            refuse([problem((other,), f"is missing: {given} says half of how many records count")])
        if self.users is not None and self.records is not None:
            refuse([problem(("records",), "follows from users and events: leave it out")])
        if sum(self.events) > MOST_GUESSED:
            why = f"are more than {MOST_GUESSED:,} events together: give fewer typical users, or smaller ones"
            refuse([problem(("events",), why)])
        return self

    @property
    def per_key(self) -> int:
        """How many events of a typical user have the same value of the key."""
        return math.ceil(Fraction(sum(self.events), len(self.events) * self.keys))


def _not_taken(name: FilterName) -> set[str]:
    """Return the keys that a file leaves out with this filter."""
    keys = set() if name == "renyi" else {"order"}
    if name == "pure":
        keys.add("delta")
    if name not in WITH_OWN_DELTA:
        keys.add("first_block_delta")
    return keys if name == "tight_approximate" else keys | {"own_delta"}


class Privacy(Frozen):
    """Who is protected, and how much may be spent on all series together, those asked later included.

    `filter` admits every charge: where a delta is granted and the unit is one event, `optimal` unless another is named;
    without a delta, `pure`. `order` is that of a renyi filter, by default `best_order`. `moves`: on a replay clock an
    event's own time is part of its content, so a replacement may move to another tick, unless the file vouches that
    none does.

    Of `delta`, `own_delta` is what the series' own deltas may come to: all of it under the basic and the optimal
    filter; under tight_approximate the rest is the theorem's. Of that, `first_block_delta` is granted to the series
    of the file together, for the optimal composition of them and for those that are not pure.

    `unit` user protects all events together of whoever is named in the field `user`: at most `max_events` of them in
    each public window of length `per` count, so that (user, window) is protected; or `overall` for ever, and the user.
    Beside either, at most `per_tick` of a user's events in each tick count; of each value of the field `key` at most
    `per_key`, and of at most so many different values (`keys`) in each public window. An event that one cap excludes
    uses no other cap. What the others add to series with `shared_total` is a user's `total` at most, of several amounts
    of `totals` each its own. Where not all can be remembered, only that `share` of users counts, chosen by a keyed
    hash.
    `expect` has guesses by which `plan` compares other caps.
    """

    unit: Literal["event", "user"] = "event"
    user: FieldName | None = None
    max_events: Cap | None = None
    per_tick: Cap | None = None
    key: FieldName | None = None
    per_key: Cap | None = None
    keys: Cap | None = None
    total: SharedTotal | None = None
    totals: Annotated[tuple[SharedTotal, ...], Field(max_length=MOST_TOTALS)] = ()
    per: Duration | None = None
    overall: Cap | None = None
    share: PublicShare | None = None
    expect: Guesses | None = None
    neighbors: Annotated[Neighbors, BeforeValidator(_written, json_schema_input_type=_Written)] = (
        Neighbors.ADD_REMOVE
    )
    moves: Literal["any_tick", "within_tick"] = "any_tick"
    epsilon: Epsilon
    delta: Delta = Fraction(0)
    first_block_delta: Delta = Fraction(0)
    own_delta: Delta | None = None
    filter: Annotated[FilterName, BeforeValidator(_filter, json_schema_input_type=FilterName)] = (
        "pure"
    )
    order: Order | None = None
    analysts: Annotated[tuple[Analyst, ...], Field(max_length=1000)] = ()

    @model_validator(mode="after")
    def _one_filter(self) -> "Privacy":
        if self.delta and self.unit == "event" and "filter" not in self.model_fields_set:
            object.__setattr__(self, "filter", "optimal")  # frozen, and nobody has seen it yet
        problems = self._user_problems()
        if (self.filter == "pure") != (self.delta == 0):
            wrong = (
                "a pure filter has no delta: name another filter, or leave delta out"
                if self.delta
                else f"filter {self.filter} needs a delta greater than 0, such as 1e-9"
            )
            problems.append(problem(("delta",), wrong))
        elif self.filter == "renyi":
            order = self.order or best_order(ApproxDP(self.epsilon, self.delta))
            object.__setattr__(self, "order", order)
            problems += self._order_problems(order)
        problems += self._own_delta_problems()
        if self.filter != "renyi" and self.order is not None:
            problems.append(problem(("order",), f"filter {self.filter} has no order: leave it out"))
        names = [analyst.name for analyst in self.analysts]
        for at, name in enumerate(names):
            if name in names[:at]:
                why = f"an analyst '{name}' is already there"
                problems.append(problem(("analysts", at, "name"), why))
        refuse(problems)
        return self

    def under(self, name: FilterName) -> "Privacy | None":
        """Return the same with another filter and without the keys that it does not take; None: it does not fit."""
        return self._with({"filter": name}, _not_taken(name))

    def granting(self, delta: Fraction) -> "Privacy | None":
        """Return the same with a filter and a delta that Gaussian noise takes; None where it has a delta already."""
        return None if self.delta else self._with({"filter": "zcdp", "delta": delta}, ())

    def capped(self, changes: Mapping[str, Any]) -> "Privacy | None":
        """Return the same with other caps (None: without one), and without those that they leave nothing to do."""
        caps = {**{name: getattr(self, name) for name in CAPS}, **changes}
        most = changes.get(self.cap_name) or self.cap
        idle = {name for name in CAPS if caps[name] is None or caps[name] >= most}
        return self._with(changes, {*idle, "key"} if idle >= {"per_key", "keys"} else idle)

    def _with(self, changes: Mapping[str, object], without: Collection[str]) -> "Privacy | None":
        kept = {**{key: getattr(self, key) for key in self.model_fields_set}, **changes}
        try:
            return Privacy.model_validate({k: v for k, v in kept.items() if k not in without})
        except ValidationError:
            return None

    @property
    def cap_name(self) -> str:
        return "max_events" if self.overall is None else "overall"

    @property
    def guarded(self) -> tuple[str, ...]:
        """The fields that the guard in front of all series reads of each record, beside its time."""
        names = (self.user, self.key, *(total.of for total in self.shared))
        return tuple(name for name in names if name is not None)

    @property
    def shared(self) -> tuple[SharedTotal, ...]:
        """The totals that series share, of an amount each."""
        return self.totals if self.total is None else (self.total,)

    def total_of(self, field: FieldName | None) -> SharedTotal | None:
        return next((total for total in self.shared if total.of == field), None)

    @property
    def cap(self) -> int:
        """How many events of one unit count at most: in one public window, or for ever."""
        return (self.max_events if self.overall is None else self.overall) or 1

    def most_events(self, clock: Clock) -> int:
        """How many events of one unit count at most by all caps together: min(k, a T, m b), at most a in each of T
        ticks, and b of each of m keys.
        """
        caps, ticks = [self.cap], self.window_ticks(clock)
        if self.per_tick is not None and ticks is not None:
            caps.append(self.per_tick * ticks)
        if self.per_key is not None and self.keys is not None:
            caps.append(self.keys * self.per_key)
        return min(caps)

    def window_ticks(self, clock: Clock) -> int | None:
        """How many ticks a public window of the cap has; None: it holds for ever, or the unit is one event."""
        return None if self.per is None else self.per // clock.step

    @property
    def stated_delta(self) -> Fraction:
        """The delta at which a series that is not pure has its epsilon; 0 where the filter admits none."""
        return self.first_block_delta if self.filter in WITH_OWN_DELTA else self.delta

    @property
    def block_delta(self) -> Fraction:
        """The delta at which the guarantee of the file's series together is stated."""
        return self.first_block_delta or (self.delta if self.filter == "optimal" else Fraction(0))

    @property
    def by_rho(self) -> bool:
        """Whether the filter adds up what Gaussian noise costs, and charges no delta for it."""
        return bool(self.delta) and self.filter not in WITH_OWN_DELTA

    @property
    def admitted_delta(self) -> Fraction:
        """What the deltas of everything admitted may come to; the rest of `delta` is the filter's own theorem's."""
        if self.filter in ALL_DELTA:
            return self.delta
        return self.first_block_delta if self.own_delta is None else self.own_delta

    def _own_delta_problems(self) -> list[InitErrorDetails]:
        given = [n for n in ("first_block_delta", "own_delta") if getattr(self, n)]
        if self.filter not in WITH_OWN_DELTA:
            why = f"filter {self.filter} admits no series with a delta: leave it out, or name filter basic"
            return [problem((name,), why) for name in given]
        if self.filter in ALL_DELTA and self.own_delta is not None:
            wrong = f"is all of delta under filter {self.filter}: leave it out"
            return [problem(("own_delta",), wrong)]
        if self.first_block_delta > self.admitted_delta:
            whose = "delta" if self.filter in ALL_DELTA else "own_delta"
            return [problem(("first_block_delta",), f"must not be greater than {whose}")]
        if self.filter not in ALL_DELTA and self.admitted_delta >= self.delta > 0:
            wrong = f"must be less than delta: the rest pays for filter {self.filter}"
            return [problem((given[-1],), wrong)]
        return []

    def _order_problems(self, order: Fraction) -> list[InitErrorDetails]:
        try:
            renyi_budget(ApproxDP(self.epsilon, self.delta), order)
        except InvalidCost:
            enough = 2 + math.ceil(math.log(1 / self.delta) / self.epsilon)
            wrong = f"is too small for this epsilon and delta: {enough} is enough"
            return [problem(("order",), wrong)]
        return []

    def _user_problems(self) -> list[InitErrorDetails]:
        if self.unit == "event":
            why = "belongs to unit user: say unit: user, or leave it out"
            guessed = set() if self.expect is None else self.expect.model_fields_set
            places: list[Place] = [(k,) for k in OF_USERS if getattr(self, k) not in (None, ())]
            places += [("expect", k) for k in GUESSED_OF_USERS if k in guessed]
            return [problem(place, why) for place in places]
        problems = []
        if self.user is None:
            wrong = "unit user needs the field that says whose event it is, such as user: customer"
            problems.append(problem(("user",), wrong))
        if self.neighbors is Neighbors.REPLACE:
            wrong = (
                "neighbours differ in all events of a user: write add_remove. One user in place of another "
                "is two steps of it, so half the epsilon covers that too"
            )
            problems.append(problem(("neighbors",), wrong))
        return [*problems, *self._totals_problems(), *self._cap_problems()]

    def _totals_problems(self) -> Iterator[InitErrorDetails]:
        if self.totals and self.total is not None:
            yield problem((TOTALS,), "cannot stand beside total: add that to the list")
        if len(self.totals) == 1:
            yield problem((TOTALS,), f"has one total: write it as {TOTAL}, without a list")
        names = [total.of for total in self.totals]
        for at, name in enumerate(names):
            if name in names[:at]:
                why = (
                    f"{name} has a total already: each amount has one, and users add at most as much to all series "
                    "that share it"
                )
                yield problem((TOTALS, at, "of"), why)

    def _cap_problems(self) -> list[InitErrorDetails]:
        problems = self._window_problems()
        for name in CAPS if not problems else ():
            most = getattr(self, name)
            if most is not None and most >= self.cap:
                wrong = (
                    f"is never reached, because {self.cap} count in all: leave it out, or give less"
                )
                problems.append(problem((name,), wrong))
        by_key = self.per_key is not None or self.keys is not None
        if by_key and self.key is None:
            wrong = "per_key and keys need a field whose values they cap, such as key: country"
            problems.append(problem(("key",), wrong))
        elif self.key is not None and not by_key:
            wrong = (
                "is the field whose values per_key and keys cap: give one of them, or leave it out"
            )
            problems.append(problem(("key",), wrong))
        elif self.key is not None and self.key == self.user:
            wrong = f"{self.key} is the field of privacy.user, so a user has only one value: name another field"
            problems.append(problem(("key",), wrong))
        return problems

    def _window_problems(self) -> list[InitErrorDetails]:
        if self.overall is not None:
            wrong = "overall is the cap for ever: leave it out, or leave overall out"
            given = [k for k in ("max_events", "per") if getattr(self, k) is not None]
            return [problem((key,), wrong) for key in given]
        if self.max_events is None and self.per is None:
            wrong = (
                "unit user needs a cap, beyond which events of one user do not count: max_events: 20 and per: 1d, "
                "or overall: 200"
            )
            return [problem(("max_events",), wrong)]
        if self.max_events is None:
            wrong = "is missing: say how many events of one user count in each window, such as max_events: 20"
            return [problem(("max_events",), wrong)]
        if self.per is None:
            wrong = "is missing: give the length of the windows, such as per: 1d, or overall instead of max_events"
            return [problem(("per",), wrong)]
        return []
