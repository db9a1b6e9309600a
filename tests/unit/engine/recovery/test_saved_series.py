"""Series and ledgers as a checkpoint holds them are those that all changes made: what is there, and what comes of it.

Each world is changed at random: series, monitors and watches come and go, are refused and asked. Again and again it is
saved and loaded; the loaded one, and one that made all changes itself, then go on with the same changes. Every answer,
charge, column and refusal must be the same. Parts are left out of what is saved, and each time that must show.
"""

import json
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import msgspec
import pytest
from unit.live.live_series_worlds import PIPELINE

from stream_dp.accounting.subledgers import MAIN
from stream_dp.core import derivation
from stream_dp.engine.admission import REMEMBERED, Admission, UsedNames
from stream_dp.engine.history import RUNS, ReleaseNumbers
from stream_dp.engine.messages.conversation import body_of
from stream_dp.engine.series import Registry
from stream_dp.errors import FailClosed, StreamDPError, UsageError
from stream_dp.journal.answer_body import AnswerCut
from stream_dp.journal.checkpoint import Standing
from stream_dp.journal.commit import Answer, Asked, Commit, Release
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.statistics.parts.watch_roster import WatchRoster

TICKS = 100_000
SCHEMA = PIPELINE["schema"] | {"who": {"type": "text"}}
CLOCK = PIPELINE["clock"] | {"horizon": str(TICKS)}
ANALYSTS = [{"name": "ann", "epsilon": "3"}, {"name": "ben", "epsilon": "2"}]
DE = [{"field": "country", "equals": "DE"}]
PARTED = [{"name": "ann", "epsilon": "3", "where": DE}, {"name": "ben", "epsilon": "2"}]
MONITOR: dict[str, Any] = {
    "name": "m", "statistic": "monitor", "epsilon": "1", "touch": "3", "most": "8",
    "watch": [
        {"name": "much", "where": [{"field": "amount", "at_least": "8"}], "above": "5", "rearm": False},
        {"name": "by", "by": "country", "above": "2", "rearm": False},
    ],
}  # fmt: skip
FILE = [{"name": "orders", "statistic": "count", "epsilon": "1"}, MONITOR]
PRIVACY: dict[str, dict[str, Any]] = {
    "pure": {"analysts": ANALYSTS},
    "parted": {"analysts": PARTED},
    "replace": {"neighbors": "replace"},
    "users": {"unit": "user", "user": "who", "max_events": "2", "per": "1h"},
    "shared": {
        "unit": "user", "user": "who", "max_events": "2", "per": "6h",
        "total": {"of": "amount", "clamp": ["0", "9"], "at_most": "12"},
    },
    "basic": {"delta": "1e-6", "filter": "basic", "analysts": ANALYSTS},
    "optimal": {"delta": "1e-6", "filter": "optimal", "analysts": ANALYSTS},
    "zcdp": {"epsilon": "7", "delta": "1e-6", "filter": "zcdp"},
    "users of zcdp": {
        "epsilon": "9", "delta": "1e-6", "filter": "zcdp",
        "unit": "user", "user": "who", "max_events": "2", "per": "1h",
    },
    "renyi": {"delta": "1e-6", "filter": "renyi"},
}  # fmt: skip
WHERES: list[list[dict[str, Any]]] = [
    [], DE, [{"field": "country", "equals": "FR"}], [{"field": "amount", "at_least": "5"}],
    [*DE, {"field": "amount", "at_most": "7"}],
]  # fmt: skip


def world_of(privacy: str) -> Built:
    epsilon = "9" if "analysts" in PRIVACY[privacy] else "4"
    budget = {"epsilon": epsilon, **PRIVACY[privacy]}
    changed = {"privacy": budget, "schema": SCHEMA, "clock": CLOCK}
    return build(PipelineSpec.model_validate(PIPELINE | changed | {"series": FILE}))


def admitting(built: Built) -> Admission:
    config = built.run_config(0)
    planner = LiveSeriesPlanner(built.spec, OpenRouter(built.spec, config.origin, built.layout))
    return Admission(Registry(config.series, config.made), built.subledgers(), planner)


def definition(random: Random, name: str) -> dict[str, Any]:
    shape: dict[str, Any] = random.choice(
        [
            {"statistic": "count"},
            {"statistic": "count", "windows": ["3h"]},
            {"statistic": "histogram", "by": "country"},
            {"statistic": "sum", "of": "amount", "clamp": ["-4", "9"]},
            {"statistic": "sum", "of": "amount", "clamp": ["0", "9"], "shared_total": "true"},
            {key: MONITOR[key] for key in ("statistic", "touch", "most", "watch")},
        ]
    )
    epsilon = random.choice(["0.01", "0.1", "0.3", "0.7", "1/3", "2"])
    return {"name": name, "epsilon": epsilon, "where": random.choice(WHERES), **shape}


def watch(random: Random) -> dict[str, Any]:
    by: dict[str, Any] = random.choice([{}, {"by": "country"}])
    name = random.choice(["w1", "w2", "w3", "much", "by"])
    when: dict[str, Any] = random.choice(
        [{"above": 3}, {"below": 2, "over": "3h"}, {"above": 4, "rearm": False}]
    )
    return {"name": name, "where": random.choice(WHERES), **by, **when}


Step = Callable[[Admission], Any]


def some_step(random: Random, at: int) -> Step:
    """A change at a tick, or a look; whether it is refused depends on what there is."""
    name = f"s{random.randrange(60)}"
    text = json.dumps(definition(random, name)).encode()
    analyst = random.choice([MAIN, MAIN, "ann", "ben"])
    seed = random.random()

    def create(admission: Admission) -> Any:
        proposal = admission.propose(text, at)
        shown = str(admission.preview(proposal, analyst))
        created, charge, live = admission.create(proposal, analyst, at)
        return shown, created, charge, live.series.rows, admission.fresh_columns(live)

    def halt(admission: Admission) -> Any:
        names = [live.series.name for live in admission.registry.live]
        wanted = Random(seed).choice([*names, name])
        halting = admission.halting(wanted, at)
        return halting.analyst, halting.entry, admission.halt(wanted, at)

    def monitor(admission: Admission) -> Any:
        live = [
            live for live in admission.registry.live if isinstance(live.series.asking, WatchRoster)
        ]
        if not live:
            raise UsageError("no monitor is here")
        return Random(seed).choice(live)

    added = json.dumps(watch(random)).encode()
    gone = random.choice(["w1", "w2", "w3", "much", "by"])

    def watched(admission: Admission, what: bytes | str) -> Any:
        live = monitor(admission)
        proposal = admission.watched(live, what, at, analyst)
        proposal.require_room()
        admission.take(live.number, proposal)
        return live.number, proposal.name, proposal.place, proposal.query, proposal.columns

    def ask(admission: Admission) -> Any:
        live = monitor(admission)
        named = [name for name in live.series.asking.names if name]
        key = Random(seed).choice(named)
        content = {"series": live.series.name, "watch": key, "threshold": 3, "fired": True}
        body = body_of(1, "id", "ask", AnswerCut(at - 1, "2026-01-01T00:00:00Z"), content)
        answer = Answer(1, "id", b"", 0, body)
        admission.answered(
            Commit(1, b"", changes=(Asked(live.number, b"{}", at, 1),), answers=(answer,))
        )
        return key

    steps: list[Step] = [
        create, create, create, halt, halt, ask,
        lambda admission: watched(admission, added), lambda admission: watched(admission, gone),
    ]  # fmt: skip
    return random.choice(steps)


def outcome(admission: Admission, step: Step) -> Any:
    try:
        return step(admission)
    except StreamDPError as refusal:
        return type(refusal).__name__, str(refusal)


def standing(admission: Admission) -> dict[str, Any]:
    """All that an admission knows, but for what is remembered to be quick."""
    planner = admission.planner
    assert isinstance(planner, LiveSeriesPlanner)
    router, registry = planner.router, admission.registry
    return {
        "live": [
            (live.number, live.start, live.created, live.series.name, live.series.rows)
            for live in registry.live
        ],
        "created": list(admission._running.items()),
        "watches": [
            (
                live.series.keys,
                asking if isinstance(asking := live.series.asking, WatchRoster) else "",
            )
            for live in registry.live
        ],
        "next": registry.next_number,
        "ledgers": list(admission.subledgers.ledgers.items()),
        "payers": list(admission.subledgers.running.items()),
        "ended": list(admission.ended),
        "names": admission.names.saved(),
        "planned": [(n, p.definition, p.start) for n, p in planner.running.items()],
        "room": list(planner.entries.items()),
        "features": {
            feature: (it.slot, it.users, it.shard.fields) for feature, it in router._added.items()
        },
        "muted": {user: sorted(map(str, muted)) for user, muted in router._muted.items()},
        "read": router._counted().every.fields,
    }


def loaded(built: Built, saved: Standing) -> Admission:
    wire = msgspec.msgpack.encode(saved)
    again = admitting(built)
    again.load(msgspec.msgpack.decode(wire, type=Standing))
    return again


def played(
    privacy: str, seed: int, change: Callable[[Standing], Standing] = lambda saved: saved
) -> dict[str, int]:
    """Change a world at random; how often what was done. `change` alters what is saved."""
    random, built = Random(f"{privacy} {seed}"), world_of(privacy)
    whole, now, done = admitting(built), admitting(built), dict[str, int]()
    for at in range(1, 120):
        if random.random() < 0.1:
            now = loaded(built, change(now.save()))
            assert standing(now) == standing(whole)
        step = some_step(random, at)
        first, second = outcome(whole, step), outcome(now, step)
        assert first == second
        refused = isinstance(first, tuple) and isinstance(first[0], str) and len(first) == 2
        kind = first[0] if refused else "done"
        done[kind] = done.get(kind, 0) + 1
    assert standing(now) == standing(whole)
    return done


@pytest.mark.parametrize("privacy", PRIVACY)
def test_what_was_saved_goes_on_as_what_made_all_changes(privacy: str) -> None:
    done = [played(privacy, seed) for seed in range(4)]
    together = {kind for each in done for kind in each}
    assert {"done", "BudgetRefused", "UsageError"} <= together
    assert sum(each["done"] for each in done) > 100


def without(**fields: Any) -> Callable[[Standing], Standing]:
    return lambda saved: msgspec.structs.replace(saved, **fields)


def accounts(**fields: Any) -> Callable[[Standing], Standing]:
    def change(saved: Standing) -> Standing:
        changed = [msgspec.structs.replace(account, **fields) for account in saved.accounts]
        return msgspec.structs.replace(saved, accounts=tuple(changed))

    return change


def sums_without(part: int) -> Callable[[Standing], Standing]:
    def change(saved: Standing) -> Standing:
        def other(account: Any) -> Any:
            sums = list(account.sums)
            sums[part] = msgspec.structs.replace(sums[part], amount="0", delta=0, epsilons=())
            return msgspec.structs.replace(account, sums=tuple(sums))

        return msgspec.structs.replace(saved, accounts=tuple(map(other, saved.accounts)))

    return change


def watching(**fields: Any) -> Callable[[Standing], Standing]:
    def change(saved: Standing) -> Standing:
        changed = [msgspec.structs.replace(each, **fields) for each in saved.watching]
        return msgspec.structs.replace(saved, watching=tuple(changed))

    return change


def unasked(saved: Standing) -> Standing:
    def other(each: Any) -> Any:
        added = tuple(msgspec.structs.replace(watch, asked={}) for watch in each.added)
        return msgspec.structs.replace(each, added=added)

    return msgspec.structs.replace(saved, watching=tuple(map(other, saved.watching)))


TWINS: Mapping[str, Callable[[Standing], Standing]] = {
    "running": without(running=()),
    "watching": without(watching=()),
    "accounts": without(accounts=()),
    "ended": without(ended=()),
    "names": without(names=b""),
    "next number": without(next_number=2),
    "freed": accounts(freed=0),
    "held": accounts(held=()),
    "count": accounts(count=10**6),
    "everywhere": sums_without(0),
    "used": sums_without(1),
    "peak": sums_without(2),
    "closed": watching(closed=()),
    "added": watching(added=()),
    "gone": watching(gone=()),
    "asked": unasked,
}


@pytest.mark.parametrize("twin", TWINS)
def test_whatever_is_not_saved_shows(twin: str) -> None:
    def worlds() -> None:
        for privacy in ("pure", "users of zcdp", "shared"):
            for seed in range(3):
                played(privacy, seed, TWINS[twin])

    with pytest.raises((AssertionError, FailClosed, KeyError, ValueError)):
        worlds()


def with_series(built: Built) -> Admission:
    admission = admitting(built)
    proposal = admission.propose(b'{"name": "a", "statistic": "count", "epsilon": "0.5"}', 1)
    admission.create(proposal, MAIN, 1)
    return admission


def test_a_series_that_is_derived_otherwise_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its price and mechanism may be the same: what proves them, what it sees and what a halt frees must be, too."""
    built = world_of("pure")
    saved = with_series(built).save()
    assert standing(loaded(built, saved)) == standing(with_series(built))
    stated = derivation.Derivation.stated.fget  # type: ignore[attr-defined]
    other = property(lambda node: stated(node).replace("[HSV]", "[ABC]"))
    monkeypatch.setattr(derivation.Derivation, "stated", other)
    with pytest.raises(
        FailClosed, match="checkpoint: the derivation of a differs from the recorded one"
    ):
        loaded(built, saved)


@pytest.mark.parametrize(("field", "value"), [("epsilon", 1), ("rule", "another")])
def test_a_charge_that_is_not_the_price_is_refused(field: str, value: Any) -> None:
    built = world_of("pure")
    saved = with_series(built).save()
    (one,) = saved.running
    charge = msgspec.structs.replace(one.charge, **{field: value})
    other = msgspec.structs.replace(one, charge=charge)
    with pytest.raises(FailClosed, match="the charge for a differs from its price"):
        loaded(built, msgspec.structs.replace(saved, running=(other,)))


def test_columns_of_two_series_never_overlap() -> None:
    built = world_of("pure")
    admission = with_series(built)
    text = b'{"name": "b", "statistic": "histogram", "by": "country", "epsilon": "0.5"}'
    admission.create(admission.propose(text, 1), MAIN, 1)
    saved = admission.save()
    created = [msgspec.structs.replace(one.created, column=0) for one in saved.running]
    running = [
        msgspec.structs.replace(one, created=each)
        for one, each in zip(saved.running, created, strict=True)
    ]
    with pytest.raises(FailClosed, match="in other columns"):
        loaded(built, msgspec.structs.replace(saved, running=tuple(running)))


def test_what_is_saved_grows_with_what_runs_and_by_a_digest_for_each_name() -> None:
    built = world_of("optimal")
    admission, sizes = admitting(built), list[int]()
    text = {"statistic": "count", "epsilon": "0.1"}
    for at in range(1, 601):
        name = f"a.series.with.a.name.that.is.rather.long.{at}"
        proposal = admission.propose(json.dumps({"name": name, **text}).encode(), at)
        admission.create(proposal, "ann", at)
        admission.halt(name, at + 1)
        if at in (100, 600):
            sizes.append(len(msgspec.msgpack.encode(admission.save())))
    assert len(admission.ended) == REMEMBERED
    assert sizes[1] - sizes[0] <= 500 * 16 + 200


def test_names_are_found_again() -> None:
    random, names, known = Random(1), UsedNames(), set[str]()
    for turn in range(3000):
        name = f"name {random.randrange(4000)}"
        assert (name in names) == (name in known)
        names.add(name)
        known.add(name)
        if turn % 700 == 0:
            names = UsedNames(names.saved())
    assert len(names.saved()) == 16 * len(known)


def test_numbers_of_releases_are_never_too_late() -> None:
    """However often series come and go: those of the last runs of ticks are exact, older ones at most too early."""
    numbers, number, true, changes = ReleaseNumbers(), 1, list[int](), 3 * RUNS
    for tick in range(2 * changes):
        true.append(number - 1)
        many = 1 + tick // 2 % 2
        releases = tuple(Release(number + n, "s", tick, b"") for n in range(many))
        numbers.replay(Commit(tick + 1, b"", ticks=(tick,), releases=releases))
        number += many
    found = [numbers.before(tick) for tick in range(len(true))]
    assert len(numbers.runs) <= RUNS
    assert all(early <= exact for early, exact in zip(found, true, strict=True))
    assert found[-RUNS // 2 :] == true[-RUNS // 2 :]
    exact = sum(early == exact for early, exact in zip(found, true, strict=True))
    assert exact < len(true)
    assert [ReleaseNumbers(numbers.runs).before(tick) for tick in range(len(true))] == found
