"""The seeks of the consumer: where a partition begins, and when it is read again from an earlier offset.

The start is found in the loop, a step at a time, for each partition apart, and until then the partition is paused: a
rebalance must not wait for a long ledger, a partition without a leader, or a Redis that is down.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from bridge.consumer.log_changes import LogChangeDetector
from bridge.consumer.log_identity import CommitEvidence, LogDecision, SuspectedLog
from bridge.consumer.start_offset import CommittedOffset, LogRange, StartOffsetFinder
from bridge.errors import KafkaUnavailable
from bridge.formats.delivery_identity import Place
from bridge.kafka.clients import Consumer, KafkaException, TopicPartition
from bridge.kafka.partition_offsets import committed_offset, noted_epoch, noted_log
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.ledger import KnownLog
from bridge.partitions.assignment import Assignment
from bridge.partitions.partition import Partition

logger = logging.getLogger(__name__)

#: Seconds that Kafka may take to say what is committed, and until it is asked again.
ANSWER_WITHIN: Final = 2.0
AGAIN_AFTER: Final = 1.0
#: Seconds for which an answer about a log is waited for, whatever Kafka's client has made of the question.
GIVEN_UP_AFTER: Final = 15.0
#: Seconds after which it is said that it is not known, and between two times.
SAID_AFTER: Final = 3.0
SAID_EVERY: Final = 60.0
#: Seconds of one turn of the loop for all looks at the ledger.
LOOK_WITHIN: Final = 0.05


@dataclass
class _StartingPartition:
    """What is known so far of a partition that has not begun."""

    since: float = 0.0
    ask_at: float = 0.0
    committed: CommittedOffset | None = None
    ends: "tuple[Future[Any], Future[Any]] | None" = None
    asked_at: float = 0.0
    log: LogRange | None = None
    met: LogDecision | None = None
    look: Iterator[int | None] | None = None
    start: int | None = None
    first: int = 0
    #: The log that the last answers pointed to, if it is not the one that was read before.
    suspected: KnownLog | None = None
    #: Since when it is known that something is not known, what was missing last, and when that was said.
    waits_since: float | None = None
    why: str = "it was not asked for"
    said_at: float | None = None


class PartitionStarts:
    """The partitions that are assigned and have not begun."""

    def __init__(
        self,
        assignment: Assignment,
        catalog: TopicCatalog,
        logs: LogChangeDetector,
        starts: StartOffsetFinder,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._assignment, self._catalog, self._logs = assignment, catalog, logs
        self._starts, self._clock = starts, clock
        self._open: dict[Place, _StartingPartition] = {}

    def __contains__(self, place: Place) -> bool:
        return place in self._open

    def __iter__(self) -> Iterator[Place]:
        return iter(self._open)

    @property
    def unasked(self) -> bool:
        """Whether Kafka has yet to say something of one of them for the first time."""
        return any(each.log is None and each.waits_since is None for each in self._open.values())

    def add(self, places: Iterable[Place]) -> None:
        """These are to begin, or to begin anew: nothing that was known of them counts."""
        self._starts.anew()
        for place in places:
            self._assignment.open(place)
            self._open[place] = _StartingPartition(since=self._clock())

    def forget(self, places: Iterable[Place]) -> None:
        """These partitions are another bridge's now."""
        for place in places:
            self._open.pop(place, None)

    def advance(self, consumer: Consumer) -> Iterator[tuple[Place, int]]:
        """Ask what is not known, take in what has been answered, look on for some milliseconds, begin what can.

        Yields:
            each that has begun, and one more than the last offset that Kafka has there.

        Raises:
            LedgerUnavailable: those that need it have not begun; the next call goes on with them.
        """
        self._ask_committed(consumer)
        self._say_why()
        until = self._clock() + LOOK_WITHIN
        for place, each in list(self._open.items()):
            if each.committed is not None and each.log is None:
                self._hear_log(place, each)
            if each.log is not None and self._begins(consumer, place, each):
                yield place, each.log.high
            if self._clock() > until:
                # So that another is first the next time.
                if place in self._open:
                    self._open[place] = self._open.pop(place)
                return

    def _ask_committed(self, consumer: Consumer) -> None:
        """One question for all; Kafka's client waits for the answer, so that silence is not asked again at once."""
        now = self._clock()
        asked = [place for place, each in self._open.items() if each.committed is None and now >= each.ask_at]
        if not asked:
            return
        # Anew: a topic that was deleted and made again has another id, and a clean page in the ledger.
        untold = self._catalog.identify({topic for topic, _ in asked})
        for place in asked:
            if place[0] in untold:
                self._later(place, untold[place[0]])
        asked = [place for place in asked if place[0] not in untold]
        if not asked:
            return
        try:
            known = consumer.committed([TopicPartition(*place) for place in asked], timeout=ANSWER_WITHIN)
        except KafkaException as error:
            for place in asked:
                self._later(place, str(error))
            return
        for partition in known:
            place = (partition.topic, partition.partition)
            if partition.error is not None:
                self._later(place, partition.error.str())
                continue
            try:
                offset = committed_offset(partition)
            except KafkaUnavailable as error:
                self._later(place, str(error))
                continue
            epoch: Any = partition.leader_epoch
            said = CommitEvidence(offset, noted_log(partition.metadata), -1 if epoch is None else epoch)
            self._open[place].committed = CommittedOffset(offset, noted_epoch(partition.metadata), said)

    def _hear_log(self, place: Place, each: _StartingPartition) -> None:
        """Each is asked for by itself: one without a leader holds up no other."""
        now = self._clock()
        if each.ends is None:
            if now >= each.ask_at:
                each.ends, each.asked_at = self._catalog.ask_log(*place), now
            return
        if not all(future.done() for future in each.ends):
            each.why = "Kafka has not said where the partition begins and ends"
            if now - each.asked_at > GIVEN_UP_AFTER:
                each.ends = None
                self._later(place, f"{each.why} for {GIVEN_UP_AFTER:g} s; it is asked again")
            return
        ends, each.ends = each.ends, None
        try:
            each.log = LogRange(*(self._catalog.told(future) for future in ends))
        except KafkaUnavailable as error:
            self._later(place, str(error))

    def _later(self, place: Place, why: str) -> None:
        each = self._open[place]
        now = self._clock()
        each.ask_at = now + AGAIN_AFTER
        if each.waits_since is None:
            each.waits_since = now
        each.why = why
        # A topic that was made a moment ago has no leader yet.
        if each.said_at is None and now - each.waits_since >= SAID_AFTER:
            self._say(place, each)

    def _say_why(self) -> None:
        """Whatever it is that a partition waits for, who reads the log sees within a minute that it does."""
        now = self._clock()
        for place, each in self._open.items():
            if now - (each.since if each.said_at is None else each.said_at) >= SAID_EVERY:
                self._say(place, each)

    def _say(self, place: Place, each: _StartingPartition) -> None:
        each.said_at = now = self._clock()
        why = each.why.rstrip(".")
        logger.warning("%s-%d: where to begin is not known yet, for %.0f s: %s.", *place, now - each.since, why)

    def _begins(self, consumer: Consumer, place: Place, each: _StartingPartition) -> bool:
        if each.start is None:
            self._look(place, each)
        return each.start is not None and self._begin(consumer, place, each)

    def _look(self, place: Place, each: _StartingPartition) -> None:
        assert each.committed is not None
        assert each.log is not None
        if each.look is None:
            said = each.committed.said
            topic_id = self._catalog.id_of(place[0])
            found = self._logs.meet(place, topic_id, said, each.log.low, each.log.high, each.suspected)
            if isinstance(found, SuspectedLog):
                self._ask_all_again(place, each, found)
                return
            each.met = found
            # A commit on another log says nothing of this one.
            committed = (
                each.committed if each.met.offset == said.offset else CommittedOffset(each.met.offset, None, said)
            )
            each.first = self._starts.first(place, committed.offset, each.log)
            each.look = self._starts.looks(place, committed, each.log, each.first)
            each.why = f"the ledger is gone through from offset {each.first} on"
        try:
            each.start = next(each.look)
        except BaseException:
            each.look = None
            raise

    def _ask_all_again(self, place: Place, each: _StartingPartition, found: SuspectedLog) -> None:
        """Ask for the topic's id, the commit and the ends once more: a changed log needs a second, later proof."""
        each.committed = each.log = each.ends = None
        each.suspected = found.log
        self._later(place, f"the log {found.what} by one answer of Kafka's (a second one decides)")

    def _begin(self, consumer: Consumer, place: Place, each: _StartingPartition) -> bool:
        """Seek there and read; a consumer that has just been given a partition may not be able to yet."""
        assert each.start is not None
        assert each.log is not None
        assert each.met is not None
        # Where the client knows the epoch, it sees that the log still has what was read, or goes back to where it ends.
        kept = each.met.kept and each.met.offset is not None and each.start >= each.met.offset
        # What was skipped because it is settled was read too, whoever committed.
        epoch = each.met.epoch if kept or each.met.back or each.start > each.first else -1
        try:
            consumer.seek(TopicPartition(*place, each.start, leader_epoch=epoch))
        except KafkaException as error:
            each.why = f"Kafka's client cannot go to offset {each.start}: {error.args[0].str()}"
            logger.debug("%s-%d: %s", *place, each.why)
            return False
        del self._open[place]
        self._assignment.begin(place, each.start, each.log.low, each.met.offset if each.met.kept else None)
        self._assignment.wrote(place, -1, epoch)
        return True


class PartitionRereads:
    """Asked for when the ledger has lost fates, or what was stuck is open again."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._from: dict[Place, int] = {}

    def __contains__(self, place: Place) -> bool:
        return place in self._from

    def __iter__(self) -> Iterator[Place]:
        return iter(self._from)

    def ask(self, partition: Partition, offset: int) -> None:
        """Not above what is in flight: begun anew, a partition knows nothing of what is below."""
        place = partition.place
        self._from[place] = min(offset, partition.offsets.window.start, self._from.get(place, offset))

    def forget(self, places: Iterable[Place]) -> None:
        """These partitions are another bridge's now."""
        for place in places:
            self._from.pop(place, None)

    def carry_out(self, consumer: Consumer) -> Iterator[Place]:
        """Seek, and begin each partition anew; what is not possible yet is done with the next call.

        Yields:
            each partition whose records in hand will come again.

        Raises:
            KafkaUnavailable, LedgerUnavailable: this one and the rest are done with the next call.
        """
        for place, offset in list(self._from.items()):
            if place in self._assignment:
                try:
                    consumer.seek(TopicPartition(*place, offset))
                except KafkaException as error:
                    logger.debug("%s-%d cannot be read again yet: %s", *place, error.args[0].str())
                    continue
                yield place
                self._assignment.restart(place, offset)
            del self._from[place]


class RetryRewinds:
    """Until the consumer is back at the first record that is not held, what comes of that partition is left out."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment

    def carry_out(self, consumer: Consumer, elsewhere: Collection[Place]) -> None:
        """Seek; what is not possible yet is done with the next call.

        Parameters:
            elsewhere: partitions that are about to be read from another offset.
        """
        for partition in self._assignment.parked:
            if partition.rewind is None or partition.place in elsewhere:
                continue
            epoch = self._assignment.epoch_below(partition.place, partition.rewind)
            try:
                consumer.seek(TopicPartition(*partition.place, partition.rewind, leader_epoch=epoch))
            except KafkaException as error:
                logger.debug("%s-%d cannot be read again yet: %s", *partition.place, error.args[0].str())
                continue
            partition.rewind = None
