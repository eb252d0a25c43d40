"""A form that was sent: reason, numbers, limits, audit entry, and one effect however often it is sent."""

import hashlib
import time
from collections.abc import Callable
from typing import Final, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from bridge.console import confirmation, console
from bridge.console.confirmation import Confirmation, UndoForm
from bridge.console.decision_audit import note_decision
from bridge.deadletters.accounts.idempotency_key import AnsweredRequest
from bridge.deadletters.db.audit_rows import AuditEntry
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.errors import RequestUnderWay

#: The most characters of a reason.
MAX_WHY: Final = 500
#: The same for an edit's reason, and for a note.
MAX_EDIT_WHY: Final = 1_000
MAX_NOTE: Final = 4_000
#: The number of digits that is too large.
_DIGITS: Final = 20

Default = TypeVar("Default", int, None)


def require_why(request: Request) -> str:
    """Return the reason in the form.

    Raises:
        HTTPException: the reason is missing or too long.
    """
    said = " ".join(str(request.state.form.get("why", "")).split())
    if not said:
        raise HTTPException(400, "Say why: it is for whoever is on call next. Nothing was changed.")
    if len(said) > MAX_WHY:
        raise HTTPException(400, f"Say why in {MAX_WHY} characters. Nothing was changed.")
    return said


def read_number(text: str, otherwise: Default) -> int | Default:
    """Return a number in the form; `otherwise` if it is none or too large for a database."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < _DIGITS else otherwise


def check_length(said: str, longest: int) -> str:
    """Refuse free text that is too long: the audit log keeps it for ever, and pages repeat it.

    Raises:
        HTTPException: the text is too long.
    """
    said = said.strip()
    if len(said) > longest:
        raise HTTPException(400, f"Say it in {longest:,} characters. Nothing was changed.")
    return said


def note_decided(request: Request, what: str, said: str) -> None:
    """Write a decision to the audit log, and have the next reader see its effect."""
    asked = console.get_console(request)
    note_decision(asked, asked.desk, console.get_principal(request).name, what, said)


def answer_done(request: Request, address: str, said: str, undo: UndoForm | None = None) -> Response:
    """Redirect to a page that says in one line what was done, with the opposite act if there is one."""
    here, who = console.get_console(request), console.get_principal(request)
    return confirmation.answer_done(request, who, address, Confirmation(said, undo), here.clock())


#: The seconds to wait for the same form in progress, and between two polls.
SUBMISSION_SECONDS: Final = 30.0
SUBMISSION_PAUSE: Final = 0.1


def submit_once(request: Request, make: Callable[[DeadLetterService], int]) -> int:
    """Do what a form asks, or return the result if the same person has already sent the same form.

    Parameters:
        make: does it and writes the audit log; raises if it is refused.

    Returns:
        The number of the plan that was made, or else of the letter or the group concerned.

    Raises:
        RequestUnderWay: the first submission is still running.
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
    """Return the fields that identify a form; they are the same after a new sign-in."""
    return [pair for pair in request.state.form.multi_items() if pair[0] not in ("token", "mark")]
