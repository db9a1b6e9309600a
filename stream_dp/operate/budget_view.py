"""The state of a budget as commands and the API show it. Amounts are decimal strings: costs rounded up, rest down.

Rules: everything here is public: parameters, charges, and what a filter makes of them.
"""

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, get_args

from stream_dp.accounting.amounts import budget_units, text
from stream_dp.accounting.filters.filter import NOTHING, Entry, Spend, largest_pure, most_alike
from stream_dp.accounting.ledger import Ledger, taken, truncated_odometer_at
from stream_dp.accounting.loads import local_part
from stream_dp.accounting.subledgers import MAIN, Subledgers
from stream_dp.core.box import EVERYTHING, Box
from stream_dp.errors import BudgetRefused
from stream_dp.pipeline.budget import charged, filter_of, uses
from stream_dp.pipeline.builder import Built, Chosen, build, first_charges
from stream_dp.pipeline.derivations import dp_at
from stream_dp.pipeline.promise import caveats, lists_words, plain_promise, unit_words, warnings
from stream_dp.pipeline.report import (
    caps_json,
    caps_words,
    derivation_json,
    plan_json,
    predicted_errors,
)
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.verdicts import Guessed, judged, summary
from stream_dp.pipeline.yaml import load
from stream_dp.records.privacy import FilterName, Privacy
from stream_dp.statistics.parts.series_spec import MadeOf

OF_THE_FILE: Final = "file"
ALIKE: Final = 40
MOST_ALIKE: Final = 1_000
"""Filters are compared by how many more series of a fortieth of the budget they would take, up to so many."""
_ANY = Fraction(1, 2)  # any delta will do: the pure filter does not use it


def budget_json(spec: PipelineSpec, subledgers: Subledgers) -> dict[str, Any]:
    """Return the budget, the amount spent, and `left`: the largest pure epsilon that one more series may cost.

    `spent` is what the series alive now use, and what no halt has freed; `peak` is the largest such amount so far.
    Both count the quantity that the filter adds up (`unit`), of the records that meet most of it (`heaviest`; "" where
    all records meet the same). `frees`: whether a halt gives the price of a live series back to later ticks.
    `delta_spent` and `delta_left` concern the part of `delta` that is reserved for the deltas of single series.
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
        "peak": _up(main, taken(main.filter, main.peak).amount),
        "left": text(fits(main)),
        "heaviest": _words(main.loads.heaviest_records()),
        "frees": main.frees,
        "odometer": odometer(spec, main),
        "analysts": [
            {
                "name": name,
                "budget": text(ledger.epsilon), "spent": text(ledger.spent), "left": text(ledger.left),
                "records": _words(subledgers.partitions.get(name, EVERYTHING)),
            }
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

    A non-empty `scope` names the part of the pipeline that the figures cover. `epsilon.spent` and `capacity` count
    the quantity that the filter adds up, in `unit`; all other amounts are epsilons.
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
        "heaviest": shown["heaviest"],
        "frees": shown["frees"],
        "odometer": shown["odometer"],
        "analysts": [
            {
                "name": a["name"], "records": a["records"],
                "epsilon": {"total": a["budget"], "spent": a["spent"], "left": a["left"]},
            }
            for a in shown["analysts"]
        ],
        "series": [
            {"name": name, "epsilon": text(epsilon), **_live(subledgers, name)} for name, epsilon in prices
        ],
    }  # fmt: skip


def _live(subledgers: Subledgers, name: str) -> dict[str, Any]:
    """Return which records a live series sees, and whether its halt frees them; nothing of a series of the file."""
    if name not in subledgers.running:
        return {}
    analyst, entry = subledgers.running[name]
    ledger = subledgers.ledgers[analyst]
    frees = local_part(ledger.filter, entry, ledger.protected) != NOTHING
    return {"records": _words(entry.box), "frees": frees}


def freed(ledger: Ledger, entry: Entry) -> dict[str, str]:
    """Return what a halt of the entry's mechanism gives back to one more series that sees the same `records`.

    Such a series may cost `freed` more than before, at most `largest`. One that sees every record may cost `left`.
    """
    after = ledger.halt(entry, 0)
    currency = entry.each[0].currency
    before, then = (_fits_on(book, entry.box, currency) for book in (ledger, after))
    return {
        "records": _words(entry.box),
        "freed": text(max(0, then - before)),
        "largest": text(then),
        "left": text(fits(after)),
    }


def freed_everywhere(ledger: Ledger, left: str) -> str:
    """Return how much more one more series that sees every record may cost, where a halt leaves `left`."""
    return text(max(0, budget_units(Fraction(left)) - fits(ledger)))


def _fits_on(ledger: Ledger, records: Box, currency: str) -> int:
    met = ledger.loads.at(records, currency=currency)
    return fits(ledger, met) if records.sides else fits(ledger)


def whole_budget(spec: PipelineSpec, ledger: Ledger, analyst: str) -> str:
    return text(budget_units(spec.privacy.epsilon) if analyst == MAIN else ledger.epsilon)


def fits(ledger: Ledger, used: Spend | None = None) -> int:
    """Return the largest pure epsilon, in units, that one more series may cost beside `used`; 0 if none fits.

    `used` is what an event meets; without it, the most that any event does.
    """
    try:
        return largest_pure(ledger.filter, ledger.used if used is None else used)
    except BudgetRefused:
        return 0


def odometer(spec: PipelineSpec, main: Ledger) -> dict[str, str]:
    """Return the loss so far: the truncated-view odometer ([HSTV] Def 2.11) of all series alive at one tick.

    It is the least epsilon, at the file's delta, whose filter would still have admitted every charge: under the pure
    and the basic filter the largest load of any tick.
    """
    now = truncated_odometer_at(main.filter, main.peak, spec.privacy.delta or _ANY)
    claim = (
        "fix an epsilon beforehand: the view up to the moment at which this exceeds it is "
        "(epsilon, delta)-DP"
    )
    least = min(
        now.epsilon, spec.privacy.epsilon
    )  # rounding could lift the bound above the promise, which the filter never exceeds
    return {"bound": text(least), "delta": text(now.delta), "claim": claim}


def spent(ledger: Ledger) -> str:
    """Return the amount spent, in the filter's unit."""
    return _up(ledger, ledger.spent)


def _words(records: Box) -> str:
    return str(records) if records.sides else ""


def _up(ledger: Ledger, amount: int) -> str:
    return text(Fraction(amount, ledger.filter.scale))


def _down(ledger: Ledger, amount: int) -> str:
    return text(budget_units(Fraction(amount, ledger.filter.scale)))


def whole_plan_json(built: Built) -> dict[str, Any]:
    """Return the plan as `plan --json` prints it: see `plan_json`, `budget_json`, `filters_json`, `caps_json` and
    `verdicts.Row.json`."""
    return {
        **plan_json(built),
        "budget": budget_json(built.spec, built.subledgers()),
        "filters": filters_json(built),
        **caps_json(built),
        "verdicts": [row.json() for row in judged(built, Guessed(built.spec))],
    }


def judged_plan_json(built: Built) -> dict[str, Any]:
    """Return the plan for `GET /api/plan`: `plan_json`, with the verdicts of each series where the file has guesses."""
    planned = plan_json(built)
    if built.spec.privacy.expect is None:
        return planned
    rows = judged(built, Guessed(built.spec))
    series = [
        {**entry, "verdicts": [row.json() for row in rows if row.series == entry["name"]]}
        for entry in planned["series"]
    ]
    return {**planned, "series": series}


class PlanView:
    """The plan of `pipeline` as `stream-dp plan` shows it: guarantee, derivation, expected errors. Touches no data.

    Raises:
        UsageError, NotDerivable, BudgetRefused: the pipeline cannot run with this file.
    """

    def __init__(self, pipeline: Path) -> None:
        self._built = build(load(pipeline))

    def json(self) -> dict[str, Any]:
        return whole_plan_json(self._built)

    def shown(self) -> dict[str, Any]:
        """Return the plan for people: exact decimal amounts, budget, derivation, errors by tick, notes."""
        built = self._built
        measure = dp_at(built.derivation, built.spec.privacy.delta)
        rows = judged(built, Guessed(built.spec))
        return {
            "name": built.spec.name,
            "plainly": plain_promise(built.spec),
            "epsilon": text(measure.epsilon),
            "delta": text(measure.delta),
            "unit": unit_words(built.spec),
            "neighbors": str(built.spec.relation),
            "condition": built.spec.condition,
            "lists": lists_words(built.spec),
            "budget": budget_json(built.spec, built.subledgers()),
            "derivation": derivation_json(built.promise),
            "confidence": float(built.spec.confidence),
            "series": [
                *(_series(built, chosen) for chosen in built.chosen),
                *(_made(made) for made in built.made),
            ],
            "filters": filters_json(built),
            "caps": [caps_words(each) for each in caps_json(built).get("caps", ())],
            "guessed": built.spec.privacy.expect is not None,
            "verdicts": [(row.series, row.window, *row.words) for row in rows],
            "summary": summary(rows),
            "warnings": (urgent := warnings(built)),
            "notes": [note for note in caveats(built) if note not in urgent],
        }


def filters_json(built: Built) -> list[dict[str, Any]]:
    """Return what the file's filter leaves beside the file's series, and what every other one would that takes them.

    `series` is how many more of `epsilon` each, a fortieth of the budget, would fit at once where each sees every
    record (at most `MOST_ALIKE`); None where the filter would refuse the file's series.
    """
    privacy = built.spec.privacy
    size = max(1, budget_units(privacy.epsilon) // ALIKE)
    names = [privacy.filter, *(name for name in get_args(FilterName) if name != privacy.filter)]
    rows = []
    for name in names:
        ledger: Ledger | None = built.ledger
        if name != privacy.filter:
            other = privacy.under(name)
            if other is None or not _takes(other, built):
                continue
            ledger = _booked(other, built)
        more = None if ledger is None else most_alike(ledger.filter, ledger.used, size, MOST_ALIKE)
        rows.append({"filter": name, "epsilon": text(size), "series": more})
    return rows


def _takes(privacy: Privacy, built: Built) -> bool:
    """Return whether the filter has a theorem for each series of the file."""
    protected = built.spec.protection.protected
    shares = bool(privacy.shared)
    ledger = Ledger.under(filter_of(privacy, protected), protected=protected, shares=shares)
    try:
        for chosen in built.chosen:
            ledger.filter.cost(ledger.price(chosen.derivation, chosen.box))
    except BudgetRefused:
        return False
    return True


def _booked(privacy: Privacy, built: Built) -> Ledger | None:
    """Return the main ledger of the same file with another filter; None: it would refuse the file's series."""
    spec = built.spec.model_copy(update={"privacy": privacy})
    try:
        ledgers, block, parts = first_charges(spec, built.chosen)
        fits, _ = uses(ledgers[MAIN], parts)
    except BudgetRefused:
        return None
    return charged(ledgers[MAIN], block, parts) if fits else None


def _made(made: MadeOf) -> dict[str, Any]:
    return {
        "name": made.series.name,
        "epsilon": "0",
        "why": made.why,
        "supposing": "",
        "errors": {},
        "windows": {},
        "alarms": [],
        "bounds": None,
    }


def _series(built: Built, chosen: Chosen) -> dict[str, Any]:
    return {
        "name": chosen.spec.name,
        "statistic": chosen.spec.statistic,
        "epsilon": text(chosen.spec.price),
        "why": chosen.choice.why,
        "supposing": chosen.choice.supposing,
        "errors": dict(predicted_errors(built.spec, chosen)),
        "windows": {
            name: {tick: expected(tick) for tick, _ in predicted_errors(built.spec, chosen)}
            for name, expected in chosen.choice.windows.items()
        },
        "alarms": [each.words for each in chosen.choice.alarms],
        "bounds": None if chosen.choice.bounds is None else chosen.choice.bounds(),
    }
