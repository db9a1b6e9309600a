"""A growing sequence and a shrinking multiset as immutable values: old versions stay valid, versions share structure.

Rules: a change copies the path to it, at most 32 places on each of log_32(size) levels (4 levels at 10^6), never the
rest. A dict changed in place would be faster, and wrong as soon as a game goes back to an earlier message.
This file knows no relation.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_BITS = 5
_MASK = (1 << _BITS) - 1


@dataclass(frozen=True, slots=True, repr=False)
class Vector(Generic[T]):
    """A sequence of `size` items in a tree of tuples whose leaves are `height` levels below the root.

    Example:
        >>> two = Vector().appended("a").appended("b")
        >>> two.replaced(0, "c")[0], two[0], two.size
        ('c', 'a', 2)
    """

    size: int = 0
    height: int = 0
    root: tuple[Any, ...] = ()

    def __getitem__(self, index: int) -> T:
        """The item.

        Raises:
            IndexError: there is none with this index.
        """
        node: Any = self.root
        for level in range(self._within(index).height, -1, -1):
            node = node[(index >> _BITS * level) & _MASK]
        item: T = node
        return item

    def replaced(self, index: int, item: T) -> "Vector[T]":
        """The sequence with another item in this place.

        Raises:
            IndexError: there is no such place.
        """
        root = _with(self._within(index).root, self.height, index, item)
        return Vector(self.size, self.height, root)

    def appended(self, item: T) -> "Vector[T]":
        """The sequence with one item more."""
        full = self.size == 1 << _BITS * (self.height + 1)
        height, root = (self.height + 1, (self.root,)) if full else (self.height, self.root)
        return Vector(self.size + 1, height, _with(root, height, self.size, item))

    def _within(self, index: int) -> "Vector[T]":
        if not 0 <= index < self.size:
            raise IndexError(index)
        return self


def _with(node: tuple[Any, ...], level: int, index: int, item: object) -> tuple[Any, ...]:
    place = (index >> _BITS * level) & _MASK
    if level:
        item = _with(node[place] if place < len(node) else (), level - 1, index, item)
    return (*node[:place], item, *node[place + 1 :])


@dataclass(frozen=True, slots=True)
class Multiset:
    """What is left of a fixed multiset: `left` counts, in the `places` that all versions share."""

    places: Mapping[Hashable, int]
    left: Vector[int]

    @classmethod
    def of(cls, items: Iterable[Hashable]) -> "Multiset":
        """All of them."""
        counts = Counter(items)
        left: Vector[int] = Vector()
        for count in counts.values():
            left = left.appended(count)
        return cls({item: place for place, item in enumerate(counts)}, left)

    def without(self, item: Hashable) -> "Multiset | None":
        """One such item less, or None where there is none left."""
        place = self.places.get(item)
        if place is None or not self.left[place]:
            return None
        return Multiset(self.places, self.left.replaced(place, self.left[place] - 1))
