"""The promise of a pipeline in one plain line, as the page says it too.

Rules: it is that of the whole budget, so it holds for all that is asked later; a factor is rounded up, never down.
"""

from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction

from stream_dp.accounting.amounts import text
from stream_dp.core.neighbors import Neighbors
from stream_dp.pipeline.file.spec import PipelineSpec
from stream_dp.pipeline.protected_words import unit_name, window_name

TELLING = 100
"""The factor from which on nobody would say that nothing can be told."""

_EXACT, _SHOWN = (Context(prec=digits, rounding=ROUND_CEILING) for digits in (40, 3))


def plain_promise(spec: PipelineSpec) -> str:
    """Return who is protected and what that means, in one line without a symbol."""
    thing, them, other = _protected(spec)
    factor, privacy = times(spec.privacy.epsilon), spec.privacy
    change = (
        f"with or without {them}"
        if spec.relation is Neighbors.ADD_REMOVE
        else f"with {them} or with {other}"
    )
    slack = f", apart from a probability of {text(privacy.delta)}" if privacy.delta else ""
    says = (
        f"no single {thing} can be told from what is published"
        if factor < TELLING
        else f"one {thing} may show in what is published"
    )
    moved = ", at any time," if spec.relation is Neighbors.REPLACE_ANY_TICK else ""
    vouched = f", if {spec.condition}" if spec.condition else ""
    bound = f"{change}{moved} every outcome is at most {factor:,f} times as likely{slack}{vouched}."
    return f"{spec.name} protects {unit_name(spec)}: {says}: {bound}"


def times(epsilon: Fraction) -> Decimal:
    """Return e to the power of `epsilon` in three digits, rounded up.

    >>> times(Fraction(2)), times(Fraction(1, 100)), times(Fraction(10))
    (Decimal('7.39'), Decimal('1.02'), Decimal('2.21E+4'))
    """
    power = _EXACT.divide(Decimal(epsilon.numerator), Decimal(epsilon.denominator))
    factor = _EXACT.next_plus(power.exp(_EXACT))  # exp rounds to the nearest
    return _SHOWN.plus(factor)


def _protected(spec: PipelineSpec) -> tuple[str, str, str]:
    privacy = spec.privacy
    if privacy.unit == "event":
        return "event", "it", "another in its place"
    window = f" of one {window_name(privacy.per)}" if privacy.per else ""
    return f"{privacy.user}'s events{window}", "them", "others in their place"
