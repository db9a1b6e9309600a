"""The system clock never runs backwards and sleeps in slices."""

import asyncio
import time

import pytest

from stream_dp.errors import FailClosed
from stream_dp.files.system_clock import SystemClock


class _Scripted:
    def __init__(self, *moments: int) -> None:
        self.moments = list(moments)

    def __call__(self) -> int:
        return self.moments.pop(0) if len(self.moments) > 1 else self.moments[0]


def test_now_is_milliseconds_since_1970() -> None:
    before = time.time() * 1000 - 1
    assert before <= SystemClock().now() <= time.time() * 1000 + 1


def test_a_small_step_back_stands_still() -> None:
    clock = SystemClock(_Scripted(0, 5000, 4000, 4500, 5001))
    assert [clock.now() for _ in range(4)] == [5000, 5000, 5000, 5001]


def test_small_steps_back_do_not_add_up() -> None:
    clock = SystemClock(_Scripted(5000, 4400, 3900))
    assert clock.now() == 5000
    with pytest.raises(FailClosed, match="ran backwards"):
        clock.now()


async def test_sleep_is_sliced(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    await SystemClock(_Scripted(0, 0, 1000, 2000, 2500)).sleep_until(2500)
    assert slept == [0, 1, 1, 0.5]


async def test_a_moment_in_the_past_gives_way_once() -> None:
    ran: list[str] = []
    asyncio.get_running_loop().call_soon(ran.append, "other")
    await SystemClock(_Scripted(10)).sleep_until(10)
    assert ran == ["other"]


async def test_a_clock_set_back_ends_the_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sleep(_: float) -> None: ...

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(FailClosed):
        await SystemClock(_Scripted(9000, 9000, 1000)).sleep_until(20_000)
