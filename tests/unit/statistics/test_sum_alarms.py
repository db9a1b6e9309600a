"""Alerts on sums as people write them: units, thresholds, false alarms, what is told, and what is refused."""

from fractions import Fraction
from pathlib import Path

import numpy as np

from stream_dp.core.mechanism import Query, Update
from stream_dp.core.time import TickGrid
from stream_dp.journal.release import read
from stream_dp.mechanisms.watches.kinds import SumMonitor
from stream_dp.mechanisms.watches.monitor_state import WatchTerms
from stream_dp.mechanisms.watches.watch_noise import crossing_chance
from stream_dp.pipeline.builder import Chosen, build
from stream_dp.pipeline.fingerprints import fingerprint
from stream_dp.pipeline.yaml import load
from stream_dp.testing.noise import ZeroNoise

FILE = """\
version: 1
name: watched
source: {kind: file, path: orders.jsonl}
schema:
  time: {type: time}
  shop: {type: category, domain: [a, b]}
  amount: {type: number, nullable: true}
privacy: {epsilon: 2}
clock: {kind: replay, field: time, start: "2026-01-01T00:00:00Z", step: 1h, horizon: 240}
series:
"""
SUM = (
    "  - {name: s, statistic: alerts, by: shop, of: amount, clamp: [0, 40], step: 0.5, threshold: 900, windows: [6h], "
    "epsilon: 0.2}\n"
)


def written(folder: Path, series: str) -> Path:
    """A pipeline file with this series."""
    path = folder / "orders.yaml"
    path.write_text(FILE + series)
    return path


def chosen(folder: Path, series: str) -> Chosen:
    """What is chosen for it."""
    (found,) = build(load(written(folder, series))).chosen
    return found


def test_thresholds_and_clamps_are_in_the_fields_unit(tmp_path: Path) -> None:
    found = chosen(tmp_path, SUM)
    mechanism = found.mechanism
    assert isinstance(mechanism, SumMonitor)
    assert mechanism.watches == (WatchTerms(1_800, 3, window=6),)
    assert [mechanism.lowest, mechanism.highest, mechanism.window_scale] == [0, 80, 800]
    (alarm,) = found.choice.alarms
    assert (alarm.usual, alarm.chance) == (450, crossing_chance(900, Fraction(800), 24))
    assert found.choice.expected(11) == mechanism.band((12, True), 0.95) / 2
    assert found.derivation.guarantee.measure.epsilon == Fraction(1, 5)  # type: ignore[union-attr]


def test_what_is_released_has_its_band_in_the_fields_unit(tmp_path: Path) -> None:
    found = chosen(tmp_path, SUM)
    spec = load(written(tmp_path, SUM))
    series = found.series(spec, slice(0, 3), ("a", "b", "other"))
    state, noise = found.mechanism.init(ZeroNoise()), ZeroNoise()
    for row in ([1_000, 0, 0], [800, 1_799, 0]):
        state, _ = found.mechanism.step(state, Update(np.array(row)), noise)
        state, answer = found.mechanism.step(state, Query(), noise)
    assert answer is not None
    said = read(series.body(TickGrid(0, 3_600_000, 240), 1, 1, state, answer))
    assert said.fired == ("a",)
    assert said.band == found.choice.expected(1)


def test_readers_are_told_of_what(tmp_path: Path) -> None:
    below = SUM.replace("epsilon", "below: true, epsilon")
    shown = chosen(tmp_path, below).spec.described()
    assert shown["about"] == "alerts on amount by shop over 6h"
    assert (
        shown["meaning"] == "at most about 900 {band} of amount within 6h and since the one before"
    )
    assert shown["parameters"] == {
        "threshold": 900, "window": "6h", "fires": "below", "of": "amount", "clamp": "0 to 40", "step": "0.5",
    }  # fmt: skip


def test_a_threshold_below_which_a_signed_sum_fires_may_be_negative(tmp_path: Path) -> None:
    text = SUM.replace("[0, 40]", "[-60, 40]").replace("threshold: 900", "threshold: -100")
    text = text.replace("epsilon", "below: true, epsilon")
    found = chosen(tmp_path, text)
    mechanism = found.mechanism
    assert isinstance(mechanism, SumMonitor)
    assert mechanism.watches == (WatchTerms(-200, 3, below=True, window=6),)
    (alarm,) = found.choice.alarms
    assert alarm.usual == -50  # half the way from 0
    assert alarm.chance == crossing_chance(101, mechanism.window_scale, 24)
    state, noise, fired = mechanism.init(ZeroNoise()), ZeroNoise(), []
    for amount in [0] * 6 + [-200, -1, 1, 0]:
        state, _ = mechanism.step(state, Update(np.array([amount, 0, 0])), noise)
        state, answer = mechanism.step(state, Query(), noise)
        assert answer is not None
        fired.append(int(answer[0]))
    assert fired == [0, 0, 0, 0, 0, 0, 0, 1, 0, 0]  # when fewer than -200 units are in the window
    told = found.spec.described()
    assert told["meaning"].startswith("at most about -100 {band} of amount")


def test_signed_amounts_and_all_since_the_one_before(tmp_path: Path) -> None:
    text = SUM.replace("[0, 40]", "[-60, 40]").replace("windows: [6h], ", "")
    found = chosen(tmp_path, text)
    assert isinstance(found.mechanism, SumMonitor)
    assert found.mechanism.scale == 600
    assert found.spec.signed
    assert fingerprint(load(written(tmp_path, text))) != fingerprint(load(written(tmp_path, SUM)))
