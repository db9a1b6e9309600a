"""Who may ask a monitor's watches: asking may fire them, and so begin them again or end them."""

from dataclasses import replace
from typing import Any

import pytest
from unit.live.live_series_worlds import HORIZON
from unit.live.monitor_worlds import FR, MONITOR, PIPELINE_M, MonitorWorld, message, no_noise

from stream_dp.errors import UsageError
from stream_dp.journal.commit import Asked
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.fingerprints import fingerprint
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import canonical_series, load_series


def pipeline(ask: Any) -> dict[str, Any]:
    monitor = {key: value for key, value in MONITOR.items() if key != "ask"}
    monitor |= {} if ask is None else {"ask": ask}
    return PIPELINE_M | {"series": [PIPELINE_M["series"][0], monitor]}


def asks(name: str, analyst: str, series: str = "m", watch: str = "large") -> tuple[int, bytes]:
    return message(2, name, "ask", analyst, series=series, watch=watch, threshold=1)


def kinds(world: MonitorWorld) -> dict[str, str]:
    """How each message was refused; nothing where it was not."""
    return {name: each.get("refused", {}).get("kind", "") for name, each in world.replies().items()}


@pytest.mark.parametrize(
    ("ask", "ann", "bob"),
    [
        (None, "forbidden", "forbidden"),
        ("operator", "forbidden", "forbidden"),
        (["bob"], "forbidden", ""),
        (["ann", "bob"], "", ""),
        ("anyone", "", ""),
    ],
)
async def test_a_monitor_of_the_file_is_asked_by_whom_it_names(
    ask: Any, ann: str, bob: str
) -> None:
    script = [asks("a", "ann"), asks("b", "bob"), asks("o", "")]
    world = MonitorWorld(script=script, noise=no_noise, pipeline=pipeline(ask))
    await world.live()
    assert kinds(world) == {"a": ann, "b": bob, "o": ""}
    changes = [type(c) for commit in world.commits() for c in commit.changes]
    assert changes == [Asked] * [ann, bob, ""].count("")


async def test_a_refusal_changes_neither_state_nor_ledger_nor_randomness() -> None:
    """Of a queue; and its words name the key that would allow it, and nothing of the message."""
    listed = message(0, "l", "list")
    quiet = MonitorWorld(script=[listed], noise=no_noise, pipeline=pipeline(None))
    await quiet.live()
    script = [listed, asks("a", "ann"), asks("b", "bob", watch="by/DE")]
    world = MonitorWorld(script=script, noise=no_noise, pipeline=pipeline(None))
    await world.live()
    refused = world.replies()["a"]["refused"]
    assert refused == {
        "kind": "forbidden", "exit_code": 2,
        "detail": "series: you may not query this monitor, because a query can fire its watches and so restart or end "
        "them. The monitor's key `ask` names who may query it besides its owner",
    }  # fmt: skip
    assert world.bodies == quiet.bodies
    assert not [c for commit in world.commits() for c in commit.changes]
    assert [c.charges for c in world.commits()[1:] if c.charges] == []
    assert len([s for commit in world.commits() for s in commit.seeds]) == 1 + HORIZON
    states = [
        [c.snapshot.states for c in each.commits() if c.snapshot is not None]
        for each in (world, quiet)
    ]
    assert states[0] == states[1]


@pytest.mark.parametrize(("ask", "bob"), [(None, "forbidden"), (["bob"], "")])
async def test_what_an_analyst_created_is_hers_with_every_watch_that_she_adds(
    ask: Any, bob: str
) -> None:
    """She may let others ask; none but the operator ends her watches, or adds to them."""
    mine = {
        "name": "mine", "statistic": "monitor", "epsilon": 1, "most": 9, "touch": 2,
        "watch": [{"name": "all", "above": 300}],
    }  # fmt: skip
    mine |= {} if ask is None else {"ask": ask}
    script = [
        message(1, "c", "create", "ann", series=mine),
        message(1, "w", "watch", "ann", series="mine", watch=FR),
        asks("a", "ann", "mine", "fr"),
        asks("b", "bob", "mine", "fr"),
        message(3, "bu", "unwatch", "bob", series="mine", watch="fr"),
        message(3, "bw", "watch", "bob", series="mine", watch={**FR, "name": "fr2"}),
        message(3, "bh", "halt", "bob", series="mine"),
        message(4, "ou", "unwatch", series="mine", watch="fr"),
        message(5, "au", "unwatch", "ann", series="mine", watch="all"),
    ]
    world = MonitorWorld(script=script, noise=no_noise, pipeline=pipeline(None))
    await world.live()
    no = "forbidden"
    wanted = {
        "c": "", "w": "", "a": "", "b": bob, "bu": no, "bw": no, "bh": no, "ou": "", "au": "",
    }  # fmt: skip
    assert kinds(world) == wanted


def test_a_live_definition_keeps_it_and_names_known_analysts() -> None:
    spec = PipelineSpec.model_validate(pipeline(None))
    plain = load_series(canonical_series(spec.series[1]), spec)
    assert b'"ask"' not in canonical_series(plain)
    named = plain.model_copy(update={"ask": ("ann",)})
    assert load_series(canonical_series(named), spec) == named
    with pytest.raises(UsageError, match=r"ask\[0\]"):
        load_series(canonical_series(plain.model_copy(update={"ask": ("eve",)})), spec)


def test_rights_are_no_part_of_what_is_guaranteed() -> None:
    """So a restart may change them; a fingerprint that held them would ask for a new journal."""
    specs = [PipelineSpec.model_validate(pipeline(ask)) for ask in (None, "anyone", ["ann"])]
    assert len({fingerprint(spec) for spec in specs}) == 1
    assert len({build(spec).fingerprint for spec in specs}) == 1
    assert replace(build(specs[0]), spec=specs[1]).fingerprint == build(specs[1]).fingerprint
