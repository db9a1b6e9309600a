"""The content of `plan`: the derivation tree, the price of each part, the expected error. Touches no data."""

from collections.abc import Sequence
from typing import Any

from stream_dp.accounting.amounts import number
from stream_dp.core.derivation import Alternative, Derivation
from stream_dp.core.guarantee import NAMES, Guarantee, parameters
from stream_dp.pipeline.builder import Built, Chosen
from stream_dp.pipeline.derivations import dp_at
from stream_dp.pipeline.promise import lists_json, unit_json
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.statistics.parts.choice import ENDLESS
from stream_dp.statistics.parts.series_spec import MadeOf

POINTS = 12
MADE = "post-processing"


def plan_json(built: Built) -> dict[str, Any]:
    """Return the plan as `stream-dp plan --json` prints it; amounts are rounded up. `epsilon`, `delta` and `derivation`
    concern the file's series alone; `promise` covers everything asked later.
    """
    spec, measure = built.spec, dp_at(built.derivation, built.spec.privacy.delta)
    return {
        "epsilon": number(measure.epsilon),
        "delta": number(measure.delta),
        **unit_json(spec),
        "neighbors": str(spec.relation),
        **condition_json(spec),
        **lists_json(spec),
        "horizon": spec.clock.horizon,
        "series": [
            *(
                series_json(chosen, predicted_errors(spec, chosen), float(spec.confidence))
                for chosen in built.chosen
            ),
            *map(made_json, built.made),
        ],
        "derivation": derivation_json(built.derivation),
        "promise": promise_json(built, built.promise),
    }


def condition_json(spec: PipelineSpec) -> dict[str, str]:
    return {} if spec.condition is None else {"condition": spec.condition}


def promise_json(built: Built, promise: Derivation) -> dict[str, Any]:
    """Return the guarantee for everything asked now and later: the filter's budget and its derivation."""
    privacy = built.spec.privacy
    return {
        "epsilon": number(privacy.epsilon),
        "delta": number(privacy.delta),
        "filter": built.ledger.filter.name,
        "derivation": derivation_json(promise),
    }


def series_json(
    chosen: Chosen, errors: Sequence[tuple[int, float]], confidence: float, start: int = 0
) -> dict[str, Any]:
    """Return a series, of the file or from `start` on, with price and predicted `errors` (tick, half-width)."""
    measure = chosen.derivation.guarantee.measure
    alarms = [alarm.json() for alarm in chosen.choice.alarms]
    windows = [
        {
            "window": name,
            "predicted_error": _errors_json(
                [(tick, expected(tick - start)) for tick, _ in errors], confidence
            ),
        }
        for name, expected in chosen.choice.windows.items()
    ]
    return {
        "name": chosen.spec.name,
        "mechanism": type(chosen.mechanism).__name__,
        "why": chosen.choice.why,
        **{name: number(amount) for name, amount in parameters(measure).items()},
        "predicted_error": _errors_json(errors, confidence),
        **({"windows": windows} if windows else {}),
        **({"false_alarms": alarms} if alarms else {}),
    }


def made_json(made: MadeOf) -> dict[str, Any]:
    """Return a series that is made of other releases: it is free, and its error depends on them."""
    return {
        "name": made.series.name,
        "mechanism": MADE,
        "why": made.why,
        "epsilon": 0,
        "delta": 0,
        "predicted_error": [],
    }


def _errors_json(errors: Sequence[tuple[int, float]], confidence: float) -> list[dict[str, Any]]:
    return [{"tick": tick, "error": error, "confidence": confidence} for tick, error in errors]


def predicted_errors(spec: PipelineSpec, chosen: Chosen) -> list[tuple[int, float]]:
    """Return (tick, half-width) of the series' releases at a dozen ticks over the horizon."""
    return [(tick, chosen.choice.expected(tick)) for tick in _ticks(spec.clock.horizon or ENDLESS)]


def last_error(spec: PipelineSpec, chosen: Chosen) -> tuple[int, float]:
    """Return (tick, half-width) at the last or farthest predicted tick; for windows the largest half-width."""
    last = (spec.clock.horizon or ENDLESS) - 1
    errors = chosen.choice.windows.values() or (chosen.choice.expected,)
    return last, max(expected(last) for expected in errors)


def _ticks(horizon: int) -> list[int]:
    spread = {round(horizon ** (i / (POINTS - 1))) - 1 for i in range(POINTS)}
    return sorted(spread | {0, horizon - 1})


def derivation_json(derivation: Derivation) -> dict[str, Any]:
    """Return the tree as plain values; `alternatives` are the rules that were tried and not taken."""
    return {
        "subject": derivation.subject,
        "rule": derivation.rule,
        "source": derivation.source,
        "guarantee": guarantee_json(derivation.guarantee),
        "conditions": [
            {"name": c.name, "holds": c.holds, "why": c.why} for c in derivation.conditions
        ],
        "alternatives": [_alternative_json(other) for other in derivation.alternatives],
        "premises": [derivation_json(premise) for premise in derivation.premises],
    }


def guarantee_json(guarantee: Guarantee) -> dict[str, Any]:
    """Return a guarantee's parameters by name, with the measure unless it is DP, and with group or users."""
    name = NAMES[type(guarantee.measure)]
    amounts = {key: number(amount) for key, amount in parameters(guarantee.measure).items()}
    kind = {} if name == "DP" else {"measure": name}
    group = {} if guarantee.group == 1 else {"group": guarantee.group}
    users = {} if guarantee.users is None else {"users": str(guarantee.users)}
    return {**kind, **amounts, "neighbors": str(guarantee.neighbors), **group, **users}


def _alternative_json(other: Alternative) -> dict[str, Any]:
    named = {"rule": other.rule, "source": other.source}
    if isinstance(other.outcome, Guarantee):
        return {**named, "guarantee": guarantee_json(other.outcome)}
    return {**named, "refused": other.outcome}
