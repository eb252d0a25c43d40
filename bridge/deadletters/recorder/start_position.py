"""The offset at which the recording of a partition starts, decided from the database's and Kafka's positions."""

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import wait
from typing import Final, NamedTuple

from bridge.deadletters.db import position_rows
from bridge.deadletters.db.database import Database, read_database_identity, require_same_cluster
from bridge.deadletters.db.position_rows import PositionStep, RecordedLog, RecordedPosition
from bridge.deadletters.recorder.background_duties import Outage, SideTask
from bridge.deadletters.recorder.recorder_heartbeat import RecorderMembership
from bridge.errors import (
    DeskDatabaseNewer,
    DeskOfAnotherKafka,
    DeskUnavailable,
    KafkaUnavailable,
    RecordedByAnother,
    RecordedElsewhere,
)
from bridge.formats.delivery_identity import Place
from bridge.formats.text_forms import format_count, inflect_verb
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.settings import Settings


class StartPosition(NamedTuple):
    """The start position of a partition.

    Attributes:
        step: the move of the recorded position to write first; `None`: no move.
        words: a sentence about a change of the log; "": no change.
    """

    log: RecordedLog
    at: RecordedPosition
    step: PositionStep | None
    words: str = ""


def decide_start(log: RecordedLog, known: Mapping[RecordedLog, RecordedPosition], low: int, high: int) -> StartPosition:
    """Return the start position of a log.

    Parameters:
        known: the recorded positions of this topic's logs, earlier topics of its name included.
        low, high: the first offset in Kafka, and the end offset.
    """
    reached = known.get(log)
    if reached is None:
        return _start_first(log, known, low)
    if reached.next < low:
        missed = low - reached.next
        words = (
            f"{format_count(missed, 'record')} up to offset {low - 1} {inflect_verb(missed, 'were')} dropped by Kafka "
            "before the recorder read them."
        )
        return _start_moved(log, reached, low, f"{log}: retention has passed: {words}", low - reached.next)
    if reached.next > high:
        words = (
            f"the log was truncated: it ends at offset {high}, was recorded up to {reached.next} (unclean election, "
            "or a disk that lost writes). It is read again from its begin; recorded letters are recognised."
        )
        return _start_moved(log, reached, low, f"{log}: {words}")
    return StartPosition(log, reached, None)


def decide_start_after_truncation(log: RecordedLog, reached: RecordedPosition, low: int) -> StartPosition:
    """Return the start position in a log that Kafka's client found truncated: its offsets have other records now."""
    words = (
        "the log was truncated: other records are at recorded offsets (unclean election, or a disk that lost writes). "
        "It is read again from its begin; recorded letters are recognised."
    )
    return _start_moved(log, reached, low, f"{log}: {words}")


def _start_first(log: RecordedLog, known: Mapping[RecordedLog, RecordedPosition], low: int) -> StartPosition:
    """Return the first start position of a log; earlier dropped records count as missed, though they may be no
    letters.
    """
    at = RecordedPosition(low, -1)
    same = (log.consumer_group, log.topic, log.partition)
    before = [each for each in known if (each.consumer_group, each.topic, each.partition) == same]
    said = []
    if before:
        said.append("the topic was recreated: unrecorded letters of the old one are gone.")
    if low > 0:
        said.append(
            f"{format_count(low, 'record', 'were')} dropped by Kafka (its retention has passed) before the "
            "recorder came."
        )
    return StartPosition(log, at, PositionStep(log, None, at, low), f"{log}: {' '.join(said)}" if said else "")


def _start_moved(log: RecordedLog, before: RecordedPosition, low: int, words: str, missed: int = 0) -> StartPosition:
    at = RecordedPosition(low, -1)
    return StartPosition(log, at, PositionStep(log, before.next, at, missed), words)


logger = logging.getLogger(__name__)

#: Seconds to wait for Kafka's offsets.
ANSWER_WITHIN: Final = 10.0


class StartsFound(NamedTuple):
    """The start positions that were found.

    Attributes:
        topics: topics of which the group's letters were ever recorded, with or without a handler now.
        beginnings: the start positions.
        untold: why others are unknown, a sentence each.
    """

    topics: list[str]
    beginnings: list[StartPosition]
    untold: list[str]


class StartFinder:
    """The search for start positions, which may take long and has a thread of its own.

    Parameters:
        everybodys: topics of which all groups' letters are recorded.
        presence: the membership of this recorder.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        everybodys: Collection[str],
        presence: RecorderMembership | None = None,
    ) -> None:
        self._presence = presence or RecorderMembership(settings)
        self._group, self._database, self._everybodys = settings.group, database, frozenset(everybodys)
        self._catalog = TopicCatalog(settings, ())
        self._prepared = False
        self._suspected: set[RecordedLog] = set()

    def find_starts(self, places: Collection[Place], went_back: Collection[Place]) -> StartsFound:
        """Return the start positions of partitions, after the database has noted them.

        A loss of unrecorded records, or a recreated topic, is believed only after two answers of Kafka.

        Raises:
            DeskUnavailable, KafkaUnavailable: nothing was found.
            DeskOfAnotherKafka, DeskDatabaseNewer, RecordedElsewhere: this database is not for this recorder.
            RecordedByAnother: another recorder has just moved some of them; try again.
        """
        self._prepare()
        untold = self._catalog.identify({topic for topic, _ in places})
        logs = [self._log(place) for place in places if place[0] not in untold]
        extents, unknown = self._extents(logs)
        with self._database.writing() as connection:
            known = position_rows.read_positions(connection, {self._group, ""}, {log.topic for log in logs})
            found = [
                decide_start_after_truncation(log, known[log], low) if (log.topic, log.partition) in went_back and log
                in known else decide_start(log, known, low, high)
                for log, (low, high) in extents.items()
            ]  # fmt: skip
            found, doubted = self._split_off_suspected(found, went_back)
            position_rows.move_positions(
                connection, [each.step for each in found if each.step], time.time_ns() // 1_000_000
            )
            topics = position_rows.find_recorded_topics(connection, self._group)
        for each in found:
            if each.words:
                logger.error("%s", each.words)
        return StartsFound(topics, found, [*untold.values(), *unknown, *doubted])

    def answers(self) -> bool:
        """Return whether Kafka has answered the last request, and send another."""
        heard = self._catalog.hear_topics()
        self._catalog.ask_topics()
        return heard

    def made_anew(self, logs: Collection[RecordedLog]) -> list[RecordedLog]:
        """Return the logs whose topic was recreated, by the answer to the request of an earlier call."""
        ids = self._catalog.new_ids()
        self._catalog.ask_ids(log.topic for log in logs)
        return [log for log in logs if ids.get(log.topic, log.topic_id) != log.topic_id]

    def recorded(self, ends: Mapping[Place, int]) -> set[Place]:
        """Return the partitions that the database has up to these ends, whoever recorded them."""
        self._prepare()
        logs = {self._log(place): end for place, end in ends.items()}
        with self._database.reading() as connection:
            known = position_rows.read_positions(connection, {self._group, ""}, {log.topic for log in logs})
        return {(log.topic, log.partition) for log, end in logs.items() if log in known and known[log].next >= end}

    def _split_off_suspected(
        self, found: Sequence[StartPosition], went_back: Collection[Place]
    ) -> tuple[list[StartPosition], list[str]]:
        """Return the proven start positions, and a sentence for each with only one answer of Kafka, which is asked
        again.
        """
        proven, doubted = [], []
        for each in found:
            # A truncation that the client found while reading is proven.
            if each.words and (each.log.topic, each.log.partition) not in went_back and each.log not in self._suspected:
                self._suspected.add(each.log)
                doubted.append(f"{each.words} Kafka is asked again before that is believed.")
            else:
                self._suspected.discard(each.log)
                proven.append(each)
        return proven, doubted

    def _prepare(self) -> None:
        """Create the tables if needed, and check that the database is of this Kafka."""
        if self._prepared:
            return
        self._catalog.prepare()
        self._database.migrate()
        require_same_cluster(self._database, self._catalog.cluster)
        self._presence.enter(read_database_identity(self._database), self._database.name)
        self._prepared = True

    def _log(self, place: Place) -> RecordedLog:
        topic, partition = place
        return RecordedLog(
            "" if topic in self._everybodys else self._group, topic, self._catalog.id_of(topic), partition
        )

    def _extents(self, logs: Iterable[RecordedLog]) -> tuple[dict[RecordedLog, tuple[int, int]], list[str]]:
        """Return the begin and end of each log, and a sentence for each that is unknown."""
        # One by one: Kafka's client fails a whole question because of one partition without a leader.
        asked = {}
        for log in logs:
            place = (log.topic, log.partition)
            asked[log] = self._catalog.ask_logs([place])[place]
        wait([future for futures in asked.values() for future in futures], ANSWER_WITHIN)
        found, unknown = {}, []
        for log, (first, end) in asked.items():
            if not (first.done() and end.done()):
                unknown.append(f"{log}: Kafka has not said where the partition begins and ends.")
                continue
            try:
                found[log] = (self._catalog.read_offset(first), self._catalog.read_offset(end))
            except KafkaUnavailable as error:
                unknown.append(f"{log}: {error}")
        return found, unknown


class StartSearch:
    """The search for start positions in a thread of its own; it is tried again while a server does not answer.

    Attributes:
        outage: the reason why some are unknown.
        prepared: whether the database and Kafka have answered once.
    """

    def __init__(self, finder: StartFinder) -> None:
        self.outage = Outage("where to begin is not known", "where to begin is known")
        self.prepared = False
        self._finder = finder
        self._task: SideTask[StartsFound] = SideTask("looking")

    def begin(self, places: Collection[Place], went_back: Collection[Place]) -> None:
        """Search the start positions of partitions, if no search is in flight."""
        if not self._task.idle:
            return
        if self.prepared and not places:
            # The partitions are another recorder's now: no answer will end the outage.
            self.outage.over()
        elif self.outage.may_try:
            asked, back = frozenset(places), frozenset(went_back)
            self._task.begin(lambda: self._finder.find_starts(asked, back))

    def take(self) -> StartsFound | None:
        """Return what was found since the last call; `None`: nothing yet.

        Raises:
            DeskOfAnotherKafka, DeskDatabaseNewer, RecordedElsewhere: this database is not for this recorder.
        """
        if (done := self._task.taken()) is None:
            return None
        try:
            found = done.result()
        except (DeskOfAnotherKafka, DeskDatabaseNewer, RecordedElsewhere):
            raise
        except (DeskUnavailable, KafkaUnavailable, RecordedByAnother) as error:
            self.outage.met(error)
            return None
        self.prepared = True
        if found.untold:
            self.outage.met(KafkaUnavailable(" ".join(found.untold)))
        else:
            self.outage.over()
        return found
