"""A letter's value edited: checked as it is typed, shown as a difference, sent by a button that says what it does."""

import hashlib
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.deadletters.mending.mending import Tried
from bridge.errors import EditRefused
from bridge.web import console
from bridge.web.differing import Row, rows


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
        offered = desk.mending.offered(request.path_params["id"])
    except EditRefused as error:
        return _refused(request, str(error))
    return _page(request, offered.text, is_json=offered.is_json)


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
    text, why, force = said.get("value", ""), said.get("why", "").strip(), "force" in said
    try:
        checked = _checked(request)
    except EditRefused as error:
        return _page(request, text, why=why, fault=str(error), status=409)
    wanted = said.get("do") == "send" and said.get("shown") == checked.shown
    fault = _missing(checked.tried, why, force) if wanted else ""
    if not wanted or fault:
        return _page(request, text, why=why, checked=checked, fault=fault, force=force, status=400 if fault else 200)
    return _sent(request, checked.tried, text, why, force)


def _sent(request: Request, tried: Tried, text: str, why: str, force: bool) -> Response:
    desk, who = console.of(request).desk, console.asking(request).name
    try:
        plan = desk.mending.edit(request.path_params["id"], tried.value, who, why, force=force)
    except EditRefused as error:
        # Somebody was quicker: what was typed stays.
        return _page(request, text, why=why, fault=str(error), status=409)
    desk.plans.approve(plan.id, who)
    return RedirectResponse(f"/plans/{plan.id}", 303)


def _checked(request: Request) -> Checked:
    tried = console.of(request).desk.mending.tried(request.path_params["id"], request.state.form.get("value", ""))
    return Checked(tried, rows(tried.difference), hashlib.sha256(tried.value).hexdigest())


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
    it = here.desk.letters.one(request.path_params["id"]).listed
    return here.page(
        request,
        "edit.html",
        status,
        it=it,
        text=text,
        is_json=is_json,
        why=why,
        checked=checked,
        fault=fault,
        force=force,
    )


def _refused(request: Request, words: str) -> Response:
    return console.of(request).page(request, "fault.html", 409, words=words, number="")
