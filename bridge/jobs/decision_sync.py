"""The synchronization of the group's decisions (halts and policies) between Redis, Kafka and the gates of topics.

The bridge follows the control topic. It writes what Redis lacks of it, publishes what only Redis has, and shuts the
gates of halted topics, handlers and keys, and of no others.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from bridge.bridge_metrics import BridgeMetrics
from bridge.dispatch.celery_broker import CeleryBroker
from bridge.dispatch.suspended_handlers import NONE_HALTED, find_halted_handlers
from bridge.errors import KafkaUnavailable, LedgerUnavailable, PublishFailed
from bridge.formats.group_decision import (
    UNPUBLISHED,
    GroupDecision,
    PolicyData,
    PublishedDecision,
    choose_effective_decision,
    choose_newest_decision,
    find_changed_policies,
    halted_topic,
)
from bridge.formats.halt_scope import HaltScope, SmallHalts, find_small_halts
from bridge.jobs.group_facts import format_since
from bridge.jobs.halt_gates import HaltGates
from bridge.kafka import control_topic
from bridge.kafka.control_topic import ControlTopicFollower
from bridge.ledger import Ledger
from bridge.ledger.decision_store import NO_DECISIONS, DecisionMirror, MirroredDecisions
from bridge.settings import Settings
from lossless.background_thread import BackgroundThread, start_thread
from lossless.transport.message_gates import AsideSize

logger = logging.getLogger(__name__)

#: Most messages, and bytes of Redis, that wait for one halted handler, or its keys, of a topic whose others go on.
MOST_HELD: Final = AsideSize(100_000, 250_000_000)
#: The most bytes as a share of `kafka_pause_above_bytes`, which pauses every topic of the queue.
HELD_SHARE: Final = 0.25
#: Seconds between two tries to publish what Kafka did not take.
PUBLISH_EVERY: Final = 5.0


class GroupDecisions:
    """The decisions of a bridge's group.

    Parameters:
        mirror: `None` without Redis.
        gates: the gates of the broker.
        names: by former name of a handler its current one.

    Attributes:
        halts: the halt of each halted topic.
        small_halts: the halt of each halted handler and key.
        suspended: the handlers that these halts suspend.
        policies: the changed policy of each handler.
    """

    def __init__(
        self,
        settings: Settings,
        mirror: DecisionMirror | None,
        metrics: BridgeMetrics,
        gates: HaltGates,
        clock: Callable[[], float] = time.monotonic,
        follower: ControlTopicFollower | None = None,
        names: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._settings, self._mirror, self._metrics, self._gates = settings, mirror, metrics, gates
        self._names = names
        self._follower = follower or ControlTopicFollower(settings)
        self._publishing = DecisionPublisher(settings, clock)
        self._published: dict[str, PublishedDecision] = {}
        self._unpublished: dict[str, GroupDecision] = {}
        #: By key, the offset of its last record in the control topic.
        self._ends: dict[str, int] = {}
        self._mirrored: MirroredDecisions = NO_DECISIONS
        self._another_log = False
        #: By halted handler or key, the messages that wait for it in the broker.
        self._held: Mapping[HaltScope, AsideSize | None] = {}
        self.halts: Mapping[str, GroupDecision] = {}
        self.small_halts: SmallHalts = {}
        self.suspended = NONE_HALTED
        self.policies: Mapping[str, PolicyData] = {}

    @classmethod
    def build(
        cls,
        settings: Settings,
        metrics: BridgeMetrics,
        broker: CeleryBroker,
        timeout: float,
        clock: Callable[[], float] = time.monotonic,
        names: Mapping[str, str] = MappingProxyType({}),
    ) -> "GroupDecisions":
        """Make them with the ledger's Redis, if there is one; this connects to nothing yet."""
        ledger = Ledger.from_settings(settings, timeout=timeout)
        mirror, gates = DecisionMirror(ledger) if ledger else None, HaltGates(broker, settings.group)
        return cls(settings, mirror, metrics, gates, clock, names=names)

    def begin(self, topics: Iterable[str] = ()) -> None:
        """Create the control topic if it is missing, and read the decisions, before anything is consumed.

        Parameters:
            topics: the group's source topics.

        Raises:
            KafkaUnavailable: Kafka did not answer.
        """
        control_topic.ensure_control_topic(self._settings, topics)
        try:
            mirrored = NO_DECISIONS if self._mirror is None else self._mirror.read()
        except LedgerUnavailable as error:
            # Nothing is handed off before Redis answers; then its decisions are read.
            logger.debug("%s", error)
            mirrored = NO_DECISIONS
        # Read last: what Redis has of Kafka lies before the end, unless the control topic was recreated.
        found = control_topic.read_published_decisions(self._settings)
        self._published = {}
        for standing in found.standing.values():
            self._note(standing)
        self._another_log = any(each.offset >= found.end for each in mirrored.published.values())
        self._take_in(mirrored)
        self._show()

    def update(self) -> None:
        """Take in new decisions, and write them to Redis and Kafka where they are missing.

        Raises:
            LedgerUnavailable, HandoffFailed: Redis did not answer; decisions of Kafka were taken in all the same.
        """
        self._follow()
        # Before the decisions are read: a decision is written first, and its gate changed after that.
        shut = self._gates.shut()
        try:
            if self._mirror is not None:
                self._update_mirror(self._mirror)
            self._publish()
        finally:
            self._show()
        self._gates.align(shut, self.halts, self.small_halts)
        if self.small_halts:
            self._suspend(self._gates.measure_held(self.small_halts))

    def close(self) -> None:
        """Leave Kafka."""
        self._follower.close()

    def _follow(self) -> None:
        found = self._follower.poll()
        if self._follower.went_back:
            logger.warning("the control topic was recreated or truncated: the decisions are published again.")
            self._another_log = True
            self._publishing.forget()
            self._ends = {}
            before, self._published = self._published, {}
            for each in before.values():
                self._note(PublishedDecision(each.decision))
        for each in found:
            self._ends[each.decision.key] = each.offset
            self._note(each)

    def _note(self, standing: PublishedDecision) -> None:
        key = standing.decision.key
        if (kept := choose_newest_decision(self._published.get(key), standing)) is None:
            return
        if kept.offset < self._ends.get(key, UNPUBLISHED):
            # A late record of an older decision follows it in the topic.
            kept = PublishedDecision(kept.decision)
        self._published[key] = kept
        other = self._unpublished.get(key)
        if kept.offset == UNPUBLISHED and (other is None or kept.decision.counts_over(other)):
            self._unpublished[key] = kept.decision
        elif other is not None and _has_decision(kept, other):
            del self._unpublished[key]

    def _update_mirror(self, mirror: DecisionMirror) -> None:
        if self._another_log:
            mirror.anew()
            self._another_log = False
        if not self._mirrored.version or mirror.version() != self._mirrored.version:
            self._take_in(mirror.read())
        unmirrored = [published for published in self._published.values() if not self._is_mirrored(published)]
        for published in unmirrored:
            mirror.note(published.decision, published.offset)
        lost = self._missing_in(self._mirrored)
        for decision in lost.values():
            mirror.want(decision)
        if unmirrored or lost:
            self._take_in(mirror.read())
        if not self._mirrored.whole and all(self._is_mirrored(published) for published in self._published.values()):
            mirror.whole(self._mirrored.version)
            self._take_in(mirror.read())

    def _missing_in(self, mirrored: MirroredDecisions) -> dict[str, GroupDecision]:
        """Return the decisions to publish that Redis lacks, unless it has one that counts over them."""
        noted = mirrored.unpublished
        return {
            key: each for key, each in self._unpublished.items() if key not in noted or each.counts_over(noted[key])
        }

    def _is_mirrored(self, standing: PublishedDecision) -> bool:
        there = self._mirrored.published.get(standing.decision.key)
        return standing.offset == UNPUBLISHED or (there is not None and there.offset >= standing.offset)

    def _take_in(self, mirrored: MirroredDecisions) -> None:
        """Take in the decisions of Redis, without forgetting those that it lost."""
        self._mirrored = mirrored
        if not self._another_log:
            for each in mirrored.published.values():
                self._note(each)
        wanted = {**mirrored.unpublished, **self._missing_in(mirrored)}
        self._unpublished = {
            key: each for key, each in wanted.items() if not _has_decision(self._published.get(key), each)
        }

    def _publish(self) -> None:
        """Publish decisions one at a time, beside the loop: Kafka may be slow to answer."""
        done = self._publishing.take_outcome()
        if done is not None:
            self._unpublished.pop(done.decision.key, None)
            self._took(done)
        for decision in self._unpublished.values():
            self._publishing.start(decision)

    def _took(self, done: PublishedDecision) -> None:
        """Note a published decision; one that was made meanwhile and counts over it is published again."""
        last = choose_newest_decision(
            self._published.get(done.decision.key), self._mirrored.published.get(done.decision.key)
        )
        if last is not None and last.decision.counts_over(done.decision):
            self._unpublished[done.decision.key] = last.decision
            return
        self._note(done)
        if self._mirror is not None:
            self._mirror.note(done.decision, done.offset)

    def _show(self) -> None:
        keys = self._published.keys() | self._unpublished.keys()
        stands = {
            key: each
            for key in keys
            if (each := choose_effective_decision(self._published.get(key), self._unpublished.get(key))) is not None
        }
        self._show_halts(stands.values())
        self._show_small_halts(find_small_halts(stands))
        self.policies = find_changed_policies(stands)
        self._metrics.show_policies(self.policies)

    def _show_halts(self, stands: Iterable[GroupDecision]) -> None:
        found = {
            topic: each for each in stands if each.data is not None and (topic := halted_topic(each.key)) is not None
        }
        for topic in sorted(found.keys() - self.halts.keys()):
            _log_halt(topic, found[topic])
        for topic in sorted(self.halts.keys() - found.keys()):
            logger.info("topic %r is consumed again.", topic)
        if found != self.halts:
            self._metrics.show_halted({topic: halt.since for topic, halt in found.items()})
        self.halts = found

    def _show_small_halts(self, found: SmallHalts) -> None:
        if found == self.small_halts:
            return
        for scope in found.keys() - self.small_halts.keys():
            _log_small_halt(scope, found[scope])
        for scope in self.small_halts.keys() - found.keys():
            logger.info("%s runs again.", scope.words)
        self.small_halts = found
        self._gates.name_halted(found, self._names)
        self._suspend({scope: self._held.get(scope, AsideSize()) for scope in found})

    def _suspend(self, held: Mapping[HaltScope, AsideSize | None]) -> None:
        self._held = held
        limit = self._settings.file.kafka_pause_above_bytes
        most = MOST_HELD if limit is None else AsideSize(MOST_HELD.messages, int(limit * HELD_SHARE))
        # Retry records may name a renamed handler as it was called.
        renamed = {scope.under_current_name(self._names): size for scope, size in held.items()}
        self.suspended = find_halted_handlers({**renamed, **held}, most)
        shown: Counter[HaltScope] = Counter()
        for scope, size in held.items():
            shown[scope.under_current_name(self._names)] += 0 if size is None else size.messages
        self._metrics.show_small_halts(shown)


class DecisionPublisher:
    """The publisher of decisions: one at a time, in a thread, and again some seconds after a refusal."""

    def __init__(self, settings: Settings, clock: Callable[[], float]) -> None:
        self._settings, self._clock = settings, clock
        self._thread: BackgroundThread | None = None
        self._outcome: PublishedDecision | None = None
        self._is_old = False
        self._again_at = 0.0
        self._refused = ""

    def start(self, decision: GroupDecision) -> None:
        """Start to publish a decision, unless one is in flight or was refused a moment ago."""
        if self._thread is None and self._clock() >= self._again_at:
            self._again_at = self._clock() + PUBLISH_EVERY
            self._is_old = False
            self._thread = start_thread("decisions", lambda: self._run(decision))

    def take_outcome(self) -> PublishedDecision | None:
        """Return the decision that Kafka has taken since the last call."""
        if self._thread is None or self._thread.is_alive():
            return None
        self._thread = None
        found = self._taken()
        if found is not None or self._is_old:
            self._again_at = 0.0
        return found

    def forget(self) -> None:
        """Distrust the decision in flight: it may have gone to the control topic before it was recreated."""
        self._is_old = True

    def _taken(self) -> PublishedDecision | None:
        found, self._outcome = self._outcome, None
        return None if self._is_old else found

    def _run(self, decision: GroupDecision) -> None:
        try:
            self._outcome = PublishedDecision(decision, control_topic.publish_decision(self._settings, decision))
            logger.info("the decision %r, which only Redis had, was published to Kafka.", decision.key)
        except (KafkaUnavailable, PublishFailed) as error:
            level = logging.DEBUG if self._refused == decision.change.id else logging.WARNING
            self._refused = decision.change.id
            logger.log(level, "only Redis has the decision, which is published to Kafka later: %s", error)


def _log_halt(topic: str, halt: GroupDecision) -> None:
    logger.warning(
        "topic %r is halted, %s, by %s: %s. Nothing of it is read or run until `bridge resume %s`.",
        topic,
        # A bridge that starts logs it again, long after the decision.
        format_since(halt.since, time.time()),
        halt.by,
        halt.why.rstrip("."),
        topic,
    )


def _log_small_halt(scope: HaltScope, halt: GroupDecision) -> None:
    logger.warning(
        "%s is halted, %s, by %s: %s. Nothing of it runs until `bridge resume %s`.",
        scope.words,
        format_since(halt.since, time.time()),
        halt.by,
        halt.why.rstrip("."),
        scope.arguments,
    )


def _has_decision(published: PublishedDecision | None, decision: GroupDecision) -> bool:
    """Return whether Kafka has a decision, or one that counts over it, or gets that."""
    if published is None:
        return False
    same = published.decision.change.id == decision.change.id
    return (same and published.offset != UNPUBLISHED) or published.decision.counts_over(decision)
