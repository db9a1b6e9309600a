"""Which filters are proven for concurrent, continual mechanisms; a ledger of running mechanisms takes only these."""

from dataclasses import dataclass

from stream_dp.accounting.filters.approximate import TightApproximateFilter
from stream_dp.accounting.filters.basic import BASIC, BasicFilter
from stream_dp.accounting.filters.filter import Filter
from stream_dp.accounting.filters.gaussian import GaussianFilter
from stream_dp.accounting.filters.pure import PURE, PureFilter
from stream_dp.accounting.filters.renyi import RenyiFilter
from stream_dp.accounting.filters.zcdp import ZCDPFilter
from stream_dp.errors import NotDerivable


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether a filter is proven for concurrent continual mechanisms, by what, and under which condition."""

    proven: bool
    source: str
    condition: str = ""


CONCURRENT: dict[str, Standing] = {
    PURE: Standing(
        True,
        "[HSV] Thm 12.4 over basic composition, at each tick over what is alive then, so that a halt frees later "
        "ticks: [HSV] Cor 5.7 and docs/time.md",
    ),
    BASIC: Standing(
        True,
        "[HSV] Thm 12.4 over basic composition, with [Lyu] Thm 3; a halt frees what has no delta",
    ),
    "tight approximate": Standing(True, "[HSV] Thm 12.4 over [WRRW] Thm 1 for RR_(e,d)"),
    "zCDP": Standing(True, "[HSV] Cor 13.8 at every order", "every delta is 0"),
    "RDP": Standing(True, "[HSV] Cor 13.8, [HSTV]", "one order, fixed at creation"),
    "GDP": Standing(
        True, "[HSV] Cor 14.10", "finite communication ([HSV] Def 14.4) of what is not pure"
    ),
    "approximate zCDP": Standing(
        False, "[WRRW] Thm 1 is sequential; [HSTV] does not lift approximate zCDP"
    ),
}

CLASSES: dict[str, type] = {
    PURE: PureFilter,
    BASIC: BasicFilter,
    "tight approximate": TightApproximateFilter,
    "zCDP": ZCDPFilter,
    "RDP": RenyiFilter,
    "GDP": GaussianFilter,
}  # the exact classes of the table; a name, or a subclass, proves nothing


def proven(filter_: Filter) -> Standing:
    """Return the filter's standing.

    Raises:
        NotDerivable: the filter is not proven for concurrent continual mechanisms, or is not exactly of a proven
            class.
    """
    standing = CONCURRENT.get(filter_.name)
    if standing is None or not standing.proven:
        reason = "it is not in the table CONCURRENT" if standing is None else standing.source
        raise NotDerivable(
            f"the {filter_.name} filter is not proven for concurrent continual mechanisms: {reason}. "
            f"Proven are: {', '.join(name for name, s in CONCURRENT.items() if s.proven)}"
        )
    if type(filter_) is not CLASSES.get(filter_.name):
        raise NotDerivable(
            f"the {filter_.name} filter is proven as it stands in this package; a {type(filter_).__name__} is another "
            "one, whatever it is called"
        )
    return standing
