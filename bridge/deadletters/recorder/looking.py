"""Kafka and the database are asked where partitions begin, before anything of them is recorded."""

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import wait
from typing import Final, NamedTuple

from bridge.deadletters.recorder.announcing import Presence
from bridge.deadletters.recorder.beginning import Beginning, back, begin
from bridge.deadletters.store import positions
from bridge.deadletters.store.cluster import check_cluster, identity_of
from bridge.deadletters.store.database import Database
from bridge.deadletters.store.positions import Log
from bridge.errors import KafkaUnavailable
from bridge.records.place import Place
from bridge.settings import Settings
from bridge.topics.catalog import Catalog

logger = logging.getLogger(__name__)

#: Seconds for Kafka to say where partitions begin and end.
ANSWER_WITHIN: Final = 10.0


class Found(NamedTuple):
    """What was found out.

    Attributes:
        topics: of which letters of the group were ever recorded, whether a handler has their source still or not.
        beginnings: where the partitions begin of which Kafka has told.
        untold: why of others it has not, a sentence each.
    """

    topics: list[str]
    beginnings: list[Beginning]
    untold: list[str]


class Looking:
    """Asks; in a thread of its own, for it may take long.

    Parameters:
        everybodys: topics of which all letters are recorded, whosever they are.
        presence: of this recorder among those of its group.
    """

    def __init__(
        self, settings: Settings, database: Database, everybodys: Collection[str], presence: Presence | None = None
    ) -> None:
        self._presence = presence or Presence(settings)
        self._group, self._database, self._everybodys = settings.group, database, frozenset(everybodys)
        self._catalog = Catalog(settings, ())
        self._prepared = False
        self._suspected: set[Log] = set()

    def look(self, places: Collection[Place], went_back: Collection[Place]) -> Found:
        """Find out where these begin; the database has noted that, when this returns.

        That a log lost something of what was not recorded yet, or is another one, is decided by two answers of Kafka's.

        Raises:
            DeskUnavailable, KafkaUnavailable: nothing is known of any.
            DeskOfAnotherKafka, DeskDatabaseNewer, RecordedElsewhere: this database is not for this recorder.
            RecordedByAnother: another recorder was in some of them a moment ago; to be asked again.
        """
        self._prepare()
        untold = self._catalog.identify({topic for topic, _ in places})
        logs = [self._log(place) for place in places if place[0] not in untold]
        extents, unknown = self._extents(logs)
        with self._database.writing() as connection:
            known = positions.known(connection, {self._group, ""}, {log.topic for log in logs})
            found = [
                back(log, known[log], low) if (log.topic, log.partition) in went_back and log in known
                else begin(log, known, low, high)
                for log, (low, high) in extents.items()
            ]  # fmt: skip
            found, doubted = self._split_off_suspected(found, went_back)
            positions.move(connection, [each.step for each in found if each.step], time.time_ns() // 1_000_000)
            topics = positions.topics(connection, self._group)
        for each in found:
            if each.words:
                logger.error("%s", each.words)
        return Found(topics, found, [*untold.values(), *unknown, *doubted])

    def answers(self) -> bool:
        """Whether Kafka has answered since it was asked the last time; it is asked again."""
        heard = self._catalog.hear_topics()
        self._catalog.ask_topics()
        return heard

    def made_anew(self, logs: Iterable[Log]) -> list[Place]:
        """Those of which the topic is another now: deleted, and made again. Asked for by one call, told by a later."""
        known = list(logs)
        ids = self._catalog.new_ids()
        self._catalog.ask_ids(log.topic for log in known)
        return [(log.topic, log.partition) for log in known if ids.get(log.topic, log.topic_id) != log.topic_id]

    def recorded(self, ends: Mapping[Place, int]) -> set[Place]:
        """Those that the database has up to these ends, whoever recorded them."""
        self._prepare()
        logs = {self._log(place): end for place, end in ends.items()}
        with self._database.reading() as connection:
            known = positions.known(connection, {self._group, ""}, {log.topic for log in logs})
        return {(log.topic, log.partition) for log, end in logs.items() if log in known and known[log].next >= end}

    def _split_off_suspected(
        self, found: Sequence[Beginning], went_back: Collection[Place]
    ) -> tuple[list[Beginning], list[str]]:
        """Return what is proven, and of what only one answer of Kafka's says, a sentence each: it is asked again."""
        proven, doubted = [], []
        for each in found:
            # What the client has read from the log proves by itself that it went back.
            if each.words and (each.log.topic, each.log.partition) not in went_back and each.log not in self._suspected:
                self._suspected.add(each.log)
                doubted.append(f"{each.words} Kafka is asked again before that is believed.")
            else:
                self._suspected.discard(each.log)
                proven.append(each)
        return proven, doubted

    def _prepare(self) -> None:
        """The tables are made where they are not, and the database is of this Kafka."""
        if self._prepared:
            return
        self._catalog.prepare()
        self._database.migrate()
        check_cluster(self._database, self._catalog.cluster)
        self._presence.enter(identity_of(self._database), self._database.name)
        self._prepared = True

    def _log(self, place: Place) -> Log:
        topic, partition = place
        return Log("" if topic in self._everybodys else self._group, topic, self._catalog.id_of(topic), partition)

    def _extents(self, logs: Iterable[Log]) -> tuple[dict[Log, tuple[int, int]], list[str]]:
        """Where each begins and ends, and of which that is not known, a sentence each."""
        asked = {log: self._catalog.ask_log(log.topic, log.partition) for log in logs}
        wait([future for futures in asked.values() for future in futures], ANSWER_WITHIN)
        found, unknown = {}, []
        for log, (first, end) in asked.items():
            if not (first.done() and end.done()):
                unknown.append(f"{log}: Kafka has not said where the partition begins and ends.")
                continue
            try:
                found[log] = (self._catalog.told(first), self._catalog.told(end))
            except KafkaUnavailable as error:
                unknown.append(f"{log}: {error}")
        return found, unknown
