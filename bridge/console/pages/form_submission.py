"""A form that was sent: reason, numbers, limits, audit entry, and one effect however often it is sent."""

import hashlib
import time
from collections.abc import Callable
from typing import Final, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request

from bridge.console import console
from bridge.console.decision_audit import note_decision
from bridge.deadletters.accounts.idempotency_key import AnsweredRequest
from bridge.deadletters.db.audit_table import AuditEntry
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.errors import RequestUnderWay

#: Characters of a reason.
MAX_WHY: Final = 500
#: Of a reason for an edit, and of a note.
MAX_EDIT_WHY: Final = 1_000
MAX_NOTE: Final = 4_000
#: Digits of a number that is one too many.
_DIGITS: Final = 20

Default = TypeVar("Default", int, None)


def require_why(request: Request) -> str:
    """Why somebody does it, as the form says.

    Raises:
        HTTPException: nothing is said, or too much.
    """
    said = " ".join(str(request.state.form.get("why", "")).split())
    if not said:
        raise HTTPException(400, "Say why: it is for whoever is on call next. Nothing was changed.")
    if len(said) > MAX_WHY:
        raise HTTPException(400, f"Say why in {MAX_WHY} characters. Nothing was changed.")
    return said


def read_number(text: str, otherwise: Default) -> int | Default:
    """A number that a form says; `otherwise` where it is none, or one that no database has."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < _DIGITS else otherwise


def check_length(said: str, longest: int) -> str:
    """What somebody says in their own words: the trail keeps it for ever, and pages repeat it.

    Raises:
        HTTPException: it is too much.
    """
    said = said.strip()
    if len(said) > longest:
        raise HTTPException(400, f"Say it in {longest:,} characters. Nothing was changed.")
    return said


def note_decided(request: Request, what: str, said: str) -> None:
    """It was decided: the trail has it, and who looks next sees it."""
    asked = console.get_console(request)
    note_decision(asked, asked.desk, console.get_principal(request).name, what, said)


#: Seconds to wait for the same form that is being done, and between two looks at it.
SUBMISSION_SECONDS: Final = 30.0
SUBMISSION_PAUSE: Final = 0.1


def submit_once(request: Request, make: Callable[[DeadLetterService], int]) -> int:
    """Do what a form says, or find what was done when the same person sent it before, as it was.

    Parameters:
        make: does it, with a line in the trail; raises where it is refused.

    Returns:
        The number of the plan that was made, or else of the letter, or the group, that it was about.

    Raises:
        RequestUnderWay: it is being done still.
    """
    asked, form = console.get_console(request), request.state.form
    if not form.get("once"):
        return make(asked.desk)
    said = repr((console.get_principal(request).name, request.url.path, sorted(_list_fields(request)))).encode()
    deadline = time.monotonic() + SUBMISSION_SECONDS
    while True:
        try:
            begun = asked.desk.requests.begin(hashlib.sha256(said).digest(), b"")
            break
        except RequestUnderWay:
            if time.monotonic() > deadline:
                raise
            time.sleep(SUBMISSION_PAUSE)
    if isinstance(begun, AnsweredRequest):
        return int(begun.answer)
    try:
        made = _get_subject_id(begun.done) or make(asked.desk.doing(begun.claim))
    except Exception:
        asked.desk.requests.leave(begun.claim)
        raise
    asked.desk.requests.answered(begun.claim, 303, str(made))
    return made


def _get_subject_id(done: AuditEntry | None) -> int | None:
    return done and (done.plan_id or done.letter_id or done.group_id)


def _list_fields(request: Request) -> list[tuple[str, str]]:
    """What a form says; it is the same one after signing in anew."""
    return [pair for pair in request.state.form.multi_items() if pair[0] not in ("token", "mark")]
