"""What a client shows its brokers, and which files of secrets are refused; without a broker."""

import ssl
import sys
from pathlib import Path
from types import ModuleType

import pytest
from kafka.certificates import Authority

from stream_dp.errors import UsageError, WorldError
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.security import BearerTokens, KafkaSecurity, TokenFile

SECRET = "swordfish"  # noqa: S105 - of these tests only
TOKEN = "aaa.bbb-_~+/.cc=="  # noqa: S105 - of these tests only


def secret(folder: Path, content: str, mode: int = 0o600) -> Path:
    path = folder / "secret"
    path.write_text(content)
    path.chmod(mode)
    return path


def password(path: Path) -> KafkaSecurity:
    return KafkaSecurity("SASL_PLAINTEXT", "PLAIN", "engine", path)


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o666])
def test_a_secret_that_everybody_may_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(UsageError, match=r"security\.password_file .*open to others") as caught:
        password(secret(tmp_path, SECRET, mode)).arguments()
    assert SECRET not in str(caught.value)


def test_a_secret_of_a_group_is_taken(tmp_path: Path) -> None:
    found = password(secret(tmp_path, f"{SECRET}\r\n", 0o640)).arguments()
    assert found["sasl_plain_password"] == SECRET


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe"])
def test_a_secret_that_is_no_text_is_refused(tmp_path: Path, content: bytes) -> None:
    path = secret(tmp_path, "")
    path.write_bytes(content)
    with pytest.raises(WorldError, match=r"security\.password_file .*holds no text"):
        password(path).arguments()


def test_a_password_is_read_anew_for_each_client(tmp_path: Path) -> None:
    settings = KafkaSettings("k:9092", password(secret(tmp_path, "old")))
    secret(tmp_path, SECRET)
    assert settings.client()["sasl_plain_password"] == SECRET


def test_a_certificate_with_its_key_and_the_keys_password(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    own = authority.sign("engine", password=SECRET.encode())
    security = KafkaSecurity(
        "SSL",
        ca_file=authority.file,
        certificate_file=own.certificate,
        key_file=own.key,
        key_password_file=secret(tmp_path, SECRET),
    )
    context = security.arguments()["ssl_context"]
    assert isinstance(context, ssl.SSLContext)
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    secret(tmp_path, "wrong")
    with pytest.raises(WorldError, match=r"engine\.key, or that key has another password"):
        security.arguments()


def test_a_locked_key_without_its_password_asks_nobody(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    own = authority.sign("engine", password=SECRET.encode())
    security = KafkaSecurity("SSL", certificate_file=own.certificate, key_file=own.key)
    with pytest.raises(WorldError, match=r"key has a password \(security\.key_password_file\)"):
        security.arguments()


def test_a_key_that_everybody_may_read_is_refused_also_within_its_certificate(
    tmp_path: Path,
) -> None:
    own = Authority(tmp_path, "authority").sign("engine")
    own.key.chmod(0o644)
    with pytest.raises(UsageError, match=r"security\.key_file .*open to others"):
        KafkaSecurity("SSL", certificate_file=own.certificate, key_file=own.key).arguments()
    both = tmp_path / "both.pem"
    both.write_bytes(own.certificate.read_bytes() + own.key.read_bytes())
    both.chmod(0o644)
    with pytest.raises(UsageError, match=r"security\.certificate_file .*open to others"):
        KafkaSecurity("SSL", certificate_file=both).arguments()
    both.chmod(0o600)
    KafkaSecurity("SSL", certificate_file=both).arguments()


def test_files_of_tls_that_cannot_be_used_name_their_key(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path, "authority"), tmp_path / "other.pem"
    other.write_text("nothing")
    own, second = authority.sign("engine"), authority.sign("second")
    with pytest.raises(WorldError, match=r"security\.ca_file .*gone cannot be read: No such file"):
        KafkaSecurity("SSL", ca_file=tmp_path / "gone").arguments()
    with pytest.raises(WorldError, match=r"security\.ca_file .*other.pem holds no certificate"):
        KafkaSecurity("SSL", ca_file=other).arguments()
    with pytest.raises(WorldError, match=r"security\.certificate_file .*gone cannot be read"):
        KafkaSecurity("SSL", certificate_file=tmp_path / "gone").arguments()
    with pytest.raises(WorldError, match=r"no certificate \(PEM\) whose key is in .*second.key"):
        KafkaSecurity("SSL", certificate_file=own.certificate, key_file=second.key).arguments()


async def test_a_token_file_is_read_at_each_connection(tmp_path: Path) -> None:
    path = secret(tmp_path, f"{TOKEN}\n")
    security = KafkaSecurity("SASL_PLAINTEXT", "OAUTHBEARER", token_file=path)
    provider = KafkaSettings("k:9092", security).client()["sasl_oauth_token_provider"]
    assert await provider.token() == TOKEN
    secret(tmp_path, "next")
    assert await provider.token() == "next"


async def test_a_token_that_is_none_fails_as_a_connection_does_and_is_not_repeated(
    tmp_path: Path,
) -> None:
    provider = BearerTokens(TokenFile(secret(tmp_path, f"{SECRET}\x01evil=1")))
    with pytest.raises(OSError, match="no bearer token") as caught:
        await provider.token()
    assert SECRET not in str(caught.value)
    (tmp_path / "secret").unlink()
    with pytest.raises(OSError, match=r"security\.token failed \(WorldError\)"):
        await provider.token()


async def test_a_token_may_come_from_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("own_tokens")

    async def later() -> str:
        return TOKEN

    def broken() -> str:
        raise ValueError(SECRET)

    vars(module).update(now=lambda: TOKEN, later=later, broken=broken, nothing=3)
    monkeypatch.setitem(sys.modules, "own_tokens", module)

    def provider(named: str) -> BearerTokens:
        security = KafkaSecurity("SASL_PLAINTEXT", "OAUTHBEARER", token=named)
        found = security.arguments()["sasl_oauth_token_provider"]
        assert isinstance(found, BearerTokens)
        return found

    assert await provider("own_tokens:now").token() == TOKEN
    assert await provider("own_tokens:later").token() == TOKEN
    with pytest.raises(OSError, match=r"failed \(ValueError\)") as caught:
        await provider("own_tokens:broken").token()
    assert SECRET not in str(caught.value)
    with pytest.raises(UsageError, match="own_tokens has no function nothing"):
        provider("own_tokens:nothing")
    with pytest.raises(UsageError, match=r"no_such_module cannot be imported \(ModuleNotFound"):
        provider("no_such_module:now")
