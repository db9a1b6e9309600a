"""Sealed commits open with their own key, pipeline and place only; a key file is private and whole."""

import base64
import hashlib
import hmac
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives import hmac as primitives
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR, GCM
from cryptography.hazmat.primitives.hashes import SHA256
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.errors import FailClosed, UnknownFormat, UsageError, WorldError
from stream_dp.journal.commit import (
    Answer,
    Applied,
    Asked,
    Charge,
    Commit,
    Created,
    DeadLetter,
    Halted,
    Header,
    Refused,
    Release,
    SavedStates,
    Unwatched,
    Watched,
    decode,
    encode,
    part,
)
from stream_dp.journal.keys import (
    Sealed,
    Sealer,
    make_key,
    read_key,
    read_token,
    read_wrapped,
    worker_keys,
    wrap,
    write_private,
)

KEY, OTHER = bytes(range(32)), bytes(32)
FIXTURES = Path(__file__).parents[2] / "fixtures"
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
        with pytest.raises(FailClosed, match="commit 3 of the journal of clicks is damaged"):
            SEALER.open(3, sealed[:at])
        for bit in range(8):
            changed = bytearray(sealed)
            changed[at] ^= 1 << bit
            with pytest.raises(FailClosed):
                SEALER.open(3, bytes(changed))


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
            why = f"commit 3 .* clicks has a seal of version {version}, .* use the"
            with pytest.raises(UnknownFormat, match=why):
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


def test_a_made_key_is_private_and_new(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "clicks.key"
    key = make_key(path)
    assert read_key(path) == key
    assert len(key) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert make_key(tmp_path / "other.key") != key
    with pytest.raises(WorldError, match=r"clicks\.key"):
        make_key(path)
    assert read_key(path) == key
    with pytest.raises(UsageError, match=r"no operator key at .*`stream-dp key "):
        read_key(tmp_path / "none.key")


def test_a_worker_gets_keys_from_which_the_operators_does_not_follow(tmp_path: Path) -> None:
    operators, workers = tmp_path / "operator.key", tmp_path / "worker.key"
    write_private(operators, KEY)
    assert worker_keys(operators) is None
    keys = SEALER.worker_keys()
    assert keys.rows == hmac.new(KEY, b"stream-dp rows\nclicks", hashlib.sha256).digest()
    assert keys == (keys.rows, SEALER.user_key(), SEALER.mark_key())
    assert Sealer(KEY, "views").worker_keys().rows != keys.rows
    assert repr(keys) == "<WorkerKeys>"
    write_private(workers, keys.line)
    assert worker_keys(workers) == keys
    assert KEY.hex().encode() not in workers.read_bytes()
    with pytest.raises(UsageError, match="exactly 32 bytes"):
        read_key(workers)
    workers.write_bytes(keys.line[:-3])
    with pytest.raises(UsageError, match="export-key"):
        worker_keys(workers)


@pytest.mark.parametrize("length", [0, 31, 33, 64])
def test_a_key_of_another_length(tmp_path: Path, length: int) -> None:
    path = tmp_path / "a.key"
    path.write_bytes(b"\xab" * length)
    path.chmod(0o600)
    with pytest.raises(UsageError, match="exactly 32 bytes") as caught:
        read_key(path)
    assert "\xab" not in str(caught.value)


def test_the_tokens_are_hmacs_of_pipeline_and_analyst() -> None:
    for name, text in (("", b"clicks"), ("ann", b"clicks\nann")):
        expected = hmac.new(KEY, b"stream-dp query\n" + text, hashlib.sha256).hexdigest()
        assert SEALER.query_token(name) == expected
        assert expected not in repr(SEALER)
    sealers = (SEALER, Sealer(KEY, "views"), Sealer(OTHER, "clicks"))
    made = [sealer.query_token(analyst) for sealer in sealers for analyst in ("", "ann", "bob")]
    assert len(set(made)) == len(made)


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "ann.token"
    path.touch(mode=0o600)
    return path


ISSUED = SEALER.issued_token("0" * 12, "ann", "2026-01-01T00:00:00Z")


@pytest.mark.parametrize("text", [SEALER.query_token("ann"), ISSUED])
@pytest.mark.parametrize("written", ["{}", "  {}\r\n"])
def test_a_token_is_read_as_it_was_printed(token: Path, text: str, written: str) -> None:
    token.write_text(written.format(text))
    assert read_token(token) == text


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o610])
def test_a_key_or_token_that_others_can_use_is_refused(token: Path, mode: int) -> None:
    token.write_text(SEALER.query_token("ann"))
    token.chmod(mode)
    with pytest.raises(UsageError, match=r"the token .* `chmod 600"):
        read_token(token)
    token.write_bytes(KEY)
    with pytest.raises(UsageError, match="chmod 600"):
        read_key(token)


@pytest.mark.parametrize("content", ["", "sardine", "0" * 63, "g" * 64, "0" * 64 + "\n1"])
def test_what_is_no_token_is_refused_and_not_shown(token: Path, content: str) -> None:
    token.write_text(content)
    with pytest.raises(UsageError, match="64 hexadecimal digits") as caught:
        read_token(token)
    assert not content or content not in str(caught.value)
    with pytest.raises(UsageError, match=r"no token at .*`stream-dp token PIPELINE"):
        read_token(token.with_name("none"))


FROZEN = {
    "answer": "[] number id digest until body analyst='' do='' series=''",
    "asked": "number parameters at answer",
    "charge": "name epsilon delta rule measure='DP' analyst=''",
    "commit": (
        "sequence previous header=None charges=() ticks=() rows=() seeds=() releases=() positions={} marks={} "
        "pending={} dead_letters=() late=0 records=0 snapshot=None changes=() admitted=() behind={} answers=() "
        "capped=0 parts={} version=5"
    ),
    "created": "number definition start column mechanism='' version=1",
    "halted": "number end",
    "header": (
        "pipeline fingerprint source partitions origin private key_id parts={} accepted='' identity='' file=b''"
    ),
    "snapshot": "states",
    "unwatched": "number name at",
    "applied": "at fingerprint file first ended=()",
    "watched": "number definition place at analyst=''",
    "dead-letter": "[] partition reason field records ranges",
    "refused": "reason detail records places last",
    "release": "[] sequence series tick body",
}
HEADER = Header("p", "f", "s", (0, 1), 5, True, "k", {"a": "b"}, "", "id", b"{}")
FULL = Commit(
    3, b"before", HEADER, (Charge("c", 5, 0, "r"),), (7,), ((1, 2),), (bytes(32),),
    (Release(4, "s", 7, b"{}"),), {0: 9}, {0: 7}, {8: {0: 1}}, (DeadLetter(0, "not_json", None, 5, ((3, 6),)),),
    1, 4, SavedStates({0: b"state"}),
    (Created(2, b"{}", 8, 2, "m"), Halted(1, 8), Asked(1, b"{}", 8, 1), Watched(1, b"{}", 4, 8), Unwatched(1, "w", 8),
     Applied(8, "g", b"{}", b"{}", ("n",))),
    (2,),
    {0: (7, 8)}, (Answer(1, "a", bytes(32), 9, b"{}"),), 3,
    {
        "messages": part((5, (Refused("rate", "why", 3, (4, 5), 6),))),
        "users": part({2: bytes(20)}),
        "arrived": part({0: {1: bytes(20)}}),
        "arriving": part({9: {0: bytes(16)}}),
    },
)  # fmt: skip


def shown(struct: type[Any]) -> tuple[str, str]:
    """The kind, and the fields with their defaults."""
    info: Any = msgspec.inspect.type_info(struct)
    parts = ["[]"] * info.array_like
    for field in info.fields:
        made = field.default_factory is not msgspec.NODEFAULT
        default = field.default_factory() if made else field.default
        parts.append(field.name + ("" if default is msgspec.NODEFAULT else f"={default!r}"))
    return info.tag, " ".join(parts)


EVERY = (
    Answer, Applied, Asked, Charge, Commit, Created, DeadLetter, Halted, Header, Refused, Release, SavedStates,
    Unwatched, Watched,
)  # fmt: skip


def test_kinds_fields_and_defaults_are_frozen() -> None:
    assert dict(map(shown, EVERY)) == FROZEN, __doc__


def test_a_commit_comes_back_as_it_was_and_says_what_it_is() -> None:
    assert decode(encode(FULL)) == FULL
    assert not any(
        struct.__name__.encode() in encode(FULL) for struct in EVERY if struct is not Refused
    )
    assert encode(FULL)[:2] == b"\xc1\x05"
    _, rows, fields = msgspec.msgpack.decode(encode(FULL)[2:], strict=False)
    assert rows == [[1, 2]]
    *names, last = Commit.__struct_fields__
    assert last == "version"
    plain = dict(zip(names, fields, strict=True))
    kinds = [plain[part]["kind"] for part in ("header", "snapshot")]
    kinds += [part["kind"] for name in ("charges", "changes") for part in plain[name]]
    kinds += [part[0] for name in ("releases", "dead_letters", "answers") for part in plain[name]]
    assert kinds == [
        "header", "snapshot", "charge", "created", "halted", "asked", "watched", "unwatched", "applied",
        "release",
        "dead-letter", "answer",
    ]  # fmt: skip


@pytest.mark.parametrize("version", [3, 4])
def test_a_commit_of_an_older_version_is_read_with_what_its_fields_meant(version: int) -> None:
    older = (FIXTURES / f"commit_{version}.msgpack").read_bytes()
    header = msgspec.structs.replace(HEADER, file=b"")  # neither was there then
    assert decode(older) == msgspec.structs.replace(FULL, header=header, changes=FULL.changes[:-1])
    fields = msgspec.msgpack.decode(older, strict=False)
    with pytest.raises(UnknownFormat):
        decode(msgspec.msgpack.encode(fields | {"refund": b""}))
    for other in (2, 5):
        with pytest.raises(UnknownFormat):
            decode(msgspec.msgpack.encode(fields | {"version": other}))
    if version == 3:
        with pytest.raises(UnknownFormat):
            decode(msgspec.msgpack.encode(fields | {"parts": {"users": b""}}))


@pytest.mark.parametrize("plain", [b"", b"\x80", b"\xff\xff"])
def test_what_is_no_commit(plain: bytes) -> None:
    with pytest.raises(
        UnknownFormat, match=r"commit 5 of the journal of p has .*: use the version"
    ):
        decode(plain, "commit 5 of the journal of p")


# --- the wrap of a data key ------------------------------------------------------------------------

Unwrap = Callable[[bytes, bytes, str], bytes]


def unwrapped(content: bytes, operator: bytes, pipeline: str) -> bytes:
    return read_wrapped(content, pipeline).data_key(operator)


def by_hand(content: bytes, operator: bytes, pipeline: str) -> bytes:
    """The oracle: AES in counter mode under HMAC's key, and the tag, by other primitives than the product's."""
    parts = json.loads(content)
    derived = primitives.HMAC(operator, SHA256())
    derived.update(b"stream-dp wrap\n" + pipeline.encode())
    nonce, sealed = (base64.b64decode(parts[name]) for name in ("nonce", "wrapped"))
    cipher = Cipher(AES(derived.finalize()), GCM(nonce, sealed[-16:])).decryptor()
    names = ("pipeline", "key_id", "operator_id")
    bound = [
        "stream-dp/wrapped/1",
        *(parts[name] for name in names),
        parts.get("operator_wrapped", ""),
    ]
    cipher.authenticate_additional_data("\n".join(bound).encode())
    return cipher.update(sealed[:-16]) + cipher.finalize()


@given(
    st.binary(min_size=32, max_size=32),
    st.binary(min_size=32, max_size=32),
    st.sampled_from(["", "kms:1"]),
)
def test_a_data_key_comes_back_as_the_oracle_has_it(
    data: bytes, operator: bytes, program: str
) -> None:
    content = wrap(data, operator, "clicks", program)
    assert unwrapped(content, operator, "clicks") == by_hand(content, operator, "clicks") == data
    assert data not in base64.b64decode(json.loads(content)["wrapped"])
    assert json.loads(content)["key_id"] == Sealer(data, "clicks").key_id


def test_the_oracle_knows_a_vector() -> None:
    """AES-256-GCM of NIST: Test Case 14 of McGrew and Viega's specification, the zero block under the zero key."""
    sealed = AESGCM(bytes(32)).encrypt(bytes(12), bytes(16), None)
    assert sealed.hex() == "cea7403d4d606b6e074ec5d3baf39d18" + "d0d1c8a799996bf0265b98b5d48ab919"


def require_bound(unwrap: Unwrap) -> None:
    """A wrapped key opens for its pipeline, under its operator's key, and with no other byte."""
    content = wrap(KEY, OTHER, "clicks", "kms:1")
    assert unwrap(content, OTHER, "clicks") == KEY
    parts = json.loads(content)
    named = json.dumps(parts | {"pipeline": "views"}).encode()
    of_operator = json.dumps(parts | {"operator_id": parts["key_id"]}).encode()
    tries = [
        (content, KEY, "clicks"),
        (content, OTHER, "views"),
        (named, OTHER, "views"),
        (of_operator, KEY, "clicks"),
    ]
    tries += [
        (json.dumps({**parts, name: f"{value}0"}).encode(), OTHER, "clicks")
        for name, value in parts.items()
    ]
    tries += [(content[:at], OTHER, "clicks") for at in range(len(content) - 2)]
    for at in range(len(content) - 1):
        changed = bytearray(content)
        changed[at] ^= 1
        tries.append((bytes(changed), OTHER, "clicks"))
    for other, operator, pipeline in tries:
        with pytest.raises(FailClosed) as caught:
            unwrap(other, operator, pipeline)
        assert KEY.hex() not in str(caught.value)


def test_a_wrapped_key_is_bound_to_all_that_it_says() -> None:
    require_bound(unwrapped)


def bare(content: bytes, operator: bytes, pipeline: str) -> bytes:
    """A twin: it trusts the name of the pipeline that the file gives."""
    return unwrapped(content, operator, str(json.loads(content)["pipeline"]))


def unauthenticated(content: bytes, operator: bytes, pipeline: str) -> bytes:
    """A twin: it deciphers, and looks at no tag."""
    record = read_wrapped(content, pipeline)
    derived = hmac.digest(operator, b"stream-dp wrap\n" + pipeline.encode(), "sha256")
    counter = CTR(record.nonce[:12].ljust(12, b"\0") + (2).to_bytes(4))
    return Cipher(AES(derived), counter).decryptor().update(record.wrapped[:-16])


@pytest.mark.parametrize("twin", [bare, unauthenticated])
def test_a_looser_wrap_is_caught(twin: Unwrap) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        require_bound(twin)


def test_no_nonce_is_used_twice_and_nothing_unbound_is_read() -> None:
    first, second = (json.loads(wrap(KEY, OTHER, "clicks")) for _ in range(2))
    assert first["nonce"] != second["nonce"]
    with pytest.raises(FailClosed, match="damaged"):
        read_wrapped(json.dumps(first | {"more": 1}).encode(), "clicks")


def test_another_operators_key_is_named() -> None:
    ids = Sealer(OTHER, "clicks").key_id, Sealer(KEY, "clicks").key_id
    with pytest.raises(
        FailClosed, match=f"under operator key {ids[0]}, but the key given is {ids[1]}"
    ):
        unwrapped(wrap(KEY, OTHER, "clicks"), KEY, "clicks")


@pytest.mark.parametrize("told", ["a\n", "a\nb", "\x00", "ä", "a" * 16_385])
def test_no_program_is_told_what_no_program_answers(told: str) -> None:
    content = json.loads(wrap(KEY, OTHER, "clicks", "a")) | {"operator_wrapped": told}
    with pytest.raises(FailClosed, match="damaged"):
        read_wrapped(json.dumps(content).encode(), "clicks")
    longest = wrap(KEY, OTHER, "clicks", " ~" * 8_192)
    assert unwrapped(longest, OTHER, "clicks") == KEY


def test_a_wrap_of_another_form_is_left_alone() -> None:
    later = json.loads(wrap(KEY, OTHER, "clicks")) | {"v": 2}
    with pytest.raises(UnknownFormat, match="the wrapped key of clicks has version 2"):
        read_wrapped(json.dumps(later).encode(), "clicks")
