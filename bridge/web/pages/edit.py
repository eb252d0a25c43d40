"""A letter's value edited: checked as it is typed, shown as a difference, sent by a button that says what it does."""

import hashlib
from collections.abc import Callable
from typing import NamedTuple

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.deadletters.desk import Desk
from bridge.deadletters.mending.mending import Tried
from bridge.errors import EditRefused
from bridge.web import console
from bridge.web.differing import Row, rows
from bridge.web.pages.deciding import WHY_EDITED, limited
from bridge.web.pages.once import once


class Checked(NamedTuple):
    """What is said of what was typed.

    Attributes:
        shown: stands for the value of which the difference is shown: only that is sent.
    """

    tried: Tried
    rows: list[Row]
    shown: str


def form(request: Request) -> Response:
    """The value, to be edited."""
    desk = console.of(request).desk
    try:
        offered = desk.editing(console.masks(request)).offered(request.path_params["id"])
    except EditRefused as error:
        return _refused(request, str(error))
    if typed := console.kept(request):
        return _again(request, typed, offered.is_json)
    return _page(request, offered.text, is_json=offered.is_json)


def _again(request: Request, typed: QueryParams, is_json: bool) -> Response:
    """What was typed before somebody had to sign in."""
    try:
        checked, fault = _checked(request), ""
    except EditRefused as error:
        checked, fault = None, str(error)
    text, why, force = typed.get("value", ""), typed.get("why", ""), "force" in typed
    return _page(request, text, is_json=is_json, why=why, checked=checked, fault=fault, force=force)


def check(request: Request) -> Response:
    """What is said of what was typed: the parts of the page that a script puts into their places."""
    try:
        checked = _checked(request)
    except EditRefused as error:
        return console.of(request).page(request, "edit-checked.html", checked=None, fault=str(error), force=False)
    return console.of(request).page(request, "edit-checked.html", checked=checked, fault="", force=False)


def send(request: Request) -> Response:
    """Check it, or send it: only what was shown with its difference, and what validates or has a reason."""
    said = request.state.form
    text, why, force = said.get("value", ""), limited(said.get("why", ""), WHY_EDITED), "force" in said
    try:
        checked = _checked(request)
    except EditRefused as error:
        return _sent(request, _refuses(error), text, why)
    wanted = said.get("do") == "send" and said.get("shown") == checked.shown
    fault = _missing(checked.tried, why, force) if wanted else ""
    if not wanted or fault:
        return _page(request, text, why=why, checked=checked, fault=fault, force=force, status=400 if fault else 200)
    id_, who = request.path_params["id"], console.asking(request).name

    def edited(desk: Desk) -> int:
        editing = desk.editing(console.masks(request))
        plan = editing.edit(id_, checked.tried.value, who, why, force=force)
        return desk.plans.approve(plan.id, who).id

    return _sent(request, edited, text, why)


def _refuses(error: EditRefused) -> Callable[[Desk], int]:
    def refuse(_: Desk) -> int:
        raise error

    return refuse


def _sent(request: Request, edited: Callable[[Desk], int], text: str, why: str) -> Response:
    """On to the plan, also where the form has made it already: by a double click."""
    try:
        made = once(request, edited)
    except EditRefused as error:
        # Somebody was quicker: what was typed stays.
        return _page(request, text, why=why, fault=str(error), status=409)
    return RedirectResponse(f"/plans/{made}", 303)


def _checked(request: Request) -> Checked:
    editing = console.of(request).desk.editing(console.masks(request))
    tried = editing.tried(request.path_params["id"], console.typed(request).get("value", ""))
    return Checked(tried, rows(tried.difference), hashlib.sha256(tried.shown).hexdigest())


def _missing(tried: Tried, why: str, force: bool) -> str:
    """What is missing for it to be sent; "" where nothing is."""
    if not tried.changes:
        return "Nothing is changed: replay it as it is."
    if not tried.said.ok and not (force and why):
        return "What does not validate is sent only with a reason, and where you say so."
    return ""


def _page(
    request: Request,
    text: str,
    *,
    is_json: bool = True,
    why: str = "",
    checked: Checked | None = None,
    fault: str = "",
    force: bool = False,
    status: int = 200,
) -> Response:
    here = console.of(request)
    view = console.masks(request).letter(here.desk.letters.one(request.path_params["id"]))
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


def _refused(request: Request, words: str) -> Response:
    return console.of(request).fault(request, 409, words)
