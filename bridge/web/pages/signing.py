"""Signing in and out."""

import logging

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from bridge.deadletters.store.users import Secret
from bridge.deadletters.users.sessions import BY_LINK
from bridge.deadletters.users.users import WHAT
from bridge.web import console, cookies, knowing, passwords
from bridge.web.console import Console
from bridge.web.guesses import Guess
from bridge.web.origins import is_plain, way

logger = logging.getLogger("bridge")

#: One message for both, so that nobody learns which names there are.
_WRONG = "Name or password is wrong."


def form(request: Request) -> Response:
    """How somebody signs in."""
    return page(request, then=request.query_params.get("then", ""))


def enter(request: Request) -> Response:
    """Sign in by name and password, and go on to where one was going."""
    asked, given = console.of(request), request.state.form
    name, then = given.get("name", "").strip().lower()[:200], given.get("then", "")
    if is_plain(request.headers):
        return page(request, then=then, words="Passwords travel over HTTPS alone: put a proxy with TLS before this.")
    address = asked.proxy.sender(knowing.peer(request), request.headers)
    kept = asked.desk.users.secret(name)
    device = cookies.device(request, name, kept and kept.password)
    guess = asked.guesses.guess(name, address, device)
    if guess.waits:
        return page(request, 429, then=then, given=name, waiting=guess)
    secret = _right(asked, kept, given.get("password", ""))
    cookie = asked.sessions.begin(secret) if secret else None
    if secret is None or cookie is None:
        # Not the name: people type their password there.
        logger.warning("somebody at %s gave a wrong name or password to the console", address)
        return page(request, 403, then=then, given=name, words=f"{_WRONG} {guess.warning}")
    asked.guesses.right(name, address, device)
    asked.desk.trail.add(name, WHAT, f"{name} signed in at {address}")
    answer = signed_in(request, cookie, way(then))
    cookies.keep_device(request, answer, name, secret.password)
    return answer


def _right(asked: Console, secret: Secret | None, password: str) -> Secret | None:
    """The user whose password it is; for a name that there is not it takes as long."""
    if not passwords.fits(secret and secret.password, password) or secret is None:
        return None
    better = passwords.better(secret.password, password)
    return asked.desk.users.rehashed(secret, better) if better else secret


def link(request: Request) -> Response:
    """The page of a one-time link: it is used up by its button alone, since chats and mail programs open links."""
    return console.of(request).page(request, "link.html", token=request.path_params["token"])


def by_link(request: Request) -> Response:
    """Sign in by a one-time link, where there are no users."""
    asked = console.of(request)
    cookie = asked.sessions.begin_by_link(request.path_params["token"])
    if cookie is None:
        words = (
            "This link was used already, or is none, or there are users now: start `bridge deadletters serve` anew for "
            "another, or sign in by name."
        )
        return asked.fault(request, 403, words)
    asked.desk.trail.add(BY_LINK, WHAT, "somebody signed in by the one-time link")
    return signed_in(request, cookie, "/")


def out(request: Request) -> Response:
    """Sign out."""
    console.of(request).sessions.end(cookies.given(request))
    answer = RedirectResponse("/sign-in", 303)
    cookies.take(request, answer)
    return answer


def alive(request: Request) -> Response:
    """For probes."""
    return PlainTextResponse("ok\n")


def page(
    request: Request, status: int = 200, *, then: str, given: str = "", words: str = "", waiting: Guess | None = None
) -> Response:
    """The sign-in page, with what was wrong."""
    asked = console.of(request)
    way_in = "users" if asked.desk.users.any() else "proxy" if asked.proxy.user_header else "link"
    around = {"then": way(then), "given": given, "words": words, "waiting": waiting, "way_in": way_in}
    return asked.page(request, "sign-in.html", status, issuer=asked.issuer, **around)


def signed_in(request: Request, cookie: str, to: str) -> Response:
    """Give a browser its new cookie, and send it on."""
    # Whoever was signed in here is not any more: each signing in has a cookie of its own.
    console.of(request).sessions.end(cookies.given(request))
    answer = RedirectResponse(to, 303)
    cookies.give(request, answer, cookie)
    return answer
