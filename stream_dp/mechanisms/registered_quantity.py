"""Quantities that somebody brings along: a function with stated properties, tested before it is accepted.

Rules: a quantity is registered under a name and a version, for rows of one width and one kind of events; the function
stays in this process, and only name, version and what was stated are written. A test is evidence, no proof: the
derivation says so, and who registers a function vouches for it. What is refused leaves no trace.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pickle import PicklingError
from typing import NoReturn

from stream_dp.core.messages import IntArray
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.errors import FailClosed, UsageError
from stream_dp.mechanisms.quantities import ErrorLaw, Quantity
from stream_dp.mechanisms.quantity_checks import Function, Stated, called, tested

_KNOWN: dict[tuple[str, int], "Accepted"] = {}


@dataclass(frozen=True, slots=True)
class Accepted:
    """A function that was accepted, what was stated of it, and at how many places it was tried."""

    function: Function
    stated: Stated
    cases: int


@wire("quantity-registered", 1)
@dataclass(frozen=True, slots=True)
class RegisteredQuantity(Quantity):
    """A registered function of the sums: monotone, changed by at most 1 by one event, and `constant`-Lipschitz.

    Raises:
        UsageError: nothing is registered under this name and version in this process.
    """

    name: str
    version: int
    constant: int

    def __post_init__(self) -> None:
        """Refuse a name that nothing stands behind."""
        self._entry()

    def __reduce__(self) -> NoReturn:
        """Refuse to go to another process, where its function is not.

        Raises:
            PicklingError: always.
        """
        raise PicklingError(f"quantity {self.name!r} stays in the process that registered it")

    def _entry(self) -> Accepted:
        entry = _KNOWN.get((self.name, self.version))
        if entry is None or entry.stated.lipschitz != self.constant:
            raise UsageError(
                f"quantity {self.name!r}, version {self.version}: not registered in this process; register the same "
                "function before anything that uses it is made or recovered"
            )
        return entry

    def of(self, sums: IntArray) -> int:
        """Return the function's value.

        Raises:
            FailClosed: it fails on these sums, or gives no integer from 0 to 2^60, which it never did in its test.
        """
        try:
            return called(self._entry().function, sums)
        except UsageError:
            raise FailClosed(
                f"quantity {self.name!r}: the function fails or answers with no integer from 0 to 2^60; stopped before "
                "anything was released. Mend it and register it under a new version"
            ) from None

    def sensitivity(self, relation: Neighbors, width: int, ones: int) -> int:
        """Return 1, as stated and tried."""
        return 1

    def error(self, width: int) -> ErrorLaw:
        """At most the constant times the largest noise of any column, either way."""
        return ErrorLaw(added=1, high=width, low=width, factor=self.constant)

    def checked(self, relation: Neighbors, width: int, ones: int) -> "RegisteredQuantity":
        """Return itself.

        Raises:
            UsageError: it was tested for other rows or events.
        """
        stated = self._entry().stated
        covers = stated.relation is relation or stated.relation is Neighbors.REPLACE
        if stated.width != width or stated.ones < ones or not covers:
            raise UsageError(
                f"quantity {self.name!r}: tested for {stated.width} column(s), {stated.ones} set by an event, under "
                f"{stated.relation}; here are {width}, {ones} and {relation}. Register it for these"
            )
        return self

    @property
    def why(self) -> str:
        """How its properties are known: the test, which is no proof."""
        return f"stated by who registered it, and held in {self._entry().cases:,} case(s): evidence, no proof"

    @property
    def words(self) -> str:
        """Its name."""
        return f"{self.name} (version {self.version})"


def _behind(name: str, version: int) -> tuple[Function, Stated] | None:
    """The function that this is the name of, and what was stated of it."""
    known = _KNOWN.get((name, version))
    return None if known is None else (known.function, known.stated)


def register_quantity(
    name: str,
    function: Callable[[IntArray], int],
    *,
    width: int,
    neighbors: Neighbors,
    ones: int = 1,
    lipschitz: int = 1,
    version: int | None = 1,
) -> RegisteredQuantity:
    """Test `function` and register it as a quantity; registering the same function again changes nothing.

    It takes an int64 array of shape (width,) of sums and returns an integer >= 0. Stated with it, and tested on all of
    a small lattice and on made-up sums of every size: it is monotone; one event, which sets at most `ones` entries
    under `neighbors`, changes it by at most 1; it changes by at most `lipschitz` where every entry changes by at most
    1; it depends on its argument alone, whenever and however often it is called. `version` None: the first one that is
    free, or is this function's.

    Raises:
        UsageError: a property does not hold (the message shows where), the function keeps a state, or the name and
            version belong to another function. Nothing was registered.
    """
    stated = Stated(width, neighbors, ones, lipschitz)
    same = (None, (function, stated))
    if version is None:
        version = next(v for v in count(1) if _behind(name, v) in same)
    if _behind(name, version) == same[1]:
        return RegisteredQuantity(name, version, lipschitz)  # tested then
    if _behind(name, version) not in same:
        raise UsageError(
            f"quantity {name!r}, version {version}: registered already, with another function or other properties; "
            "take a new version"
        )
    cases = tested(name, function, stated)
    _KNOWN[name, version] = Accepted(function, stated, cases)
    return RegisteredQuantity(name, version, lipschitz)
