"""Every seed of every commit comes from the port, is used for one thing, and never again after an attempt was lost."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from unit.journal.seed_worlds import Lives, check, three_lives
from unit.live import live_series_worlds

from stream_dp.engine import engine as module
from stream_dp.engine.engine import Engine
from stream_dp.engine.recovery import Recovered, initial_states
from stream_dp.engine.tick_assembler import ClosedTick
from stream_dp.errors import FailClosed
from stream_dp.journal.commit import Commit, Created, Halted, Header

ZEROS = bytes(32)


@contextmanager
def seeds_of(engine: Engine, seeds: Callable[[], bytes]) -> Iterator[None]:
    """Other seeds than those of the port, for a while."""
    ports = engine._ports
    engine._ports = replace(ports, seeds=seeds)
    try:
        yield
    finally:
        engine._ports = ports


def with_seeds(
    engine: Engine, seeds: Callable[[], bytes], act: Callable[..., Awaitable[Any]]
) -> Callable[..., Awaitable[Any]]:
    """What is done at a cut, with other seeds than those of the port."""

    async def acted(*derived: Any, **how: Any) -> Any:
        with seeds_of(engine, seeds):
            return await act(*derived, **how)

    return acted


class FirstSeedOfZeros(Engine):
    """Everybody knows the noise of the first states, so the exact counts."""

    async def _first_commit(self, header: Header) -> Recovered:
        with seeds_of(self, lambda: ZEROS):
            return await super()._first_commit(header)


class FirstNoiseOfZeros(Engine):
    """Records a good seed, and draws from another."""

    async def _first_commit(self, header: Header) -> Recovered:
        recovered = await super()._first_commit(header)
        live = self.admission.registry.live
        recovered.states = initial_states(live, ZEROS, self._make_noise)
        return recovered


class CreatedSeedOfZeros(Engine):
    """Everybody knows the first noise of a series that was created."""

    async def _done(self, act: Callable[..., Awaitable[Any]]) -> Any:
        return await super()._done(with_seeds(self, lambda: ZEROS, act))


class CreatedWithTheFirstSeed(Engine):
    """A created series shares its seed with those created before it: known seeds are as good as none."""

    first: ClassVar[list[bytes]] = []

    async def _done(self, act: Callable[..., Awaitable[Any]]) -> Any:
        if not self.first:
            self.first.append(self._ports.seeds())
        return await super()._done(with_seeds(self, lambda: self.first[0], act))


class OneSeedForAGroup(Engine):
    """All ticks of a commit draw the same noise."""

    async def _step(self, ticks: Sequence[ClosedTick]) -> Commit:
        seed = self._ports.seeds()
        with seeds_of(self, lambda: seed):
            return await super()._step(ticks)


class SeedsOfTheLostAttempt(Engine):
    """What an attempt that was lost had drawn is drawn again, perhaps for other rows."""

    left: ClassVar[list[bytes]] = []
    stepped = False

    async def _step(self, ticks: Sequence[ClosedTick]) -> Commit:
        if self.stepped:
            self.left.clear()  # the last commit became durable
        self.stepped = True
        old, fresh = list(self.left), self._ports.seeds

        def seeds() -> bytes:
            self.left.append(old.pop(0) if old else fresh())
            return self.left[-1]

        self.left.clear()
        with seeds_of(self, seeds):
            return await super()._step(ticks)


class OtherSeedsAfterARestart(Engine):
    """Recovers with fresh noise instead of the recorded one."""

    async def _start(self) -> Recovered:
        right, seed = self._make_noise, self._ports.seeds()
        self._make_noise = lambda _seed, number: right(seed, number)
        try:
            return await super()._start()
        finally:
            self._make_noise = right


TWINS = [
    FirstSeedOfZeros,
    CreatedSeedOfZeros,
    CreatedWithTheFirstSeed,
    OneSeedForAGroup,
    SeedsOfTheLostAttempt,
]


@pytest.mark.parametrize("snapshots", [1000, 3])
async def test_every_seed_is_the_ports_and_used_once(
    snapshots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SNAPSHOT_TICKS", snapshots)
    found = await three_lives()
    check(found)
    check_is_worth_it(found, snapshots < 1000)


def check_is_worth_it(found: Lives, snapshots: bool) -> None:
    """All that seeds are drawn for happens in these lives, and two attempts are lost."""
    commits = found.world.commits()
    changes = [type(change) for commit in commits for change in commit.changes]
    assert changes == [Created, Created, Halted]
    assert max(len(commit.ticks) for commit in commits) > 1
    assert any(commit.snapshot for commit in commits[:-1]) == snapshots
    lost = [life.attempts[-1] for life in found.lives[:-1]]
    assert [bool(attempt.ticks) for attempt in lost] == [True, False]
    assert len(lost[0].seeds) > 1
    assert all(life.before for life in found.lives[1:])


@pytest.mark.parametrize("twin", TWINS)
async def test_a_seed_from_elsewhere_or_used_twice_is_caught(
    twin: type[Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_series_worlds, "Engine", twin)
    found = await three_lives()
    with pytest.raises(AssertionError):
        check(found)


@pytest.mark.parametrize("twin", [FirstNoiseOfZeros, OtherSeedsAfterARestart])
async def test_recovery_catches_another_seed(
    twin: type[Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_series_worlds, "Engine", twin)
    with pytest.raises(FailClosed, match="does not give the recorded bytes"):
        await three_lives()
