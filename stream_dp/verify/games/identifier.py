"""The identifier I(b) ([HSV] Def 3.2): of every pair of messages it passes on message b. Games and audits only."""

from dataclasses import dataclass
from typing import Any, Literal

from stream_dp.verify.games.transcript import Side


@dataclass(frozen=True, slots=True)
class Identifier:
    """The post-processor I(b): from the left (m_0, m_1), to the right m_b; answers go back unchanged."""

    b: Literal[0, 1]

    def init(self) -> None:
        """Return the first state: nothing to remember beside the bit."""

    def step(self, state: None, side: Side, message: Any) -> tuple[None, Side, Any]:
        """Pick, or pass back."""
        if side is Side.LEFT:
            return None, Side.RIGHT, message[self.b]
        return None, Side.LEFT, message
