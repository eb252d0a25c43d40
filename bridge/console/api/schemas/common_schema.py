"""The schemas that several subjects share: base models, ids, moments, cursors, octets and problems."""

from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

#: The largest integer that JavaScript and many JSON readers keep exactly: larger numbers are text.
MAX_SAFE_INTEGER: Final = 2**53 - 1
#: The default and the most rows of a page.
DEFAULT_ROWS: Final = 50
MAX_ROWS: Final = 200
#: The most characters of a reason, and of a note.
MAX_WHY: Final = 500
MAX_NOTE: Final = 4_000

Id = Annotated[int, Field(ge=0, le=MAX_SAFE_INTEGER)]
Count = Annotated[int, Field(ge=0, le=MAX_SAFE_INTEGER)]
Offset = Annotated[str, Field(pattern="^[0-9]{1,19}$", description="64 bits, so it is text.", examples=["1234"])]
Moment = Annotated[datetime, Field(description="ISO 8601.", examples=["2026-11-22T18:50:00.000+00:00"])]
Why = Annotated[str, Field(max_length=MAX_WHY, description="The reason, which stays in the audit log.")]
Cursor = Annotated[str, Field(max_length=200, pattern="^[A-Za-z0-9_-]+$", description="`next` of the page before.")]
Limit = Annotated[int, Field(ge=1, le=MAX_ROWS)]


class RequestModel(BaseModel):
    """A request: unknown fields are refused, so that a misspelt one is not ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ResponseModel(BaseModel):
    """An answer: fields may be added, and none is removed."""

    model_config = ConfigDict(frozen=True)


class NoParameters(RequestModel):
    """A request without parameters."""


class PageQuery(RequestModel):
    """The page of a list."""

    cursor: Cursor | None = None
    limit: Limit = DEFAULT_ROWS


class Octets(ResponseModel):
    """The bytes that Kafka has: as text if they are UTF-8, else as base64."""

    encoding: Literal["utf-8", "base64"]
    data: str
    size: Count = Field(description="Bytes.")


class Fault(ResponseModel):
    """One fault of a request."""

    where: str = Field(description="`body.letters.since`, `query.limit`, …")
    what: str


class ProblemDetails(ResponseModel, title="Problem"):
    """The reason why a request was not carried out (RFC 9457). Members that do not apply are left out."""

    type: str = Field(description="The address of an explanation of this kind of problem. It stays the same.")
    title: str
    status: int
    detail: str = Field(description="The error, and what to do.")
    instance: str | None = Field(None, description="If the console failed: the number of the failure in its log.")
    errors: list[Fault] | None = None
    allow: list[str] | None = Field(None, description="The methods that an address has.")
    etag: str | None = Field(None, description="If the resource was changed: its version now.")
    by: str | None = Field(None, description="If the resource was changed: the user who changed it.")
    at: str | None = Field(None, description="If the resource was changed: the time.")
    did: str | None = Field(None, description="If the resource was changed: the action.")


class Act(ResponseModel):
    """An action: an entry of the audit log, a plan, or an edited value that was sent."""

    at: Moment | None
    by: str
    what: str
    said: str
    plan: Id | None
    state: str


class SearchReport(ResponseModel):
    """The places that were searched, and the servers that do not respond, a sentence each."""

    looked: list[str]
    silent: list[str] = Field(description="The servers that did not respond, and were not searched.")
