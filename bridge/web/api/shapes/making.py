"""The shapes of plans beside those of letters as they are, and of what is asked of many letters at once."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.config import JsonDict

from bridge.web.api.shapes.common import Count, Given, Id, Paged, Wanted, Why
from bridge.web.api.shapes.letters import Filter, Word, Words

_LETTERS: JsonDict = {"group": [7], "status": ["open"]}
Topic = Annotated[str, Field(min_length=1, max_length=249, pattern="^[A-Za-z0-9._-]+$")]


class Patching(Wanted):
    """Letters, and what is changed of their values."""

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


class Copying(Wanted):
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


class Redriving(Wanted):
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


class Difference(Given):
    """How a plan changes a letter's value."""

    letter: Id
    difference: str = Field(description="A unified diff; of what this role does not see, nothing.")


class Differences(Given):
    """A page of them, by the letters' ids."""

    items: list[Difference]
    next: str | None


class DifferencesQuery(Paged):
    """Which of them."""


class Checking(Wanted):
    """Letters whose handlers are asked."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, json_schema_extra={"examples": [{"letters": {"group": [7], "status": ["open"]}}]}
    )

    letters: Filter


class NotTaken(Given):
    """Why letters would not be taken."""

    why: str
    count: Count
    letters: list[Id] = Field(description="A few of them.")


class Checked(Given):
    """What handlers would take now, by the code that the console has; nothing was sent."""

    letters: Count
    valid: Count
    upgraded: Count = Field(description="That they take after their `upgrade`.")
    invalid: Count
    unknown: Count = Field(description="Of which it cannot be told here.")
    invalid_reasons: list[NotTaken]
    unknown_reasons: list[NotTaken]
