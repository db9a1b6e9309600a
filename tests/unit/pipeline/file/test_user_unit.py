"""`privacy: {unit: user}`: what it says, and every way of saying it wrongly, each at its key."""

from typing import Any

import pytest

from stream_dp.pipeline.file.privacy import MOST_EVENTS_OF_ONE
from stream_dp.pipeline.file.spec import PipelineSpec, diagnose
from stream_dp.pipeline.fingerprints import fingerprint, meaning

Data = dict[str, Any]
BY_DAY = {"unit": "user", "user": "note", "max_events": "20", "per": "1d"}
FOR_EVER = {"unit": "user", "user": "note", "overall": "200"}
WALL = {"kind": "wall", "step": "1s"}


def of(data: Data, **privacy: str) -> Data:
    """The pipeline with this privacy, of budget 2."""
    return data | {"privacy": {"epsilon": "2"} | privacy}


def problems(data: Data) -> list[tuple[str, str]]:
    found = diagnose(data)
    assert isinstance(found, list)
    told = [(".".join(map(str, each["loc"])), each["msg"]) for each in found]
    return list(dict.fromkeys(told))


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


@pytest.mark.parametrize(
    ("privacy", "key", "words"),
    [
        (BY_DAY | {"user": "who"}, "user", "'who' is not in the schema"),
        (BY_DAY | {"user": "time"}, "user", "'time' is a time, which names nobody"),
        (BY_DAY | {"user": "fare"}, "user", "'fare' is a number"),
        (BY_DAY | {"user": "late"}, "user", "'late' is a boolean"),
        (BY_DAY | {"user": "tags"}, "user", "'tags' is a list"),
        (BY_DAY | {"per": "90m"}, "per", "a whole number of ticks"),
        (BY_DAY | {"per": "5d"}, "per", "longer than all ticks together"),
        (BY_DAY | {"per": "day"}, "per", "a whole number with a unit"),
        (BY_DAY | {"max_events": "0"}, "max_events", "greater than or equal to 1"),
        (BY_DAY | {"max_events": "1.5"}, "max_events", "integer"),
        (BY_DAY | {"max_events": "10001"}, "max_events", str(MOST_EVENTS_OF_ONE)),
        (FOR_EVER | {"overall": "true"}, "overall", "integer"),
        (FOR_EVER | {"overall": "0"}, "overall", "greater than or equal to 1"),
        (FOR_EVER | {"per": "1d"}, "per", "overall is the cap for ever"),
        (FOR_EVER | {"max_events": "20"}, "max_events", "overall is the cap for ever"),
        ({"unit": "user", "user": "note"}, "max_events", "needs a cap"),
        ({"unit": "user", "user": "note", "per": "1d"}, "max_events", "give max_events"),
        ({"unit": "user", "user": "note", "max_events": "3"}, "per", "give per"),
        ({"unit": "user", "overall": "3"}, "user", "needs the field"),
        (FOR_EVER | {"neighbors": "replace"}, "neighbors", "half the epsilon"),
        ({"user": "note"}, "user", "say unit: user"),
        ({"max_events": "20"}, "max_events", "say unit: user"),
        ({"per": "1d"}, "per", "say unit: user"),
        ({"overall": "20"}, "overall", "say unit: user"),
    ],
)
def test_each_problem_is_told_at_its_key(
    data: Data, privacy: dict[str, str], key: str, words: str
) -> None:
    tags = {"type": "list", "domain": ["a"], "most": "2"}
    broken = of(data, **privacy) | {"schema": data["schema"] | {"tags": tags}}
    assert [place for place, _ in problems(broken)] == [f"privacy.{key}"]
    assert words in problems(broken)[0][1]


def test_problems_of_the_unit_hide_no_others_and_are_not_hidden(data: Data) -> None:
    broken = of(data, **BY_DAY | {"user": "who", "epsilon": "0", "per": "90m"})
    places = [place for place, _ in problems(broken)]
    assert places == ["privacy.epsilon", "privacy.user"]
    series = of(data, **BY_DAY | {"per": "90m"}) | {"confidence": "2"}
    assert [place for place, _ in problems(series)] == ["confidence", "privacy.per"]
