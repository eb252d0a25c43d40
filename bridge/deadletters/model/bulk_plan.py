"""A plan, which is a bulk action on dead letters: its kind, state, options and counts, its preview, and its version as
a user saw it (pure).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

from bridge.formats.text_forms import format_time

#: From when on plans are numbered by their seconds (2026-01-01, ms since the epoch): in 31 bits until 2094.
NUMBERED_FROM: Final = 1_767_225_600_000


class PlanKind(StrEnum):
    """What a plan does with its letters."""

    REPLAY = "replay"
    DISCARD = "discard"
    ARCHIVE = "archive"
    COPY = "copy"
    REDRIVE = "redrive"


class PlanState(StrEnum):
    """How far a plan is."""

    MAKING = "making"
    """What it is about is being written down; if the process that did it died, it stays so and is never applied."""
    PLANNED = "planned"
    APPLYING = "applying"
    """Somebody does it, or is to: what a process left that died, another takes up."""
    STOPPED = "stopped"
    """A person or the canary stopped it; what it had not come to is untouched, and it may be gone on with."""
    DONE = "done"
    """Each of its letters was come to; how those end that were sent is known later."""
    FAILED = "failed"


class PlanItemState(StrEnum):
    """How far a plan is with one of its deliveries."""

    WAITING = "waiting"
    CLAIMED = "claimed"
    """This plan has it, and is about to send it, or has sent it."""
    SENT = "sent"
    DONE = "done"
    DEAD = "dead"
    """It died again."""
    DISCARDED = "discarded"
    UNKNOWN = "unknown"
    """What became of it cannot be known any more."""
    SKIPPED = "skipped"
    """It was not as it was when the plan was made, or needs nothing."""
    REFUSED = "refused"
    """Kafka does not take it."""


#: Of what is on its way.
UNDER_WAY: Final = (PlanItemState.CLAIMED, PlanItemState.SENT)
#: Of what has not ended yet.
UNENDED: Final = (PlanItemState.WAITING, *UNDER_WAY)


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """How a plan is done.

    Attributes:
        rate: letters a second at most; `None`: as fast as it goes.
        canary: in waves, each only if the one before ended well (bridge.deadletters.model.plan_order).
        all_handlers: to every handler of the topic whose delivery is not done, not only to the one that failed.
        again: deliveries run although they are done; each once for this plan.
        logs: of a redrive, by partition the id of the log that its offsets are of.
        into: of a redrive, the id of the replay topic into which it has sent; empty: it has sent nothing yet.
        target: of a copy, the topic and which Kafka (bridge.deadletters.replay.letter_copy); nothing of it is secret.
        canary_starts: the waves at which a stopped canary began again with a wave of one letter, in order.
    """

    rate: float | None = None
    canary: bool = False
    all_handlers: bool = False
    again: bool = False
    logs: Mapping[str, str] = field(default_factory=dict)
    into: str = ""
    target: Mapping[str, str] = field(default_factory=dict)
    canary_starts: tuple[int, ...] = ()

    def to_data(self) -> dict[str, Any]:
        """As JSON."""
        data = asdict(self) | {"canary_starts": list(self.canary_starts)}
        # Versions of before these came read all other plans.
        return {name: value for name, value in data.items() if value or name not in ("into", "canary_starts")}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """What `to_data` wrote."""
        return cls(**{**data, "canary_starts": tuple(data.get("canary_starts", ()))})


@dataclass(frozen=True, slots=True)
class PlanCounts:
    """What a plan was about when it was made.

    Attributes:
        letters: that it has.
        handlers: how many by handler and reason.
        done: whose delivery the ledger has as done by now: they are skipped.
        replaying: that were asked for too, and are replaying already: the plan does not have them.
        too_large: larger than the topic takes to which they would go.
        too_old: too large for the database, and no longer in Kafka.
        foreign: of other programs: they go to their source topic.
        unknown_handlers: by handlers that neither the app nor a worker knows: they are skipped.
        replayed: how many have already failed after so many replays.
        stands: of a redrive, by handler how many deliveries of the range stood how (redrive.standing).
        edits: of letters that go back with another value, how many, and why others do not.
        warnings: for who approves it, a sentence each.
    """

    letters: int = 0
    handlers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    done: int = 0
    replaying: int = 0
    too_large: int = 0
    too_old: int = 0
    foreign: int = 0
    unknown_handlers: Mapping[str, int] = field(default_factory=dict)
    replayed: Mapping[str, int] = field(default_factory=dict)
    stands: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    edits: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def to_data(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self) | {"warnings": list(self.warnings)}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """What `to_data` wrote."""
        return cls(**{**data, "warnings": tuple(data.get("warnings", ()))})


@dataclass(frozen=True, slots=True)
class BulkPlan:
    """A plan as it stands.

    Attributes:
        at, began_at, ended_at: ms since the epoch.
        why: as who made it says.
        asked: the filter, as JSON.
        outcomes: how many of its deliveries are how far (`ItemState`), without what is 0.
        stopped: why it stopped, if it did.
        wave: of a canary, the one that it is at.
    """

    id: int
    what: PlanKind
    state: PlanState
    by: str
    at: int
    why: str
    asked: Mapping[str, Any]
    options: PlanOptions
    counts: PlanCounts
    outcomes: Mapping[str, int]
    stopped: str = ""
    wave: int = 0
    began_at: int | None = None
    ended_at: int | None = None

    def count(self, *states: PlanItemState) -> int:
        """How many of its deliveries are in one of these states."""
        return sum(self.outcomes.get(state, 0) for state in states)

    @property
    def name(self) -> str:
        """By what it is told from all plans, also of other databases, where there is one of the same id."""
        return f"plan {self.id} of {format_time(self.at / 1000, 'milliseconds')}"

    @property
    def number(self) -> int:
        """The number of deliveries that it sends and that are no letters: higher than those of all plans before it.

        By the clock, so that it is so of plans of other databases, too, and stays so while retries count it on.
        """
        return (self.at - NUMBERED_FROM) // 1000

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come of it unless somebody goes on with it: all that was sent has ended."""
        return self.state not in (PlanState.MAKING, PlanState.PLANNED, PlanState.APPLYING) and not self.count(
            *UNDER_WAY
        )

    @property
    def is_good(self) -> bool:
        """Whether it was done, and nothing of it ended badly, as far as that is known."""
        bad = self.count(PlanItemState.DEAD, PlanItemState.UNKNOWN, PlanItemState.REFUSED)
        return self.state is PlanState.DONE and not bad

    def to_data(self) -> dict[str, Any]:
        """As JSON."""
        times = {name: getattr(self, name) for name in ("at", "began_at", "ended_at")}
        return {
            "id": self.id,
            "what": str(self.what),
            "by": self.by,
            "state": str(self.state),
            "why": self.why,
            "asked": dict(self.asked),
            "options": self.options.to_data(),
            "counts": self.counts.to_data(),
            "outcomes": dict(self.outcomes),
            "stopped": self.stopped,
            "wave": self.wave,
            **{name: None if at is None else format_time(at / 1000, "milliseconds") for name, at in times.items()},
        }


class PlanPreview(NamedTuple):
    """The letters that matched.

    Attributes:
        will: that it will do, as far as that is known.
        done: by the ledger.
        elsewhere: that another plan has: it had them when this one was made, or has taken them since.
        unknown: of handlers that nobody knows.
        unfit: too large for their topic, or too old to be at hand.
        unpatched: that a patch leaves out: it changes nothing of them, does not apply, or makes what is not taken.
    """

    matched: int
    will: int
    done: int
    elsewhere: int
    unknown: int
    unfit: int
    unpatched: int = 0

    @property
    def left_out(self) -> int:
        """How many it will not do."""
        return self.matched - self.will


def preview_plan(plan: BulkPlan, gone: int) -> PlanPreview:
    """What will become of the letters that matched.

    Parameters:
        gone: how many of the plan's letters others have taken since it was made.
    """
    counts = plan.counts
    unknown, unfit = sum(counts.unknown_handlers.values()), counts.too_large + counts.too_old
    unpatched = sum(counts.edits.get(name, 0) for name in ("unchanged", "no_json", "not_applied", "not_valid"))
    will = counts.letters - gone - counts.done - unknown - unfit - unpatched
    return PlanPreview(
        matched=counts.letters + counts.replaying,
        will=max(0, will),
        done=counts.done,
        elsewhere=counts.replaying + gone,
        unknown=unknown,
        unfit=unfit,
        unpatched=unpatched,
    )


def compute_plan_version(state: str, last_act: int) -> str:
    """Changes with everything that is done with a plan: who decides says it, and so the same is not done twice.

    Parameters:
        last_act: id of the last entry of the trail about it; 0: there is none.
    """
    return f"{state}-{last_act}"
