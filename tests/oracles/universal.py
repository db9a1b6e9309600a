"""Universal mechanisms and their exact composition in Fractions: no float, no interval, every answer listed."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from stream_dp.audit.finite import Law
from stream_dp.audit.randomized_response import noisy_bit

ONE, ZERO = Fraction(1), Fraction(0)
Part = tuple[Fraction, Fraction]  # (odds = e^epsilon, delta)


def composed_delta(parts: Sequence[Part], ratio: Fraction) -> Fraction:
    """Murtagh, Vadhan: the least delta of RR_(e1,d1) x ... at e^epsilon = ratio, over all 2^k answers."""
    found = ZERO
    for told in itertools.product((True, False), repeat=len(parts)):
        p = math.prod((o if t else ONE for t, (o, _) in zip(told, parts, strict=True)), start=ONE)
        q = math.prod((ONE if t else o for t, (o, _) in zip(told, parts, strict=True)), start=ONE)
        found += max(ZERO, p - ratio * q)
    found /= math.prod((1 + odds for odds, _ in parts), start=ONE)
    return 1 - (1 - found) * math.prod((1 - d for _, d in parts), start=ONE)


@dataclass(frozen=True)
class LateResponse:
    """(ln odds, delta)-DP for one changed bit: TOP or BOTTOM first, whatever the bit; then RR of the second bit."""

    odds: Fraction
    delta: Fraction

    def initial(self) -> Mapping[str, Fraction]:
        """Nothing taken."""
        return {"new": ONE}

    def step(self, state: str, query: int) -> Law[str]:
        """Answer a bit."""
        if state == "new":
            return {("top", "top"): self.delta, ("bottom", "bottom"): 1 - self.delta}
        if state == "halted":
            return {(None, "halted"): ONE}
        law = {query: ONE} if state == "top" else noisy_bit(query, self.odds)
        return {(bit, "halted"): chance for bit, chance in law.items()}
