"""An operation of the API: its declaration with role and schemas, its validated request, and its answer."""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from pydantic import ValidationError
from starlette.datastructures import Headers, QueryParams
from starlette.requests import Request

from bridge.console.api.schemas.common_schema import NoParameters, RequestModel, ResponseModel
from bridge.console.auth.authorization import Principal, ScopeRule
from bridge.console.console import Console
from bridge.console.thread_pools import WaitKind
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.db.audit_rows import AuditEntry
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.masking.letter_mask import LetterMasks
from bridge.deadletters.masking.masked_lists import MaskedLists
from bridge.errors import FilterFault, RequestRefused


@dataclass(frozen=True)
class ApiRequest:
    """A request to the API.

    Attributes:
        desk: the console's store, which notes actions as this request's.
        path: the parts of the address.
        given: the validated `query` and `body`, as far as the operation has them.
        seen: the version in `If-Match`, without its quotes; `None`: no header, "*": any version.
        done: what this request has done already, in a process that died before it answered.
    """

    console: Console
    desk: DeadLetterService
    who: Principal
    path: Mapping[str, Any]
    given: Mapping[str, RequestModel]
    seen: str | None
    done: AuditEntry | None = None

    @property
    def made_plan(self) -> int:
        """Return the id of the plan that this request has made already."""
        return (self.done.plan_id if self.done else None) or 0

    @property
    def masks(self) -> LetterMasks:
        """Return the masks that hold for the caller; a program cannot unmask."""
        return self.console.masking.of_role(self.who.role)

    @property
    def lists(self) -> MaskedLists:
        """Return the lists as the caller may see them."""
        return self.desk.lists(self.masks)

    def must_have_seen(self, etag: str, by: str = "", at: str | None = None, did: str = "") -> None:
        """Refuse the request unless `If-Match` has the current version.

        Parameters:
            etag: the current version.
            by, at, did: its last change: by whom, when and how.

        Raises:
            RequestRefused: `If-Match` is missing or has another version.
        """
        if self.seen is None:
            raise RequestRefused(
                "not-seen", f"Send If-Match with the ETag that you have decided on (now: {quote_etag(etag)})."
            )
        if self.seen not in ("*", etag):
            last = f"{by} did the last thing with it: {did}." if by else "It is not as you have seen it."
            raise RequestRefused(
                "changed",
                f"{last} Look at it again, and decide anew, under another Idempotency-Key. Nothing was changed.",
                etag=quote_etag(etag),
                by=by or None,
                at=at,
                did=did or None,
            )


class Download(NamedTuple):
    """A file as an answer.

    Attributes:
        content: bytes, or the parts of the file, which are read while they are sent.
    """

    content: bytes | Iterator[bytes]
    name: str


def quote_etag(etag: str) -> str:
    """Return an ETag as a header has it."""
    return f'"{etag}"'


#: The most bytes of a body; its largest content is an edited value.
MAX_BODY_BYTES: Final = 2_000_000
#: The most faults of a request that are listed.
MAX_FAULTS: Final = 20


def read_given(
    query: type[RequestModel], body: type[RequestModel] | None, request: Request, raw: bytes
) -> dict[str, RequestModel]:
    """Return the validated query parameters and body, as far as an operation has them.

    Raises:
        RequestRefused: they do not validate.
    """
    given = {"query": _read_query(query, request.query_params)}
    if query is NoParameters:
        del given["query"]
    if body is not None:
        given["body"] = _read_body(body, request.headers, raw)
    return given


def _read_query(shape: type[RequestModel], params: QueryParams) -> RequestModel:
    counted = Counter(name for name, _ in params.multi_items())
    said: dict[str, Any] = {}
    for name, times in counted.items():
        field = shape.model_fields.get(name)
        if field is not None and is_list_field(field.annotation):
            said[name] = params.getlist(name)
        elif times > 1:
            raise _build_invalid_request([{"where": f"query.{name[:100]}", "what": "is given more than once"}])
        else:
            said[name] = params[name]
    try:
        return shape.model_validate(said)
    except ValidationError as error:
        raise _build_invalid_request(_list_faults("query", error)) from None


def _read_body(shape: type[RequestModel], headers: Headers, raw: bytes) -> RequestModel:
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RequestRefused("media-type", "Send JSON, with Content-Type: application/json. Nothing was done.")
    try:
        return shape.model_validate_json(raw)
    except ValidationError as error:
        faults = _list_faults("body", error)
        if error.errors(include_input=False, include_url=False)[0]["type"] == "json_invalid":
            raise RequestRefused("malformed", f"The body is no JSON: {faults[0]['what']}. Nothing was done.") from None
        raise _build_invalid_request(faults) from None


def read_if_match(headers: Headers) -> str | None:
    """Return the version in `If-Match`, without its quotes.

    Raises:
        RequestRefused: it has several versions, or a weak one.
    """
    said = headers.get("if-match")
    if said is None or said == "*":
        return said
    if len(said) < 2 or not said.startswith('"') or not said.endswith('"') or '"' in said[1:-1]:
        raise RequestRefused("malformed", "If-Match is one ETag, in quotes, as it was given; or *. Nothing was done.")
    return said[1:-1]


def is_list_field(annotation: object) -> bool:
    """Return whether a parameter may be repeated."""
    if get_origin(annotation) is list:
        return True
    return any(is_list_field(each) for each in get_args(annotation))


def _list_faults(of: str, error: ValidationError) -> list[dict[str, str]]:
    # Without the input, which may be a payload.
    found = error.errors(include_input=False, include_url=False, include_context=False)[:MAX_FAULTS]
    return [{"where": ".".join([of, *map(str, each["loc"])])[:200], "what": each["msg"]} for each in found]


def _build_invalid_request(faults: list[dict[str, str]]) -> RequestRefused:
    first = faults[0]
    return RequestRefused("invalid", f"{first['where']}: {first['what']}. Nothing was done.", errors=faults)


def write_cursor(list_: str, end: object) -> str:
    """Return the cursor for a position of a list."""
    return urlsafe_b64encode(f"{list_}:{end}".encode()).decode().rstrip("=")


def read_cursor(list_: str, cursor: str) -> str:
    """Return the position in a cursor of this list.

    Raises:
        FilterFault: the cursor is not of this list.
    """
    try:
        of, _, end = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii").partition(":")
    except (ValueError, binascii.Error):
        of, end = "", ""
    if of != list_ or not end:
        raise FilterFault("This cursor belongs to another list. Send `next` of the previous page unchanged.")
    return end


def read_number_cursor(list_: str, cursor: str | None) -> int | None:
    """Return the number after which a page begins; `None` for the first page.

    Raises:
        FilterFault: as `read_cursor`.
    """
    if cursor is None:
        return None
    end = read_cursor(list_, cursor)
    if not (end.isdecimal() and len(end) < 19):
        raise FilterFault("This cursor belongs to another list. Send `next` of the previous page unchanged.")
    return int(end)


ApiAnswer = ResponseModel | Download
Handler = TypeVar("Handler", bound=Callable[..., ApiAnswer])

#: The media type of JSON lines.
NDJSON: Final = "application/x-ndjson"


class Effect(NamedTuple):
    """The behaviour of an operation that acts; it requires an idempotency key.

    Attributes:
        again: makes the answer if a process has done it and died before answering; it returns `None` if it is to be
            done again. No function: the operation is idempotent and is done again.
        seen: whether `If-Match` has the version that is decided on: "", "may" or "must".
    """

    again: Callable[[ApiRequest], ApiAnswer | None] | None = None
    seen: str = ""


class Operation(NamedTuple):
    """An operation of the API.

    Attributes:
        path: the path after `/api/v1`.
        name: the operationId, by which generated clients call it.
        answer: runs in a thread; it may wait for the database and for the server that `waits` names.
        gives: the schema of the answer; `None`: bytes, of the type in `media`.
        takes: the schema of the body; `None`: no body.
        scope: what it answers to a caller with a scope.
    """

    method: str
    path: str
    role: Role
    name: str
    summary: str
    answer: Callable[..., ApiAnswer]
    gives: type[ResponseModel] | None
    query: type[RequestModel]
    takes: type[RequestModel] | None
    status: int
    act: Effect | None
    media: str
    waits: WaitKind
    scope: ScopeRule


class OperationTable(list[Operation]):
    """The operations of a subject."""

    def declare(
        self,
        address: str,
        role: Role,
        name: str,
        act: Effect | None = None,
        waits: WaitKind = WaitKind.DATABASE,
        status: int = 200,
        media: str = "application/octet-stream",
        scope: ScopeRule = ScopeRule.CLOSED,
    ) -> Callable[[Handler], Handler]:
        """Return a decorator that declares a function as the answer of an operation.

        Its docstring is the summary, and its parameters `query` and `body` have the schemas of the request.

        Parameters:
            address: the method and the path.
        """
        method, path = address.split(" ")

        def add_operation(answer: Handler) -> Handler:
            shapes: dict[str, Any] = get_type_hints(answer)
            gives = None if shapes["return"] is Download else shapes["return"]
            query, takes = shapes.get("query", NoParameters), shapes.get("body")
            summary = " ".join((answer.__doc__ or "").split())
            shown = (name, summary, answer, gives, query, takes, status, act, media, waits, scope)
            self.append(Operation(method, path, role, *shown))
            return answer

        return add_operation
