"""The pages that edit values: that of one letter, checked while typed and shown as a difference before it is sent; and
those of many letters by a JSON Patch, tried on the newest ones.
"""

import hashlib
from collections.abc import Callable
from typing import Final, NamedTuple

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.console import bulk_actions, console, filter_address
from bridge.console.console import Console
from bridge.console.pages.diff_rows import DiffRow, build_diff_rows
from bridge.console.pages.form_submission import MAX_EDIT_WHY, MAX_WHY, check_length, submit_once
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.editing.json_patch import ValuePatch
from bridge.deadletters.editing.letter_edit import PatchSample, TriedValue
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.errors import EditRefused, FilterFault, PatchRefused


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
            request, "edit-check.html", checked=None, fault=str(error), force=False
        )
    return console.get_console(request).page(request, "edit-check.html", checked=checked, fault="", force=False)


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
        return "A value that does not validate is sent only with a reason, and if you say so."
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


#: The number of newest letters on which a patch is tried.
TRIED_LETTERS: Final = 3
#: The most characters of the value that is shown beside the patch.
MAX_SHOWN_CHARACTERS: Final = 4_000


class TriedPatch(NamedTuple):
    """The result of a patch for one letter."""

    sample: PatchSample
    rows: list[DiffRow]


def show_patch_form(request: Request) -> Response:
    """Show the form for a patch, with the value of the newest letter."""
    return _render_patch(request, request.query_params)


def check_patch(request: Request) -> Response:
    """Try the patch on the newest letters: the answer has the parts of the page that a script replaces."""
    here, form = console.get_console(request), request.state.form
    tried, fault = _try_patch(request, form)
    count = here.desk.letters.count(_read_letters(request, form))
    return here.page(request, "patch-check.html", tried=tried, fault=fault, count=count)


def make_patch(request: Request) -> Response:
    """Try the patch, or make a plan with its results for all letters and continue there."""
    form = request.state.form
    if form.get("do") == "check":
        return _render_patch(request, form)
    masks, who = console.get_masks(request), console.get_principal(request).name
    wish = bulk_actions.PatchRequest(
        _read_letters(request, form),
        _read_patch_text(form),
        check_length(form.get("why", ""), MAX_WHY),
        "force" in form,
    )
    try:
        made = submit_once(request, lambda desk: bulk_actions.plan_patch(desk, masks, who, wish).id)
    except (PatchRefused, FilterFault) as error:
        return _render_patch(request, form, str(error), 400)
    return RedirectResponse(f"/plans/{made}", 303)


def _read_letters(request: Request, form: QueryParams) -> LetterFilter:
    """Return the filter of the open letters that the form means, all of whose values the user may see.

    Raises:
        FilterFault: no open letters match, or the user may not see all of their values.
    """
    masks = console.get_masks(request)
    wanted = masks.check(filter_address.read_filter(filter_address.add_open_status(form))).only_open()
    masks.whole(wanted.topics, "patch")
    if unknown := console.get_console(request).desk.absent.describe_absent(wanted):
        raise FilterFault(" ".join(unknown))
    return wanted


def _read_patch_text(form: QueryParams) -> str:
    return form.get("patch", "").strip()


def _try_patch(request: Request, form: QueryParams) -> tuple[list[TriedPatch], str]:
    """Return the results for the newest letters, and the fault if the text is no patch."""
    desk, text = console.get_console(request).desk, _read_patch_text(form)
    if not text:
        return [], ""
    try:
        patch = ValuePatch.read(text)
    except PatchRefused as error:
        return [], str(error)
    newest = desk.letters.page(_read_letters(request, form), TRIED_LETTERS).letters
    samples = desk.mending.samples([letter.id for letter in newest], patch)
    return [TriedPatch(sample, build_diff_rows(sample.difference)) for sample in samples], ""


def _render_patch(request: Request, form: QueryParams, refused: str = "", status: int = 200) -> Response:
    here, typed = console.get_console(request), console.get_typed_values(request)
    wanted = _read_letters(request, form)
    tried, fault = _try_patch(request, typed)
    newest = here.desk.letters.page(wanted, 1).letters
    return here.page(
        request,
        "patch.html",
        status,
        fields=filter_address.list_filter_fields(filter_address.add_open_status(form)),
        count=here.desk.letters.count(wanted),
        newest=newest[0] if newest else None,
        value=_read_value(here, newest[0].id) if newest else "",
        tried=tried,
        fault=refused or fault,
        list=filter_address.build_address("/letters", QueryParams(filter_address.list_filter_fields(form))),
        command=f"{filter_address.build_command('replay', form)} --patch patch.json",
    )


def _read_value(here: Console, letter: int) -> str:
    """Return a letter's value as text, or the reason why there is none."""
    try:
        text = here.desk.mending.offered(letter).text
    except EditRefused:
        return "The value is not text, or too large: no patch applies to it."
    return (
        text
        if len(text) <= MAX_SHOWN_CHARACTERS
        else f"{text[:MAX_SHOWN_CHARACTERS]}\n… {len(text) - MAX_SHOWN_CHARACTERS:,} more characters"
    )
