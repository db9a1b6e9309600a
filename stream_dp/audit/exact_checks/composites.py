"""Composite mechanisms ([HSV] Thm 6.1, Cor 6.6): HSS, small enough for exact laws."""

from fractions import Fraction

from stream_dp.accounting.derive import derive
from stream_dp.accounting.rules.leaf import leaf
from stream_dp.accounting.situations import Composite, Fixed, Parallel, Touched
from stream_dp.audit.exact_checks.instance import ADD, Instance, private
from stream_dp.audit.finite import DifferAtMost
from stream_dp.audit.small_hss import SmallHSS
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import Guarantee

HALF = Fraction(1, 2)
SMALL = SmallHSS(2, HALF, HALF, HALF, gamma=0, low=0, high=4)
ROWS = ((0, 0), (0, 1), (2, 0))
ADDED = (((0, 0), (1, 0)), ((0, 1), (1, 1)), ((1, 0), (2, 0)))
SUITE = "tests/unit/audit/test_small_hss.py"


def once(pairs: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]) -> DifferAtMost:
    """One of these pairs or its mirror image, once, among equal rows."""
    return DifferAtMost(ROWS, (*pairs, *((b, a) for a, b in pairs)))


def _parts() -> Derivation:
    """The sparse vectors, one after the other, and the columns' counters."""
    proof = "audit.exact_checks"
    vector = leaf("sparse vectors", Guarantee(private(Fraction(4)), ADD), proof)
    counter = leaf("counters", Guarantee(private(Fraction(2)), ADD), proof)
    one = Touched.intervals(ADD, "one sparse vector at a time", SUITE)
    vectors = derive((vector,), Parallel("sparse vectors", one))
    counters = derive((counter,), Parallel("counters", Touched.columns(ADD, SMALL.width), (2,)))
    return derive((vectors, counters), Fixed("parts"))


def hss() -> tuple[Instance, ...]:
    """Return the instances of the composite rule: two columns, two ticks."""
    why = "thresholds, intervals and releases depend on answers only"
    return (
        Instance(
            "HSS on 2 columns, 2 ticks, all three noises of ln 2",
            (_parts(),),
            Composite("hss", why, "a row goes to each part as it is", SUITE),
            SMALL,
            once(ADDED),
            2,
        ),
    )
