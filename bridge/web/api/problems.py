"""Why something was not done, as programs read it: problem details (RFC 9457), each of a stable type."""

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
    KeyReused,
    NoMoment,
    NoSuchGroup,
    NoSuchLetter,
    NoSuchPlan,
    PatchRefused,
    PlanChanged,
    PlanRefused,
    PolicyRefused,
    RedriveRefused,
    RequestRefused,
    RequestTakenOver,
    RequestUnderWay,
    UnknownHandler,
    UnknownTopic,
)

#: Of every address of the API.
ROOT: Final = "/api/v1"
JSON: Final = "application/problem+json"


class Kind(NamedTuple):
    """A kind of problem."""

    status: int
    title: str


KINDS: Final[Mapping[str, Kind]] = {
    "malformed": Kind(400, "The request cannot be read."),
    "key-missing": Kind(400, "What acts needs an Idempotency-Key."),
    "unauthorized": Kind(401, "A token is needed."),
    "forbidden": Kind(403, "This token may not do it."),
    "not-found": Kind(404, "There is no such thing."),
    "method-not-allowed": Kind(405, "This address has no such method."),
    "under-way": Kind(409, "The same request is done just now."),
    "changed": Kind(409, "Somebody was quicker."),
    "too-large": Kind(413, "The request is too large."),
    "media-type": Kind(415, "The body is JSON."),
    "misdirected": Kind(421, "The console is not called so."),
    "invalid": Kind(422, "The request has what it must not have, or lacks something."),
    "refused": Kind(422, "It cannot be done so."),
    "key-reused": Kind(422, "Something else was asked under this Idempotency-Key."),
    "not-seen": Kind(428, "Who decides says what they have seen."),
    "slow-down": Kind(429, "Too many wrong tokens."),
    "fault": Kind(500, "The console has a fault."),
    "unavailable": Kind(503, "A server does not answer."),
}

#: What the desk's errors are; all others mean that something does not answer.
_ERRORS: Final[tuple[tuple[type[BridgeError], str], ...]] = (
    (PlanChanged, "changed"),
    (GroupChanged, "changed"),
    (RequestUnderWay, "under-way"),
    (RequestTakenOver, "under-way"),
    (KeyReused, "key-reused"),
    (NoSuchGroup, "not-found"),
    (NoSuchLetter, "not-found"),
    (NoSuchPlan, "not-found"),
    (UnknownHandler, "not-found"),
    (UnknownTopic, "not-found"),
    (CopyRefused, "refused"),
    (DeskOfAnotherKafka, "refused"),
    (DeskRefused, "refused"),
    (EditRefused, "refused"),
    (FilterFault, "refused"),
    (NoMoment, "refused"),
    (PatchRefused, "refused"),
    (PlanRefused, "refused"),
    (PolicyRefused, "refused"),
    (RedriveRefused, "refused"),
)
_OF_STATUS: Final = {400: "malformed", 403: "forbidden", 404: "not-found", 405: "method-not-allowed"}


def response(refused: RequestRefused) -> Response:
    """The answer to a request that is refused."""
    kind = KINDS[refused.name]
    common = {"type": type_of(refused.name), "title": kind.title, "status": kind.status, "detail": str(refused)}
    more = {name: value for name, value in refused.more.items() if value is not None}
    return Response(json.dumps(common | more), kind.status, refused.headers, JSON)


def is_here(path: str) -> bool:
    """Whether an address is one of the API's, or would be."""
    return path == "/api" or path.startswith("/api/")


def type_of(name: str) -> str:
    """The type of a kind of problem: its address here, which says what it is."""
    return f"{ROOT}/problems/{name}"


def of_error(error: BridgeError) -> RequestRefused:
    """What an error of the desk, or of what it asks, is."""
    if isinstance(error, RequestRefused):
        return error
    name = next((name for kind, name in _ERRORS if isinstance(error, kind)), "unavailable")
    headers = {"retry-after": "5"} if name in ("unavailable", "under-way") else {}
    return RequestRefused(name, str(error), headers)


def of_status(status: int, detail: str, allow: Sequence[str] = ()) -> RequestRefused:
    """What the router refuses."""
    if status == 405:
        methods = ", ".join(allow)
        return RequestRefused("method-not-allowed", f"This address has {methods}.", {"allow": methods}, allow=[*allow])
    if status == 404:
        return RequestRefused("not-found", f"Nothing is at this address: {ROOT}/openapi.json has all that there are.")
    return RequestRefused(_OF_STATUS.get(status, "malformed"), detail)
