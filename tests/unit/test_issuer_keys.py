"""Which of an issuer's published keys are believed."""

import base64
import logging

import pytest

from bridge.console.auth import oidc_token


def rsa(bits: int) -> dict[str, str]:
    """A public RSA key with a modulus of so many bits, as an issuer publishes it."""
    modulus = ((1 << (bits - 1)) | 1).to_bytes(bits // 8, "big")
    return {
        "kty": "RSA",
        "use": "sig",
        "kid": str(bits),
        "e": "AQAB",
        "n": base64.urlsafe_b64encode(modulus).decode().rstrip("="),
    }


def test_an_rsa_key_under_2048_bits_is_not_used_and_the_log_says_so(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        found = oidc_token._select_signing_keys({"keys": [rsa(1_024), rsa(2_040), rsa(2_048), rsa(4_096)]})
    assert [key.kid for key in found.keys] == ["2048", "4096"]
    assert [bits for bits in ("1024 bits", "2040 bits", "2048 bits,") if bits in caplog.text] == [
        "1024 bits",
        "2040 bits",
    ]
