"""The API's door: who asks is known, what they ask is read, it is answered, and every fault is a problem."""

import json
import logging
import math
import secrets
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from bridge.errors import BridgeError, RequestRefused
from bridge.web import console, knowing, threads
from bridge.web.api import describing, reading
from bridge.web.api.asked import Answer, Asked
from bridge.web.api.once import once
from bridge.web.api.operations import OPERATIONS, Operation
from bridge.web.api.problems import KINDS, ROOT, of_error, of_status, response, type_of
from bridge.web.api.shapes.common import Given
from bridge.web.origins import form_fault
from bridge.web.roles import NOBODY, Who

logger = logging.getLogger("bridge")


def routes() -> list[Route]:
    """Every address of the API."""
    return [
        Route(f"{ROOT}/openapi.json", _description, methods=["GET"]),
        Route(f"{ROOT}/problems/{{name}}", _problem, methods=["GET"]),
        *(Route(ROOT + each.path, _guarded(each), methods=[each.method]) for each in OPERATIONS),
    ]


def refused(request: Request, status: int, detail: str) -> Response:
    """What the router refuses."""
    path = request.url.path.removeprefix(ROOT)
    allow = sorted({each.method for each, fits in _PATHS if fits(path)}) or ["GET"]
    return response(of_status(status, detail, allow))


def failed(request: Request, error: Exception) -> Response:
    """What is answered to an error that nobody expected: a number that is in the log."""
    number = secrets.token_hex(4)
    operation = getattr(request.state, "operation", None)
    # Neither the query nor the path: filters hold keys.
    logger.error("console fault %s at %s", number, operation.path if operation else "the API", exc_info=error)
    words = f"The console has a fault, which is in its log as {number}. Whether something was done is not known."
    return response(RequestRefused("fault", words, instance=number))


def _guarded(operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        request.state.operation, who = operation, NOBODY
        try:
            who = await run_in_threadpool(_admitted, request, operation)
            raw = await _read(request) if operation.method == "POST" else b""
            return await threads.run(operation.waits, _answered, request, operation, who, raw)
        except BridgeError as error:
            return response(of_error(knowing.told(error, who)))
        except Exception as error:
            return failed(request, error)

    return answer


def _admitted(request: Request, operation: Operation) -> Who:
    """Who asks, if they may."""
    asked = console.of(request)
    if fault := form_fault(request.headers, asked.hosts):
        raise RequestRefused("forbidden", fault.replace("form", "request"))
    address = asked.proxy.sender(knowing.peer(request), request.headers)
    who = asked.bearers.who(request.headers.get("authorization"), address)
    if who.role < operation.role:
        raise RequestRefused("forbidden", f"This needs the role {operation.role}; {who.name} has the role {who.role}.")
    return who


async def _read(request: Request) -> bytes:
    body = b""
    async for some in request.stream():
        body += some
        if len(body) > reading.LARGEST:
            raise RequestRefused("too-large", f"The body is larger than {reading.LARGEST:,} bytes. Nothing was done.")
    return body


def _answered(request: Request, operation: Operation, who: Who, raw: bytes) -> Response:
    asked = Asked(
        console=console.of(request),
        desk=console.of(request).desk,
        who=who,
        path=request.path_params,
        query=reading.query(operation.query, request.query_params),
        body=None if operation.takes is None else reading.body(operation.takes, request.headers, raw),
        seen=reading.seen(request.headers),
    )

    def written(answer: Answer) -> Response:
        return _written(operation, answer)

    if operation.act is None:
        return written(operation.answer(asked))
    wish = "\n".join((operation.name, request.url.path, asked.seen or "")).encode() + b"\n" + raw
    return once(operation, asked, request.headers.get("idempotency-key"), wish, written)


def _written(operation: Operation, answer: Answer) -> Response:
    status, headers = answer.status or operation.status, dict(answer.headers)
    if isinstance(answer.body, bytes):
        return Response(answer.body, status, headers, operation.media)
    if isinstance(answer.body, Iterator):
        return StreamingResponse(answer.body, status, headers, operation.media)
    assert isinstance(answer.body, Given)
    return Response(_json(answer.body.model_dump(mode="json")), status, headers, "application/json")


def _json(data: Any) -> bytes:
    return json.dumps(_sayable(data), ensure_ascii=False, allow_nan=False).encode()


def _sayable(data: Any) -> Any:
    """What JSON can say of it: others write names that are no text, and numbers that are none."""
    if isinstance(data, str):
        return data.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace") if _is_odd(data) else data
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, dict):
        return {_sayable(name): _sayable(value) for name, value in data.items()}
    return [_sayable(each) for each in data] if isinstance(data, list) else data


def _is_odd(text: str) -> bool:
    return any("\ud800" <= each <= "\udfff" for each in text)


async def _description(request: Request) -> Response:
    return Response(_described(), media_type="application/json")


@cache
def _described() -> bytes:
    return _json(describing.description())


async def _problem(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in KINDS:
        return refused(request, 404, "")
    kind = KINDS[name]
    return Response(
        _json({"type": type_of(name), "title": kind.title, "status": kind.status}), media_type="application/json"
    )


_PATHS = [(each, describing.fits(each.path)) for each in OPERATIONS]
