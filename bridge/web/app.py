"""The console as an ASGI application: each page behind its role, and every fault a page that says what to do."""

import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.convertors import Convertor, register_url_convertor
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from bridge.errors import (
    BridgeError,
    DeskUnavailable,
    FilterFault,
    NoSuchGroup,
    NoSuchLetter,
    NoSuchPlan,
    PlanRefused,
    UnknownHandler,
    UnknownTopic,
)
from bridge.web import console, files, knowing
from bridge.web.console import Console
from bridge.web.headers import KnownHosts, SecurityHeaders
from bridge.web.origins import form_fault
from bridge.web.roles import NOBODY, Role
from bridge.web.routes import PAGES, Page

logger = logging.getLogger("bridge")

#: Bytes of a form; a value that is edited is the largest thing in one.
LARGEST: Final = 2_000_000
#: What is answered where the desk refuses; all else of its errors is 503.
_STATUS: Final[dict[type[BridgeError], int]] = {
    FilterFault: 400,
    NoSuchGroup: 404,
    NoSuchLetter: 404,
    NoSuchPlan: 404,
    PlanRefused: 400,
    UnknownHandler: 404,
    UnknownTopic: 404,
}


class Number(Convertor[int]):
    """A number of an address, as large as one of the database may be: of a longer one Python makes none."""

    regex = "[0-9]{1,18}"

    def convert(self, value: str) -> int:
        """The number."""
        return int(value)

    def to_string(self, value: int) -> str:
        """The number, written."""
        return str(value)


register_url_convertor("int", Number())


def application(asked: Console) -> Starlette:
    """The console, to be served by any ASGI server."""
    made = Starlette(
        routes=[
            *(Route(page.path, _guarded(page), methods=[page.method]) for page in PAGES),
            Route("/static/{digest}/{name}", files.answer, methods=["GET"]),
        ],
        middleware=[
            Middleware(SecurityHeaders),
            Middleware(KnownHosts, names=asked.hosts),
            Middleware(GZipMiddleware, minimum_size=1_000),
        ],
        exception_handlers={HTTPException: _http, DeskUnavailable: _desk, BridgeError: _desk, Exception: _fault},
    )
    made.state.console = asked
    return made


def _guarded(page: Page) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        request.state.page = page
        try:
            return await allowed(request)
        except (HTTPException, BridgeError):
            raise
        except Exception as error:
            # Not left to Starlette: what it answers itself has none of our headers, and is logged twice.
            return _fault(request, error)

    async def allowed(request: Request) -> Response:
        who = request.state.who = await run_in_threadpool(knowing.who, console.of(request), request)
        if who.role < page.role:
            if who is NOBODY:
                return RedirectResponse(f"/sign-in?then={quote(_asked_for(request), safe='')}", 303)
            raise HTTPException(403, f"This needs the role {page.role}; {who.name} has the role {who.role}.")
        if page.method == "POST":
            await _read(request, who.token if page.role > Role.NOBODY else None)
        return await run_in_threadpool(page.answer, request)

    return answer


async def _read(request: Request, token: str | None) -> None:
    """Read a form into `request.state.form`: from this site, with the session's token, and not too large."""
    if fault := form_fault(request.headers, console.of(request).hosts):
        raise HTTPException(403, f"{fault} Nothing was changed.")
    body = b""
    async for some in request.stream():
        body += some
        if len(body) > LARGEST:
            raise HTTPException(413, f"This form is larger than {LARGEST:,} bytes.")
    request.state.form = QueryParams(body.decode("utf-8", "replace"))
    if token is not None and not hmac.compare_digest(request.state.form.get("token", "").encode(), token.encode()):
        raise HTTPException(403, "This form is of another session: load the page again. Nothing was changed.")


def _asked_for(request: Request) -> str:
    """Where somebody was going, to go on there; after a form, to its page."""
    if request.method != "GET":
        return "/"
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def _http(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 500)
    words = "There is no such page." if status == 404 else str(getattr(error, "detail", error))
    return console.of(request).page(request, "fault.html", status, words=words, number="")


def _desk(request: Request, error: Exception) -> Response:
    status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 503)
    return console.of(request).page(request, "fault.html", status, words=str(error), number="")


def _fault(request: Request, error: Exception) -> Response:
    number = secrets.token_hex(4)
    # Neither the query nor the path: filters hold keys, and a link opens the console.
    page = getattr(request.state, "page", None)
    logger.error("console fault %s at %s", number, page.path if page else "/static", exc_info=error)
    words = "The console has a fault, which is in its log. Bridge, workers and plans run on without it."
    return console.of(request).page(request, "fault.html", 500, words=words, number=number)
