"""What is said beforehand of false alarms: how likely one is per key and day, and what would make it unlikely.

Rules: values of public numbers. An alarm is mostly noise where a false one has a chance above `TOLERATED`, or where it
cannot tell its threshold from nothing. This file knows no mechanism and no statistic.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

TOLERATED = 0.05
"""The largest chance of a false alarm per key and day that needs no confirmation."""


@dataclass(frozen=True, slots=True)
class Compared:
    """How an alarm compares: its `threshold`, from which a count is told apart only beyond `band`.

    A count that is `distance` away from the threshold has a false alarm with a chance that is tolerated. All are in
    numbers that people read; a unit of counts is `grain` of them. `follows`: the usual count is that of the threshold,
    and not given.
    """

    threshold: int
    band: float
    distance: int
    below: bool = False
    follows: bool = True
    grain: Fraction = Fraction(1)

    @property
    def blurred(self) -> bool:
        """Whether the band is as wide as the threshold."""
        return self.threshold != 0 and self.band >= abs(self.threshold)

    def enough(self, usual: int) -> int | None:
        """Return a threshold that would do, in two digits where it can be; None where the usual count leaves none."""
        needed, least, step = self.distance, math.floor(self.band) + 1, self.grain.numerator
        if self.below and not self.follows:
            level = (usual - needed) // step * step
            told_apart = abs(level) >= least and (level > 0 or self.threshold <= 0)
            return level if told_apart else None
        halfway = needed if self.below and self.threshold > 0 else 2 * needed
        size = halfway if self.follows else usual + needed
        found = _stepped(max(size, least), step)
        return -found if self.below and self.threshold <= 0 else found

    def dearer(self, usual: int) -> float:
        """Return by what factor more epsilon would do; a unit, and a twentieth, are for what is whole in noise."""
        unit = float(self.grain)
        apart = max(abs(self.threshold - usual) - unit, unit / 2)
        blur = (self.band + unit) / abs(self.threshold) if self.threshold else 0
        return max(1.05 * self.distance / apart, blur, 1.0)


@dataclass(frozen=True, slots=True)
class FalseAlarm:
    """The chance, at most, that one key of `name` fires on a day while its count stays at `usual`.

    Or its one count, where it is not `keyed`; or its sum, `of` a field.
    """

    name: str
    usual: int
    chance: float
    keyed: bool = True
    of: str | None = None
    compared: Compared | None = field(default=None, compare=False)

    def json(self) -> dict[str, Any]:
        """Return it as plain values; `of` stands there of a sum only."""
        told = {"name": self.name, "usual": self.usual, "chance": self.chance, "keyed": self.keyed}
        return told if self.of is None else {**told, "of": self.of}

    @property
    def words(self) -> str:
        """Return it as a sentence."""
        where = "per key and day" if self.keyed else "per day"
        what = "count" if self.of is None else f"sum of {self.of}"
        return (
            f"{self.name}: a false alarm {where} with a chance of at most {self.chance:.2g}, while its {what} stays at "
            f"{self.usual:,}"
        )

    @property
    def noisy(self) -> bool:
        """Whether it fires mostly by noise."""
        blurred = self.compared is not None and self.compared.blurred
        return blurred or self.chance > TOLERATED

    @property
    def badness(self) -> tuple[float, float]:
        """What is the larger, the more of what it fires is noise: the chance, and the band over the threshold."""
        compared = self.compared
        blur = 0.0 if compared is None else compared.band / max(1, abs(compared.threshold))
        return self.chance, blur

    def noise(self, epsilon: Fraction | None = None) -> str:
        """Return why it fires mostly by noise, and what would do; it repeats no number that was written.

        `epsilon`: what it has, where it may have more.
        """
        where = "per key and day" if self.keyed else "per day"
        percent = 100 * self.chance
        shown = f"{percent:.0f}" if percent >= 1 else f"{percent:.1g}"
        said = f"mostly noise: a false alarm {where} has a chance of at most {shown} %"
        if (compared := self.compared) is None:
            return said
        if compared.blurred:
            said += f", and the band of ± {compared.band:,.6g} is not less than the threshold"
        threshold, enough = compared.enough(self.usual), []
        if threshold is not None:
            enough.append(f"a threshold of {threshold:,}")
        if epsilon is not None:
            dearer = float(epsilon) * compared.dearer(self.usual)
            enough.append(f"epsilon {_two_digits(dearer):.12g}")
        return f"{said}. {' or '.join(enough).capitalize()} would do" if enough else said


def noise_of(alarms: Sequence[FalseAlarm], epsilon: Fraction | None = None) -> str:
    """Return why alarms are mostly noise: of several, of the one that is likeliest to be false; empty where none is."""
    noisy = [(*alarm.badness, -place) for place, alarm in enumerate(alarms) if alarm.noisy]
    if not noisy:
        return ""
    place = -max(noisy)[-1]
    which = f"watch[{place}]: " if len(alarms) > 1 else ""
    return f"{which}{alarms[place].noise(epsilon)}"


def _stepped(number: int, step: int) -> int:
    """The least multiple of a step in two digits, or of the step itself where it has more, that is not less."""
    return -(-math.ceil(_two_digits(number)) // step) * step


def _two_digits(number: float) -> float:
    """The least number of two digits that is not less."""
    unit = 10.0 ** (math.floor(math.log10(number)) - 1)
    return float(f"{math.ceil(number / unit - 1e-9) * unit:.12g}")
