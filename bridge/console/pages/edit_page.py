"""The page that edits the value of a letter: checked while typed, shown as a difference, then sent."""

import hashlib
from collections.abc import Callable
from typing import NamedTuple

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.console import console
from bridge.console.pages.diff_rows import DiffRow, build_diff_rows
from bridge.console.pages.form_submission import MAX_EDIT_WHY, check_length, submit_once
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.editing.letter_edit import TriedValue
from bridge.errors import EditRefused


class CheckedEdit(NamedTuple):
    """The check of an edited value.

    Attributes:
        shown: a digest of the value whose difference is shown: no other value is sent.
    """

    tried: TriedValue
    rows: list[DiffRow]
    shown: str


def show_edit_form(request: Request) -> Response:
    """Show the value in a form to edit it."""
    desk = console.get_console(request).desk
    try:
        offered = desk.editing(console.get_masks(request)).offered(request.path_params["id"])
    except EditRefused as error:
        return _answer_refusal(request, str(error))
    if typed := console.get_form_draft(request):
        return _show_draft(request, typed, offered.is_json)
    return _render_edit(request, offered.text, is_json=offered.is_json)


def _show_draft(request: Request, typed: QueryParams, is_json: bool) -> Response:
    """Show the draft that was typed before a new sign-in."""
    try:
        checked, fault = _check_typed(request), ""
    except EditRefused as error:
        checked, fault = None, str(error)
    text, why, force = typed.get("value", ""), typed.get("why", ""), "force" in typed
    return _render_edit(request, text, is_json=is_json, why=why, checked=checked, fault=fault, force=force)


def check_edit(request: Request) -> Response:
    """Check the typed value: the answer has the parts of the page that a script replaces."""
    try:
        checked = _check_typed(request)
    except EditRefused as error:
        return console.get_console(request).page(
            request, "edit-checked.html", checked=None, fault=str(error), force=False
        )
    return console.get_console(request).page(request, "edit-checked.html", checked=checked, fault="", force=False)


def send_edit(request: Request) -> Response:
    """Check the value or send it, if its difference was shown, and it validates or has a reason."""
    said = request.state.form
    text, why, force = said.get("value", ""), check_length(said.get("why", ""), MAX_EDIT_WHY), "force" in said
    try:
        checked = _check_typed(request)
    except EditRefused as error:
        return _send_once(request, _build_refusal(error), text, why)
    wanted = said.get("do") == "send" and said.get("shown") == checked.shown
    fault = _find_missing(checked.tried, why, force) if wanted else ""
    if not wanted or fault:
        return _render_edit(
            request, text, why=why, checked=checked, fault=fault, force=force, status=400 if fault else 200
        )
    id_, who = request.path_params["id"], console.get_principal(request).name

    def edited(desk: DeadLetterService) -> int:
        editing = desk.editing(console.get_masks(request))
        plan = editing.edit(id_, checked.tried.value, who, why, force=force)
        return desk.plans.approve(plan.id, who).id

    return _send_once(request, edited, text, why)


def _build_refusal(error: EditRefused) -> Callable[[DeadLetterService], int]:
    def refuse(_: DeadLetterService) -> int:
        raise error

    return refuse


def _send_once(request: Request, edited: Callable[[DeadLetterService], int], text: str, why: str) -> Response:
    """Send the edit and continue to the plan; a double click finds the plan that was made."""
    try:
        made = submit_once(request, edited)
    except EditRefused as error:
        # Another user was faster: the typed value stays.
        return _render_edit(request, text, why=why, fault=str(error), status=409)
    return RedirectResponse(f"/plans/{made}", 303)


def _check_typed(request: Request) -> CheckedEdit:
    editing = console.get_console(request).desk.editing(console.get_masks(request))
    tried = editing.tried(request.path_params["id"], console.get_typed_values(request).get("value", ""))
    return CheckedEdit(tried, build_diff_rows(tried.difference), hashlib.sha256(tried.shown).hexdigest())


def _find_missing(tried: TriedValue, why: str, force: bool) -> str:
    """Return the reason why it cannot be sent yet; "" if it can."""
    if not tried.changes:
        return "Nothing is changed: replay it as it is."
    if not tried.said.ok and not (force and why):
        return "What does not validate is sent only with a reason, and where you say so."
    return ""


def _render_edit(
    request: Request,
    text: str,
    *,
    is_json: bool = True,
    why: str = "",
    checked: CheckedEdit | None = None,
    fault: str = "",
    force: bool = False,
    status: int = 200,
) -> Response:
    here = console.get_console(request)
    view = console.get_masks(request).letter(here.desk.letters.one(request.path_params["id"]))
    return here.page(
        request,
        "edit.html",
        status,
        it=view.letter.listed,
        hides=view.value.is_any,
        text=text,
        is_json=is_json,
        why=why,
        checked=checked,
        fault=fault,
        force=force,
    )


def _answer_refusal(request: Request, words: str) -> Response:
    return console.get_console(request).fault(request, 409, words)
