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


@pytest.mark.parametrize(
    "unusable",
    [
        {"kty": "EC", "crv": "brainpoolP256r1", "x": "AA", "y": "AA", "kid": "curve"},
        {"kty": "EC", "crv": "P-256", "kid": "no point"},
        {"kty": "EC", "crv": "P-256", "x": 5, "y": [], "kid": "no text"},
        {"kty": ["RSA"], "kid": "no type"},
        {"kty": "OKP", "crv": "Ed25519", "x": "AA", "kid": "short"},
        {**rsa(2_048), "e": None},
    ],
)
def test_a_key_that_cannot_be_used_is_ignored_beside_one_that_can(unusable: dict[str, object]):
    found = oidc_token._select_signing_keys({"keys": [unusable, rsa(4_096)]})
    assert [key.kid for key in found.keys] == ["4096"]
