"""The server of live series of a running engine, and `stream-dp ledger` over a journal that holds them."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from unit.live.live_series_worlds import HORIZON, PIPELINE, SEALER, Stopping, World

from stream_dp.core.guarantee import ApproxDP, differential_privacy
from stream_dp.engine.history import JournalSummary, read_summary
from stream_dp.errors import BudgetRefused, FailClosed, NotYours, UnknownMechanism, UsageError
from stream_dp.files.memory import MemorySource
from stream_dp.operate.audit import ledger_check
from stream_dp.operate.audit.ledger_check import live_charges
from stream_dp.operate.audit.ledger_view import ledger_json
from stream_dp.operate.budget_view import api_budget
from stream_dp.operate.run.live_series import Attempt, EngineLiveSeries
from stream_dp.pipeline.report import promise_json
from stream_dp.server.view import Sender

Privacy = dict[str, Any]
BEGINS = {tick: f"2026-01-01T{tick:02}:00:00Z" for tick in range(HORIZON + 1)}


def definition(name: str, epsilon: str, country: str = "") -> bytes:
    return json.dumps(_count(name, epsilon, country)).encode()


def _count(name: str, epsilon: str, country: str = "") -> dict[str, Any]:
    where = {"where": [{"field": "country", "equals": country}]} if country else {}
    return {"name": name, "statistic": "count", "epsilon": epsilon, **where}


BOXED = PIPELINE | {
    "privacy": {"epsilon": "1"},
    "series": [_count("de", "0.6", "DE"), _count("fr", "0.6", "FR")],
}
USERS = {"unit": "user", "user": "who", "max_events": "2", "per": "1h"}


async def asked(
    world: World, then: Callable[[EngineLiveSeries, Stopping], Awaitable[None]]
) -> None:
    source = Stopping(2)
    world.begins = BEGINS.get
    engine = world.engine(source)
    run = asyncio.create_task(engine.run())
    await world.until(2)
    try:
        attempt = Attempt(engine, world.words)
        live_series = EngineLiveSeries(world.built, lambda: attempt, lambda: False)
        await then(live_series, source)
    finally:
        source.go(HORIZON)
        await run


async def summary_of(world: World) -> JournalSummary:
    async def sealed() -> AsyncIterator[bytes]:
        for each in world.store.commits:
            yield each

    return await read_summary(sealed(), SEALER, "shop")


async def two_in_turn(world: World) -> None:
    """Two series of the whole rest, one after the other."""

    async def ask(live_series: EngineLiveSeries, source: Stopping) -> None:
        made = await live_series.create(definition("first", "1"))
        assert (made["start"], made["start_time"], made["epsilon"]) == (3, BEGINS[3], "1")
        (planned,) = live_series.planned()
        assert (planned["name"], planned["mechanism"]) == ("first", "Counter")
        assert planned["predicted_error"][0]["error"] == made["error"] > 0
        source.go(5)
        await world.until(5)
        ended = await live_series.halt("first")
        assert (ended["name"], float(ended["left"])) == ("first", float(made["left"]) + 1)
        await live_series.create(definition("second", "1"))

    await asked(world, ask)


async def test_the_ledger_adds_up_what_is_alive_at_one_tick() -> None:
    world = World()
    await two_in_turn(world)
    shown = ledger_json(world.built, await summary_of(world))
    assert (shown["budget"], shown["spent"], shown["peak"], shown["left"]) == ("2", "2", "2", "0")
    names = [(c["name"], c["analyst"], c["start"]) for c in shown["charges"]]
    assert names[:2] == [("shop: series of the first start", "", 0), ("first", "", 3)]
    assert shown["charges"][1]["end"] == shown["charges"][2]["start"]
    (ticks,) = shown["derivation"]["premises"]
    assert (ticks["source"], ticks["guarantee"]["epsilon"]) == ("[HSV] Cor 5.5, 5.7", 2)
    assert len(ticks["premises"]) == 3


@pytest.mark.parametrize(
    ("budget", "why"),
    [
        ("2", r"does not add up: .* exceed the filter's capacity"),
        ("5", r"says that at most 2 is spent, but .* add up to 3"),
    ],
)
async def test_a_total_that_differs_is_said(
    monkeypatch: pytest.MonkeyPatch, budget: str, why: str
) -> None:
    """The twin: halts that free past ticks, so that both series are alive at one tick."""
    world = World(pipeline=PIPELINE | {"privacy": {"epsilon": budget}})
    await two_in_turn(world)
    found = await summary_of(world)

    def all_alive(summary: JournalSummary) -> list[Any]:
        return [
            live._replace(created=msgspec.structs.replace(live.created, start=3), end=None)
            for live in live_charges(summary)
        ]

    monkeypatch.setattr(ledger_check, "live_charges", all_alive)
    with pytest.raises(FailClosed, match=why):
        ledger_json(world.built, found)


async def test_live_series_are_listed_previewed_and_priced() -> None:
    world = World()

    async def ask(live_series: EngineLiveSeries, _source: Stopping) -> None:
        before = [dict(each) for each in live_series.queries()]
        assert [each["name"] for each in before] == ["orders"]
        seen = await live_series.preview(definition("dear", "1.5"))
        assert not seen["fits"]
        assert (seen["asked"], seen["left"], seen["largest"]) == ("1.5", "1", "1")
        with pytest.raises(BudgetRefused):
            await live_series.create(definition("dear", "1.5"))
        with pytest.raises(UnknownMechanism, match="comes from the pipeline file"):
            await live_series.halt("orders")
        assert [dict(each) for each in live_series.queries()] == before
        await live_series.create(definition("cheap", "0.25"))
        assert live_series.queries()[1]["epsilon"] == "0.25"
        (ticks,) = live_series.promise().premises
        assert [p.subject for p in ticks.premises] == ["shop: series of the first start", "cheap"]
        assert promise_json(world.built, live_series.promise())["epsilon"] == 2
        await live_series.halt("cheap")
        assert live_series.queries()[-1] == {
            "name": "cheap", "statistic": "count", "by": None, "analyst": "", "epsilon": "0.25",
            "start": 3, "start_time": BEGINS[3], "end": 3, "end_time": BEGINS[3], "created": True,
        }  # fmt: skip

    await asked(world, ask)
    shown = ledger_json(world.built, await summary_of(world))
    assert shown["spent"] == "1"
    assert len(shown["derivation"]["premises"]) == 1  # it saw no tick


@pytest.mark.parametrize("name", ["tight_approximate", "renyi", "gdp"])
async def test_every_filter_states_its_budget_and_what_is_left(name: str) -> None:
    privacy = {"epsilon": "1", "delta": "1e-6", "filter": name,
               "analysts": [{"name": "ann", "epsilon": "0.05"}]}  # fmt: skip
    privacy |= {"order": "30"} if name == "renyi" else {}
    series = [{"name": "orders", "statistic": "count", "epsilon": "0.1"}]
    world = World(pipeline=PIPELINE | {"privacy": privacy, "series": series})

    async def ask(live_series: EngineLiveSeries, _source: Stopping) -> None:
        largest = (await live_series.preview(definition("a", "0.01")))["left"]
        over = await live_series.preview(definition("a", str(float(largest) + 1e-6)))
        assert not over["fits"]
        await live_series.create(definition("a", "0.03"), "ann")
        with pytest.raises(BudgetRefused, match=r"analyst ann: b asks .* halt what is not needed"):
            await live_series.create(definition("b", "0.03"), "ann")
        with pytest.raises(
            UsageError, match=r"analyst: there is no such analyst. .* names ann; a request without"
        ):
            await live_series.create(definition("b", "0.01"), "bob")
        await live_series.create(definition("c", largest))
        with pytest.raises(BudgetRefused, match=r"d asks .* halt what is not needed"):
            await live_series.create(definition("d", "0.05"))
        preview = await live_series.preview(definition("d", "0.05"))
        assert preview["unit"] == world.built.ledger.filter.unit
        budget = api_budget(world.built.spec, live_series._shown().engine.admission.subledgers, [])
        assert 0.99 < float(budget["odometer"]["bound"]) <= 1
        assert budget["odometer"]["delta"] == "0.000001"
        assert budget["analysts"] == [
            {
                "name": "ann",
                "records": "",
                "epsilon": {"total": "0.05", "spent": "0.03", "left": "0.02"},
            }
        ]
        promise = differential_privacy(live_series.promise().guarantee.measure)
        assert promise == ApproxDP(Fraction(1), Fraction(1, 10**6))
        await live_series.halt("c")
        await live_series.create(definition("d", largest))

    await asked(world, ask)
    shown = ledger_json(world.built, await summary_of(world))
    assert [c["name"] for c in shown["charges"]] == ["analyst ann", "orders", "a", "c", "d"]
    await world.engine(MemorySource([], partitions=(0, 1))).run()


async def test_what_a_halt_gives_back_is_said_before_and_then_fits() -> None:
    """More is free on its own records than on all, where the others meet more; and what is said is what is admitted."""
    world = World(BOXED)

    async def ask(live_series: EngineLiveSeries, _source: Stopping) -> None:
        await live_series.create(definition("more-de", "0.3", "DE"))
        await live_series.create(definition("more-fr", "0.2", "FR"))
        subledgers = live_series._shown().engine.admission.subledgers
        budget, before = (
            api_budget(world.built.spec, subledgers, [("more-de", Fraction(1))]),
            subledgers.main,
        )
        assert (budget["heaviest"], budget["epsilon"]["left"], budget["frees"]) == (
            "country = DE",
            "0.1",
            True,
        )
        live = {"name": "more-de", "epsilon": "1", "records": "country = DE", "frees": True}
        assert budget["series"] == [live]
        at = {"end": 3, "end_time": BEGINS[3], "budget": "1"}
        of_de = await live_series.preview_halt("more-de")
        assert of_de == {
            "name": "more-de", "records": "country = DE", "freed": "0.3", "largest": "0.4",
            "freed_everywhere": "0.1", "left": "0.2", **at,
        }  # fmt: skip
        of_fr = await live_series.preview_halt("more-fr")
        assert of_fr == {
            "name": "more-fr", "records": "country = FR", "freed": "0.2", "largest": "0.4",
            "freed_everywhere": "0", "left": "0.1", **at,
        }  # fmt: skip
        assert subledgers.main is before
        with pytest.raises(UnknownMechanism, match="comes from the pipeline file"):
            await live_series.preview_halt("de")
        halted = await live_series.halt("more-fr")
        assert of_fr.items() >= halted.items()
        assert halted["freed"] == "0.2"
        with pytest.raises(BudgetRefused):
            await live_series.create(definition("over", "0.41", "FR"))
        await live_series.create(definition("fits", "0.4", "FR"))

    await asked(world, ask)
    shown = ledger_json(world.built, await summary_of(world))
    halts = {charge["name"]: charge["halt"] for charge in shown["charges"] if "halt" in charge}
    assert halts.keys() == {"more-de", "fits"}
    assert halts["more-de"] == {
        "end": HORIZON, "end_time": "2026-01-01T12:00:00Z", "records": "country = DE", "freed": "0.3",
        "largest": "0.4", "left": "0", "freed_everywhere": "0",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("privacy", "frees"),
    [
        ({"delta": "1e-6"}, True),
        ({"delta": "1e-6", "filter": "zcdp"}, True),
        ({"delta": "1e-6", "filter": "basic", **USERS}, True),
        ({"delta": "1e-6", "filter": "zcdp", **USERS}, False),
    ],
    ids=["optimal", "zcdp", "basic, users", "zcdp, users"],
)
async def test_after_a_halt_fits_what_its_preview_said(privacy: Privacy, frees: bool) -> None:
    schema = PIPELINE["schema"] | {"who": {"type": "text"}}
    series = [_count("orders", "0.1")]
    world = World(
        PIPELINE | {"privacy": {"epsilon": "1", **privacy}, "series": series, "schema": schema}
    )

    async def ask(live_series: EngineLiveSeries, _source: Stopping) -> None:
        for name, country in (("a", "DE"), ("b", "DE"), ("c", "")):
            await live_series.create(definition(name, "0.05", country))
        subledgers = live_series._shown().engine.admission.subledgers
        budget = api_budget(world.built.spec, subledgers, [("a", Fraction(1))])
        assert budget["frees"] == budget["series"][0]["frees"] == frees
        would = await live_series.preview_halt("a")
        assert (would["freed"] != "0") == frees
        now = await live_series.preview(definition("next", "0.05", "DE"))
        await live_series.halt("a")
        then = await live_series.preview(definition("next", "0.05", "DE"))
        assert then["largest"] == would["largest"]
        assert then["left"] == would["left"]
        assert Fraction(then["largest"]) - Fraction(now["largest"]) == Fraction(would["freed"])

    await asked(world, ask)


async def test_an_analyst_previews_halts_of_her_own_series_only() -> None:
    privacy = {
        "epsilon": "2",
        "analysts": [{"name": "ann", "epsilon": "0.5"}, {"name": "bob", "epsilon": "0.1"}],
    }
    world = World(PIPELINE | {"privacy": privacy})

    async def ask(live_series: EngineLiveSeries, _source: Stopping) -> None:
        await live_series.create(definition("hers", "0.2"), "ann")
        for sender in (Sender("ann"), Sender()):
            would = await live_series.preview_halt("hers", sender)
            assert (would["freed"], would["left"], would["budget"]) == ("0.2", "0.5", "0.5")
        with pytest.raises(NotYours):
            await live_series.preview_halt("hers", Sender("bob"))

    await asked(world, ask)
