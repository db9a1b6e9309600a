"""Noise is the same in every run of the tests (`tests/fixed_noise.py`), and no two draws of a run are alike."""

from collections.abc import Callable

import pytest
from fixed_noise import FixedNoise, bytes_of

from stream_dp.noise import fresh_seed

HERE = "tests/unit/noise/test_fixed_noise.py"
SEEDED = fresh_seed()

Seed = Callable[[str, int], bytes]


@pytest.fixture
def expected(request: pytest.FixtureRequest) -> Seed:
    if request.config.getoption("--fresh-noise"):
        pytest.skip("noise is fresh")
    return lambda name, number: bytes_of(name, number, 32)


@pytest.fixture(scope="module")
def shared() -> bytes:
    return fresh_seed()


@pytest.fixture
def own() -> bytes:
    return fresh_seed()


def test_the_bytes_are_these() -> None:
    assert bytes_of("", 0, 8).hex() == "429ee666b2359e46"
    assert len({bytes_of(name, number, 8) for name in ("", "1") for number in (1, 11)}) == 4


def test_a_test_draws_under_its_id(expected: Seed, own: bytes) -> None:
    name = f"{HERE}::test_a_test_draws_under_its_id"
    assert [own, fresh_seed(), fresh_seed()] == [expected(name, n) for n in range(3)]


@pytest.mark.parametrize("which", ["first", "second"])
def test_what_is_shared_does_not_depend_on_who_is_first(
    expected: Seed, shared: bytes, which: str
) -> None:
    assert shared == expected(f"{HERE}::shared[0]", 0)
    name = f"{HERE}::test_what_is_shared_does_not_depend_on_who_is_first[{which}]"
    assert fresh_seed() == expected(name, 0)


def test_a_module_draws_under_its_own(expected: Seed) -> None:
    assert expected(HERE, 0) == SEEDED


def test_a_name_that_comes_again_goes_on() -> None:
    noise = FixedNoise()
    with noise.named("a"):
        found = [noise.urandom(32)]
        with noise.named("b"):
            found.append(noise.urandom(32))
        found.append(noise.urandom(32))
    with noise.named("a"):
        found.append(noise.urandom(32))
    assert found == [bytes_of(*draw, 32) for draw in (("a", 0), ("b", 0), ("a", 1), ("a", 2))]
