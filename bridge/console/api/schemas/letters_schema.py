"""The schemas of letters: the filter, an entry of a list, a whole letter, edits and notes."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field, create_model

from bridge.console.api.schemas.common_schema import (
    MAX_NOTE,
    Act,
    Count,
    Cursor,
    Id,
    Limit,
    Moment,
    Octets,
    Offset,
    RequestModel,
    ResponseModel,
    Why,
)
from bridge.deadletters.model.filter_syntax import (
    CLASS_NAMES,
    FLAG,
    HEADERS,
    KEY,
    LEAST,
    NAMES,
    NUMBERS,
    SINCE,
    STATUSES,
    UNTIL,
    VALUE_FIELDS,
    WORDS,
    ValueType,
)
from bridge.deadletters.model.letter_filter import FILTER_FIELDS, MOST_ATTEMPTS, MOST_IDS

Word = Annotated[str, Field(max_length=1_000)]
Words = Annotated[list[Word], Field(max_length=100)]
Status = Literal["open", "replaying", "resolved", "discarded", "archived"]


_VALUES: Final[Mapping[ValueType, tuple[Any, Any]]] = {
    NAMES: (Words, []),
    CLASS_NAMES: (Words, []),
    HEADERS: (Words, []),
    VALUE_FIELDS: (Words, []),
    STATUSES: (list[Status], []),
    NUMBERS: (Annotated[list[Id], Field(max_length=1_000)], []),
    WORDS: (Word, ""),
    KEY: (Word | None, None),
    SINCE: (Word | None, None),
    UNTIL: (Word | None, None),
    LEAST: (Annotated[int, Field(ge=1, le=MOST_ATTEMPTS)] | None, None),
    FLAG: (bool, False),
}


def _with_filter_fields(model: type[RequestModel]) -> type[Any]:
    """Return a model with the fields of the filter besides."""
    declared: dict[str, Any] = {}
    for field in FILTER_FIELDS:
        type_, empty = _VALUES[field.type]
        if field.name == "ids":
            type_ = Annotated[list[Id], Field(max_length=MOST_IDS)]
        declared[field.word.replace("-", "_")] = (Annotated[type_, Field(description=field.help)], empty)
    return create_model(model.__name__, __base__=model, __module__=__name__, __doc__=model.__doc__, **declared)


@_with_filter_fields
class Filter(RequestModel):
    """A filter: letters match all of its fields, and one of the values of each field.

    Its fields are the options of `bridge deadletters list`.
    """


class LettersQuery(Filter):
    """A page of the letters of a filter, newest first; without a status all of them."""

    cursor: Cursor | None = None
    limit: Limit = 50


class Line(ResponseModel):
    """A letter as an entry of a list."""

    id: Id
    handler: str
    topic: str
    partition: Count
    offset: Offset
    key: Octets | None
    reason: str
    error_class: str
    error_message: str
    status: Status
    attempts: Count
    failed_at: Moment | None
    group: Id
    version: str
    origin: str
    consumer_group: str
    where: str
    failures: Count
    occurrences: Count
    value_size: int = Field(description="Bytes; -1: a tombstone.")
    plan: Id | None


class Page(ResponseModel):
    """A page of letters. It may be short or empty, and yet have a next page."""

    items: list[Line]
    next: str | None = Field(description="The cursor of the next page; null: there is none.")
    unread: Count = Field(
        0, description="Letters that were not searched by `value`: too large, or their schema is not known now."
    )


class Header(ResponseModel):
    """A header of the producer."""

    name: str
    value: Octets | None


class AttemptEntry(ResponseModel, title="Attempt"):
    """One attempt at a delivery; of many, the first and the last ones are known."""

    run: Count
    ended_at: Moment | None
    took: float | None = Field(description="Seconds; null: not known.")
    error: str
    worker: str
    version: str
    end: Literal["failed", "postponed", "lost"]


class FailureEntry(ResponseModel, title="Failure"):
    """An earlier failure of a letter."""

    number: Count
    failed_at: Moment | None
    reason: str
    error_class: str
    error_message: str
    error_traceback: str
    version: str
    attempts: Count
    where: str
    plan: Id | None
    mended: bool
    value: Octets | None
    attempt_history: list[AttemptEntry]


class Edit(Act):
    """A value that was sent instead of the letter's own."""

    value: Octets | None


class Letter(Line):
    """A letter with all its details."""

    status_at: Moment | None
    timestamp: Moment | None
    value: Octets | None = Field(
        description="Null where it is a tombstone, or not `kept`. JSON, if a schema of a schema registry wrote it."
    )
    format: str = Field(
        description="`Avro, schema 12`; or why the value was not read by the schema that it names; else empty."
    )
    kept: bool = Field(description="Whether the database has the value: a large one is read from Kafka.")
    headers: list[Header]
    number: Count
    attempts_by_end: dict[str, int]
    error_traceback: str
    first_failed_at: Moment | None
    recorded_at: Moment | None
    dead_letter: str
    trace_id: str = Field(description="The id of its trace, in hexadecimal; empty where it has none.")
    attempt_history: list[AttemptEntry]
    history: list[FailureEntry]
    plans: list[Act]
    edits: list[Edit]
    trail: list[Act]


class Counted(ResponseModel):
    """The number of letters of a filter."""

    count: Count
    exact: bool = Field(description="Otherwise there are at least so many.")
    among: Count | None = Field(
        description="Counted among so many of the newest letters alone; `null`: among all of them."
    )


class ValueQuery(RequestModel):
    """The place to read a value from."""

    kafka: bool = Field(False, description="From Kafka, where it is too large for the database.")
    tokens: bool = Field(False, description="With a token in the place of each part that this role does not see.")


class Elsewhere(ResponseModel):
    """The fates of the same message for each handler."""

    deliveries: list[dict[str, Any]]
    unknown: str | None = Field(description="Why that is not known.")


class NewValue(RequestModel):
    """A value to send."""

    encoding: Literal["utf-8", "base64"] = "utf-8"
    data: Annotated[str, Field(max_length=1_900_000)]


class Check(RequestModel):
    """A value to check."""

    value: NewValue | None = Field(
        description="Null: a tombstone. Tokens of parts that this role does not see stay where they are."
    )


class Editing(Check):
    """A value with which to replay a letter."""

    why: Why = ""
    force: bool = Field(False, description="Also where its handler does not take it; then it needs a reason.")


class Verdict(ResponseModel):
    """The handler's verdict on a value; nothing is sent."""

    ok: bool | None = Field(description="Null: that cannot be told here.")
    why: str
    upgraded: bool
    difference: str = Field(description="From the letter's own, as a unified diff.")


class Noting(RequestModel):
    """A note to add."""

    said: Annotated[str, Field(min_length=1, max_length=MAX_NOTE)]


class Notes(ResponseModel):
    """The actions of people, oldest first."""

    items: list[Act]
