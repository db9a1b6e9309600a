"""What a monitor answers without noise, what it refuses, and what it derives."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from stream_dp.core.mechanism import Message, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import RejectedMessage, UsageError
from stream_dp.mechanisms.serving import derived
from stream_dp.mechanisms.states import STATES
from stream_dp.mechanisms.watches.kinds import Monitor
from stream_dp.mechanisms.watches.monitor_state import (
    ArmQuery,
    DisarmQuery,
    ThresholdQuery,
    WatchTerms,
)
from stream_dp.testing.noise import SeededNoise, ZeroNoise

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
FIFTH, TENTH = Fraction(1, 5), Fraction(1, 10)
LARGE, ONCE = WatchTerms(50), WatchTerms(5, 2, rearm=False)
QUIET, BUSY = WatchTerms(3, tick=True, below=True), WatchTerms(10, tick=True)
ALL = Monitor(7, FIFTH, ADD, (LARGE, ONCE, QUIET, BUSY), ones=3, value_epsilon=TENTH)
PLAIN = Monitor(7, FIFTH, ADD, (LARGE, ONCE, QUIET, BUSY), ones=3)


def row(*counts: int) -> Update:
    """A row with zeros behind these counts."""
    return Update(np.array([*counts, *[0] * (7 - len(counts))], dtype=np.int64))


def said(monitor: Monitor, *messages: Message) -> list[Any]:
    """All answers to queries, without noise."""
    state, found = monitor.init(ZeroNoise()), []
    for message in messages:
        state, answer = monitor.step(state, message, ZeroNoise())
        if answer is not None:
            found.append(answer.tolist())
    return found


def test_without_noise_each_watch_fires_at_its_threshold() -> None:
    assert said(
        PLAIN,
        row(49, 5, 4, 3, 9), Query(),
        row(1, 9, 1, 2, 10), Query(),
        row(49, 9, 9, 0, 0), Query(),
        row(1, 0, 0, 3, 0), Query(),
    ) == [
        [0, 1, 0, 0, 0, 0, 0],
        [1, 0, 1, 1, 1, 0, 0],
        [0, 0, 0, 1, 0, 0, 0],
        [1, 0, 0, 0, 0, 0, 0],
    ]  # fmt: skip


def test_what_fires_tells_its_count() -> None:
    (answer,) = said(ALL, row(49, 5, 4, 2, 12), Query())
    assert answer == [0, 1, 0, 1, 1, 0, 0, 0, 5, 0, 2, 12, 0, 0]


def test_a_threshold_that_is_asked_ends_or_re_arms_its_watch() -> None:
    assert said(
        ALL,
        row(20, 4), ThresholdQuery(21, place=0), ThresholdQuery(20, place=0),
        ThresholdQuery(1, place=0), ThresholdQuery(3, place=1), Query(), row(30, 9), Query(),
    ) == [
        [0, 0], [1, 20], [0, 0], [1, 4],
        [0, 0, 0, 1, 0, 0, 0] + [0] * 7, [0, 0, 0, 1, 0, 0, 0] + [0] * 7,
    ]  # fmt: skip


def test_what_is_asked_of_single_ticks_is_asked_of_the_last_one() -> None:
    queries = (ThresholdQuery(4, place=3), ThresholdQuery(5, place=3), ThresholdQuery(12, place=4))
    assert said(PLAIN, row(0, 0, 0, 4, 12), Query(), row(0, 0, 0, 99, 0), *queries)[1:] == [
        [0],
        [1],
        [1],
    ]


def test_watches_come_and_go() -> None:
    arm = ArmQuery(place=5, watch=WatchTerms(2, 2))
    assert said(
        PLAIN,
        row(0, 0, 0, 5, 0, 9, 9), arm, Query(), row(0, 0, 0, 5, 0, 1, 2), Query(),
        DisarmQuery(place=5), row(0, 0, 0, 5, 0, 9, 9), Query(), ArmQuery(place=5, watch=LARGE), Query(),
    )[1:] == [
        [0, 0, 0, 0, 0, 0, 0][:7], [0, 0, 0, 0, 0, 0, 1], [], [0, 0, 0, 0, 0, 0, 1], [],
        [0, 0, 0, 1, 0, 0, 0],
    ]  # fmt: skip


REFUSED: list[tuple[Message, str]] = [
    (ThresholdQuery(place=0), "a threshold is an integer"),
    (ThresholdQuery(0, place=0), "a threshold is an integer"),
    (ThresholdQuery(10**15 + 1, place=0), "a threshold is an integer"),
    (ThresholdQuery(2.5, place=0), "a threshold is an integer"),  # type: ignore[arg-type]
    (ThresholdQuery(True, place=0), "a threshold is an integer"),
    (ThresholdQuery(5, place=7), "places of this monitor are 0 to 6"),
    (ThresholdQuery(5, place=-1), "places of this monitor are 0 to 6"),
    (ThresholdQuery(5, place=5), "this watch has ended"),
    (ThresholdQuery(5, place=3), "has seen none yet"),
    (ArmQuery(place=4, watch=LARGE), "a watch runs in this place"),
    (ArmQuery(place=6, watch=ONCE), "places of this monitor are 0 to 6"),
    (ArmQuery(place=-1, watch=ONCE), "places of this monitor are 0 to 6"),
    (DisarmQuery(place=7), "places of this monitor are 0 to 6"),
    (DisarmQuery(place=2, places=0), "places of this monitor are 0 to 6"),
    (DisarmQuery(place=2, places=-4), "places of this monitor are 0 to 6"),
]


@pytest.mark.parametrize(("message", "why"), REFUSED)
def test_nonsense_is_refused_and_changes_nothing(message: Message, why: str) -> None:
    state, noise = PLAIN.init(SeededNoise(1)), SeededNoise(2)
    state, _ = PLAIN.step(state, row(3, 3, 3, 3, 3), SeededNoise(3))
    before = STATES.encode(state)
    with pytest.raises(RejectedMessage, match=why):
        PLAIN.step(state, message, noise)
    assert STATES.encode(state) == before
    assert not noise.calls


@pytest.mark.parametrize("threshold", [0, -1, 10**15 + 1, True, 1.5, "5"])
def test_a_watch_has_an_integer_to_reach(threshold: Any) -> None:
    with pytest.raises(UsageError, match="an integer from 1 to"):
        WatchTerms(threshold)


def test_watches_that_watch_nothing_are_refused() -> None:
    with pytest.raises(UsageError, match="begins below"):
        WatchTerms(3, below=True)
    for tick, window in ((True, 2), (False, -1)):
        with pytest.raises(UsageError, match="takes at least one row, and not single ticks"):
            WatchTerms(3, tick=tick, window=window)
    with pytest.raises(UsageError, match="at least one place"):
        WatchTerms(3, 0)
    with pytest.raises(UsageError, match="need 5 places, and there are 4"):
        Monitor(4, FIFTH, ADD, PLAIN.watches)


@pytest.mark.parametrize(("relation", "l0"), [(ADD, 3), (REPLACE, 6)])
def test_the_derivation_gives_the_claim(relation: Neighbors, l0: int) -> None:
    monitor = Monitor(7, FIFTH, relation, ALL.watches, 3, TENTH)
    found = derived(monitor, "m")
    assert found.guarantee == monitor.guarantee
    assert [monitor.scale, monitor.value_scale] == [l0 * 5, l0 * 10]
    assert monitor.tick_scale == Fraction(l0 * 10, 3)
    for part in ("constant shift", "fresh noise", "[HSV] Cor 5.5", "[HSV] Thm 4."):
        assert part in str(found)
    assert derived(PLAIN, "m").guarantee == PLAIN.guarantee


@pytest.mark.parametrize("asked", [0, 30])
def test_the_band_holds_for_as_many_comparisons_as_there_were(asked: int) -> None:
    monitor, noise = Monitor(1, Fraction(1), ADD, (WatchTerms(10**6),)), SeededNoise(1)
    state = monitor.init(noise)
    for _ in range(asked):
        state, _ = monitor.step(state, ThresholdQuery(10**6, place=0), noise)
    assert monitor.public(70, state) == (70 + asked, False)
    assert monitor.band((100, False), 0.95) == 8  # ln(101 / 0.05) = 7.6
    assert monitor.band((100, True), 0.95) == 16


def test_the_chance_of_a_false_alarm_is_that_of_the_noise() -> None:
    """P[nu >= T + tau] = a^T / (1 + a), by summing it up; and the same for a tick's discrete Laplace draw."""
    a = np.exp(-1.0)
    summed = sum((1 - a) * a**x * a ** (3 + x) for x in range(200))
    since = Monitor(9, Fraction(1), ADD, (WatchTerms(3, 4), WatchTerms(3, tick=True, below=True)))
    assert since.false_alarms() == pytest.approx(4 * summed)
    tick = Monitor(1, Fraction(1), ADD, (WatchTerms(3, tick=True),))
    laplace = sum((1 - a) / (1 + a) * a**x for x in range(3, 200))
    assert tick.false_alarms() == pytest.approx(laplace)
    below = WatchTerms(3, tick=True, below=True)  # at 3 it fires where the noise is below 0
    beneath = sum((1 - a) / (1 + a) * a**x for x in range(1, 200))
    assert tick.false_alarm(below, 3, 1) == pytest.approx(beneath)


@pytest.mark.parametrize("share", [FIFTH, TENTH, Fraction(2)])
def test_the_bands_of_counts_are_the_quantiles_of_their_noise(share: Fraction) -> None:
    """P(|Z| > B) = 2 a^(B + 1) / (1 + a) for a discrete Laplace draw; a watch's own band covers a tick's count too."""
    monitor = Monitor(9, FIFTH, REPLACE, (WatchTerms(9),), 2, share)

    def beyond(scale: Fraction, band: int) -> float:
        a = np.exp(-1 / float(scale))
        return float(2 * a ** (band + 1) / (1 + a))

    band = monitor.value_band(0.95)
    assert beyond(monitor.value_scale, band) <= 0.05 < beyond(monitor.value_scale, band - 1)
    assert beyond(monitor.tick_scale, band) < 0.05
    assert beyond(monitor.tick_scale, monitor.band((1, False), 0.95)) < 0.05


def windowed(counts: list[int], watch: WatchTerms) -> list[int]:
    """When a watch over a window fires without noise, by its definition."""
    found, begin = [], 0
    for tick in range(1, len(counts) + 1):
        within = counts[max(begin, tick - watch.window) : tick]
        whole = len(within) == watch.window
        fires = (
            sum(within) < watch.threshold and whole
            if watch.below
            else sum(within) >= watch.threshold
        )
        found.append(int(fires))
        if fires:
            begin = tick if watch.rearm else len(counts) + watch.window + 1
        if fires and not watch.rearm:
            return found + [0] * (len(counts) - tick)
    return found


@pytest.mark.parametrize("window", [2, 3, 70])
@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize("rearm", [False, True])
def test_without_noise_a_window_fires_by_its_last_rows_alone(
    window: int, below: bool, rearm: bool
) -> None:
    """Also where one block holds several windows, and rows fill several blocks of a ring."""
    level = 3 * window if below or window < 9 else 2 * window
    watch = WatchTerms(level, below=below, rearm=rearm, window=window)
    other = WatchTerms(10, 2, window=5)
    counts = np.random.default_rng(4).integers(0, 6, (200, 4))
    monitor = Monitor(4, FIFTH, ADD, (watch, other, WatchTerms(7)))
    messages = [each for row in counts for each in (Update(row), Query())]
    found = np.array(said(monitor, *messages))
    assert found[:, 0].tolist() == windowed(counts[:, 0].tolist(), watch)
    for place in (1, 2):
        assert found[:, place].tolist() == windowed(counts[:, place].tolist(), other)
    assert found[:, 0].any()


def test_a_window_is_asked_told_ended_and_begun_again() -> None:
    below = ArmQuery(place=0, watch=WatchTerms(3, below=True, window=2))
    one = Monitor(1, FIFTH, ADD, (WatchTerms(9, window=2),), value_epsilon=TENTH)
    row = [Update(np.array([n])) for n in range(9)]
    assert said(
        one,
        row[4], Query(), row[3], ThresholdQuery(8, place=0), ThresholdQuery(7, place=0), Query(),
        row[8], Query(), DisarmQuery(place=0), below, row[1], Query(), row[2], Query(), row[0], Query(),
    ) == [[0, 0], [0, 0], [1, 7], [0, 0], [0, 0], [], [], [0, 0], [0, 0], [1, 2]]  # fmt: skip


def test_what_is_below_is_asked_with_whole_windows_only() -> None:
    monitor = Monitor(1, FIFTH, ADD, (WatchTerms(9, below=True, window=2),))
    state, _ = monitor.step(monitor.init(ZeroNoise()), Update(np.array([4])), ZeroNoise())
    with pytest.raises(RejectedMessage, match="looks at whole windows and has seen none"):
        monitor.step(state, ThresholdQuery(3, place=0), ZeroNoise())


def test_windows_are_no_more_rows_than_a_state_may_hold() -> None:
    long = WatchTerms(9, 4, window=200_000)
    with pytest.raises(UsageError, match="would hold 800,000 numbers, more than 400,000"):
        Monitor(4, FIFTH, ADD, (long,))
    monitor = Monitor(4, FIFTH, ADD, ())
    with pytest.raises(RejectedMessage, match="would hold 800,000 numbers"):
        monitor.step(monitor.init(ZeroNoise()), ArmQuery(place=0, watch=long), ZeroNoise())


def test_neighbours_with_windows_of_one_length_are_kept_together() -> None:
    """A thousand watches of one length are one array, whatever their thresholds: a tick costs as much as one."""
    many = [WatchTerms(n + 1, window=60) for n in range(1000)]
    watches = (*many, WatchTerms(7), *many[:2], WatchTerms(3, 4, window=5), many[0])
    held = Monitor(1008, FIFTH, ADD, watches).init(ZeroNoise()).windows
    assert [(each.place, len(each.age), each.window) for each in held] == [
        (0, 1000, 60), (1001, 2, 60), (1003, 4, 5), (1007, 1, 60),
    ]  # fmt: skip


def test_a_place_that_is_freed_leaves_the_window_of_its_neighbours_as_it_is() -> None:
    monitor = Monitor(3, FIFTH, ADD, (WatchTerms(5, 3, window=2),))
    row = [Update(np.array([n, n, n])) for n in range(9)]
    assert said(
        monitor, row[2], Query(), DisarmQuery(place=1), row[2], Query(),
        ArmQuery(place=1, watch=WatchTerms(5)), row[2], Query(), row[3], Query(),
    ) == [[0, 0, 0], [], [0, 0, 0], [], [0, 0, 0], [1, 1, 1]]  # fmt: skip


def test_a_window_keeps_the_rows_of_its_own_places_where_another_is_freed() -> None:
    monitor, noise = Monitor(3, FIFTH, ADD, (WatchTerms(99, 3, window=2),)), ZeroNoise()
    state = monitor.init(noise)
    first, *others = (Update(np.array(row)) for row in ([1, 0, 3], [1, 0, 1], [0, 0, 1]))
    messages: list[Message] = [first, DisarmQuery(place=1), *others]
    for message in messages:
        state, _ = monitor.step(state, message, noise)
    assert state.count.tolist() == [1, 0, 2]


def test_the_window_of_a_watch_that_has_ended_takes_nothing_from_the_next_one() -> None:
    """An event counts in one instance, and leaves its window once: else it would change the next one by more."""
    once, noise = WatchTerms(2, window=3, rearm=False), ZeroNoise()
    monitor = Monitor(1, FIFTH, ADD, (once,))
    row = Update(np.array([2]))
    state = monitor.init(noise)
    for message in (row, Query(), ArmQuery(place=0, watch=WatchTerms(99, window=2))):
        state, _ = monitor.step(state, message, noise)
    for count in (2, 4, 4, 4, 4, 4):
        state, _ = monitor.step(state, row, noise)
        assert state.count.tolist() == [count]
    state, _ = monitor.step(state, DisarmQuery(place=0), noise)
    assert not state.windows
    assert monitor.public(6, state) == (6, False)


def test_a_watch_of_single_ticks_answers_nothing_from_the_time_before_it_began() -> None:
    monitor, noise = Monitor(1, FIFTH, ADD, (BUSY,)), ZeroNoise()
    state = monitor.init(noise)
    for message in (
        Update(np.array([8])),
        Query(),
        DisarmQuery(place=0),
        ArmQuery(place=0, watch=BUSY),
    ):
        state, _ = monitor.step(state, message, noise)
    with pytest.raises(RejectedMessage, match="has seen none yet"):
        monitor.step(state, ThresholdQuery(8, place=0), noise)
