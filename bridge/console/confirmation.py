"""The line of a page that says what the form before it has done, with the opposite act as a form if there is one.

It travels in a cookie that is signed for its session and shown once. The opposite act is an ordinary form of the
console, with all checks of its address: the cookie grants nothing.
"""

import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.console.auth import browser_session
from bridge.console.auth.authorization import Principal

#: The most characters of the line, and of a reason that the opposite act takes over.
MAX_SAID: Final = 300
MAX_WHY: Final = 400
#: The most characters of the cookie: browsers drop one of more than 4,096 bytes.
MAX_COOKIE: Final = 3_500
#: The ms for which it is shown.
SHOWN_MS: Final = 60_000


class UndoForm(NamedTuple):
    """The form of the opposite act.

    Attributes:
        words: of its button.
        address: of the act; `fields`: the form's, without the token of the session.
    """

    words: str
    address: str
    fields: Mapping[str, str]


class Confirmation(NamedTuple):
    """An act that was done, and its opposite; `None`: there is none."""

    said: str
    undo: UndoForm | None = None


def seal(done: Confirmation, who: Principal, now: int) -> str:
    """Return a confirmation as a cookie of its session; without the opposite act if that is too long (pure).

    Parameters:
        now: ms since the epoch.
    """
    undo = done.undo and [done.undo.words, done.undo.address, dict(done.undo.fields)]
    body = urlsafe_b64encode(json.dumps([now, done.said[:MAX_SAID], undo]).encode()).decode()
    if len(body) > MAX_COOKIE and done.undo is not None:
        return seal(Confirmation(done.said), who, now)
    return f"{body}.{_sign(body, who)}"


def unseal(sealed: str, who: Principal, now: int) -> Confirmation | None:
    """Return the confirmation of a cookie; `None` if it is of another session, or too old (pure)."""
    body, _, signed = sealed.partition(".")
    if not who.token or not hmac.compare_digest(signed.encode(), _sign(body, who).encode()):
        return None
    at, said, undo = json.loads(urlsafe_b64decode(body))
    if not 0 <= now - at <= SHOWN_MS:
        return None
    return Confirmation(said, undo and UndoForm(*undo))


def _sign(body: str, who: Principal) -> str:
    return hmac.digest(who.token.encode(), f"done {who.name} {body}".encode(), "sha256").hex()


def answer_done(request: Request, who: Principal, address: str, done: Confirmation, now: int) -> Response:
    """Redirect to a page that says what was done."""
    answer = RedirectResponse(address, 303)
    browser_session.set_confirmation_cookie(request, answer, seal(done, who, now), SHOWN_MS // 1_000)
    return answer


def take_back(why: str) -> str:
    """Return the reason of an opposite act, by that of the act."""
    return f"taken back: {why}"[:MAX_WHY]


@dataclass
class PendingConfirmation:
    """The confirmation of a request; a page that shows it takes it, parts of pages do not."""

    request: Request
    who: Principal
    now: int
    taken: bool = field(default=False, init=False)

    def take(self) -> Confirmation | None:
        """Return the confirmation; it is not shown again."""
        sealed = browser_session.read_confirmation_cookie(self.request)
        self.taken = bool(sealed)
        return unseal(sealed, self.who, self.now) if sealed else None

    def clear(self, answer: Response) -> None:
        """Delete the cookie if the confirmation was taken."""
        if self.taken:
            browser_session.clear_confirmation_cookie(self.request, answer)
