"""Quantities that a pipeline file names: offered by installed packages only, tested first, refused by line and column.

A package is a folder with an entry point file on the path, as `pip install` leaves one. Twins: functions that are not
what they say.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from unit.pipeline.live_series_steps import question, running
from unit.pipeline.live_series_worlds import World, batches

from stream_dp.adapters.memory import MemorySource
from stream_dp.core.messages import Query, Update
from stream_dp.errors import FailClosed, UsageError
from stream_dp.mechanisms import registered_quantity as registry
from stream_dp.mechanisms.hss import HSS
from stream_dp.mechanisms.serving import Bands
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.report import plan_json
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load
from stream_dp.runtime.engine import Engine
from stream_dp.testing.noise import SeededNoise

Data: TypeAlias = dict[str, Any]
CODE = """\
def median(counts):
    return int(sorted(counts.tolist())[len(counts) // 2])

def steep(counts):
    return 2 * int(counts.max())

def falling(counts):
    return 1000 - min(1000, int(counts[0]))
"""
POINTS = "median = made_up:median\nsteep = made_up:steep\nfalling = made_up:falling\ngone = made_up:gone\n"
FILE = """\
version: 1
name: shop
source: {kind: file, path: shop.jsonl}
schema:
  time: {type: time}
  country: {type: category, domain: [DE, FR]}
privacy: {epsilon: 1}
clock: {kind: replay, field: time, start: 2026-01-01T00:00:00Z, step: 1h, horizon: 9}
series:
  - name: middle
    statistic: quantity
    function: WHICH
    by: country
    epsilon: 1
"""


def installed(folder: Path, name: str, points: str) -> None:
    """Lay a package's entry points beside its code."""
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[stream_dp.quantities]\n{points}")


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a folder with the package `made_up` installed, and a process in which nothing is registered."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "made_up.py").write_text(CODE)
    (folder / "breaks.py").write_text("raise RuntimeError('secret text')\n")
    installed(folder, "made_up", POINTS + "broken = breaks:it\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(registry, "_KNOWN", {})
    yield folder
    sys.modules.pop("made_up", None)


def one(data: Data, **more: Any) -> PipelineSpec:
    """The pipeline with one series, of the median."""
    data["series"] = [
        {
            "name": "it",
            "by": "airline",
            "epsilon": "2",
            "statistic": "quantity",
            "function": "median",
        }
        | more
    ]
    return PipelineSpec.model_validate(data)


def test_a_file_names_it_and_it_is_released_within_its_band(data: Data) -> None:
    """One run of a hundred ticks: at most one in five is outside (the band is for 95 %; ticks depend on each other)."""
    built = build(one(data))
    (chosen,) = built.chosen
    assert isinstance(chosen.mechanism, HSS)
    assert "evidence, no proof" in plan_json(built)["series"][0]["why"]
    assert "median_of_4_by_1 (version 1): stated by" in str(built.derivation)
    assert chosen.spec.described()["parameters"] == {
        "function": "median", "version": 1, "lipschitz": 1,
    }  # fmt: skip
    rng, noise = np.random.default_rng(7), SeededNoise(11)
    bands, state, outside = Bands(chosen.mechanism, 0.95), chosen.mechanism.init(noise), 0
    total = np.zeros(4, dtype=np.int64)
    for tick in range(100):
        row = rng.poisson([4, 30, 12, 25])
        total = total + row
        state, _ = chosen.mechanism.step(state, Update(row), noise)
        state, answer = chosen.mechanism.step(state, Query(), noise)
        assert answer is not None
        exact = chosen.spec.exact(total, ["AA", "NO", "UA", "other"])
        assert exact == sorted(total.tolist())[2]
        outside += abs(int(answer[0]) - exact) > bands(tick, state)
    assert outside <= 20


def test_version_and_constant_belong_to_the_guarantee(data: Data) -> None:
    """Another version is another mechanism, so a journal goes with no other; each width is tested by itself."""
    plain = build(one(data)).fingerprint
    assert build(one(data, version="2")).fingerprint != plain
    build(one(data, by="destination"))
    assert {name for name, _ in registry._KNOWN} == {"median_of_4_by_1", "median_of_3_by_1"}
    with pytest.raises(UsageError, match=r"registered already.*take a new version"):
        build(one(data, lipschitz="3"))
    assert build(one(data, lipschitz="3", version="3")).fingerprint != plain


@pytest.mark.parametrize(
    ("which", "said"),
    [
        ("nothing", "no installed package offers 'nothing' (entry points of the group stream_dp.quantities; "),
        ("gone", "'gone' (made_up:gone) cannot be imported (AttributeError)"),
        ("broken", "'broken' (breaks:it) cannot be imported (RuntimeError)"),
        ("os.system", "no installed package offers 'os.system'"),
    ],
)  # fmt: skip
def test_what_no_package_offers_is_refused_with_its_place(
    tmp_path: Path, which: str, said: str
) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(FILE.replace("WHICH", which))
    with pytest.raises(UsageError) as refused:
        load(path)
    assert str(refused.value).startswith(f"{path}:12:15: series[0].function: {said}")
    assert "secret text" not in str(refused.value)
    assert registry._KNOWN == {}


@pytest.mark.parametrize("which", ["made_up:median", "Median", "../median"])
def test_a_file_imports_no_module_by_its_name(tmp_path: Path, which: str) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(FILE.replace("WHICH", which))
    with pytest.raises(UsageError, match=r"12:15: series\[0\].function: must be a lower-case"):
        load(path)
    assert "made_up" not in sys.modules


def test_two_packages_with_one_name_are_refused(data: Data, site: Path) -> None:
    installed(site, "rival", "median = breaks:it\n")
    with pytest.raises(ValueError, match="several installed packages offer 'median'"):
        one(data)


@pytest.mark.parametrize(
    ("function", "why"), [("steep", "one event changes it by 2"), ("falling", "not monotone")]
)
def test_a_twin_fails_its_test_before_anything_is_made(data: Data, function: str, why: str) -> None:
    with pytest.raises(UsageError, match=f"series it: quantity '{function}_of_4_by_1': {why}"):
        build(one(data, function=function))
    assert registry._KNOWN == {}


MIDDLE: Data = {"statistic": "quantity", "function": "median", "by": "country", "where": []}


async def test_a_live_series_of_it_is_recovered_in_a_new_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its state in a snapshot is read after its definition, which registers the function."""
    monkeypatch.setattr("stream_dp.runtime.engine.SNAPSHOT_TICKS", 2)
    world = World()

    async def ask(engine: Engine, _source: object) -> None:
        await engine.create(question("middle", **MIDDLE))
        for create in (engine.create, engine.preview):
            with pytest.raises(
                UsageError, match="function: no installed package offers what stands"
            ):
                await create(question("no", **MIDDLE | {"function": "no"}))

    await running(world, 2, ask)
    assert any(commit.snapshot for commit in world.commits())
    shown = world.releases("middle")
    assert min(shown) >= 3
    monkeypatch.setattr(registry, "_KNOWN", {})
    engine = world.engine(MemorySource(batches(), partitions=(0, 1)))
    await engine.run()
    assert {s.series.name for s in engine.admission.registry.live} == {"orders", "middle"}
    assert world.releases("middle") == shown


async def test_a_journal_whose_package_is_gone_is_refused(
    monkeypatch: pytest.MonkeyPatch, site: Path
) -> None:
    world = World()

    async def ask(engine: Engine, _source: object) -> None:
        await engine.create(question("middle", **MIDDLE))

    await running(world, 2, ask)
    before = (len(world.store.commits), len(world.bodies))
    (site / "made_up-1.0.dist-info" / "entry_points.txt").write_text("")
    monkeypatch.setattr(registry, "_KNOWN", {})
    engine = world.engine(MemorySource(batches(), partitions=(0, 1)))
    with pytest.raises(FailClosed, match="function: no installed package offers what stands there"):
        await engine.run()
    assert (len(world.store.commits), len(world.bodies)) == before
