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
    letters: Filter = Field(
        description="The letters, frozen now. To replay: the open ones of them; to discard: also "
        "archived ones that are named by their ids or status."
    )


class Applying(RequestModel):
    """The way in which a plan is applied."""

    why: Why = Field("", description="The reason; needed to discard.")
    canary: bool = Field(False, description="Send in waves, each only if the one before ended well.")
    rate: Annotated[float, Field(gt=0, le=1_000_000)] | None = Field(None, description="The most letters a second.")
    count: Count | None = Field(None, description="To discard: the number of letters that the plan has.")


class Stopping(RequestModel):
    """The request to stop a plan, with the reason."""

    why: Why = ""


class Plan(ResponseModel):
    """A plan: a bulk action on letters, its state and its counts."""

    id: Id
    what: str
    by: str
    planner: str = Field(description="The person who planned it: of an API token, who made the token.")
    approved_by: str = Field(description="The second person who approved it; empty: nobody, or nobody needs to.")
    awaiting: bool = Field(description="Whether it was applied, and awaits a second person; it is `planned` then.")
    state: Literal["making", "planned", "applying", "stopped", "done", "failed"]
    why: str
    asked: dict[str, Any]
    options: dict[str, Any]
    counts: dict[str, Any]
    outcomes: dict[str, int] = Field(description="The number of its deliveries in each state.")
    stopped: str
    wave: int
    at: Moment | None
    approved_at: Moment | None
    began_at: Moment | None
    ended_at: Moment | None
    is_over: bool = Field(description="Whether everything that was sent has ended, and nothing more is sent.")


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
    unpatched: Count = Field(description="Letters that the patch leaves out: `counts.edits` says why.")


class Wave(ResponseModel):
    """A wave of a canary."""

    number: Count
    outcomes: dict[str, int]
    stops_at: Count
    is_now: bool
    is_last: bool


class LeftOut(ResponseModel):
    """The letters that a plan left out, or whose outcome is unknown."""

    state: str
    why: str
    letters: Count


class OnePlan(Plan):
    """A plan with its details."""

    etag: str = Field(description="The version of the plan that the caller saw, for `If-Match`.")
    preview: Preview | None = Field(description="Its effects, until it is applied.")
    waves: list[Wave]
    left_out: list[LeftOut]
    trail: list[Act]
    taken_up: bool = Field(description="Whether a process applies it now.")


class OutcomesQuery(PageQuery):
    """The deliveries of a plan to list."""

    state: list[ItemState] = []


class Item(ResponseModel):
    """A delivery of a plan, and how far it is."""

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
    """The letters to patch, and the patch of their values."""

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

    letters: Filter = Field(description="The letters, frozen now: the open ones of them.")
    patch: (
        Annotated[list[dict[str, Any]], Field(min_length=1, max_length=100)]
        | Annotated[str, Field(min_length=2, max_length=100_000)]
    ) = Field(description="A JSON Patch (RFC 6902); as text if a number has more digits than a double keeps.")
    force: bool = Field(False, description="Include values that the handler would refuse; needs a reason.")
    why: Why = ""


class Copying(RequestModel):
    """The letters to copy, and the topic that they are copied to."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={
            "examples": [{"letters": _LETTERS, "topic": "orders.copies", "kafka": "target", "why": "to try the fix"}]
        },
    )

    letters: Filter = Field(description="The letters, frozen now, whatever their status.")
    topic: Topic = Field(description="The topic must exist. This group must not read or write it.")
    kafka: Literal["own", "target"] = Field(
        "own",
        description="`target`: the Kafka that the operator of the console has configured. A request names no address.",
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
    since: Word = Field(alias="from", description="The start: `earliest`, an offset, ISO 8601, `2h`, `today`.")
    until: Word = Field("latest", alias="to", description="The end, which is not included: as `from`, or `latest`.")
    partition: Annotated[
        list[Annotated[int, Field(ge=0, le=2**31 - 1)]], Field(max_length=1_000, description="Only these partitions.")
    ] = []
    handler: Annotated[Words, Field(description="Only for these handlers.")] = []
    key: Annotated[Word | None, Field(description="Only records with this key: text, `0x…` or `base64:…`.")] = None
    again: bool = Field(False, description="Include deliveries that are, or may be, done or discarded.")
    why: Why = ""


class Difference(ResponseModel):
    """The change of a letter's value by a plan."""

    letter: Id
    difference: str = Field(description="A unified diff, without the values that this role does not see.")


class Differences(ResponseModel):
    """A page of differences, sorted by letter."""

    items: list[Difference]
    next: str | None


class DifferencesQuery(PageQuery):
    """The differences to list."""


class Checking(RequestModel):
    """The letters to check against their handlers."""

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
    """The verdicts of the handlers, by the code that the console has. Nothing was sent."""

    letters: Count
    valid: Count
    upgraded: Count = Field(description="Letters that their handlers take after their `upgrade`.")
    invalid: Count
    unknown: Count = Field(description="Letters that cannot be checked here.")
    invalid_reasons: list[NotTaken]
    unknown_reasons: list[NotTaken]
