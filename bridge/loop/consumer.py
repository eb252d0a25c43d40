"""The loop: poll → hand off → commit."""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from celery import Celery

from bridge.errors import BridgeError, HandoffFailed, KafkaUnavailable, LedgerCannotFsync, LedgerUnavailable
from bridge.handlers import Routes
from bridge.handoff.broker import Broker
from bridge.handoff.dispatch import Dispatch
from bridge.handoff.marks import Marks
from bridge.handoff.messages import Messages
from bridge.handoff.seeing import receive, see
from bridge.kafka import Consumer, KafkaError, KafkaException, Record, TopicPartition, consumer_client
from bridge.ledger import Ledger
from bridge.loop.beginnings import Beginnings
from bridge.loop.commits import Commits
from bridge.loop.kafka_logs import Logs
from bridge.loop.rereads import Rereads
from bridge.metrics import BridgeMetrics
from bridge.partitions.assignment import Assignment
from bridge.pauses import pressure
from bridge.pauses.pauses import Pauses
from bridge.pauses.queues import Queues
from bridge.records.place import Place
from bridge.settings import Settings
from bridge.topics.catalog import Catalog
from bridge.upkeep.announcement import Announcement
from bridge.upkeep.upkeep import Upkeep
from bridge.upkeep.watch import Watch

logger = logging.getLogger(__name__)

#: Most records of one turn; what is held while the broker is away is never more.
TURN: Final = 2_000
#: Seconds between two looks at each.
FATES_EVERY: Final = 0.05
COMMIT_EVERY: Final = 1.0
#: Waiting for the disk takes up to a second (`appendfsync everysec`), in which nothing else is done.
FSYNC_EVERY: Final = 5.0
QUEUES_EVERY: Final = 0.5
KAFKA_EVERY: Final = 5.0
STUCK_EVERY: Final = 60.0
AUDIT_EVERY: Final = 30.0
RENEW_EVERY: Final = 60.0
TELL_EVERY: Final = 1.0
#: Deliveries handed off after which the queues are looked at all the same.
LOOK_AFTER: Final = 5_000
#: Seconds between two tries to hand off: first, and at most.
RETRY_AFTER: Final = (0.2, 5.0)
#: Seconds for an answer of the ledger (tried twice); more than a wait for the disk, less than a shutdown may take.
LEDGER_WITHIN: Final = 3.0
#: Seconds that leaving the group may take when Kafka does not answer.
LEAVE_WITHIN: Final = 5.0
#: Seconds without a turn after which the loop is held to be stuck.
STUCK_AFTER: Final = 60.0


class Bridge:
    """Consumes the topics that handlers name, hands each delivery off, commits what is safe to commit.

    One thread does all that touches Kafka's consumer, but for a commit that is waited for (bridge.loop.commits):
    librdkafka gives no promises for pausing and rebalancing beside a `consume()`. Only `obstacles`, `alive` and
    `stop` may be called from others.
    """

    def __init__(
        self, app: Celery, settings: Settings, routes: Routes, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings, self._routes, self._clock = settings, routes, clock
        self.metrics = BridgeMetrics()
        self._fsyncs = any(settings.topic(topic).handoff_durability == "fsync" for topic in routes.topics)
        self._limits = pressure.Limits(settings.file.kafka_pause_above, settings.file.kafka_resume_below)
        self._broker = Broker(app)
        self._catalog = Catalog(settings, routes.topics)
        self._watch = Watch(self._catalog, self.metrics)
        self._stopping = threading.Event()
        self._assigned = self._joined = False
        self._held: dict[Place, list[Record]] = {}
        self._held_since = 0.0
        self._failures = 0
        self._retry_at = 0.0
        self._blocked: str | None = None
        self._failed: Callable[[], None] | None = None
        self._since_look = 0
        self._upkeep: Upkeep | None = None
        url = settings.ledger_url
        self._announcement = Announcement(url, settings.group, routes, self.metrics) if url else None
        self._next = dict.fromkeys(("commit", "fates", "queues", "kafka", "stuck", "audit", "renew", "tell"), 0.0)
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
        found = []
        if self._watch.down:
            found.append(self._watch.down)
        if self._blocked:
            found.append(f"deliveries cannot be handed off: {self._blocked}")
        missing = self._catalog.missing
        if missing and len(missing) == len(self._routes.topics):
            found.append(f"no topic to consume exists yet: {', '.join(sorted(missing))}")
        elif not self._joined and not self._watch.down:
            found.append("joining the consumer group")
        return found

    # The loop

    def run(self) -> None:
        """Consume until `stop` is called; survives Kafka and the broker going away for any length of time.

        Raises:
            LedgerCannotFsync: a topic asks for handoff_durability="fsync", and this Redis can never say it.
        """
        self._wait_for_kafka()
        if self._stopping.is_set():
            if self._announcement is not None:
                self._announcement.leave()
            return
        self._set_up()
        self._consumer.subscribe(
            self._routes.topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        try:
            while not self._stopping.is_set():
                self._turn()
        finally:
            self._leave()

    def _wait_for_kafka(self) -> None:
        """Topics of ours are made before anything is consumed, so that a dead letter finds its topic."""
        while not self._stopping.is_set():
            self._turned = self._clock()
            if self._watch.look_at_topics():
                return
            if self._announcement is not None:
                self._announcement.take_in(self.obstacles())
            self._stopping.wait(1.0)

    def _set_up(self) -> None:
        settings = self._settings
        url, cluster = settings.ledger_url, self._catalog.cluster
        days = settings.file.kafka_ledger_days
        self._ledger = Ledger(url, cluster, settings.group, days, LEDGER_WITHIN, settings.ledger_named) if url else None
        self._assignment = Assignment(settings, self._routes, self._catalog, self._ledger)
        self._marks = Marks(self._ledger)
        self._dispatch = Dispatch(
            self._broker, self._ledger, self._marks, settings.one_redis, cluster, settings.group, self.metrics
        )
        self._commits = Commits(self._assignment, self._ledger, self._fsyncs, self.metrics)
        if self._ledger is not None:
            stuck_after = settings.file.kafka_stuck_after
            self._upkeep = Upkeep(self._ledger, Messages(self._broker), self._assignment, self.metrics, stuck_after)
            if self._announcement is not None:
                self._announcement.know(self._ledger)
        self._queues = Queues(self._broker, self._routes, self._limits, self.metrics)
        self._logs = Logs(self._ledger, self._assignment, self._commits, self.metrics)
        self._beginnings = Beginnings(
            settings,
            self._assignment,
            self._catalog,
            self._ledger,
            self._logs,
            partial(self._watch.began, self._assignment),
            self._clock,
        )
        self._pauses = Pauses(self._assignment, self._beginnings, self._queues, self.metrics)
        self._rereads = Rereads(self._assignment, self.metrics)
        try:
            self._commits.check()
        except LedgerUnavailable as error:
            logger.warning("%s", error)
        self._consumer = consumer_client(
            settings.kafka, settings.group, error_cb=self._on_error, on_commit=self._on_commit
        )

    def _turn(self) -> None:
        self._turned = self._clock()
        self._hold(self._poll())
        if self._clock() >= self._retry_at:
            self._hand_off()
        self._look_around()
        self._pauses.apply(self._consumer, blocked=self._blocked is not None)
        self._show_ready()
        self._tell()

    def _show_ready(self) -> None:
        ready = not self.obstacles()
        self.metrics.ready.set(1 if ready else 0)
        if ready and not self._said_ready:
            self._said_ready = True
            count = len(list(self._assignment))
            logger.info(
                "ready: %s.", f"{count} partitions are consumed" if count else "other bridges have all partitions"
            )

    def _poll(self) -> list[Record]:
        if self._blocked:
            # Everything is paused: this serves rebalances and keeps the membership alive.
            record = self._consumer.poll(0.1)
            return [] if record is None else [record]
        waits = any(partition.watched for partition in self._assignment.partitions)
        first = self._consumer.poll(0.02 if waits or any(self._beginnings) else 0.1)
        if first is None:
            return []
        # consume() waits for all it may take, poll() for one: so a quiet topic has no delay.
        return [first, *self._consumer.consume(TURN - 1, 0)]

    def _hold(self, records: list[Record]) -> None:
        counts: dict[Place, int] = {}
        for record in records:
            if record.error() is not None:
                self._report(record.error())
                continue
            place = _place(record)
            # The revoke callback runs inside poll(): what came before it is another bridge's now.
            if place not in self._assignment or place in self._rereads or place in self._beginnings:
                continue
            if not self._held:
                self._held_since = self._clock()
            self._held.setdefault(place, []).append(record)
            counts[place] = counts.get(place, 0) + 1
        for (topic, partition), count in counts.items():
            self.metrics.consumed.labels(topic, partition).inc(count)

    def _report(self, error: KafkaError | None) -> None:
        """Say what librdkafka reports in place of a record."""
        assert error is not None
        if error.fatal():
            raise KafkaException(error)
        if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            self._next["kafka"] = 0.0
        elif error.code() != KafkaError._PARTITION_EOF:
            logger.warning("Kafka: %s", error.str())

    def _hand_off(self) -> None:
        try:
            if self._failed is not None:
                self._failed()
                self._failed = None
            self._begin_anew(self._logs.check(self._consumer, self._held))
            held = bool(self._held)
            if held:
                partitions = {place: self._assignment.at(place) for place in self._held}
                self._marks.add(receive(self._ledger, self._held, partitions))
                self._held = {}
            sent = self._dispatch.hand_out(self._assignment.partitions)
        except (HandoffFailed, KafkaUnavailable, LedgerUnavailable) as error:
            self._handoff_failed(error)
            return
        if self._blocked:
            logger.info("deliveries are handed off again.")
        self._blocked, self._failures, self._retry_at = None, 0, 0.0
        if sent and held:
            self.metrics.handoff_seconds.observe(self._clock() - self._held_since)
        self._since_look += sent

    def _handoff_failed(self, error: BridgeError) -> None:
        first, most = RETRY_AFTER
        self._retry_at = self._clock() + min(most, first * 2 ** min(self._failures, 10))
        self._failures += 1
        self.metrics.handoff_failures.inc()
        if self._blocked is None:
            logger.error("deliveries cannot be handed off, consumption pauses until they can: %s", error)
        self._blocked = str(error)

    def _look_around(self) -> None:
        for what, every, look in (
            ("fates", FATES_EVERY, self._look_at_fates),
            ("commit", FSYNC_EVERY if self._fsyncs else COMMIT_EVERY, self._commit),
            ("queues", QUEUES_EVERY, self._look_at_queues),
            ("kafka", KAFKA_EVERY, self._look_at_kafka),
            ("stuck", min(STUCK_EVERY, self._settings.file.kafka_stuck_after), self._look_for_stuck),
            ("audit", AUDIT_EVERY, self._audit),
            ("renew", min(RENEW_EVERY, self._settings.file.kafka_ledger_days * 86_400 / 4), self._renew),
        ):
            if self._blocked and what != "kafka":
                continue
            if self._clock() >= self._next[what] or (what == "queues" and self._since_look >= LOOK_AFTER):
                self._next[what] = self._clock() + every
                self._attempt(look)
        self._watch.hear(self._assignment)
        self._begin_anew([place for place in self._watch.made_anew(self._assignment.logs) if place in self._assignment])
        if not self._blocked:
            self._attempt(self._reread)
        if not self._blocked:
            self._attempt(self._begin)
        self._joined = self._joined or (self._assigned and not self._beginnings.unasked)

    def _attempt(self, act: Callable[[], None]) -> None:
        """Do what needs the ledger. Until what failed succeeds nothing else is asked: a frozen Redis takes seconds."""
        try:
            act()
        except (KafkaUnavailable, LedgerUnavailable) as error:
            self._failed = act
            self._handoff_failed(error)

    # Looking around

    def _look_at_kafka(self) -> None:
        self._watch.ask(self._assignment)

    def _look_at_queues(self) -> None:
        self._since_look = 0
        self._queues.look()

    def _look_at_fates(self) -> None:
        """See how what was handed out has ended: for the commit, and for what waits behind it."""
        watched = [partition for partition in self._assignment.partitions if partition.watched]
        if self._ledger is not None and watched:
            seen = see(self._ledger, watched)
            for undone in seen.undone:
                self._rereads.undone(*undone)
            self._marks.add(seen.marks)
            self._marks.tell()

    def _begin(self) -> None:
        if any(self._beginnings):
            self._commits.know()
        self._beginnings.advance(self._consumer)

    def _begin_anew(self, places: list[Place]) -> None:
        if not places:
            return
        for place in places:
            self._held.pop(place, None)
        self._rereads.forget(places)
        self._beginnings.add(places)
        self._pauses.begin(self._consumer, places)

    def _reread(self) -> None:
        self._rereads.carry_out(self._consumer, lambda place: self._held.pop(place, None))

    def _look_for_stuck(self) -> None:
        if self._upkeep is not None:
            more = self._upkeep.reopen_stuck(self._rereads.ask)
            if more:
                self._next["stuck"] = 0.0

    def _audit(self) -> None:
        if self._upkeep is not None:
            self._upkeep.audit(self._watch.ends)

    def _renew(self) -> None:
        if self._upkeep is not None:
            self._upkeep.renew()

    def _tell(self) -> None:
        """Also while nothing can be handed off: that is when somebody asks."""
        if self._upkeep is None or self._announcement is None or self._clock() < self._next["tell"]:
            return
        self._next["tell"] = self._clock() + TELL_EVERY
        self._announcement.take_in(
            self.obstacles(),
            self._assignment.partitions,
            self._assignment,
            self._pauses.reasons,
            self._upkeep.unaccounted,
        )

    # Rebalances: called inside poll()

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._assigned = True
        self._watch.answers()
        # Paused, and at some offset: where to begin is found out in the loop, and sought then.
        consumer.incremental_assign([TopicPartition(p.topic, p.partition, 0) for p in partitions])
        self._begin_anew([(p.topic, p.partition) for p in partitions])
        self.metrics.expect((p.topic, p.partition) for p in partitions)
        self._next["kafka"] = self._next["tell"] = 0.0
        if partitions:
            logger.info("assigned: %s", _shown(partitions))

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # Not waited for: in here Kafka's answer would come too late, inside close() after the callback. It is sent
        # before all that gives the partitions up, and Kafka takes it first.
        self._commit_last(wait=False)
        self._give_up(partitions)
        consumer.incremental_unassign(partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        logger.warning("the group went on without this bridge; its partitions are another's now, or gone.")
        self._give_up(partitions)
        consumer.incremental_unassign(partitions)

    def _give_up(self, partitions: list[TopicPartition]) -> None:
        places = {(p.topic, p.partition) for p in partitions}
        self._assignment.remove(places)
        for place in places:
            self._held.pop(place, None)
        self._beginnings.forget(places)
        self._rereads.forget(places)
        self._pauses.forget(places)
        self._watch.forget(places)
        self.metrics.forget(places)
        if places:
            logger.info("revoked: %s", _shown(partitions))

    # Commits

    def _commit(self, wait: bool = False) -> None:
        """Commit what is safe; where the ledger may have lost fates, see anew where there is something to do."""
        # A commit rests on marks too.
        self._marks.tell()
        doubt = self._commits.commit(self._consumer, set(self._rereads), wait=wait)
        if doubt is None:
            return
        logger.warning("%s.", doubt)
        # Those that have not begun too: half of what is known of them may be of before.
        self._begin_anew(list(self._assignment))

    def _commit_last(self, *, wait: bool) -> None:
        """In a rebalance and at the end, where nothing may be raised."""
        if self._blocked:
            return
        try:
            self._commit(wait=wait)
        except (LedgerCannotFsync, LedgerUnavailable) as error:
            self._failed = self._commit
            self._handoff_failed(error)

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        if self._commits.noted(error, partitions):
            self._watch.answers()
            self._watch.show(self._assignment)

    def _on_error(self, error: KafkaError) -> None:
        if self._watch.failed(error):
            self._next["kafka"] = 0.0

    # The end

    def _leave(self) -> None:
        if not self._watch.down:
            self._commit_last(wait=True)
        # close() waits for Kafka without limit.
        leaving = threading.Thread(target=self._consumer.close, daemon=True)
        leaving.start()
        leaving.join(LEAVE_WITHIN)
        if leaving.is_alive():
            logger.warning("Kafka did not answer to the leaving; the group notices after the session timeout.")
        if self._announcement is not None:
            self._announcement.leave()
        self._broker.close()


def _place(record: Record) -> Place:
    return (record.topic() or "", record.partition() or 0)


def _shown(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(sorted(f"{p.topic}-{p.partition}" for p in partitions))
