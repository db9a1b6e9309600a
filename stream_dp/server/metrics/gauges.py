"""Metric families, filled value by value, and written as OpenMetrics or plain text by `prometheus_client`.

Rules: a family has one name, one help and the same labels on each of its values; a family without a value is not
written. No registry is read, because a process's memory, files and time are private.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.exposition import generate_latest as plain_text
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST
from prometheus_client.openmetrics.exposition import generate_latest as open_text

OPEN = "application/openmetrics-text"
FORMS = (OPEN, "text/plain")
"""The content types of the text, without version."""
_Written = GaugeMetricFamily | CounterMetricFamily | InfoMetricFamily


class Described(NamedTuple):
    """The help and the label names of a family."""

    help: str
    labels: tuple[str, ...] = ()


class Gauges:
    """Values by family, written in the order of their descriptions.

    A name that ends in `_total` is a counter, in `_info` a fact that is always 1, any other a gauge.

    >>> made = Gauges({"clicks": Described("How many.", ("page",))})
    >>> made.set("clicks", 3, "home")
    >>> print(made.written(accepted=OPEN).decode().strip())
    # HELP clicks How many.
    # TYPE clicks gauge
    clicks{page="home"} 3.0
    # EOF
    """

    def __init__(self, described: Mapping[str, Described]) -> None:
        self._families = {name: _family(name, each) for name, each in described.items()}

    def set(self, family: str, value: float, *labels: str) -> None:
        """Add a value to a family, with its labels in the order of their names."""
        found = self._families[family]
        if isinstance(found, InfoMetricFamily):
            found.add_metric(labels, {})
        else:
            found.add_metric(labels, value)

    def collect(self) -> Iterator[_Written]:
        """Yield the families that have a value."""
        return (family for family in self._families.values() if family.samples)

    def written(self, accepted: str) -> bytes:
        """Return the text in a format that this `Accept` header allows."""
        if OPEN in accepted:
            text: bytes = open_text(self)  # type: ignore[no-untyped-call]  # the library's own types stop here
            return text
        return plain_text(self)


def content_type(accepted: str) -> str:
    """Return the content type of `written` for this `Accept` header; repeats nothing of the header."""
    return CONTENT_TYPE_LATEST if OPEN in accepted else CONTENT_TYPE_PLAIN_0_0_4


def _family(name: str, described: Described) -> _Written:
    if name.endswith("_total"):
        return CounterMetricFamily(name, described.help, labels=described.labels)
    if name.endswith("_info"):
        return InfoMetricFamily(name.removesuffix("_info"), described.help, labels=described.labels)
    return GaugeMetricFamily(name, described.help, labels=described.labels)
