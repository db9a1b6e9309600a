"""`stream-dp audit`: no data touched, right pipelines pass, a broken sampler is exit 4."""

import itertools
import json
import re
import time
from fractions import Fraction
from typing import Any

import pytest

from stream_dp.core.guarantee import PureDP
from stream_dp.core.mechanism import IntArray, Noise
from stream_dp.noise import NoiseStream, fresh_seed
from stream_dp.operate.audit import attack as audit_module
from stream_dp.operate.audit.attack import game_filter
from stream_dp.operate.demo import flights_folder
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.yaml import load
from stream_dp.testing.noise import SeededNoise
from stream_dp.verify.games.lower_bound import Finding

QUICK = ("--runs", "400", "--ticks", "1", "--json")


def test_a_right_pipeline_passes_and_touches_nothing(
    live_series: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flagged wrongly with probability at most 1e-6."""
    (live_series.folder / "clicks.csv").unlink()
    (live_series.folder / "operator.key").unlink()
    monkeypatch.delenv("STREAM_DP_KEY_FILE")
    before = sorted(live_series.folder.rglob("*"))
    said = live_series.command("audit", *QUICK, "--confidence", "0.999999")
    assert (said.code, said.err) == (0, "")
    found = json.loads(said.out)
    assert (found["pipeline"], found["violated"], found["runs"]) == ("clicks", False, 400)
    assert [s["name"] for s in found["series"]] == ["clicks", "by_page", "busy"]
    assert [s["claimed_epsilon"] for s in found["series"]] == [0.5, 0.25, 0.25]
    for series in found["series"]:
        assert 0 <= series["epsilon_lower_bound"] <= series["claimed_epsilon"]
        assert 0 <= series["strongest"] < series["claimed_epsilon"]
        assert all(0 <= rate <= 1 for rate in series["rates"])
    together = found["together"]
    assert (together["claimed_epsilon"], together["filter"]) == (1, "pure")
    assert 0 <= together["epsilon_lower_bound"] <= 1
    assert 0 <= together["strongest"] < 1
    assert not together["violated"]
    assert sorted(live_series.folder.rglob("*")) == before


def test_the_table_says_what_a_bound_means(
    live_series: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeded: at the default confidence a right pipeline may be flagged, with probability 0.01."""
    seeds = itertools.count(1)
    monkeypatch.setattr(audit_module, "fresh_noise", lambda: SeededNoise(next(seeds)))
    said = live_series.command("audit", "--runs", "100", "--ticks", "100")  # the horizon is 6
    assert said.code == 0
    for text in (
        "clicks", "Alerts", "claimed epsilon", "proves nothing", "confidence 0.99",
        "all series together", "pure filter", "strongest possible", "computed from expected counts",
    ):  # fmt: skip
        assert text in said.out


@pytest.mark.parametrize(
    "privacy",
    [
        "epsilon: 1, analysts: [{name: ada, epsilon: 0.125}]",
        "epsilon: 4, delta: 1e-9, filter: tight_approximate",
        "epsilon: 4, delta: 1e-9, filter: zcdp",
        "epsilon: 4, delta: 1e-9, filter: gdp",
        "epsilon: 1, delta: 1e-9, filter: basic",
    ],
)
@pytest.mark.parametrize("neighbors", ["add_remove", "replace", "replace, moves: within_tick"])
def test_every_series_is_admitted_by_the_filter_of_the_file(
    live_series: Any, privacy: str, neighbors: str
) -> None:
    """Thirds of 7/8 round up one by one and still fit; with a filter that adds no epsilons the claim is their sum."""
    live_series.write(
        "neighbors: add_remove, epsilon: 1}\nclock", f"neighbors: {neighbors}, {privacy}}}\nclock"
    )
    thirds = re.sub(r"epsilon: (0.5|1/4|0.25)}", "epsilon: 7/24}", live_series.pipeline.read_text())
    live_series.pipeline.write_text(thirds)
    said = live_series.command("audit", *QUICK, "--confidence", "0.999999")
    assert (said.code, said.err) == (0, "")
    assert json.loads(said.out)["together"]["claimed_epsilon"] == 0.875


def test_a_block_at_its_optimum_is_played_with_all_its_series(live_series: Any) -> None:
    """The budget has room for the optimum at 1/1000 and not for the sum; the game's filter admits each series."""
    privacy = "epsilon: 0.999, delta: 1/1000, filter: basic, first_block_delta: 1/1000"
    live_series.write("epsilon: 1}\nclock", f"{privacy}}}\nclock")
    built = build(load(live_series.pipeline))
    filter_: Any = game_filter(built)
    for chosen in built.chosen:
        filter_ = filter_.charge(chosen.derivation.guarantee.measure)
    said = live_series.command("audit", *QUICK, "--confidence", "0.999999")
    assert (said.code, said.err) == (0, "")
    assert json.loads(said.out)["together"]["claimed_epsilon"] < 0.999


def test_the_filter_of_the_game_has_room_for_roundings_only(live_series: Any) -> None:
    """Three series and an analyst spend the budget; two units of 10^-12 are granted, a third is not."""
    ada = "analysts: [{name: ada, epsilon: 0.000001}]"
    live_series.write("epsilon: 1}\nclock", f"epsilon: 1, {ada}}}\nclock")
    live_series.pipeline.write_text(live_series.pipeline.read_text().replace("1/4}", "0.249999}"))
    filter_: Any = game_filter(build(load(live_series.pipeline)))
    for epsilon in ("0.5", "0.249999", "0.25"):
        filter_ = filter_.charge(PureDP(Fraction(epsilon)))
    assert filter_.charge(PureDP(Fraction(2, 10**12))) is not None
    assert filter_.charge(PureDP(Fraction(3, 10**12))) is None


OWN = "delta: 0.001, first_block_delta: 0.001, epsilon: 2, filter: basic"


def gaussian_clicks(live_series: Any, privacy: str, neighbors: str = "add_remove") -> None:
    """The clicks by Gaussian noise, under this `privacy`."""
    live_series.write(
        "neighbors: add_remove, epsilon: 1}\nclock", f"neighbors: {neighbors}, {privacy}}}\nclock"
    )
    text = live_series.pipeline.read_text()
    live_series.pipeline.write_text(
        text.replace("count, epsilon: 0.5", "count, method: gaussian, epsilon: 1")
    )


@pytest.mark.parametrize(
    ("privacy", "delta"),
    [
        (OWN, 0.001),
        (
            "epsilon: 9, delta: 0.001, first_block_delta: 0.0001, filter: tight_approximate",
            0.0001,
        ),
        ("epsilon: 4, delta: 1e-6, filter: zcdp", 0.01),
        ("epsilon: 5, delta: 1e-6, filter: gdp", 0.01),
        ("epsilon: 5, delta: 1e-6, filter: renyi, order: 24", 0.01),
        ("epsilon: 4, delta: 1e-6, first_block_delta: 1e-9, filter: basic", 1e-9),
    ],
)
@pytest.mark.parametrize("neighbors", ["add_remove", "replace"])
def test_gaussian_series_are_attacked_at_a_delta_that_is_shown(
    live_series: Any, privacy: str, delta: float, neighbors: str
) -> None:
    """Also where the filter admits them as a block only. Flagged wrongly with probability at most 1e-6."""
    gaussian_clicks(live_series, privacy, neighbors)
    said = live_series.command("audit", *QUICK, "--confidence", "0.999999")
    assert (said.code, said.err) == (0, "")
    found = json.loads(said.out)
    assert [s["claimed_delta"] for s in found["series"]] == [0.01, 0, 0]
    assert found["together"]["claimed_delta"] == delta


def test_the_table_says_which_delta(live_series: Any) -> None:
    gaussian_clicks(live_series, OWN)
    said = live_series.command("audit", "--runs", "100", "--ticks", "1", "--confidence", "0.999999")
    assert said.out.count("at delta 0.01 ") == 1
    assert said.out.count("at delta 0.001 ") == 1
    assert "attacked at 0.01: so few games see no smaller one" in said.out


def test_too_little_gaussian_noise_under_a_basic_filter_is_exit_4(
    live_series: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clicks' mu is eight times what is claimed, all else is right: an epsilon of 1.3 or so is proven for
    0.7 at 0.01. Seeded: missed, or something else flagged, with probability below 1e-3.
    """
    noises = (EighthGaussian(SeededNoise(seed)) for seed in itertools.count(1))
    monkeypatch.setattr(audit_module, "fresh_noise", lambda: next(noises))
    gaussian_clicks(live_series, OWN)
    said = live_series.command(
        "audit", "--runs", "2400", "--ticks", "1", "--confidence", "0.9999", "--json"
    )
    assert said.code == 4
    clicks, *others = json.loads(said.out)["series"]
    assert clicks["violated"]
    assert not any(other["violated"] for other in others)


def test_a_refuted_whole_is_named(live_series: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finding as of the twins in tests/unit/verify/games/test_together.py, whose parts are each right.

    A part is flagged beside it, which is then named, with probability at most 1e-9.
    """
    found = Finding(Fraction(1), 1.5, 0.9, "an event", (0.9, 0.1), 0.01)
    monkeypatch.setattr(audit_module, "audit_together", lambda *_, **__: found)
    said = live_series.command("audit", *QUICK, "--confidence", "0.999999999")
    assert said.code == 4
    assert "refutes the claimed epsilon of all series together" in said.err
    assert json.loads(said.out)["violated"]


@pytest.mark.slow
def test_the_flights_pass_in_well_under_a_minute(say: Any) -> None:
    """Of processor time, with the default number of games; flagged wrongly with probability at most 1e-6."""
    begun = time.process_time()
    said = say("audit", str(flights_folder() / "pipeline.yaml"), "--confidence", "0.999999")
    assert (said.code, said.err) == (0, "")
    assert time.process_time() - begun < 60


class QuarterNoise:
    """A broken sampler: a quarter of the scale asked for, so four times the epsilon."""

    def __init__(self, noise: Noise | None = None) -> None:
        self._noise = NoiseStream(fresh_seed(), 0) if noise is None else noise

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        """Too little."""
        return self._noise.laplace(scale / 4, size)

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        """Too little."""
        return self._noise.geometric(scale / 4, size)

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        """Too little."""
        return self._noise.gaussian(variance / 16, size)


class EighthGaussian(QuarterNoise):
    """A broken sampler of Gaussian noise alone: an eighth of the deviation asked for."""

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        """Too little."""
        return super().gaussian(variance / 4, size)

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        """As asked."""
        return super().laplace(4 * scale, size)

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        """As asked."""
        return super().geometric(4 * scale, size)


def test_a_broken_sampler_is_exit_4(live_series: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The alerts show epsilon 1 for 1/4: rates .73 and .27 of 400 each; missed with probability below 1e-6."""
    monkeypatch.setattr(audit_module, "fresh_noise", QuarterNoise)
    said = live_series.command("audit", "--runs", "1600", "--ticks", "1", "--json")
    assert said.code == 4
    assert "refutes the claimed epsilon of" in said.err
    assert "busy" in said.err
    found = {s["name"]: s for s in json.loads(said.out)["series"]}
    assert found["busy"]["violated"]
    assert found["busy"]["epsilon_lower_bound"] > max(0.25, found["busy"]["strongest"])


@pytest.mark.parametrize(
    ("bad", "said_what"),
    [
        (("--runs", "99"), "an audit needs 100 runs or more"),
        (("--ticks", "0"), "a tick or more"),
        (("--confidence", "1.5"), "between 0 and 1, got 1.5"),
        (("--confidence", "nan"), "between 0 and 1, got nan"),
    ],
)
def test_bad_settings_are_2(live_series: Any, bad: tuple[str, str], said_what: str) -> None:
    said = live_series.command("audit", *bad)
    assert (said.code, said.out) == (2, "")
    assert said_what in said.err
