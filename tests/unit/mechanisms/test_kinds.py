"""Kinds, versions, fields and defaults of everything that is written are frozen: journals hold them.

Where this test fails, a journal of today could not be read, or would be read as something else:
- a class was renamed or moved: give it back its `@wire(kind, version)`; the label is not the class's name;
- a field was added: give it a default that says what was always meant, and add it to tests/fixtures/kinds.txt;
- a field was renamed, dropped or has another meaning or default: raise the version in `@wire`, write an upgrade
  (`UPGRADES` in mechanisms/states.py) or let old journals be refused, and put the new version here;
- a class is gone: its kind stays retired here; never use it again.
"""

import importlib
import pkgutil
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import stream_dp.core
import stream_dp.mechanisms
from stream_dp.core.mechanism import Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.serial import content_fields, mechanism_fingerprint
from stream_dp.core.wire import wire, wire_of
from stream_dp.mechanisms.hss.hss import HSS, GaussianHSS
from stream_dp.mechanisms.hss.per_bin_hss import PerBinHSS
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.linear.gaussian_counter import LatticeNoise
from stream_dp.mechanisms.linear.tree import TreeNoise
from stream_dp.mechanisms.papers import GaussianPaperHSS
from stream_dp.mechanisms.states import STATES, UPGRADES, same_states
from stream_dp.testing.noise import SeededNoise

FROZEN = Path(__file__).parents[2] / "fixtures/kinds.txt"
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


def labelled_mechanisms() -> set[type]:
    return {each for each in labelled() if hasattr(each, "step") and hasattr(each, "guarantee")}


def test_kinds_versions_fields_and_defaults_are_frozen() -> None:
    labels = [(wire_of(cls), shown(cls)) for cls in labelled()]
    now = sorted(f"{label.kind} {label.version}: {parts}".rstrip() for label, parts in labels)
    assert now == FROZEN.read_text(encoding="ascii").splitlines(), __doc__


def test_a_kind_is_used_once_and_never_again() -> None:
    kinds = [wire_of(each).kind for each in labelled()]
    assert len(set(kinds)) == len(kinds)
    assert not RETIRED & set(kinds)


def test_all_that_a_snapshot_may_hold_is_among_them() -> None:
    assert set(STATES.types) <= set(labelled())
    assert UPGRADES.keys() <= {wire_of(each).kind for each in STATES.types}


def test_a_state_of_before_knows_no_ages_and_so_has_wider_ends() -> None:
    """Version 1 of the state bin by bin did not say when sparse vectors were armed: since the first query, at most."""
    mechanism = PerBinHSS(3, EPSILON, EPSILON, Neighbors.ADD_REMOVE, None)
    noise, state = SeededNoise(1), mechanism.init(SeededNoise(0))
    for _ in range(200):
        state, _ = mechanism.step(state, Update(np.array([9, 1, 0])), noise)
        state, _ = mechanism.step(state, Query(), noise)
    assert state.armed.max() > 100
    plain = msgspec.msgpack.decode(STATES.encode(state))
    del plain["fields"]["armed"]
    old = STATES.decode(msgspec.msgpack.encode(plain | {"version": 1}))
    assert old.armed.tolist() == [0, 0, 0]
    assert STATES.encode(replace(old, armed=state.armed)) == STATES.encode(state)
    (below, above), (below_before, above_before) = (mechanism.sides(s, 0.95) for s in (state, old))
    assert (above <= above_before).all()
    assert above[0] < above_before[0]
    assert (below <= below_before)[1:].all()
    some, others = {0: STATES.encode(state)}, {0: STATES.encode(old)}
    assert same_states(some, others)
    for name in ("released", "intervals", "levels"):
        other = replace(old, **{name: getattr(old, name) + 1})
        assert not same_states(some, {0: STATES.encode(other)})


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
    renamed: Any = type("Renamed", (type(mechanism),), {"__wire__": label})
    twin = renamed(**{part.name: getattr(mechanism, part.name) for part in fields(mechanism)})
    assert mechanism_fingerprint(twin) == mechanism_fingerprint(mechanism)
    renamed.__wire__ = type(label)(label.kind, label.version + 1, label.rests_on)
    assert mechanism_fingerprint(twin) != mechanism_fingerprint(mechanism)


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
