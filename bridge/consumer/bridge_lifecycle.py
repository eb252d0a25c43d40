"""The lifecycle of a bridge: it waits for Kafka, runs its loop until it is stopped, and leaves the group."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Final

from celery import Celery

from bridge.bridge_metrics import BridgeMetrics
from bridge.consumer.poll_loop import PollLoop
from bridge.consumer.wiring import BridgeSetup
from bridge.errors import KafkaUnavailable, LedgerUnavailable, UnfitTopic
from bridge.formats.text_forms import format_count
from bridge.handler_routes import Routes
from bridge.jobs.bridge_announcement import BridgeAnnouncement
from bridge.jobs.deployment_problems import GroupWatch, find_foreign_topics
from bridge.jobs.group_facts import format_since
from bridge.kafka.consumer_groups import find_first_reads
from bridge.kafka.partition_offsets import group_unreadable
from bridge.kafka.topic_admin import MOCK
from bridge.ledger import Ledger
from bridge.ledger.redis_health import check_redis_fit
from bridge.readiness import Readiness, decide_readiness, is_alive, is_all_halted, list_bridge_obstacles
from bridge.settings import Settings
from lossless.background_thread import start_thread

logger = logging.getLogger(__name__)

#: Seconds between two announcements of its state.
TELL_EVERY: Final = 1.0
#: Seconds that leaving the group may take if Kafka does not answer.
LEAVE_WITHIN: Final = 5.0
#: Seconds between two searches for another application in the group: while the members are unknown, and else.
UNKNOWN_EVERY: Final = 2.0
KNOWN_EVERY: Final = 30.0


class Bridge:
    """A bridge: it consumes the topics that handlers name, hands each delivery off, and commits what is safe.

    Only `obstacles`, `readiness`, `alive` and `stop` may be called from other threads.
    """

    def __init__(
        self, app: Celery, settings: Settings, routes: Routes, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.metrics, self._clock = BridgeMetrics(), clock
        # This ledger needs no cluster id: Kafka may be unavailable at the start.
        here = Ledger.from_settings(settings)
        #: The ledger, until its Redis was found not to evict keys.
        self._unchecked = here
        self._announcement = BridgeAnnouncement(here, settings.app, routes, self.metrics) if here else None
        now = time.time if self._announcement is None else self._announcement.now
        self._setup = BridgeSetup.build(app, settings, routes, self.metrics, clock, now)
        self._handlers = {topic: [handler.name for handler in routes.of(topic)] for topic in routes.topics}
        self._stopping = threading.Event()
        self._loop: PollLoop | None = None
        self._logged_ready = False
        self._turned = clock()

    # From any thread

    def stop(self) -> None:
        """Finish the hand-off in flight, commit, leave the group, and return from `run`."""
        self._stopping.set()

    def alive(self) -> bool:
        """Return whether the loop turns."""
        return is_alive(self._turned, self._clock())

    def obstacles(self) -> list[str]:
        """Return why nothing is consumed, a sentence each; none if records are consumed."""
        setup = self._setup
        return list_bridge_obstacles(
            kafka=setup.kafka.down,
            handoff=setup.blockage.why,
            missing=setup.catalog.missing,
            topics=setup.routes.topics,
            joined=self._loop is not None and self._loop.joined,
            unreadable=self._describe_unreadable() if self._reads_nothing else None,
        )

    @property
    def _reads_nothing(self) -> bool:
        return self._loop is not None and 0 < self._loop.assigned <= len(self._loop.unreadable)

    def _describe_unreadable(self) -> str:
        """Return a sentence on the assigned partitions that cannot be read yet; empty if there is none."""
        if (loop := self._loop) is None or not (unreadable := loop.unreadable):
            return ""
        share = f"{len(unreadable):,} of {format_count(loop.assigned, 'assigned partition')} cannot"
        which = "no assigned partition can" if self._reads_nothing else share
        return f"{which} be read yet: {'; '.join(group_unreadable(unreadable))}."

    def readiness(self, others: Sequence[str] = ()) -> Readiness:
        """Return its readiness, with a sentence for each halted topic and handler, and for unreadable partitions.

        Parameters:
            others: the obstacles of what runs beside it.
        """
        now, decisions = time.time(), self._setup.decisions
        topics, handlers, halts = decisions.halts, decisions.suspended.halted, decisions.small_halts
        subjects = [(f"topic {topic!r}", topic, halt) for topic, halt in sorted(topics.items())]
        subjects += [(scope.words, scope.arguments, halt) for scope, halt in halts.items() if scope.key is None]
        halted = [
            f"{subject} is halted, {format_since(halt.since, now)}, by {halt.by}: {halt.why.rstrip('.')}; "
            f"`bridge resume {arguments}` goes on."
            for subject, arguments, halt in subjects
        ]
        consumes_nothing = is_all_halted(self._handlers, topics, handlers)
        obstacles, unreadable = self.obstacles(), self._describe_unreadable()
        waits = [unreadable] if unreadable and unreadable not in obstacles else []
        return decide_readiness(obstacles, halted=halted, consumes_nothing=consumes_nothing, others=[*waits, *others])

    # The loop

    def run(self) -> None:
        """Consume until `stop` is called, through outages of Kafka and the broker of any length.

        Raises:
            LedgerCannotFsync: a topic has handoff_durability="fsync", which this Redis cannot confirm.
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
        for name, run in (("first reads", self._log_first_reads), ("group watch", self._watch_group)):
            start_thread(name, run)
        self._loop = loop = PollLoop(self._setup)
        if self._announcement is not None and loop.parts.ledger is not None:
            self._announcement.set_ledger(loop.parts.ledger)
        try:
            while not self._stopping.is_set():
                self._turned = self._clock()
                if self._unchecked is not None and loop.parts.timetable.due("eviction", TELL_EVERY):
                    self._check_redis()
                loop.turn()
                self._show_ready(loop)
                self._announce(loop)
        finally:
            self._leave(loop)

    def _check_redis(self) -> None:
        """Refuse a Redis that evicts keys; one that does not answer yet is asked again every second."""
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
        """Create missing topics of the group before anything is consumed, so that a dead letter finds its topic."""
        while not self._stopping.is_set():
            self._turned = self._clock()
            if self._setup.kafka.prepare_topics() and self._read_decisions():
                self._check_fit()
                return
            if self._announcement is not None:
                self._announcement.update_state(self.obstacles())
            self._stopping.wait(1.0)

    def _read_decisions(self) -> bool:
        """Read the decisions of the group first, so that no halted topic is read; return whether Kafka answered."""
        try:
            self._setup.decisions.begin(self._setup.routes.topics)
        except KafkaUnavailable as error:
            self._setup.kafka.note_outage(str(error))
            return False
        return True

    def _check_fit(self) -> None:
        """Refuse to start with a retry topic that would lose parked records: it must be fixed first."""
        if unfit := self._setup.catalog.unfit:
            if self._announcement is not None:
                self._announcement.leave()
            raise UnfitTopic("The bridge does not start:\n" + "\n".join(unfit))

    def _show_ready(self, loop: PollLoop) -> None:
        ready = self.readiness().ready
        self.metrics.ready.set(1 if ready else 0)
        if ready and not self._logged_ready:
            self._logged_ready = True
            count = len(list(loop.parts.assignment))
            logger.info(
                "ready: %s.",
                f"{format_count(count, 'partition', 'are')} consumed" if count else "other bridges have all partitions",
            )

    def _announce(self, loop: PollLoop) -> None:
        """Announce the state of this bridge, also while nothing can be handed off."""
        parts = loop.parts
        if self._announcement is None or parts.audit_metrics is None or not parts.timetable.due("tell", TELL_EVERY):
            return
        unread = parts.unread
        self._announcement.update_state(
            self.obstacles(),
            parts.assignment.partitions,
            parts.assignment,
            parts.reads.pauses.reasons,
            parts.audit_metrics.unaccounted,
            batches := parts.sizes.shown(),
            unread,
            busy=parts.assignment.busy,
            due=parts.count_due(unread),
            ready={queue: depth.carried for queue, depth in parts.queues.depths.items()},
            lag=self.metrics.sum_lag(),
            unmade=[f"{ours.name!r}: {ours.without}" for ours in self._setup.catalog.unmade],
            open_transactions=loop.transactions.found.values(),
        )
        self.metrics.show_batches({handler: size.number for handler, size in batches.items()})

    # The end

    def _leave(self, loop: PollLoop) -> None:
        loop.commit_last()
        # close() waits for Kafka without limit.
        if not start_thread("leaving", loop.consumer.close).stop(LEAVE_WITHIN):
            logger.warning("Kafka did not answer when this bridge left; its partitions move after the session timeout.")
        if self._announcement is not None:
            self._announcement.leave()
        self._setup.decisions.close()
        self._setup.broker.close()

    # In threads of their own: the loop waits for no answer of these

    def _log_first_reads(self) -> None:
        """Log the records that a new group is about to read."""
        setup = self._setup
        if setup.catalog.cluster.startswith(MOCK):
            return
        try:
            for first_read in find_first_reads(setup.settings, setup.routes.topics):
                if first_read.records:
                    logger.log(logging.WARNING if first_read.is_surprising else logging.INFO, "%s", first_read.words)
        except KafkaUnavailable as error:
            logger.info("the records that the group reads first are not known: %s", error)

    def _watch_group(self) -> None:
        """Log whenever another application, with a Redis of its own, joins the group."""
        settings, topics = self._setup.settings, self._setup.routes.topics
        if self._setup.catalog.cluster.startswith(MOCK) or (ledger := Ledger.from_settings(settings)) is None:
            return
        with closing(ledger):
            watch = GroupWatch(settings.group, lambda: find_foreign_topics(settings, ledger, topics))
            while not self._stopping.is_set():
                # Unknown at first: this bridge has joined, and the group assigns its partitions anew.
                known = watch.poll()
                if self._announcement is not None:
                    self._announcement.set_foreign_topics(watch.foreign)
                self._stopping.wait(KNOWN_EVERY if known else UNKNOWN_EVERY)
