"""The schemas of plans: requests, previews, waves, outcomes, differences; and of bulk checks."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.config import JsonDict

from bridge.console.api.schemas.common_schema import Act, Count, Id, Moment, PageQuery, RequestModel, ResponseModel, Why
from bridge.console.api.schemas.letters_schema import Filter, Word, Words

ItemState = Literal["waiting", "claimed", "sent", "done", "dead", "discarded", "unknown", "skipped", "refused"]


class Making(RequestModel):
    """An action and its letters. Nothing is done before the plan is applied."""

    what: Literal["replay", "discard", "archive"]
    letters: Filter = Field(description="Frozen now; of replay and discard those that are open.")


class Applying(RequestModel):
    """The way in which a plan is applied."""

    why: Why = Field("", description="Needed to discard.")
    canary: bool = Field(False, description="In waves, each only if the one before ended well.")
    rate: Annotated[float, Field(gt=0, le=1_000_000)] | None = Field(None, description="Letters a second at most.")
    count: Count | None = Field(None, description="To discard: how many letters, as the plan has it.")


class Stopping(RequestModel):
    """The reason to stop a plan."""

    why: Why = ""


class Plan(ResponseModel):
    """A plan."""

    id: Id
    what: str
    by: str
    state: Literal["making", "planned", "applying", "stopped", "done", "failed"]
    why: str
    asked: dict[str, Any]
    options: dict[str, Any]
    counts: dict[str, Any]
    outcomes: dict[str, int] = Field(description="How many of its deliveries are how far.")
    stopped: str
    wave: int
    at: Moment | None
    began_at: Moment | None
    ended_at: Moment | None
    is_over: bool = Field(description="Whether all that was sent has ended, and nothing more is.")


class Plans(ResponseModel):
    """A page of plans, newest first."""

    items: list[Plan]
    next: str | None


class Preview(ResponseModel):
    """The effects of a plan on the letters that matched, as far as they are known."""

    matched: Count
    will: Count
    done: Count
    elsewhere: Count
    unknown: Count
    unfit: Count
    unpatched: Count = Field(description="That a patch leaves out: `counts.edits` says why.")


class Wave(ResponseModel):
    """A wave of a canary."""

    number: Count
    outcomes: dict[str, int]
    stops_at: Count
    is_now: bool
    is_last: bool


class LeftOut(ResponseModel):
    """Letters that a plan left out, or whose outcome is unknown."""

    state: str
    why: str
    letters: Count


class OnePlan(Plan):
    """A plan with its details."""

    etag: str = Field(description="As who decides on it has seen it: for `If-Match`.")
    preview: Preview | None = Field(description="Before it is begun.")
    waves: list[Wave]
    left_out: list[LeftOut]
    trail: list[Act]
    taken_up: bool = Field(description="Whether a process does it.")


class OutcomesQuery(PageQuery):
    """The deliveries of a plan to list."""

    state: list[ItemState] = []


class Item(ResponseModel):
    """The progress of a plan with a delivery."""

    position: Count
    letter: Id | None
    place: str | None
    wave: Count | None
    state: ItemState
    why: str
    sent_at: Moment | None
    ended_at: Moment | None


class Outcomes(ResponseModel):
    """A page of a plan's deliveries, in their order."""

    items: list[Item]
    next: str | None


_LETTERS: JsonDict = {"group": [7], "status": ["open"]}
Topic = Annotated[str, Field(min_length=1, max_length=249, pattern="^[A-Za-z0-9._-]+$")]


class Patching(RequestModel):
    """Letters, and the patch of their values."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={
            "examples": [
                {
                    "letters": _LETTERS,
                    "patch": [{"op": "replace", "path": "/currency", "value": "EUR"}],
                    "why": "the client sent no currency",
                }
            ]
        },
    )

    letters: Filter = Field(description="Frozen now; those that are open.")
    patch: (
        Annotated[list[dict[str, Any]], Field(min_length=1, max_length=100)]
        | Annotated[str, Field(min_length=2, max_length=100_000)]
    ) = Field(description="A JSON Patch (RFC 6902); or its text, where a number has more digits than a double keeps.")
    force: bool = Field(False, description="Also what its handler would not take; then it needs a reason.")
    why: Why = ""


class Copying(RequestModel):
    """Letters, and the topic that they are copied to."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={
            "examples": [{"letters": _LETTERS, "topic": "orders.copies", "kafka": "target", "why": "to try the fix"}]
        },
    )

    letters: Filter = Field(description="Frozen now, whatever their status.")
    topic: Topic = Field(description="It must exist, and be none that this group reads or writes.")
    kafka: Literal["own", "target"] = Field(
        "own", description="target: the one that whoever runs the console has configured. A request names no address."
    )
    why: Why = ""


class Redriving(RequestModel):
    """A range of a source topic."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={
            "examples": [
                {
                    "topic": "orders",
                    "from": "2026-11-20T08:00",
                    "to": "2026-11-20T09:30",
                    "handler": ["orders.handlers.charge"],
                    "why": "the bank lost its morning",
                }
            ]
        },
    )

    topic: Topic = Field(description="A source topic.")
    since: Word = Field(alias="from", description="`earliest`, an offset, ISO 8601, `2h`, `today`.")
    until: Word = Field("latest", alias="to", description="Until before this.")
    partition: Annotated[
        list[Annotated[int, Field(ge=0, le=2**31 - 1)]], Field(max_length=1_000, description="Of these alone.")
    ] = []
    handler: Annotated[Words, Field(description="For these alone.")] = []
    key: Annotated[Word | None, Field(description="Of this key alone: text; `0x…`, `base64:…`.")] = None
    again: bool = Field(False, description="Also what is done or discarded, or may be.")
    why: Why = ""


class Difference(ResponseModel):
    """The change of a letter's value by a plan."""

    letter: Id
    difference: str = Field(description="A unified diff; of what this role does not see, nothing.")


class Differences(ResponseModel):
    """A page of differences, sorted by letter."""

    items: list[Difference]
    next: str | None


class DifferencesQuery(PageQuery):
    """The differences to list."""


class Checking(RequestModel):
    """Letters whose handlers are asked."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, json_schema_extra={"examples": [{"letters": {"group": [7], "status": ["open"]}}]}
    )

    letters: Filter


class NotTaken(ResponseModel):
    """The reason why letters would be refused."""

    why: str
    count: Count
    letters: list[Id] = Field(description="A few of them.")


class Checked(ResponseModel):
    """The handlers' verdicts, by the code that the console has; nothing was sent."""

    letters: Count
    valid: Count
    upgraded: Count = Field(description="That they take after their `upgrade`.")
    invalid: Count
    unknown: Count = Field(description="Of which it cannot be told here.")
    invalid_reasons: list[NotTaken]
    unknown_reasons: list[NotTaken]
