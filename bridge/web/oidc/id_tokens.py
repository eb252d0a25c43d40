"""An ID token, verified as OpenID Connect Core 3.1.3.7 asks for."""

import base64
import hmac
import logging
from collections.abc import Mapping
from typing import Any, Final

from joserfc import jwt
from joserfc.errors import BadSignatureError, ClaimError, ExpiredTokenError, JoseError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry

from bridge.errors import SignInRefused

logger = logging.getLogger("bridge")

#: Signatures by a key that the issuer alone has: not `none`, and not HS256, whose key would be a public one.
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519")
#: Bits of an RSA key, at least (RFC 7518, 3.3).
BITS: Final = 2_048
#: Seconds by which two clocks may differ.
LEEWAY: Final = 60
_KINDS: Final = ("RSA", "EC", "OKP")
_LONGEST_SUBJECT: Final = 255


def verified(token: str, keys: Mapping[str, Any], issuer: str, client: str, nonce: str) -> dict[str, Any]:
    """The claims of a token that is this issuer's, for this client, of this very sign-in, and has not expired.

    Parameters:
        keys: those that the issuer has now, as it answers them.

    Raises:
        SignInRefused: it is not.
    """
    try:
        # Headers that it does not know are no fault; what `crit` names must be known.
        registry = JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
        claims = jwt.decode(token, _signing(keys), registry=registry).claims
        _claims(issuer, client).validate(claims)
    except (JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise SignInRefused(f"The issuer's token is not taken: {_why(error)}.") from None
    if fault := _fault(claims, client, nonce):
        raise SignInRefused(f"The issuer's token is not taken: {fault}.")
    return claims


def _fault(claims: Mapping[str, Any], client: str, nonce: str) -> str:
    """What a library for all JWTs does not look at."""
    said, audience, subject = claims["nonce"], claims["aud"], claims["sub"]
    if not (isinstance(said, str) and hmac.compare_digest(said.encode("utf-8", "replace"), nonce.encode())):
        return "it is of another sign-in (nonce)"
    alone = audience in (client, [client])
    if claims.get("azp", client if alone else None) != client:
        return "it was made for another client (aud, azp)"
    if not (0 < len(subject) <= _LONGEST_SUBJECT and subject.isascii() and subject.isprintable()):
        return "its claim sub is none"
    return ""


def _claims(issuer: str, client: str) -> jwt.JWTClaimsRegistry:
    return jwt.JWTClaimsRegistry(
        leeway=LEEWAY,
        iss={"essential": True, "value": issuer},
        aud={"essential": True, "value": client},
        sub={"essential": True},
        exp={"essential": True},
        iat={"essential": True},
        nonce={"essential": True},
    )


def _signing(found: Mapping[str, Any]) -> KeySet:
    """The keys that sign, without those that nobody here can read."""
    listed = found.get("keys")
    said = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    fit = [each for each in said if each.get("kty") in _KINDS and each.get("use", "sig") == "sig" and _is_long(each)]
    return KeySet.import_key_set({"keys": fit})


def _is_long(key: Mapping[str, Any]) -> bool:
    """Whether a key is long enough to be believed; those of curves have their lengths."""
    if key.get("kty") != "RSA":
        return True
    modulus = str(key.get("n", "")).encode("ascii", "replace")
    try:
        bits = int.from_bytes(base64.urlsafe_b64decode(modulus + b"=" * (-len(modulus) % 4)), "big").bit_length()
    except ValueError:
        return False
    if bits < BITS:
        logger.warning("the issuer's RSA key has %d bits and is not used: OpenID Connect needs %d or more", bits, BITS)
    return bits >= BITS


def _why(error: Exception) -> str:
    """In our words: theirs may hold what the token says."""
    if isinstance(error, ExpiredTokenError):
        return "it has expired; do the clocks of issuer and console agree?"
    if isinstance(error, ClaimError):
        return f"its claim {error.claim} is not as it must be"
    if isinstance(error, BadSignatureError):
        return "it is not signed by the issuer's key"
    return f"it cannot be verified ({type(error).__name__})"
