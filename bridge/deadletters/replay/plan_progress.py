"""The progress of a plan as pages and programs show it, and its approval by a person: valid once, and only if the plan
is as the person saw it.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from bridge.deadletters.db import audit_rows, plan_counts, plan_item_rows, plan_rows
from bridge.deadletters.db.database import Connection, Database
from bridge.deadletters.db.plan_counts import WaveState
from bridge.deadletters.model.bulk_plan import (
    NOT_BEGUN,
    UNDER_WAY,
    BulkPlan,
    PlanItemState,
    PlanKind,
    PlanState,
    compute_plan_version,
)
from bridge.deadletters.model.letter_view import LetterAct
from bridge.deadletters.model.plan_order import WAVES, find_canary_limit, find_stage
from bridge.errors import NoSuchPlan, PlanChanged
from bridge.jobs.group_facts import format_letter_count as letters_said
from bridge.jobs.group_facts import format_utc

#: Most letters that died again, and most reasons for left-out letters, that are shown.
SHOWN: Final = 20
#: The states of left-out letters.
_NOT_DONE: Final = (PlanItemState.SKIPPED, PlanItemState.REFUSED, PlanItemState.UNKNOWN)
#: Ms after which a plan without a process is reported.
TAKEN_UP_WITHIN: Final = 10_000


def require_plan(connection: Connection, id_: int, *, counts: bool = True, lock: bool = False) -> BulkPlan:
    """Return a plan.

    Parameters:
        counts: whether its items are counted by state.
        lock: whether nobody else may change it until the transaction ends.

    Raises:
        NoSuchPlan: there is none of that number.
    """
    plan = plan_rows.read_plan(connection, id_, counts=counts, lock=lock)
    if plan is None:
        raise NoSuchPlan(f"There is no plan {id_}: bridge deadletters plans lists them.")
    return plan


class WaveProgress(NamedTuple):
    """A wave of a canary.

    Attributes:
        number: from 1 on.
        stops_at: the deaths in it that stop the plan.
        sent_at, ended_at: of the first, and the last, ms since the epoch, as all times here.
        is_now: whether it is the current wave.
    """

    number: int
    outcomes: dict[str, int]
    stops_at: int
    sent_at: int | None
    ended_at: int | None
    is_now: bool
    is_last: bool

    @property
    def letters(self) -> int:
        """Return the number of its letters."""
        return sum(self.outcomes.values())

    def count(self, *states: PlanItemState) -> int:
        """Return the number of its items in one of these states."""
        return sum(self.outcomes.get(state, 0) for state in states)


class LetterDeadAgain(NamedTuple):
    """A letter that died again after a plan replayed it, with its last failure.

    Attributes:
        wave: from 1 on; `None`: the plan has none.
        took: ms from the send to its end.
    """

    id: int
    name: str
    key: bytes | None
    error: str
    version: str
    wave: int | None
    took: int | None


class LeftOutLetters(NamedTuple):
    """Letters that a plan left out, or whose outcome is unknown.

    Attributes:
        state: "skipped", "refused", "discarded", "unknown".
    """

    state: str
    why: str
    letters: int


class ItemProgress(NamedTuple):
    """The progress of one item of a plan.

    Attributes:
        position: in the plan, from 1 on.
        letter: the letter whose record is sent; `None`: no letter (a redrive).
        place: the delivery, if it is not the letter's own.
        wave: of a canary, from 1 on.
        why: why it was left out, or died again.
        sent_at, ended_at: ms since the epoch.
    """

    position: int
    letter: int | None
    place: str | None
    wave: int | None
    state: str
    why: str
    sent_at: int | None
    ended_at: int | None


@dataclass(frozen=True, slots=True)
class PlanProgress:
    """A plan with its progress.

    Attributes:
        key: its version, for a decision (model/bulk_plan.py).
        gone: of a plan that was not begun, its letters that other plans have taken.
        taken_up: whether a process applies it, or it is delayed.
        waves: of a canary.
        trail: its audit entries, oldest first.
    """

    plan: BulkPlan
    key: str
    gone: int
    taken_up: bool
    waves: tuple[WaveProgress, ...]
    dead: tuple[LetterDeadAgain, ...]
    left_out: tuple[LeftOutLetters, ...]
    trail: tuple[LetterAct, ...]
    at: int

    @property
    def left(self) -> int:
        """Return the number of its letters that no other plan has taken."""
        return self.plan.counts.letters - self.gone

    @property
    def alone_for(self) -> int | None:
        """Return the ms for which the plan is to be applied and no process does; `None` if one does, or for a short
        time.
        """
        begun = self.trail[-1].at if self.trail else None
        if self.plan.state is not PlanState.APPLYING or self.taken_up or begun is None:
            return None
        passed = self.at - begun
        return passed if passed > TAKEN_UP_WITHIN else None


@dataclass(frozen=True)
class PlanProgressReader:
    """The progress of single plans. Every method raises DeskUnavailable if the database does not answer."""

    database: Database
    clock: Callable[[], float] = time.time

    def read_progress(self, id_: int) -> PlanProgress:
        """Return a plan with its progress.

        Raises:
            NoSuchPlan: there is none of that number.
        """
        with self.database.reading() as connection:
            plan, waves = _read_plan_state(connection, id_)
            acts = audit_rows.read_history(connection, plan_id=id_)
            begun = plan.state not in NOT_BEGUN
            return PlanProgress(
                plan=plan,
                key=compute_plan_version(plan.state, acts[-1].id if acts else 0),
                gone=0 if begun else plan_rows.find_changed_letters(connection, id_, plan.at).letters,
                taken_up=plan_rows.is_plan_leased(connection, id_),
                waves=_build_waves(plan, waves),
                dead=_read_dead_again(connection, plan) if plan.count(PlanItemState.DEAD) else (),
                left_out=_read_left_out(connection, plan) if begun else (),
                trail=tuple(LetterAct(act.at, act.by, act.what, act.said, act.plan_id) for act in acts),
                at=int(self.clock() * 1000),
            )

    def left_out(self, plan: BulkPlan) -> tuple[LeftOutLetters, ...]:
        """Return the left-out letters of a plan by reason, the largest number first."""
        if not plan.count(*_NOT_DONE, PlanItemState.DISCARDED):
            return ()
        with self.database.reading() as connection:
            return _read_left_out(connection, plan)

    def each(self, id_: int, states: Sequence[PlanItemState], after: int, limit: int) -> list[ItemProgress]:
        """Return the progress of a plan's items, in their order.

        Parameters:
            states: empty: all.
            after: the position after which the page begins; 0: from the first on.

        Raises:
            NoSuchPlan: there is none of that number.
        """
        with self.database.reading() as connection:
            plan = require_plan(connection, id_, counts=False)
            rows = plan_counts.read_item_states(connection, id_, states, after, limit)
        waves = plan.options.canary
        return [ItemProgress._make(row)._replace(wave=row.wave + 1 if waves else None) for row in rows]


def _read_plan_state(connection: Connection, id_: int) -> tuple[BulkPlan, Sequence[WaveState]]:
    """Return a plan and the waves of a canary, with one scan of its items."""
    plan = require_plan(connection, id_, counts=False)
    if not plan.options.canary:
        return replace(plan, outcomes=plan_item_rows.count_item_states(connection, [id_]).get(id_, {})), ()
    waves = plan_counts.read_wave_states(connection, id_)
    outcomes: Counter[str] = sum((Counter(wave.outcomes) for wave in waves), Counter())
    return replace(plan, outcomes=dict(outcomes)), waves


def _build_waves(plan: BulkPlan, waves: Sequence[WaveState]) -> tuple[WaveProgress, ...]:
    last = max((wave.wave for wave in waves), default=0)
    stages = {wave.wave: find_stage(wave.wave, plan.options.canary_starts) for wave in waves}
    applying = plan.state is PlanState.APPLYING
    return tuple(
        WaveProgress(
            number=wave.wave + 1,
            outcomes=wave.outcomes,
            stops_at=find_canary_limit(stages[wave.wave], sum(wave.outcomes.values())),
            sent_at=wave.sent_at,
            ended_at=None if any(state in wave.outcomes for state in UNDER_WAY) else wave.ended_at,
            is_now=applying and wave.wave == plan.wave,
            is_last=wave.wave == last or stages[wave.wave] >= len(WAVES),
        )
        for wave in waves
    )


def _read_left_out(connection: Connection, plan: BulkPlan) -> tuple[LeftOutLetters, ...]:
    states = [*_NOT_DONE]
    if plan.what is not PlanKind.DISCARD:
        states.append(PlanItemState.DISCARDED)
    return tuple(LeftOutLetters(*each) for each in plan_counts.count_ends(connection, plan.id, states, SHOWN))


def _read_dead_again(connection: Connection, plan: BulkPlan) -> tuple[LetterDeadAgain, ...]:
    return tuple(
        LetterDeadAgain(
            row.id,
            f"{row.topic}-{row.partition}-{row.offset}",
            row.key,
            f"{row.error_class.rpartition('.')[2]}: {row.error_message}",
            row.version,
            row.wave + 1 if plan.options.canary else None,
            None if row.sent_at is None or row.ended_at is None else max(0, row.ended_at - row.sent_at),
        )
        for row in plan_counts.read_dead_letters(connection, plan.id, SHOWN)
    )


#: Ms for which a discard can be undone before it begins.
DISCARD_AFTER: Final = 10_000


class PlanApproval(NamedTuple):
    """The approval of a plan, to be applied or resumed.

    Attributes:
        key: the version of the plan that the person saw (model/bulk_plan.py).
        left: the number of its letters that no other plan had taken then.
        rate, canary, why: of a plan that was not begun (`PlanOptions`, `BulkPlan`).
    """

    key: str
    left: int = 0
    rate: float | None = None
    canary: bool = False
    why: str = ""


def require_unchanged_plan(connection: Connection, plan: BulkPlan, by: str, seen: str) -> None:
    """Require that nothing was done with a plan since the person saw it.

    Raises:
        PlanChanged: it has changed; the message says who did what, and when.
    """
    acts = audit_rows.read_history(connection, plan_id=plan.id, last=1)
    if seen == compute_plan_version(plan.state, acts[-1].id if acts else 0):
        return
    if not acts:
        raise PlanChanged(f"Plan {plan.id} is {plan.state} by now.")
    last = acts[-1]
    whose = "you" if last.by == by else last.by
    raise PlanChanged(
        f"Plan {plan.id} is {plan.state} by now: {last.said}, by {whose} at {format_utc(last.at / 1000)}."
    )


def require_untaken_letters(connection: Connection, plan: BulkPlan, left: int) -> None:
    """Require that no other plan has taken letters of a plan since the person saw it.

    Raises:
        PlanChanged: one has; the message says which plan of whom, how many, and how many are left.
    """
    gone = plan_rows.find_changed_letters(connection, plan.id, plan.at)
    now = plan.counts.letters - gone.letters
    if now == left:
        return
    others = [other for id_ in gone.plans if (other := plan_rows.read_plan(connection, id_))]
    whose = ", ".join(f"plan {other.id} of {other.by}" for other in others) or "Somebody"
    verb = "have" if len(others) > 1 else "has"
    count, them = gone.letters, letters_said(plan.counts.letters)
    raise PlanChanged(f"{whose[0].upper()}{whose[1:]} {verb} taken {count:,} of these {them}. {now:,} are left.")
