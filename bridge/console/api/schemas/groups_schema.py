"""The schemas of failure groups, their causes and their versions."""

from typing import Annotated, Literal

from pydantic import Field

from bridge.console.api.schemas.common_schema import (
    Act,
    Count,
    Id,
    Moment,
    PageQuery,
    RequestModel,
    ResponseModel,
)
from bridge.console.api.schemas.letters_schema import Status, Words


class GroupsQuery(PageQuery):
    """The groups to list, and their order."""

    handler: Words = []
    topic: Words = []
    exception: Words = []
    reason: Words = []
    version: Words = []
    origin: Words = []
    consumer_group: Words = []
    status: list[Status] = []
    order: Literal["need", "newest", "open", "count", "first", "name"] = "need"


class CauseFix(ResponseModel):
    """A cause that is marked as fixed in a version, or has failed in that version again."""

    cause: str
    fixed_in: str | None
    fixed_at: Moment | None
    fixed_by: str | None
    fixed_plan: Id | None
    regressed_at: Moment | None


class Group(ResponseModel):
    """A failure group: letters with the same fingerprint."""

    id: Id
    handler: str
    error_class: str
    where: str
    count: Count
    open: Count
    statuses: dict[str, int]
    reasons: list[str]
    topics: list[str]
    versions: list[str]
    origins: list[str]
    first_at: Moment | None
    last_at: Moment | None
    rate_day: float = Field(description="Failures an hour, of the last day.")
    rate_week: float
    growing: bool
    growing_since: Moment | None
    fixed_in: str | None
    fixed_at: Moment | None
    fixed_by: str | None
    fixed_plan: Id | None
    regressed_at: Moment | None
    cause_fixes: list[CauseFix] = Field(description="Causes that are marked each alone.")


class Groups(ResponseModel):
    """A page of groups."""

    items: list[Group]
    next: str | None


class Next(ResponseModel):
    """The recommended next step."""

    do: str
    why: str


class OfVersion(ResponseModel):
    """The failures of a group in a version."""

    version: str
    letters: Count
    open: Count
    workers: Count | None = Field(description="How many living workers have it; null: not known.")


class Cause(ResponseModel):
    """Letters of a group with the same line, chain of exceptions and message, apart from the values in it."""

    id: str = Field(description="For `cause`; `unknown`: recorded before causes were; `other`: beyond the most causes.")
    message: str = Field(description="The error message of its newest letter.")
    count: Count
    open: Count
    first_at: Moment | None
    last_at: Moment | None


class OneGroup(Group):
    """A group with its details."""

    etag: str
    next: Next
    causes: list[Cause]
    by_version: list[OfVersion]
    trail: list[Act]
    unknown: str | None = Field(description="Why it is not known what runs.")


CauseId = Annotated[str | None, Field(max_length=12, description="This cause of the group alone; null: all of it.")]


class Fixing(RequestModel):
    """The version in which it is fixed."""

    version: Annotated[str, Field(min_length=1, max_length=200)]
    cause: CauseId = None


class WhichCause(RequestModel):
    """The group or cause whose mark is taken back."""

    cause: CauseId = None
