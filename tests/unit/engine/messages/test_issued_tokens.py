"""Tokens that an operator makes: hers, for a time, and revocable; a list that is lost or changed admits nobody."""

import json
from pathlib import Path

import pytest

from stream_dp.engine.messages.issued_tokens import DAY_MS, IssuedTokens
from stream_dp.errors import FailClosed, UsageError, WorldError
from stream_dp.journal.keys import Sealer

KEY = bytes(range(32))
NOW = 1_790_000_000_000


def tokens(
    path: Path, pipeline: str = "shop", key: bytes = KEY, analysts: tuple[str, ...] = ("ann", "bob")
) -> IssuedTokens:
    return IssuedTokens(path, Sealer(key, pipeline), analysts)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal" / "shop.tokens"


def test_a_token_is_its_analysts_until_its_end(path: Path) -> None:
    made, text = tokens(path).make("ann", 30, NOW)
    engine = tokens(path)
    found = engine.shown(text)
    assert found == made
    assert (made.analyst, made.expires) == ("ann", "2026-10-21T14:13:20Z")
    states = [made.state(NOW + at) for at in (0, 30 * DAY_MS - 1, 30 * DAY_MS)]
    assert states == ["valid", "valid", "expired"]
    assert text.startswith(f"{made.id}.")


def test_the_file_is_private_and_holds_no_secret(path: Path) -> None:
    _, text = tokens(path).make("ann", 1, NOW)
    assert path.stat().st_mode & 0o777 == 0o600
    assert text.partition(".")[2] not in path.read_text()
    assert text not in repr(tokens(path))


def test_no_two_tokens_are_alike_and_none_is_anothers(path: Path) -> None:
    texts = [tokens(path).make(name, 9, NOW)[1] for name in ("ann", "ann", "bob")]
    assert len({text.partition(".")[2] for text in texts}) == 3
    ids = [text.partition(".")[0] for text in texts]
    swapped = f"{ids[0]}.{texts[2].partition('.')[2]}"
    assert tokens(path).shown(swapped) is None


def test_a_revoked_token_is_known_as_such_by_an_engine_that_runs(path: Path) -> None:
    engine = tokens(path)
    made, text = tokens(path).make("ann", 30, NOW)
    other, others = tokens(path).make("ann", 30, NOW)
    assert engine.shown(text) is not None
    tokens(path).revoke(made.id, NOW + 5)
    found, still = engine.shown(text), engine.shown(others)
    assert found is not None
    assert found.state(NOW + 6) == "revoked"
    assert still is not None
    assert still.state(NOW + 6) == "valid"
    assert engine.all()[made.id].revoked == "2026-09-21T14:13:20.005Z"
    with pytest.raises(UsageError, match="was already revoked"):
        tokens(path).revoke(made.id, NOW + 7)
    with pytest.raises(UsageError, match="has no token with this id"):
        tokens(path).revoke("0" * 12, NOW)
    assert list(engine.all()) == [made.id, other.id]


@pytest.mark.parametrize("text", ["", ".", "0" * 64, "x" * 12 + "." + "0" * 64, "é.\0"])
def test_what_is_no_token_is_nobodys(path: Path, text: str) -> None:
    made, _ = tokens(path).make("ann", 30, NOW)
    for shown in (text, f"{made.id}.{text}", f"{made.id}."):
        assert tokens(path).shown(shown) is None


def test_a_token_of_another_pipeline_or_key_is_nobodys(path: Path, tmp_path: Path) -> None:
    for name, pipeline, key in (("a", "views", KEY), ("b", "shop", bytes(32))):
        other = tmp_path / name
        _, text = tokens(other, pipeline, key).make("ann", 30, NOW)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(other.read_bytes())  # even where its list is taken over
        path.chmod(0o600)
        assert tokens(path).shown(text) is None
        assert tokens(path).all()


def test_a_lost_list_admits_nobody(path: Path) -> None:
    _, text = tokens(path).make("ann", 30, NOW)
    engine = tokens(path)
    assert engine.shown(text) is not None
    path.unlink()
    assert engine.shown(text) is None
    assert engine.all() == {}


@pytest.mark.parametrize(
    ("key", "value"), [("analyst", "bob"), ("expires", "2036-10-21T14:13:20Z")]
)
def test_a_changed_line_admits_nobody(path: Path, key: str, value: str) -> None:
    _, text = tokens(path).make("ann", 30, NOW)
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}) + "\n")
    assert tokens(path).all()
    assert tokens(path).shown(text) is None


@pytest.mark.parametrize(
    "content",
    [
        "{", '{"v":2,"id":"a"}\n', '{"v":1,"id":"a","revoked":"2026-10-21T14:13:20Z"}\n', "\n", "\xff\n",
        '{"v":1,"id":"a","analyst":"ann"}\n{"v":1,"id":"a","analyst":"bob"}\n', '{"v":1,"id":"a"}',
        '{"v":1,"id":"a","more":1}\n',
    ],
)  # fmt: skip
def test_a_damaged_list_admits_nobody_and_is_not_added_to(path: Path, content: str) -> None:
    _, text = tokens(path).make("ann", 30, NOW)
    path.write_bytes(path.read_bytes() + content.encode("latin-1"))
    before = path.read_bytes()
    for act in (
        lambda: tokens(path).shown(text),
        lambda: tokens(path).make("ann", 1, NOW),
        lambda: tokens(path).revoke(text.partition(".")[0], NOW),
    ):
        with pytest.raises(FailClosed, match="no analyst's token is accepted"):
            act()
    assert path.read_bytes() == before


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_list_that_others_can_write_admits_nobody(path: Path, mode: int) -> None:
    _, text = tokens(path).make("ann", 30, NOW)
    path.chmod(mode)
    with pytest.raises(FailClosed, match=r"run `chmod 600 "):
        tokens(path).shown(text)


def test_a_list_that_cannot_be_read_is_the_worlds_fault(tmp_path: Path) -> None:
    (tmp_path / "shop.tokens").mkdir(mode=0o700)
    with pytest.raises(WorldError, match="cannot be"):
        tokens(tmp_path / "shop.tokens").make("ann", 1, NOW)


def test_an_analyst_who_left_the_pipeline_holds_no_token(path: Path) -> None:
    _, text = tokens(path).make("ann", 30, NOW)
    assert tokens(path, analysts=("bob",)).shown(text) is None


@pytest.mark.parametrize(("analyst", "days"), [("", 3), ("carl", 3), ("ann", 0), ("ann", 3651)])
def test_what_cannot_be_made_leaves_no_file(path: Path, analyst: str, days: int) -> None:
    with pytest.raises(UsageError, match=r"--analyst: |--days: "):
        tokens(path).make(analyst, days, NOW)
    assert not path.exists()
