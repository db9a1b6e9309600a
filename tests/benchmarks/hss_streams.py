"""The streams that HSS is compared on: six kinds, made from fixed seeds, and the flights of the example.

Rows have shape (ticks, width); an event sets at most `ones` entries. Rules: a kind is a function of ticks and width
alone, so that every comparison sees the same events.
"""

import csv
import datetime
import gzip
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from stream_dp.core.mechanism import IntArray
from stream_dp.operate.demo import flights_folder

BURSTS = 5  # ticks that a bursty stream's events come in


@dataclass(frozen=True, slots=True)
class Stream:
    """Rows of shape (ticks, width), how many events they hold, and how many entries one of them sets at most."""

    name: str
    rows: IntArray
    events: int
    ones: int = 1


def even(ticks: int, width: int, events: int) -> Stream:
    """One-hot events at random ticks, all categories alike."""
    return Stream("even", _spread(ticks, events, np.full(width, 1 / width)), events)


def skewed(ticks: int, width: int, events: int) -> Stream:
    """The same, the i-th category with 1/i of the events of the first."""
    return Stream("zipf", _spread(ticks, events, _zipf(width)), events)


def nearly_empty(ticks: int, width: int, events: int) -> Stream:
    """Few events, otherwise as `skewed`."""
    return Stream("nearly empty", _spread(ticks, events, _zipf(width)), events)


def bursty(ticks: int, width: int, events: int) -> Stream:
    rng = np.random.default_rng(2)
    rows = np.zeros((ticks, width), dtype=np.int64)
    for tick in rng.choice(ticks, BURSTS, replace=False):
        rows[tick] = rng.multinomial(events // BURSTS, _zipf(width))
    return Stream("bursty", rows, events)


def lists(ticks: int, width: int, events: int) -> Stream:
    """Events that set five different entries each, at random ticks."""
    return Stream("lists of 5", _lists(ticks, width, events, 5), events, 5)


def whole_rows(ticks: int, width: int, events: int) -> Stream:
    """Events that may set all entries and set half of them."""
    return Stream("whole rows", _lists(ticks, width, events, width // 2), events, width)


def flights() -> Stream:
    """The example: 8,760 hours, 105 destinations and `other`."""
    with gzip.open(flights_folder() / "flights.csv.gz", "rt") as text:
        records = [(r["time"], r["destination"]) for r in csv.DictReader(text)]
    places = {name: i for i, name in enumerate(sorted({d for _, d in records}))}
    start = datetime.datetime.fromisoformat("2013-01-01T10:00:00+00:00")
    rows = np.zeros((8_760, len(places) + 1), dtype=np.int64)
    for at, destination in records:
        hour = (datetime.datetime.fromisoformat(at) - start) // datetime.timedelta(hours=1)
        if 0 <= hour < len(rows):
            rows[hour, places[destination]] += 1
    return Stream("flights", rows, int(rows.sum()))


KINDS: dict[str, Callable[[int, int, int], Stream]] = {
    "even": even,
    "zipf": skewed,
    "nearly empty": nearly_empty,
    "lists of 5": lists,
    "whole rows": whole_rows,
    "bursty": bursty,
}


def _zipf(width: int) -> Any:
    """Chances of categories, the i-th 1/i of the first."""
    weights = 1 / np.arange(1, width + 1)
    return weights / weights.sum()


def _spread(ticks: int, events: int, chances: Any) -> IntArray:
    """One-hot events at random ticks."""
    rng = np.random.default_rng(1)
    rows = np.zeros((ticks, len(chances)), dtype=np.int64)
    places = rng.choice(len(chances), events, p=chances)
    np.add.at(rows, (rng.integers(0, ticks, events), places), 1)
    return rows


def _lists(ticks: int, width: int, events: int, ones: int) -> IntArray:
    """Events that set `ones` different entries each."""
    rng = np.random.default_rng(3)
    rows = np.zeros((ticks, width), dtype=np.int64)
    for tick in rng.integers(0, ticks, events):
        rows[tick, rng.choice(width, ones, replace=False)] += 1
    return rows
