"""The pages of sign-in (by password, by one-time link, by OpenID Connect) and sign-out, and the health check."""

import logging
from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from bridge.console import console
from bridge.console.auth import authentication, browser_session
from bridge.console.auth.http_security import choose_redirect_path, is_without_tls
from bridge.console.auth.login_throttle import ThrottleVerdict
from bridge.console.auth.password_sign_in import sign_in_by_password
from bridge.deadletters.accounts.account_session import BY_LINK
from bridge.errors import IssuerUnavailable, SignInRefused, TooManySignIn

if TYPE_CHECKING:
    from bridge.console.auth.oidc_client import OidcSignIn

logger = logging.getLogger("bridge")

#: The most characters of an audit entry about a failed sign-in.
MAX_SAID: Final = 500

#: One message for both, so that it does not reveal which names exist.
_WRONG_PASSWORD = "Name or password is wrong."


def show_sign_in(request: Request) -> Response:
    """Show the sign-in page."""
    return render_sign_in(request, then=request.query_params.get("then", ""))


def sign_in(request: Request) -> Response:
    """Sign in by name and password, and continue at the requested address."""
    here, given = console.get_console(request), request.state.form
    name, then = given.get("name", "").strip().lower()[:200], given.get("then", "")
    if is_without_tls(request.headers):
        return render_sign_in(
            request, then=then, message="Passwords need HTTPS: put a proxy with TLS in front of the console."
        )
    signed = sign_in_by_password(here, request, name, given.get("password", ""))
    if signed.verdict.waits:
        return render_sign_in(request, 429, then=then, given=name, waiting=signed.verdict)
    if signed.cookie is None:
        message = f"{_WRONG_PASSWORD} {signed.verdict.warning}"
        return render_sign_in(request, 403, then=then, given=name, message=message)
    answer = answer_signed_in(request, signed.cookie, choose_redirect_path(then))
    browser_session.set_device_cookie(request, answer, name, signed.password)
    return answer


def show_link(request: Request) -> Response:
    """Show the page of a one-time link; its button uses up the link, since chats and mail programs open links."""
    return console.get_console(request).page(request, "sign-in-link.html", token=request.path_params["token"])


def sign_in_by_link(request: Request) -> Response:
    """Sign in by the one-time link, if there are no users."""
    here = console.get_console(request)
    cookie = here.sessions.begin_by_link(request.path_params["token"])
    if cookie is None:
        message = (
            "This link was used already, is not valid, or there are users now. Sign in by name, or restart "
            "`bridge deadletters serve` for a new link."
        )
        here.sign_in_audit.failed(f"a one-time link that is not valid, at {_get_address(request)}")
        return here.fault(request, 403, message)
    here.sign_in_audit.signed_in(BY_LINK, "somebody signed in by the one-time link")
    return answer_signed_in(request, cookie, "/")


def sign_out(request: Request) -> Response:
    """Sign out."""
    console.get_console(request).sessions.end(browser_session.read_session_cookie(request))
    console.get_console(request).sign_in_audit.signed_out(console.get_principal(request).name)
    answer = RedirectResponse("/sign-in", 303)
    browser_session.clear_session_cookie(request, answer)
    return answer


def _get_address(request: Request) -> str:
    proxy = console.get_console(request).proxy
    return proxy.sender(authentication.get_peer_address(request), request.headers)


def answer_health(request: Request) -> Response:
    """Answer a health check."""
    return PlainTextResponse("ok\n")


def render_sign_in(
    request: Request,
    status: int = 200,
    *,
    then: str,
    given: str = "",
    message: str = "",
    waiting: ThrottleVerdict | None = None,
) -> Response:
    """Render the sign-in page, with an error if there is one."""
    here = console.get_console(request)
    way_in = "users" if here.desk.users.any() else "proxy" if here.proxy.user_header else "link"
    values = {
        "then": choose_redirect_path(then),
        "given": given,
        "message": message,
        "waiting": waiting,
        "way_in": way_in,
    }
    return here.page(request, "sign-in.html", status, issuer=here.issuer, **values)


def answer_signed_in(request: Request, cookie: str, to: str) -> Response:
    """Set the new session cookie, and continue at the requested address."""
    # The previous session of this browser ends: each sign-in has a cookie of its own.
    console.get_console(request).sessions.end(browser_session.read_session_cookie(request))
    answer = RedirectResponse(to, 303)
    browser_session.set_session_cookie(request, answer, cookie)
    return answer


#: The seconds within which the user must return.
_OIDC_SECONDS = 600


def begin_oidc(request: Request) -> Response:
    """Redirect to the issuer, with the state of the sign-in in a cookie."""
    # The page has a link instead of a form: `form-action` allows this site only, also for redirects of forms.
    then = choose_redirect_path(request.query_params.get("then", ""))
    try:
        issuer_address, state = _require_issuer(request).begin(then)
    except (IssuerUnavailable, TooManySignIn) as error:
        return _answer_unavailable(request, error, then)
    answer = RedirectResponse(issuer_address, 303)
    browser_session.set_oidc_cookie(request, answer, state, _OIDC_SECONDS)
    return answer


def finish_oidc(request: Request) -> Response:
    """Sign in the user who returns from the issuer, and continue at the requested address."""
    try:
        identity, then = _require_issuer(request).end(browser_session.read_oidc_cookie(request), request.query_params)
    except (IssuerUnavailable, TooManySignIn) as error:
        answer = _answer_unavailable(request, error, "/")
    except SignInRefused as error:
        logger.warning("sign-in by the issuer refused: %s", error)
        here = console.get_console(request)
        here.sign_in_audit.failed(f"refused by the issuer's answer, at {_get_address(request)}: {error}"[:MAX_SAID])
        answer = render_sign_in(request, 403, then="/", message=str(error))
    else:
        cookie = console.get_console(request).sessions.begin_issued(identity)
        answer = answer_signed_in(request, cookie, choose_redirect_path(then))
    browser_session.clear_oidc_cookie(request, answer)
    return answer


def _answer_unavailable(request: Request, error: Exception, then: str) -> Response:
    logger.warning("sign-in by the issuer failed: %s", error)
    return render_sign_in(request, 503, then=then, message=str(error))


def _require_issuer(request: Request) -> "OidcSignIn":
    issuer = console.get_console(request).issuer
    if issuer is None:
        raise HTTPException(404)
    return issuer
