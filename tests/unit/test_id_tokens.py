"""Which ID tokens are believed: those that the issuer signed for this client and this sign-in, and no others."""

import base64
import hmac
import json
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from joserfc import jwe, jwt
from joserfc.jwk import ECKey, Key, OctKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from bridge.console.auth.oidc_token import CLOCK_LEEWAY, SIGNATURE_ALGORITHMS, verify_id_token
from bridge.errors import SignInRefused

ISSUER, CLIENT, NONCE = "https://sso.example.com", "console", "a nonce"
RSA = RSAKey.generate_key(2048, {"kid": "rsa", "use": "sig"})
ATTACKER = RSAKey.generate_key(2048, {"kid": "rsa", "use": "sig"})
PRIVATE: Any = RSA.private_key
EC = ECKey.generate_key("P-256", {"kid": "ec", "use": "sig"})
OKP = OKPKey.generate_key("Ed25519", {"kid": "okp", "use": "sig"})
SHORT: RSAPrivateKey = rsa.generate_private_key(65537, 1024)


def claims(**other: Any) -> dict[str, Any]:
    """The usual claims with others; `None`: without that one."""
    now = int(time.time())
    usual = {"iss": ISSUER, "aud": CLIENT, "sub": "248", "iat": now, "exp": now + 300, "nonce": NONCE}
    return {name: value for name, value in (usual | other).items() if value is not None}


def sign(key: Key = RSA, alg: str = "RS256", header: dict[str, Any] | None = None, **other: Any) -> str:
    said = {"alg": alg, "kid": key.kid, **(header or {})}
    return jwt.encode(
        {name: value for name, value in said.items() if value is not None},
        claims(**other),
        key,
        registry=JWSRegistry(algorithms=SIGNATURE_ALGORITHMS, strict_check_header=False),
    )


def written(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


def signed_by_hand(header: dict[str, Any], signature: Any, body: bytes | None = None) -> str:
    """A token whose signature is the result of a function of what is signed."""
    said = json.dumps(claims()).encode() if body is None else body
    signed = f"{written(json.dumps(header).encode())}.{written(said)}"
    return f"{signed}.{written(signature(signed.encode()))}"


def published(*keys: Any) -> dict[str, Any]:
    return {"keys": [key.as_dict(private=False) for key in keys or (RSA, EC, OKP)]}


def verify(token: str, keys: dict[str, Any] | None = None) -> dict[str, Any]:
    return verify_id_token(token, keys or published(), ISSUER, CLIENT, NONCE)


@pytest.mark.parametrize(
    ("key", "alg"), [(RSA, "RS256"), (RSA, "RS512"), (RSA, "PS256"), (EC, "ES256"), (OKP, "Ed25519")]
)
def test_a_token_that_is_signed_by_a_private_key_of_the_issuer_is_believed(key, alg):
    assert verify(sign(key, alg))["sub"] == "248"


def test_a_header_that_is_not_known_is_no_fault():
    assert verify(sign(header={"x-tenant": "1"}))["sub"] == "248"


def test_clocks_may_differ_by_a_minute():
    now = int(time.time())
    assert verify(sign(exp=now - CLOCK_LEEWAY + 10, iat=now + CLOCK_LEEWAY - 10, nbf=now + CLOCK_LEEWAY - 10))
    others: list[dict[str, Any]] = [
        {"exp": now - CLOCK_LEEWAY - 10},
        {"iat": now + CLOCK_LEEWAY + 10},
        {"nbf": now + 70},
    ]
    for other in others:
        with pytest.raises(SignInRefused):
            verify(sign(**other))


def by_hmac(secret: bytes) -> Any:
    return lambda signed: hmac.digest(secret, signed, "sha256")


def by(key: RSAPrivateKey) -> Any:
    return lambda signed: key.sign(signed, padding.PKCS1v15(), hashes.SHA256())


def short_key() -> dict[str, Any]:
    numbers = SHORT.public_key().public_numbers()
    values = {
        name: written(value.to_bytes(-(-value.bit_length() // 8), "big"))
        for name, value in (("n", numbers.n), ("e", numbers.e))
    }
    return {"kty": "RSA", "kid": "short", "use": "sig", **values}


OCTETS = OctKey.generate_key(256, {"kid": "octets", "use": "sig"})
ATTACKS: dict[str, tuple[Any, dict[str, Any] | None]] = {
    "alg none": (lambda: signed_by_hand({"alg": "none"}, lambda _: b""), None),
    "alg None with the kid": (lambda: signed_by_hand({"alg": "None", "kid": "rsa"}, lambda _: b""), None),
    "HS256 by the public key as PEM": (
        lambda: signed_by_hand({"alg": "HS256", "kid": "rsa"}, by_hmac(RSA.as_pem(private=False))),
        None,
    ),
    "HS256 by a published secret": (
        lambda: signed_by_hand({"alg": "HS256", "kid": "octets"}, by_hmac(OCTETS.raw_value)),
        {"keys": [OCTETS.as_dict(private=True), *published()["keys"]]},
    ),
    "another's key of the same kid": (lambda: sign(ATTACKER), None),
    "a key in the token": (lambda: sign(ATTACKER, header={"jwk": ATTACKER.as_dict(private=False)}), None),
    "an address of keys in the token": (
        lambda: sign(ATTACKER, header={"jku": "https://evil.example.com/keys", "kid": "evil"}),
        None,
    ),
    "a header that must be understood": (
        lambda: signed_by_hand({"alg": "RS256", "kid": "rsa", "crit": ["x-limit"], "x-limit": 1}, by(PRIVATE)),
        None,
    ),
    "a key of another kind": (lambda: signed_by_hand({"alg": "ES256", "kid": "rsa"}, lambda _: b"\x01" * 64), None),
    "an empty signature": (lambda: signed_by_hand({"alg": "RS256", "kid": "rsa"}, lambda _: b""), None),
    "ES256 of zeros": (lambda: signed_by_hand({"alg": "ES256", "kid": "ec"}, lambda _: b"\x00" * 64), None),
    "a key of 1024 bits": (
        lambda: signed_by_hand({"alg": "RS256", "kid": "short"}, by(SHORT)),
        {"keys": [short_key(), *published()["keys"]]},
    ),
    "a key for encryption": (
        lambda: sign(header={"kid": "rsa"}),
        {"keys": [{**published(RSA)["keys"][0], "use": "enc"}]},
    ),
    "encrypted to the public key": (
        lambda: jwe.encrypt_compact(
            {"alg": "RSA-OAEP", "enc": "A256GCM"}, json.dumps(claims()).encode(), RSAKey.import_key(RSA.as_pem())
        ),
        None,
    ),
    "no object": (
        lambda: signed_by_hand({"alg": "RS256", "kid": "rsa"}, by(PRIVATE), b'["sub"]'),
        None,
    ),
    "no token": (lambda: "a.b", None),
    "no keys": (sign, {"keys": []}),
    "keys that are none": (sign, {"keys": "rsa"}),
    "another issuer": (lambda: sign(iss="https://evil.example.com"), None),
    "another audience": (lambda: sign(aud="another"), None),
    "another audience for us": (lambda: sign(aud="another", azp=CLIENT), None),
    "several audiences without ours": (lambda: sign(aud=["a", "b"], azp=CLIENT), None),
    "several audiences for nobody": (lambda: sign(aud=[CLIENT, "another"]), None),
    "for another party": (lambda: sign(azp="another"), None),
    "expired": (lambda: sign(exp=1_000_000_000), None),
    "without an end": (lambda: sign(exp=None), None),
    "an end that is text": (lambda: sign(exp="9000000000"), None),
    "issued later": (lambda: sign(iat=9_000_000_000), None),
    "not valid yet": (lambda: sign(nbf=9_000_000_000), None),
    "of another sign-in": (lambda: sign(nonce="another"), None),
    "without a nonce": (lambda: sign(nonce=None), None),
    "a list of nonces": (lambda: sign(nonce=[NONCE]), None),
    "without a subject": (lambda: sign(sub=None), None),
    "an empty subject": (lambda: sign(sub=""), None),
    "a subject that is no text": (lambda: sign(sub=248), None),
    "a subject that is too long": (lambda: sign(sub="a" * 256), None),
    "a subject with a line end": (lambda: sign(sub="a\nb"), None),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_any_other_token_is_refused_and_not_repeated(attack):
    make, keys = ATTACKS[attack]
    token = make()
    with pytest.raises(SignInRefused) as refused:
        verify(token, keys)
    assert token not in str(refused.value)
