"""Problem details (RFC 9457): the table of the API error types, and the type of each exception."""

import json
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from starlette.responses import Response

from bridge.errors import (
    BridgeError,
    CopyRefused,
    DeskOfAnotherKafka,
    DeskRefused,
    EditRefused,
    FilterFault,
    GroupChanged,
    HaltRefused,
    KeyReused,
    NoMoment,
    NoSuchGroup,
    NoSuchLetter,
    NoSuchPlan,
    NoSuchRecord,
    OutsideScope,
    PatchRefused,
    PlanChanged,
    PlanRefused,
    PolicyRefused,
    RedriveRefused,
    RequestRefused,
    RequestTakenOver,
    RequestUnderWay,
    ScopeFault,
    UnknownHandler,
    UnknownTopic,
)

#: The prefix of all API paths.
API_ROOT: Final = "/api/v1"
PROBLEM_JSON: Final = "application/problem+json"


class ProblemKind(NamedTuple):
    """The HTTP status and the title of one kind of problem."""

    status: int
    title: str


PROBLEM_KINDS: Final[Mapping[str, ProblemKind]] = {
    "malformed": ProblemKind(400, "The request cannot be read."),
    "key-missing": ProblemKind(400, "An Idempotency-Key is required."),
    "unauthorized": ProblemKind(401, "A token is needed."),
    "forbidden": ProblemKind(403, "This token may not do it."),
    "not-found": ProblemKind(404, "There is no such thing."),
    "method-not-allowed": ProblemKind(405, "This address has no such method."),
    "under-way": ProblemKind(409, "The same request is done just now."),
    "changed": ProblemKind(409, "The resource has changed."),
    "too-large": ProblemKind(413, "The request is too large."),
    "media-type": ProblemKind(415, "The body is JSON."),
    "misdirected": ProblemKind(421, "The Host header names another console."),
    "invalid": ProblemKind(422, "The request is invalid."),
    "refused": ProblemKind(422, "The request was refused."),
    "key-reused": ProblemKind(422, "Something else was asked under this Idempotency-Key."),
    "not-seen": ProblemKind(428, "If-Match is required."),
    "slow-down": ProblemKind(429, "Too many wrong tokens."),
    "fault": ProblemKind(500, "The console has a fault."),
    "unavailable": ProblemKind(503, "A server does not answer."),
}

#: The problems of the store's errors; all other errors mean that a server does not respond.
_KINDS_OF_ERRORS: Final[tuple[tuple[type[BridgeError], str], ...]] = (
    (PlanChanged, "changed"),
    (GroupChanged, "changed"),
    (RequestUnderWay, "under-way"),
    (RequestTakenOver, "under-way"),
    (KeyReused, "key-reused"),
    (NoSuchGroup, "not-found"),
    (NoSuchLetter, "not-found"),
    (NoSuchPlan, "not-found"),
    (NoSuchRecord, "not-found"),
    (OutsideScope, "forbidden"),
    (UnknownHandler, "not-found"),
    (UnknownTopic, "not-found"),
    (CopyRefused, "refused"),
    (DeskOfAnotherKafka, "refused"),
    (DeskRefused, "refused"),
    (EditRefused, "refused"),
    (HaltRefused, "refused"),
    (FilterFault, "refused"),
    (NoMoment, "refused"),
    (PatchRefused, "refused"),
    (PlanRefused, "refused"),
    (PolicyRefused, "refused"),
    (RedriveRefused, "refused"),
    (ScopeFault, "refused"),
)
_KINDS_OF_STATUS: Final = {400: "malformed", 403: "forbidden", 404: "not-found", 405: "method-not-allowed"}


def build_problem_response(refused: RequestRefused) -> Response:
    """Return the answer to a refused request."""
    kind = PROBLEM_KINDS[refused.name]
    common = {
        "type": build_problem_type(refused.name),
        "title": kind.title,
        "status": kind.status,
        "detail": str(refused),
    }
    more = {name: value for name, value in refused.more.items() if value is not None}
    return Response(json.dumps(common | more), kind.status, refused.headers, PROBLEM_JSON)


def is_api_path(path: str) -> bool:
    """Return whether a path belongs to the API."""
    return path == "/api" or path.startswith("/api/")


def build_problem_type(name: str) -> str:
    """Return the type of a kind of problem: an address with its explanation."""
    return f"{API_ROOT}/problems/{name}"


def convert_error(error: BridgeError) -> RequestRefused:
    """Return the problem for an error of the store or of a server."""
    if isinstance(error, RequestRefused):
        return error
    name = next((name for kind, name in _KINDS_OF_ERRORS if isinstance(error, kind)), "unavailable")
    headers = {"retry-after": "5"} if name in ("unavailable", "under-way") else {}
    return RequestRefused(name, str(error), headers)


def convert_status(status: int, detail: str, allow: Sequence[str] = ()) -> RequestRefused:
    """Return the problem for a request that the router refuses."""
    if status == 405:
        methods = ", ".join(allow)
        return RequestRefused("method-not-allowed", f"This address has {methods}.", {"allow": methods}, allow=[*allow])
    if status == 404:
        return RequestRefused(
            "not-found", f"Nothing is at this address: {API_ROOT}/openapi.json has all that there are."
        )
    return RequestRefused(_KINDS_OF_STATUS.get(status, "malformed"), detail)
