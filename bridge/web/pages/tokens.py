"""Tokens, with which programs use the API: made, and shown once; listed; revoked."""

from contextlib import suppress

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.deadletters.users.role import Role
from bridge.deadletters.users.tokens import DAYS, MOST_DAYS
from bridge.errors import TokenRefused
from bridge.web import console


def listed(request: Request) -> Response:
    """All of them, by name, without their secrets."""
    return _page(request)


def make(request: Request) -> Response:
    """Make one, and show its secret, this once."""
    form, by = request.state.form, console.asking(request).name
    role, days = Role.read(form.get("role", "")), form.get("days", "").strip()
    try:
        if role is None or not (days.isascii() and days.isdecimal() and len(days) < 6):
            raise TokenRefused("A token has a role, and lasts a number of days: nothing was made.")
        token, secret = console.of(request).desk.tokens.make(form.get("name", ""), role, by, int(days))
    except TokenRefused as error:
        return _page(request, 400, words=str(error))
    return _page(request, made=token.name, secret=secret)


def revoke(request: Request) -> Response:
    """Revoke one: it opens nothing from now on."""
    # Not there any more: somebody was quicker with the same wish.
    with suppress(TokenRefused):
        console.of(request).desk.tokens.revoke(request.path_params["id"], console.asking(request).name)
    return RedirectResponse("/admin/tokens", 303)


def _page(request: Request, status: int = 200, *, words: str = "", made: str = "", secret: str = "") -> Response:
    asked = console.of(request)
    return asked.page(
        request,
        "tokens.html",
        status,
        tokens=asked.desk.tokens.all(),
        words=words,
        made=made,
        secret=secret,
        days=DAYS,
        most=MOST_DAYS,
        typed=getattr(request.state, "form", {}) if words else {},
    )
