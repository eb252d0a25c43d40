"""The shapes of plans."""

from typing import Annotated, Any, Literal

from pydantic import Field

from bridge.web.api.shapes.common import Act, Count, Given, Id, Moment, Paged, Wanted, Why
from bridge.web.api.shapes.letters import Filter

ItemState = Literal["waiting", "claimed", "sent", "done", "dead", "discarded", "unknown", "skipped", "refused"]


class Making(Wanted):
    """What is to be done with which letters. Nothing is done before the plan is applied."""

    what: Literal["replay", "discard", "archive"]
    letters: Filter = Field(description="Frozen now; of replay and discard those that are open.")


class Applying(Wanted):
    """How a plan is done."""

    why: Why = Field("", description="Needed to discard.")
    canary: bool = Field(False, description="In waves, each only if the one before ended well.")
    rate: Annotated[float, Field(gt=0, le=1_000_000)] | None = Field(None, description="Letters a second at most.")
    count: Count | None = Field(None, description="To discard: how many letters, as the plan has it.")


class Stopping(Wanted):
    """Why it is stopped."""

    why: Why = ""


class Plan(Given):
    """A plan as it stands."""

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


class Plans(Given):
    """A page of plans, the newest first."""

    items: list[Plan]
    next: str | None


class Preview(Given):
    """What it will do with the letters that matched, as far as that is known."""

    matched: Count
    will: Count
    done: Count
    elsewhere: Count
    unknown: Count
    unfit: Count
    unpatched: Count = Field(description="That a patch leaves out: `counts.edits` says why.")


class Wave(Given):
    """A wave of a canary."""

    number: Count
    outcomes: dict[str, int]
    stops_at: Count
    is_now: bool
    is_last: bool


class LeftOut(Given):
    """Letters that it did not do, or of which it is not known what became."""

    state: str
    why: str
    letters: Count


class OnePlan(Plan):
    """A plan, with what is known of it."""

    etag: str = Field(description="As who decides on it has seen it: for `If-Match`.")
    preview: Preview | None = Field(description="Before it is begun.")
    waves: list[Wave]
    left_out: list[LeftOut]
    trail: list[Act]
    taken_up: bool = Field(description="Whether a process does it.")


class Items(Paged):
    """Which deliveries of a plan."""

    state: list[ItemState] = []


class Item(Given):
    """How far a plan is with a delivery."""

    position: Count
    letter: Id | None
    place: str | None
    wave: Count | None
    state: ItemState
    why: str
    sent_at: Moment | None
    ended_at: Moment | None


class Outcomes(Given):
    """A page of a plan's deliveries, in their order."""

    items: list[Item]
    next: str | None
