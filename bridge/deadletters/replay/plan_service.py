"""Plans as commands and the console use them: made, approved, applied, stopped, resumed, waited for."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Final

from celery import Celery

from bridge.deadletters.db import account_rows, audit_rows, plan_counts, plan_item_rows, plan_order_rows, plan_rows, sql
from bridge.deadletters.db.database import Connection, Database, require_same_cluster
from bridge.deadletters.db.filter_sql import select_matching_letters
from bridge.deadletters.db.value_search import find_among
from bridge.deadletters.model.bulk_plan import NOT_BEGUN, BulkPlan, PlanCounts, PlanKind, PlanOptions, PlanState
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.second_person import is_planner, needs_second_person
from bridge.deadletters.replay import copy_action, plan_runner
from bridge.deadletters.replay.fate_reconciliation import FateReconciler
from bridge.deadletters.replay.ledger_fates import LedgerFates
from bridge.deadletters.replay.plan_action import ArchiveAction, DiscardAction, PlanAction
from bridge.deadletters.replay.plan_lanes import LaneRelease, lay_plan_lanes
from bridge.deadletters.replay.plan_preview import (
    PlanCounter,
    add_other_handlers,
    choose_letters,
    find_known_handlers,
)
from bridge.deadletters.replay.plan_progress import (
    DISCARD_AFTER,
    PlanApproval,
    require_plan,
    require_unchanged_plan,
    require_untaken_letters,
)
from bridge.deadletters.replay.plan_runner import PlanRunner, RunnerHooks, name_this_process
from bridge.deadletters.replay.redrive_action import RedriveAction
from bridge.deadletters.replay.redrive_outcomes import RedriveOutcomes
from bridge.deadletters.replay.redrive_range import open_range_look
from bridge.deadletters.replay.replay_action import ReplayAction
from bridge.deadletters.replay.replay_outcomes import ReplayOutcomes
from bridge.deadletters.replay.replay_target import TargetPartitions, name_target_topic
from bridge.errors import (
    BridgeError,
    DeskUnavailable,
    KafkaUnavailable,
    LedgerUnavailable,
    PlanHeld,
    PlanRefused,
    PlanTakenOver,
)
from bridge.handler_routes import Routes
from bridge.jobs.group_facts import format_letter_count as letters_said
from bridge.kafka.clients import admin_client
from bridge.kafka.record_reader import RecordPicker
from bridge.kafka.topic_admin import read_cluster
from bridge.settings import Settings


@contextmanager
def create_action(
    app: Celery, settings: Settings, routes: Routes, database: Database, plan: BulkPlan, fates: LedgerFates
) -> Iterator[PlanAction]:
    """Create the action of a plan.

    Raises:
        CopyRefused: the topic of copies does not exist (any more), or this process has no credentials for its cluster.
    """
    if plan.what is PlanKind.ARCHIVE:
        yield ArchiveAction(plan)
        return
    if plan.what is PlanKind.COPY:
        copy_action.read_target_topics(settings, copy_action.find_copy_target(plan), plan.options.target["topic"])
        yield copy_action.CopyAction(settings, database, plan)
        return
    if plan.what is PlanKind.DISCARD:
        yield DiscardAction(database, plan, fates)
        return
    ends = TargetPartitions(settings)
    with database.reading() as connection:
        heaps, last_wave = (
            plan_counts.count_letter_heaps(connection, plan.id),
            plan_item_rows.find_last_wave(connection, plan.id),
        )
    ends.prepare((name_target_topic(settings, heap.group, heap.topic, ours=heap.is_ours), heap.topic) for heap in heaps)
    letters = ReplayAction(settings, database, plan, last_wave, ends, fates, find_known_handlers(app, settings, routes))
    if plan.what is PlanKind.REPLAY:
        yield letters
        return
    topic = str(plan.asked["topic"])
    ends.prepare([(name_target_topic(settings, settings.group, topic, ours=True), topic)])
    RedriveOutcomes(settings, database, fates).enter(plan)
    with open_range_look(settings, topic) as look, RecordPicker(settings, topic) as picking:
        yield RedriveAction(settings, plan, ends, letters, fates, picking, look.logs)


#: Called with the plan about once a second.
PlanListener = Callable[[BulkPlan], None]
#: Seconds between two polls of outcomes, and the least factor of the pause over the time of a poll.
LOOK_EVERY: Final = 0.5
REST: Final = 2.0
#: The kinds of plans that run handlers.
SENDS: Final = (PlanKind.REPLAY, PlanKind.REDRIVE)


def ignore_plan(plan: BulkPlan) -> None:
    """Ignore a plan: a listener that does nothing."""


@dataclass(frozen=True)
class PlanService:
    """The plans. Every method raises DeskUnavailable if the database does not answer.

    Attributes:
        over: the cache of plans that are over, which are not counted again.
    """

    app: Celery
    settings: Settings
    routes: Routes
    database: Database
    over: plan_rows.OverPlans = field(default_factory=dict, repr=False)

    def make(self, what: PlanKind, filter_: LetterFilter, options: PlanOptions, by: str, why: str = "") -> BulkPlan:
        """Freeze the letters of a filter, and count them for the approval; nothing is done yet.

        Parameters:
            what: replay (of open letters), discard (also of archived ones that the filter names) or archive.
            why: required to discard.

        Raises:
            PlanRefused: an option is invalid.
            FilterFault: the filter selects letters of which the plan may take none; ended ones can be archived.
        """
        _require_plan_kind(what)
        _require_valid_options(what, options, why)
        return self._make(what, filter_, options, by, why)

    def draft(self, what: PlanKind, filter_: LetterFilter, by: str) -> BulkPlan:
        """Freeze the letters of a filter; options and reason follow with `decide`.

        Raises:
            PlanRefused, FilterFault: as `make`.
        """
        _require_plan_kind(what)
        return self._make(what, filter_, PlanOptions(), by, "")

    def _make(self, what: PlanKind, filter_: LetterFilter, options: PlanOptions, by: str, why: str) -> BulkPlan:
        meant = choose_letters(what, filter_)
        among = find_among(self.database, meant)
        with self.database.writing() as connection:
            id_, at = plan_rows.add_plan(connection, what, by, why, filter_.to_data(), options)
            count = plan_item_rows.freeze_letters(
                connection, id_, select_matching_letters(meant, among), canary=options.canary
            )
            if options.all_handlers:
                add_other_handlers(connection, id_, count, self.settings, self.routes, options.canary)
            said = f"plan {id_}: to {what} {letters_said(count)}" + (f": {why}" if why else "")
            audit_rows.write_entry(connection, at, by, what, said, plan_id=id_)
        self._count(id_, what, filter_)
        return self.one(id_)

    def counted(self, id_: int) -> BulkPlan:
        """Return a plan with its counts, which are made now if its maker died before.

        Raises:
            NoSuchPlan: there is none of that number.
        """
        plan = self.one(id_)
        if plan.counts == PlanCounts() and plan.state is PlanState.PLANNED:
            self._count(id_, plan.what, LetterFilter.from_data(plan.asked))
        return self.one(id_)

    def _count(self, id_: int, what: PlanKind, filter_: LetterFilter) -> None:
        handlers = find_known_handlers(self.app, self.settings, self.routes) if what is PlanKind.REPLAY else frozenset()
        counts = PlanCounter(self.settings, self.database, handlers).counts(id_, what, filter_)
        with self.database.writing() as connection:
            plan_rows.note_plan_counts(connection, id_, counts)

    def one(self, id_: int) -> BulkPlan:
        """Return a plan.

        Raises:
            NoSuchPlan: there is none of that number.
        """
        with self.database.reading() as connection:
            return require_plan(connection, id_)

    def latest(self, count: int = 50, before: int | None = None) -> list[BulkPlan]:
        """Return the latest plans, newest first.

        Parameters:
            before: the plan after which the page begins.
        """
        with self.database.reading() as connection:
            return plan_rows.read_latest_plans(connection, count, before, self.over)

    def earlier(self, id_: int, count: int) -> list[BulkPlan]:
        """Return the earlier runs of a plan's action and selection, newest first."""
        with self.database.reading() as connection:
            return plan_rows.read_earlier_runs(connection, id_, count, self.over)

    def applying(self, *, counts: bool = True) -> list[BulkPlan]:
        """Return the plans that are being applied, newest first.

        Parameters:
            counts: whether their items are counted by state, which is slow for large plans.
        """
        with self.database.reading() as connection:
            return plan_rows.read_applying_plans(connection, counts=counts)

    def apply(self, id_: int, by: str, heard: PlanListener = ignore_plan) -> BulkPlan:
        """Apply or resume a plan; return when all was sent, or it stopped, or awaits a second person.

        Raises:
            NoSuchPlan, PlanRefused: there is none; or it is over, or another process applies it.
            DeskOfAnotherKafka: nothing was begun: the letters are not of this Kafka cluster.
            KafkaUnavailable, LedgerUnavailable: `bridge deadletters record`, or another call, resumes it.
        """
        who = name_this_process()
        self._check_cluster(id_)
        if self._begin(id_, by, who):
            self._apply_plan(id_, who, heard)
        return self.one(id_)

    def approve(self, id_: int, by: str) -> BulkPlan:
        """Have a plan applied by `bridge deadletters record`, in the background; it may await a second person first.

        Raises:
            NoSuchPlan, PlanRefused: as `apply`.
        """
        self._begin(id_, by)
        return self.one(id_)

    def decide(self, id_: int, by: str, decision: PlanApproval) -> BulkPlan:
        """Have a plan applied by `bridge deadletters record` as a person approved it, once.

        A large one awaits a second person, whose decision keeps its options. Discarding begins after `DISCARD_AFTER`,
        until when it can be stopped.

        Raises:
            NoSuchPlan, PlanRefused: as `approve`; or a reason is required.
            PlanChanged: the plan, or a letter of it, has changed since the person saw it.
        """
        with self.database.writing() as connection:
            plan = require_plan(connection, id_, lock=True)
            require_unchanged_plan(connection, plan, by, decision.key)
            if plan.state in (PlanState.PLANNED, PlanState.AWAITING):
                require_untaken_letters(connection, plan, decision.left)
            if plan.state is PlanState.PLANNED:
                options = replace(plan.options, rate=decision.rate, canary=decision.canary)
                _require_valid_options(plan.what, options, decision.why)
                plan_rows.note_plan_options(connection, id_, options, decision.why)
                if options.canary:
                    plan_order_rows.cut_waves(connection, id_)
            begins = self._move_on(connection, plan, by)
            if begins and plan.began_at is None and plan.what is PlanKind.DISCARD:
                plan_rows.delay_plan(connection, id_, DISCARD_AFTER)
        return self.one(id_)

    def stop(self, id_: int, by: str, why: str = "", key: str = "") -> BulkPlan:
        """Stop a plan within a batch, or a second; the remaining letters stay as they are.

        A plan that awaits a second person is rejected by anybody but its planner.

        Parameters:
            key: the version of the plan that the person saw; empty: any.

        Raises:
            NoSuchPlan, PlanRefused: there is none, or it is over.
            PlanChanged: it has changed since the person saw it.
        """
        with self.database.writing() as connection:
            plan = require_plan(connection, id_, lock=True)
            if key:
                require_unchanged_plan(connection, plan, by, key)
            rejects = plan.state is PlanState.AWAITING and not is_planner(
                plan, account_rows.find_person(connection, by)
            )
            said = f"{'rejected' if rejects else 'stopped'} by {by}" + (f": {why}" if why else "")
            before = [PlanState.PLANNED, PlanState.AWAITING, PlanState.APPLYING]
            if not plan_rows.change_plan_state(connection, id_, before, PlanState.STOPPED, said):
                raise PlanRefused(f"Plan {id_} is {plan.state}: there is nothing to stop.")
            what = "reject" if rejects else "stop"
            audit_rows.write_entry(connection, sql.read_clock(connection), by, what, said, plan_id=id_)
            return require_plan(connection, id_)

    def wait(self, id_: int, heard: PlanListener = ignore_plan) -> BulkPlan:
        """Wait until all outcomes of a plan are known (`BulkPlan.is_over`).

        A recorder must run, which records new deaths.

        Raises:
            NoSuchPlan: there is none of that number.
            DeskOfAnotherKafka: the letters are not of this Kafka cluster, which does not know their outcomes.
        """
        self._check_cluster(id_)
        with LedgerFates.opened(self.settings) as fates:
            outcomes = ReplayOutcomes(self.settings, self.database, fates)
            while not (plan := self.one(id_)).is_over:
                heard(plan)
                _look_and_rest(lambda: outcomes.note_outcomes(id_), time.sleep)
            return plan

    def go_on(self, stopping: Event) -> None:
        """Apply approved plans and those of dead processes, until `stopping` is set."""
        plan_runner.resume_plans(
            self.database,
            lambda id_, who: self._apply_plan(id_, who, ignore_plan, stopping.is_set),
            stopping,
            self._holds,
        )

    def follow(self, stopping: Event) -> None:
        """Read the outcomes of all replays, until `stopping` is set.

        Raises:
            KafkaUnavailable, LedgerUnavailable: nothing is known for now.
        """
        with LedgerFates.opened(self.settings) as fates:
            outcomes = ReplayOutcomes(self.settings, self.database, fates)
            while not stopping.is_set():
                _look_and_rest(outcomes.note_outcomes, stopping.wait)

    def compare_with_ledger(self, stopping: Event) -> None:
        """Write the ends of letters again that the ledger has lost, until `stopping` is set.

        Raises:
            KafkaUnavailable, LedgerUnavailable: nothing is known for now.
        """
        with LedgerFates.opened(self.settings) as fates:
            FateReconciler(self.settings, self.database, fates).run(stopping)

    def _check_cluster(self, id_: int) -> None:
        """Require that the letters are of this Kafka cluster; to archive needs none."""
        if self.one(id_).what is not PlanKind.ARCHIVE:
            require_same_cluster(self.database, read_cluster(admin_client(self.settings.kafka)).id)

    def _begin(self, id_: int, by: str, who: str | None = None) -> bool:
        """Mark a plan as being applied, with a lease of this process if it gives its name; as `_move_on`."""
        with self.database.writing() as connection:
            return self._move_on(connection, require_plan(connection, id_, lock=True), by, who)

    @property
    def _above(self) -> int | None:
        return self.settings.environment.DEADLETTERS_APPROVAL_ABOVE

    def _holds(self, connection: Connection, id_: int) -> bool:
        """Return whether a plan that is to be applied awaits a second person, whatever process let it pass."""
        if self._above is None:
            return False
        plan = plan_rows.read_plan(connection, id_, lock=True)
        if plan is None or plan.state is not PlanState.APPLYING or not needs_second_person(plan, self._above):
            return False
        _await_second_person(connection, plan, plan.by)
        return True

    def _move_on(self, connection: Connection, plan: BulkPlan, by: str, who: str | None = None) -> bool:
        """Mark a plan as being applied; return false if it awaits a second person now.

        Parameters:
            plan: it is locked, so that nobody stops or rejects it meanwhile.
        """
        needs_approval = needs_second_person(plan, self._above)
        _require_unrejected_plan(connection, plan, needs_approval)
        if needs_approval:
            if is_planner(plan, account_rows.find_person(connection, by)):
                _await_second_person(connection, plan, by)
                return False
            plan_rows.note_plan_approval(connection, plan.id, by)
            said = f"plan {plan.id} of {plan.by} approved: {letters_said(sum(plan.outcomes.values()))}"
            audit_rows.write_entry(connection, sql.read_clock(connection), by, "approve", said, plan_id=plan.id)
        before = (*plan_rows.TO_DO, PlanState.AWAITING)
        if not plan_rows.change_plan_state(connection, plan.id, before, PlanState.APPLYING):
            raise PlanRefused(f"Plan {plan.id} is {plan.state}: it cannot be applied again; make a new one.")
        if who is not None and not plan_rows.lease_plan(connection, plan.id, who):
            raise PlanHeld(f"Plan {plan.id} is applied by another process: bridge deadletters plans shows how far.")
        if plan.state is PlanState.STOPPED and plan.options.canary:
            plan_rows.note_canary_restart(connection, plan, plan_order_rows.cut_new_waves(connection, plan.id))
        if plan.state is not PlanState.APPLYING:
            said = "applied" if plan.state in NOT_BEGUN else "gone on with"
            audit_rows.write_entry(
                connection, sql.read_clock(connection), by, "apply", f"plan {plan.id} {said}", plan_id=plan.id
            )
        return True

    def _apply_plan(self, id_: int, who: str, heard: PlanListener, leaves: Callable[[], bool] = lambda: False) -> None:
        """Apply a plan of which this process has the lease, until it is to leave it."""
        plan = self.one(id_)
        try:
            if plan.what in SENDS:
                with self.database.writing() as connection:
                    # Many letters take long: the lease must still be this process's afterwards.
                    plan_rows.renew_plan_lease(connection, id_, who)
                    lay_plan_lanes(connection, id_, self.settings)
                    plan_rows.renew_plan_lease(connection, id_, who)
            with LedgerFates.opened(self.settings) as fates:
                outcomes = ReplayOutcomes(self.settings, self.database, fates)
                if plan.what in SENDS:
                    # Sends of other plans that have ended are no longer in flight.
                    with suppress(KafkaUnavailable, LedgerUnavailable):
                        outcomes.note_outcomes()
                passing = LaneRelease(self.settings, self.database, plan, fates)
                with self.database.reading() as connection:
                    # Lanes wait for other plans' sends, whose outcomes no other process may be reading.
                    looked_at = None if plan_order_rows.has_lanes(connection, id_) else id_
                around = RunnerHooks(
                    lambda: outcomes.note_outcomes(looked_at), passing.passed, lambda: heard(self.one(id_)), leaves
                )
                with create_action(self.app, self.settings, self.routes, self.database, plan, fates) as doing:
                    PlanRunner(self.database, plan, doing, who, around).run()
        except PlanTakenOver:
            raise PlanHeld(
                f"Plan {id_} was taken over by another process: this one did not respond for too long."
            ) from None
        except (KafkaUnavailable, LedgerUnavailable, DeskUnavailable):
            raise
        except BridgeError as error:
            with self.database.writing() as connection:
                plan_rows.change_plan_state(connection, id_, [PlanState.APPLYING], PlanState.FAILED, str(error))
            raise
        finally:
            with self.database.writing() as connection:
                plan_rows.release_plan(connection, id_, who)


def _require_unrejected_plan(connection: Connection, plan: BulkPlan, needs_approval: bool) -> None:
    """Require that a plan was not stopped while it awaited a second person, whatever this process's setting is."""
    if plan.state not in plan_rows.ENDED_EARLY or plan.approved_by or plan.began_at is not None:
        return
    if needs_approval or any(
        act.what == plan_rows.REQUEST for act in audit_rows.read_history(connection, plan_id=plan.id)
    ):
        raise PlanRefused(f"Plan {plan.id} was {plan.stopped or plan.state}, and nobody approved it: make a new plan.")


def _await_second_person(connection: Connection, plan: BulkPlan, by: str) -> None:
    """Let a plan await a second person.

    Raises:
        PlanRefused: it does so already.
    """
    count = letters_said(sum(plan.outcomes.values()))
    if plan.state is PlanState.AWAITING:
        raise PlanRefused(
            f"Plan {plan.id} of {count} awaits a second person: you planned it (as {plan.planner or plan.by}), so "
            "somebody else approves or rejects it."
        )
    before = [PlanState.PLANNED, PlanState.APPLYING]
    if not plan_rows.change_plan_state(connection, plan.id, before, PlanState.AWAITING):
        raise PlanRefused(f"Plan {plan.id} is {plan.state}: it cannot be applied.")
    said = f"plan {plan.id} awaits a second person: {count}"
    audit_rows.write_entry(connection, sql.read_clock(connection), by, plan_rows.REQUEST, said, plan_id=plan.id)


def _look_and_rest(look: Callable[[], object], wait: Callable[[float], object]) -> None:
    """Poll, and pause for longer than that took: polls of many letters must not take up a core."""
    began = time.monotonic()
    look()
    wait(max(LOOK_EVERY, REST * (time.monotonic() - began)))


def _require_plan_kind(what: PlanKind) -> None:
    if what not in (PlanKind.REPLAY, PlanKind.DISCARD, PlanKind.ARCHIVE):
        raise PlanRefused(f"A plan to {what} is not made of letters alone.")


def _require_valid_options(what: PlanKind, options: PlanOptions, why: str) -> None:
    if what is PlanKind.DISCARD and not why.strip():
        raise PlanRefused("To discard letters a reason is needed: it stays in the audit log (--why).")
    if options.rate is not None and not options.rate > 0:
        raise PlanRefused(f"A rate of {options.rate:g} letters a second sends none: give one above 0.")
