"""Series that come and go while the engine runs: what can be asked, by whom, what is sent, and what is answered.

Rules: these models describe bodies and messages for readers of the OpenAPI document. The engine decides what they
mean, and its recorded answers leave as the bytes that they are. In answers `start` is the first tick that a series
sees and `end` the first that it does not see; their times are null where they are not known yet.
"""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from stream_dp.server.models.answer import (
    Absent,
    Answer,
    Confidence,
    Decimal,
    Documented,
    HalfWidth,
    Refusal,
    Tick,
    Time,
)
from stream_dp.server.models.configured import (
    Account,
    DerivationEntry,
    FalseAlarmEntry,
    VerdictEntry,
)


class AnalystMessage(Documented):
    """A message without an envelope: the token replaces the signature. Further keys depend on `do`."""

    model_config = ConfigDict(extra="allow")
    id: Annotated[str, Field(pattern="^[A-Za-z0-9_.-]{1,64}$", examples=["c1f"])]
    """Never used for another message; the same message sent again gets the same answer."""
    analyst: str | Absent = None
    """Whose ledger pays; empty: the pipeline's own, which needs the operator's token."""
    until: Time
    """When it expires, 24 hours from now at most."""
    do: Annotated[str, Field(examples=["ask"])]
    """What to do: create, preview, halt, list, ask, watch or unwatch."""


class AskParameters(Documented):
    """What to ask: all keys of a release, some or a range, and a window; of a monitor, a watch at a threshold."""

    keys: Annotated[tuple[str, ...] | Absent, Field(min_length=1)] = None
    """These keys."""
    from_: Annotated[str | Absent, Field(alias="from")] = None
    """The first key of a range, in the order of the series."""
    to: str | Absent = None
    """The last key of a range."""
    window: str | Absent = None
    """One window of a series with windows."""
    watch: str | Absent = None
    """The watch of a monitor."""
    threshold: int | Absent = None
    """The threshold to compare with."""


class MessageRefusal(Refusal):
    """Why a message was refused; it changed nothing."""

    kind: Annotated[str, Field(examples=["budget"])]
    """What is wrong: usage, unknown, forbidden, derivation or budget."""


class MessageAnswer(Answer):
    """The answer to a message, on record: the same bytes for ever. It has one of `answer` and `refused`."""

    v: int
    """The version of this form: 1."""
    number: Annotated[int, Field(ge=1)]
    """Its number among all answers of the pipeline."""
    id: str
    do: str | Absent = None
    places: tuple[int, ...] | Absent = None
    """The places of the message in the queue, if it came by the queue."""
    tick: Tick | None
    """The last tick before it was done; null before the first."""
    end: Time
    """When that tick ended."""
    answer: dict[str, Any] | Absent = None
    """What is answered; docs/messages.md says what, for each `do`."""
    refused: MessageRefusal | Absent = None
    """Why nothing was done."""


NOISE = (
    "mostly noise: a false alarm per key and day has a chance of at most 58 %, and the band of ± 56 is not less than "
    "the threshold. A threshold of 120 or epsilon 0.25 is enough"
)


class Definition(Documented):
    """A series, as an entry of `series:` in the pipeline file; further keys (`by`, `where`, ...) as there."""

    model_config = ConfigDict(extra="allow")
    name: str
    """A name that no series of this pipeline ever had."""
    statistic: str
    epsilon: Annotated[float | str, Field(examples=[0.1, "0.1"])]
    """What it may cost; a number or an exact decimal string."""


class Question(Documented):
    """A series to be priced, with either `epsilon` or `error`; further keys as in `Definition`."""

    model_config = ConfigDict(extra="allow")
    name: str
    """A name that no series of this pipeline ever had."""
    statistic: str
    epsilon: Annotated[float | str | Absent, Field(examples=[0.1, "0.1"])] = None
    """What it may cost; a number or an exact decimal string."""
    error: Annotated[float | str | Absent, Field(examples=[25])] = None
    """The `error` that its preview shall have: it is priced at the least epsilon that reaches it."""


EXAMPLE = {
    "name": "large",
    "statistic": "count",
    "where": [{"field": "amount", "at_least": 500}],
    "epsilon": 0.1,
}
"""A definition."""

PRICED = {**{key: EXAMPLE[key] for key in ("name", "statistic", "where")}, "error": 25}
"""A question for the price of an error."""


class Created(Answer):
    """A series that was charged, is durable and runs."""

    name: str
    start: Tick
    start_time: Time | None
    epsilon: Decimal
    """What it costs."""
    rule: str
    """The rule by which it was charged."""
    left: Decimal
    """The largest epsilon that one more series may cost the same ledger."""
    error: HalfWidth
    """The expected half-width at tick `error_tick`; with windows, of the window where it is largest."""
    error_tick: Tick
    """The last tick, or the farthest that is predicted."""
    confidence: Confidence
    """The probability with which `error` holds."""
    supposing: Annotated[str | Absent, Field(examples=["for 1,000 records"])] = None
    """What `error` assumes or is measured in, if that is not obvious; else missing."""


class Halted(Answer):
    """A series that was ended."""

    name: str
    end: Tick
    end_time: Time | None
    records: Annotated[str | Absent, Field(examples=["country = DE"])] = None
    """Which records it saw; empty: every record. Missing in answers on record of former versions, as `freed` is."""
    freed: Decimal | Absent = None
    """How much more one more series on `records` may cost the same ledger, from `end` on."""
    largest: Decimal | Absent = None
    """The largest epsilon that one more series on `records` may cost, from `end` on."""
    left: Decimal
    """The largest epsilon that one more series on any records may cost the same ledger, from `end` on."""


class HaltPreview(Answer):
    """What ending a series would give back; nothing was changed."""

    name: str
    end: Tick
    """The first tick that it would not see, at the earliest: from then on budget is free again."""
    end_time: Time | None
    records: Annotated[str, Field(examples=["country = DE"])]
    """Which records it sees; empty: every record."""
    freed: Decimal
    """How much more one more series on `records` may cost the same ledger then; 0 where a halt gives nothing back."""
    largest: Decimal
    """The largest epsilon that one more series on `records` may cost then."""
    freed_everywhere: Decimal
    """How much more one more series on any records may cost; less than `freed` where other records meet more."""
    left: Decimal
    """The largest epsilon that one more series on any records may cost then."""
    budget: Decimal
    """The whole budget of the ledger that paid."""


class Preview(Answer):
    """What creating a series would do now; nothing was changed."""

    fits: bool
    """Whether the budget covers it."""
    asked: Decimal
    """The epsilon it would cost."""
    spent: Decimal
    """What the ledger has spent, in `unit`."""
    unit: Annotated[str, Field(examples=["epsilon", "rho"])]
    """What the filter adds up."""
    left: Decimal
    """The largest epsilon that one more series may cost."""
    largest: Decimal
    """The largest epsilon at which this one would fit."""
    after: Decimal | Absent = None
    """The largest epsilon that one more series may cost once this one runs; missing if it does not fit."""
    start: Tick | Absent = None
    """The first tick that it would see, at the earliest."""
    start_time: Time | Absent = None
    error: HalfWidth
    """The expected half-width at tick `error_tick`; with windows, of the window where it is largest."""
    error_tick: Tick
    """The last tick, or the farthest that is predicted."""
    confidence: Confidence
    """The probability with which `error` holds."""
    supposing: Annotated[str | Absent, Field(examples=["for 1,000 records"])] = None
    """What `error` assumes or is measured in, if that is not obvious; else missing."""
    error_unit: Annotated[str, Field(examples=["events", "of amount", "events in rank"])]
    """What `error` is measured in: the series' `unit`, or words."""
    windows: Annotated[dict[str, HalfWidth] | Absent, Field(examples=[{"tick": 17, "24h": 61}])] = (
        None
    )
    """The half-width of each window at that tick, of which `error` is the largest; missing without windows."""
    verdicts: tuple[VerdictEntry, ...] | Absent = None
    """What each window is worth by the public guesses of the pipeline file; missing without guesses."""
    false_alarms: tuple[FalseAlarmEntry, ...] | Absent = None
    """For alerts, and for each watch of a monitor (of very many only the first); missing if nothing can fire."""
    noise: Annotated[str | Absent, Field(examples=[NOISE])] = None
    """If it would fire mostly by noise: why, and what would avoid that. It is then created only with `accept_noise`."""
    derivation: DerivationEntry
    """Why it costs that."""


class Watch(Answer):
    """A watch of a monitor: one that is there, or one of the last that were ended by message."""

    name: str
    where: tuple[dict[str, Any], ...] | Absent = None
    """Which events it counts, as in the pipeline file; shown to whoever paid, and to all if the main ledger pays."""
    by: str | Absent = None
    """What has counts of its own: the values of a field, or words (`amount in bins`); missing if there is one count."""
    above: int | Absent = None
    """It fires when its count reaches this; or `below`."""
    below: int | Absent = None
    """It fires when its count stays under this."""
    over: Annotated[str, Field(examples=["since_firing", "tick", "1h"])]
    """Which events count: those since it began or last fired, the last window of these, or those of one tick."""
    rearm: bool
    """Whether it begins again after it fired; otherwise firing ends it."""
    analyst: str
    """Who added it; empty: the operator, or the file."""
    start: Tick
    start_time: Time | None
    end: Tick | None
    """Null until it is ended, by message or by the firing of a watch that is not re-armed."""
    end_time: Time | None
    fired: int | Absent = None
    """For a watch that is not re-armed: how many of its keys have fired and so ended; without `by` it has one key."""
    created: bool
    """Whether it was added by message."""


class Query(Answer):
    """A series of the file, or one that was created and runs, or was halted."""

    name: str
    version: Annotated[int | Absent, Field(ge=2)] = None
    """Which series of this name it is, if a changed file gave the name another definition; missing: the first."""
    statistic: str
    analyst: str
    """Whose ledger pays; empty: the pipeline's own."""
    epsilon: Decimal
    start: Tick
    start_time: Time | None
    end: Tick | None
    """Null while it runs."""
    end_time: Time | None
    created: bool
    """Whether it was created while the engine ran; the file's own cannot be halted."""
    watches: tuple[Watch, ...] | Absent = None
    """For a monitor: its newest hundred watches, then the last twenty ended ones; fewer if their texts are long."""
    more_watches: int | Absent = None
    """How many more there are, if that is not all."""


class QueryList(Answer):
    """Every series that runs, the file's first; then, of each ledger, the last twenty that were halted."""

    queries: tuple[Query, ...]


class Me(Answer):
    """The holder of the shown token, and the ledger that pays for what the holder creates."""

    analyst: str
    """The holder's name in the pipeline file; empty: the operator, who may act for everyone."""
    epsilon: Account
    """The holder's ledger; for the operator, the pipeline's own."""
    token: Annotated[str | Absent, Field(examples=["3f9a12bc0d11"])] = None
    """The id of the token, by which the operator revokes it; missing if it is made from the key alone."""
    expires: Time | Absent = None
    """Until when the token is valid; missing if it has no end."""


class FieldEntry(Answer):
    """A field of the records, as the pipeline file declares it."""

    name: str
    type: Literal["category", "list", "text", "integer", "number", "boolean"]
    nullable: bool
    domain: tuple[str, ...] | Absent = None
    """Its declared values, in order; all others count as `other`."""
    most: Annotated[int, Field(ge=1)] | Absent = None
    """How many entries a list may have."""


class KeyEntry(Answer):
    """A key of the definition of a statistic, beside `name`, `epsilon` and `where`."""

    key: Annotated[str, Field(examples=["by", "threshold"])]
    kind: Literal[
        "grouping", "amount", "range", "whole", "shares", "flag", "windows", "window", "values_of", "values"
    ]  # fmt: skip
    """Its value: fields to group by, a field of numbers, two bounds, a whole number, shares, a flag, windows, one, a
    field of single values, some of these.
    """
    required: bool


class StatisticEntry(Answer):
    """A statistic that can be created while the engine runs, with its simple keys; docs/pipeline.md has all."""

    statistic: Annotated[str, Field(examples=["count", "histogram"])]
    about: str
    keys: tuple[KeyEntry, ...]


class Schema(Answer):
    """What can be asked: the declared fields, and the statistics."""

    fields: tuple[FieldEntry, ...]
    statistics: tuple[StatisticEntry, ...]
