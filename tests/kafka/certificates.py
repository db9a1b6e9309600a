"""Certificates for the tests, made when they are needed: an authority, and what it signs, as PEM files."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Identity:
    certificate: Path
    key: Path


class Authority:
    """Signs certificates; `file` is its own, for those who believe it."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        made = self._begun(self._name, self._key, now - DAY, now + DAY)
        basic = x509.BasicConstraints(ca=True, path_length=None)
        signed = made.add_extension(basic, critical=True).sign(self._key, SHA256())
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(signed.public_bytes(Encoding.PEM))

    def sign(
        self, name: str, *, days: float = 1, password: bytes = b"", address: str = "127.0.0.1"
    ) -> Identity:
        """An identity NAME at `address`, good for so many days from now on (less than 0: expired)."""
        key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._begun(subject, key, now - 9 * DAY, now + days * DAY)
        where = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address(address))])
        signed = made.add_extension(where, critical=False).sign(self._key, SHA256())
        found = Identity(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        found.certificate.write_bytes(signed.public_bytes(Encoding.PEM))
        locked: KeySerializationEncryption = (
            BestAvailableEncryption(password) if password else NoEncryption()
        )
        found.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked))
        found.key.chmod(0o600)
        return found

    def _begun(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, begin: datetime, end: datetime
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(end)
        )
