"""What leaves a mechanism that runs alone: a public value with its error band, which never changes.

Rules: everything here is public. This file knows no mechanism.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

V_co = TypeVar("V_co", covariant=True)


class Counts(Mapping[str, int]):
    """A count for each key, in the order of the declared keys; cannot be changed, and can be pickled.

    Examples
    --------
    >>> counts = Counts(("DE", "FR"), (3, 1))
    >>> counts["DE"], dict(counts)
    (3, {'DE': 3, 'FR': 1})
    """

    __slots__ = ("_counts",)

    def __init__(self, keys: tuple[str, ...], counts: tuple[int, ...]) -> None:
        self._counts = dict(zip(keys, counts, strict=True))

    def __getitem__(self, key: str) -> int:
        return self._counts[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)

    def __repr__(self) -> str:
        return f"Counts({self._counts!r})"


@dataclass(frozen=True, slots=True)
class TickRelease(Generic[V_co]):
    """The release of one tick.

    Parameters
    ----------
    tick : int
        Which tick it closes; the first is 0.
    value : int, Counts or tuple of str
        The noisy answer over all ticks up to this one: a count (never below 0), one for each key, or the keys
        that fired.
    band : int
        The half-width that holds with `confidence` for one value of this release.
    confidence : float
        The probability with which the band holds, over the mechanism's noise.
    name : str, optional
        Of a maximum: the key that has most; None while the value is 0, and elsewhere.
    """

    tick: int
    value: V_co
    band: int
    confidence: float
    name: str | None = None
