"""An entry of a ledger: integers and names only, so that a journal can hold it.

Rules: amounts count units of 10^-12, rounded up. `measure` names the privacy measure of the amounts; a filter takes
only measures for which it has a theorem. This file knows no filter.
"""

from dataclasses import dataclass
from fractions import Fraction

DP = "DP"
ZERO_CONCENTRATED = "zCDP"
GAUSSIAN = "GDP"
GAUSSIAN_FINITE = "GDP, finite communication"


PARAMETERS = {ZERO_CONCENTRATED: "rho", GAUSSIAN: "mu", GAUSSIAN_FINITE: "mu"}  # else epsilon


def renyi(alpha: Fraction) -> str:
    """Return the name of Renyi DP at this order."""
    return f"RDP at alpha {alpha}"


@dataclass(frozen=True, slots=True)
class Entry:
    """A charge: the mechanism's name, the amount, and the rule that gave it.

    `epsilon` is the measure's main parameter: epsilon of DP, and of RDP at an order; rho of zCDP; mu of GDP.
    """

    name: str
    epsilon: int
    delta: int
    rule: str
    measure: str = DP
