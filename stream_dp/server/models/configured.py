"""What is public of a pipeline: its configuration, the plan with its derivation, the budget."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from stream_dp.journal.release import Shape
from stream_dp.server.models.answer import (
    Absent,
    Amount,
    Answer,
    Confidence,
    Decimal,
    Documented,
    HalfWidth,
    Tick,
    Time,
)

_Unit = Annotated[str, Field(examples=["event", "user"])]
_Neighbors = Annotated[str, Field(examples=["add_remove", "replace", "replace_any_tick"])]
_Condition = Annotated[
    str | Absent,
    Field(
        description="What the guarantee assumes, as the pipeline file vouches for it; missing if it assumes nothing.",
        examples=["a replacement keeps its tick (moves: within_tick)"],
    ),
]


class UsersEntry(Answer):
    """The protected unit, if it is a user: all events of one user together, of which a limited number counts."""

    name: Annotated[str, Field(examples=["(user, day)", "user, for ever"])]
    """The unit in short."""
    field: Annotated[str, Field(examples=["customer"])]
    """The field that says whose a record is."""
    max_events: Annotated[int, Field(ge=1)]
    """How many events of one user count, in each public window."""
    per: Annotated[str, Field(examples=["1d"])] | None
    """The length of a public window, counted from tick 0; null: for ever."""
    per_tick: Annotated[int, Field(ge=1)] | Absent = None
    """How many of them count in each tick; absent where there is no such cap."""
    key: str | Absent = None
    """The field that `per_key` and `keys` go by; absent where neither is there."""
    per_key: Annotated[int, Field(ge=1)] | Absent = None
    """How many of them count of each value of `key`; absent where there is no such cap."""
    keys: Annotated[int, Field(ge=1)] | Absent = None
    """Of how many different values of `key` they count; absent where there is no such cap."""
    total: Annotated[str, Field(examples=["600 of amount"])] | Absent = None
    """How much they add to all series with `shared_total` together; absent where there is no such cap."""


class ClockEntry(Answer):
    """The tick grid: tick k begins k steps after `start`."""

    kind: Annotated[str, Field(examples=["wall", "replay"])]
    """Whether ticks end by the wall clock or by the marks of a replay."""
    start: Time | None
    """When tick 0 begins, UTC; null where a wall clock declares no start."""
    step: Annotated[float, Field(gt=0, examples=[3600.0])]
    """The length of a tick in seconds."""
    delay: Annotated[float, Field(gt=0, examples=[0.5])] | None
    """How long after its end a tick is published, in seconds; null on a replay clock."""
    horizon: Annotated[int, Field(ge=1)] | None
    """The number of ticks after which the pipeline ends; null: it does not."""
    zone: Annotated[str | Absent, Field(examples=["Europe/Zurich"])] = None
    """The time zone of the records' times, by its IANA name; missing: UTC. All times of the API are in UTC."""


class SeriesEntry(Answer):
    """A series that runs, of the file or created since."""

    name: str
    version: Annotated[int | Absent, Field(ge=2)] = None
    """Which series of this name it is, if a changed file gave the name another definition; missing: the first."""
    statistic: Annotated[str, Field(examples=["count", "histogram", "maximum", "alerts"])]
    """Its kind, as in the pipeline file."""
    by: str | None
    """The field whose values each have an entry of their own; null: one entry for all."""
    shape: Shape
    """Which form its releases have: `value` (scalar), `values` (histogram), `fired` (flags) or `windows`."""
    windows: Annotated[tuple[str, ...] | Absent, Field(examples=[["tick", "1h", "24h"]])] = None
    """The names of its windows, as they are shown: the single tick first; missing if it has none."""
    nonnegative: bool | Absent = None
    """True if its true numbers are never below 0, whatever a band shows; missing if they can be."""
    about: Annotated[str, Field(examples=["maximum by destination so far, with its name"])]
    """What is released, in a few words."""
    error_unit: Annotated[
        str | Absent, Field(examples=["events", "of amount", "events in rank"])
    ] = None
    """The unit of its predicted errors; missing if none is predicted."""
    title: Annotated[str | Absent, Field(examples=["Departures"])] = None
    """Its title; like `description` and `unit`, missing unless the operator or the analyst gave it."""
    description: Annotated[
        str | Absent, Field(examples=["Scheduled departures, by local hour."])
    ] = None
    """What readers should know of it; plain text."""
    unit: Annotated[str | Absent, Field(examples=["flights", "minutes"])] = None
    """What its numbers count or measure."""
    where: Annotated[tuple[str, ...] | Absent, Field(examples=[["delay at least 15"]])] = None
    """The conditions that a counted record meets, all of them; missing if every record counts."""
    meaning: (
        Annotated[str, Field(examples=["at least about 100 {band} events since the one before"])]
        | None
    )
    """What a flag means, `{band}` standing for the release's band; null without flags."""
    domain: tuple[str, ...] | Absent = None
    """The values of `by`, in order; missing if `by` is null."""
    most: Annotated[int, Field(ge=2)] | Absent = None
    """In how many entries one event counts at most, if `by` is a list; missing if that is one."""
    parameters: Annotated[dict[str, int | str], Field(examples=[{"threshold": 100}])]
    """The further keys of the pipeline file that show in its releases, with their values."""


class Pipeline(Answer):
    """The public configuration and the series that run."""

    name: str
    public_data: bool
    """Whether the source is declared public: only then are exact figures shown anywhere."""
    unit: _Unit
    """What is protected: one of these."""
    users: UsersEntry | Absent = None
    """What a user is; missing if the unit is one event."""
    neighbors: _Neighbors
    """Which streams are neighbours: those that differ by one unit added or removed, or replaced."""
    condition: _Condition = None
    fingerprint: str
    """A digest of all that touches data or guarantee; another one means another pipeline."""
    clock: ClockEntry
    over: bool
    """Whether all ticks up to the clock's horizon are released: then nothing more is counted or can be asked."""
    series: tuple[SeriesEntry, ...]
    """Those of the file first."""


class ConditionEntry(Answer):
    """A side condition of a rule, checked."""

    name: str
    holds: bool
    why: str


class GuaranteeEntry(Answer):
    """A guarantee: the parameters of its measure by their names, and the neighbours it holds for."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Amount]
    measure: Annotated[str, Field(examples=["pDP", "zCDP", "RDP", "GDP"])] | Absent = None
    """Missing for (epsilon, delta)-DP."""
    epsilon: Amount | Absent = None
    delta: Amount | Absent = None
    rho: Amount | Absent = None
    alpha: Amount | Absent = None
    mu: Amount | Absent = None
    neighbors: _Neighbors
    group: Annotated[int, Field(ge=2)] | Absent = None
    """It holds for so many units together; missing for one."""
    users: Annotated[str, Field(examples=["users of at most 20 events for ever"])] | Absent = None
    """It holds for all events of one user that count together; missing for one event."""


class AlternativeEntry(Answer):
    """A rule that was tried and not taken: what it would give, or why it does not apply."""

    rule: str
    source: str
    guarantee: GuaranteeEntry | Absent = None
    refused: str | Absent = None


class DerivationEntry(Answer):
    """A node of a derivation: a guarantee that follows by a rule from those of the premises."""

    subject: str
    """What the guarantee is of."""
    rule: Annotated[str, Field(examples=["concurrent composition of fixed mechanisms"])]
    source: Annotated[str, Field(examples=["[HSV] Thm 4.10"])]
    """Where the rule is proved."""
    guarantee: GuaranteeEntry
    conditions: tuple[ConditionEntry, ...]
    alternatives: tuple[AlternativeEntry, ...]
    premises: tuple["DerivationEntry", ...]
    """Empty for a proven mechanism."""


class PredictedError(Answer):
    """The error to expect at a tick, from the plan alone: no data was read for it."""

    tick: Tick
    error: HalfWidth
    confidence: Confidence


class PlannedWindow(Answer):
    """The error to expect of one window of a series."""

    window: Annotated[str, Field(examples=["24h"])]
    predicted_error: tuple[PredictedError, ...]


class ListEntry(Answer):
    """A list field that series group by."""

    field: str
    entries: Annotated[int, Field(ge=2)]
    """How many entries its rows have, `other` included."""
    most: Annotated[int, Field(ge=1)]
    """How many of them one event sets, at most."""


class FalseAlarmEntry(Answer):
    """How likely an alarm is a false one, from the specification alone."""

    name: str
    """The series, or the watch of a monitor."""
    usual: int
    """The usual count or sum, at which an alarm is a false one."""
    chance: Annotated[float, Field(ge=0, le=1, examples=[0.002])]
    """The chance, at most, that it (if `keyed`: one of its keys) fires on a day while its count stays at `usual`."""
    keyed: bool
    """Whether it has a count for each of several keys."""
    of: str | Absent = None
    """The field whose sum it looks at; missing if it looks at a count."""


class BoundsEntry(Answer):
    """Why the bounds in the releases of a series that lags behind hold, and a bound for all of them at once."""

    band: Literal["proven", "calibrated"]
    """By a proof for all data that does not depend on the noise, or by a search for the worst data."""
    ends: Literal["proven", "calibrated"] | None
    """The same of `low` and `high`."""
    at_once: HalfWidth
    """Proven by `theorem`: no error up to `tick` is larger, while at most `intervals` intervals close."""
    tick: Tick
    intervals: Annotated[int, Field(ge=0)]
    """As many as are expected."""
    confidence: Confidence
    theorem: str


class VerdictEntry(Documented):
    """Whether a number is worth its price: its half-width beside what it typically is by public guesses."""

    series: str
    window: str | Absent = None
    """The window; missing where the series has none."""
    verdict: Literal["useful", "rough", "noise"] | None
    """`useful`: the band is at most a fifth of the number; `noise`: at least as large; null: not known."""
    missing: Annotated[str | Absent, Field(examples=["privacy.expect.records"])] = None
    """The guess without which there is no verdict."""
    typical: float | Absent = None
    band: float | Absent | None = None
    """The half-width; null where it has no end."""
    of: str | Absent = None
    """Which number `typical` is, where that is not plain."""
    false_alarm: float | Absent = None
    """The chance of a false alarm per key and day."""


class PlannedSeries(Answer):
    """A series with its mechanism, its price (the parameters of its measure by name) and its error."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Amount]
    name: str
    mechanism: str
    why: str
    """Why this mechanism; empty if there is no choice."""
    epsilon: Amount | Absent = None
    delta: Amount | Absent = None
    predicted_error: tuple[PredictedError, ...]
    """For a series with windows: of the single tick."""
    windows: tuple[PlannedWindow, ...] | Absent = None
    """The errors of each window; missing without windows."""
    false_alarms: tuple[FalseAlarmEntry, ...] | Absent = None
    """For alerts, and for each watch of a monitor (of very many only the first); missing if nothing can fire."""
    verdicts: tuple[VerdictEntry, ...] | Absent = None
    """What each window is worth by the public guesses of the pipeline file; missing without guesses."""
    bounds: BoundsEntry | Absent = None
    """For what lags behind (an HSS); missing for all others."""


class Promise(Answer):
    """What holds for everything, live series included: the budget of the one filter."""

    epsilon: Amount
    delta: Amount
    filter: str
    derivation: DerivationEntry


class Plan(Answer):
    """The guarantee with its reasons; `epsilon`, `delta` and `derivation` are of the file's series alone."""

    epsilon: Amount
    delta: Amount
    unit: _Unit
    users: UsersEntry | Absent = None
    """What a user is; missing if the unit is one event."""
    neighbors: _Neighbors
    condition: _Condition = None
    lists: tuple[ListEntry, ...] | Absent = None
    """The list fields that the file's series group by; missing if there are none."""
    horizon: Annotated[int, Field(ge=1)] | None
    """The number of ticks; null: endless."""
    series: tuple[PlannedSeries, ...]
    derivation: DerivationEntry
    promise: Promise


class Account(Answer):
    """Epsilons of the budget, or of an analyst's ledger."""

    total: Decimal
    spent: Decimal
    """In the budget: what the filter has added up of its `capacity`, in its `unit`."""
    left: Decimal
    """The largest epsilon (delta 0) that one more series may cost."""


class Granted(Answer):
    """The delta of the budget; the part that the filter's own theorem needs is neither spent nor left."""

    total: Decimal
    spent: Decimal
    """What the series' own deltas came to."""
    left: Decimal
    """What is left for those of further series."""


class AnalystEntry(Answer):
    """An analyst's ledger, paid for in full at the start."""

    name: str
    epsilon: Account
    records: Annotated[str, Field(examples=["country = DE"])]
    """The only records that the series of the analyst may see; empty: every record."""


class PriceEntry(Answer):
    """What a series that runs costs."""

    name: str
    epsilon: Decimal
    records: Annotated[str | Absent, Field(examples=["amount at least 500"])] = None
    """Of a live series: which records it sees and pays for; empty: every record."""
    frees: bool | Absent = None
    """Of a live series: whether its halt gives its price back, to later ticks; missing for the file's own series."""


class OdometerEntry(Answer):
    """What is lost so far; `claim` says in which sense."""

    bound: Decimal | None
    """An epsilon; null: no finite one holds."""
    delta: Decimal
    claim: str


class Budget(Answer):
    """What was spent and what is left."""

    scope: Literal["file"] | Absent = None
    """`file`: of the file's series alone, because this server knows no price of a live one; missing: of all series."""
    epsilon: Account
    delta: Granted
    filter: str
    """The one filter that every charge goes through."""
    unit: Annotated[str, Field(examples=["epsilon", "rho"])]
    """What the filter adds up: the unit of `epsilon.spent`, `capacity` and `peak`."""
    capacity: Decimal
    """What the filter may add up, in `unit`."""
    peak: Decimal
    """The most that was ever spent at one time, in `unit`."""
    heaviest: Annotated[str, Field(examples=["country = DE and amount at least 100"])]
    """The records for which `epsilon.spent` was spent; all others meet no more. Empty: all records meet the same."""
    frees: bool
    """Whether the halt of a live series gives its price back, to later ticks."""
    odometer: OdometerEntry | Absent = None
    analysts: tuple[AnalystEntry, ...]
    series: tuple[PriceEntry, ...]
