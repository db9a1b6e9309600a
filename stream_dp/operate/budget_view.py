"""The state of a budget as commands and the API show it. Amounts are decimal strings: costs rounded up, rest down.

Rules: everything here is public: parameters, charges, and what a filter makes of them.
"""

from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Final

from stream_dp.accounting.amounts import budget_units, text
from stream_dp.accounting.filters.filter import Spend, largest_pure
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.subledgers import MAIN, Subledgers
from stream_dp.accounting.truncated_odometer import truncated_odometer_at
from stream_dp.errors import BudgetRefused
from stream_dp.pipeline.file.spec import PipelineSpec

OF_THE_FILE: Final = "file"
_NOTHING = Spend()
_ANY = Fraction(1, 2)  # a delta that the pure filter does not look at


def budget_json(spec: PipelineSpec, subledgers: Subledgers) -> dict[str, Any]:
    """Return the budget, what is spent, and `left`: the largest pure epsilon that one more series may cost.

    Under the pure and the basic filter `spent` is what is alive now and `peak` the most that ever was, in epsilon;
    under another one they count what that filter adds up (`unit`). `delta_spent` and `delta_left` are of the part of
    `delta` that is for the series' own.
    """
    main = subledgers.main
    return {
        "budget": text(budget_units(spec.privacy.epsilon)),
        "delta": text(spec.privacy.delta),
        "delta_spent": text(main.used.delta),
        "delta_left": text(main.remaining.delta),
        "filter": main.filter.name,
        "unit": main.filter.unit,
        "capacity": _down(main, main.epsilon),
        "spent": spent(main),
        "peak": _up(main, main.peak.amount),
        "left": text(fits(main)),
        "odometer": odometer(spec, main),
        "analysts": [
            {"name": name, "budget": text(ledger.epsilon), "spent": text(ledger.spent), "left": text(ledger.left)}
            for name, ledger in subledgers.ledgers.items()
            if name != MAIN
        ],
    }  # fmt: skip


def api_budget(
    spec: PipelineSpec,
    subledgers: Subledgers,
    prices: Iterable[tuple[str, Fraction]],
    scope: str = "",
) -> dict[str, Any]:
    """Return budget, spending and odometer for `GET /api/budget`; `prices` are the epsilons of the series that run.

    `scope` says of what, where that is not all. `epsilon.spent` counts what the filter adds up, in `unit`, of
    `capacity`; the other amounts are epsilons.
    """
    shown = budget_json(spec, subledgers)
    return {
        **({"scope": scope} if scope else {}),
        "epsilon": {"total": shown["budget"], "spent": shown["spent"], "left": shown["left"]},
        "delta": {"total": shown["delta"], "spent": shown["delta_spent"], "left": shown["delta_left"]},
        "filter": shown["filter"],
        "unit": shown["unit"],
        "capacity": shown["capacity"],
        "peak": shown["peak"],
        "odometer": shown["odometer"],
        "analysts": [
            {"name": a["name"], "epsilon": {"total": a["budget"], "spent": a["spent"], "left": a["left"]}}
            for a in shown["analysts"]
        ],
        "series": [{"name": name, "epsilon": text(epsilon)} for name, epsilon in prices],
    }  # fmt: skip


def fits(ledger: Ledger, also: Spend = _NOTHING) -> int:
    """Return the largest pure epsilon, in units, that a series may cost now; 0 where the filter takes none.

    `also` is to be spent before it.
    """
    try:
        return largest_pure(ledger.filter, ledger.remaining - also)
    except BudgetRefused:
        return 0


def odometer(spec: PipelineSpec, main: Ledger) -> dict[str, str]:
    """Return what is lost so far: the truncated-view odometer ([HSTV] Def 2.11) of all that was alive at one tick.

    Under the pure and the basic filter the largest load of any tick; under another one the least epsilon at the file's
    delta whose filter would still have admitted every charge.
    """
    now = truncated_odometer_at(main.filter, main.peak, spec.privacy.delta or _ANY)
    claim = (
        "fix an epsilon beforehand: the view up to the moment at which this exceeds it is "
        "(epsilon, delta)-DP"
    )
    least = min(
        now.epsilon, spec.privacy.epsilon
    )  # roundings aside, what the filter admits is within its promise
    return {"bound": text(least), "delta": text(now.delta), "claim": claim}


def spent(ledger: Ledger) -> str:
    """Return what is spent, in the filter's unit."""
    return _up(ledger, ledger.spent)


def _up(ledger: Ledger, amount: int) -> str:
    return text(Fraction(amount, ledger.filter.scale))


def _down(ledger: Ledger, amount: int) -> str:
    return text(budget_units(Fraction(amount, ledger.filter.scale)))
