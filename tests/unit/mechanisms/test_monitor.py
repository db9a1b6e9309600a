"""What a monitor answers without noise, what it refuses and derives, and which noise it draws for what.

Noise is drawn at the scale of what is asked, and never for anything that is decided already.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from stream_dp.core.mechanism import IntArray, Message, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire_of
from stream_dp.errors import RejectedMessage, UsageError
from stream_dp.mechanisms.serving import derived
from stream_dp.mechanisms.states import STATES
from stream_dp.mechanisms.watches.block import (
    ArmQuery,
    DisarmQuery,
    LevelsQuery,
    ThresholdQuery,
    WatchTerms,
)
from stream_dp.mechanisms.watches.kinds import Alerts, CountWatchers, Monitor
from stream_dp.testing.noise import ScriptedNoise, SeededNoise, ZeroNoise

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
FIFTH, TENTH = Fraction(1, 5), Fraction(1, 10)
LARGE, ONCE = WatchTerms(50), WatchTerms(5, 2, rearm=False)
QUIET, BUSY = WatchTerms(3, tick=True, below=True), WatchTerms(10, tick=True)
ALL = Monitor(7, FIFTH, ADD, (LARGE, ONCE, QUIET, BUSY), ones=3, value_epsilon=TENTH)
PLAIN = Monitor(7, FIFTH, ADD, (LARGE, ONCE, QUIET, BUSY), ones=3)


def row(*counts: int) -> Update:
    return Update(np.array([*counts, *[0] * (7 - len(counts))], dtype=np.int64))


def said(monitor: Monitor, *messages: Message) -> list[Any]:
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


PLACES, INTEGER = (
    "places of this monitor are numbered from 0 to 6",
    "a threshold must be an integer",
)
REFUSED: list[tuple[Message, str]] = [
    (ThresholdQuery(place=0), INTEGER), (ThresholdQuery(0, place=0), INTEGER),
    (ThresholdQuery(10**15 + 1, place=0), INTEGER), (ThresholdQuery(True, place=0), INTEGER),
    (ThresholdQuery(5, place=7), PLACES), (ThresholdQuery(5, place=-1), PLACES),
    (ThresholdQuery(5, place=5), "this watch has ended"),
    (ThresholdQuery(5, place=3), "has seen none yet"),
    (ArmQuery(place=4, watch=LARGE), "a watch already runs in this place"),
    (ArmQuery(place=6, watch=ONCE), PLACES), (ArmQuery(place=-1, watch=ONCE), PLACES),
    (DisarmQuery(place=7), PLACES), (DisarmQuery(place=2, places=0), PLACES),
]  # fmt: skip


@pytest.mark.parametrize(("message", "why"), REFUSED)
def test_nonsense_is_refused_and_changes_nothing(message: Message, why: str) -> None:
    state, noise = PLAIN.init(SeededNoise(1)), SeededNoise(2)
    state, _ = PLAIN.step(state, row(3, 3, 3, 3, 3), SeededNoise(3))
    before = STATES.encode(state)
    with pytest.raises(RejectedMessage, match=why):
        PLAIN.step(state, message, noise)
    assert STATES.encode(state) == before
    assert not noise.calls


def test_what_a_watch_has_not_seen_yet_is_not_asked() -> None:
    """Of a window that is not whole, and of a tick before the watch began."""
    below = WatchTerms(9, below=True, window=2)
    for watch, messages, why in (
        (below, (), "looks at whole windows, and no window has ended"),
        (BUSY, (Query(), DisarmQuery(place=0), ArmQuery(place=0, watch=BUSY)), "has seen none yet"),
    ):
        monitor, noise = Monitor(1, FIFTH, ADD, (watch,)), ZeroNoise()
        state = monitor.init(noise)
        for message in (Update(np.array([8])), *messages):
            state, _ = monitor.step(state, message, noise)
        with pytest.raises(RejectedMessage, match=why):
            monitor.step(state, ThresholdQuery(8, place=0), noise)


@pytest.mark.parametrize("threshold", [0, 10**15 + 1, True, "5"])
def test_a_watch_has_an_integer_to_reach(threshold: Any) -> None:
    with pytest.raises(UsageError, match="an integer from 1 to"):
        WatchTerms(threshold)


def test_watches_that_watch_nothing_are_refused() -> None:
    with pytest.raises(UsageError, match="starts below"):
        WatchTerms(3, below=True)
    for tick, window in ((True, 2), (False, -1)):
        with pytest.raises(
            UsageError, match="needs at least one row, and cannot look at single ticks"
        ):
            WatchTerms(3, tick=tick, window=window)
    with pytest.raises(UsageError, match="at least one place"):
        WatchTerms(3, 0)
    with pytest.raises(UsageError, match="need 5 places, but the monitor has 4"):
        Monitor(4, FIFTH, ADD, PLAIN.watches)


@pytest.mark.parametrize(("relation", "l0"), [(ADD, 3), (REPLACE, 6)])
def test_the_derivation_gives_the_claim(relation: Neighbors, l0: int) -> None:
    monitor = Monitor(7, FIFTH, relation, ALL.watches, 3, TENTH)
    found = derived(monitor, "m")
    assert found.guarantee == monitor.guarantee
    assert [monitor.scale, monitor.value_scale] == [l0 * 5, l0 * 10]
    assert monitor.tick_scale == Fraction(l0 * 10, 3)
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


@pytest.mark.parametrize("share", [FIFTH, Fraction(2)])
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
    ticks, begin = [], 0
    for tick in range(1, len(counts) + 1):
        within = counts[max(begin, tick - watch.window) : tick]
        whole = len(within) == watch.window
        enough = sum(within) >= watch.threshold
        ticks.append(int(whole and not enough if watch.below else enough))
        if ticks[-1]:
            begin = tick
            if not watch.rearm:
                return ticks + [0] * (len(counts) - tick)
    return ticks


@pytest.mark.parametrize(
    ("window", "below", "rearm"),
    [(2, False, True), (3, True, True), (3, False, False), (70, True, True), (70, False, True)],
)
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


SINCE, TICK, VALUE = Fraction(15), Fraction(10), Fraction(30)  # 3 / 0.2, 3 / 0.3, 3 / 0.1


COMPARED = [("geometric", SINCE, 3), ("laplace", TICK, 2)]
STEPS: dict[str, tuple[tuple[int, ...], Message, list[Any]]] = {
    "nothing fires": ((9, 1, 1, 5, 1), Query(), COMPARED),
    "one re-arms, one has ended": (
        (50, 5, 1, 5, 1), Query(), [*COMPARED, ("laplace", VALUE, 2), ("geometric", SINCE, 1)],
    ),
    "ticks fire": ((9, 1, 1, 1, 11), Query(), COMPARED),
    "asked, and does not fire": ((9,), ThresholdQuery(10, place=0), [("geometric", SINCE, 1)]),
    "asked, and fires": (
        (9,), ThresholdQuery(9, place=0),
        [("geometric", SINCE, 1), ("laplace", VALUE, 1), ("geometric", SINCE, 1)],
    ),
    "begun": ((), ArmQuery(place=5, watch=WatchTerms(9, 2)), [("geometric", SINCE, 2)]),
    "begun, of ticks": ((), ArmQuery(place=5, watch=WatchTerms(9, 2, tick=True)), []),
    "ended": ((), DisarmQuery(place=0), []),
}  # fmt: skip


def drawn(noise: ScriptedNoise) -> list[Any]:
    """What was drawn since this was asked last: law, scale and number."""
    calls = [(draw.kind, draw.scale, draw.size) for draw in noise.calls if draw.size]
    noise.calls.clear()
    return calls


@pytest.mark.parametrize("name", STEPS)
def test_each_message_draws_what_it_needs_at_its_own_scale(name: str) -> None:
    counts, message, expected = STEPS[name]
    noise = ScriptedNoise([0] * 100)
    state = ALL.init(noise)
    assert drawn(noise) == [("geometric", SINCE, 3)]
    state, _ = ALL.step(state, row(*counts), noise)
    ALL.step(state, message, noise)
    assert drawn(noise) == expected


def test_what_is_asked_of_a_tick_draws_nothing() -> None:
    state, _ = ALL.step(ALL.init(ZeroNoise()), Query(), ZeroNoise())
    for threshold in (1, 10):
        state, _ = ALL.step(state, ThresholdQuery(threshold, place=4), ScriptedNoise([]))


def test_a_free_place_counts_nothing_and_a_watch_begins_from_zero() -> None:
    noise = ZeroNoise()
    state, _ = ALL.step(ALL.init(noise), Update(np.full(7, 4)), noise)
    assert state.count.tolist() == [4] * 5 + [0] * 2
    full = replace(state, count=np.full(7, 4))
    begun, _ = ALL.step(full, ArmQuery(place=5, watch=WatchTerms(9, 2)), noise)
    assert begun.count.tolist() == [4] * 5 + [0] * 2


def test_windows_draw_at_their_own_scales_and_only_where_they_are_compared() -> None:
    """0.3 in all, 0.15 for each of two noises of a comparison and as much for the count; of the share one of 3."""
    watches = (WatchTerms(5, 2, window=2), WatchTerms(3, below=True, window=3), WatchTerms(50))
    monitor = replace(ALL, watches=watches)
    compared, told = ("geometric", Fraction(20)), ("laplace", Fraction(20))
    noise = ScriptedNoise([0] * 100)
    state = monitor.init(noise)
    assert drawn(noise) == [("geometric", SINCE, 1), (*compared, 3)]
    for window, fired in ((2, 0), (2, 0), (3, 1), (2, 0)):
        state, _ = monitor.step(state, row(), noise)
        state, _ = monitor.step(state, Query(), noise)
        again = [(*told, 1), (*compared, 1)] * fired
        assert drawn(noise) == [("geometric", SINCE, 1), (*compared, window), *again]
    monitor.step(state, ThresholdQuery(9, place=0), noise)
    assert drawn(noise) == [(*compared, 1)]


def test_what_is_told_is_the_count_and_the_noise_that_is_drawn_for_it() -> None:
    """A watch since its last crossing, one of ticks, one over a window: the comparisons' draws are others."""
    watches = (WatchTerms(5), WatchTerms(5, tick=True), WatchTerms(5, window=2))
    monitor = replace(ALL, width=3, watches=watches)
    noise = ScriptedNoise([1, 2, *(4, -1, 4), *(30, -40), *(1, 2)])
    state, _ = monitor.step(monitor.init(noise), Update(np.array([6, 6, 6])), noise)
    _, answer = monitor.step(state, Query(), noise)
    assert answer is not None
    assert answer.tolist() == [1, 1, 1, 36, 5, -34]
    assert noise.used == len(noise.values)


def played(block: Any, levels: Callable[[int], IntArray]) -> list[Any]:
    """Answers, counts, noise on thresholds and draws over 60 ticks with these levels."""
    noise, seen = SeededNoise(7), list[Any]()
    state = block.init(noise)
    for tick in range(60):
        row = np.array([(tick * (place + 3) + place) % 11 for place in range(9)])
        state, _ = block.step(state, Update(row), noise)
        if isinstance(block, Monitor):
            state = replace(state, threshold=levels(tick))
        state, answer = block.step(state, LevelsQuery(levels=levels(tick)), noise)
        seen += [answer.tolist(), state.count.tolist(), state.lift.tolist()]
    assert sum(map(sum, seen[::3])) > 10
    return [*seen, [draw for draw in noise.calls if draw.size]]


@pytest.mark.parametrize(("relation", "ones"), [(ADD, 2), (REPLACE, 1)])
def test_alerts_and_count_watchers_draw_as_a_monitor_does(relation: Neighbors, ones: int) -> None:
    """So all that is exact of a monitor is exact of them."""
    shape = 9, Fraction(1, 5), relation
    monitor = Monitor(*shape, (WatchTerms(30, 9),), ones)
    watchers = CountWatchers(*shape, ones)

    def changing(tick: int) -> IntArray:
        return np.roll(np.arange(9), tick) + 20 - tick % 7

    assert played(watchers, changing) == played(monitor, changing)
    alerts = Alerts(*shape, 30, ones)
    assert played(alerts, lambda _: np.full(9, 30)) == played(monitor, lambda _: np.full(9, 30))


def test_count_watchers_need_a_level_for_each_column() -> None:
    watchers = CountWatchers(3, FIFTH, ADD)
    for query in (Query(), LevelsQuery(levels=np.zeros(2, dtype=np.int64))):
        with pytest.raises(RejectedMessage, match="needs 3 public levels, one for each column"):
            watchers.step(watchers.init(ZeroNoise()), query, ZeroNoise())


def test_states_keep_the_kinds_that_journals_hold() -> None:
    for block, kind in (
        (Alerts(3, FIFTH, ADD, 1), "alerts"),
        (CountWatchers(3, FIFTH, ADD), "count-watchers"),
    ):
        state: Any = block.init(ZeroNoise())
        query = LevelsQuery(levels=np.zeros(3, dtype=np.int64))
        after, _ = block.step(state, query, ZeroNoise())
        assert wire_of(type(state)).kind == wire_of(type(after)).kind == f"{kind}-state"


def test_queries_of_other_levels_differ() -> None:
    low, high, same = (LevelsQuery(levels=np.full(2, level)) for level in (1, 2, 1))
    assert low == same != high
    assert len({low, same, high}) == 2
