"""When a run tries again after an outage, and what it says when it gives up; by a clock of its own."""

from typing import Any

import pytest

from stream_dp.errors import Outage, WorldError
from stream_dp.operate.run.running import RESTARTS, STEADY_S, WINDOW_S, Patience


class Time:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


def patience(time: Time, seconds: float = 300, **more: Any) -> Patience:
    return Patience(seconds, now=time, **more)


def test_before_anything_ran_the_error_is_told_at_once(time: Time) -> None:
    wrong = Outage("no broker at nowhere:1")
    with pytest.raises(Outage) as caught:
        patience(time).wait(wrong, advanced=False)
    assert caught.value is wrong
    assert patience(time, from_the_start=True).wait(wrong, advanced=False) > 0


def test_waits_grow_up_to_some_seconds_and_begin_anew_after_a_commit(time: Time) -> None:
    riding = patience(time)
    riding.runs()
    waits = [riding.wait(Outage("out"), advanced=False) for _ in range(12)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (0.05, 5.0)
    riding.runs()
    assert riding.wait(Outage("out"), advanced=True) == 0.05


def test_patience_counts_from_the_first_failure_to_the_next_commit(time: Time) -> None:
    riding = patience(time)
    for _ in range(3):
        riding.runs()
        riding.wait(Outage("it began so"), advanced=True)
        time.now += 300
        riding.wait(Outage("it goes on so"), advanced=False)
    time.now += 1
    with pytest.raises(WorldError) as caught:
        riding.wait(Outage("it ends so"), advanced=False)
    assert type(caught.value) is WorldError
    said = str(caught.value)
    assert said.startswith(
        "it ends so. Given up after trying again, for nothing could be committed for 300 s"
    )
    assert "it began with: it began so" in said


def test_an_attempt_that_ran_for_long_without_a_tick_has_got_over_it(time: Time) -> None:
    riding = patience(time)
    riding.runs()
    riding.wait(Outage("first"), advanced=False)
    riding.runs()
    time.now += 1000 * STEADY_S
    assert riding.wait(Outage("second"), advanced=False) == 0.05


def test_what_fails_again_and_again_ends_although_it_commits(time: Time) -> None:
    riding = patience(time)
    for _ in range(RESTARTS):
        riding.runs()
        riding.wait(Outage("again"), advanced=True)
    riding.runs()
    with pytest.raises(WorldError, match=f"failed {RESTARTS} times within an hour"):
        riding.wait(Outage("again"), advanced=True)


def test_attempts_are_forgotten_after_an_hour_and_those_that_never_ran_do_not_count(
    time: Time,
) -> None:
    riding = patience(time, WINDOW_S)
    for _ in range(3 * RESTARTS):
        riding.runs()
        riding.wait(Outage("again"), advanced=True)
        time.now += WINDOW_S / RESTARTS + 1
    riding.runs()
    for _ in range(3 * RESTARTS):
        riding.wait(Outage("again"), advanced=True)
