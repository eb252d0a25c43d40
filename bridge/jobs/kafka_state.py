"""Kafka as a bridge sees it: whether it answers, which topics there are, and where partitions end."""

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Final

from celery import Celery

from bridge.bridge_metrics import BridgeMetrics
from bridge.errors import KafkaUnavailable
from bridge.formats.delivery_identity import Place
from bridge.formats.group_decision import PolicyData
from bridge.handler_routes import Routes, changed_handlers
from bridge.kafka.clients import KafkaError, TopicPartition
from bridge.kafka.managed_topic import list_needed_topics
from bridge.kafka.partition_offsets import END
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.ledger import KnownLog
from bridge.partitions.assignment import Assignment
from bridge.settings import Settings

logger = logging.getLogger(__name__)

#: Seconds between two times at which the lag is shown while partitions begin.
SHOW_EVERY: Final = 1.0


class KafkaState:
    """What a running bridge knows of Kafka besides its records.

    Attributes:
        down: why Kafka cannot be reached, a sentence; `None` while it answers. Logged when it changes.
        ends: the end offset of each partition, as last heard.
        ripe: of partitions of retry topics, up to which offset records are due, as last heard.
        parked: records in each source's retry topics that are not settled, in the partitions that this bridge has.
        dying: of each source, how many dead letters came within the last minute, as last heard.
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

    def answers(self) -> None:
        """Kafka has answered something."""
        if self.down:
            logger.info("Kafka answers again.")
        self.down = None

    def silent(self, why: str) -> None:
        """Kafka has not answered."""
        if not self.down:
            logger.error("%s The bridge waits for it.", why)
        self.down = why

    def look_at_topics(self) -> bool:
        """Find the source topics, make those of ours that are missing; return whether Kafka answered."""
        try:
            self._catalog.prepare()
        except KafkaUnavailable as error:
            self.silent(str(error))
            return False
        self.answers()
        return True

    def ask(self, places: Iterable[Place]) -> None:
        """Look for topics that are missing, and ask where partitions end, without waiting for the answer."""
        if not self._catalog.complete or self._catalog.missing:
            self.look_at_topics()
        self._catalog.ask_topics()
        known = list(places)
        self._catalog.ask_ends(TopicPartition(*place) for place in known)
        self._catalog.ask_ids(topic for topic, _ in known)
        now = time.time()
        belong = {place: self._catalog.belonging(place[0]) for place in known}
        self._due.ask({place: now - each.delay for place, each in belong.items() if each is not None and each.delay})

    def ask_letters(self) -> None:
        """Ask how many dead letters there are, without waiting for the answer."""
        self._letters.ask({place: END for places in self._catalog.letters.values() for place in places})

    def made_anew(self, logs: Mapping[Place, KnownLog]) -> list[Place]:
        """The partitions whose topic has another id than their log: it was deleted and made again.

        Kafka's client goes on in the new one where it was in the old, and no rebalance comes.
        """
        if not (ids := self._catalog.new_ids()):
            return []
        return [place for place, log in logs.items() if ids.get(place[0], log.topic_id) != log.topic_id]

    def began(self, place: Place, end: int) -> None:
        """A partition begins, and Kafka has said where it ends."""
        self.ends[place] = end
        # Shown for all of them together: a bridge that is given hundreds of partitions begins them one by one.
        self._unshown = True

    def forget(self, places: Iterable[Place]) -> None:
        """These partitions are another bridge's now."""
        for place in places:
            self.ends.pop(place, None)
            self.ripe.pop(place, None)

    def hear(self, assignment: Assignment) -> None:
        """Take in the answer, if it is there."""
        listed = self._catalog.hear_topics()
        # A bridge without partitions asks for no ends: the list of topics tells whether Kafka answers it.
        if not any(True for _ in assignment):
            if listed:
                self.answers()
            elif self._catalog.unlisted is not None:
                self.silent(self._catalog.unlisted)
        self._hear_ripe(assignment)
        self._hear_letters()
        if self._unshown and time.monotonic() - self._shown_at >= SHOW_EVERY:
            self.show(assignment)
        try:
            ends = self._catalog.ends()
        except KafkaUnavailable as error:
            self.silent(str(error))
            return
        if ends is None:
            return
        self.answers()
        self.ends.update({place: end for place, end in ends.items() if place in assignment})
        self.show(assignment)

    def _hear_ripe(self, assignment: Assignment) -> None:
        for place, offset in (self._due.told() or {}).items():
            if place in assignment:
                # None is younger: all of them are due.
                self.ripe[place] = self.ends.get(place, 0) if offset < 0 else offset

    def _hear_letters(self) -> None:
        if (told := self._letters.told()) is None:
            return
        for source, places in self._catalog.letters.items():
            # A count without one of the partitions would look like another.
            if all(place in told for place in places):
                minute = self._minutes.setdefault(source, MinuteGrowth())
                self.dying[source] = minute.see(time.monotonic(), sum(told[place] for place in places))

    def show(self, assignment: Assignment) -> None:
        """Show how far the committed offsets are behind; where nothing is committed, all that Kafka has is."""
        self._unshown, self._shown_at = False, time.monotonic()
        parked: dict[tuple[str, str], int] = {}
        by_source: dict[str, int] = {}
        for place, low in assignment.low.items():
            if place in self.ends:
                behind = max(0, self.ends[place] - max(low, assignment.committed.get(place, low)))
                if (belongs := self._catalog.belonging(place[0])) is not None:
                    labels = (belongs.source, place[0])
                    parked[labels] = parked.get(labels, 0) + behind
                    # What a person sent back is no reason to pause for.
                    if belongs.kind == "retry":
                        by_source[belongs.source] = by_source.get(belongs.source, 0) + behind
                else:
                    # What waits for its time is not behind: it is shown as what is parked.
                    self._metrics.lag.labels(*place).set(behind)
        self.parked = by_source
        self._metrics.show_parked(parked)
        late: dict[tuple[str, str], float] = {}
        for partition in assignment.parked:
            labels = (partition.source, partition.topic)
            late[labels] = max(late.get(labels, 0.0), partition.late)
        self._metrics.show_parked_late(late)

    def failed(self, error: KafkaError) -> bool:
        """Take in what librdkafka reports, which goes on by itself after all but fatal errors.

        Returns:
            whether it is worth looking at once.
        """
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.silent(f"Kafka does not answer: {error.str()}.")
            return True
        if error.code() != KafkaError._TRANSPORT:
            logger.warning("Kafka: %s", error.str())
        return False


#: Seconds over which it is counted.
MINUTE: Final = 60.0


class MinuteGrowth:
    """How much a number that only grows has grown within the last minute."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, int]] = []

    def see(self, now: float, total: int) -> int:
        """Take in what it is now; return by how much it has grown. One that is less than before begins anew."""
        if self._seen and total < self._seen[-1][1]:
            self._seen.clear()
        self._seen.append((now, total))
        # The last that is a minute old stays: since then it is counted.
        while len(self._seen) > 1 and self._seen[1][0] <= now - MINUTE:
            del self._seen[0]
        return total - self._seen[0][1]


class PolicyTopics:
    """Whoever made a change may have found Kafka away, or was not allowed to make topics; a bridge begins later."""

    def __init__(self, app: Celery, settings: Settings, routes: Routes, catalog: TopicCatalog) -> None:
        self._app, self._settings, self._routes, self._catalog = app, settings, routes, catalog
        self._known: Mapping[str, PolicyData] = {}

    def see(self, policies: Mapping[str, PolicyData]) -> None:
        """Have the catalog look for what these need, and make it where it may.

        Parameters:
            policies: by handler, what is changed of its policy.
        """
        if policies == self._known:
            return
        self._known = policies
        changed = changed_handlers(self._app, self._routes, policies)
        self._catalog.need(list_needed_topics(self._settings, Routes({handler.name: handler for handler in changed})))
