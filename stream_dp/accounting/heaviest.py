"""The largest sum of weights over the boxes that hold one record: branch and bound, best first.

A node is a set of boxes that agree on some fields. Its bound is their sum, because a record in all of them weighs no
more. A node is split by a field: every child has the boxes that hold one point of the field. The search takes the field
whose heaviest child is lightest. Points where no side begins need no child: the boxes that hold such a point also hold
one where a side begins. Null is a point where a set lists it, behind all others. Up to `DENSE` boxes are the bits of
one integer.

Rules: work is counted in nodes, never in time, and boxes are sorted first, so that replays agree. The answer is never
too small: at the limit it is the largest bound that is still open. The problem is NP-hard in the number of fields.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import accumulate
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from stream_dp.core.box import EVERYTHING, Box, Side, Stretch, holds, intersection

NODES = 2_000
DENSE = 1_024
"""Most boxes that are bits of one integer; a node of more counts as several nodes."""
_DIVES = 2  # nodes between two looks for boxes whose weight is more than enough
_HELD = 32  # points of a box on average, up to which the boxes at every point are listed together
_PIECE = 43  # bits, of which 1,024 numbers add up exactly in a float


class Heaviest(NamedTuple):
    """`boxes` and the sum of their weights. `proven`: one record lies in all of them; otherwise one may."""

    weight: int
    boxes: tuple[Box, ...]
    proven: bool


def heaviest(
    weights: Mapping[Box, int],
    inside: Box = EVERYTHING,
    *,
    enough: int | None = None,
    nodes: int = NODES,
    step: Callable[[int], object] | None = None,
) -> Heaviest:
    """Return the heaviest boxes that hold one record inside a box, or an upper bound after so many `nodes`.

    Without `enough` the weight is the largest sum if it is proven, else an upper bound. With `enough` the search only
    decides whether the largest sum exceeds it: a weight of at most `enough` is an upper bound; a larger weight that is
    proven is reached by a record, and the largest sum may be larger still; a larger weight that is not proven is an
    upper bound, and the question is open. So `weight <= enough` never admits too much.

    Weights are at least 0. `step` is called before each look at some boxes with their number, plus 1.
    """
    items = _items(weights, inside)
    some = [item for item in items if item.sides]
    base = sum(item.weight for item in items if not item.sides)
    total = sum(item.weight for item in some)
    step = step or _uncounted

    def answer(weight: int, places: Iterable[int], *, proven: bool) -> Heaviest:
        chosen = {id(some[at]) for at in places}
        boxes = tuple(item.box for item in items if not item.sides or id(item) in chosen)
        return Heaviest(base + weight, boxes, proven)

    names = _names(some)
    fits = enough is not None and base + total <= enough
    if fits or len(names) < 2:
        step(len(items) + 1)
    if fits or not some:
        return answer(total, range(len(some)), proven=not some)
    root = _Many(some, total, partial(range, len(some)))
    if len(names) == 1:
        top = root.children(names[0])[-1]
        return answer(top.weight, top.places(), proven=True)
    node, proven = _Search(None if enough is None else enough - base, nodes, step).run(root)
    return answer(node.weight, node.places(), proven=proven)


def _uncounted(number: int) -> None:
    """Take no account of work."""


class _Item(NamedTuple):
    """A box cut to the box that is searched: `sides` are those that do not hold all of it."""

    box: Box
    weight: int
    sides: dict[str, Side]


def _items(weights: Mapping[Box, int], inside: Box) -> list[_Item]:
    """Return the boxes that weigh something and meet `inside`, sorted."""
    limits = dict(inside.sides)
    items = []
    for box, weight in weights.items():
        if not weight or box.nowhere or inside.nowhere:
            continue
        sides = {}
        for name, side in box.sides:
            limit = limits.get(name)
            part = side if limit is None else intersection(side, limit)
            if not part:
                break
            if part != limit:
                sides[name] = part
        else:
            items.append(_Item(box, weight, sides))
    items.sort(key=attrgetter("box.order"))
    return items


def _names(items: Iterable[_Item]) -> list[str]:
    """Return the fields that tell boxes apart, in the order of their names."""
    return sorted({name for item in items for name in item.sides})


class _Node(Protocol):
    """Boxes that agree on some fields, and the sum of their weights."""

    @property
    def weight(self) -> int: ...

    @property
    def size(self) -> int:
        """The number of its boxes."""

    def places(self) -> Sequence[int]:
        """Return the places of its boxes among those that the search is about."""

    def split(self) -> "Sequence[_Node] | None":
        """Return its children, the heaviest last; None: one record lies in all its boxes."""


@dataclass(slots=True)
class _Search:
    """`enough` and the nodes that are left; `step` as in `heaviest`; the `known` children of nodes, by their ids."""

    enough: int | None
    left: int
    step: Callable[[int], object]
    best: "_Node | None" = None
    known: "dict[int, tuple[_Node, Sequence[_Node] | None]]" = field(default_factory=dict)

    def run(self, root: _Node) -> tuple[_Node, bool]:
        """Return a node, and whether one record lies in all its boxes."""
        self._dive(root)
        heap = [(-root.weight, 0, root)]
        pushed = popped = 0
        while heap:
            bound, _, node = heap[0]
            if self.best is not None and (-bound <= self.best.weight or self._refuses()):
                break
            if self.left <= 0 or self._admits(-bound):
                return node, False
            heappop(heap)
            popped += 1
            children = self._split(node)
            if children is None:  # no other bound is larger
                return node, True
            if self.enough is not None and children and popped % _DIVES == 0:
                self._dive(children[-1])
            for child in children:
                if self.best is None or child.weight > self.best.weight:
                    pushed -= 1  # the last child first, where bounds are equal: deeper before wider
                    heappush(heap, (-child.weight, pushed, child))
        return (root, False) if self.best is None else (self.best, True)

    def _admits(self, bound: int) -> bool:
        return self.enough is not None and bound <= self.enough

    def _refuses(self) -> bool:
        return self.enough is not None and self.best is not None and self.best.weight > self.enough

    def _dive(self, node: _Node) -> None:
        """Follow the heaviest children to boxes that hold one record, and keep them if no others weigh more."""
        least = 0 if self.best is None else self.best.weight
        while self.left > 0 and node.weight > least and not self._admits(node.weight):
            children = self._split(node)
            if children is None:
                self.best = node
                return
            if not children:
                return
            node = children[-1]

    def _split(self, node: _Node) -> "Sequence[_Node] | None":
        """Return the node's children; the first time it is work."""
        if id(node) not in self.known:
            self.left -= 1 + node.size // DENSE
            self.step(node.size + 1)
            self.known[id(node)] = node, node.split()
        return self.known[id(node)][1]


# Sums at points. Amounts are weights, or bits that differ, whose sum is their union.


def _sums(sides: Iterable[tuple[Side, int]]) -> dict[Any, int]:
    """Return the sum of the amounts of all sides that hold a point, by points in order.

    For every set of sides with a point in common it has a point that lies in all of them: a value, the largest of their
    lower ends, or, where none of them has any, the smallest upper end of all.
    """
    sums: dict[Any, int] = {}
    stretches: list[tuple[Stretch, int]] = []
    for side, amount in sides:
        if isinstance(side, Stretch):
            stretches.append((side, amount))
        else:
            for value in side:
                sums[value] = sums.get(value, 0) + amount
    null = {None: sums.pop(None)} if None in sums else {}
    if not stretches:
        return {point: sums[point] for point in sorted(sums)} | null
    points = {*sums, *(side.low for side, _ in stretches if side.low is not None)}
    highs = [side.high for side, _ in stretches if side.high is not None]
    if any(side.low is None for side, _ in stretches) and (highs or not points):
        points.add(min(highs, default=0))  # where all are without ends, any point lies in them
    ordered = sorted(points)
    change = [0] * (len(ordered) + 1)
    for (low, high), amount in stretches:
        change[0 if low is None else bisect_left(ordered, low)] += amount
        change[len(ordered) if high is None else bisect_right(ordered, high)] -= amount
    covered = accumulate(change)
    return {
        point: sums.get(point, 0) + cover for point, cover in zip(ordered, covered, strict=False)
    } | null


# Sets of any size.


@dataclass(slots=True, eq=False)
class _Many:
    """A node whose boxes are listed when they are asked for."""

    items: Sequence[_Item]
    weight: int
    listed: Callable[[], Sequence[int]]
    kept: Sequence[int] | None = None

    @property
    def size(self) -> int:
        return len(self.places())

    def places(self) -> Sequence[int]:
        if self.kept is None:
            self.kept = self.listed()
        return self.kept

    def split(self) -> Sequence[_Node] | None:
        places = self.places()
        if len(places) <= DENSE:
            return _Bits.of(self.items, places, self.weight).split()
        fewest: Sequence[_Node] | None = None
        for name in _names(self.items[at] for at in places):
            children = self.children(name)
            top = children[-1].weight
            if top < self.weight and (fewest is None or top < fewest[-1].weight):
                fewest = children
        return fewest

    def children(self, name: str) -> "list[_Many]":
        """Return a child for every point of a field, the heaviest last."""
        sided, free, weight = list[tuple[int, Side]](), list[int](), 0
        for at in self.places():
            side = self.items[at].sides.get(name)
            if side is None:
                free.append(at)
                weight += self.items[at].weight
            else:
                sided.append((at, side))
        sums = _sums((side, self.items[at].weight) for at, side in sided)
        points = list(sums)
        held: dict[Any, list[int]] | None = {point: [] for point in points}
        room = _HELD * len(sided)
        for at, side in sided:
            inside = _inside(points, side)
            room -= len(inside)
            if held is None or room < 0:
                held = None
                break
            for point in inside:
                held[point].append(at)
        children = [
            _Many(
                self.items,
                weight + more,
                partial(self._at, name, point)
                if held is None
                else partial(_merged, free, held[point]),
            )
            for point, more in sums.items()
        ]
        children.sort(key=attrgetter("weight"))
        return children

    def _at(self, name: str, point: Any) -> Sequence[int]:
        return [
            at
            for at in self.places()
            if (side := self.items[at].sides.get(name)) is None or holds(side, point)
        ]


def _inside(points: Sequence[Any], side: Side) -> Sequence[Any]:
    """Return the points, which are sorted, that lie in a side; all values of a set are points."""
    if not isinstance(side, Stretch):
        return list(side)
    points = points[:-1] if points[-1] is None else points
    first = 0 if side.low is None else bisect_left(points, side.low)
    return points[first : None if side.high is None else bisect_right(points, side.high)]


def _merged(free: Sequence[int], held: Sequence[int]) -> Sequence[int]:
    return sorted([*free, *held])


# Sets of few boxes, as bits.


@dataclass(slots=True, eq=False)
class _Frame:
    """What sets of the boxes at some `places` share: the `masks` of every field, and the sets that had a node.

    `rows` has a row of zeros and ones for every mask; those of a field begin at its place in `begins`. `pieces` has
    the weights in pieces of `_PIECE` bits, the lowest first, so that a product of both is exact in floats.
    """

    places: Sequence[int]
    masks: Sequence[Sequence[int]]
    rows: NDArray[np.float64]
    begins: Sequence[int]
    pieces: NDArray[np.float64]
    seen: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, items: Sequence[_Item], places: Sequence[int]) -> "_Frame":
        some = [items[at] for at in places]
        masks = [_masks([item.sides.get(name) for item in some]) for name in _names(some)]
        rows = [_ones(mask, len(some)) for of_field in masks for mask in of_field]
        begins = [0, *accumulate(len(of_field) for of_field in masks)]
        lowest = range(0, max(item.weight for item in some).bit_length(), _PIECE)
        pieces = [[item.weight >> low & (1 << _PIECE) - 1 for low in lowest] for item in some]
        return cls(places, masks, np.array(rows, np.float64), begins, np.array(pieces, np.float64))

    def weights(self, bits: int) -> NDArray[Any]:
        """Return the weights of the boxes that the set has in common with every mask: whole floats, or integers."""
        sums = self.rows @ (self.pieces * _ones(bits, len(self.places))[:, np.newaxis])
        if sums.shape[1] == 1:
            return sums[:, 0]
        pieces = sums.T.astype(np.int64).astype(object)  # together beyond what a float holds
        whole: NDArray[Any] = sum(piece << _PIECE * at for at, piece in enumerate(pieces))
        return whole


def _ones(bits: int, size: int) -> NDArray[np.uint8]:
    packed = np.frombuffer(bits.to_bytes(-(-size // 8), "little"), np.uint8)
    return np.unpackbits(packed, count=size, bitorder="little")


@dataclass(slots=True, eq=False)
class _Bits:
    """A node whose boxes are bits; it is not known whether they agree on the fields numbered `fields`."""

    frame: _Frame
    weight: int
    bits: int
    fields: Sequence[int]

    @classmethod
    def of(cls, items: Sequence[_Item], places: Sequence[int], weight: int) -> "_Bits":
        frame = _Frame.of(items, places)
        return cls(frame, weight, (1 << len(places)) - 1, range(len(frame.masks)))

    @property
    def size(self) -> int:
        return self.bits.bit_count()

    def places(self) -> Sequence[int]:
        return [place for at, place in enumerate(self.frame.places) if self.bits >> at & 1]

    def split(self) -> Sequence[_Node] | None:
        frame = self.frame
        weights = frame.weights(self.bits)
        tops = np.maximum.reduceat(weights, frame.begins[:-1]).tolist()
        unsettled = [number for number in self.fields if tops[number] < self.weight]
        if not unsettled:
            return None
        chosen = min(unsettled, key=tops.__getitem__)
        heavy = weights[frame.begins[chosen] : frame.begins[chosen + 1]].tolist()
        parts = [self.bits & mask for mask in frame.masks[chosen]]
        children = dict(zip(parts, map(int, heavy), strict=True))
        new = sorted((w, part) for part, w in children.items() if part not in frame.seen)
        frame.seen.update(part for _, part in new)
        fields = [number for number in unsettled if number != chosen]
        return [_Bits(frame, weight, part, fields) for weight, part in new]


def _masks(sides: Sequence[Side | None]) -> list[int]:
    """Return the largest sets of boxes that hold one point of a field, as bits."""
    free = sum(1 << at for at, side in enumerate(sides) if side is None)
    sums = _sums((side, 1 << at) for at, side in enumerate(sides) if side is not None)
    masks = sorted(set(sums.values()), key=lambda mask: (-mask.bit_count(), mask))
    largest: list[int] = []
    for mask in masks:
        if not any(mask & other == mask for other in largest):
            largest.append(mask)
    return [free | mask for mask in largest]
