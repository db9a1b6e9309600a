"""What `distinct` charges for a user, by caps and groupings of every form: the worst of small streams, by definition.

Every set of events of a user that the caps let count in one window is played, beside whatever else there may be: later
events of the user in a counted window that goes on, or of others with the same identifier. No row is made by the
product.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from stream_dp.core.row_relations import Arrivals
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.promise import caveats
from stream_dp.pipeline.spec import PipelineSpec

TICKS = 6
MANY = 1000


class One(NamedTuple):
    """An event of the user: tick, and three values, of which null and what is outside a domain have one entry."""

    tick: int
    key: str | None
    other: str | None
    number: int | None


KEYS, OTHERS, NUMBERS = ("a", "zz", None), ("u", "v", None), (1, 2, None)
KINDS = [(KEYS[i], OTHERS[j], NUMBERS[(i + j) % 3]) for i in range(3) for j in range(3)]
EVERY = [One(tick, *kind) for tick in range(TICKS) for kind in KINDS]
BINS = {"field": "number", "edges": ["2"]}
ENTRY: dict[str, tuple[Any, Callable[[One], Any]]] = {
    "all": (None, lambda _: ""),
    "key": ("key", lambda one: one.key == "a"),
    "other": ("other", lambda one: one.other),
    "bins": (BINS, lambda one: one.number),
    "product": (["key", "other"], lambda one: (one.key == "a", one.other)),
}


def spec_of(privacy: Mapping[str, Any], series: Mapping[str, Any]) -> PipelineSpec:
    return PipelineSpec.model_validate(
        {
            "version": "1", "name": "visits", "source": {"kind": "file", "path": "unused.jsonl"},
            "schema": {
                "time": {"type": "time"}, "who": {"type": "text"}, "id": {"type": "text"},
                "key": {"type": "category", "domain": ["a"], "nullable": "true"},
                "other": {"type": "category", "domain": ["u", "v"], "nullable": "true"},
                "number": {"type": "integer", "nullable": "true"},
            },
            "privacy": {"epsilon": "9", "unit": "user", "user": "who", **privacy},
            "clock": {
                "kind": "replay", "field": "time", "start": "2026-01-01T00:00:00Z", "step": "1s",
                "horizon": str(TICKS),
            },
            "series": [{"name": "s", "statistic": "distinct", "of": "who", "epsilon": "1", **series}],
        }
    )  # fmt: skip


def arrivals_of(spec: PipelineSpec) -> Arrivals:
    arrivals = build(spec).chosen[0].mechanism.arrivals  # type: ignore[attr-defined]
    assert isinstance(arrivals, Arrivals)
    return arrivals


def allowed(events: Sequence[One], privacy: Mapping[str, str]) -> bool:
    """Whether all of these events of one window may count."""
    cap = int(privacy.get("max_events", privacy.get("overall", 0)))
    ticks = [one.tick for one in events]
    # a category has one value for all outside its domain, and null is another
    values = [getattr(one, privacy.get("key", "key")) for one in events]
    return (
        len(events) <= cap
        and all(ticks.count(each) <= int(privacy.get("per_tick", 99)) for each in ticks)
        and all(values.count(each) <= int(privacy.get("per_key", 99)) for each in values)
        and len({*values}) <= int(privacy.get("keys", 99))
    )


def worst(
    privacy: Mapping[str, str], entry: Callable[[One], Any], counted: int | None, *, ended: bool, of: str = "who"
) -> int:  # fmt: skip
    """The most units that all events of a user in one window of the cap change.

    They make one unit come in each place: an identifier's, in an entry, in a counted window. A unit goes as well where
    the identifier may have its first event there later: the user's own, after the window of the cap, or another's of
    the same identifier, after the user's first one.
    """
    size, span = int(privacy.get("per", f"{TICKS}s")[0]), counted or MANY
    result = 0
    for begin in range(0, TICKS, size):
        end = begin + size if "per" in privacy else MANY
        here = [one for one in EVERY if begin <= one.tick < end]
        most = int(privacy.get("max_events", privacy.get("overall", 0)))
        for number in range(1, most + 1):
            for mine in itertools.combinations(here, number):
                places: dict[Any, int] = {}
                for one in mine:
                    name = "me" if of == "who" else getattr(one, of)
                    if name is not None:
                        places.setdefault((one.tick // span, entry(one), name), one.tick)
                later = [first + 1 if of != "who" else end for first in places.values()]
                ends = [(at + 1) * span for at, _, _ in places]
                units = sum(
                    1 if ended or last <= after else 2
                    for last, after in zip(ends, later, strict=True)
                )
                if units > result and allowed(mine, privacy):
                    result = units
    return result


PER = {"max_events": "3", "per": "2s"}
CAPS: dict[str, dict[str, str]] = {
    "k": PER,
    "one key": PER | {"key": "key", "keys": "1"},
    "two keys": PER | {"key": "key", "keys": "2"},
    "another field's key": PER | {"key": "other", "keys": "1"},
    "a number's key": PER | {"key": "number", "keys": "1"},
    "of a key": PER | {"key": "key", "per_key": "1", "keys": "2"},
    "of a tick": PER | {"per_tick": "1"},
    "ever": {"overall": "2"},
    "ever, one key": {"overall": "2", "key": "key", "keys": "1"},
    "longer": {"max_events": "3", "per": "3s"},
}
COUNTED = [
    ({"every": "2s"}, 2, True), ({"every": "1s"}, 1, True), ({"every": "4s"}, 4, True), ({"every": "3s"}, 3, True),
    ({"every": "2s", "running": "true"}, 2, False), ({"every": "3s", "running": "true"}, 3, False),
    ({}, None, False),
]  # fmt: skip


def met(privacy: Mapping[str, str], counted: int | None, *, ended: bool) -> bool:
    """Whether the price is the worst exactly, and not a bound, as of running windows that lie across the cap's."""
    per = int(privacy.get("per", "0s")[0])
    return ended or not counted or not per or per % counted == 0 or counted % per == 0


@pytest.mark.parametrize("by", ENTRY)
@pytest.mark.parametrize("caps", CAPS)
def test_a_user_is_charged_for_the_worst_of_all_streams(caps: str, by: str) -> None:
    grouping, entry = ENTRY[by]
    for series, counted, ended in COUNTED:
        spec = spec_of(CAPS[caps], series | ({} if grouping is None else {"by": grouping}))
        changes = arrivals_of(spec).changes
        result = worst(CAPS[caps], entry, counted, ended=ended)
        assert result <= changes, series
        assert result == changes or not met(CAPS[caps], counted, ended=ended), series


OF_NUMBER: dict[str, dict[str, str]] = {
    "one value": PER | {"key": "number", "keys": "1"},
    "two values": PER | {"key": "number", "keys": "2"},
    "two values, each once": PER | {"key": "number", "keys": "2", "per_key": "1"},
    "ever": {"overall": "2", "key": "number", "keys": "1"},
    "longer": {"max_events": "3", "per": "3s", "key": "number", "keys": "2"},
}


@pytest.mark.parametrize("by", ["all", "key", "other", "product"])
@pytest.mark.parametrize("caps", OF_NUMBER)
def test_the_values_of_a_user_are_charged_for_the_worst_of_all_streams(caps: str, by: str) -> None:
    grouping, entry = ENTRY[by]
    for series, counted, ended in COUNTED:
        own = {"of": "number"} | series | ({} if grouping is None else {"by": grouping})
        changes = arrivals_of(spec_of(OF_NUMBER[caps], own)).changes
        result = worst(OF_NUMBER[caps], entry, counted, ended=ended, of="number")
        assert result <= changes, (series, changes)


@pytest.mark.parametrize(("privacy", "series", "said"), [
    ({"overall": "200", "key": "id", "keys": "2"}, {"every": "2s"}, 2),  # two in each of three windows
    ({"max_events": "5", "per": "6s", "key": "id", "keys": "3"}, {"every": "6s", "by": "key"}, 6),  # of five events
    ({"max_events": "5", "per": "6s", "key": "id", "keys": "3"}, {"every": "1s"}, 3),  # in each of six windows
])  # fmt: skip
def test_plan_says_that_events_play_no_part_only_where_the_price_is_that_of_values(
    privacy: dict[str, str], series: dict[str, Any], said: int
) -> None:
    """`said` is the number of values by entries that `plan` names, and the price is another one."""
    spec = spec_of(privacy, {"of": "id"} | series)
    assert arrivals_of(spec).changes != said
    assert not [note for note in caveats(build(spec)) if "whatever the number of events" in note]
