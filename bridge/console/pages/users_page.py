"""The pages of users and API tokens: add, invite, change and remove users; make, list and revoke tokens."""

from contextlib import suppress

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from bridge.console import console
from bridge.console.confirmation import UndoForm
from bridge.console.pages.form_submission import answer_done
from bridge.deadletters.accounts.api_token import DAYS, MOST_DAYS
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.db.account_rows import User
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.model.letter_scope import LetterScope
from bridge.errors import ScopeFault, TokenRefused, UserChanged, UserRefused

_OWN_ACCOUNT = "Another admin changes your role; you change your password under Account. Nothing was changed."


def list_users(request: Request) -> Response:
    """List the users by name."""
    return _render_list(request)


def invite_user(request: Request) -> Response:
    """Add a user, and show the link to choose a password; sending the form twice shows the same link."""
    form = request.state.form
    role, token = Role.read(form.get("role", "")), form.get("link", "")
    try:
        if role is None:
            raise UserRefused("A role is viewer, operator or admin: nothing was changed.")
        by, scope = console.get_principal(request).name, _read_scope(form, "topics", "consumer_groups")
        user = _get_store(request).admins.invite(form.get("name", ""), role, token, by, scope)
    except (UserRefused, ScopeFault) as error:
        return _render_list(request, 400, str(error))
    return _render_link(request, user, token)


def show_user(request: Request) -> Response:
    """Show a user and the actions on it."""
    return _render_user(request)


def change_role(request: Request) -> Response:
    """Change a user's role."""
    form = request.state.form
    try:
        wanted = Role.read(form.get("role", ""))
        if wanted is None:
            raise UserRefused("A role is viewer, operator or admin: nothing was changed.")
        by = _require_other_user(request)
        _get_store(request).admins.give_role(request.path_params["id"], form.get("was", ""), wanted, by)
    except UserRefused as error:
        return _render_user(request, error)
    name, was = _name_user(request), form.get("was", "")
    undo = UndoForm(f"Make it {was} again", _build_user_address(request, "/role"), {"role": was, "was": str(wanted)})
    return answer_done(request, _build_user_address(request), f"{name} is {wanted} now.", undo)


def change_scope(request: Request) -> Response:
    """Change the letters that a user sees."""
    form = request.state.form
    try:
        was, wanted = _read_scope(form, "was_topics", "was_groups"), _read_scope(form, "topics", "consumer_groups")
        _get_store(request).admins.give_scope(request.path_params["id"], was, wanted, _require_other_user(request))
    except (UserRefused, ScopeFault) as error:
        return _render_user(request, error)
    form = request.state.form
    fields = {
        "topics": form.get("was_topics", ""),
        "consumer_groups": form.get("was_groups", ""),
        "was_topics": form.get("topics", ""),
        "was_groups": form.get("consumer_groups", ""),
    }
    undo = UndoForm("Put the former one back", _build_user_address(request, "/scope"), fields)
    return answer_done(request, _build_user_address(request), f"{_name_user(request)} sees {wanted} now.", undo)


def _build_user_address(request: Request, act: str = "") -> str:
    return f"/admin/users/{request.path_params['id']}{act}"


def _name_user(request: Request) -> str:
    return _get_store(request).admins.one(request.path_params["id"]).name


def _read_scope(form: QueryParams, topics: str, consumer_groups: str) -> LetterScope:
    """Return the scope in two fields of a form; an empty field is everything."""
    said = ([form[name]] if form.get(name, "").strip() else [] for name in (topics, consumer_groups))
    return LetterScope.parse(*said)


def renew_link(request: Request) -> Response:
    """Make a new link for a user to choose a password; sending the form twice shows the same link."""
    token = request.state.form.get("link", "")
    try:
        user = _get_store(request).admins.new_link(request.path_params["id"], token, _require_other_user(request))
    except UserRefused as error:
        return _render_user(request, error)
    return _render_link(request, user, token)


def sign_out_user(request: Request) -> Response:
    """End all sessions of a user."""
    try:
        _get_store(request).admins.sign_out(request.path_params["id"], console.get_principal(request).name)
    except UserRefused as error:
        return _render_user(request, error)
    return answer_done(request, _build_user_address(request), f"Signed {_name_user(request)} out everywhere.")


def sign_out_issued_users(request: Request) -> Response:
    """End the sessions of all users that an issuer has signed in."""
    _get_store(request).issued.end_all(console.get_principal(request).name)
    return answer_done(request, "/admin/users", "Signed out all whom the issuer had signed in.")


def remove_user(request: Request) -> Response:
    """Remove a user."""
    users = _get_store(request).users.all()
    name = next((each.name for each in users if each.id == request.path_params["id"]), "the user")
    try:
        _get_store(request).admins.remove(request.path_params["id"], _require_other_user(request))
    except UserRefused as error:
        return _render_user(request, error)
    return answer_done(request, "/admin/users", f"Removed {name}.")


def _require_other_user(request: Request) -> str:
    """Return the admin's name; refuse if the user is the admin."""
    who = console.get_principal(request)
    user = next((each for each in _get_store(request).users.all() if each.id == request.path_params["id"]), None)
    if who.is_user and user is not None and user.name == who.name:
        raise UserRefused(_OWN_ACCOUNT)
    return who.name


def _get_store(request: Request) -> DeadLetterService:
    return console.get_console(request).desk


def _render_list(request: Request, status: int = 200, trouble: str = "") -> Response:
    asked = console.get_console(request)
    users = asked.desk.users.all()
    return asked.page(
        request, "users.html", status, users=users, proxy=asked.proxy, issuer=asked.issuer, trouble=trouble
    )


def _render_user(request: Request, fault: UserRefused | ScopeFault | None = None) -> Response:
    try:
        user = _get_store(request).admins.one(request.path_params["id"])
    except UserChanged as error:
        return _render_list(request, 404 if fault is None else 409, str(error))
    status = 200 if fault is None else 409 if isinstance(fault, UserChanged) else 400
    is_me = console.get_principal(request).is_user and user.name == console.get_principal(request).name
    return console.get_console(request).page(
        request, "user.html", status, user=user, is_me=is_me, trouble="" if fault is None else str(fault)
    )


def _render_link(request: Request, user: User, token: str) -> Response:
    base = str(request.base_url).rstrip("/")
    if request.headers.get("x-forwarded-proto", "").lower() == "https":
        base = "https" + base[base.index(":") :]
    return console.get_console(request).page(
        request, "invitation-link.html", user=user, link=f"{base}/welcome/{user.id}/{token}"
    )


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
        scope = _read_scope(form, "topics", "consumer_groups")
        token, secret = _get_store(request).tokens.make(form.get("name", ""), role, by, int(days), scope)
    except (TokenRefused, ScopeFault) as error:
        return _render_tokens(request, 400, message=str(error))
    return _render_tokens(request, made=token.name, secret=secret)


def revoke_token(request: Request) -> Response:
    """Revoke a token."""
    # It is gone: another user has revoked it already.
    with suppress(TokenRefused):
        console.get_console(request).desk.tokens.revoke(request.path_params["id"], console.get_principal(request).name)
    return answer_done(request, "/admin/tokens", "Revoked the token.")


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
