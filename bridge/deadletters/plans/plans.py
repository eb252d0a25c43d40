"""The desk's plans: made, approved, applied, stopped, waited for."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Final

from celery import Celery

from bridge.deadletters.fates import Fates
from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.outcomes.outcomes import Outcomes
from bridge.deadletters.plan.plan import Counts, Options, Plan, State, What
from bridge.deadletters.plans import background, others
from bridge.deadletters.plans.acting import action
from bridge.deadletters.plans.applying import Applying, Around, me
from bridge.deadletters.plans.counting import Counting
from bridge.deadletters.plans.deciding import DISCARD_AFTER, Decision, changed, taken
from bridge.deadletters.plans.known import known_handlers
from bridge.deadletters.plans.laying import lay
from bridge.deadletters.plans.passing import Passing
from bridge.deadletters.store import clock, items, lanes, plans, trail, waves
from bridge.deadletters.store.cluster import check_cluster
from bridge.deadletters.store.database import Connection, Database
from bridge.deadletters.store.matching import matching
from bridge.errors import (
    BridgeError,
    DeskUnavailable,
    KafkaUnavailable,
    LedgerUnavailable,
    NoSuchPlan,
    PlanHeld,
    PlanRefused,
    PlanTakenOver,
)
from bridge.handlers import Routes
from bridge.kafka import admin_client
from bridge.settings import Settings
from bridge.topics.cluster import all_topics
from bridge.upkeep.facts import letters as letters_said

#: Is told how a plan stands, about once a second.
Heard = Callable[[Plan], None]
#: Seconds between two looks at how what was sent ends, and how much longer than a look the pause is at least.
LOOK_EVERY: Final = 0.5
REST: Final = 2.0
#: Of which handlers run again.
SENDS: Final = (What.REPLAY, What.REDRIVE)


def nobody(plan: Plan) -> None:
    """Hears of a plan, and does nothing."""


@dataclass(frozen=True)
class Plans:
    """What was asked for in bulk. Every method raises DeskUnavailable where the database does not answer.

    Attributes:
        over: plans that were seen to be over, of which nothing is counted again.
    """

    app: Celery
    settings: Settings
    routes: Routes
    database: Database
    over: plans.Over = field(default_factory=dict, repr=False)

    def make(self, what: What, asked: Filter, options: Options, by: str, why: str = "") -> Plan:
        """Freeze which letters are meant, and count what is to be known before it is approved; nothing is done yet.

        Parameters:
            what: replay (of the letters that are open), discard or archive.
            why: needed to discard.

        Raises:
            PlanRefused: it can't be made.
            FilterFault: it asks for letters that are not open; only those that have ended can be archived, too.
        """
        _check_what(what)
        _check(what, options, why)
        return self._make(what, asked, options, by, why)

    def draft(self, what: What, asked: Filter, by: str) -> Plan:
        """Freeze which letters are meant; how it is done, and why, is said with `decide`.

        Raises:
            PlanRefused, FilterFault: as `make`.
        """
        _check_what(what)
        return self._make(what, asked, Options(), by, "")

    def _make(self, what: What, asked: Filter, options: Options, by: str, why: str) -> Plan:
        meant = asked if what is What.ARCHIVE and asked.statuses else asked.only_open()
        with self.database.writing() as connection:
            id_, at = plans.add(connection, what, by, why, asked.to_data(), options)
            count = items.freeze(connection, id_, matching(meant), canary=options.canary)
            if options.all_handlers:
                others.add(connection, id_, count, self.settings, self.routes, options.canary)
            said = f"plan {id_}: to {what} {letters_said(count)}" + (f": {why}" if why else "")
            trail.write(connection, at, by, what, said, plan_id=id_)
        self._count(id_, what, asked)
        return self.one(id_)

    def counted(self, id_: int) -> Plan:
        """A plan whose maker may have died before it had counted what the plan is about: then that is done now.

        Raises:
            NoSuchPlan: there is none of that number.
        """
        plan = self.one(id_)
        if plan.counts == Counts() and plan.state is State.PLANNED:
            self._count(id_, plan.what, Filter.from_data(plan.asked))
        return self.one(id_)

    def _count(self, id_: int, what: What, asked: Filter) -> None:
        handlers = known_handlers(self.app, self.settings, self.routes) if what is What.REPLAY else frozenset()
        counts = Counting(self.settings, self.database, handlers).counts(id_, what, asked)
        with self.database.writing() as connection:
            plans.counted(connection, id_, counts)

    def one(self, id_: int) -> Plan:
        """A plan as it stands.

        Raises:
            NoSuchPlan: there is none of that number.
        """
        with self.database.reading() as connection:
            return _one(connection, id_)

    def latest(self, count: int = 50, before: int | None = None) -> list[Plan]:
        """The latest plans, the newest first.

        Parameters:
            before: the plan behind which it goes on.
        """
        with self.database.reading() as connection:
            return plans.latest(connection, count, before, self.over)

    def applying(self, *, counts: bool = True) -> list[Plan]:
        """Those that are applied, the newest first.

        Parameters:
            counts: whether it is counted how far they are, which takes the longer the larger they are.
        """
        with self.database.reading() as connection:
            return plans.applying(connection, counts=counts)

    def apply(self, id_: int, by: str, heard: Heard = nobody) -> Plan:
        """Do a plan, or go on with one that was stopped or left; returns when all was sent, or it stopped.

        Raises:
            NoSuchPlan, PlanRefused: there is none; or it is over, or another process does it.
            DeskOfAnotherKafka: nothing was begun: the letters are not of this Kafka.
            KafkaUnavailable, LedgerUnavailable: it is gone on with by `bridge deadletters record`, or by this again.
        """
        who = me()
        self._check_cluster(id_)
        self._begin(id_, by, who)
        self._do(id_, who, heard)
        return self.one(id_)

    def approve(self, id_: int, by: str) -> Plan:
        """Have a plan done by `bridge deadletters record`, in the background.

        Raises:
            NoSuchPlan, PlanRefused: as `apply`.
        """
        self._begin(id_, by)
        return self.one(id_)

    def decide(self, id_: int, by: str, decision: Decision) -> Plan:
        """Have a plan done by `bridge deadletters record` as somebody who has looked at it decided, once.

        Discarding begins after `DISCARD_AFTER`, until when it can be stopped.

        Raises:
            NoSuchPlan, PlanRefused: as `approve`; or a reason is needed.
            PlanChanged: the plan, or a letter of it, is not as it was looked at.
        """
        with self.database.writing() as connection:
            plan = _one(connection, id_)
            changed(connection, plan, by, decision.key)
            if plan.state is State.PLANNED:
                taken(connection, plan, decision.left)
                options = replace(plan.options, rate=decision.rate, canary=decision.canary)
                _check(plan.what, options, decision.why)
                plans.chosen(connection, id_, options, decision.why)
                if options.canary:
                    waves.cut(connection, id_)
            self._move_on(connection, plan, by)
            if plan.began_at is None and plan.what is What.DISCARD:
                plans.delay(connection, id_, DISCARD_AFTER)
        return self.one(id_)

    def stop(self, id_: int, by: str, why: str = "", key: str = "") -> Plan:
        """Stop a plan within a batch, or a second; what it had not come to stays as it is.

        Parameters:
            key: of the plan as it was looked at; empty: however it stands.

        Raises:
            NoSuchPlan, PlanRefused: there is none, or it is over.
            PlanChanged: it is not as it was looked at.
        """
        with self.database.writing() as connection:
            plan = _one(connection, id_)
            if key:
                changed(connection, plan, by, key)
            said = f"stopped by {by}" + (f": {why}" if why else "")
            if not plans.move(connection, id_, [State.PLANNED, State.APPLYING], State.STOPPED, said):
                raise PlanRefused(f"Plan {id_} is {plan.state}: there is nothing to stop.")
            trail.write(connection, clock.now(connection), by, "stop", said, plan_id=id_)
            return _one(connection, id_)

    def wait(self, id_: int, heard: Heard = nobody) -> Plan:
        """Wait until the end of all that a plan has sent is known (`Plan.is_over`).

        What dies again is said by the recorder, which must run.

        Raises:
            NoSuchPlan: there is none of that number.
            DeskOfAnotherKafka: the letters are not of this Kafka, which cannot tell how they end.
            KafkaUnavailable, LedgerUnavailable: nothing is known for now.
        """
        self._check_cluster(id_)
        with Fates.opened(self.settings) as fates:
            outcomes = Outcomes(self.settings, self.database, fates)
            while not (plan := self.one(id_)).is_over:
                heard(plan)
                _look(lambda: outcomes.look(id_), time.sleep)
            return plan

    def go_on(self, stopping: Event) -> None:
        """Do what was approved, and what a process left that died, until `stopping` is set."""
        background.go_on(self.database, lambda id_, who: self._do(id_, who, nobody, stopping.is_set), stopping)

    def follow(self, stopping: Event) -> None:
        """Take in how all that was sent back ends, until `stopping` is set.

        Raises:
            KafkaUnavailable, LedgerUnavailable: nothing is known for now.
        """
        with Fates.opened(self.settings) as fates:
            outcomes = Outcomes(self.settings, self.database, fates)
            while not stopping.is_set():
                _look(outcomes.look, stopping.wait)

    def _check_cluster(self, id_: int) -> None:
        """What is to be sent, or looked for, is not of another Kafka; to archive none is needed."""
        if self.one(id_).what is not What.ARCHIVE:
            check_cluster(self.database, all_topics(admin_client(self.settings.kafka)).id)

    def _begin(self, id_: int, by: str, who: str | None = None) -> None:
        """Have a plan applied, by this process if it says who it is."""
        with self.database.writing() as connection:
            self._move_on(connection, _one(connection, id_), by, who)

    @staticmethod
    def _move_on(connection: Connection, plan: Plan, by: str, who: str | None = None) -> None:
        if not plans.move(connection, plan.id, plans.TO_DO, State.APPLYING):
            raise PlanRefused(f"Plan {plan.id} is {plan.state}: it cannot be applied again; make a new one.")
        if who is not None and not plans.lease(connection, plan.id, who):
            raise PlanHeld(f"Plan {plan.id} is applied by another process: bridge deadletters plans shows how far.")
        if plan.state is State.STOPPED and plan.options.canary:
            plans.starts_again(connection, plan, waves.cut_again(connection, plan.id))
        if plan.state is not State.APPLYING:
            said = "applied" if plan.state is State.PLANNED else "gone on with"
            trail.write(connection, clock.now(connection), by, "apply", f"plan {plan.id} {said}", plan_id=plan.id)

    def _do(self, id_: int, who: str, heard: Heard, leaves: Callable[[], bool] = lambda: False) -> None:
        """Do a plan of which this process has the lease, until it is to leave it."""
        plan = self.one(id_)
        try:
            if plan.what in SENDS:
                with self.database.writing() as connection:
                    # Of very many it takes long: nobody else is to have the lease after it.
                    plans.hold(connection, id_, who)
                    lay(connection, id_, self.settings)
                    plans.hold(connection, id_, who)
            with Fates.opened(self.settings) as fates:
                outcomes = Outcomes(self.settings, self.database, fates)
                if plan.what in SENDS:
                    # What others have sent, and has ended since, is not under way any more.
                    with suppress(KafkaUnavailable, LedgerUnavailable):
                        outcomes.look()
                passing = Passing(self.settings, self.database, plan, fates)
                with self.database.reading() as connection:
                    # In lanes it waits for what others have under way, and nobody else may look how that ends.
                    looked_at = None if lanes.are_in(connection, id_) else id_
                around = Around(lambda: outcomes.look(looked_at), passing.passed, lambda: heard(self.one(id_)), leaves)
                with action(self.app, self.settings, self.routes, self.database, plan, fates) as doing:
                    Applying(self.database, plan, doing, who, around).run()
        except PlanTakenOver:
            raise PlanHeld(f"Plan {id_} was taken over: this process was away for too long.") from None
        except (KafkaUnavailable, LedgerUnavailable, DeskUnavailable):
            raise
        except BridgeError as error:
            with self.database.writing() as connection:
                plans.move(connection, id_, [State.APPLYING], State.FAILED, str(error))
            raise
        finally:
            with self.database.writing() as connection:
                plans.release(connection, id_, who)


def _look(look: Callable[[], object], wait: Callable[[float], object]) -> None:
    """Look, and pause for longer than that took: many that are on their way must not take up a core."""
    began = time.monotonic()
    look()
    wait(max(LOOK_EVERY, REST * (time.monotonic() - began)))


def _one(connection: Connection, id_: int) -> Plan:
    plan = plans.one(connection, id_)
    if plan is None:
        raise NoSuchPlan(f"There is no plan {id_}: bridge deadletters plans lists them.")
    return plan


def _check_what(what: What) -> None:
    if what not in (What.REPLAY, What.DISCARD, What.ARCHIVE):
        raise PlanRefused(f"A plan to {what} is not made of letters alone.")


def _check(what: What, options: Options, why: str) -> None:
    if what is What.DISCARD and not why.strip():
        raise PlanRefused("To discard letters a reason is needed: it stays in the audit log (--why).")
    if options.rate is not None and not options.rate > 0:
        raise PlanRefused(f"A rate of {options.rate:g} letters a second sends none: give one above 0.")
