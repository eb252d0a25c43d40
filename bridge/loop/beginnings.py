"""Where reading a partition begins: found out in the loop, a step at a time, for each partition apart.

A rebalance must not wait for it: what has been settled may be long, a partition may have no leader, the ledger may
be away. Until it is known the partition is paused.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from bridge.errors import KafkaUnavailable
from bridge.kafka import Consumer, KafkaException, TopicPartition
from bridge.ledger import KnownLog
from bridge.loop.log_check import Logs
from bridge.loop.log_identity import Met, Said, Suspected
from bridge.loop.starts import Committed, Log, Starts
from bridge.partitions.assignment import Assignment
from bridge.records.place import Place
from bridge.topics.catalog import Catalog
from bridge.topics.extents import epoch_of, log_of
from bridge.topics.offset_answers import committed_offset

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
TURN: Final = 0.05


@dataclass
class _Open:
    """What is known so far of a partition that has not begun."""

    since: float = 0.0
    ask_at: float = 0.0
    committed: Committed | None = None
    ends: "tuple[Future[Any], Future[Any]] | None" = None
    asked_at: float = 0.0
    log: Log | None = None
    met: Met | None = None
    look: Iterator[int | None] | None = None
    start: int | None = None
    first: int = 0
    #: The log that the last answers pointed to, if it is not the one that was read before.
    suspected: KnownLog | None = None
    #: Since when it is known that something is not known, what was missing last, and when that was said.
    waits_since: float | None = None
    why: str = "it was not asked for"
    said_at: float | None = None


class Beginnings:
    """The partitions that are assigned and have not begun."""

    def __init__(
        self,
        assignment: Assignment,
        catalog: Catalog,
        logs: Logs,
        starts: Starts,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._assignment, self._catalog, self._logs = assignment, catalog, logs
        self._starts, self._clock = starts, clock
        self._open: dict[Place, _Open] = {}

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
            self._open[place] = _Open(since=self._clock())

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
        until = self._clock() + TURN
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
            said = Said(offset, log_of(partition.metadata), -1 if epoch is None else epoch)
            self._open[place].committed = Committed(offset, epoch_of(partition.metadata), said)

    def _hear_log(self, place: Place, each: _Open) -> None:
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
            each.log = Log(*(self._catalog.told(future) for future in ends))
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

    def _say(self, place: Place, each: _Open) -> None:
        each.said_at = now = self._clock()
        why = each.why.rstrip(".")
        logger.warning("%s-%d: where to begin is not known yet, for %.0f s: %s.", *place, now - each.since, why)

    def _begins(self, consumer: Consumer, place: Place, each: _Open) -> bool:
        if each.start is None:
            self._look(place, each)
        return each.start is not None and self._begin(consumer, place, each)

    def _look(self, place: Place, each: _Open) -> None:
        assert each.committed is not None
        assert each.log is not None
        if each.look is None:
            said = each.committed.said
            topic_id = self._catalog.id_of(place[0])
            found = self._logs.meet(place, topic_id, said, each.log.low, each.log.high, each.suspected)
            if isinstance(found, Suspected):
                self._ask_all_again(place, each, found)
                return
            each.met = found
            # A commit on another log says nothing of this one.
            committed = each.committed if each.met.offset == said.offset else Committed(each.met.offset, None, said)
            each.first = self._starts.first(place, committed.offset, each.log)
            each.look = self._starts.looks(place, committed, each.log, each.first)
            each.why = f"the ledger is gone through from offset {each.first} on"
        try:
            each.start = next(each.look)
        except BaseException:
            each.look = None
            raise

    def _ask_all_again(self, place: Place, each: _Open, found: Suspected) -> None:
        """Ask for the topic's id, the commit and the ends once more: a changed log needs a second, later proof."""
        each.committed = each.log = each.ends = None
        each.suspected = found.log
        self._later(place, f"the log {found.what} by one answer of Kafka's (a second one decides)")

    def _begin(self, consumer: Consumer, place: Place, each: _Open) -> bool:
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
