"""A link by which somebody chooses their first password, or another (pure)."""

import hashlib
import hmac
import re
from typing import Final, NamedTuple, Self

#: Ms for which it opens something.
LASTS: Final = 3 * 86_400_000
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_KEPT: Final = re.compile(r"link\$([0-9a-f]{64})\$([0-9]{1,16})")


class Link(NamedTuple):
    """One as it is kept, in the place of a password: by a hash, so that a copy of the database opens nothing.

    Attributes:
        until: ms since the epoch.
    """

    digest: str
    until: int

    @classmethod
    def of(cls, token: str, now: int) -> Self | None:
        """One that is made now; `None`: the token is none, or may be guessed."""
        return cls(_digest(token), now + LASTS) if _TOKEN.fullmatch(token) else None

    @classmethod
    def read(cls, kept: str) -> Self | None:
        """The one that is kept; `None`: there is a password."""
        found = _KEPT.fullmatch(kept)
        return cls(found[1], int(found[2])) if found else None

    def written(self) -> str:
        """As it is kept: no password fits it."""
        return f"link${self.digest}${self.until}"

    def opens(self, token: str, now: int) -> bool:
        """Whether it is opened by this token, still."""
        return hmac.compare_digest(self.digest, _digest(token)) and now < self.until


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
