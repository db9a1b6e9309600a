"""Kinds, versions, fields and defaults of everything that is written are frozen: journals hold them.

Where this test fails, a journal of today could not be read, or would be read as something else:
- a class was renamed or moved: give it back its `@wire(kind, version)`; the label is not the class's name;
- a field was added: give it a default that says what was always meant, and add it to the list below;
- a field was renamed, dropped or has another meaning or default: raise the version in `@wire`, write an upgrade
  (`UPGRADES` in mechanisms/states.py) or let old journals be refused, and put the new version here;
- a class is gone: its kind stays retired here; never use it again.
"""

import importlib
import pkgutil
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, make_dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any

import pytest

import stream_dp.core
import stream_dp.mechanisms
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.serial import content_fields
from stream_dp.core.wire import wire, wire_of
from stream_dp.mechanisms.hss.gaussian_hss import GaussianHSS, GaussianPaperHSS
from stream_dp.mechanisms.hss.hss import HSS
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.linear.gaussian_counter import LatticeNoise
from stream_dp.mechanisms.linear.tree import TreeNoise
from stream_dp.mechanisms.states import STATES, UPGRADES, mechanism_fingerprint

FROZEN = {
    ("alerts", 1): "epsilon neighbors ones=1 threshold width",
    ("alerts-state", 1): "count lift",
    ("composition-child", 1): "mechanism state",
    ("composition-state", 1): "created live",
    ("arrival-counter", 1): "arrivals epsilon horizon neighbors",
    ("arrival-counter-state", 1): "counter updates",
    ("arrivals", 1): "(only rested on)",
    ("cut-off-counter", 1): "epsilon horizon neighbors users",
    ("cut-off-counter-state", 1): "active cut last",
    ("count-watchers", 1): "epsilon neighbors ones=1 width",
    ("count-watchers-state", 1): "count lift",
    ("counter", 1): "epsilon horizon neighbors ones=1 width",
    ("counter-state", 1): "total tree",
    ("hand-over-counter", 1): "epsilon neighbors ones=1 width",
    ("hand-over-counter-state", 1): "base number total tree",
    ("forest-shape", 1): "(only rested on)",
    ("gaussian-and-ever", 1): "ever forest",
    ("gaussian-counter", 1): "gdp=False horizon neighbors ones=1 rho width",
    ("gaussian-counter-state", 1): "noise total",
    ("gaussian-forest", 1): "neighbors ones=1 rho shape width windows",
    ("gaussian-hss", 1): (
        "counter_epsilon=0 horizon kappa=2/5 neighbors ones=1 quantity query_epsilon rho threshold_epsilon width"
    ),
    ("gaussian-paper-hss", 1): "beta=1/20 epsilon horizon quantity rho width",
    ("hss", 2): (
        "counter_epsilon horizon kappa=2/5 neighbors ones=1 quantity query_epsilon threshold_epsilon width"
    ),
    ("hss-state", 1): "intervals parts pending queries released watcher",
    ("hybrid-counter", 2): "epsilon neighbors ones=1 width",
    ("hybrid-counter-state", 1): "epoch inner total totals",
    ("lattice-noise", 1): "(only rested on)",
    ("lattice-noise-state", 1): "carried noise rests steps",
    ("local-protocol", 1): "server users views",
    ("local-protocol-state", 1): "parts server",
    ("monitor", 1): "epsilon neighbors ones=1 value_epsilon=0 watches width",
    ("monitor-state", 1): "asked=0 count heard lift mode threshold windows=()",
    ("multi-sparse-vector", 1): "neighbors query_epsilon threshold_epsilon views width",
    ("multi-sparse-vector-state", 1): "count halted lift",
    ("neighbors", 1): "| add_remove replace replace_any_tick",
    ("noisy-quantity", 1): "epsilon neighbors offset ones=1 quantity width",
    ("noisy-quantity-state", 1): "count",
    ("paper-hss", 1): "beta=1/20 epsilon horizon quantity width",
    ("paper-hss-state", 1): "intervals parts pending released steps threshold watcher",
    ("paper-sparse-vector", 1): (
        "neighbors offset ones=1 quantity=Maximum() query_epsilon threshold_epsilon width"
    ),
    ("quantity-columns-above", 1): "level",
    ("quantity-largest", 1): "rank",
    ("quantity-maximum", 1): "",
    ("quantity-sum", 1): "",
    ("sliding-quantiles", 1): "at confidence tree",
    ("sparse-vector", 1): (
        "neighbors offset ones=1 quantity=Maximum() query_epsilon threshold_epsilon width"
    ),
    ("per-bin-hss", 1): "counter_epsilon horizon neighbors ones=1 watch_epsilon width",
    ("per-bin-hss-state", 1): "intervals levels parts queries released",
    ("separate-counters", 2): "epsilon neighbors ones=1 width",
    ("separate-counters-state", 1): "base total trees updates",
    ("sparse-vector-state", 1): "count halted lift",
    ("sum-counter", 1): "epsilon highest horizon lowest neighbors ones=1 width",
    ("sum-counter-state", 1): "noise total",
    ("sum-forest", 1): "epsilon highest lowest neighbors ones=1 shape width windows",
    ("sums-and-counts", 1): "counts sums",
    ("sums-and-counts-state", 1): "counts sums",
    ("sums-and-ever", 1): "ever forest",
    ("tree-noise", 2): "(only rested on)",
    ("tree-state", 2): "here left prefix slope windows",
    ("tumbling-quantiles", 1): "at epsilon neighbors unranked=0 width windows",
    ("tumbling-quantiles-state", 1): "counts told updates",
    ("value-levels", 1): "(only rested on)",
    ("value-tree", 1): "counts levels unranked=0",
    ("value-tree-state", 1): "counts updates",
    ("window-forest", 1): "epsilon neighbors ones=1 shape width windows",
    ("window-forest-state", 1): "open sums surpluses updates",
    ("windows-and-ever", 1): "ever forest",
    ("windows-and-ever-state", 1): "ever forest",
    ("users", 1): "(only rested on)",
    ("sum-monitor", 1): "epsilon highest lowest neighbors ones=1 value_epsilon=0 watches width",
    ("watch", 1): "below=False places=1 rearm=True threshold tick=False window=0",
    ("watch-window", 1): "age place rows=() window",
    ("window-alerts", 1): "epsilon neighbors ones=1 watches width",
}
RETIRED = frozenset({"coarse-counter", "coarse-counter-state", "hss-statistic"})
EPSILON = Fraction(1, 5)
COUNTER = Counter(2, EPSILON, Neighbors.ADD_REMOVE, 100)
HISTOGRAM = HSS(3, None, EPSILON, EPSILON, EPSILON, Neighbors.REPLACE, None)


def shown(cls: type) -> str:
    """The fields with their defaults, in the order of the names; for an enumeration its members."""
    if issubclass(cls, StrEnum):
        return " ".join(["|", *sorted(cls)])
    if cls not in STATES.types and not hasattr(cls, "guarantee"):
        return "(only rested on)"
    return " ".join(name + _default(each) for name, each in sorted(content_fields(cls).items()))


def _default(each: "Field[Any]") -> str:
    if each.default_factory is not MISSING:
        return "=..."
    return "" if each.default is MISSING else f"={each.default}"


def labelled() -> list[type]:
    """Every class of the two floors that has a label."""
    found = []
    for package in (stream_dp.core, stream_dp.mechanisms):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            every = vars(importlib.import_module(module.name)).values()
            found += [
                each
                for each in every
                if isinstance(each, type)
                and each.__module__ == module.name
                and "__wire__" in vars(each)
            ]
    return found


def test_kinds_versions_fields_and_defaults_are_frozen() -> None:
    now = {(wire_of(each).kind, wire_of(each).version): shown(each) for each in labelled()}
    assert now == FROZEN, __doc__


def test_a_kind_is_used_once_and_never_again() -> None:
    kinds = [wire_of(each).kind for each in labelled()]
    assert len(set(kinds)) == len(kinds)
    assert not RETIRED & set(kinds)


def test_all_that_a_snapshot_may_hold_is_among_them() -> None:
    assert set(STATES.types) <= set(labelled())
    assert UPGRADES.keys() <= {wire_of(each).kind for each in STATES.types}


def test_every_mechanism_and_every_state_has_a_label() -> None:
    """A class of this floor that steps, or that is called a state."""
    missing = []
    for module in pkgutil.walk_packages(stream_dp.mechanisms.__path__, "stream_dp.mechanisms."):
        for each in vars(importlib.import_module(module.name)).values():
            here = isinstance(each, type) and each.__module__ == module.name and is_dataclass(each)
            if here and (hasattr(each, "step") or each.__name__.endswith("State")):
                missing += [each] * ("__wire__" not in vars(each))
    assert missing == []


@pytest.mark.parametrize("mechanism", [COUNTER, HISTOGRAM], ids=["counter", "hss"])
def test_a_mechanism_of_another_name_has_the_same_fingerprint(mechanism: Any) -> None:
    label = wire_of(type(mechanism))
    same = [(each.name, each.type, field(**_options(each))) for each in fields(mechanism)]
    renamed: Any = make_dataclass("Renamed", same, frozen=True)
    renamed.__wire__ = label
    twin = renamed(**{each.name: getattr(mechanism, each.name) for each in fields(mechanism)})
    assert repr(twin) != repr(mechanism)
    assert mechanism_fingerprint(twin) == mechanism_fingerprint(mechanism)
    renamed.__wire__ = type(label)(label.kind, label.version + 1, label.rests_on)
    assert mechanism_fingerprint(twin) != mechanism_fingerprint(mechanism)


def _options(each: "Field[Any]") -> dict[str, Any]:
    factory: dict[str, Any] = {"default_factory": each.default_factory}
    default = {"default": each.default} if each.default_factory is MISSING else factory
    return {**default, "compare": each.compare, "repr": each.repr}


def test_a_fingerprint_is_that_of_kind_version_and_parameters() -> None:
    """The very texts: they lie in the headers of journals."""
    assert mechanism_fingerprint(COUNTER) == (
        "26801882cb849f3d05d4aa888103bc40f09cc7306dd6529435c22d223e6c86ed"
    )
    assert mechanism_fingerprint(HISTOGRAM) == (
        "3349de5d69bc99685ee8421fee87391d273be710018aa573a218b1e0363c2e60"
    )


def test_the_ways_to_write_a_parameter_do_not_count() -> None:
    named = HSS(3, None, EPSILON, EPSILON, EPSILON, Neighbors.REPLACE, None, Fraction(4, 10))
    assert mechanism_fingerprint(named) == mechanism_fingerprint(HISTOGRAM)
    others = {
        mechanism_fingerprint(Counter(*one))
        for one in (
            (2, EPSILON, Neighbors.ADD_REMOVE, 100),
            (3, EPSILON, Neighbors.ADD_REMOVE, 100),
            (2, EPSILON / 2, Neighbors.ADD_REMOVE, 100),
            (2, EPSILON, Neighbors.REPLACE, 100),
            (2, EPSILON, Neighbors.ADD_REMOVE, 101),
        )
    }
    assert len(others) == 5


def test_a_mechanism_made_of_others_changes_with_them() -> None:
    """The noise of a tree is that of every counter, and of the counter inside of an HSS."""
    for each in (Counter, HSS):
        assert ("tree-noise", wire_of(TreeNoise).version) in wire_of(each).all_below
    assert {kind for kind, _ in wire_of(HSS).all_below} == {
        "hand-over-counter",
        "sparse-vector",
        "tree-noise",
    }


def test_an_hss_with_a_gaussian_counter_changes_with_that_counter_and_not_with_trees() -> None:
    for each in (GaussianHSS, GaussianPaperHSS):
        assert ("lattice-noise", wire_of(LatticeNoise).version) in wire_of(each).all_below
        assert "tree-noise" not in {kind for kind, _ in wire_of(each).all_below}


def test_a_mechanism_without_a_label_is_refused() -> None:
    @dataclass(frozen=True)
    class Broken(Counter):
        """Draws other noise, so it must not pass for a counter."""

    with pytest.raises(TypeError, match="Broken has no kind and version"):
        mechanism_fingerprint(Broken(2, EPSILON, Neighbors.ADD_REMOVE, 100))
    named = wire("broken-counter", 1)(Broken)
    assert mechanism_fingerprint(
        named(2, EPSILON, Neighbors.ADD_REMOVE, 100)
    ) != mechanism_fingerprint(COUNTER)
