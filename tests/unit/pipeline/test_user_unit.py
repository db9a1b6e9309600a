"""`privacy: {unit: user}`: what it says."""

from typing import Any

from stream_dp.pipeline.fingerprints import fingerprint, meaning
from stream_dp.pipeline.spec import PipelineSpec

Data = dict[str, Any]
BY_DAY = {"unit": "user", "user": "note", "max_events": "20", "per": "1d"}
FOR_EVER = {"unit": "user", "user": "note", "overall": "200"}
WALL = {"kind": "wall", "step": "1s"}


def of(data: Data, **privacy: str) -> Data:
    """The pipeline with this privacy, of budget 2."""
    return data | {"privacy": {"epsilon": "2"} | privacy}


def test_a_cap_in_each_public_window(data: Data) -> None:
    spec = PipelineSpec.model_validate(of(data, **BY_DAY))
    privacy = spec.privacy
    assert (privacy.unit, privacy.user, privacy.cap) == ("user", "note", 20)
    assert privacy.window_ticks(spec.clock) == 24  # of an hour each


def test_a_cap_for_ever(data: Data) -> None:
    spec = PipelineSpec.model_validate(of(data, **FOR_EVER) | {"clock": WALL})
    assert spec.privacy.cap == 200
    assert spec.privacy.window_ticks(spec.clock) is None


def test_one_event_is_a_cap_of_one(data: Data) -> None:
    spec = PipelineSpec.model_validate(data)
    assert (spec.privacy.unit, spec.privacy.cap) == ("event", 1)
    assert spec.privacy.window_ticks(spec.clock) is None


def test_the_fingerprint_covers_who_is_protected_and_no_spelling(data: Data) -> None:
    def found(**privacy: str) -> str:
        return fingerprint(PipelineSpec.model_validate(of(data, **privacy)))

    per_day = found(**BY_DAY)
    assert per_day == found(**BY_DAY | {"per": "24h"})
    others = [BY_DAY | {"max_events": "21"}, BY_DAY | {"per": "2d"}, FOR_EVER]
    others += [FOR_EVER | {"user": "airline"}, FOR_EVER | {"overall": "20"}, {}]
    assert len({per_day, *(found(**other) for other in others)}) == 7
    said = meaning(PipelineSpec.model_validate(of(data)))["privacy"]
    assert said == {"unit": "event", "neighbors": "add_remove", "epsilon": "2"}
