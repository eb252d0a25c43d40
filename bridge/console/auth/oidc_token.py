"""Tokens of an OpenID Connect sign-in: the sealed state, the verified ID token, and its claims."""

import base64
import hashlib
import hmac
import json
import logging
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from joserfc import jwe, jwt
from joserfc.errors import BadSignatureError, ClaimError, ExpiredTokenError, JoseError
from joserfc.jwk import KeySet, OctKey
from joserfc.jws import JWSRegistry

from bridge.deadletters.accounts.account_session import IssuedPerson
from bridge.deadletters.accounts.user_account import Role
from bridge.errors import SignInRefused

#: Ms in which a sign-in is ended.
STATE_MS: Final = 600_000
#: Characters of where it goes on; a browser keeps no cookie that is much longer.
MAX_REDIRECT_LENGTH: Final = 2_000
#: Ended ones that are known at a time, of this process; the issuer takes a code once, too.
_MAX_ENDED: Final = 10_000
_HEADER: Final = {"alg": "dir", "enc": "A256GCM"}


class SignInState(NamedTuple):
    """What the issuer's answer must fit.

    Attributes:
        state: comes back in the address.
        nonce: comes back in the token.
        verifier: what only this sign-in can exchange the code with (PKCE, RFC 7636).
        then: where it goes on.
        until: ms since the epoch.
    """

    state: str
    nonce: str
    verifier: str
    then: str
    until: int

    @property
    def challenge(self) -> str:
        """The verifier's hash, which the issuer is told first."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    def __repr__(self) -> str:
        """Without what is secret."""
        return f"Begun(until={self.until})"


@dataclass
class SignInStates:
    """Parameters:
    secret: that of the client; the key is made of it.
    clock: ms since the epoch.
    """

    secret: str = field(repr=False)
    clock: Callable[[], int] = field(repr=False)
    _ended: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def begin(self, then: str) -> SignInState:
        """A new one."""
        fits = then if len(then) <= MAX_REDIRECT_LENGTH else "/"
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        return SignInState(state, nonce, verifier, fits, self.clock() + STATE_MS)

    def sealed(self, begun: SignInState) -> str:
        """As a browser keeps it: it can neither be read nor be changed there."""
        return jwe.encrypt_compact(dict(_HEADER), json.dumps(begun), self._key())

    def opened(self, sealed: str, state: str) -> SignInState | None:
        """The sign-in that this browser has begun, by its state, once; `None`: there is none, or it took too long."""
        try:
            plain = jwe.decrypt_compact(sealed, self._key(), algorithms=list(_HEADER.values())).plaintext
            begun = SignInState(*json.loads(plain or b""))
        except (JoseError, ValueError, TypeError):
            return None
        fits = hmac.compare_digest(begun.state.encode(), state.encode("utf-8", "replace"))
        return begun if fits and self.clock() < begun.until and self._first(begun) else None

    def _first(self, begun: SignInState) -> bool:
        with self._lock:
            if begun.state in self._ended:
                return False
            now = self.clock()
            self._ended = {state: until for state, until in self._ended.items() if until > now}
            self._ended[begun.state] = begun.until
            if len(self._ended) > _MAX_ENDED:
                del self._ended[next(iter(self._ended))]
            return True

    def _key(self) -> OctKey:
        return OctKey.import_key(hmac.digest(self.secret.encode(), b"bridge: a sign-in that was begun", "sha256"))


logger = logging.getLogger("bridge")

#: Signatures by a key that the issuer alone has: not `none`, and not HS256, whose key would be a public one.
SIGNATURE_ALGORITHMS: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "Ed25519",
)
#: Bits of an RSA key, at least (RFC 7518, 3.3).
MIN_RSA_BITS: Final = 2_048
#: Seconds by which two clocks may differ.
CLOCK_LEEWAY: Final = 60
_KEY_TYPES: Final = ("RSA", "EC", "OKP")
_LONGEST_SUBJECT: Final = 255


def verify_id_token(token: str, keys: Mapping[str, Any], issuer: str, client: str, nonce: str) -> dict[str, Any]:
    """The claims of a token that is this issuer's, for this client, of this very sign-in, and has not expired.

    Parameters:
        keys: those that the issuer has now, as it answers them.

    Raises:
        SignInRefused: it is not.
    """
    try:
        # Headers that it does not know are no fault; what `crit` names must be known.
        registry = JWSRegistry(algorithms=SIGNATURE_ALGORITHMS, strict_check_header=False)
        claims = jwt.decode(token, _select_signing_keys(keys), registry=registry).claims
        _build_claims_registry(issuer, client).validate(claims)
    except (JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise SignInRefused(f"The issuer's token is not taken: {_explain_error(error)}.") from None
    if fault := _find_claim_fault(claims, client, nonce):
        raise SignInRefused(f"The issuer's token is not taken: {fault}.")
    return claims


def _find_claim_fault(claims: Mapping[str, Any], client: str, nonce: str) -> str:
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


def _build_claims_registry(issuer: str, client: str) -> jwt.JWTClaimsRegistry:
    return jwt.JWTClaimsRegistry(
        leeway=CLOCK_LEEWAY,
        iss={"essential": True, "value": issuer},
        aud={"essential": True, "value": client},
        sub={"essential": True},
        exp={"essential": True},
        iat={"essential": True},
        nonce={"essential": True},
    )


def _select_signing_keys(found: Mapping[str, Any]) -> KeySet:
    """The keys that sign, without those that nobody here can read."""
    listed = found.get("keys")
    said = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    fit = [
        each for each in said if each.get("kty") in _KEY_TYPES and each.get("use", "sig") == "sig" and _is_long(each)
    ]
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
    if bits < MIN_RSA_BITS:
        logger.warning(
            "the issuer's RSA key has %d bits and is not used: OpenID Connect needs %d or more", bits, MIN_RSA_BITS
        )
    return bits >= MIN_RSA_BITS


def _explain_error(error: Exception) -> str:
    """In our words: theirs may hold what the token says."""
    if isinstance(error, ExpiredTokenError):
        return "it has expired; do the clocks of issuer and console agree?"
    if isinstance(error, ClaimError):
        return f"its claim {error.claim} is not as it must be"
    if isinstance(error, BadSignatureError):
        return "it is not signed by the issuer's key"
    return f"it cannot be verified ({type(error).__name__})"


#: By what people know each other, the best first. None of these need be one person's alone, or stay theirs.
_NAME_CLAIMS: Final = ("preferred_username", "email", "name", "sub")
_LONGEST_NAME: Final = 80


def read_person(claims: Mapping[str, Any], claim: str, roles: Mapping[str, str], default: Role) -> IssuedPerson:
    """Who signs in, by the claims of a token that was verified.

    Parameters:
        claim: which says what somebody may; a `.` leads into an object.
        roles: the role of each of its values.
        default: of who has none of them; NOBODY: they do not get in.

    Raises:
        SignInRefused: they have no role.
    """
    name = name_person(claims)
    role = max(
        (Role.read(roles[each]) or default for each in _list_claim_values(claims, claim) if each in roles),
        default=default,
    )
    if role is Role.NOBODY:
        raise SignInRefused(
            f"You are signed in there as {name}, and have no role here: the claim {claim} has none of the values that "
            "give one. Whoever keeps the console's settings (DEADLETTERS_OIDC_ROLES), or your groups, can change that."
        )
    return IssuedPerson(claims["iss"], claims["sub"], name, role)


def name_person(claims: Mapping[str, Any]) -> str:
    """As the trail names somebody: no user with a password, and nobody else of the issuer, is called so.

    What people call themselves there may change, and be another's: the mark at the end is that of the subject, which
    does not and is not.
    """
    shown = next(filter(None, (_clean_name(claims.get(name)) for name in _NAME_CLAIMS)))
    subject = json.dumps([claims["iss"], claims["sub"]]).encode()
    return f"{shown} ({urlsplit(claims['iss']).hostname} {hashlib.sha256(subject).hexdigest()[:8]})"


def _clean_name(said: Any) -> str:
    words = " ".join(said.split()) if isinstance(said, str) else ""
    return "".join(each for each in words if each.isprintable())[:_LONGEST_NAME].strip()


def _list_claim_values(claims: Mapping[str, Any], claim: str) -> list[str]:
    found = claims.get(claim, _read_nested_claim(claims, claim))
    return [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, str)]


def _read_nested_claim(claims: Mapping[str, Any], claim: str) -> Any:
    """As Keycloak has it: `realm_access.roles`."""
    found: Any = claims
    for name in claim.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
