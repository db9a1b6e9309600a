"""Mechanisms that never run, their creation queries under names, and the oracle's facts about them."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from oracles import relations as oracle
from oracles.relations import Facts, Pairs, Plain
from unit.verify.relations.symbols import Symbol, ask, create

from stream_dp.core.composition import Create
from stream_dp.core.guarantee import ApproxDP, GaussianDP, Guarantee, Measure, PureDP, RenyiDP
from stream_dp.core.mechanism import Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.relation import Claim, Relation
from stream_dp.core.row_relations import RowSpace, Stream, event, user
from stream_dp.verify.relations.streams import StaticDataSet, single_pair

ADD = Neighbors.ADD_REMOVE
ONE, TWO, QUARTER = Fraction(1), Fraction(2), Fraction(1, 4)


@dataclass(frozen=True, slots=True)
class Toy:
    """Takes rows of one bit, and queries; `data` lets it take data sets 0, 1, 2 instead of rows."""

    name: str
    guarantee: Guarantee
    data: bool = False
    width: int = 1

    def takes(self, message: object) -> bool:
        if isinstance(message, Update):
            return not self.data and RowSpace(1, 0, 1).holds(message.row)
        return isinstance(message, Query) or (self.data and message in (0, 1, 2))


def near_rows(left: Any, right: Any) -> bool:
    """Data sets that are one row of one count."""
    return (
        isinstance(left, Update)
        and isinstance(right, Update)
        and abs(int(left.row[0]) - int(right.row[0])) <= 1
    )


def bits(left: Any, right: Any) -> bool:
    updates = isinstance(left, Update) and isinstance(right, Update)
    return updates and all(RowSpace(1, 0, 1).holds(m.row) for m in (left, right))


def near(left: Any, right: Any) -> bool:
    return isinstance(left, int) and isinstance(right, int) and abs(left - right) <= 1


def toy(name: str, measure: Measure, claim: Claim | None = None, *, data: bool = False) -> Create:
    mechanism: Any = Toy(name, Guarantee(measure, ADD), data)
    return Create(mechanism, claim)


def claims(name: str, measure: Measure, relation: Relation | None = None, **more: bool) -> Create:
    """A creation query with a claim of its own."""
    return toy(name, PureDP(ONE), Claim(measure, relation or Stream(event(ADD, 1)), **more))


QUERIES: dict[str, Create] = {
    "a": toy("a", PureDP(ONE)),
    "a2": toy("a2", PureDP(ONE)),
    "b": toy("b", ApproxDP(ONE, QUARTER)),
    "c": toy("c", ApproxDP(TWO, QUARTER)),
    "u": claims("u", PureDP(ONE), Stream(user(ADD, 2))),
    "lie": claims("lie", PureDP(Fraction(0))),
    "static": claims("static", ApproxDP(ONE, QUARTER), StaticDataSet(near_rows)),
    "rr": claims("rr", ApproxDP(Fraction(0), QUARTER), single_pair(bits)),
    "rr1": claims("rr1", ApproxDP(ONE, QUARTER), single_pair(bits)),
    "r2": claims("r2", RenyiDP(TWO, ONE)),
    "r2'": claims("r2'", RenyiDP(TWO, TWO)),
    "r3": claims("r3", RenyiDP(Fraction(3), ONE)),
    "r2 static": claims("r2 static", RenyiDP(TWO, ONE), StaticDataSet(near_rows)),
    "g": claims("g", GaussianDP(ONE), finite=True),
    "g inf": claims("g inf", GaussianDP(ONE)),
    "f_(1,0)": claims("f_(1,0)", PureDP(ONE), finite=True),
    "user": toy(
        "user", PureDP(ONE), Claim(PureDP(ONE), StaticDataSet(near)), data=True
    ),
    "coins": toy("coins", PureDP(Fraction(0))),
}  # fmt: skip


def c(name: str) -> Symbol:
    """The creation query with this name."""
    return create(name, QUERIES[name])


def truthful(query: Create) -> bool:
    """The truth: all but the lie."""
    return getattr(query.mechanism, "name", "") != "lie"


def is_rr(query: Create) -> bool:
    return getattr(query.mechanism, "name", "") == "rr"


def one_event(pairs: Pairs) -> bool:
    """The oracle of a stream of one column under add_remove."""
    return oracle.stream(pairs, lambda rows: oracle.user(rows, "add_remove", 1, None, 1))


def two_events(pairs: Pairs) -> bool:
    """The oracle of a stream of one column in which two events of a user differ."""
    return oracle.stream(pairs, lambda rows: oracle.user(rows, "add_remove", 2, None, 1))


def bit_messages(message: Plain) -> bool:
    """The oracle's query space of a toy."""
    return message[0] == "query" or (message[0] == "update" and message[1] in ((0,), (1,)))


def data_set(pairs: Pairs) -> bool:
    return oracle.static(
        pairs, lambda x, y: x[0] == y[0] == "update" and abs(x[1][0] - y[1][0]) <= 1
    )


def single(pairs: Pairs) -> bool:
    """The oracle of randomized response: a single message, a pair of bits."""
    return len(pairs) <= 1 and all(m[0] == "update" for pair in pairs for m in pair)


def facts(
    epsilon: Fraction, delta: Fraction, valid: Callable[[Pairs], bool] = one_event, **more: Any
) -> Facts:
    """With the query space of a toy."""
    return Facts(epsilon, delta, valid, bit_messages, **more)


NONE = Fraction(0)
TABLE: dict[str, Facts] = {
    "a": facts(ONE, NONE),
    "a2": facts(ONE, NONE),
    "b": facts(ONE, QUARTER),
    "c": facts(TWO, QUARTER),
    "u": facts(ONE, NONE, two_events),
    "lie": facts(NONE, NONE, true=False),
    "static": facts(ONE, QUARTER, data_set, first_pair_consistent=True),
    "rr": facts(NONE, QUARTER, single, first_pair_consistent=True, randomized_response=True),
    "rr1": facts(ONE, QUARTER, single, first_pair_consistent=True, randomized_response=True),
    "r2": facts(ONE, NONE, alpha=TWO),
    "r2'": facts(TWO, NONE, alpha=TWO),
    "r3": facts(ONE, NONE, alpha=Fraction(3)),
    "r2 static": facts(ONE, NONE, data_set, alpha=TWO, first_pair_consistent=True),
    "g": facts(ONE, NONE, finite=True),
    "g inf": facts(ONE, NONE),
    "f_(1,0)": facts(
        TWO, NONE, finite=True
    ),  # any parameter but that of g: another privacy function
    "user": Facts(
        ONE,
        NONE,
        lambda pairs: oracle.static(
            pairs, lambda x, y: isinstance(x, int) and isinstance(y, int) and abs(x - y) <= 1
        ),
        lambda message: message in (0, 1, 2, ("query", None)),
    ),
    "coins": facts(NONE, NONE),
}


def same(index: int, message: Symbol) -> tuple[Symbol, Symbol]:
    return ask(index, message), ask(index, message)
