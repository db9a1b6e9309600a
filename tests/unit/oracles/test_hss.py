"""The small histogram by sparse vector and counters: its exact loss and its broken twins."""

from dataclasses import replace

import pytest
from oracles import naive
from oracles.exact import max_log_ratio
from oracles.hss import Hss, Relation, Stream, joint, pair_loss, worst_loss

ADD = Hss(e1=0.5, e2=0.5, e_c=0.5, s=1, l0=1, gamma=lambda *_: 2)
REPLACE = replace(ADD, s=2, l0=2)


def test_add_remove_meets_the_claim_exactly() -> None:
    for horizon, values in ((2, (0, 1, 2, 3)), (3, (0, 1, 2))):
        assert worst_loss(ADD, Relation.ADD_REMOVE, horizon, values).loss == pytest.approx(
            1.5, abs=1e-12
        )
    uneven = replace(ADD, e1=0.3, e2=0.7, e_c=0.2, gamma=lambda t, j: t + j - 1)
    assert worst_loss(uneven, Relation.ADD_REMOVE, 2, (0, 1, 2, 3)).loss == pytest.approx(
        1.2, abs=1e-12
    )


def test_replace_keeps_the_claim() -> None:
    worst = worst_loss(REPLACE, Relation.REPLACE, 3).loss
    assert worst == pytest.approx(1.4608, abs=1e-4)
    assert worst <= REPLACE.claim


def test_forgotten_l0_breaks_the_claim() -> None:
    worst = worst_loss(replace(REPLACE, l0=1), Relation.REPLACE, 3).loss
    assert worst == pytest.approx(1.9608, abs=1e-4)
    assert worst > REPLACE.claim


def test_the_cheap_noise_on_a_maximum_breaks_the_claim_under_replace() -> None:
    worst = worst_loss(replace(REPLACE, s=1), Relation.REPLACE, 2, (0, 1, 2, 3)).loss
    assert worst == pytest.approx(1.7853, abs=1e-4)
    assert worst > REPLACE.claim


def quiet_pair(quiet: int) -> tuple[Stream, Stream]:
    """Column 0 leads while nothing happens, then column 1 overtakes."""
    rest = (*[(0, 0)] * (quiet - 1), (0, 5))
    return ((4, 2), *rest), ((3, 3), *rest)


def test_the_cheap_noise_on_a_maximum_after_a_hundred_quiet_ticks() -> None:
    a, b = quiet_pair(100)
    crossing = [(*[False] * 100, True)]
    svt_only = replace(ADD, e_c=0.0, gamma=lambda *_: 4)
    broken = pair_loss(a, b, svt_only, crossing)
    assert broken == pytest.approx(1.5, abs=5e-3)  # claimed 1
    assert pair_loss(a, b, replace(svt_only, s=2), crossing) <= 1 + 1e-12


@pytest.mark.parametrize(
    ("hss", "relation"), [(ADD, Relation.ADD_REMOVE), (REPLACE, Relation.REPLACE)]
)
def test_loss_agrees_with_the_enumerated_joint_law(hss: Hss, relation: Relation) -> None:
    a, b = worst_loss(hss, relation, 2).streams
    law_a, law_b = joint(a, hss, 6), joint(b, hss, 6)
    assert sum(law_a.values()) == 1
    assert max_log_ratio(law_a, law_b) == pytest.approx(pair_loss(a, b, hss), abs=1e-12)


def test_naive_histogram_form() -> None:
    rows = [(1, 0), (0, 1), (2, 0), (0, 1)]
    ticks = naive.hss_histogram(
        rows, lambda _, j: j, [0, 0, 0], [0, 1, 0, 0], lambda j, i: -2 if i else j
    )
    assert [tick.top for tick in ticks] == [False, True, False, False]
    assert [tick.released for tick in ticks] == [(0, 0), (2, 0), (2, 0), (2, 0)]


def test_naive_relative_form() -> None:
    rows = [(1, 0), (0, 1), (2, 0), (0, 1)]
    ticks = naive.hss_relative(
        rows, max, lambda *_: 1, [0, 0, 0], [0, 1, 0, 0], lambda j, i: -2 if i else j
    )
    assert [tick.top for tick in ticks] == [False, True, True, False]
    assert [tick.released for tick in ticks] == [(0, 0), (2, 0), (5, 0), (5, 0)]
