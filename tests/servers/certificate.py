"""A certificate that is its own authority, for servers of the tests that speak TLS."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa


def write_certificate(name: str, certificate: Path, key: Path, *, host: str = "", address: str = "") -> None:
    """Write a certificate and its key in PEM, valid for two days, for a host name or an IP address."""
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    valid_for = x509.DNSName(host) if host else x509.IPAddress(ip_address(address))
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([valid_for]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )


class Authority:
    """A certificate authority that signs for servers and clients.

    Attributes:
        certificate: its own, in PEM.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.folder = folder
        self.certificate, self._key_file = folder / f"{name}.ca.crt", folder / f"{name}.ca.key"
        write_certificate(name, self.certificate, self._key_file, host=name)

    def sign(self, name: str, *, address: str = "127.0.0.1", hours: int = 48) -> None:
        """Write `NAME.crt`, `NAME.key` and both as `NAME.pem`; a certificate of negative hours has expired."""
        authority = x509.load_pem_x509_certificate(self.certificate.read_bytes())
        signer = serialization.load_pem_private_key(self._key_file.read_bytes(), None)
        assert isinstance(signer, rsa.RSAPrivateKey)
        private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
            .issuer_name(authority.subject)
            .public_key(private.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=30))
            .not_valid_after(now + timedelta(hours=hours))
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))]), critical=False)
            .sign(signer, hashes.SHA256())
        )
        certificate = made.public_bytes(serialization.Encoding.PEM)
        key = private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        for file, content in (("crt", certificate), ("key", key), ("pem", key + certificate)):
            (self.folder / f"{name}.{file}").write_bytes(content)
