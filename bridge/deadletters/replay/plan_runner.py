"""The runner of a plan: in batches, at a limited rate, by one process at a time; another process resumes a plan whose
process died. Each batch is claimed in one transaction, acted on, and noted in another. Claims of a dead process are
looked up in Kafka before they are sent. model/plan_order.py decides when the next wave of a canary goes out.
"""

import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import Event
from typing import Final, Generic, NamedTuple, TypeVar
from uuid import uuid4

from bridge.deadletters.db import inflight_delivery_rows, plan_item_rows, plan_order_rows, plan_rows, sql
from bridge.deadletters.db.database import Connection, Database
from bridge.deadletters.model.bulk_plan import BulkPlan, PlanItemState, PlanState
from bridge.deadletters.model.plan_order import CanaryDecision, CanaryTurn, decide_next_wave
from bridge.deadletters.replay.plan_action import ActionResult, ClaimedDelivery, PlanAction
from bridge.errors import BridgeError, DeskUnavailable, KafkaUnavailable, LedgerUnavailable, PlanOver, PlanTakenOver
from lossless.background_thread import BackgroundThread, start_thread
from lossless.backoff import Backoff

#: Seconds of a rate that may be sent at once: a batch, or a poll of outcomes, takes as long on a busy machine.
BURST: Final = 1.0


class SendingRate:
    """The rate limit of a plan.

    Parameters:
        rate: letters a second; `None`: unlimited.
        now: seconds of a monotonic clock.
    """

    def __init__(self, rate: float | None, now: float) -> None:
        self._rate = rate
        # The first goes at once.
        self._may, self._at = 1.0, now

    def allowed(self, most: int, now: float) -> int:
        """Return how many letters may be sent now."""
        if self._rate is None:
            return most
        room = max(1.0, self._rate * BURST)
        self._may = min(room, self._may + (now - self._at) * self._rate)
        self._at = now
        return min(most, int(self._may))

    def count_sent(self, count: int) -> None:
        """Note that letters were sent."""
        if self._rate is not None:
            self._may -= count

    @property
    def until_next(self) -> float:
        """Return the seconds until the next letter may be sent; 0 for now."""
        return 0.0 if self._rate is None or self._may >= 1 else (1 - self._may) / self._rate


Answer = TypeVar("Answer")

logger = logging.getLogger(__name__)

#: Letters of one batch.
BATCH: Final = 1_000
#: Seconds between two polls for a stop and for the outcomes of a wave.
LOOK_AT_WAVE_EVERY: Final = 0.5
#: The factor of the pause after a poll over the time that the poll took.
REST: Final = 2.0
#: Seconds between two tries, and seconds of trying, while Kafka or Redis is unavailable.
TRY_EVERY: Final = 1.0
TRY_FOR: Final = 60.0
#: Seconds after which a process renews its lease before it sends more, so that all sends are acknowledged or given up
#: within the lease.
SHOW_EVERY: Final = plan_rows.PLAN_LEASE_MS / 1000 / 6


def name_this_process() -> str:
    """Return a unique name of this process, for leases."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"


class RunnerHooks(NamedTuple):
    """The callbacks of a plan runner.

    Attributes:
        look: called while it waits, to read outcomes.
        passed: returns the positions of ended items that release their lanes.
        heard: called about once a second.
        leaves: returns whether this process is to leave the plan to others.
    """

    look: Callable[[], object]
    passed: Callable[[], Sequence[int]]
    heard: Callable[[], object]
    leaves: Callable[[], bool]


class ServerPoll(Generic[Answer]):
    """A question to Redis and Kafka, due again after a pause that is longer than the last answer took.

    Parameters:
        unknown: the answer while they are unavailable for a short time.
    """

    def __init__(self, question: Callable[[], Answer], unknown: Answer) -> None:
        self._question, self._unknown = question, unknown
        self._asked_at, self._rest = time.monotonic(), 0.0
        self._refused_at: float | None = None

    def is_due(self, least: float = 0.0) -> bool:
        """Return whether the pause, of at least so many seconds, is over."""
        return time.monotonic() - self._asked_at >= max(least, self._rest)

    def ask(self, plan_id: int) -> Answer:
        """Return the answer.

        Raises:
            KafkaUnavailable, LedgerUnavailable: for too long.
        """
        began = time.monotonic()
        try:
            found = self._question()
            self._refused_at = None
        except (KafkaUnavailable, LedgerUnavailable) as error:
            self._refused_at = began if self._refused_at is None else self._refused_at
            if time.monotonic() - self._refused_at > TRY_FOR:
                raise
            logger.warning("plan %d waits: %s", plan_id, error)
            found = self._unknown
        self._asked_at = time.monotonic()
        self._rest = REST * (self._asked_at - began)
        return found


class PlanRunner:
    """The runner of one plan, of which this process has the lease.

    Parameters:
        who: the name on the lease.
    """

    def __init__(self, database: Database, plan: BulkPlan, action: PlanAction, who: str, around: RunnerHooks) -> None:
        self._database, self._plan, self._action, self._who, self._around = database, plan, action, who, around
        self._wave = plan.wave
        self._pace = SendingRate(plan.options.rate, time.monotonic())
        self._outcomes = ServerPoll(around.look, None)
        self._lanes: ServerPoll[Sequence[int]] = ServerPoll(around.passed, ())
        self._told = self._sent_at = self._held_at = time.monotonic()
        with database.reading() as connection:
            self._in_lanes = plan_order_rows.has_lanes(connection, plan.id)
            self._last_wave = plan_item_rows.find_last_wave(connection, plan.id)

    def run(self) -> None:
        """Apply the plan until all items are processed, or somebody stops it.

        Raises:
            PlanTakenOver: another process has resumed it.
            KafkaUnavailable, LedgerUnavailable: a server did not answer for too long; the plan can be resumed.
        """
        try:
            self._resume_claimed_items()
            while True:
                if not self._pace.allowed(BATCH, time.monotonic()):
                    self._hold_on()
                elif claimed := self._claim():
                    self._apply_batch(claimed)
                elif claimed is not None:
                    self._next_wave()
                if self._outcomes.is_due(LOOK_AT_WAVE_EVERY):
                    self._look()
                self._tell()
        except PlanOver:
            return

    def _resume_claimed_items(self) -> None:
        """Apply the items that a process claimed before it died or left."""
        while True:
            with self._database.reading() as connection:
                left = [
                    ClaimedDelivery(*each)
                    for each in plan_item_rows.read_claimed_items(connection, self._plan.id, BATCH)
                ]
            if not left:
                return
            self._apply_batch(left, again=True)

    def _hold(self, connection: Connection) -> PlanState:
        state = plan_rows.renew_plan_lease(connection, self._plan.id, self._who)
        if state is None:
            raise PlanTakenOver
        return state

    def _go_on(self, connection: Connection) -> None:
        if self._hold(connection) is not PlanState.APPLYING or self._around.leaves():
            raise PlanOver

    def _hold_on(self) -> None:
        """Wait, because the rate limit allows no letter now."""
        with self._database.writing() as connection:
            self._go_on(connection)
        time.sleep(min(LOOK_AT_WAVE_EVERY, self._pace.until_next))

    def _claim(self) -> list[ClaimedDelivery] | None:
        """Claim the next batch; return an empty list if none are left in the wave, `None` if all of the batch were
        skipped.
        """
        passed = self._ask(self._lanes) if self._in_lanes and self._lanes.is_due() else ()
        with self._database.writing() as connection:
            self._go_on(connection)
            inflight_delivery_rows.lock_claims(connection)
            if self._in_lanes:
                plan_order_rows.release_held_items(connection, self._plan.id, passed)
            allowed = self._pace.allowed(BATCH, time.monotonic())
            found = plan_item_rows.read_waiting_items(
                connection, self._plan.id, self._wave, allowed, in_lanes=self._in_lanes
            )
            if not found:
                return []
            at = sql.read_clock(connection)
            taken = self._action.take(connection, found, at)
            plan_item_rows.end_items(connection, self._plan.id, taken.skipped, PlanItemState.SKIPPED, at)
            plan_item_rows.claim_items(
                connection, self._plan.id, {each.item.position: each.spot for each in taken.claimed}, at
            )
        self._pace.count_sent(len(taken.claimed))
        self._held_at = time.monotonic()
        return [*taken.claimed] or None

    def _apply_batch(self, claimed: Sequence[ClaimedDelivery], *, again: bool = False) -> None:
        """Act on claimed deliveries, and note the results, until all are certain."""
        give_up = time.monotonic() + TRY_FOR
        while True:
            trouble: BridgeError | None = None
            try:
                if again:
                    claimed = self._note(claimed, self._action.look(claimed))
                acted = self._act(claimed)
                claimed = self._note(claimed, acted)
                trouble = KafkaUnavailable(acted.why) if acted.why else None
            except (KafkaUnavailable, LedgerUnavailable) as error:
                trouble = error
            if not claimed:
                return
            if trouble is not None:
                logger.warning("plan %d waits: %s", self._plan.id, trouble)
            if time.monotonic() > give_up:
                raise trouble or KafkaUnavailable("Kafka does not acknowledge what is sent back.")
            again = True
            self._note(claimed, ActionResult())
            time.sleep(TRY_EVERY)

    def _act(self, claimed: Sequence[ClaimedDelivery]) -> ActionResult:
        return self._action.act(claimed, self._renew_lease) if claimed else ActionResult()

    def _renew_lease(self) -> None:
        """Renew the lease if that is due, because the process was frozen or a batch takes long."""
        began = time.monotonic()
        if began - self._held_at > SHOW_EVERY:
            with self._database.writing() as connection:
                self._hold(connection)
            self._held_at = began

    def _note(self, claimed: Sequence[ClaimedDelivery], acted: ActionResult) -> list[ClaimedDelivery]:
        """Note the certain results; return the uncertain deliveries."""
        known = {each.position for each in acted.sent} | acted.ends.keys()
        with self._database.writing() as connection:
            self._hold(connection)
            at = sql.read_clock(connection)
            plan_item_rows.note_sent_records(connection, self._plan.id, acted.sent, at)
            for state in {end.state for end in acted.ends.values()}:
                whys = {position: end.why for position, end in acted.ends.items() if end.state is state}
                plan_item_rows.end_items(connection, self._plan.id, whys, state, at)
            self._action.settle(connection, [each for each in claimed if each.item.position in known], acted, at)
        self._held_at = time.monotonic()
        if acted.sent:
            self._sent_at = self._held_at
        return [each for each in claimed if each.item.position not in known]

    def _next_wave(self) -> None:
        """Go to the next wave, wait for the outcomes of this one, or end the plan."""
        with self._database.writing() as connection:
            self._go_on(connection)
            if not plan_item_rows.has_waiting_items(connection, self._plan.id):
                plan_rows.change_plan_state(connection, self._plan.id, [PlanState.APPLYING], PlanState.DONE)
                return
            decision = self._decision(connection)
            if decision.turn is CanaryTurn.STOP:
                plan_rows.change_plan_state(
                    connection, self._plan.id, [PlanState.APPLYING], PlanState.STOPPED, decision.why
                )
            elif decision.turn is CanaryTurn.GO_ON:
                self._wave += 1
                plan_rows.note_canary_wave(connection, self._plan.id, self._wave)
        if decision.turn is CanaryTurn.WAIT:
            time.sleep(LOOK_AT_WAVE_EVERY)
            self._look()

    def _decision(self, connection: Connection) -> CanaryDecision:
        """Return the next step after all that may be sent was sent."""
        if not self._plan.options.canary or self._wave >= self._last_wave:
            # This is the last wave: the rest is held in lanes.
            return CanaryDecision(CanaryTurn.WAIT)
        outcomes = plan_item_rows.count_item_states(connection, [self._plan.id], self._wave).get(self._plan.id, {})
        return decide_next_wave(
            self._wave, outcomes, time.monotonic() - self._sent_at, self._plan.options.canary_starts
        )

    def _look(self) -> None:
        """Read outcomes."""
        self._ask(self._outcomes)

    def _ask(self, poll: "ServerPoll[Answer]") -> Answer:
        """Return an answer of Redis and Kafka, which may take as long as the lease."""
        found = poll.ask(self._plan.id)
        self._renew_lease()
        return found

    def _tell(self) -> None:
        if time.monotonic() - self._told >= 1:
            self._told = time.monotonic()
            self._around.heard()


#: Seconds between two polls for plans to resume.
LOOK_FOR_PLANS_EVERY: Final = 1.0
#: Seconds before a plan is resumed.
RESUME_BACKOFF: Final = Backoff(first=5.0, most=60.0)
#: Applies a plan, by its id and the name on the lease.
PlanApplier = Callable[[int, str], object]
#: Returns whether a plan may not begin, and then keeps it from being found again.
PlanHold = Callable[[Connection, int], bool]


def resume_plans(
    database: Database, apply: PlanApplier, stopping: Event, holds: PlanHold = lambda connection, id_: False
) -> None:
    """Resume all abandoned plans concurrently until `stopping` is set and all runners have left."""
    taken_at: dict[int, float] = {}
    failed: Counter[int] = Counter()
    threads: list[BackgroundThread] = []
    while not stopping.is_set():
        # The recorder's other duties report that the database does not answer.
        with suppress(DeskUnavailable):
            for id_, who in _lease_plans(database, taken_at, failed, holds):
                threads = [thread for thread in threads if thread.is_alive()]
                threads.append(start_thread(f"plan {id_}", partial(_run_plan, apply, id_, who, failed)))
        stopping.wait(LOOK_FOR_PLANS_EVERY)
    for thread in threads:
        thread.join()


def _lease_plans(
    database: Database, taken_at: dict[int, float], failed: Mapping[int, int], holds: PlanHold
) -> Iterator[tuple[int, str]]:
    """Lease abandoned plans; yield each with the name on the lease."""
    with database.reading() as connection:
        left = plan_rows.find_abandoned_plans(connection)
    for id_ in left:
        if id_ in taken_at and time.monotonic() - taken_at[id_] < RESUME_BACKOFF.compute_pause(
            max(0, failed.get(id_, 0) - 1)
        ):
            continue
        who = name_this_process()
        with database.writing() as connection:
            # Another process may be faster.
            taken = not holds(connection, id_) and plan_rows.lease_plan(connection, id_, who)
        if taken:
            taken_at[id_] = time.monotonic()
            yield id_, who


def _run_plan(apply: PlanApplier, id_: int, who: str, failed: Counter[int]) -> None:
    try:
        apply(id_, who)
        failed[id_] = 0
    except Exception as error:
        failed[id_] += 1
        # An unexpected error is logged with its traceback.
        logger.error("plan %d: %s", id_, error, exc_info=not isinstance(error, BridgeError))
