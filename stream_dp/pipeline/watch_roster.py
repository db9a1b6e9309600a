"""The watches of one monitor by their names: what analysts ask of them, and what they are told.

Rules: it implements `runtime.series.Asking`. A name is a watch's own, or for one of a field's values the watch's and the
value's with a stroke between them. What is wrong is named with its key and never with its value. This file knows no
noise, no filter and no actor.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from stream_dp.core.messages import IntArray, Query
from stream_dp.errors import UsageError
from stream_dp.mechanisms.serving import clipped
from stream_dp.mechanisms.watch_messages import ThresholdQuery, is_threshold

_TAKEN = ("threshold", "watch")


class WatchRoster:
    """Places by name; `names` has one for each place of the monitor, "" where it is free."""

    def __init__(self, names: Sequence[str], counts_band: int | None) -> None:
        self._places = {name: place for place, name in enumerate(names) if name}
        self._counts_band = counts_band

    def query(self, parameters: Mapping[str, Any]) -> Query:
        """Return the query that compares a watch with a threshold.

        Raises:
            UsageError: no watch of the monitor, or no threshold; every problem is named with its key.
        """
        wrong = [f"{key}: is missing" for key in _TAKEN if key not in parameters]
        if others := sorted(parameters.keys() - set(_TAKEN)):
            wrong.append(
                f"{', '.join(others)}: not taken by a monitor; it takes watch and threshold"
            )
        place = self._place(parameters.get("watch"))
        if "watch" in parameters and place is None:
            wrong.append(
                "watch: none of this name is here; of one with a `by`, name the value too: watch/value"
            )
        threshold = parameters.get("threshold")
        if "threshold" in parameters and not is_threshold(threshold):
            wrong.append("threshold: must be a whole number from 1 to 10^15")
        if wrong or place is None:
            raise UsageError("\n".join(sorted(wrong)))
        return ThresholdQuery(threshold, place=place)

    def content(self, parameters: Mapping[str, Any], answer: IntArray) -> Mapping[str, Any]:
        """Return whether the watch fired at this threshold and, where the monitor tells it, its count."""
        fired, *counts = clipped(answer).tolist()
        told = {"count": counts[0], "counts_band": self._counts_band} if counts and fired else {}
        asked = {"watch": parameters["watch"], "threshold": parameters["threshold"]}
        return {**asked, "fired": bool(fired), **told}

    def _place(self, name: Any) -> int | None:
        return self._places.get(name) if isinstance(name, str) else None
