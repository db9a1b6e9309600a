"""`releases: {values: array}`: the same numbers in the order of the keys, for every reader of releases."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.operate.audit import trace_worlds
from unit.operate.audit.trace_worlds import RICH, checked, lived, seeded
from unit.operate.export.export_worlds import published

from stream_dp.cli.commands.demo import _shown, _sure
from stream_dp.client.frames import rows_of
from stream_dp.client.public_release import PublicRelease
from stream_dp.engine.cut_changes import selected
from stream_dp.engine.series import MadeSeries, Series
from stream_dp.errors import FailClosed
from stream_dp.journal.commit import Release
from stream_dp.journal.keys import make_key
from stream_dp.journal.release import (
    KeysUnknown,
    Released,
    ReleaseReader,
    named,
    read,
    read_by_key,
    release_of,
)
from stream_dp.operate.budget_view import OF_THE_FILE, api_budget
from stream_dp.operate.demo_figures import _final
from stream_dp.operate.exporting import export_releases
from stream_dp.operate.observe.public_view import pipeline_json
from stream_dp.operate.observe.topic_page import TopicPage
from stream_dp.operate.published_bodies import find_keys
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load
from stream_dp.python.embedded import Pipeline
from stream_dp.server.metrics import OPEN, FiredSoFar, Shown, _text

LIVE = {"name": "german", "statistic": "histogram", "by": "country", "epsilon": "1/4"}
SERIES = [
    *RICH["series"],
    {"name": "tree", "statistic": "histogram", "by": "country", "method": "tree", "epsilon": "1"},
    {"name": "hours", "statistic": "histogram", "by": "country", "windows": ["3h", "ever"], "epsilon": "1"},
    {"name": "sums", "statistic": "sum", "of": "amount", "clamp": [-3, 3], "by": "country", "epsilon": "1"},
    {"name": "means", "statistic": "mean", "of": "amount", "clamp": [0, 12], "by": "country", "epsilon": "1"},
    {"name": "share", "statistic": "ratio", "of": "sums", "over": "tree"},
    {"name": "part", "statistic": "ratio", "of": "tree", "over": "orders"},
]  # fmt: skip
KEYED = {"by_country", "tree", "hours", "sums", "means", "share", "part", "german"}
BY_KEY = {**RICH, "privacy": {"epsilon": "9"}, "series": SERIES}
IN_ORDER = {**BY_KEY, "releases": {"values": "array"}}


@pytest.fixture
async def both(monkeypatch: pytest.MonkeyPatch) -> tuple[list[bytes], list[bytes]]:
    """The releases of one run in either form, with restarts and series that come and go; each is audited."""
    monkeypatch.setattr(trace_worlds, "LIVE", LIVE)
    found = []
    for pipeline in (BY_KEY, IN_ORDER):
        world = await lived(seeded(pipeline))
        report = await checked(world)
        assert report.releases == len(world.bodies)
        found.append(list(world.bodies))
    return found[0], found[1]


Both = tuple[list[bytes], list[bytes]]


def built_of(pipeline: Mapping[str, Any]) -> Built:
    return build(PipelineSpec.model_validate(pipeline))


def values_in(content: Mapping[str, Any]) -> list[Any]:
    parts = content.get("windows", {"": content}).values()
    return [part["values"] for part in parts if "values" in part]


def test_the_form_is_one_array_in_the_order_of_the_keys(both: Both) -> None:
    plain, first = (
        next(json.loads(body) for body in bodies if b'"series":"tree","tick":0' in body)
        for bodies in both
    )
    assert first.pop("keys") == list(plain["values"])
    assert first == {**plain, "values": list(plain["values"].values())}
    assert list(first)[-3:] == ["values", "band", "confidence"]


def test_keys_stand_in_the_first_release_of_each_series_alone(both: Both) -> None:
    plain, ordered = ([json.loads(body) for body in bodies] for bodies in both)
    assert {one["series"] for one in ordered if values_in(one)} == KEYED
    assert all(isinstance(values, list) for one in ordered for values in values_in(one))
    assert all("keys" not in one for one in plain)
    firsts = {one["series"]: one["tick"] for one in reversed(ordered)}
    told = [(one["series"], one["tick"]) for one in ordered if "keys" in one]
    assert sorted(told) == sorted((name, firsts[name]) for name in KEYED)
    assert firsts["german"] > 0


def test_both_forms_say_the_same(both: Both) -> None:
    reader = ReleaseReader({})
    assert [reader.read(body) for body in both[1]] == [read(body) for body in both[0]]
    keys = built_of(IN_ORDER).keys
    known = ReleaseReader(keys | {"german": keys["tree"]})
    late = [pair for pair in zip(*both, strict=True) if not read(pair[1]).keys]
    assert all(known.read(ordered) == read(plain) for plain, ordered in late)


def test_keys_that_are_not_known_or_do_not_fit_are_refused(both: Both) -> None:
    body = next(body for body in both[1] if read(body).in_order and not read(body).keys)
    with pytest.raises(KeysUnknown):
        read_by_key(body)
    with pytest.raises(FailClosed, match="values for 9 keys"):
        named(read(body), [str(at) for at in range(9)])
    with pytest.raises(FailClosed, match="is no release"):
        read(body.replace(b'"values":[', b'"keys":["a"],"value":1,"x":['))


def test_rows_are_the_same(both: Both) -> None:
    reader = ReleaseReader({})
    plain = [rows_of("shop", body) for body in both[0]]
    assert [rows_of("shop", body, reader.read) for body in both[1]] == plain


def test_programs_get_the_same(both: Both) -> None:
    reader = ReleaseReader({})
    plain = [replace(PublicRelease.of(body), body=b"") for body in both[0]]
    assert [replace(PublicRelease.of(body, reader.read), body=b"") for body in both[1]] == plain


def test_whoever_asks_a_series_is_answered_the_same(both: Both) -> None:
    config = built_of(IN_ORDER).run_config(0)
    every: list[Series | MadeSeries] = [*config.series, *config.made]
    for series in every:
        if series.name not in KEYED:
            continue
        one, other = (
            [body for body in bodies if read(body).series == series.name][-1] for bodies in both
        )
        for asked in ({}, {"keys": ["FR"]}, {"from": "FR"}):
            assert selected(series, other, asked) == selected(series, one, asked)


def test_metrics_are_the_same(both: Both) -> None:
    def text(bodies: Sequence[bytes]) -> bytes:
        built = built_of(BY_KEY)
        latest: dict[str, Release] = {read(b).series: release_of(b) for b in bodies}
        prices = [(series.name, series.price) for series in built.spec.series]
        budget = api_budget(built.spec, built.subledgers(), prices, OF_THE_FILE)
        shown = Shown(len(bodies), pipeline_json(built, built.spec.series), budget, False)
        return _text(shown, latest, FiredSoFar(), OPEN)

    assert text(both[1]) == text(both[0])
    assert b'key="FR"' in text(both[1])


def test_the_demo_tells_the_same(both: Both) -> None:
    def told(bodies: Sequence[bytes]) -> dict[str, Any]:
        keys = built_of(IN_ORDER).keys
        last = {read(body).series: body for body in bodies if read(body).series in keys}
        finals = {name: _final(read_by_key(body, keys[name])) for name, body in last.items()}
        return {
            name: [(key, value, _sure(part, key)) for key, value in _shown(part)]
            for name, final in finals.items()
            for part in (final.get("windows") or {"": final}).values()
        }

    assert told(both[1]) == told(both[0])


def test_a_faust_app_gets_the_same_also_after_a_restart(both: Both) -> None:
    from stream_dp.integrations.faust.release_stream import ReleaseCheck

    def taken(bodies: Sequence[bytes]) -> list[PublicRelease]:
        found, seen = list[PublicRelease](), dict[str, Any]()
        for part in (bodies[:40], bodies[40:]):
            check = ReleaseCheck("shop", seen)
            for body in part:
                release = check.fresh(body)
                assert release is not None
                check.done(release)
                found.append(replace(release, body=b""))
            seen = json.loads(json.dumps(seen))  # as a table stores it
        return found

    assert taken(both[1]) == taken(both[0])


ORDERS = """\
version: 1
name: shop
source: {kind: file, path: orders.jsonl}
schema: {time: {type: time}, country: {type: category, domain: [AT, DE]}}
privacy: {epsilon: 1}
clock: {kind: replay, field: time, start: 2024-01-01T00:00:00Z, step: 1h, horizon: 12}
releases: {values: array}
series: [{name: orders, statistic: histogram, by: country, epsilon: 0.5}]
"""


def shop(folder: Path, found: list[bytes]) -> Path:
    path = published(folder, found)
    path.write_text(ORDERS)
    return path


def released(sequence: int, series: str, values: list[int], **more: Any) -> bytes:
    tick = sequence // 2
    head = {"v": 1, "sequence": sequence, "series": series, "tick": tick}
    end = {"end": f"2024-01-01T{tick + 1:02d}:00:00Z"}
    return json.dumps(
        {**head, **end, **more, "values": values, "band": 3, "confidence": 0.95}
    ).encode()


FOUND = [
    released(0, "orders", [1, 2, 0], keys=["AT", "DE", "other"]), released(1, "live", [3, 4], keys=["a", "b"]),
    released(2, "orders", [5, 6, 0]), released(3, "live", [7, 8]), released(4, "orders", [5, 6, 0]),
    released(5, "live", [9, 10]),
]  # fmt: skip


async def test_an_export_that_goes_on_finds_the_keys_of_live_series(tmp_path: Path) -> None:
    path, target = shop(tmp_path, FOUND[:4]), f"csv:{tmp_path / 'out'}"
    await export_releases(path, target)
    shop(tmp_path, FOUND)
    await export_releases(path, target)
    lines = (tmp_path / "out" / "shop.csv").read_text().splitlines()[1:]
    told: dict[str, list[tuple[str, str]]] = {}
    for line in lines:
        _, series, _, _, _, key, _, value, *_ = line.split(",")
        told.setdefault(series, []).append((key, value))
    first, later = (
        [("AT", at), ("DE", de), ("other", "0.0")] for at, de in (("1.0", "2.0"), ("5.0", "6.0"))
    )
    assert told["orders"] == first + 2 * later
    assert told["live"] == [
        ("a", "3.0"), ("b", "4.0"), ("a", "7.0"), ("b", "8.0"), ("a", "9.0"), ("b", "10.0"),
    ]  # fmt: skip


async def test_a_page_of_releases_alone_names_the_keys_of_live_series(tmp_path: Path) -> None:
    page = TopicPage(build(load(shop(tmp_path, FOUND))), keep=1)
    following = asyncio.create_task(page.follow())
    try:
        async with asyncio.timeout(30):
            while page.log.last_sequence < 5:
                await page.log.wait_beyond(page.log.last_sequence, 1)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    series = {one["name"]: one for one in page.view().pipeline()["series"]}
    assert (series["live"]["domain"], list(series["orders"]["domain"])) == (
        ["a", "b"],
        ["AT", "DE", "other"],
    )


def test_a_pipeline_in_a_program_names_keys_also_where_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAM_DP_HOME", str(tmp_path / "home"))
    make_key(tmp_path / "key")
    lines = [
        json.dumps({"time": f"2024-01-01T{hour:02d}:10:00Z", "country": "DE"}) for hour in range(12)
    ]
    (tmp_path / "orders.jsonl").write_text("\n".join(lines))
    (tmp_path / "shop.yaml").write_text(ORDERS)
    seen = list[PublicRelease]()

    def run(most: int) -> None:
        pipeline = Pipeline.load(tmp_path / "shop.yaml", key_file=tmp_path / "key")

        def take(release: PublicRelease) -> None:
            seen.append(release)
            if len(seen) == most:
                pipeline.stop()

        pipeline.run(take)

    run(5)
    run(100)
    assert [release.tick for release in seen] == list(range(12))
    assert all(list(release.value) == ["AT", "DE", "other"] for release in seen)  # type: ignore[arg-type]
    assert [bool(read(release.body).keys) for release in seen] == [True] + [False] * 11


async def test_a_reader_reads_up_to_the_first_release_of_a_series() -> None:
    async def bodies() -> AsyncIterator[bytes]:
        for body in FOUND:
            yield body

    reader = ReleaseReader({})
    await find_keys(reader, FOUND[5], bodies())
    assert reader.read(FOUND[5]).values == {"a": 9, "b": 10}
    with pytest.raises(KeysUnknown) as caught:
        reader.read(FOUND[4])
    assert caught.value.series == "orders"


def test_the_form_belongs_to_the_pipeline() -> None:
    """Without the key, and at its default, a fingerprint is that of files before there was one."""
    plain, ordered = built_of(BY_KEY), built_of(IN_ORDER)
    explicit = built_of({**BY_KEY, "releases": {"values": "by_key", "path": "x"}})
    assert explicit.fingerprint == plain.fingerprint
    assert ordered.fingerprint != plain.fingerprint
    assert ordered.parts.keys() - plain.parts.keys() == {"releases"}


def test_a_first_release_has_one_key_for_each_value() -> None:
    first = FOUND[0].replace(b'"AT"', b'"AT","FR"')
    with pytest.raises(FailClosed, match="3 values for 4 keys"):
        read_by_key(first)
    plain: Released = read_by_key(FOUND[0])
    assert plain.values == {"AT": 1, "DE": 2, "other": 0}
