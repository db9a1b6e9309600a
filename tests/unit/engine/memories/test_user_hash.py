"""Hashes of users are AES-CMAC of their text, whatever stands beside it."""

from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.cmac import CMAC
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.journal.keys import Sealer
from stream_dp.pipeline.user_guard import UserHash

KEY = bytes(range(32))
TEXTS = st.binary(max_size=70) | st.sampled_from([b"", bytes(15), bytes(16), bytes(17), bytes(32)])


def alone(text: bytes) -> bytes:
    made = CMAC(AES(KEY))
    made.update(text)
    return made.finalize()


@settings(max_examples=50, deadline=None)
@given(st.lists(TEXTS, max_size=30))
def test_each_hash_is_that_of_the_text_alone(texts: list[bytes]) -> None:
    found = UserHash(KEY).of(texts)
    assert found.shape == (len(texts), 2)
    assert [each.astype("<u8").tobytes() for each in found] == [alone(text) for text in texts]


def test_the_test_vectors_of_rfc_4493() -> None:
    key = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")
    texts = [b"", bytes.fromhex("6bc1bee22e409f96e93d7e117393172a")]
    found = [each.astype("<u8").tobytes().hex() for each in UserHash(key).of(texts)]
    assert found == ["bb1d6929e95937287fa37d129b756746", "070a16b46b4d4144f79bdd9dd04a287c"]


def test_its_key_is_the_pipelines_own() -> None:
    keys = [Sealer(key, name).user_key() for key in (KEY, bytes(32)) for name in ("a", "b")]
    assert len({*keys, KEY, bytes(32)}) == 6
    assert {len(key) for key in keys} == {32}
    assert Sealer(KEY, "a").user_key() == keys[0]
