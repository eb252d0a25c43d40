"""The console as an ASGI application: each page behind its role, and every fault a page that says what to do."""

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
from bridge.web import console, files, knowing, threads
from bridge.web.api import door, problems
from bridge.web.console import Console
from bridge.web.headers import ALIVE, Compressed, KnownHosts, SecurityHeaders
from bridge.web.keeping import Form
from bridge.web.origins import form_fault, way
from bridge.web.roles import NOBODY, Role, Who
from bridge.web.routes import PAGES, Page

logger = logging.getLogger("bridge")

#: Bytes of a form; a value that is edited is the largest thing in one.
LARGEST: Final = 2_000_000
#: Fields of a form, more than the letters that may be named one by one: to take a million apart takes seconds.
FIELDS: Final = 11_000
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


#: Where the database is away: who is signed in stands in it, so no page can be shown to anybody.
_WITHOUT_DATABASE: Final = (
    "Nothing was lost by that: bridges and workers run on, and what dies stays in Kafka until it can be recorded. "
    "These ask no database: `bridge status`, `bridge audit TOPIC`, `bridge find`, `bridge halt`, and "
    "`bridge deadletters list --from-topic`."
)


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
            *(Route(page.path, _served(page), methods=[page.method]) for page in PAGES),
            Route("/static/{digest}/{name}", files.answer, methods=["GET"]),
            *door.routes(),
        ],
        middleware=[
            Middleware(SecurityHeaders),
            Middleware(KnownHosts, names=asked.hosts),
            Middleware(Compressed),
        ],
        exception_handlers={HTTPException: _http, DeskUnavailable: _desk, BridgeError: _desk, Exception: _fault},
    )
    made.state.console = asked
    return made


def _served(page: Page) -> Callable[[Request], Awaitable[Response]]:
    # In no thread: where Kafka is away all of them may wait for it, and a probe would end the console.
    async def probed(request: Request) -> Response:
        return page.answer(request)

    return probed if page.path == ALIVE else _guarded(page)


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
        if who is NOBODY and page.role > Role.NOBODY:
            then = _asked_for(request) if page.method == "GET" else await _form_of_nobody(request, page)
            return RedirectResponse(f"/sign-in?then={quote(then, safe='')}", 303)
        if who.role < page.role:
            raise HTTPException(403, f"This needs the role {page.role}; {who.name} has the role {who.role}.")
        if page.method == "POST":
            await _read(request)
            if page.role > Role.NOBODY and not _is_of(request.state.form, who):
                return _form_of_another(request, page, who)
        elif id_ := request.query_params.get("kept"):
            request.state.kept = console.of(request).keeping.found(id_, who.name, request.scope["path"])
        return await threads.run(page.waits, page.answer, request)

    return answer


async def _read(request: Request) -> None:
    """Read a form into `request.state.form`: from this site, and not too large."""
    if fault := form_fault(request.headers, console.of(request).hosts):
        raise HTTPException(403, f"{fault} Nothing was changed.")
    body = bytearray()
    async for some in request.stream():
        body += some
        if len(body) > LARGEST:
            raise HTTPException(413, f"This form is larger than {LARGEST:,} bytes.")
    if body.count(b"&") >= FIELDS:
        raise HTTPException(413, f"This form has more than {FIELDS:,} fields.")
    # In a thread: others are answered meanwhile.
    request.state.form = await run_in_threadpool(lambda: QueryParams(body.decode("utf-8", "replace")))


def _is_of(form: QueryParams, who: Who) -> bool:
    """Whether a form has the token of this session."""
    return hmac.compare_digest(form.get("token", "").encode(), who.token.encode())


async def _form_of_nobody(request: Request, page: Page) -> str:
    """Where somebody whose session has ended goes on after signing in: to the form, with what they had filled in."""
    try:
        await _read(request)
    except HTTPException:
        return "/"
    return _kept(request, page, console.of(request).keeping.whose(request.state.form.get("mark", "")))


def _form_of_another(request: Request, page: Page, who: Who) -> Response:
    """Somebody has signed in anew since the form was shown: they look at it once more. Another's form is nobody's."""
    if page.form and console.of(request).keeping.whose(request.state.form.get("mark", "")) == who.name:
        return RedirectResponse(_kept(request, page, who.name), 303)
    raise HTTPException(403, "This form is of another session: load the page again. Nothing was changed.")


def _kept(request: Request, page: Page, whose: str | None) -> str:
    """The address of a form, with what was filled in where it is known whose it is."""
    fields = request.state.form
    of_path = {name: quote(str(value), safe="") for name, value in request.path_params.items()}
    there = way(page.form.format_map({**of_path, "from": fields.get("from", "/")})) if page.form else "/"
    if whose is None or not page.form:
        return there
    id_ = console.of(request).keeping.keep(Form(whose, unquote(urlsplit(there).path), fields))
    if not id_:
        return there
    before, mark, fragment = there.partition("#")
    return f"{before}{'&' if '?' in before else '?'}kept={id_}{mark}{fragment}"


def _asked_for(request: Request) -> str:
    """Where somebody was going, to go on there."""
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def _http(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 500)
    if problems.is_here(request.url.path):
        return door.refused(request, status, str(getattr(error, "detail", error)))
    words = "There is no such page." if status == 404 else str(getattr(error, "detail", error))
    return console.of(request).fault(request, status, words)


def _desk(request: Request, error: Exception) -> Response:
    assert isinstance(error, BridgeError)
    status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 503)
    instead = _WITHOUT_DATABASE if isinstance(error, DeskUnavailable) else ""
    words = str(knowing.told(error, getattr(request.state, "who", NOBODY)))
    return console.of(request).fault(request, status, words, instead=instead)


def _fault(request: Request, error: Exception) -> Response:
    number = secrets.token_hex(4)
    # Neither the query nor the path: filters hold keys, and a link opens the console.
    page = getattr(request.state, "page", None)
    logger.error("console fault %s at %s", number, page.path if page else "/static", exc_info=error)
    words = "The console has a fault, which is in its log. Bridge, workers and plans run on without it."
    return console.of(request).fault(request, 500, words, number)
