"""Signing in and out."""

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from bridge.web import console
from bridge.web.roles import Role
from bridge.web.sessions import COOKIE, LASTS

#: Who a one-time link signs in.
BY_LINK = "one-time link"


def form(request: Request) -> Response:
    """How somebody signs in."""
    return console.of(request).page(request, "sign-in.html")


def link(request: Request) -> Response:
    """The page of a one-time link: it is used up by its button alone, since chats and mail programs open links."""
    return console.of(request).page(request, "link.html", token=request.path_params["token"])


def by_link(request: Request) -> Response:
    """Sign in by a one-time link."""
    asked = console.of(request)
    if not asked.sessions.use_link(request.path_params["token"]):
        words = "This link was used already, or is none: start `bridge deadletters serve` anew for another."
        return asked.page(request, "fault.html", 403, words=words, number="")
    return _signed_in(asked.sessions.begin(BY_LINK, Role.ADMIN))


def out(request: Request) -> Response:
    """Sign out."""
    console.of(request).sessions.end(request.cookies.get(COOKIE))
    answer = RedirectResponse("/sign-in", 303)
    answer.delete_cookie(COOKIE, secure=True, httponly=True, samesite="lax")
    return answer


def alive(request: Request) -> Response:
    """For probes."""
    return PlainTextResponse("ok\n")


def _signed_in(cookie: str) -> Response:
    answer = RedirectResponse("/", 303)
    answer.set_cookie(COOKIE, cookie, max_age=LASTS, secure=True, httponly=True, samesite="lax", path="/")
    return answer
