"""A plan, which is a bulk action on dead letters: its kind, state, options and counts, its preview, and the version
that a user saw (pure).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

from bridge.formats.text_forms import format_time

#: The begin of the numbers of plans, which count seconds (2026-01-01, ms since the epoch): 31 bits until 2094.
NUMBERED_FROM: Final = 1_767_225_600_000


class PlanKind(StrEnum):
    """The action of a plan."""

    REPLAY = "replay"
    DISCARD = "discard"
    ARCHIVE = "archive"
    COPY = "copy"
    REDRIVE = "redrive"


class PlanState(StrEnum):
    """The state of a plan."""

    MAKING = "making"
    """Its letters are being frozen; if the process died meanwhile, it stays so and is never applied."""
    PLANNED = "planned"
    AWAITING = "awaiting"
    """It was applied, and awaits a second person, who approves or rejects it (second_person.py)."""
    APPLYING = "applying"
    """A process applies it or is to; if that process died, another resumes it."""
    STOPPED = "stopped"
    """A person or the canary stopped it; the remaining items are untouched, and it may be resumed."""
    DONE = "done"
    """All its items were processed; the outcomes of sent ones are known later."""
    FAILED = "failed"


class PlanItemState(StrEnum):
    """The state of an item of a plan."""

    WAITING = "waiting"
    CLAIMED = "claimed"
    """This plan is about to send it, or has just sent it."""
    SENT = "sent"
    DONE = "done"
    DEAD = "dead"
    """It died again."""
    DISCARDED = "discarded"
    UNKNOWN = "unknown"
    """Its outcome cannot be known any more."""
    SKIPPED = "skipped"
    """It had changed since the plan was made, or needed nothing."""
    REFUSED = "refused"
    """Kafka refused it."""


#: The states of a plan of which nothing was done.
NOT_BEGUN: Final = (PlanState.MAKING, PlanState.PLANNED, PlanState.AWAITING)
#: The states of items in flight.
UNDER_WAY: Final = (PlanItemState.CLAIMED, PlanItemState.SENT)
#: The states of items that have not ended.
UNENDED: Final = (PlanItemState.WAITING, *UNDER_WAY)


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The options of a plan.

    Attributes:
        rate: most letters a second; `None`: unlimited.
        canary: whether it sends in waves, each only if the one before ended well (model/plan_order.py).
        all_handlers: whether it sends to every handler of the topic whose delivery is not done.
        again: whether deliveries that are done run again, once for this plan.
        logs: of a redrive, the ids of the partitions' logs, in which its offsets are valid.
        into: of a redrive, the id of its replay topic; empty: it has sent nothing yet.
        target: of a copy, the topic and the Kafka cluster (replay/copy_action.py), without secrets.
        canary_starts: the waves at which a stopped canary was resumed with one letter, in order.
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
        """Return the options as JSON-compatible data."""
        data = asdict(self) | {"canary_starts": list(self.canary_starts)}
        # Without these, older versions can read the plan.
        return {name: value for name, value in data.items() if value or name not in ("into", "canary_starts")}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Return the options that `to_data` wrote."""
        return cls(**{**data, "canary_starts": tuple(data.get("canary_starts", ()))})


@dataclass(frozen=True, slots=True)
class PlanCounts:
    """The counts of a plan when it was made.

    Attributes:
        letters: all letters of the plan.
        handlers: letters by handler and reason.
        done: letters whose delivery is done by now, says the ledger: they are skipped.
        replaying: matching letters that are replaying already: the plan does not have them.
        too_large: letters larger than their target topic takes.
        too_old: letters too large for the database, and no longer in Kafka.
        foreign: letters of other programs: they go to their source topic.
        unknown_handlers: letters by handlers that neither the app nor a worker knows: they are skipped.
        replayed: letters by the number of replays that have failed.
        stands: of a redrive, deliveries of the range by handler and `DeliveryStand`.
        edits: letters that go back with another value, and why others do not.
        warnings: sentences for the person who approves the plan.
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
        """Return the counts as JSON-compatible data."""
        return asdict(self) | {"warnings": list(self.warnings)}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Return the counts that `to_data` wrote."""
        return cls(**{**data, "warnings": tuple(data.get("warnings", ()))})


@dataclass(frozen=True, slots=True)
class BulkPlan:
    """A plan with the states of its items.

    Attributes:
        at, began_at, ended_at: ms since the epoch.
        why: the reason of its maker.
        asked: the filter, as JSON.
        outcomes: its items by `PlanItemState`, without zeros.
        stopped: why it stopped, if it did.
        wave: the current wave of a canary.
        planner: the person who made it; of an API token, who made the token; empty: as `by`.
        approved_by, approved_at: the second person who approved it, and when; empty and `None`: nobody.
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
    planner: str = ""
    approved_by: str = ""
    approved_at: int | None = None

    def count(self, *states: PlanItemState) -> int:
        """Return the number of its items in one of these states."""
        return sum(self.outcomes.get(state, 0) for state in states)

    @property
    def name(self) -> str:
        """Return the name of the plan, unique across databases that have plans of the same id."""
        return f"plan {self.id} of {format_time(self.at / 1000, 'milliseconds')}"

    @property
    def number(self) -> int:
        """Return the number of its deliveries that are no letters, higher than those of all earlier plans.

        It comes from the clock, so it also exceeds plans of other databases, and retries that increment it.
        """
        return (self.at - NUMBERED_FROM) // 1000

    @property
    def is_over(self) -> bool:
        """Return whether the plan has ended, with all outcomes, unless somebody resumes it."""
        return self.state not in (*NOT_BEGUN, PlanState.APPLYING) and not self.count(*UNDER_WAY)

    @property
    def is_good(self) -> bool:
        """Return whether it was done and nothing of it ended badly, as far as known."""
        bad = self.count(PlanItemState.DEAD, PlanItemState.UNKNOWN, PlanItemState.REFUSED)
        return self.state is PlanState.DONE and not bad

    def to_data(self) -> dict[str, Any]:
        """Return the plan as JSON-compatible data."""
        times = {name: getattr(self, name) for name in ("at", "approved_at", "began_at", "ended_at")}
        return {
            "id": self.id,
            "what": str(self.what),
            "by": self.by,
            "planner": self.planner or self.by,
            "approved_by": self.approved_by,
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
    """The expected result of a plan for its matching letters.

    Attributes:
        will: letters that it will process, as far as known.
        done: letters that are done, says the ledger.
        elsewhere: letters of another plan, at the time of the preview or since.
        unknown: letters of unknown handlers.
        unfit: letters that are too large for their topic, or whose value Kafka has dropped.
        unpatched: letters that a patch does not change, does not apply to, or makes invalid.
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
        """Return the number of letters that it will not process."""
        return self.matched - self.will


def preview_plan(plan: BulkPlan, gone: int) -> PlanPreview:
    """Return the expected result of a plan.

    Parameters:
        gone: the plan's letters that other plans have taken since it was made.
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
    """Return the version of a plan, which changes with every act on it: a decision names it, and so is applied once.

    Parameters:
        last_act: the id of its last audit entry; 0: none.
    """
    return f"{state}-{last_act}"
