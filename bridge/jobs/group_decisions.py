"""The decisions of the group (halts and policies) as a bridge knows them, brought to Redis, Kafka and the gates of
topics. The control topic is read on and on. The bridge puts back what Redis lacks of it, publishes what Redis has
and Kafka does not, and shuts the gates of halted topics and of no others.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from bridge.bridge_metrics import BridgeMetrics
from bridge.dispatch.celery_broker import CeleryBroker
from bridge.errors import KafkaUnavailable, LedgerUnavailable, PublishFailed
from bridge.formats.gate_names import gated_topic, topic_gate
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
from bridge.jobs.group_facts import format_since
from bridge.kafka import control_topic
from bridge.kafka.control_topic import ControlTopicFollower
from bridge.ledger import Ledger
from bridge.ledger.decision_store import NO_DECISIONS, DecisionMirror, MirroredDecisions
from bridge.settings import Settings

#: The shut gates where the broker has none.
NO_GATES: Final[frozenset[str]] = frozenset()


class TopicGates:
    """The gates of the topics of one group. Each method raises HandoffFailed when the broker does not answer."""

    def __init__(self, broker: CeleryBroker, group: str) -> None:
        self._broker, self._group = broker, group

    def shut(self) -> frozenset[str]:
        """The topics whose gates are shut."""
        with self._broker.gates() as gates:
            names = NO_GATES if gates is None else gates.shut_names().keys()
        topics = {gated_topic(self._group, name) for name in names}
        return frozenset(topic for topic in topics if topic is not None)

    def bring_in_order(self, shut: Collection[str], halts: Mapping[str, GroupDecision]) -> None:
        """Shut the gates of what is halted, and open those of what is not.

        Parameters:
            shut: the topics whose gates were shut before it was asked what is halted: one that is shut meanwhile stays.
        """
        if {*shut} == {*halts}:
            return
        with self._broker.gates() as gates:
            if gates is None:
                return
            for topic in sorted({*halts} - {*shut}):
                gates.shut(topic_gate(self._group, topic), halts[topic].why)
            for topic in sorted({*shut} - {*halts}):
                gates.open(topic_gate(self._group, topic))


logger = logging.getLogger(__name__)

#: Seconds between two tries to publish what Kafka did not take.
PUBLISH_EVERY: Final = 5.0


class GroupDecisions:
    """The decisions of a bridge's group.

    Parameters:
        mirror: `None` where there is no Redis for it.
        gates: the broker's, brought in order.

    Attributes:
        halts: by topic, why its consumption is halted.
        policies: by handler, what is changed of its policy.
    """

    def __init__(
        self,
        settings: Settings,
        mirror: DecisionMirror | None,
        metrics: BridgeMetrics,
        gates: TopicGates,
        clock: Callable[[], float] = time.monotonic,
        follower: ControlTopicFollower | None = None,
    ) -> None:
        self._settings, self._mirror, self._metrics, self._gates = settings, mirror, metrics, gates
        self._follower = follower or ControlTopicFollower(settings)
        self._publishing = DecisionPublisher(settings, clock)
        self._published: dict[str, PublishedDecision] = {}
        self._unpublished: dict[str, GroupDecision] = {}
        #: By key, where in the control topic its last record lies.
        self._ends: dict[str, int] = {}
        self._mirrored: MirroredDecisions = NO_DECISIONS
        self._another_log = False
        self.halts: Mapping[str, GroupDecision] = {}
        self.policies: Mapping[str, PolicyData] = {}

    @classmethod
    def of(
        cls,
        settings: Settings,
        metrics: BridgeMetrics,
        broker: CeleryBroker,
        timeout: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> "GroupDecisions":
        """With the ledger's Redis, where there is one. Connects to nothing yet."""
        ledger = Ledger.of(settings, timeout=timeout)
        return cls(
            settings, DecisionMirror(ledger) if ledger else None, metrics, TopicGates(broker, settings.group), clock
        )

    def begin(self) -> None:
        """Make the topic where it is missing, and learn what stands: before anything is consumed.

        Raises:
            KafkaUnavailable: Kafka did not answer.
        """
        control_topic.ensure_control_topic(self._settings)
        try:
            mirrored = NO_DECISIONS if self._mirror is None else self._mirror.read()
        except LedgerUnavailable as error:
            # Nothing is handed off before Redis answers; then it is read.
            logger.debug("%s", error)
            mirrored = NO_DECISIONS
        # Asked for last: what Redis has of Kafka lies before its end, unless the topic is another one by now.
        found = control_topic.read_published_decisions(self._settings)
        self._published = {}
        for standing in found.standing.values():
            self._note(standing)
        self._another_log = any(each.offset >= found.end for each in mirrored.published.values())
        self._take_in(mirrored)
        self._show()

    def look(self) -> None:
        """Take in what is new, and bring Redis and Kafka to know it.

        Raises:
            LedgerUnavailable, HandoffFailed: Redis did not answer; the rest is known all the same.
        """
        self._follow()
        # Before what was decided is looked at: who decides says so first, and touches the gate then.
        shut = self._gates.shut()
        try:
            if self._mirror is not None:
                self._look_at(self._mirror)
            self._publish()
        finally:
            self._show()
        self._gates.bring_in_order(shut, self.halts)

    def close(self) -> None:
        """Leave Kafka."""
        self._follower.close()

    def _follow(self) -> None:
        found = self._follower.poll()
        if self._follower.went_back:
            logger.warning("the control topic is another one, or lost its end: what was decided is published again.")
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
            # One that it followed came late, and lies behind it.
            kept = PublishedDecision(kept.decision)
        self._published[key] = kept
        other = self._unpublished.get(key)
        if kept.offset == UNPUBLISHED and (other is None or kept.decision.counts_over(other)):
            self._unpublished[key] = kept.decision
        elif other is not None and _has_decision(kept, other):
            del self._unpublished[key]

    def _look_at(self, mirror: DecisionMirror) -> None:
        if self._another_log:
            mirror.anew()
            self._another_log = False
        if not self._mirrored.version or mirror.version() != self._mirrored.version:
            self._take_in(mirror.read())
        behind = [each for each in self._published.values() if not self._is_mirrored(each)]
        for each in behind:
            mirror.note(each.decision, each.offset)
        lost = self._missing_in(self._mirrored)
        for decision in lost.values():
            mirror.want(decision)
        if behind or lost:
            self._take_in(mirror.read())
        if not self._mirrored.whole and all(self._is_mirrored(each) for each in self._published.values()):
            mirror.whole(self._mirrored.version)
            self._take_in(mirror.read())

    def _missing_in(self, mirrored: MirroredDecisions) -> dict[str, GroupDecision]:
        """What is to be published, and is not noted there as that, nor anything that counts over it."""
        noted = mirrored.unpublished
        return {
            key: each for key, each in self._unpublished.items() if key not in noted or each.counts_over(noted[key])
        }

    def _is_mirrored(self, standing: PublishedDecision) -> bool:
        there = self._mirrored.published.get(standing.decision.key)
        return standing.offset == UNPUBLISHED or (there is not None and there.offset >= standing.offset)

    def _take_in(self, mirrored: MirroredDecisions) -> None:
        """What Redis knows counts as what is known here; what it lost is not forgotten."""
        self._mirrored = mirrored
        if not self._another_log:
            for each in mirrored.published.values():
                self._note(each)
        wanted = {**mirrored.unpublished, **self._missing_in(mirrored)}
        self._unpublished = {
            key: each for key, each in wanted.items() if not _has_decision(self._published.get(key), each)
        }

    def _publish(self) -> None:
        """One at a time, beside the loop: Kafka may take long to answer."""
        done = self._publishing.done()
        if done is not None:
            self._unpublished.pop(done.decision.key, None)
            self._took(done)
        for decision in self._unpublished.values():
            self._publishing.start(decision)

    def _took(self, done: PublishedDecision) -> None:
        """Kafka has it; what was decided meanwhile, and counts, lies before it, and is to be said again."""
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


class DecisionPublisher:
    """Publishes one decision at a time in a thread of its own, and again after some seconds where Kafka refused."""

    def __init__(self, settings: Settings, clock: Callable[[], float]) -> None:
        self._settings, self._clock = settings, clock
        self._thread: threading.Thread | None = None
        self._outcome: PublishedDecision | None = None
        self._is_old = False
        self._again_at = 0.0
        self._refused = ""

    def start(self, decision: GroupDecision) -> None:
        """Begin, unless one is under way or was refused a moment ago."""
        if self._thread is None and self._clock() >= self._again_at:
            self._again_at = self._clock() + PUBLISH_EVERY
            self._is_old = False
            self._thread = threading.Thread(target=self._run, args=(decision,), name="decisions", daemon=True)
            self._thread.start()

    def done(self) -> PublishedDecision | None:
        """What Kafka has taken since this was asked last."""
        if self._thread is None or self._thread.is_alive():
            return None
        self._thread = None
        found = self._taken()
        if found is not None or self._is_old:
            self._again_at = 0.0
        return found

    def forget(self) -> None:
        """The control topic is another one: what is under way may have gone to the one before."""
        self._is_old = True

    def _taken(self) -> PublishedDecision | None:
        found, self._outcome = self._outcome, None
        return None if self._is_old else found

    def _run(self, decision: GroupDecision) -> None:
        try:
            self._outcome = PublishedDecision(decision, control_topic.publish_decision(self._settings, decision))
            logger.info("Kafka has what was decided on %r, which stood in Redis alone.", decision.key)
        except (KafkaUnavailable, PublishFailed) as error:
            level = logging.DEBUG if self._refused == decision.change.id else logging.WARNING
            self._refused = decision.change.id
            logger.log(level, "what was decided stands in Redis alone, and is published later: %s", error)


def _log_halt(topic: str, halt: GroupDecision) -> None:
    logger.warning(
        "topic %r is halted, %s, by %s: %s. Nothing of it is read or run until `bridge resume %s`.",
        topic,
        # A bridge that starts says it again, long after it was decided.
        format_since(halt.since, time.time()),
        halt.by,
        halt.why.rstrip("."),
        topic,
    )


def _has_decision(published: PublishedDecision | None, decision: GroupDecision) -> bool:
    """Whether Kafka has a decision, or has or gets one that counts over it."""
    if published is None:
        return False
    same = published.decision.change.id == decision.change.id
    return (same and published.offset != UNPUBLISHED) or published.decision.counts_over(decision)
