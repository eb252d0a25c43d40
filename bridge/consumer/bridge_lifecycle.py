"""A bridge from start to end: it waits for Kafka, turns until it is stopped, and leaves the group."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Final

from celery import Celery

from bridge.consumer.poll_loop import PollLoop
from bridge.consumer.wiring import BridgeSetup
from bridge.errors import KafkaUnavailable, LedgerUnavailable, UnfitTopic
from bridge.handler_routes import Routes
from bridge.jobs.bridge_announcement import BridgeAnnouncement
from bridge.jobs.deployment_problems import GroupWatch, find_foreign_topics
from bridge.jobs.group_facts import format_since
from bridge.kafka.clients import admin_client
from bridge.kafka.consumer_groups import find_first_reads
from bridge.kafka.topic_admin import MOCK
from bridge.ledger import Ledger
from bridge.ledger.redis_health import check_redis_fit
from bridge.settings import Settings

logger = logging.getLogger(__name__)

#: Seconds between two times that it tells how it is.
TELL_EVERY: Final = 1.0
#: Seconds that leaving the group may take when Kafka does not answer.
LEAVE_WITHIN: Final = 5.0
#: Seconds between two looks for another application in the group: while it is not known, and when it is.
UNKNOWN_EVERY: Final = 2.0
KNOWN_EVERY: Final = 30.0
#: Seconds without a turn after which the loop is held to be stuck.
STUCK_AFTER: Final = 60.0


class Bridge:
    """Consumes the topics that handlers name, hands each delivery off, commits what is safe to commit.

    Only `obstacles`, `alive` and `stop` may be called from other threads.
    """

    def __init__(
        self, app: Celery, settings: Settings, routes: Routes, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._before = before = BridgeSetup.of(app, settings, routes, clock)
        self.metrics, self._clock = before.metrics, clock
        # Kafka may be away at the start too: which cluster it is need not be known for this.
        here = Ledger.of(settings)
        #: The ledger, until it has said that it evicts nothing.
        self._unchecked = here
        self._announcement = BridgeAnnouncement(here, settings.app, routes, self.metrics) if here else None
        if self._announcement is not None:
            before.now = self._announcement.now
        self._stopping = threading.Event()
        self._loop: PollLoop | None = None
        self._said_ready = False
        self._turned = clock()

    # From any thread

    def stop(self) -> None:
        """Finish the hand-off in flight, commit, leave the group, return from `run`."""
        self._stopping.set()

    def alive(self) -> bool:
        """Whether the loop turns."""
        return self._clock() - self._turned < STUCK_AFTER

    def obstacles(self) -> list[str]:
        """Why nothing is consumed, a sentence each; none if it is."""
        before, found = self._before, []
        if before.kafka.down:
            found.append(before.kafka.down)
        if before.blockage.why:
            found.append(f"deliveries cannot be handed off: {before.blockage.why}")
        missing = before.catalog.missing
        if missing and len(missing) == len(before.routes.topics):
            found.append(f"no topic to consume exists yet: {', '.join(sorted(missing))}")
        elif not (self._loop and self._loop.joined) and not before.kafka.down:
            found.append("joining the consumer group")
        return found

    def halted(self) -> list[str]:
        """Which topics are halted, why and since when, a sentence each."""
        now = time.time()
        return [
            f"topic {topic!r} is halted, {format_since(halt.since, now)}, by {halt.by}: {halt.why.rstrip('.')}; "
            f"`bridge resume {topic}` goes on."
            for topic, halt in sorted(self._before.decided.halts.items())
        ]

    def consumes_nothing(self) -> bool:
        """Whether every topic is halted."""
        return self._before.decided.halts.keys() >= {*self._before.routes.topics}

    # The loop

    def run(self) -> None:
        """Consume until `stop` is called; survives Kafka and the broker going away for any length of time.

        Raises:
            LedgerCannotFsync: a topic asks for handoff_durability="fsync", and this Redis can never say it.
            UnfitRedis: the ledger's Redis drops keys when it is full, or is Redis Cluster.
            ConsumerFailed: Kafka's client cannot go on.
            UnfitTopic: a retry topic would drop records before they are due.
        """
        self._check_redis()
        self._wait_for_kafka()
        if self._stopping.is_set():
            if self._announcement is not None:
                self._announcement.leave()
            return
        for name, tell in (("first reads", self._tell_first_reads), ("group watch", self._watch_group)):
            threading.Thread(target=tell, name=name, daemon=True).start()
        self._loop = loop = PollLoop(self._before)
        if self._announcement is not None and loop.parts.ledger is not None:
            self._announcement.know(loop.parts.ledger)
        try:
            while not self._stopping.is_set():
                self._turned = self._clock()
                if self._unchecked is not None and loop.parts.timetable.due("eviction", TELL_EVERY):
                    self._check_redis()
                loop.turn()
                self._show_ready(loop)
                self._tell(loop)
        finally:
            self._leave(loop)

    def _check_redis(self) -> None:
        """Refuse a Redis that evicts; one that does not answer yet is asked again, before each turn a second apart."""
        if self._unchecked is None:
            return
        try:
            warning = check_redis_fit(self._unchecked)
        except LedgerUnavailable as error:
            logger.debug("%s", error)
        else:
            self._unchecked = None
            if warning:
                logger.warning("%s", warning)

    def _wait_for_kafka(self) -> None:
        """Topics of ours are made before anything is consumed, so that a dead letter finds its topic."""
        while not self._stopping.is_set():
            self._turned = self._clock()
            if self._before.kafka.look_at_topics() and self._knows_what_was_decided():
                self._check_fit()
                return
            if self._announcement is not None:
                self._announcement.take_in(self.obstacles())
            self._stopping.wait(1.0)

    def _knows_what_was_decided(self) -> bool:
        """A topic that is halted is not read for a moment at each start."""
        try:
            self._before.decided.begin()
        except KafkaUnavailable as error:
            self._before.kafka.silent(str(error))
            return False
        return True

    def _check_fit(self) -> None:
        """At the start nothing is lost yet: a topic that would lose what is parked in it is mended first."""
        if unfit := self._before.catalog.unfit:
            if self._announcement is not None:
                self._announcement.leave()
            raise UnfitTopic("The bridge does not start:\n" + "\n".join(unfit))

    def _show_ready(self, loop: PollLoop) -> None:
        ready = not self.obstacles() and not self.consumes_nothing()
        self.metrics.ready.set(1 if ready else 0)
        if ready and not self._said_ready:
            self._said_ready = True
            count = len(list(loop.parts.assignment))
            logger.info(
                "ready: %s.", f"{count} partitions are consumed" if count else "other bridges have all partitions"
            )

    def _tell(self, loop: PollLoop) -> None:
        """Also while nothing can be handed off: that is when somebody asks."""
        parts = loop.parts
        if self._announcement is None or parts.gauges is None or not parts.timetable.due("tell", TELL_EVERY):
            return
        self._announcement.take_in(
            self.obstacles(),
            parts.assignment.partitions,
            parts.assignment,
            parts.pauses.reasons,
            parts.gauges.unaccounted,
            batches := parts.sizes.shown(),
            parts.unread,
            due=parts.due,
            ready={queue: depth.carried for queue, depth in parts.queues.depths.items()},
            unmade=[f"{ours.name!r}: {ours.without}" for ours in self._before.catalog.unmade],
            open_transactions=loop.looks.transactions.found.values(),
        )
        self.metrics.show_batches({handler: size.number for handler, size in batches.items()})

    # The end

    def _leave(self, loop: PollLoop) -> None:
        loop.commit_last()
        # close() waits for Kafka without limit.
        leaving = threading.Thread(target=loop.consumer.close, daemon=True)
        leaving.start()
        leaving.join(LEAVE_WITHIN)
        if leaving.is_alive():
            logger.warning("Kafka did not answer to the leaving; the group notices after the session timeout.")
        if self._announcement is not None:
            self._announcement.leave()
        self._before.decided.close()
        self._before.broker.close()

    # Beside the loop, which waits for no answer of these

    def _tell_first_reads(self) -> None:
        """Say what a new group is about to read."""
        before = self._before
        if before.catalog.cluster.startswith(MOCK):
            return
        try:
            for found in find_first_reads(before.settings, before.routes.topics):
                if found.records:
                    logger.log(logging.WARNING if found.is_surprising else logging.INFO, "%s", found.words)
        except KafkaUnavailable as error:
            logger.info("what is read first is not known: %s", error)

    def _watch_group(self) -> None:
        """Say that another application, with a Redis of its own, is in the group, whenever it comes."""
        settings, topics = self._before.settings, self._before.routes.topics
        if self._before.catalog.cluster.startswith(MOCK) or (ledger := Ledger.of(settings)) is None:
            return
        admin = admin_client(settings.kafka)
        with closing(ledger):
            watch = GroupWatch(settings.group, lambda: find_foreign_topics(admin, settings, ledger, topics))
            while not self._stopping.is_set():
                # This bridge has joined, and the group gives its partitions out anew: it is not known at first.
                known = watch.look()
                if self._announcement is not None:
                    self._announcement.know_foreign(watch.foreign)
                self._stopping.wait(KNOWN_EVERY if known else UNKNOWN_EVERY)
