"""How the parts of a derivation are related: the evidence that rules check and compute with.

Rules: numbers here are counted from relations, widths and creations, never typed in as a cost. `delta` is the delta
that the caller grants to the node. This file knows no rule and no mechanism.
"""

from dataclasses import dataclass
from fractions import Fraction

from stream_dp.accounting.filters.filter import Filter
from stream_dp.core.box import Box
from stream_dp.core.guarantee import Measure
from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.core.row_law import RowLaw
from stream_dp.core.row_relations import Arrivals
from stream_dp.core.wire import takes_no_subclass
from stream_dp.core.wording import how_many

ZERO = Fraction(0)


@takes_no_subclass
@dataclass(frozen=True, slots=True)
class Touched:
    """At most `k` of the parts get different messages in two neighbouring runs ([HSV] Def 5.1 (ii)), and why."""

    k: int
    neighbors: Neighbors
    why: str

    @classmethod
    def columns(cls, rows: RowLaw, what: str = "column") -> "Touched":
        """Return the bound for one part per entry of a row: the L0 of the law of rows of counts."""
        kind = (
            "one-hot rows"
            if rows.ones == 1
            else f"an event sets at most {rows.ones} entries of its row"
        )
        touches = f"touches at most {rows.l0} of {how_many(rows.width, what)} ({kind})"
        return cls(rows.l0, rows.neighbors, f"one event under {rows.neighbors} {touches}")

    @classmethod
    def intervals(cls, relation: Neighbors, why: str, suite: str) -> "Touched":
        """Return the bound for parts one after the other, each with its own ticks: one per tick an event may be in.

        The test `suite` checks the code: it counts the parts that two neighbouring runs touch.
        """
        k = 2 if relation is Neighbors.REPLACE_ANY_TICK else 1
        return cls(k, relation, f"{why}; checked by {suite}")

    @classmethod
    def shards(cls, relation: Neighbors, number: int, *, moves: bool) -> "Touched":
        """Return the bound for one part per partition; `moves`: a replacement may change the partition."""
        k = 2 if moves and relation is not Neighbors.ADD_REMOVE and number > 1 else 1
        why = "an event lies in one partition, which depends on the event alone"
        return cls(
            k, relation, f"{why}; its replacement may lie in another partition" if k == 2 else why
        )


@takes_no_subclass
@dataclass(frozen=True, slots=True)
class Fixed:
    """All parts run at the same time on the same stream.

    `parameters` None: the mechanisms are fixed before the first event ([HSV] Def 4.9). Otherwise the parameters are
    fixed, and the parts are created from among them in any order ([HSV] Def 4.11); the price covers all of
    `parameters`.

    `stated`: the delta at which measures without an epsilon are compared where none is granted; they stay as they
    are. `order`: the Renyi order to use where no part names one.
    """

    subject: str
    delta: Fraction = ZERO
    parameters: tuple[Measure, ...] | None = None
    stated: Fraction = ZERO
    order: Fraction | None = None


@takes_no_subclass
@dataclass(frozen=True, slots=True)
class Parallel:
    """Any number of parts of these kinds are created, and `touched` bounds how many get different messages.

    `creations`: the most parts of each kind, None for no bound. `first_pair`, if not empty, says why every part's
    first pair of messages decides whether its pairs differ at all ([HSV] Def 5.12).
    """

    subject: str
    touched: Touched
    creations: tuple[int | None, ...] = (None,)
    delta: Fraction = ZERO
    first_pair: str = ""

    @property
    def counts(self) -> tuple[int, ...]:
        """The most parts of each kind that may be touched."""
        k = self.touched.k
        return tuple(k if n is None else min(n, k) for n in self.creations)


@takes_no_subclass
@dataclass(frozen=True, slots=True)
class Composite:
    """A mechanism that only adds up its input, forwards it to its parts, and decides by their answers.

    `destination` says why no destination or response depends on tainted values and `relation` why neighbouring
    inputs become neighbouring inputs of the parts ([HSV] 6.3); `suite` is the test that runs both.
    """

    subject: str
    destination: str
    relation: str
    suite: str


@takes_no_subclass
@dataclass(frozen=True, slots=True)
class Local:
    """A local protocol ([HSV] Def 8.1): `users` users with a static data set each; at most `touched.k` differ.

    There is one premise for all users where they follow identical procedures, else one per user. `static` says why
    a user's data set is its first message and never changes.
    """

    subject: str
    users: int
    touched: Touched
    static: str
    delta: Fraction = ZERO


@takes_no_subclass
@dataclass(frozen=True, slots=True)
class Filtered:
    """The parts were created one after the other, their parameters chosen adaptively, through one filter.

    `alive[i]` are the ticks of the i-th premise, `boxes[i]` the records that it sees; empty: all parts are alive for
    ever, and see every record.
    """

    subject: str
    filter: Filter
    alive: tuple["Alive", ...] = ()
    boxes: tuple[Box, ...] = ()


@takes_no_subclass
@dataclass(frozen=True, slots=True)
class Group:
    """The streams differ in up to `size` events; each event differs as in the premise's neighbours."""

    subject: str
    size: int


@takes_no_subclass
@dataclass(frozen=True, slots=True)
class Moved:
    """One event is replaced, and the replacement may lie in another tick: one event removed and one added."""

    subject: str


@takes_no_subclass
@dataclass(frozen=True, slots=True)
class OfUsers:
    """All events of one user are present or absent; a guard in front of every part enforces the cap of `users`."""

    subject: str
    users: Users


@takes_no_subclass
@dataclass(frozen=True, slots=True)
class FirstArrivals:
    """The premise receives rows that count identifiers at their first tick, which a memory makes from the events."""

    subject: str
    arrivals: Arrivals


@takes_no_subclass
@dataclass(frozen=True, slots=True)
class UserTotals:
    """The premise receives rows of amounts of which all records of a user add at most `total` units, by a memory."""

    subject: str
    users: Users
    total: int


@takes_no_subclass
@dataclass(frozen=True, slots=True)
class SharedTotals:
    """The premise receives rows of amounts of which all records of a user add at most `total` units to all parts: a
    guard in front of them decides how many units a record has, whichever parts see it. `of`: the amount, where users
    have several totals.
    """

    subject: str
    users: Users
    total: int
    of: str = ""


@takes_no_subclass
@dataclass(frozen=True, slots=True)
class Alive:
    """The ticks that a part sees: `first` to `last`, both included (None: for ever); past ticks that it reads count."""

    first: int
    last: int | None


@takes_no_subclass
@dataclass(frozen=True, slots=True)
class Ticks:
    """Parts that are alive at different times. `alive[i]` are the ticks of the i-th premise."""

    subject: str
    alive: tuple[Alive, ...]


Situation = (
    Fixed
    | Parallel
    | Composite
    | Local
    | Filtered
    | Group
    | Moved
    | OfUsers
    | FirstArrivals
    | UserTotals
    | SharedTotals
    | Ticks
)
