"""The state of Kafka as a bridge sees it: whether it answers, the topics, and the ends of partitions."""

import logging
import time
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from celery import Celery

from bridge.bridge_metrics import BridgeMetrics
from bridge.dispatch.suspended_handlers import NONE_HALTED, HaltedHandlers
from bridge.errors import KafkaUnavailable
from bridge.formats.delivery_identity import Place
from bridge.formats.group_decision import PolicyData
from bridge.handler_routes import Routes, changed_handlers
from bridge.kafka.clients import KafkaError, TopicPartition, explain_error
from bridge.kafka.managed_topic import list_needed_topics
from bridge.kafka.partition_offsets import END
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.ledger import KnownLog
from bridge.partitions.assignment import Assignment
from bridge.settings import Settings

logger = logging.getLogger(__name__)

#: Seconds between two updates of the lag while partitions start.
SHOW_EVERY: Final = 1.0
#: Seconds for which the same error of librdkafka is not logged again.
LOGGED_FOR: Final = 60.0


class KafkaState:
    """The state of Kafka that a running bridge knows, besides records.

    Attributes:
        down: why Kafka does not respond, a sentence; `None` while it answers. Logged when it changes.
        ends: the last known end offset of each partition.
        ripe: the last known offset up to which records of each retry partition are due.
        parked: unsettled records in each source's retry topics, in the partitions of this bridge.
        dying: by source, how many dead letters came within the last minute, as last known.
    """

    def __init__(self, catalog: TopicCatalog, metrics: BridgeMetrics) -> None:
        self._catalog, self._metrics = catalog, metrics
        self.down: str | None = None
        self._unshown, self._shown_at = False, float("-inf")
        self.ends: dict[Place, int] = {}
        self.ripe: dict[Place, int] = {}
        self.parked: dict[str, int] = {}
        self.dying: dict[str, int] = {}
        self._due, self._letters = catalog.asking(), catalog.asking()
        self._minutes: dict[str, MinuteGrowth] = {}
        self._logged: dict[str, float] = {}

    def note_answer(self) -> None:
        """Note that Kafka has answered."""
        if self.down:
            logger.info("Kafka answers again.")
        self.down = None

    def note_outage(self, why: str) -> None:
        """Note that Kafka has not answered."""
        if not self.down:
            logger.error("%s The bridge waits for it.", why)
        self.down = why

    def prepare_topics(self) -> bool:
        """Find the source topics, create missing topics of the group; return whether Kafka answered."""
        try:
            self._catalog.prepare()
        except KafkaUnavailable as error:
            self.note_outage(str(error))
            return False
        self.note_answer()
        return True

    def ask_ends(self, places: Iterable[Place], quiet: Mapping[Place, int] = MappingProxyType({})) -> None:
        """Search missing topics, and ask for the ends of partitions without waiting for the answer.

        Parameters:
            quiet: those whose ends are known. If there are no others, one of them is asked about all the same: its
                answer tells that Kafka answers.
        """
        if not self._catalog.complete or self._catalog.missing:
            self.prepare_topics()
        self._catalog.ask_topics()
        known = list(places)
        self.ends |= quiet
        asked = [place for place in known if place not in quiet] or known[:1]
        self._catalog.ask_ends(TopicPartition(*place) for place in asked)
        topics = {topic for topic, _ in known}
        self._catalog.ask_ids(topics)
        now = time.time()
        belong = {topic: self._catalog.belonging(topic) for topic in topics}
        delays = {topic: each.delay for topic, each in belong.items() if each is not None and each.delay}
        self._due.ask_offsets({place: now - delays[place[0]] for place in asked if place[0] in delays})

    def ask_letters(self) -> None:
        """Ask for the number of dead letters, without waiting for the answer."""
        self._letters.ask_offsets({place: END for places in self._catalog.letters.values() for place in places})

    def find_recreated(self, logs: Mapping[Place, KnownLog]) -> list[Place]:
        """Return the partitions whose topic was recreated: it has another id than their log.

        Kafka's client goes on in the new topic at the old position, without a rebalance.
        """
        if not (ids := self._catalog.new_ids()):
            return []
        return [place for place, log in logs.items() if ids.get(place[0], log.topic_id) != log.topic_id]

    def note_end(self, place: Place, end: int) -> None:
        """Note the end of a partition that starts."""
        self.ends[place] = end
        # Shown for all together: a bridge with hundreds of new partitions starts them one by one.
        self._unshown = True

    def forget(self, places: Iterable[Place]) -> None:
        """Forget partitions that another bridge has now."""
        for place in places:
            self.ends.pop(place, None)
            self.ripe.pop(place, None)

    def take_answers(self, assignment: Assignment, by_halt: HaltedHandlers = NONE_HALTED) -> None:
        """Take in Kafka's answers, if there are any.

        Parameters:
            by_halt: the handlers that are halted on one topic.
        """
        listed = self._catalog.hear_topics()
        # A bridge without partitions asks for no ends: the list of topics tells whether Kafka answers.
        if not any(True for _ in assignment):
            if listed:
                self.note_answer()
            elif self._catalog.unlisted is not None:
                self.note_outage(self._catalog.unlisted)
        self._hear_ripe(assignment)
        self._hear_letters()
        if self._unshown and time.monotonic() - self._shown_at >= SHOW_EVERY:
            self.show_lag(assignment, by_halt)
        try:
            ends = self._catalog.ends()
        except KafkaUnavailable as error:
            self.note_outage(str(error))
            return
        if ends is None:
            return
        self.note_answer()
        self.ends.update({place: end for place, end in ends.items() if place in assignment})
        self.show_lag(assignment, by_halt)

    def _hear_ripe(self, assignment: Assignment) -> None:
        for place, offset in (self._due.take_answer() or {}).items():
            if place in assignment:
                # No record is younger: all are due.
                self.ripe[place] = self.ends.get(place, 0) if offset < 0 else offset

    def _hear_letters(self) -> None:
        if (told := self._letters.take_answer()) is None:
            return
        for source, places in self._catalog.letters.items():
            # A count without one of the partitions would be wrong.
            if all(place in told for place in places):
                minute = self._minutes.setdefault(source, MinuteGrowth())
                self.dying[source] = minute.measure_growth(time.monotonic(), sum(told[place] for place in places))

    def show_lag(self, assignment: Assignment, by_halt: HaltedHandlers = NONE_HALTED) -> None:
        """Show the consumer lag; of a partition without a commit, all that Kafka has.

        Parameters:
            by_halt: the handlers that are halted on one topic: their records wait for `bridge resume`, and are not
                late.
        """
        self._unshown, self._shown_at = False, time.monotonic()
        parked: dict[tuple[str, str], int] = {}
        by_source: dict[str, int] = {}
        belong = {topic: self._catalog.belonging(topic) for topic in {topic for topic, _ in assignment.low}}
        for place, low in assignment.low.items():
            if place in self.ends:
                behind = max(0, self.ends[place] - max(low, assignment.committed.get(place, low)))
                if (belongs := belong[place[0]]) is not None:
                    labels = (belongs.source, place[0])
                    parked[labels] = parked.get(labels, 0) + behind
                    # Replayed records are no reason to pause.
                    if belongs.kind == "retry":
                        by_source[belongs.source] = by_source.get(belongs.source, 0) + behind
                else:
                    # Records that wait until they are due are no lag: they are shown as parked.
                    self._metrics.show_lag(place, behind)
        self.parked = by_source
        self._metrics.show_parked(parked)
        late = dict.fromkeys(((partition.source, partition.topic) for partition in assignment.parked), 0.0)
        for partition in assignment.busy_parked:
            labels = (partition.source, partition.topic)
            late[labels] = max(late[labels], partition.measure_late(by_halt.find_halted(partition.source)))
        self._metrics.show_parked_late(late)

    def note_error(self, error: KafkaError) -> bool:
        """Take in an error of librdkafka, which recovers by itself from all but fatal ones.

        Returns:
            whether Kafka should be asked at once.
        """
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.note_outage(f"Kafka does not answer: {explain_error(error)}.")
            return True
        if error.code() != KafkaError._TRANSPORT:
            self._log_once(explain_error(error))
        return False

    def _log_once(self, text: str) -> None:
        """Log an error, unless it was logged within a minute: that of a deleted topic comes at each try to read it."""
        now = time.monotonic()
        self._logged = {earlier: at for earlier, at in self._logged.items() if now - at < LOGGED_FOR}
        if text not in self._logged:
            logger.warning("Kafka: %s", text)
            self._logged[text] = now


#: Seconds over which growth is counted.
MINUTE: Final = 60.0


class MinuteGrowth:
    """The growth of an increasing number within the last minute."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, int]] = []

    def measure_growth(self, now: float, total: int) -> int:
        """Take in the number; return by how much it has grown. A smaller number starts anew."""
        if self._seen and total < self._seen[-1][1]:
            self._seen.clear()
        self._seen.append((now, total))
        # The last one that is a minute old stays: growth counts from it.
        while len(self._seen) > 1 and self._seen[1][0] <= now - MINUTE:
            del self._seen[0]
        return total - self._seen[0][1]


class PolicyTopics:
    """The topics that changed policies need, created by the bridge if whoever changed the policy could not."""

    def __init__(self, app: Celery, settings: Settings, routes: Routes, catalog: TopicCatalog) -> None:
        self._app, self._settings, self._routes, self._catalog = app, settings, routes, catalog
        self._known: Mapping[str, PolicyData] = {}

    def need_topics(self, policies: Mapping[str, PolicyData]) -> None:
        """Have the catalog search the topics that these policies need, and create them if it may.

        Parameters:
            policies: the changed policy of each handler.
        """
        if policies == self._known:
            return
        self._known = policies
        changed = changed_handlers(self._app, self._routes, policies)
        self._catalog.need(list_needed_topics(self._settings, Routes({handler.name: handler for handler in changed})))
