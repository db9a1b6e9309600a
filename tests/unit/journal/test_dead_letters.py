"""Dead letters against a dictionary of single records, however they are cut, merged and bounded; twins are caught."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.journal import dead_letters as module
from stream_dp.journal.commit import DeadLetter
from stream_dp.journal.dead_letters import DETAIL, NOT_JSON, WRONG_TYPE, DeadLetters, Span, as_spans

Lots: TypeAlias = list[tuple[int, list[Any]]]
CAUSES: list[tuple[str, str | None]] = [(NOT_JSON, None), (WRONG_TYPE, "time"), (WRONG_TYPE, "n")]


LOTS = st.lists(
    st.tuples(st.integers(0, 2), st.dictionaries(st.integers(0, 40), st.sampled_from(CAUSES))),
    max_size=12,
)


def refused(partition_lots: Sequence[tuple[int, dict[int, Any]]]) -> Lots:
    """Lots with places that do not come twice: each lot lies behind the one before."""
    return [
        (partition, [(50 * n + place, *lot[place]) for place in sorted(lot)])
        for n, (partition, lot) in enumerate(partition_lots)
    ]


def oracle(lots: Lots) -> dict[tuple[int, int], tuple[str, str | None]]:
    return {(p, place): (reason, name) for p, lot in lots for place, reason, name in lot}


def made(lots: Lots, kind: type[DeadLetters], parts: int) -> DeadLetters:
    each = [kind() for _ in range(parts)]
    for n, (partition, lot) in enumerate(lots):
        each[n * parts // len(lots)].add(partition, as_spans(lot))
    return kind(*each)


def holds(lots: Lots, letters: tuple[DeadLetter, ...], detail: int = DETAIL) -> bool:
    """Every record is counted once under its own cause; what has a place has its own; detail is bounded."""
    expected = oracle(lots)
    counts = {(at.partition, at.reason, at.field): at.records for at in letters}
    wanted = Counter((p, *cause) for (p, _), cause in expected.items())
    placed = [
        ((each.partition, place), (each.reason, each.field))
        for each in letters
        for first, last in each.ranges
        for place in range(first, last + 1)
    ]
    ranges = sum(len(each.ranges) for each in letters)
    right = counts == wanted and len(set(placed)) == len(placed)
    right = right and all(expected.get(where) == cause for where, cause in placed)
    whole = ranges == detail or len(placed) == len(expected)
    return right and whole and ranges <= detail


@given(LOTS, st.integers(1, 4))
def test_every_record_is_counted_once_at_its_place(lots: list[Any], parts: int) -> None:
    letters = made(refused(lots), DeadLetters, parts)
    assert holds(refused(lots), letters.sealed())
    assert letters.records == len(oracle(refused(lots)))
    assert list(letters.sealed()) == sorted(
        letters.sealed(), key=lambda d: (d.partition, d.reason, d.field or "")
    )


@given(LOTS, st.integers(1, 4), st.integers(0, 6))
def test_beyond_the_detail_all_is_counted(lots: list[Any], parts: int, detail: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "DETAIL", detail)
        assert holds(refused(lots), made(refused(lots), DeadLetters, parts).sealed(), detail)


@given(LOTS)
def test_spans_are_as_long_as_they_can_be(lots: list[Any]) -> None:
    for _, lot in refused(lots):
        found = as_spans(lot)
        assert [
            (at, one.reason, one.field) for one in found for at in range(one.first, one.last + 1)
        ] == lot
        assert sum(one.records for one in found) == len(lot)
        for one, after in pairwise(found):
            assert one[:2] != after[:2] or one.last + 1 != after.first


class _Forgetful(DeadLetters):
    """Broken: what has no room is not counted either."""

    def _take(self, kind: Any, records: int, edges: Any) -> None:
        if self._room:
            super()._take(kind, records, edges)


class _Careless(DeadLetters):
    """Broken: neighbours become one range whatever the cause."""

    def _take(self, kind: Any, records: int, edges: Any) -> None:
        for other in self.kinds:
            if self.kinds[other].edges and edges and self.kinds[other].edges[-1] + 1 == edges[0]:
                kind = other
        super()._take(kind, records, edges)


class _Greedy(DeadLetters):
    """Broken: each merge has room for as many ranges again."""

    def merge(self, later: DeadLetters) -> None:
        self._room = module.DETAIL
        super().merge(later)


def test_broken_twins_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    apart: Lots = [(0, [(2 * n, NOT_JSON, None) for n in range(k, k + 6)]) for k in (0, 10)]
    mixed: Lots = [(0, [(0, NOT_JSON, None)]), (0, [(1, WRONG_TYPE, "n")])]
    monkeypatch.setattr(module, "DETAIL", 7)
    for lots in (apart, mixed):
        assert holds(lots, made(lots, DeadLetters, 2).sealed(), 7)
    assert not holds(apart, made(apart, _Forgetful, 1).sealed(), 7)
    assert not holds(mixed, made(mixed, _Careless, 1).sealed(), 7)
    assert not holds(apart, made(apart, _Greedy, 2).sealed(), 7)


def test_a_million_junk_records_in_a_row_are_one_range() -> None:
    letters = DeadLetters()
    for batch in range(1000):
        letters.add(3, [Span(NOT_JSON, None, 1000 * batch, 1000 * batch + 999)])
    assert letters.sealed() == (DeadLetter(3, NOT_JSON, None, 10**6, ((0, 10**6 - 1),)),)
