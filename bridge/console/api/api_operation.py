"""The declaration of an API operation: its path, role and schemas, by which it is answered and described."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar, get_type_hints

from bridge.console.api.api_request import ApiRequest, Download
from bridge.console.api.schemas.common_schema import NoParameters, RequestModel, ResponseModel
from bridge.console.thread_pools import WaitKind
from bridge.deadletters.accounts.user_account import Role

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
            self.append(
                Operation(method, path, role, name, summary, answer, gives, query, takes, status, act, media, waits)
            )
            return answer

        return add_operation
