"""The shapes of how the group stands, of what people decide for it, and of the audit log."""

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from bridge.web.api.shapes.common import LONGEST_WHY, Count, Given, Id, Moment, Paged, Told, Wanted
from bridge.web.api.shapes.letters import Filter, Line, Word

Reason = Annotated[str, Field(min_length=1, max_length=LONGEST_WHY, description="It stays in the audit log.")]


class Open(Given):
    """What the command of the same name gives as JSON, field by field."""

    model_config = ConfigDict(extra="allow", frozen=True)


class Status(Open):
    """As `bridge status --json`."""

    problems: list[str]
    asked_at: Moment


class Stats(Open):
    """As `bridge deadletters stats --json`."""

    statuses: dict[str, int]
    groups: Count


class FindQuery(Wanted):
    """What is looked for."""

    q: Annotated[
        str, Field(min_length=1, max_length=1_000, description="`orders-3-1234`, a task's id, a key, `topic key`.")
    ]


class Found(Told):
    """Where it is now."""

    records: list[dict[str, Any]] = Field(description="As `bridge find --json`.")
    letters: list[Line]
    plan: Id | None = Field(None, description="Where a plan was named.")


class Audit(Open):
    """As `bridge audit TOPIC --json`."""

    topic: str
    clean: bool
    counted_at: Moment


class Audits(Given):
    """The last count of each topic, since this console began."""

    items: list[Audit]


class TrailQuery(Paged):
    """Which lines of the audit log."""

    by: Word = ""
    what: Annotated[list[Word], Field(max_length=100, description="`replay`, `note`, `halt`, …")] = []


class TrailExport(Wanted):
    """The same of all of it."""

    by: Word = ""
    what: Annotated[list[Word], Field(max_length=100)] = []


class Entry(Given):
    """A line of the audit log."""

    id: Id
    at: Moment | None
    by: str
    what: str
    said: str
    letter_id: Id | None
    letter: str
    group_id: Id | None
    plan_id: Id | None


class Trail(Given):
    """A page of the audit log, newest first."""

    items: list[Entry]
    next: str | None


class Deciding(Wanted):
    """Why it is decided."""

    why: Reason


class Halted(Open):
    """How a topic stands."""

    halted: bool
    warnings: list[str] = Field([], description="Where not both Kafka and Redis have it yet.")


class Halts(Given):
    """The topics that are halted."""

    topics: dict[str, dict[str, Any]]


class Changing(Wanted):
    """What of a policy is to change; one of both."""

    set: Annotated[
        dict[str, Word], Field(max_length=50, description="By option its value, as the command takes it.")
    ] = {}
    unset: Annotated[list[Word], Field(max_length=50, description="Options that are the code's again.")] = []
    why: Reason


class Policy(Open):
    """As `bridge policy show HANDLER --json`."""

    policy: dict[str, Any]
    changed: dict[str, Any]
    fault: str | None
    warnings: list[str] = []


class Policies(Given):
    """By handler."""

    handlers: dict[str, Policy]


class Trying(Wanted):
    """A policy to be tried on dead letters."""

    options: Annotated[list[Word], Field(max_length=50, description="`option=value` each.")] = []
    letters: Filter = Filter()


class Simulation(Open):
    """As `bridge deadletters simulate --json`."""

    policy: dict[str, Any]
