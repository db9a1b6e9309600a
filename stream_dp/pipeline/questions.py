"""What a pipeline makes of a question that is asked while it runs: an entry of `series:`, from its first tick on.

Rules: the same checks, mechanisms and derivations as for the series of the file; a question counts from its first
tick, never what was before. Its meaning depends on its definition, its first tick and the file, and on nothing else.
"""

import json
import re
from dataclasses import dataclass, field

from stream_dp.core.derivation import Derivation
from stream_dp.errors import UsageError
from stream_dp.pipeline.builder import Chosen, chosen_for
from stream_dp.pipeline.layout import RowLayout, feature_of, keys_of
from stream_dp.pipeline.open_router import OpenRouter
from stream_dp.pipeline.planner import last_error
from stream_dp.pipeline.series import Series as SeriesSpec
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load_series
from stream_dp.runtime.commit import Created
from stream_dp.runtime.questions import Question
from stream_dp.runtime.series import Series

_ESCAPED = re.compile("[\x7f-\uffff]")


@dataclass(slots=True)
class PipelineQuestions:
    """The questions of one pipeline; `asked` are those that run, by their numbers."""

    spec: PipelineSpec
    router: OpenRouter
    asked: dict[int, SeriesSpec] = field(default_factory=dict)

    def ask(self, definition: bytes, start: int) -> Question:
        """Understand a definition, in YAML or JSON, as an entry of `series:`.

        Raises:
            UsageError: it is none; every problem is named with its key.
            NotDerivable: no rule covers it.
        """
        series = load_series(definition, self.spec)
        chosen = self._chosen(series, start)
        return Question(_canonical(series), series.name, chosen.derivation, chosen.fingerprint)

    def place(self, definition: bytes) -> int:
        """The column where its entries would begin."""
        return self.router.place(feature_of(self.spec, load_series(definition, self.spec)))

    def open(self, created: Created) -> Series:
        """Count its entries from now on, and return the series.

        Raises:
            FailClosed: its columns are not those of the journal.
        """
        series = load_series(created.definition, self.spec)
        feature = feature_of(self.spec, series)
        rows = self.router.open(feature, created.column, created.number)
        self.asked[created.number] = series
        keys = keys_of(self.spec, feature.by)
        return self._chosen(series, created.start).series(self.spec, rows, keys, created.start)

    def close(self, number: int) -> None:
        """Count its entries no more."""
        self.router.close(number)
        self.asked.pop(number, None)

    def predicted(self, definition: bytes, start: int) -> tuple[int, int]:
        """(tick, half-width) at the last tick of a question, the farthest that is predicted without a horizon.

        Raises:
            UsageError, NotDerivable: see `ask`.
        """
        chosen = self._chosen(load_series(definition, self.spec), start)
        last, error = last_error(_later(self.spec, start), chosen)
        return start + last, error

    def derivation(self, number: int, start: int) -> Derivation:
        """Why a question that runs costs what it costs."""
        return self._chosen(self.asked[number], start).derivation

    def _chosen(self, series: SeriesSpec, start: int) -> Chosen:
        rows = slice(0, RowLayout.alone(self.spec, feature_of(self.spec, series)).width)
        return chosen_for(_later(self.spec, start), series, rows)


def _later(spec: PipelineSpec, start: int) -> PipelineSpec:
    """The pipeline as a series sees it that starts at this tick: with what is left of the horizon.

    Raises:
        UsageError: nothing is left.
    """
    horizon = spec.clock.horizon
    if horizon is None:
        return spec
    if start >= horizon:
        raise UsageError(
            "the pipeline is at its horizon: no tick is left that a question could see"
        )
    clock = spec.clock.model_copy(update={"horizon": horizon - start})
    return spec.model_copy(update={"clock": clock})


def _canonical(series: SeriesSpec) -> bytes:
    """The definition as a journal holds it: read as YAML or as JSON it says the same.

    YAML breaks lines at some characters and refuses others unless they are escaped, and takes no surrogate pairs.
    """
    plain = series.model_dump(mode="json", exclude_none=True)
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()
