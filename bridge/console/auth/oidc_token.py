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
from joserfc.jwk import Key, KeySet, OctKey, import_key
from joserfc.jws import JWSRegistry

from bridge.deadletters.accounts.account_session import IssuedPerson
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.model.letter_scope import LetterScope, read_patterns
from bridge.errors import ScopeFault, SignInRefused

#: The ms within which a sign-in must end.
STATE_MS: Final = 600_000
#: The most characters of the path to continue at; browsers refuse much longer cookies.
MAX_REDIRECT_LENGTH: Final = 2_000
#: The ended sign-ins that this process remembers; the issuer, too, accepts a code once.
_MAX_ENDED: Final = 10_000
_HEADER: Final = {"alg": "dir", "enc": "A256GCM"}


class SignInState(NamedTuple):
    """The state of a sign-in, which the issuer's answer must match.

    Attributes:
        state: returned in the address.
        nonce: returned in the token.
        verifier: the secret without which the code cannot be exchanged (PKCE, RFC 7636).
        then: the path to continue at.
        until: ms since the epoch.
    """

    state: str
    nonce: str
    verifier: str
    then: str
    until: int

    @property
    def challenge(self) -> str:
        """Return the hash of the verifier, which is sent to the issuer first."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    def __repr__(self) -> str:
        """Return the state without its secrets."""
        return f"Begun(until={self.until})"


@dataclass
class SignInStates:
    """The sealed states of sign-ins in progress.

    Parameters:
        secret: the secret of the client, from which the key is derived.
        clock: ms since the epoch.
    """

    secret: str = field(repr=False)
    clock: Callable[[], int] = field(repr=False)
    _ended: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def begin(self, then: str) -> SignInState:
        """Return a new state."""
        fits = then if len(then) <= MAX_REDIRECT_LENGTH else "/"
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        return SignInState(state, nonce, verifier, fits, self.clock() + STATE_MS)

    def sealed(self, begun: SignInState) -> str:
        """Return a state encrypted and signed, as the browser keeps it."""
        return jwe.encrypt_compact(dict(_HEADER), json.dumps(begun), self._key())

    def opened(self, sealed: str, state: str) -> SignInState | None:
        """Return the sign-in that this browser began, once; `None` if there is none or it took too long."""
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

#: Signatures by a private key of the issuer: not `none`, and not HS256, whose key would be public.
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
#: The least bits of an RSA key (RFC 7518, 3.3).
MIN_RSA_BITS: Final = 2_048
#: The seconds by which two clocks may differ.
CLOCK_LEEWAY: Final = 60
_KEY_TYPES: Final = ("RSA", "EC", "OKP")
_LONGEST_SUBJECT: Final = 255


def verify_id_token(token: str, keys: Mapping[str, Any], issuer: str, client: str, nonce: str) -> dict[str, Any]:
    """Return the claims of an ID token that is valid for this issuer, this client and this sign-in.

    Parameters:
        keys: the issuer's current keys, as it returned them.

    Raises:
        SignInRefused: it is not valid.
    """
    try:
        # Unknown headers are allowed, except those that `crit` names.
        registry = JWSRegistry(algorithms=SIGNATURE_ALGORITHMS, strict_check_header=False)
        claims = jwt.decode(token, _select_signing_keys(keys), registry=registry).claims
        _build_claims_registry(issuer, client).validate(claims)
    except (JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise SignInRefused(f"The issuer's token is not taken: {_explain_error(error)}.") from None
    if fault := _find_claim_fault(claims, client, nonce):
        raise SignInRefused(f"The issuer's token is not taken: {fault}.")
    return claims


def _find_claim_fault(claims: Mapping[str, Any], client: str, nonce: str) -> str:
    """Return the fault that a general JWT library does not check for."""
    said, audience, subject = claims["nonce"], claims["aud"], claims["sub"]
    if not (isinstance(said, str) and hmac.compare_digest(said.encode("utf-8", "replace"), nonce.encode())):
        return "it is of another sign-in (nonce)"
    alone = audience in (client, [client])
    if claims.get("azp", client if alone else None) != client:
        return "it was made for another client (aud, azp)"
    if not (0 < len(subject) <= _LONGEST_SUBJECT and subject.isascii() and subject.isprintable()):
        return "its claim sub is not a valid identifier"
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
    """Return the signing keys, without those that cannot be used (RFC 7517, 5)."""
    listed = found.get("keys")
    said = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    fit = [
        each for each in said if each.get("kty") in _KEY_TYPES and each.get("use", "sig") == "sig" and _is_long(each)
    ]
    return KeySet([key for each in fit if (key := _import_key(each)) is not None])


def _import_key(said: dict[str, Any]) -> Key | None:
    """Return a key; None if its curve is unsupported, or if values are missing or invalid."""
    try:
        key = import_key(said)
        # Some values are read only here.
        key.get_op_key("verify")
    except (JoseError, ValueError, TypeError, KeyError, AttributeError) as error:
        logger.warning("the issuer's key %r is not used: %s", said.get("kid"), type(error).__name__)
        return None
    return key


def _is_long(key: Mapping[str, Any]) -> bool:
    """Return whether an RSA key is long enough; keys on curves have fixed lengths."""
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
    """Return an error in our words: the library's may quote the token."""
    if isinstance(error, ExpiredTokenError):
        return "it has expired; do the clocks of issuer and console agree?"
    if isinstance(error, ClaimError):
        return f"its claim {error.claim} is not as it must be"
    if isinstance(error, BadSignatureError):
        return "it is not signed by the issuer's key"
    return f"it cannot be verified ({type(error).__name__})"


#: The claims with a display name, the best first. None of them is guaranteed to be unique or stable.
_NAME_CLAIMS: Final = ("preferred_username", "email", "name", "sub")
_LONGEST_NAME: Final = 80


class ScopeClaims(NamedTuple):
    """The claims with the patterns of topics and of consumer groups that a user sees; "": all."""

    topics: str = ""
    consumer_groups: str = ""


def read_person(
    claims: Mapping[str, Any], claim: str, roles: Mapping[str, str], default: Role, scopes: ScopeClaims
) -> IssuedPerson:
    """Return the user who signs in, from verified claims.

    Parameters:
        claim: the claim with the role; a `.` leads into an object.
        roles: the role for each of its values.
        default: the role without such a value; NOBODY: the sign-in is refused.
        scopes: a claim that is set and missing covers nothing: the sign-in is refused.

    Raises:
        SignInRefused: the user has no role, or sees nothing.
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
    return IssuedPerson(claims["iss"], claims["sub"], name, role, _read_scope(claims, scopes, name))


def _read_scope(claims: Mapping[str, Any], scopes: ScopeClaims, name: str) -> LetterScope:
    """Return the scope in two claims. A claim that is set in the settings and missing covers nothing.

    Raises:
        SignInRefused: it covers nothing, or a pattern is invalid.
    """
    fields = ((scopes.topics, "topics"), (scopes.consumer_groups, "consumer groups"))
    try:
        return LetterScope(
            *(
                read_patterns(_list_claim_values(claims, claim) or [""], words) if claim else ()
                for claim, words in fields
            )
        )
    except ScopeFault as error:
        claimed = " or ".join(filter(None, scopes))
        raise SignInRefused(
            f"You are signed in there as {name}, and see nothing here (claim {claimed}): {error} Whoever keeps the "
            "console's settings (DEADLETTERS_OIDC_TOPICS_CLAIM, DEADLETTERS_OIDC_CONSUMER_GROUPS_CLAIM), or your "
            "account there, can change that."
        ) from None


def name_person(claims: Mapping[str, Any]) -> str:
    """Return the user's name for the audit log, which no user with a password and no other subject can have.

    Display names may change and may be another user's. The suffix is derived from the subject, which is stable and
    unique.
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
    """Return a claim inside objects, such as Keycloak's `realm_access.roles`."""
    found: Any = claims
    for name in claim.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
