"""What an engine tells of its work while it takes messages: each query with its commit and its answer."""

from dataclasses import dataclass, field, replace
from typing import Any

from told_spans import ToldSpans
from unit.live.live_series_worlds import HORIZON
from unit.live.message_worlds import SCRIPT, WITH_ANALYSTS, MessageWorld, findings

from stream_dp.engine.engine import Engine


@dataclass
class TracedWorld(MessageWorld):
    """A world whose engines tell what they do."""

    spans: ToldSpans = field(default_factory=ToldSpans)

    def messaging(self, *arguments: Any) -> Engine:
        """A new engine over what is kept."""
        engine = super().messaging(*arguments)
        engine._ports = replace(engine._ports, spans=self.spans.traces)
        return engine


async def test_a_query_is_a_span_with_its_commit_and_its_answer() -> None:
    world = TracedWorld(WITH_ANALYSTS, script=SCRIPT)
    await world.live()
    assert findings(world) == []
    found = world.spans.parents()
    assert found["tick", ""] == found["publish", "tick"] == HORIZON
    assert found["query", ""] >= len({at for at, _ in SCRIPT})
    assert found["commit", "query"] >= 1
    assert found["answer", "query"] >= 1
    assert found["commit", "query"] + found["commit", "tick"] + found["commit", "recovery"] == len(
        world.store.commits
    )
    said = [dict(one.attributes or {}) for one in world.spans.ended if one.name == "query"]
    assert said == [{"stream_dp.outcome": "done"}] * found["query", ""]
