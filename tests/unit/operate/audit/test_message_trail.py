"""Who asked what and when: every message that has an answer, with public things only."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from unit.live.live_series_worlds import SEALER
from unit.live.message_worlds import IDS, SCRIPT, WITH_ANALYSTS, MessageWorld

from stream_dp.cli.commands.ledger import ledger
from stream_dp.engine.history import read_summary
from stream_dp.operate.audit import ledger_view
from stream_dp.operate.audit.ledger_view import ledger_json


async def sealed(world: MessageWorld) -> AsyncIterator[bytes]:
    """The journal."""
    for each in world.store.commits:
        yield each


def found_in(world: MessageWorld, patch: pytest.MonkeyPatch) -> None:
    """Let the trail find this world's journal."""
    patch.setattr(ledger_view, "load", lambda path: world.built.spec)
    patch.setattr(ledger_view, "sealer_for", lambda spec, key: SEALER)
    patch.setattr(ledger_view, "sealed_commits", lambda spec, progress: sealed(world))


def test_the_command_prints_a_line_for_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = MessageWorld(WITH_ANALYSTS, script=SCRIPT)
    asyncio.run(world.live())
    found_in(world, monkeypatch)
    ledger(Path("unused"), messages=True)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["number"] for line in lines] == [each["number"] for each in world.said()]


async def test_the_trail_says_who_asked_what_and_when(monkeypatch: pytest.MonkeyPatch) -> None:
    world = MessageWorld(WITH_ANALYSTS, script=SCRIPT)
    await world.live()
    found_in(world, monkeypatch)
    trail = [told async for told in ledger_view.message_trail(Path("unused"), None, print)]
    said = world.said()
    assert [told["number"] for told in trail] == [each["number"] for each in said]
    assert [told["id"] for told in trail if told["id"] is not None] == IDS
    assert sum(told.get("records", 0) for told in trail) == 3
    shown = {
        told["id"]: (told["analyst"], told["do"], told["series"], told["refused"]) for told in trail
    }
    assert shown["c2"] == ("ann", "create", "anns", None)
    assert shown["b1"] == ("bob", "ask", "anns", "forbidden")
    assert shown["w1"] == ("", "ask", "watched", None)
    assert shown["h1"] == ("", "halt", "large", None)
    assert [(told["tick"], told["end"]) for told in trail] == [
        (each["tick"], each["end"]) for each in said
    ]
    for private in ("threshold", "above", "values", str(10**6), str(10**5)):
        assert private not in json.dumps(trail)


async def test_the_ledger_counts_messages_by_analyst() -> None:
    world = MessageWorld(WITH_ANALYSTS, script=SCRIPT)
    await world.live()
    summary = await read_summary(sealed(world), SEALER, "shop")
    found = {
        (each["analyst"], each["do"]): (each["answered"], each["refused"])
        for each in ledger_json(world.built, summary)["messages"]
    }
    assert found == {
        ("", ""): (0, len([each for each in world.said() if each["id"] is None])),
        ("", "ask"): (4, 4), ("", "create"): (1, 1), ("", "halt"): (1, 0), ("", "list"): (1, 0),
        ("ann", "create"): (1, 0), ("ann", "preview"): (1, 0), ("bob", "ask"): (0, 1),
    }  # fmt: skip
