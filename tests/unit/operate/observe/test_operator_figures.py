"""When the operator is warned of dead letters: a declared share, over enough records, and not often."""

from fractions import Fraction

import pytest

from stream_dp.errors import FailClosed
from stream_dp.files.memory import MemoryJournal, MemoryStore
from stream_dp.journal.commit import Commit, DeadLetter
from stream_dp.operate.observe import operator_figures
from stream_dp.operate.observe.operator_figures import FEWEST, WINDOW_S, OperatorFigures


class Watched:
    """Figures with a clock of the test's own, and what they warned of."""

    def __init__(self, limit: str = "1/10") -> None:
        self.now = 0.0
        self.warned: list[str] = []
        self.figures = OperatorFigures(self.warned.append, lambda: self.now)
        self.figures._limit = Fraction(limit)

    def commit(self, records: int, late: int = 0, **dead: int) -> None:
        letters = tuple(DeadLetter(0, why, None, count, ()) for why, count in dead.items())
        self.figures.take(Commit(1, b"", dead_letters=letters, records=records, late=late))


def test_all_is_added_up() -> None:
    watched = Watched()
    watched.commit(5, 1, not_json=2, missing_field=1)
    watched.commit(7, 1)
    figures = watched.figures
    assert (figures.records, figures.late, figures.dead) == (12, 2, 3)
    assert repr(figures) == "<OperatorFigures>"


def test_it_warns_above_the_share_only() -> None:
    watched = Watched()
    watched.commit(90, not_json=10)
    assert watched.warned == []
    watched.commit(0, wrong_type=1)
    assert watched.warned == ["not_json, wrong_type"]
    never = Watched("1")
    never.commit(0, not_json=1000)
    assert never.warned == []


def test_late_ones_count_as_dead_ones_do() -> None:
    watched = Watched()
    watched.commit(100, 10)
    assert watched.warned == []
    watched.commit(20, 4, not_json=1)
    assert watched.warned == ["late, not_json"]


def test_few_records_are_not_looked_at() -> None:
    watched = Watched()
    watched.commit(0, not_json=FEWEST - 1)
    watched.now = 5 * WINDOW_S
    assert watched.warned == []
    watched.commit(0, not_json=1)
    assert watched.warned == ["not_json"]


def test_it_warns_once_in_a_while() -> None:
    watched = Watched()
    for _ in range(10):
        watched.commit(0, not_json=100)
    assert watched.warned == ["not_json"]
    watched.now = WINDOW_S + 1
    watched.commit(1000)
    assert watched.warned == ["not_json"]
    watched.commit(0, wrong_type=1000)
    assert watched.warned == ["not_json", "wrong_type"]


async def test_a_commit_counts_once_it_is_durable() -> None:
    told: list[Commit] = []
    commit, store = Commit(0, b"", records=3), MemoryStore()
    journal = operator_figures._Told(MemoryJournal(store), told.append)
    with pytest.raises(FailClosed):
        await journal.append(commit, b"sealed")  # it was not opened
    assert told == []
    await journal.open()
    await journal.append(commit, b"sealed")
    assert told == [commit]
    await journal.verify({})
    assert [sealed async for sealed in journal.read()] == [b"sealed"]
    await journal.close()
