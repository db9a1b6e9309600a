"""The verifier V[f] of [HSV] Def 3.5, as games need it: between the adversary and the mechanism.

It halts at the first message that is not an f-valid pair. Production uses `engine.guard` for this.
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
        """Whether the verifier has refused a message."""
        return self.function is None

    def verify(self, message: Any) -> "Verifier":
        """Return the verifier after this message; halted for ever where it is not an f-valid pair (left, right)."""
        if self.function is None:
            return self
        pair = isinstance(message, tuple) and len(message) == 2
        return Verifier(self.function.accept(*message) if pair else None)
