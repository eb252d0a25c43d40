"""What somebody can change of themselves: their password, and where they are signed in."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.errors import UserRefused
from bridge.web import console, cookies, knowing, passwords
from bridge.web.roles import Who


def one(request: Request) -> Response:
    """Who one is, and what one may."""
    return _page(request)


def password(request: Request) -> Response:
    """Another password, for who knows the one before; they are signed out everywhere, and sign in by it."""
    asked, who, form = console.of(request), _user(request), request.state.form
    address = asked.proxy.sender(knowing.peer(request), request.headers)
    # Who has found an open browser guesses no faster here than on the sign-in page.
    guess = asked.guesses.guess(who.name, address)
    if guess.waits:
        return _page(request, 429, f"Too many wrong ones: this {guess.waits} waits, and no password was tried.")
    secret = asked.desk.users.secret(who.name)
    if not passwords.fits(secret and secret.password, form.get("password", "")):
        return _page(request, 403, f"The password until now is wrong. {guess.warning} Nothing was changed.")
    asked.guesses.right(who.name, address)
    if form.get("new", "") != form.get("again", ""):
        return _page(request, 400, "The new password is not the same twice. Nothing was changed.")
    try:
        asked.desk.users.give_password(who.name, passwords.hashed(who.name, form.get("new", "")), who.name)
    except UserRefused as error:
        return _page(request, 400, str(error))
    return _out(request)


def sign_out_everywhere(request: Request) -> Response:
    """End all of one's sessions, in every browser."""
    who = _user(request)
    console.of(request).desk.users.sign_out_everywhere(who.name, who.name)
    return _out(request)


def _user(request: Request) -> Who:
    who = console.asking(request)
    if not who.is_user:
        raise HTTPException(400, "You have no password here that could be changed. Nothing was changed.")
    return who


def _page(request: Request, status: int = 200, words: str = "") -> Response:
    return console.of(request).page(request, "account.html", status, words=words)


def _out(request: Request) -> Response:
    answer = RedirectResponse("/sign-in", 303)
    cookies.take(request, answer)
    return answer
