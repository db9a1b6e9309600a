"""Sealed commits open with their own key, pipeline and place only; a key file is private and whole."""

import hashlib
import hmac
import stat
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.errors import FailClosed, UnknownFormat, UsageError, WorldError
from stream_dp.journal.keys import Sealed, Sealer, make_key, read_key, read_token

KEY, OTHER = bytes(range(32)), bytes(32)
SEALER = Sealer(KEY, "clicks")


@given(st.integers(0, 2**63 - 1), st.binary(max_size=300))
def test_round_trip(sequence: int, plain: bytes) -> None:
    sealed = SEALER.seal(sequence, plain)
    assert Sealer(KEY, "clicks").open(sequence, sealed) == plain
    assert len(plain) < 8 or plain not in sealed


def test_the_same_plain_is_never_sealed_alike() -> None:
    sealed = [SEALER.seal(7, b"plain") for _ in range(100)]
    assert len(set(sealed)) == 100
    assert len({msgspec.msgpack.decode(each[1:], type=Sealed).nonce for each in sealed}) == 100


def test_every_flipped_bit_is_found() -> None:
    sealed = SEALER.seal(3, b"twelve bytes")
    for at in range(len(sealed)):
        for bit in range(8):
            changed = bytearray(sealed)
            changed[at] ^= 1 << bit
            with pytest.raises(FailClosed):
                SEALER.open(3, bytes(changed))


def test_every_cut_is_found() -> None:
    sealed = SEALER.seal(3, b"twelve bytes")
    for stop in range(len(sealed)):
        with pytest.raises(FailClosed, match="commit 3 of the journal of clicks is damaged"):
            SEALER.open(3, sealed[:stop])


def test_another_place_or_pipeline() -> None:
    sealed = SEALER.seal(3, b"plain")
    with pytest.raises(FailClosed, match="belongs elsewhere"):
        SEALER.open(4, sealed)
    with pytest.raises(FailClosed, match=r"journal of views .* belongs elsewhere"):
        Sealer(KEY, "views").open(3, sealed)
    moved = msgspec.msgpack.decode(sealed[1:], type=Sealed)
    forged = sealed[:1] + msgspec.msgpack.encode(msgspec.structs.replace(moved, sequence=4))
    with pytest.raises(FailClosed, match="damaged"):
        SEALER.open(4, forged)


def test_another_version_of_the_seal_is_refused_whatever_follows() -> None:
    sealed = SEALER.seal(3, b"plain")
    assert sealed[0] == 1
    for version in (0, 2, 255):
        for rest in (sealed[1:], b"", b"anything"):
            with pytest.raises(
                UnknownFormat,
                match=f"commit 3 .* clicks has a seal of version {version}, .* use the",
            ):
                SEALER.open(3, bytes([version]) + rest)


def test_another_key_is_named_as_such() -> None:
    other = Sealer(OTHER, "clicks")
    with pytest.raises(FailClosed, match=f"{other.key_id}.*{SEALER.key_id}.*STREAM_DP_KEY_FILE"):
        SEALER.open(0, other.seal(0, b"plain"))


def test_the_key_id_says_nothing_of_the_key() -> None:
    assert SEALER.key_id == Sealer(KEY, "views").key_id != Sealer(OTHER, "clicks").key_id
    assert len(SEALER.key_id) == 16
    assert KEY.hex() not in repr(vars(SEALER)) + repr(SEALER)


def test_the_key_of_marks_is_an_hmac_and_one_for_all_pipelines() -> None:
    expected = hmac.new(KEY, b"stream-dp tick marks", hashlib.sha256).digest()
    assert SEALER.mark_key() == Sealer(KEY, "views").mark_key() == expected
    assert Sealer(OTHER, "clicks").mark_key() != expected


def test_the_query_token_is_an_hmac_of_the_pipelines_name() -> None:
    expected = hmac.new(KEY, b"stream-dp query\nclicks", hashlib.sha256).hexdigest()
    assert SEALER.query_token() == expected
    others = {Sealer(KEY, "views").query_token(), Sealer(OTHER, "clicks").query_token()}
    assert expected not in others
    assert expected not in repr(SEALER)
    assert SEALER.key_id not in expected


def test_a_made_key_is_private_and_new(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "clicks.key"
    key = make_key(path)
    assert read_key(path) == key
    assert len(key) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert make_key(tmp_path / "other.key") != key


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    key = make_key(tmp_path / "a.key")
    with pytest.raises(WorldError, match=r"a\.key"):
        make_key(tmp_path / "a.key")
    assert read_key(tmp_path / "a.key") == key


def test_a_missing_key_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no operator key at .*`stream-dp key "):
        read_key(tmp_path / "none.key")
    with pytest.raises(UsageError, match="no operator key"):
        read_key(tmp_path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o610])
def test_a_key_that_others_can_use(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "a.key"
    make_key(path)
    path.chmod(mode)
    with pytest.raises(UsageError, match="chmod 600"):
        read_key(path)


@pytest.mark.parametrize("length", [0, 31, 33, 64])
def test_a_key_of_another_length(tmp_path: Path, length: int) -> None:
    path = tmp_path / "a.key"
    path.write_bytes(b"\xab" * length)
    path.chmod(0o600)
    with pytest.raises(UsageError, match="exactly 32 bytes") as caught:
        read_key(path)
    assert "\xab" not in str(caught.value)


def test_a_key_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.key"
    make_key(path)

    def refuse(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(UsageError, match=r"a\.key cannot be read: Permission denied"):
        read_key(path)


def test_each_analyst_has_a_token_of_her_own() -> None:
    expected = hmac.new(KEY, b"stream-dp query\nclicks\nann", hashlib.sha256).hexdigest()
    assert SEALER.query_token("ann") == expected
    assert SEALER.query_token("ann") == expected  # making one changes nothing
    made = [
        sealer.query_token(analyst)
        for sealer in (SEALER, Sealer(KEY, "views"), Sealer(OTHER, "clicks"))
        for analyst in ("", "ann", "bob")
    ]
    assert len(set(made)) == len(made)


@pytest.mark.parametrize("written", ["{}", "{}\n", "  {}\r\n"])
def test_a_token_is_read_as_it_was_printed(tmp_path: Path, written: str) -> None:
    path = tmp_path / "ann.token"
    path.write_text(written.format(SEALER.query_token("ann")))
    path.chmod(0o600)
    assert read_token(path) == SEALER.query_token("ann")


def test_a_token_that_was_made_for_a_time_is_read_too(tmp_path: Path) -> None:
    path, token = (
        tmp_path / "ann.token",
        SEALER.issued_token("0" * 12, "ann", "2026-01-01T00:00:00Z"),
    )
    path.write_text(f"{token}\n")
    path.chmod(0o600)
    assert read_token(path) == token


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o610])
def test_a_token_that_others_can_use(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "ann.token"
    path.write_text(SEALER.query_token("ann"))
    path.chmod(mode)
    with pytest.raises(UsageError, match=r"the token .* `chmod 600"):
        read_token(path)


@pytest.mark.parametrize("content", ["", "sardine", "0" * 63, "0" * 65, "g" * 64, "0" * 64 + "\n1"])
def test_what_is_no_token_is_refused_and_not_shown(tmp_path: Path, content: str) -> None:
    path = tmp_path / "ann.token"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(UsageError, match="64 hexadecimal digits") as caught:
        read_token(path)
    assert not content or content not in str(caught.value)


def test_a_missing_token_says_who_makes_one(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"no token at .*`stream-dp token PIPELINE\.yaml --analyst NAME`"
    ):
        read_token(tmp_path / "none")
