"""What a form says is done once, however often the form is sent: a double click, a page that is loaded again."""

import hashlib
import time
from collections.abc import Callable
from typing import Final

from starlette.requests import Request

from bridge.deadletters.desk import Desk
from bridge.deadletters.store.trail import Entry
from bridge.deadletters.users.requests import Answered
from bridge.errors import RequestUnderWay
from bridge.web import console

#: Seconds to wait for the same form that is being done, and between two looks at it.
WITHIN: Final = 30.0
PAUSE: Final = 0.1


def once(request: Request, make: Callable[[Desk], int]) -> int:
    """Do what a form says, or find what was done when the same person sent it before, as it was.

    Parameters:
        make: does it, with a line in the trail; raises where it is refused.

    Returns:
        The number of the plan that was made, or else of the letter, or the group, that it was about.

    Raises:
        RequestUnderWay: it is being done still.
    """
    asked, form = console.of(request), request.state.form
    if not form.get("once"):
        return make(asked.desk)
    said = repr((console.asking(request).name, request.url.path, sorted(_without_session(request)))).encode()
    deadline = time.monotonic() + WITHIN
    while True:
        try:
            begun = asked.desk.requests.begin(hashlib.sha256(said).digest(), b"")
            break
        except RequestUnderWay:
            if time.monotonic() > deadline:
                raise
            time.sleep(PAUSE)
    if isinstance(begun, Answered):
        return int(begun.answer)
    try:
        made = _about(begun.done) or make(asked.desk.doing(begun.claim))
    except Exception:
        asked.desk.requests.leave(begun.claim)
        raise
    asked.desk.requests.answered(begun.claim, 303, str(made))
    return made


def _about(done: Entry | None) -> int | None:
    return done and (done.plan_id or done.letter_id or done.group_id)


def _without_session(request: Request) -> list[tuple[str, str]]:
    """What a form says; it is the same one after signing in anew."""
    return [pair for pair in request.state.form.multi_items() if pair[0] not in ("token", "mark")]
