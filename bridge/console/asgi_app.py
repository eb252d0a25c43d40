"""The console as an ASGI application: roles and form tokens of pages, static files, error pages."""

import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.convertors import Convertor, register_url_convertor
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from bridge.console import console, shown_zone, thread_pools
from bridge.console.api import api_endpoint, problem_details
from bridge.console.auth import authentication
from bridge.console.auth.authorization import ANONYMOUS, Principal, check_scope, find_role_refusal
from bridge.console.auth.http_security import (
    HEALTH_PATH,
    KnownHostsOnly,
    SafeCompression,
    SecurityHeaders,
    choose_redirect_path,
    find_form_fault,
)
from bridge.console.console import STATIC_FOLDER, Console, build_static_address
from bridge.console.form_drafts import FormDraft
from bridge.console.pages.page_routes import PAGE_ROUTES, PageRoute
from bridge.deadletters.accounts.user_account import Role
from bridge.errors import (
    BridgeError,
    DeskUnavailable,
    FilterFault,
    HaltRefused,
    NoSuchGroup,
    NoSuchLetter,
    NoSuchPlan,
    NoSuchRecord,
    OutsideScope,
    PlanRefused,
    ScopeFault,
    UnknownHandler,
    UnknownTopic,
)

_STATIC_TYPES: Final = {
    "console.css": "text/css",
    "console.js": "text/javascript",
    "live.js": "text/javascript",
    "payload.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}


def serve_static_file(request: Request) -> Response:
    """Serve a static file of the console."""
    name = request.path_params["name"]
    if name not in _STATIC_TYPES or request.url.path != build_static_address(name):
        raise HTTPException(404)
    headers = {"cache-control": "public, max-age=31536000, immutable"}
    return Response((STATIC_FOLDER / name).read_bytes(), media_type=_STATIC_TYPES[name], headers=headers)


logger = logging.getLogger("bridge")

#: The size limit of a form, in bytes; its largest content is an edited value.
MAX_FORM_BYTES: Final = 2_000_000
#: The most fields of a form, more than the letters that it may name: parsing a million takes seconds.
MAX_FORM_FIELDS: Final = 11_000
#: The status of each refusal of the dead-letter store; all its other errors are 503.
_STATUS_OF_ERROR: Final[dict[type[BridgeError], int]] = {
    FilterFault: 400,
    HaltRefused: 400,
    NoSuchGroup: 404,
    NoSuchLetter: 404,
    NoSuchPlan: 404,
    NoSuchRecord: 404,
    OutsideScope: 403,
    PlanRefused: 400,
    ScopeFault: 400,
    UnknownHandler: 404,
    UnknownTopic: 404,
}


#: The answer while the database is unavailable: it has the sessions, so no page can be shown to anybody.
_WITHOUT_DATABASE: Final = (
    "Nothing was lost by that: bridges and workers run on, and what dies stays in Kafka until it can be recorded. "
    "These ask no database: `bridge status`, `bridge audit TOPIC`, `bridge find`, `bridge halt`, and "
    "`bridge deadletters list --from-topic`."
)


class PathNumber(Convertor[int]):
    """A number in an address, as large as the database can hold: Python refuses to convert longer ones."""

    regex = "[0-9]{1,18}"

    def convert(self, value: str) -> int:
        """Return the number."""
        return int(value)

    def to_string(self, value: int) -> str:
        """Return the number as text."""
        return str(value)


register_url_convertor("int", PathNumber())


def build_application(asked: Console) -> Starlette:
    """Build the console, to be served by any ASGI server."""
    made = Starlette(
        routes=[
            *(Route(page.path, _build_endpoint(page), methods=[page.method]) for page in PAGE_ROUTES),
            Route("/static/{digest}/{name}", serve_static_file, methods=["GET"]),
            *api_endpoint.build_api_operation(),
        ],
        middleware=[
            Middleware(SecurityHeaders),
            Middleware(KnownHostsOnly, names=asked.hosts),
            Middleware(SafeCompression),
        ],
        exception_handlers={
            HTTPException: _answer_http_error,
            DeskUnavailable: _answer_store_error,
            BridgeError: _answer_store_error,
            Exception: _answer_fault,
        },
    )
    made.state.console = asked
    return made


def _build_endpoint(page: PageRoute) -> Callable[[Request], Awaitable[Response]]:
    # In no thread: all threads may wait for an unavailable Kafka, and a failing probe would restart the console.
    async def probed(request: Request) -> Response:
        return page.answer(request)

    return probed if page.path == HEALTH_PATH else _guard_page(page)


def _guard_page(page: PageRoute) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        request.state.page = page
        shown_zone.set_zone(shown_zone.find_zone(request.cookies.get(shown_zone.ZONE_COOKIE, "")))
        try:
            return await allowed(request)
        except (HTTPException, BridgeError):
            raise
        except Exception as error:
            # Not left to Starlette: its own answers lack our headers, and it logs the error a second time.
            return _answer_fault(request, error)

    async def allowed(request: Request) -> Response:
        who = request.state.who = await run_in_threadpool(
            authentication.authenticate, console.get_console(request), request
        )
        if who is ANONYMOUS and page.role > Role.NOBODY:
            then = (
                _get_requested_address(request)
                if page.method == "GET"
                else await _keep_form_without_session(request, page)
            )
            return RedirectResponse(f"/sign-in?then={quote(then, safe='')}", 303)
        if refusal := find_role_refusal(who, page.role):
            raise HTTPException(403, refusal)
        whole = console.get_console(request)
        check_scope(page.scope, who, whole.desk, request.path_params)
        request.state.console = whole.for_principal(who)
        if page.method == "POST":
            await _read_form(request)
            if page.role > Role.NOBODY and not _has_session_token(request.state.form, who):
                return _answer_other_session(request, page, who)
        elif id_ := request.query_params.get("kept"):
            request.state.kept = console.get_console(request).form_drafts.find_draft(
                id_, who.name, request.scope["path"]
            )
        return await thread_pools.run_in_pool(page.waits, page.answer, request)

    return answer


async def _read_form(request: Request) -> None:
    """Read a form into `request.state.form`, if it comes from this site and is not too large."""
    if fault := find_form_fault(request.headers, console.get_console(request).hosts):
        raise HTTPException(403, f"{fault} Nothing was changed.")
    body = bytearray()
    async for some in request.stream():
        body += some
        if len(body) > MAX_FORM_BYTES:
            raise HTTPException(413, f"This form is larger than {MAX_FORM_BYTES:,} bytes.")
    if body.count(b"&") >= MAX_FORM_FIELDS:
        raise HTTPException(413, f"This form has more than {MAX_FORM_FIELDS:,} fields.")
    # In a thread: the event loop serves other requests meanwhile.
    request.state.form = await run_in_threadpool(lambda: QueryParams(body.decode("utf-8", "replace")))


def _has_session_token(form: QueryParams, who: Principal) -> bool:
    """Return whether a form has the token of this session."""
    return hmac.compare_digest(form.get("token", "").encode(), who.token.encode())


async def _keep_form_without_session(request: Request, page: PageRoute) -> str:
    """Redirect to the sign-in, and from there back to the form with the values that were typed."""
    try:
        await _read_form(request)
    except HTTPException:
        return "/"
    return _keep_form_draft(
        request, page, console.get_console(request).form_drafts.whose(request.state.form.get("mark", ""))
    )


def _answer_other_session(request: Request, page: PageRoute, who: Principal) -> Response:
    """Show the form again after a new sign-in of the same user; refuse a form of another user."""
    if page.form and console.get_console(request).form_drafts.whose(request.state.form.get("mark", "")) == who.name:
        return RedirectResponse(_keep_form_draft(request, page, who.name), 303)
    raise HTTPException(403, "This form is of another session: load the page again. Nothing was changed.")


def _keep_form_draft(request: Request, page: PageRoute, whose: str | None) -> str:
    """Return the address of a form, with its kept draft if its author is known."""
    fields = request.state.form
    of_path = {name: quote(str(value), safe="") for name, value in request.path_params.items()}
    there = (
        choose_redirect_path(page.form.format_map({**of_path, "from": fields.get("from", "/")})) if page.form else "/"
    )
    if whose is None or not page.form:
        return there
    id_ = console.get_console(request).form_drafts.keep(FormDraft(whose, unquote(urlsplit(there).path), fields))
    if not id_:
        return there
    before, mark, fragment = there.partition("#")
    return f"{before}{'&' if '?' in before else '?'}kept={id_}{mark}{fragment}"


def _get_requested_address(request: Request) -> str:
    """Return the address that was requested, to continue there after signing in."""
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def _answer_http_error(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 500)
    if problem_details.is_api_path(request.url.path):
        return api_endpoint.refuse_request(request, status, str(getattr(error, "detail", error)))
    words = "There is no such page." if status == 404 else str(getattr(error, "detail", error))
    return console.get_console(request).fault(request, status, words)


def _answer_store_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, BridgeError)
    status = next((status for kind, status in _STATUS_OF_ERROR.items() if isinstance(error, kind)), 503)
    instead = _WITHOUT_DATABASE if isinstance(error, DeskUnavailable) else ""
    words = str(authentication.redact_error(error, getattr(request.state, "who", ANONYMOUS)))
    return console.get_console(request).fault(request, status, words, instead=instead)


def _answer_fault(request: Request, error: Exception) -> Response:
    number = secrets.token_hex(4)
    # Neither the query nor the path: filters hold keys, and a link opens the console.
    page = getattr(request.state, "page", None)
    logger.error("console fault %s at %s", number, page.path if page else "/static", exc_info=error)
    words = "The console has a fault, which is in its log. Bridge, workers and plans run on without it."
    return console.get_console(request).fault(request, 500, words, number)
