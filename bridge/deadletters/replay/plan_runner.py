"""The runner of a plan: in batches, at a limited rate, by one process at a time; another process resumes a plan whose
process died. Each batch is claimed in one transaction, acted on, and noted in another. Claims of a dead process are
looked up in Kafka before they are sent.
"""

import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from threading import Event, Thread
from typing import Final, NamedTuple, TypeVar
from uuid import uuid4

from bridge.deadletters.db import plan_item_table, plan_order_table, plan_table, redrive_table, sql
from bridge.deadletters.db.database import Connection, Database
from bridge.deadletters.model.bulk_plan import BulkPlan, PlanItemState, PlanState
from bridge.deadletters.model.plan_order import CanaryDecision, CanaryTurn, decide_next_wave
from bridge.deadletters.replay.plan_action import ActionResult, ClaimedDelivery, PlanAction
from bridge.errors import BridgeError, DeskUnavailable, KafkaUnavailable, LedgerUnavailable, PlanOver, PlanTakenOver

#: Seconds of a rate that may go at once: a batch, or a look at how others ended, takes as long on a busy machine,
#: and the rate is kept all the same.
BURST: Final = 1.0


class SendingRate:
    """Lets so many through a second.

    Parameters:
        rate: letters a second; `None`: all.
        now: seconds, by any clock that only goes forward.
    """

    def __init__(self, rate: float | None, now: float) -> None:
        self._rate = rate
        # The first goes at once.
        self._may, self._at = 1.0, now

    def allowed(self, most: int, now: float) -> int:
        """How many may go now, of so many at most."""
        if self._rate is None:
            return most
        room = max(1.0, self._rate * BURST)
        self._may = min(room, self._may + (now - self._at) * self._rate)
        self._at = now
        return min(most, int(self._may))

    def went(self, count: int) -> None:
        """So many have gone."""
        if self._rate is not None:
            self._may -= count

    @property
    def until_next(self) -> float:
        """Seconds until the next may go; 0: at once."""
        return 0.0 if self._rate is None or self._may >= 1 else (1 - self._may) / self._rate


Answer = TypeVar("Answer")

logger = logging.getLogger(__name__)

#: Letters of one batch.
BATCH: Final = 1_000
#: Seconds between two looks at what is waited for: whether it was stopped, how a wave ended.
LOOK_AT_WAVE_EVERY: Final = 0.5
#: How much longer than a look the pause after it is, while others still go out.
REST: Final = 2.0
#: Seconds between two tries, and for which it is tried, while Kafka or Redis is away.
TRY_EVERY: Final = 1.0
TRY_FOR: Final = 60.0
#: Seconds after which a process shows again that it lives, before it sends more: what it sends then is acknowledged, or
#: given up, within its lease.
SHOW_EVERY: Final = plan_table.PLAN_LEASE_MS / 1000 / 6


def name_this_process() -> str:
    """Who applies a plan: this process, and no other before or after it."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"


class RunnerHooks(NamedTuple):
    """What goes on beside a plan that is applied.

    Attributes:
        look: is called while it waits: follows how what was sent ends.
        passed: tells which of what has ended hold those behind them in their lanes no more, by their positions.
        heard: is called about once a second.
        leaves: whether this process is to end, and to leave the plan to others.
    """

    look: Callable[[], object]
    passed: Callable[[], Sequence[int]]
    heard: Callable[[], object]
    leaves: Callable[[], bool]


class PlanRunner:
    """One plan, applied by this process, which has its lease.

    Parameters:
        who: that has the lease.
    """

    def __init__(self, database: Database, plan: BulkPlan, action: PlanAction, who: str, around: RunnerHooks) -> None:
        self._database, self._plan, self._action, self._who, self._around = database, plan, action, who, around
        self._wave = plan.wave
        self._pace = SendingRate(plan.options.rate, time.monotonic())
        self._told = self._sent_at = self._held_at = self._looked_at = self._known_at = time.monotonic()
        self._rest = LOOK_AT_WAVE_EVERY
        with database.reading() as connection:
            self._in_lanes = plan_order_table.has_lanes(connection, plan.id)
            self._last_wave = plan_item_table.find_last_wave(connection, plan.id)

    def run(self) -> None:
        """Go on until each delivery was come to, or somebody stops it.

        Raises:
            PlanTakenOver: another process goes on with it.
            KafkaUnavailable, LedgerUnavailable: for too long; whoever takes it up goes on.
        """
        try:
            self._go_on_with_what_was_left()
            while True:
                if not self._pace.allowed(BATCH, time.monotonic()):
                    self._hold_on()
                elif claimed := self._claim():
                    self._do(claimed)
                elif claimed is not None:
                    self._next_wave()
                if time.monotonic() - self._looked_at > self._rest:
                    self._look()
                self._tell()
        except PlanOver:
            return

    def _go_on_with_what_was_left(self) -> None:
        while True:
            with self._database.reading() as connection:
                left = [
                    ClaimedDelivery(*each)
                    for each in plan_item_table.read_claimed_items(connection, self._plan.id, BATCH)
                ]
            if not left:
                return
            self._do(left, again=True)

    def _hold(self, connection: Connection) -> PlanState:
        state = plan_table.renew_plan_lease(connection, self._plan.id, self._who)
        if state is None:
            raise PlanTakenOver
        return state

    def _go_on(self, connection: Connection) -> None:
        if self._hold(connection) is not PlanState.APPLYING or self._around.leaves():
            raise PlanOver

    def _hold_on(self) -> None:
        """The rate lets none go now."""
        with self._database.writing() as connection:
            self._go_on(connection)
        time.sleep(min(LOOK_AT_WAVE_EVERY, self._pace.until_next))

    def _claim(self) -> list[ClaimedDelivery] | None:
        """Take the next; empty where none are left (of this wave), `None` where all that was looked at is skipped."""
        passed = self._passed() if self._in_lanes else ()
        with self._database.writing() as connection:
            self._go_on(connection)
            redrive_table.lock_claims(connection)
            if self._in_lanes:
                plan_order_table.release_held_items(connection, self._plan.id, passed)
            allowed = self._pace.allowed(BATCH, time.monotonic())
            found = plan_item_table.read_waiting_items(
                connection, self._plan.id, self._wave, allowed, in_lanes=self._in_lanes
            )
            if not found:
                return []
            at = sql.read_clock(connection)
            taken = self._action.take(connection, found, at)
            plan_item_table.end_items(connection, self._plan.id, taken.skipped, PlanItemState.SKIPPED, at)
            plan_item_table.claim_items(
                connection, self._plan.id, {each.item.position: each.spot for each in taken.claimed}, at
            )
        self._pace.went(len(taken.claimed))
        self._held_at = time.monotonic()
        return [*taken.claimed] or None

    def _do(self, claimed: Sequence[ClaimedDelivery], *, again: bool = False) -> None:
        """Act, and note what is certain, until all is."""
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
        return self._action.act(claimed, self._live) if claimed else ActionResult()

    def _live(self) -> None:
        """Show that this process lives, where it has not for a while: it was frozen, or a batch takes long."""
        began = time.monotonic()
        if began - self._held_at > SHOW_EVERY:
            with self._database.writing() as connection:
                self._hold(connection)
            self._held_at = began

    def _note(self, claimed: Sequence[ClaimedDelivery], acted: ActionResult) -> list[ClaimedDelivery]:
        """Note what is certain; return what is not."""
        known = {each.position for each in acted.sent} | acted.ends.keys()
        with self._database.writing() as connection:
            self._hold(connection)
            at = sql.read_clock(connection)
            plan_item_table.note_sent_records(connection, self._plan.id, acted.sent, at)
            for state in {end.state for end in acted.ends.values()}:
                whys = {position: end.why for position, end in acted.ends.items() if end.state is state}
                plan_item_table.end_items(connection, self._plan.id, whys, state, at)
            self._action.settle(connection, [each for each in claimed if each.item.position in known], acted, at)
        self._held_at = time.monotonic()
        if acted.sent:
            self._sent_at = self._held_at
        return [each for each in claimed if each.item.position not in known]

    def _next_wave(self) -> None:
        """Nothing more may go in this wave: go on to the next, wait for how it ends, or end the plan."""
        with self._database.writing() as connection:
            self._go_on(connection)
            if not plan_item_table.has_waiting_items(connection, self._plan.id):
                plan_table.change_plan_state(connection, self._plan.id, [PlanState.APPLYING], PlanState.DONE)
                return
            decision = self._decision(connection)
            if decision.turn is CanaryTurn.STOP:
                plan_table.change_plan_state(
                    connection, self._plan.id, [PlanState.APPLYING], PlanState.STOPPED, decision.why
                )
            elif decision.turn is CanaryTurn.GO_ON:
                self._wave += 1
                plan_table.note_canary_wave(connection, self._plan.id, self._wave)
        if decision.turn is CanaryTurn.WAIT:
            time.sleep(LOOK_AT_WAVE_EVERY)
            self._look()

    def _decision(self, connection: Connection) -> CanaryDecision:
        """What comes after all that may go has gone, and some is left."""
        if not self._plan.options.canary or self._wave >= self._last_wave:
            # No wave comes after this one: the rest is held in lanes.
            return CanaryDecision(CanaryTurn.WAIT)
        outcomes = plan_item_table.count_item_states(connection, [self._plan.id], self._wave).get(self._plan.id, {})
        return decide_next_wave(
            self._wave, outcomes, time.monotonic() - self._sent_at, self._plan.options.canary_starts
        )

    def _look(self) -> None:
        """See how what was sent ends; and not again before a while that is longer than that took."""
        began = time.monotonic()
        self._ask(self._around.look, None)
        self._looked_at = time.monotonic()
        self._rest = max(LOOK_AT_WAVE_EVERY, REST * (self._looked_at - began))

    def _passed(self) -> Sequence[int]:
        return self._ask(self._around.passed, ())

    def _ask(self, question: Callable[[], Answer], unknown: Answer) -> Answer:
        """What Redis and Kafka tell; for a while they may tell nothing."""
        try:
            found = question()
        except (KafkaUnavailable, LedgerUnavailable) as error:
            if time.monotonic() - self._known_at > TRY_FOR:
                raise
            logger.warning("plan %d waits: %s", self._plan.id, error)
            return unknown
        self._known_at = time.monotonic()
        return found

    def _tell(self) -> None:
        if time.monotonic() - self._told >= 1:
            self._told = time.monotonic()
            self._around.heard()


#: Seconds between two looks for such plans.
LOOK_FOR_PLANS_EVERY: Final = 1.0
#: Seconds before one is taken up again that could not be gone on with: after the first time, and at most.
AGAIN_AFTER: Final = (5.0, 60.0)
#: Does a plan, by its id, under the lease of this name.
Do = Callable[[int, str], object]


def resume_plans(database: Database, do: Do, stopping: Event) -> None:
    """Do all such plans beside each other until `stopping` is set, and those under way have been left."""
    taken_at: dict[int, float] = {}
    failed: Counter[int] = Counter()
    threads: list[Thread] = []
    while not stopping.is_set():
        # That the database does not answer, the recorder's other duties say.
        with suppress(DeskUnavailable):
            for id_, who in _lease_plans(database, taken_at, failed):
                threads = [thread for thread in threads if thread.is_alive()]
                threads.append(Thread(target=_run_plan, args=(do, id_, who, failed), name=f"plan {id_}", daemon=True))
                threads[-1].start()
        stopping.wait(LOOK_FOR_PLANS_EVERY)
    for thread in threads:
        thread.join()


def _lease_plans(
    database: Database, taken_at: dict[int, float], failed: Mapping[int, int]
) -> Iterator[tuple[int, str]]:
    """Take the lease of those that nobody has; yield each with who has it now."""
    with database.reading() as connection:
        left = plan_table.find_abandoned_plans(connection)
    for id_ in left:
        if id_ in taken_at and time.monotonic() - taken_at[id_] < compute_pause(failed.get(id_, 0)):
            continue
        who = name_this_process()
        with database.writing() as connection:
            # Another process may be faster.
            taken = plan_table.lease_plan(connection, id_, who)
        if taken:
            taken_at[id_] = time.monotonic()
            yield id_, who


def compute_pause(failures: int) -> float:
    """For how many seconds a plan rests that so many times in a row could not be gone on with (pure)."""
    first, most = AGAIN_AFTER
    return min(most, first * float(1 << min(max(0, failures - 1), 10)))


def _run_plan(do: Do, id_: int, who: str, failed: Counter[int]) -> None:
    try:
        do(id_, who)
        failed[id_] = 0
    except Exception as error:
        failed[id_] += 1
        # What is not ours, and so not expected, says where it comes from.
        logger.error("plan %d: %s", id_, error, exc_info=not isinstance(error, BridgeError))
