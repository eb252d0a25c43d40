"""A password chosen by a link that an admin has given: the first, or another."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.errors import UserRefused
from bridge.web import console, passwords
from bridge.web.origins import is_plain

_WORTHLESS = "This link was used already, is over, or is none: an admin makes another, under Users."


def form(request: Request) -> Response:
    """The form: the link is used up by its button alone, since chats and mail programs open links."""
    return _form(request, _whose(request))


def choose(request: Request) -> Response:
    """Take the password, and have them sign in by it."""
    name, given = _whose(request), request.state.form
    if is_plain(request.headers):
        return _form(request, name, 400, "Passwords travel over HTTPS alone: put a proxy with TLS before this.")
    if given.get("new", "") != given.get("again", ""):
        return _form(request, name, 400, "The password is not the same twice. Nothing was changed.")
    try:
        kept = passwords.hashed(name, given.get("new", ""))
    except UserRefused as error:
        return _form(request, name, 400, str(error))
    if not console.of(request).desk.admins.choose(*_link(request), kept):
        raise HTTPException(403, _WORTHLESS)
    return RedirectResponse("/sign-in", 303)


def _whose(request: Request) -> str:
    name = console.of(request).desk.admins.invited(*_link(request))
    if name is None:
        raise HTTPException(403, _WORTHLESS)
    return name


def _link(request: Request) -> tuple[int, str]:
    return request.path_params["id"], request.path_params["token"]


def _form(request: Request, name: str, status: int = 200, words: str = "") -> Response:
    return console.of(request).page(
        request, "welcome.html", status, name=name, words=words, action=request.url.path, shortest=passwords.SHORTEST
    )
