"""The verifier V[f] of [HSV] Def 3.5, as games need it: between the adversary and the mechanism.

It halts at the first message that is no f-valid pair. What production needs of it is `engine.guard`.
"""

from dataclasses import dataclass
from typing import Any

from stream_dp.core.relation import Relation


@dataclass(frozen=True, slots=True)
class Verifier:
    """V[f]: pairs pass while they are f-valid; afterwards nothing passes. `function` is None once it has halted."""

    function: Relation | None

    @property
    def halted(self) -> bool:
        """Whether a message has been refused."""
        return self.function is None

    def verify(self, message: Any) -> "Verifier":
        """The verifier after this message; halted for ever where it is no f-valid pair (left, right)."""
        if self.function is None:
            return self
        pair = isinstance(message, tuple) and len(message) == 2
        return Verifier(self.function.accept(*message) if pair else None)
