"""A plan is applied: in batches, by one process at a time; another goes on where one died, and does nothing twice.

For each batch: claim in one transaction, act (publish, and wait for all acknowledgements), note in another what is
certain. What was claimed by a process that died is looked for before it is sent.
"""

import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar
from uuid import uuid4

from bridge.deadletters.actions.action import Acted, Action, Claimed
from bridge.deadletters.plan.canary import Decision, Turn, decide
from bridge.deadletters.plan.pace import Pace
from bridge.deadletters.plan.plan import ItemState, Plan, State
from bridge.deadletters.store import clock, items, lanes, plans, spots, underway
from bridge.deadletters.store.database import Connection, Database
from bridge.errors import BridgeError, KafkaUnavailable, LedgerUnavailable, PlanOver, PlanTakenOver

Answer = TypeVar("Answer")

logger = logging.getLogger(__name__)

#: Letters of one batch.
BATCH: Final = 1_000
#: Seconds between two looks at what is waited for: whether it was stopped, how a wave ended.
LOOK_EVERY: Final = 0.5
#: How much longer than a look the pause after it is, while others still go out.
REST: Final = 2.0
#: Seconds between two tries, and for which it is tried, while Kafka or Redis is away.
TRY_EVERY: Final = 1.0
TRY_FOR: Final = 60.0
#: Seconds after which a process shows again that it lives, before it sends more: what it sends then is acknowledged, or
#: given up, within its lease.
SHOW_EVERY: Final = plans.LEASE / 1000 / 6


def me() -> str:
    """Who applies a plan: this process, and no other before or after it."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"


class Around(NamedTuple):
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


class Applying:
    """One plan, applied by this process, which has its lease.

    Parameters:
        who: that has the lease.
    """

    def __init__(self, database: Database, plan: Plan, action: Action, who: str, around: Around) -> None:
        self._database, self._plan, self._action, self._who, self._around = database, plan, action, who, around
        self._wave = plan.wave
        self._pace = Pace(plan.options.rate, time.monotonic())
        self._told = self._sent_at = self._held_at = self._looked_at = self._known_at = time.monotonic()
        self._rest = LOOK_EVERY
        with database.reading() as connection:
            self._in_lanes = lanes.are_in(connection, plan.id)
            self._last_wave = items.last_wave(connection, plan.id)

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
                left = [Claimed(*each) for each in items.claimed(connection, self._plan.id, BATCH)]
            if not left:
                return
            self._do(left, again=True)

    def _hold(self, connection: Connection) -> State:
        state = plans.hold(connection, self._plan.id, self._who)
        if state is None:
            raise PlanTakenOver
        return state

    def _go_on(self, connection: Connection) -> None:
        if self._hold(connection) is not State.APPLYING or self._around.leaves():
            raise PlanOver

    def _hold_on(self) -> None:
        """The rate lets none go now."""
        with self._database.writing() as connection:
            self._go_on(connection)
        time.sleep(min(LOOK_EVERY, self._pace.until_next))

    def _claim(self) -> list[Claimed] | None:
        """Take the next; empty where none are left (of this wave), `None` where all that was looked at is skipped."""
        passed = self._passed() if self._in_lanes else ()
        with self._database.writing() as connection:
            self._go_on(connection)
            underway.alone(connection)
            if self._in_lanes:
                lanes.let_go(connection, self._plan.id, passed)
            allowed = self._pace.allowed(BATCH, time.monotonic())
            found = items.waiting(connection, self._plan.id, self._wave, allowed, in_lanes=self._in_lanes)
            if not found:
                return []
            at = clock.now(connection)
            taken = self._action.take(connection, found, at)
            items.end(connection, self._plan.id, taken.skipped, ItemState.SKIPPED, at)
            items.claim(connection, self._plan.id, {each.item.position: each.spot for each in taken.claimed}, at)
        self._pace.went(len(taken.claimed))
        self._held_at = time.monotonic()
        return [*taken.claimed] or None

    def _do(self, claimed: Sequence[Claimed], *, again: bool = False) -> None:
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
            self._note(claimed, Acted())
            time.sleep(TRY_EVERY)

    def _act(self, claimed: Sequence[Claimed]) -> Acted:
        return self._action.act(claimed, self._live) if claimed else Acted()

    def _live(self) -> None:
        """Show that this process lives, where it has not for a while: it was frozen, or a batch takes long."""
        began = time.monotonic()
        if began - self._held_at > SHOW_EVERY:
            with self._database.writing() as connection:
                self._hold(connection)
            self._held_at = began

    def _note(self, claimed: Sequence[Claimed], acted: Acted) -> list[Claimed]:
        """Note what is certain; return what is not."""
        known = {each.position for each in acted.sent} | acted.ends.keys()
        with self._database.writing() as connection:
            self._hold(connection)
            at = clock.now(connection)
            spots.sent(connection, self._plan.id, acted.sent, at)
            for state in {end.state for end in acted.ends.values()}:
                whys = {position: end.why for position, end in acted.ends.items() if end.state is state}
                items.end(connection, self._plan.id, whys, state, at)
            self._action.settle(connection, [each for each in claimed if each.item.position in known], acted, at)
        self._held_at = time.monotonic()
        if acted.sent:
            self._sent_at = self._held_at
        return [each for each in claimed if each.item.position not in known]

    def _next_wave(self) -> None:
        """Nothing more may go in this wave: go on to the next, wait for how it ends, or end the plan."""
        with self._database.writing() as connection:
            self._go_on(connection)
            if not items.are_left(connection, self._plan.id):
                plans.move(connection, self._plan.id, [State.APPLYING], State.DONE)
                return
            decision = self._decision(connection)
            if decision.turn is Turn.STOP:
                plans.move(connection, self._plan.id, [State.APPLYING], State.STOPPED, decision.why)
            elif decision.turn is Turn.GO_ON:
                self._wave += 1
                plans.at_wave(connection, self._plan.id, self._wave)
        if decision.turn is Turn.WAIT:
            time.sleep(LOOK_EVERY)
            self._look()

    def _decision(self, connection: Connection) -> Decision:
        """What comes after all that may go has gone, and some is left."""
        if not self._plan.options.canary or self._wave >= self._last_wave:
            # No wave comes after this one: the rest is held in lanes.
            return Decision(Turn.WAIT)
        outcomes = items.counts(connection, [self._plan.id], self._wave).get(self._plan.id, {})
        return decide(self._wave, outcomes, time.monotonic() - self._sent_at, self._plan.options.canary_starts)

    def _look(self) -> None:
        """See how what was sent ends; and not again before a while that is longer than that took."""
        began = time.monotonic()
        self._ask(self._around.look, None)
        self._looked_at = time.monotonic()
        self._rest = max(LOOK_EVERY, REST * (self._looked_at - began))

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
