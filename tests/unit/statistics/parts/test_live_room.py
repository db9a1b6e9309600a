"""What the live series of one ledger may have at once: the words of a refusal, and what they promise."""

from itertools import product

import pytest
from unit.live.live_series_worlds import PIPELINE
from unit.live.message_worlds import WITH_ANALYSTS

from stream_dp.errors import NoRoom
from stream_dp.pipeline.fingerprints import fingerprint
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.statistics.parts.series_spec import LiveRoom


def refusal(room: LiveRoom, entries: int, payer: str, *running: int) -> str:
    """What is said where series s0, s1 ... of so many entries run."""
    with pytest.raises(NoRoom) as told:
        room.require("late", entries, payer, {f"s{at}": each for at, each in enumerate(running)})
    return str(told.value)


def test_one_series_too_many() -> None:
    assert refusal(LiveRoom(2, 9), 1, "ann", 1, 1) == (
        "live series: late is one series more, and analyst ann has 2 of the 2 that may run at once (queries.series), "
        "so none fits; halt one of s0, s1"
    )


def test_more_series_than_may_run_now() -> None:
    """An older version, or the file as it was, admitted them."""
    assert refusal(LiveRoom(100, 10**5), 1, "", *[1] * 1234) == (
        "live series: late is one series more, and the operator has 1,234 of the 100 that may run at once "
        "(queries.series), so none fits; halt 1,135 of s0, s1, s2, s3, s4 and 1,229 more"
    )


def test_entries_too_many_beside_what_runs() -> None:
    assert refusal(LiveRoom(100, 20_000), 6_000, "ann", 500, 14_500) == (
        "live series: late has 6,000 entries (keys, or places of a monitor; for each window, and what is long "
        "several times), and analyst ann has 15,000 of 20,000 at once (queries.entries), so 5,000 fit; ask for fewer, "
        "or halt what is not needed of s1 (14,500), s0 (500)"
    )


@pytest.mark.parametrize("running", [(), (3,)])
def test_no_halt_is_proposed_that_makes_no_room(running: tuple[int, ...]) -> None:
    told = refusal(LiveRoom(100, 5), 6, "", *running)
    assert told.endswith(f"so {5 - sum(running)} fit; ask for fewer")


def test_exactly_what_fits_is_admitted() -> None:
    """Every room, ask and ledger of small numbers, against the two sums; and what is said to fit does."""
    sizes = range(1, 4)
    asked = 0
    for series, entries, more in product(range(1, 4), range(1, 7), sizes):
        for running in [r for n in range(4) for r in product(sizes, repeat=n)]:
            asked += 1
            room, named = LiveRoom(series, entries), {f"s{at}": e for at, e in enumerate(running)}
            try:
                room.require("late", more, "", named)
                admitted = True
            except NoRoom as told:
                admitted = False
                fits = str(told).partition("so ")[2].split()[0]
                assert fits == (
                    "none" if len(running) >= series else str(max(0, entries - sum(running)))
                )
            assert admitted == (len(running) < series and sum(running) + more <= entries)
    assert asked == 3 * 6 * 3 * 40


def test_every_ledger_has_the_same_share_unless_the_file_says_how_much() -> None:
    def room(**more: object) -> LiveRoom:
        return PipelineSpec.model_validate(WITH_ANALYSTS | more).live_room

    assert PipelineSpec.model_validate(PIPELINE).live_room == LiveRoom(100, 100_000)
    assert room() == LiveRoom(100, 33_333)
    assert room(queries={"series": "7"}) == LiveRoom(7, 33_333)
    assert room(queries={"entries": "60000"}) == LiveRoom(100, 60_000)


def of_analysts(number: int, **queries: str) -> LiveRoom:
    many = [{"name": f"a{at}", "epsilon": "0.001"} for at in range(number)]
    more = {"privacy": {"epsilon": "6", "analysts": many}, "queries": queries}
    return PipelineSpec.model_validate(PIPELINE | more).live_room


def test_a_thousand_analysts_have_a_share_each() -> None:
    assert of_analysts(1000) == LiveRoom(1, 99, "an even share of queries.total_series: 1,000")
    assert of_analysts(1000, total_series="5000").series == 4


def test_all_together_run_no_more_than_the_total_or_one_each() -> None:
    """And whoever runs less than a share can have the rest of it, whatever the others run: nothing is lent."""
    for analysts in (0, 1, 9, 10, 99, 500, 998, 999, 1000):
        for queries in ({}, {"total_series": "1"}, {"total_series": "3000"}, {"series": "10000"}):
            room, ledgers = of_analysts(analysts, **queries), analysts + 1
            total = int(queries.get("total_series", "1000"))
            assert 1 <= room.series <= int(queries.get("series", "100"))
            assert room.series * ledgers <= max(total, ledgers)


def test_a_share_of_the_total_that_is_full_says_whose_it_is_and_which_key() -> None:
    assert refusal(of_analysts(499), 1, "ann", 1, 1) == (
        "live series: late is one series more, and analyst ann has 2 of the 2 that may run at once (an even share of "
        "queries.total_series: 1,000), so none fits; halt one of s0, s1"
    )


def test_it_may_be_changed_between_runs() -> None:
    first, *others = (
        fingerprint(PipelineSpec.model_validate(PIPELINE | {"queries": queries}))
        for queries in (
            *({}, {"series": "3"}, {"entries": "9"}),
            *({"per_tick": "5"}, {"total_series": "5"}),
        )
    )
    assert set(others) == {first}
