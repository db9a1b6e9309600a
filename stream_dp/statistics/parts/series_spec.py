"""What every statistic says of itself: its keys in the file, its rows, its mechanism, its releases, its words.

Rules: a statistic is one subclass of `SeriesSpec` in a file of its own and an entry in `STATISTICS`; nothing else of
the pipeline, the page or the commands knows it. Models are frozen and refuse unknown keys. Conflicts between the keys
of an entry are part of its model (`own_problems`); `problems` compares the entry with the rest of the file.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, Protocol, Self

from pydantic import model_validator
from pydantic_core import InitErrorDetails

from stream_dp.accounting.amounts import text
from stream_dp.core.mechanism import IntArray, Query
from stream_dp.core.wording import how_many
from stream_dp.engine.series import Asking, MadeSeries, Tell
from stream_dp.errors import NoRoom, UsageError
from stream_dp.journal.release import Shape
from stream_dp.mechanisms.quotients import Quotient
from stream_dp.mechanisms.serving import Answer
from stream_dp.records.amount_units import Addend
from stream_dp.records.conditions import Condition, Where, where_problems
from stream_dp.records.endpoints import Clock
from stream_dp.records.groupings import (
    By,
    Place,
    by_problems,
    grouping_text,
    most_ones,
    tick_problems,
)
from stream_dp.records.privacy import Privacy
from stream_dp.records.record_columns import CapUse, Identified
from stream_dp.records.scalars import Delta, Epsilon, Frozen, Line, Name, Prose, UnitName, refuse
from stream_dp.records.schema import Fields
from stream_dp.statistics.parts.alarms import Looking
from stream_dp.statistics.parts.choice import Choice, FalseAlarm, Floats, Setting
from stream_dp.statistics.parts.verdicts import (
    Guess,
    Judged,
    Outcome,
    Seen,
    of_cells,
    of_release,
)
from stream_dp.statistics.parts.windows import sliding


class Input(NamedTuple):
    """A series of the file that another is made of; 1 in its answers is `unit` as a number.

    Its bands are public functions of the tick alone, so that who knows the pipeline file and the releases can make the
    same. Two series have two mechanisms with noise of their own, so whatever the records are, the noises are
    independent.
    """

    name: str
    keys: tuple[str, ...]
    windows: tuple[str, ...]
    mechanism: Any
    unit: Fraction
    confidence: Fraction

    def require_by_tick(self, maker: str) -> None:
        """Raise UsageError where the band at a tick depends on what the mechanism has decided."""
        answer = self.answer(self.windows[0] if self.windows else "")
        if self.mechanism.noise(answer.public(1), answer.place) is None:
            raise UsageError(
                f"series {maker}: the band of {self.name} depends on what its mechanism "
                f"({type(self.mechanism).__name__}) has decided so far, and not on the tick alone. "
                f"Give {self.name} another method, such as tree, or windows"
            )

    def answer(self, window: str) -> Answer:
        """Return what its mechanism answers of the window of this name ("" where the series has none), in units."""
        return Answer(self.mechanism, self.windows.index(window) if window else None)

    def band(self, tick: int, window: str) -> Fraction:
        answer = self.answer(window)
        return answer.band(answer.public(tick + 1), float(self.confidence)) * self.unit


class MadeOf(NamedTuple):
    """A series made of others' releases: what the engine makes them by, of what they tell, and why they are free."""

    series: MadeSeries
    why: str


RECORDS = "records"  # what counts of records have in `counted`
WITHIN = "0 to 1"  # what `parameters` say under `within` of a share


def quotient_values(quotients: Sequence[Quotient], names: Sequence[str] | None) -> dict[str, Any]:
    """Return the part of a release with quotients and their ends, under these names; None: it has a single one."""
    if names is None:
        (single,) = quotients
        return {"value": single.value, "low": single.low, "high": single.high}
    return {
        "values": {name: item.value for name, item in zip(names, quotients, strict=True)},
        "lows": tuple(item.low for item in quotients),
        "highs": tuple(item.high for item in quotients),
    }


class Rest(NamedTuple):
    """The parts of a file that a series stands beside."""

    fields: Fields
    clock: Clock
    privacy: Privacy


class SeriesPart(Protocol):
    """One of several things that a series counts, each under its name.

    `by` None: it has one entry. A record that passes its `where` and the series' own adds its `amount`; None: the
    series' own.
    """

    @property
    def name(self) -> str: ...
    @property
    def by(self) -> By | None: ...
    @property
    def where(self) -> Where: ...
    @property
    def amount(self) -> Addend | None: ...


class Asked:
    """A series that answers between two ticks, and to which parts are added while it runs: a monitor overrides this."""

    def counts_band(self, mechanism: Any, confidence: float) -> int | None:
        """Return the half-width of counts that stand beside flags; None where its releases have none."""
        return None

    def asking(self, keys: Sequence[str], mechanism: Any, counts_band: int | None) -> Asking | None:
        """Return what may be asked of its mechanism between two ticks; None: it answers from its last release."""
        return None

    def ask_band(
        self, mechanism: Any, confidence: float, updates: int, query: Query, state: Any
    ) -> int | None:
        """Return the half-width of the mechanism's answer to a query after so many updates; None: it has none."""
        return None

    @property
    def askers(self) -> tuple[str, ...] | None:
        """The analysts who may ask its mechanism, beside the operator and whose ledger paid for it; None: all."""
        return ()

    def another(self, data: Any, asking: Any, fields: Mapping[str, Any], clock: Any) -> SeriesPart:
        """Return one more part, from its definition; `asking` is what is asked of those that there are.

        Raises UsageError where a series of this statistic takes none, and ValidationError with every problem of the
        definition, and of it beside the others.
        """
        raise UsageError("series: only a monitor has watches")

    def alarm(self, part: Any, mechanism: Any, looking: Looking) -> FalseAlarm | None:
        """Return how likely one of its parts fires by noise of the series' mechanism on a day; None: it never does."""
        return None


class Derived:
    """A series that is made of the releases of others, and has no mechanism: a ratio overrides this."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The series of the file that its releases are made of; nothing where it has a mechanism of its own."""
        return ()

    def knowing(self, others: Mapping[str, "SeriesSpec"]) -> Self:
        """Return the series as one that knows its inputs among the `others` of the file, by name."""
        return self

    def made(
        self, inputs: Sequence[Input], fields: Mapping[str, Any], horizon: int | None
    ) -> MadeOf:
        """Return what its releases are made by, of the `inputs`; raise UsageError where nothing can be."""
        raise UsageError(
            "a series with its own mechanism cannot also be computed from other series"
        )

    def input_problems(self, others: Mapping[str, "SeriesSpec"]) -> list[InitErrorDetails]:
        """Return its conflicts with the `others` of the file, by name, at places within it."""
        return []


class SeriesSpec(Asked, Derived, Frozen, ABC):
    """An entry of `series:`: a statistic of the records that pass all of `where`.

    `delta` is what a series with Gaussian noise costs beside `epsilon`, where the filter charges deltas.
    """

    shape: ClassVar[Shape] = Shape.SCALAR
    later: ClassVar[tuple[str, ...]] = ()
    """The keys that came later: at their defaults they are left out of fingerprints."""
    unmeant: ClassVar[tuple[str, ...]] = ()
    """The keys that touch neither data nor guarantee, such as who may ask: no fingerprint holds them."""
    words: ClassVar[tuple[str, ...]] = ("title", "description", "unit")
    """The keys that say to readers what it is: no fingerprint holds them, so they may be changed between runs."""
    adds: ClassVar[Fraction | None] = None
    """What each record adds to its numbers; None: different amounts, or they are no counts."""

    statistic: str
    name: Name
    epsilon: Epsilon
    delta: Delta = Fraction(0)
    where: Where = ()
    title: Line = ""
    description: Prose = ""
    unit: UnitName = ""

    @model_validator(mode="after")
    def _sound(self) -> Self:
        refuse(self.own_problems())
        return self

    @property
    def grouped_by(self) -> By | None:
        """What has an entry for each of its values in this series' rows: its key `by`; None: one entry for all."""
        by: By | None = getattr(self, "by", None)
        return by

    @property
    def amount(self) -> Addend | None:
        """What a record adds to its entries; None: 1."""
        return None

    @property
    def identifier(self) -> Identified | CapUse | None:
        """What a record is counted by, once in each window; None: records count themselves."""
        return None

    def typical(self, guess: Fraction | None) -> Fraction | None:
        """Return what a record typically adds, as guessed; None where numbers are not just less by what is cut off."""
        return self.adds

    def with_totals(self, most: Fraction) -> Mapping[str, Self]:
        """Return the series with other totals of its users, in words; `most` is what the largest user would add."""
        return {}

    @property
    def totals(self) -> bool:
        """Whether its amounts are of users of whom each adds at most a total, which a memory keeps."""
        return False

    @property
    def shares(self) -> str | None:
        """The field of which it has what users add within a total, together with others; None: it shares none."""
        return None

    @property
    def grain(self) -> Fraction:
        """What one unit of its rows is as a number that people read."""
        return Fraction(1)

    @property
    def counted(self) -> Hashable | None:
        """What it counts or adds up, which fewer records never have more of; None where they may.

        Of two series with the same, that of fewer records is a part of the other.
        """
        return None

    @property
    def keyed(self) -> bool:
        """Whether its releases have an entry for each key, or flags."""
        return self.shape is not Shape.SCALAR

    @property
    def signed(self) -> bool:
        """Whether true values may be below 0, so that releases are not clipped there."""
        return False

    @property
    def nonnegative(self) -> bool:
        """Whether true values cannot be below 0, so that nothing below it need be shown of a band."""
        return not self.signed

    @property
    def error_unit(self) -> str:
        """What predicted errors are measured in, in words that stand behind a number; empty: none is predicted."""
        return self.unit or "events"

    @property
    def parts(self) -> Sequence[SeriesPart]:
        """What the series counts, where that is several things; nothing where it is one."""
        return ()

    @property
    @abstractmethod
    def views(self) -> tuple[str, ...]:
        """The names of the windows that its releases show, in their order; nothing where they show all so far.

        The tick alone is a window, `TICK`. Verdicts and the errors of `simulate` count the records of these windows.
        """

    def fitted(self, fields: Mapping[str, Any]) -> Self:
        """Return the series with defaults that fit the schema, where it leaves them out."""
        return self

    def entries(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the entries of an answer, or of one window's; `keys` names those of the rows.

        A scalar that is released with a name has the names that may be released.
        """
        return tuple(keys) if self.keyed else ("",)

    @property
    def numbers(self) -> int:
        """How many numbers an answer has for each entry of a window."""
        return 1

    def teller(self, mechanism: Any, place: int | None, confidence: float) -> Tell | None:
        """Return what makes an answer, or the window at `place`, public, ticks counted from its first; None: counts."""
        return None

    def told_bytes(self, names: Sequence[str]) -> int | None:
        """Return how many bytes `teller` fills at most for entries of these names; None: about as many for each."""
        return None

    @property
    def work(self) -> int:
        """How many entries of a live series' room it takes beside those of its releases, for what a tick computes."""
        return 0

    def first_told(self, place: int, step: int) -> int:
        """Return how many ticks of `step` ms go by before the window at `place` is told; its entries are null then."""
        return 0

    def entry_confidence(self, confidence: float, mechanism: Any) -> float:
        """Return the confidence of the band of one entry of an answer, where a release is to hold with `confidence`."""
        return confidence

    @property
    def form(self) -> Shape:
        return Shape.WINDOWS if self.views else self.shape

    @property
    def price(self) -> Fraction:
        """All that it spends of the budget, by its own mechanism's claim."""
        return self.epsilon

    def at_share(self, share: Fraction) -> Self:
        """Return the series at a part of its price."""
        return self.model_copy(update={"epsilon": self.epsilon * share})

    def places(self, entries: int) -> int:
        """Return how many entries its rows have, where its parts have so many."""
        return entries

    def ones(self, fields: Mapping[str, Any]) -> int:
        """Return the most entries of its rows that one event sets, by the schema."""
        return most_ones(fields, self.grouped_by)

    def conditions_as(self, meant: Callable[[Condition], Any]) -> dict[str, Any]:
        """Return what a fingerprint has in place of conditions: what each is `meant` to say."""
        return {"where": [meant(condition) for condition in self.where]}

    def as_fingerprinted(self, plain: dict[str, Any]) -> dict[str, Any]:
        """Return its plain values under the keys that fingerprints have had from the first version on."""
        return plain

    def as_kept(self, plain: dict[str, Any]) -> dict[str, Any]:
        """Return its plain values as a journal keeps those of a file: read again, they have the same fingerprint."""
        return plain

    def groupings(self) -> Iterator[tuple[Place, By]]:
        """Yield the values of its keys `by`, each with the place within the entry of the key's owner."""
        if (by := getattr(self, "by", None)) is not None:
            yield (), by

    @property
    def former_keys(self) -> Mapping[str, str]:
        """The keys that make it mean what the same file meant in journals of before, where that is something else."""
        return {}

    @property
    def left_out(self) -> set[str]:
        """The later keys that are at their defaults, which fingerprints and journals leave out."""
        model = type(self).model_fields
        return {
            name
            for name in ("delta", *self.later, *self.words)
            if getattr(self, name) == model[name].default
        }

    @abstractmethod
    def choose(self, setting: Setting) -> Choice:
        """Choose the mechanism, from the specification alone; raise UsageError or NotDerivable where none fits."""

    def guessed_totals(self, guess: Guess) -> Floats | str:
        """Return what public guesses say of the totals of its rows in a window, in units; or which guess is missing."""
        if guess.typical is not None:
            return guess.evenly(guess.typical / self.grain)
        added = self.adds if guess.amount is None else self.typical(guess.amount)
        if added is None:
            return guess.needs("typical" if self.typical(None) is None else "amounts")
        if guess.records is None:
            return guess.lacking
        return guess.evenly(guess.records * added / self.grain / guess.width)

    def judged(self, seen: Seen) -> Judged:
        """Return what its readers compare: by default the number in the middle of a window, and the band of each."""
        return of_cells(seen.totals * float(self.grain), seen.band)

    def covered(self, window: str, tick: int, step: int) -> range:
        """Return the ticks of `step` ms that a release of this window counts at a tick; none before its first end."""
        return sliding(window, tick, step)

    def true_numbers(self, totals: IntArray) -> Sequence[Any]:
        """Return what its releases would show of these totals without noise, in their order; None: nothing is there."""
        return [units * self.grain for units in totals.tolist()]

    def outcomes(
        self, shown: Mapping[str, Any], totals: IntArray, names: Sequence[str]
    ) -> Iterable[Outcome]:
        """Yield the true numbers of a release, or of its part for one window, with their errors."""
        return of_release(shown, self.true_numbers(totals))

    def variants(self) -> Iterator[tuple[str, Self]]:
        """Yield series that tell about the same with another band, each with the key that asks for it."""
        yield from ()

    def exact(self, totals: IntArray, keys: Sequence[str]) -> Any:
        """Return what an exact release of public data shows, of totals of shape (width,); None where nothing would."""
        return None

    @property
    @abstractmethod
    def about(self) -> str: ...

    @property
    def meaning(self) -> str | None:
        """What a flag means, as a sentence in which `{band}` stands for the release's band; None without flags."""
        return None

    @property
    def parameters(self) -> dict[str, int | str]:
        """The statistic's own keys that readers of its releases want to know, with their values."""
        return {}

    def parameters_by(self, fields: Mapping[str, Any]) -> dict[str, int | str]:
        """Return `parameters`, with what follows from the schema only."""
        return self.parameters

    @property
    def listed(self) -> Mapping[str, Any]:
        """What lists of series show of it: public values."""
        by = grouping_text(self.grouped_by)
        return {"statistic": self.statistic, "by": by, "epsilon": text(self.price)}

    def described(self) -> dict[str, Any]:
        """Return what the API says of the series: public, plain values. A statistic adds `parameters`, and no key."""
        return {
            "name": self.name,
            "statistic": self.statistic,
            "by": grouping_text(self.grouped_by),
            "shape": str(self.form),
            **({"windows": list(self.views)} if self.views else {}),
            **({"nonnegative": True} if self.nonnegative else {}),
            "about": self.about,
            **({"error_unit": self.error_unit} if self.error_unit else {}),
            **{word: text for word in self.words if (text := getattr(self, word))},
            **({"where": [condition.text for condition in self.where]} if self.where else {}),
            "meaning": self.meaning,
            "parameters": self.parameters,
        }

    def own_problems(self) -> list[InitErrorDetails]:
        """Return the conflicts between its keys, at their places within it."""
        return []

    def problems(self, rest: Rest) -> list[InitErrorDetails]:
        """Return its conflicts with the rest of the file, at places within it."""
        problems = where_problems((), self.where, rest.fields)
        for place, by in self.groupings():
            problems += by_problems((*place, "by"), by, rest.fields)
            problems += tick_problems((*place, "by"), by, rest.clock)
        return problems


class GroupedSeries(SeriesSpec):
    """A statistic with an entry for each value of `by`: a category, a list, or what else a row can go by."""

    by: By

    @property
    def by_text(self) -> str:
        return f"{grouping_text(self.by)}"


# How much the live series of one ledger may take at once. A refusal depends on public values alone, and names the
# ledger that would pay and no other. It is asked before a creation only: what a journal holds was admitted under the
# room there was then, and runs on.

MOST_SERIES = 100  # live series that a ledger may have at once, unless a pipeline says otherwise
SHARED_SERIES, SHARED_ENTRIES = 1_000, 100_000  # of all ledgers together, in even shares
LETTERS = 50  # of a key: a release holds it at every tick, so one that is longer counts again for each of so many
BYTES = 80  # of a release, for each entry; what may be larger (numbers with ends, listed names) counts for more
_SHOWN = 5  # series that a refusal names


@dataclass(frozen=True, slots=True)
class LiveRoom:
    """What the live series of one ledger may have at once; entries as of `entries_of`.

    `key` of the pipeline file says how many `series`.
    """

    series: int
    entries: int
    key: str = "queries.series"

    @classmethod
    def of(cls, ledgers: int, series: int, total: int, entries: int | None) -> "LiveRoom":
        """Return the room of each of so many ledgers: an even share of `total` series, at most `series` of them."""
        share = max(1, total // ledgers)
        room = SHARED_ENTRIES // ledgers if entries is None else entries
        if share < series:
            return cls(share, room, f"an even share of queries.total_series: {total:,}")
        return cls(series, room)

    def require(self, name: str, entries: int, payer: str, running: Mapping[str, int]) -> None:
        """Raise NoRoom where one more series has none: what was asked, what there is, what would fit, what to do.

        `running` has the entries of the payer's series, the oldest first.
        """
        owner = f"analyst {payer}" if payer else "the operator"
        many, taken = len(running), sum(running.values())
        if many >= self.series:
            over = many + 1 - self.series
            which = f"{'one' if over == 1 else f'{over:,}'} of " if many > 1 else ""
            raise NoRoom(
                f"live series: {name} is one series more, and {owner} has {many:,} of the {self.series:,} that may run "
                f"at once ({self.key}), so none fits; halt {which}{_some(list(running))}"
            )
        left = max(0, self.entries - taken)
        if entries > left:
            sizes = sorted(running.items(), key=lambda item: -item[1])
            halt = f", or halt what is not needed of {_some([f'{n} ({e:,})' for n, e in sizes])}"
            raise NoRoom(
                f"live series: {name} has {how_many(entries, 'entry', 'entries')} (keys, or places of a monitor; for "
                f"each window, and what is long several times), and {owner} has {taken:,} of {self.entries:,} at once "
                f"(queries.entries), so {left:,} {'fits' if left == 1 else 'fit'}; ask for fewer"
                f"{halt if running and entries <= self.entries else ''}"
            )


def entries_of(places: int, names: Sequence[str], windows: int, size: int) -> int:
    """Return how many entries so many places of a row are, whose keys have these names, over so many windows (0: none).

    A release of them has at most `size` bytes.

    >>> entries_of(3, ["DE", "FR", "other"], 0, 81), entries_of(2, ["DE", "x" * 99], 2, 500)
    (3, 6)
    >>> entries_of(3, ["DE", "FR", "other"], 0, 800)
    10
    """
    long = sum(len(name) // LETTERS for name in names)
    return max(max(1, windows) * (places + long), size // BYTES)


def _some(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
