"""Local protocols ([HSV] Def 8.5): all users' mechanisms, then all their data sets, then queries of the server.

Rules: `datasets` judges the pairs of data sets in the order of the users; a prefix that it accepts must have a
completion to neighbouring sequences. Each user's own verification function judges the queries to that user.
"""

from dataclasses import dataclass, replace
from typing import Any

from stream_dp.core.composition import Ask, Create
from stream_dp.core.relation import Relation, same
from stream_dp.verify.relations.creation import Truth, own
from stream_dp.verify.relations.static import DataNeighbors
from stream_dp.verify.relations.suitable import Suitable


@dataclass(frozen=True, slots=True)
class SparseDataSets:
    """At most `k` of the pairs of data sets differ, each by `relates`: ~_(k, ~*) of [HSV] Cor 8.8."""

    k: int
    relates: DataNeighbors

    @property
    def first_pair_consistent(self) -> bool:
        """False: a later user's data set may be the one that differs."""
        return False

    def accept(self, left: Any, right: Any) -> "SparseDataSets | None":
        """Take the pair of the next user."""
        if same(left, right):
            return self if self.relates(left, right) else None
        return replace(self, k=self.k - 1) if self.k and self.relates(left, right) else None


@dataclass(frozen=True, slots=True)
class LocalMessages:
    """f_(P, ~) ([HSV] Def 8.5): creation queries of the `users`, in order, and of an `auxiliary` mechanism where
    the server draws coins (Remark 8.3); one data set for each user, in order; then identical queries, to any user.

    `step` counts the messages so far, up to the last data set.
    """

    users: tuple[Create, ...]
    datasets: Relation
    auxiliary: tuple[Create, ...] = ()
    suitable: Suitable = Suitable()  # noqa: RUF009  an immutable value
    step: int = 0

    @classmethod
    def of(
        cls,
        users: tuple[Create, ...],
        datasets: Relation,
        auxiliary: tuple[Create, ...] = (),
        truth: Truth = own,
    ) -> "LocalMessages":
        """Return the relation before the first message."""
        return cls(users, datasets, auxiliary, Suitable(truth))

    @property
    def first_pair_consistent(self) -> bool:
        """False: the first pair is a creation."""
        return False

    def accept(self, left: Any, right: Any) -> "LocalMessages | None":
        """Return the relation after the next pair of messages; None where it refuses the pair."""
        suitable = self.suitable.accept(left, right)
        if suitable is None:
            return None
        if (expected := self._creation()) is not None:
            fits = same(left, expected)
            return replace(self, suitable=suitable, step=self.step + 1) if fits else None
        if not isinstance(left, Ask) or not isinstance(right, Ask):
            return None
        user = self.step - len(self.users) - len(self.auxiliary)
        if user < len(self.users):
            return self._dataset(user, left, right, suitable)
        return replace(self, suitable=suitable) if same(left, right) else None

    def _creation(self) -> Create | None:
        """Return the creation query that must come next, if any."""
        if self.step < len(self.users):
            return self.users[self.step]
        place = self.step - len(self.users)
        return self.auxiliary[place] if place < len(self.auxiliary) else None

    def _dataset(
        self, user: int, left: Ask, right: Ask, suitable: Suitable
    ) -> "LocalMessages | None":
        datasets = self.datasets.accept(left.message, right.message)
        if datasets is None or left.index != user:
            return None
        return replace(self, datasets=datasets, suitable=suitable, step=self.step + 1)
