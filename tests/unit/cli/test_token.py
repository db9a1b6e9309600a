"""`stream-dp token`: made, listed and revoked on the operator's machine, and taken by an engine that runs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stream_dp.journal.keys import read_token
from stream_dp.operate.keys import issued_for, sealer_for
from stream_dp.pipeline.yaml import load

Say = Callable[..., Any]


@pytest.fixture
def pipeline(live_series: Any) -> Path:
    """A pipeline with an analyst."""
    path: Path = live_series.pipeline
    text = path.read_text()
    path.write_text(
        text.replace("epsilon: 1}", "epsilon: 2, analysts: [{name: ann, epsilon: 0.5}]}")
    )
    return path


def test_a_token_is_made_listed_and_revoked(pipeline: Path, say: Say, tmp_path: Path) -> None:
    made = say("token", str(pipeline), "--analyst", "ann", "--days", "7")
    assert made.code == 0
    text = made.out.removesuffix("\n")
    assert "\n" not in text
    assert f"token {text.partition('.')[0]} of ann, valid until 20" in made.err
    assert text.partition(".")[2] not in made.err
    file = tmp_path / "ann.token"
    file.write_text(made.out)
    file.chmod(0o600)
    assert read_token(file) == text

    spec = load(pipeline)
    engine = issued_for(spec, sealer_for(spec, None))
    found = engine.shown(text)
    assert found is not None
    assert found.analyst == "ann"

    listed = json.loads(say("token", str(pipeline), "--list", "--json").out)["tokens"]
    assert [(one["id"], one["analyst"], one["state"]) for one in listed] == [
        (found.id, "ann", "valid")
    ]
    taken = say("token", str(pipeline), "--revoke", found.id)
    assert (taken.code, taken.err) == (0, "")
    assert taken.out.startswith(f"{found.id}: revoked; ann can ask with it no more")
    table = say("token", str(pipeline), "--list").out
    assert found.id in table
    assert "revoked" in table
    assert text.partition(".")[2] not in table
    gone = engine.shown(text)
    assert gone is not None
    assert gone.revoked


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "name one of --analyst NAME, --list and --revoke ID"),
        (("--analyst", "ann", "--list"), "name one of"), (("--analyst", "carl"), "names ann"),
        (("--revoke", "0" * 12), "names no token of this id"), (("--analyst", "ann", "--days", "0"), "days"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said(
    pipeline: Path, say: Say, options: tuple[str, ...], said: str
) -> None:
    told = say("token", str(pipeline), *options)
    assert (told.code, told.out) == (2, "")
    assert said in told.err


def test_the_list_lies_beside_the_journal_or_where_it_is_told(
    pipeline: Path, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def place() -> Path:
        spec = load(pipeline)
        return issued_for(spec, sealer_for(spec, None)).path

    journal = load(pipeline).journal
    assert place() == Path(f"{journal.path}.tokens")  # type: ignore[union-attr]
    monkeypatch.setenv("STREAM_DP_TOKEN_LIST", str(tmp_path / "elsewhere"))
    assert place() == tmp_path / "elsewhere"
    assert str(tmp_path / "elsewhere") in say("token", str(pipeline), "--analyst", "ann").err
