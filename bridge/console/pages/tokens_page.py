"""The page of API tokens: make one and show it once, list and revoke them."""

from contextlib import suppress

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.console import console
from bridge.deadletters.accounts.api_token import DAYS, MOST_DAYS
from bridge.deadletters.accounts.user_account import Role
from bridge.errors import TokenRefused


def list_tokens(request: Request) -> Response:
    """List the API tokens by name, without their secrets."""
    return _render_tokens(request)


def make_token(request: Request) -> Response:
    """Make a token, and show its secret once."""
    form, by = request.state.form, console.get_principal(request).name
    role, days = Role.read(form.get("role", "")), form.get("days", "").strip()
    try:
        if role is None or not (days.isascii() and days.isdecimal() and len(days) < 6):
            raise TokenRefused("A token has a role, and lasts a number of days: nothing was made.")
        token, secret = console.get_console(request).desk.tokens.make(form.get("name", ""), role, by, int(days))
    except TokenRefused as error:
        return _render_tokens(request, 400, message=str(error))
    return _render_tokens(request, made=token.name, secret=secret)


def revoke_token(request: Request) -> Response:
    """Revoke a token."""
    # It is gone: another user has revoked it already.
    with suppress(TokenRefused):
        console.get_console(request).desk.tokens.revoke(request.path_params["id"], console.get_principal(request).name)
    return RedirectResponse("/admin/tokens", 303)


def _render_tokens(
    request: Request, status: int = 200, *, message: str = "", made: str = "", secret: str = ""
) -> Response:
    asked = console.get_console(request)
    return asked.page(
        request,
        "tokens.html",
        status,
        tokens=asked.desk.tokens.all(),
        message=message,
        made=made,
        secret=secret,
        days=DAYS,
        most=MOST_DAYS,
        typed=getattr(request.state, "form", {}) if message else {},
    )
