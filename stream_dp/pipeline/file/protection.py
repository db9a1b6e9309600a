"""From the relation that mechanisms are made for to the pipeline's promise, by steps of that relation.

Rules: no mechanism knows an event that moves, and only counts of users themselves know a user. A mechanism is made
for one step with its part of a series' epsilon, and the accounting derives the rest. This file knows no series.
"""

from dataclasses import dataclass
from fractions import Fraction

from stream_dp.accounting.derive import derive as tightest
from stream_dp.accounting.rules.moved import STEPS
from stream_dp.accounting.situations import Moved, OfUsers
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import Protected
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.users import Users


@dataclass(frozen=True, slots=True)
class Protection:
    """The neighbouring streams: they differ in one event, or in all counting events of a user."""

    relation: Neighbors
    users: Users | None = None

    @property
    def protected(self) -> Protected:
        """The units that the ledgers protect."""
        return Protected(self.relation, self.users)

    @property
    def steps(self) -> int:
        """Number of steps of the mechanisms' relation that make one step of the pipeline's."""
        if self.users is not None:
            return self.users.cap
        return 1 if self.relation.step is self.relation else STEPS

    @property
    def share(self) -> Fraction:
        """The share of a series' epsilon that its mechanism may spend under `relation.step`."""
        return Fraction(1, self.steps)

    def of(self, subject: str, step: Derivation) -> Derivation:
        """Derive the guarantee of this protection from that of one step.

        Raises:
            NotDerivable: the step's measure has no group rule.
        """
        if step.guarantee.users == self.users is not None:
            return step
        if self.users is not None:
            return tightest((step,), OfUsers(subject, self.users))
        if step.guarantee.neighbors is self.relation:
            return step
        return tightest((step,), Moved(subject))
