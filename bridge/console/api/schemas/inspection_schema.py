"""The schemas of status, find, audits, the audit log, halts, policies and simulations."""

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from bridge.console.api.schemas.common_schema import (
    MAX_WHY,
    Count,
    Id,
    Moment,
    Octets,
    Offset,
    PageQuery,
    RequestModel,
    ResponseModel,
    SearchReport,
)
from bridge.console.api.schemas.letters_schema import Filter, Header, Line, Word

Reason = Annotated[str, Field(min_length=1, max_length=MAX_WHY, description="It stays in the audit log.")]


class CommandOutput(ResponseModel):
    """The JSON of the command of the same name, field by field."""

    model_config = ConfigDict(extra="allow", frozen=True)


class Status(CommandOutput):
    """The data of `bridge status --json`."""

    problems: list[str]
    asked_at: Moment


class Stats(CommandOutput):
    """The data of `bridge deadletters stats --json`."""

    statuses: dict[str, int]
    groups: Count


class FindQuery(RequestModel):
    """The record, key, task or letter to find."""

    q: Annotated[
        str, Field(min_length=1, max_length=1_000, description="`orders-3-1234`, a task's id, a key, `topic key`.")
    ]

    below: Annotated[
        str, Field(max_length=200_000, description="`below` of the answer before: a search by key goes on there.")
    ] = ""


class Found(SearchReport):
    """The places where it is now."""

    records: list[dict[str, Any]] = Field(description="As `bridge find --json`.")
    letters: list[Line]
    plan: Id | None = Field(None, description="Where a plan was named.")
    below: str | None = Field(None, description="If a limit ended a search by key: send it to search on.")


class Record(ResponseModel):
    """A record of a source topic, whether it failed or not, with the masks of the caller."""

    topic: str
    partition: Count
    offset: Offset
    timestamp: Moment | None
    key: Octets | None
    value: Octets | None = Field(
        description="Null where it is a tombstone. JSON, if a schema of a schema registry wrote it."
    )
    format: str = Field(
        description="`Avro, schema 12`; or why the value was not read by the schema that it names; else empty."
    )
    headers: list[Header]
    masked: Count = Field(description="The hidden parts of value, key and headers.")
    fault: str = Field(description="Why Kafka's client cannot read the whole record.")


class Audit(CommandOutput):
    """The data of `bridge audit TOPIC --json`."""

    topic: str
    clean: bool
    counted_at: Moment


class Audits(ResponseModel):
    """The last audit of each topic since this console started."""

    items: list[Audit]


class TrailQuery(PageQuery):
    """The entries of the audit log to list."""

    by: Word = ""
    what: Annotated[list[Word], Field(max_length=100, description="`replay`, `note`, `halt`, …")] = []


class TrailExport(RequestModel):
    """The entries of the whole audit log to export."""

    by: Word = ""
    what: Annotated[list[Word], Field(max_length=100)] = []


class Entry(ResponseModel):
    """An entry of the audit log."""

    id: Id
    at: Moment | None
    by: str
    what: str
    said: str
    letter_id: Id | None
    letter: str
    group_id: Id | None
    plan_id: Id | None


class Trail(ResponseModel):
    """A page of the audit log, newest first."""

    items: list[Entry]
    next: str | None


class Deciding(RequestModel):
    """A decision with its reason."""

    why: Reason


class HaltDecision(Deciding):
    """The halt or the resumption of a topic, or of one handler or key of it, with its reason."""

    handler: Annotated[
        str | None, Field(max_length=1_000, description="Only this handler; omitted: the whole topic.")
    ] = None
    key: Annotated[
        str | None,
        Field(max_length=1_000, description="Only this key of that handler: text, `0x…` or `base64:…`."),
    ] = None


class Halted(CommandOutput):
    """The state of a topic, or of a handler or a key of it."""

    halted: bool
    warnings: list[str] = Field([], description="Where not both Kafka and Redis have it yet.")


class Halts(ResponseModel):
    """The halted topics, handlers and keys."""

    topics: dict[str, dict[str, Any]]
    handlers: list[dict[str, Any]] = Field([], description="As `halted_handlers` of `bridge status --json`.")


class Changing(RequestModel):
    """The change of a policy; one of both."""

    set: Annotated[
        dict[str, Word], Field(max_length=50, description="By option its value, as the command takes it.")
    ] = {}
    unset: Annotated[list[Word], Field(max_length=50, description="Options that are the code's again.")] = []
    why: Reason


class Policy(CommandOutput):
    """The data of `bridge policy show HANDLER --json`."""

    policy: dict[str, Any]
    changed: dict[str, Any]
    fault: str | None
    warnings: list[str] = []


class Policies(ResponseModel):
    """The policies by handler."""

    handlers: dict[str, Policy]


class Trying(RequestModel):
    """A policy to simulate on dead letters."""

    options: Annotated[list[Word], Field(max_length=50, description="`option=value` each.")] = []
    letters: Filter = Filter()


class Simulation(CommandOutput):
    """The data of `bridge deadletters simulate --json`."""

    policy: dict[str, Any]
