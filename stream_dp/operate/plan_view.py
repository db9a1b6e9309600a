"""The plan of a pipeline file as `stream-dp plan` shows it, as plain values. Touches no data."""

from pathlib import Path
from typing import Any

from stream_dp.accounting.amounts import text
from stream_dp.operate.budget_view import budget_json
from stream_dp.pipeline.builder import Built, Chosen, build
from stream_dp.pipeline.caveats import caveats
from stream_dp.pipeline.derivations import dp_at
from stream_dp.pipeline.file.yaml import load
from stream_dp.pipeline.promise import lists_words, plain_promise, unit_words
from stream_dp.pipeline.report import MADE, derivation_json, plan_json, predicted_errors
from stream_dp.statistics.parts.made_of import MadeOf


class PlanView:
    """The guarantee of `pipeline`, its derivation, and the errors to expect.

    Raises:
        UsageError, NotDerivable, BudgetRefused: the pipeline cannot run with this file.
    """

    def __init__(self, pipeline: Path) -> None:
        self._built = build(load(pipeline))

    def json(self) -> dict[str, Any]:
        """Return the plan as `--json` prints it, see `plan_json`."""
        return plan_json(self._built)

    def shown(self) -> dict[str, Any]:
        """Return the plan for people: exact decimal amounts, budget, derivation, errors by tick, notes."""
        built = self._built
        measure = dp_at(built.derivation, built.spec.privacy.delta)
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
            "notes": caveats(built),
        }


def _made(made: MadeOf) -> dict[str, Any]:
    return {
        "name": made.series.name,
        "mechanism": MADE,
        "epsilon": "0",
        "why": made.why,
        "supposing": "",
        "errors": {},
        "windows": {},
        "alarms": [],
    }


def _series(built: Built, chosen: Chosen) -> dict[str, Any]:
    return {
        "name": chosen.spec.name,
        "mechanism": type(chosen.mechanism).__name__,
        "epsilon": text(chosen.spec.price),
        "why": chosen.choice.why,
        "supposing": chosen.choice.supposing,
        "errors": dict(predicted_errors(built.spec, chosen)),
        "windows": {
            name: {tick: expected(tick) for tick, _ in predicted_errors(built.spec, chosen)}
            for name, expected in chosen.choice.windows.items()
        },
        "alarms": [each.words for each in chosen.choice.alarms],
    }
