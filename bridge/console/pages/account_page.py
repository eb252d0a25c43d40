"""The pages of the own account: password, sessions, invitation by a link, and unmasked values."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.console import console
from bridge.console.auth import authentication, browser_session, passwords
from bridge.console.auth.authorization import Principal
from bridge.console.auth.http_security import choose_redirect_path, is_without_tls
from bridge.console.pages.form_submission import require_why
from bridge.errors import UserRefused


def show_account(request: Request) -> Response:
    """Show the user's own account and role."""
    return _render_account(request)


def change_password(request: Request) -> Response:
    """Change the own password, given the current one; all sessions of the user end."""
    here, who, form = console.get_console(request), _require_user(request), request.state.form
    address = here.proxy.sender(authentication.get_peer_address(request), request.headers)
    # The throttle of the sign-in page holds here, too: an open browser gains no faster guesses.
    guess = here.login_throttle.guess(who.name, address)
    if guess.waits:
        return _render_account(
            request,
            429,
            f"Too many wrong passwords: this {guess.waits} waits. No password was tried, and nothing was changed.",
        )
    secret = here.desk.users.secret(who.name)
    if not passwords.verify_password(secret and secret.password, form.get("password", "")):
        return _render_account(request, 403, f"The current password is wrong. {guess.warning} Nothing was changed.")
    here.login_throttle.right(who.name, address)
    if form.get("new", "") != form.get("again", ""):
        return _render_account(request, 400, "The two new passwords differ. Nothing was changed.")
    try:
        here.desk.users.give_password(who.name, passwords.hash_password(who.name, form.get("new", "")), who.name)
    except UserRefused as error:
        return _render_account(request, 400, str(error))
    return _answer_signed_out(request)


def sign_out_everywhere(request: Request) -> Response:
    """End all of the user's own sessions, in every browser."""
    who = _require_user(request)
    console.get_console(request).desk.users.sign_out_everywhere(who.name, who.name)
    return _answer_signed_out(request)


def _require_user(request: Request) -> Principal:
    who = console.get_principal(request)
    if not who.is_user:
        raise HTTPException(400, "Your account has no password here. Nothing was changed.")
    return who


def _render_account(request: Request, status: int = 200, message: str = "") -> Response:
    return console.get_console(request).page(request, "account.html", status, message=message)


def _answer_signed_out(request: Request) -> Response:
    answer = RedirectResponse("/sign-in", 303)
    browser_session.clear_session_cookie(request, answer)
    return answer


_USED_LINK = "This link was used already, has expired, or is not valid. An admin makes a new one under Users."


def show_invitation(request: Request) -> Response:
    """Show the form of an invitation; its button uses up the link, since chats and mail programs open links."""
    return _render_invitation(request, _require_invited(request))


def choose_password(request: Request) -> Response:
    """Set the password of an invited user, and continue at the sign-in page."""
    name, given = _require_invited(request), request.state.form
    if is_without_tls(request.headers):
        return _render_invitation(
            request, name, 400, "Passwords need HTTPS: put a proxy with TLS in front of the console."
        )
    if given.get("new", "") != given.get("again", ""):
        return _render_invitation(request, name, 400, "The two passwords differ. Nothing was changed.")
    try:
        hashed = passwords.hash_password(name, given.get("new", ""))
    except UserRefused as error:
        return _render_invitation(request, name, 400, str(error))
    if not console.get_console(request).desk.admins.choose(*_read_link(request), hashed):
        raise HTTPException(403, _USED_LINK)
    return RedirectResponse("/sign-in", 303)


def _require_invited(request: Request) -> str:
    name = console.get_console(request).desk.admins.invited(*_read_link(request))
    if name is None:
        raise HTTPException(403, _USED_LINK)
    return name


def _read_link(request: Request) -> tuple[int, str]:
    return request.path_params["id"], request.path_params["token"]


def _render_invitation(request: Request, name: str, status: int = 200, message: str = "") -> Response:
    return console.get_console(request).page(
        request,
        "invitation.html",
        status,
        name=name,
        message=message,
        action=request.url.path,
        shortest=passwords.MIN_PASSWORD_LENGTH,
    )


#: The entry in the audit log.
UNMASK_ACTION = "unmask"


def show_unmask_form(request: Request) -> Response:
    """Show the form that unmasks values, which needs a reason."""
    _check_unmask(request)
    return console.get_console(request).page(
        request, "unmask-form.html", then=choose_redirect_path(request.query_params.get("then", ""))
    )


def lift_masks(request: Request) -> Response:
    """Unmask values for 15 minutes, after an entry in the audit log."""
    _check_unmask(request)
    here, who = console.get_console(request), console.get_principal(request)
    here.desk.trail.add(who.name, UNMASK_ACTION, f"unmasks values for 15 minutes: {require_why(request)}")
    here.masking.lift(who)
    return RedirectResponse(choose_redirect_path(request.state.form.get("then", "")), 303)


def restore_masks(request: Request) -> Response:
    """Mask the values again."""
    console.get_console(request).masking.put_back(console.get_principal(request))
    return RedirectResponse(choose_redirect_path(request.state.form.get("then", "")), 303)


def _check_unmask(request: Request) -> None:
    masking, who = console.get_console(request).masking, console.get_principal(request)
    if masking.masks and not masking.may_be_lifted:
        raise HTTPException(403, "No values are unmasked here: DEADLETTERS_UNMASK is no.")
    if not masking.of_role(who.role):
        raise HTTPException(409, "No values are masked for your role.")
