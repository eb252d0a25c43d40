"""What an issuer says of somebody: who they are here, and what they may (pure)."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from bridge.deadletters.users.issued import Person
from bridge.deadletters.users.role import Role
from bridge.errors import SignInRefused

#: By what people know each other, the best first. None of these need be one person's alone, or stay theirs.
_CALLED: Final = ("preferred_username", "email", "name", "sub")
_LONGEST: Final = 80


def person(claims: Mapping[str, Any], claim: str, roles: Mapping[str, str], default: Role) -> Person:
    """Who signs in, by the claims of a token that was verified.

    Parameters:
        claim: which says what somebody may; a `.` leads into an object.
        roles: the role of each of its values.
        default: of who has none of them; NOBODY: they do not get in.

    Raises:
        SignInRefused: they have no role.
    """
    name = named(claims)
    role = max((Role.read(roles[each]) or default for each in _values(claims, claim) if each in roles), default=default)
    if role is Role.NOBODY:
        raise SignInRefused(
            f"You are signed in there as {name}, and have no role here: the claim {claim} has none of the values that "
            "give one. Whoever keeps the console's settings (DEADLETTERS_OIDC_ROLES), or your groups, can change that."
        )
    return Person(claims["iss"], claims["sub"], name, role)


def named(claims: Mapping[str, Any]) -> str:
    """As the trail names somebody: no user with a password, and nobody else of the issuer, is called so.

    What people call themselves there may change, and be another's: the mark at the end is that of the subject, which
    does not and is not.
    """
    shown = next(filter(None, (_shown(claims.get(name)) for name in _CALLED)))
    subject = json.dumps([claims["iss"], claims["sub"]]).encode()
    return f"{shown} ({urlsplit(claims['iss']).hostname} {hashlib.sha256(subject).hexdigest()[:8]})"


def _shown(said: Any) -> str:
    words = " ".join(said.split()) if isinstance(said, str) else ""
    return "".join(each for each in words if each.isprintable())[:_LONGEST].strip()


def _values(claims: Mapping[str, Any], claim: str) -> list[str]:
    found = claims.get(claim, _inside(claims, claim))
    return [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, str)]


def _inside(claims: Mapping[str, Any], claim: str) -> Any:
    """As Keycloak has it: `realm_access.roles`."""
    found: Any = claims
    for name in claim.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
