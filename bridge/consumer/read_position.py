"""The reading of the assigned partitions, and the seeks: to the start of one, and back to an earlier offset.

The loop finds each start step by step, and the partition is paused until then: a rebalance must not wait for a long
ledger, a partition without a leader, or a Redis that is down.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from bridge.backpressure.pause_applier import PauseApplier
from bridge.consumer.ledger_questions import LedgerQuestion, LedgerSearch
from bridge.consumer.log_changes import LogChangeDetector
from bridge.consumer.log_identity import CommitEvidence, LogDecision, SuspectedLog
from bridge.consumer.record_buffer import RecordBuffer
from bridge.consumer.start_offset import CommittedOffset, LogRange, StartOffsetFinder
from bridge.errors import KafkaUnavailable
from bridge.formats.delivery_identity import Place
from bridge.kafka.clients import Consumer, KafkaException, TopicPartition, explain_error
from bridge.kafka.partition_offsets import committed_offset, noted_commit_mode, noted_epoch, noted_log
from bridge.kafka.topic_catalog import TopicCatalog
from bridge.ledger import KnownLog
from bridge.partitions.assignment import Assignment
from bridge.partitions.partition import Partition

logger = logging.getLogger(__name__)

#: Seconds that Kafka may take to return committed offsets, and until it is asked again.
ANSWER_WITHIN: Final = 2.0
AGAIN_AFTER: Final = 1.0
#: Seconds after which an answer about a log is given up, whatever Kafka's client does with the question.
GIVEN_UP_AFTER: Final = 15.0
#: Seconds after which an unknown start is logged, and between two log lines.
LOGGED_AFTER: Final = 3.0
LOGGED_EVERY: Final = 60.0
#: Seconds of one turn of the loop for all searches of the ledger.
SEARCH_WITHIN: Final = 0.1


@dataclass
class _StartingPartition:
    """A partition whose start offset is not known yet, with the answers so far."""

    since: float = 0.0
    ask_at: float = 0.0
    committed: CommittedOffset | None = None
    ends: "tuple[Future[Any], Future[Any]] | None" = None
    asked_at: float = 0.0
    log: LogRange | None = None
    decision: LogDecision | None = None
    search: LedgerSearch[int | None] | None = None
    question: LedgerQuestion[Any] | None = None
    start: int | None = None
    first: int = 0
    #: The changed log that the last answers pointed to.
    suspected: KnownLog | None = None
    #: Since when an answer is missing, the reason, and when that was logged.
    waits_since: float | None = None
    why: str = "Kafka was not asked yet"
    logged_at: float | None = None


class PartitionStarts:
    """The assigned partitions whose start offset is not known yet.

    Attributes:
        more: whether the last call of `advance` had no time for all of them, so that the next one goes on at once.
    """

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
        self.more = False

    def __contains__(self, place: Place) -> bool:
        return place in self._open

    def __iter__(self) -> Iterator[Place]:
        return iter(self._open)

    @property
    def unasked(self) -> bool:
        """Return whether Kafka has not answered yet about one of them."""
        return any(starting.log is None and starting.waits_since is None for starting in self._open.values())

    def find_unreadable(self) -> dict[Place, str]:
        """Return the partitions of which Kafka has not told for some seconds where they begin and end, and why."""
        before = self._clock() - LOGGED_AFTER
        return {
            place: starting.why.rstrip(".")
            for place, starting in self._open.items()
            if starting.log is None and starting.waits_since is not None and starting.waits_since <= before
        }

    def add(self, places: Iterable[Place]) -> None:
        """Add partitions that start, or start anew: nothing that was known of them counts."""
        self._starts.forget_accounts()
        for place in places:
            self._assignment.add_place(place)
            self._open[place] = _StartingPartition(since=self._clock())

    def forget(self, places: Iterable[Place]) -> None:
        """Forget partitions that another bridge has now."""
        for place in places:
            self._open.pop(place, None)

    def advance(self, consumer: Consumer) -> Iterator[tuple[Place, int]]:
        """Ask for what is unknown, take in answers, search the ledger for some milliseconds, start partitions that can.

        Yields:
            each partition that has started, with its end offset.

        Raises:
            LedgerUnavailable: partitions that need it have not started; the next call goes on with them.
        """
        self.more = False
        self._ask_committed(consumer)
        self._log_waiting()
        # Kafka is asked about all before the ledger is searched for the first: a bridge is ready once Kafka answered.
        unknown = {
            place: starting
            for place, starting in self._open.items()
            if starting.committed is not None and starting.log is None
        }
        self._ask_logs(unknown)
        for place, starting in unknown.items():
            self._hear_log(place, starting)
        until = self._clock() + SEARCH_WITHIN
        unsought: set[Place] = set()
        goes_on = True
        while goes_on:
            goes_on = self._search_on(until)
            for place, starting in list(self._open.items()):
                if starting.start is None or starting.log is None or place in unsought:
                    continue
                if self._begin(consumer, place, starting):
                    yield place, starting.log.high
                else:
                    unsought.add(place)
                if self._clock() > until:
                    break
            if self._clock() > until:
                self.more = bool(self._open)
                return

    def _ask_committed(self, consumer: Consumer) -> None:
        """Ask for the committed offsets of all in one request; after no answer, wait before the next."""
        now = self._clock()
        asked = [
            place for place, starting in self._open.items() if starting.committed is None and now >= starting.ask_at
        ]
        if not asked:
            return
        # Ask for the ids anew: a recreated topic has another, with new accounts in the ledger.
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
                self._later(place, explain_error(partition.error))
                continue
            try:
                offset = committed_offset(partition)
            except KafkaUnavailable as error:
                self._later(place, str(error))
                continue
            epoch: Any = partition.leader_epoch
            evidence = CommitEvidence(offset, noted_log(partition.metadata), -1 if epoch is None else epoch)
            self._open[place].committed = CommittedOffset(
                offset, noted_epoch(partition.metadata), evidence, noted_commit_mode(partition.metadata)
            )

    def _ask_logs(self, unknown: Mapping[Place, _StartingPartition]) -> None:
        """Ask for the range of the partitions of each topic at once: a question for each took most of the start's CPU.

        Kafka's client fails all of a question because of one partition without a leader: each is asked alone then.
        """
        now = self._clock()
        together: dict[Place | str, list[Place]] = {}
        for place, starting in unknown.items():
            if starting.ends is None and now >= starting.ask_at:
                alone = starting.waits_since is not None
                together.setdefault(place if alone else place[0], []).append(place)
        for places in together.values():
            for place, ends in self._catalog.ask_logs(places).items():
                unknown[place].ends, unknown[place].asked_at = ends, now

    def _hear_log(self, place: Place, starting: _StartingPartition) -> None:
        """Take in the answer about the range of a partition."""
        now = self._clock()
        if starting.ends is None:
            return
        if not all(future.done() for future in starting.ends):
            starting.why = "Kafka has not said where the partition begins and ends"
            if now - starting.asked_at > GIVEN_UP_AFTER:
                starting.ends = None
                self._later(place, f"{starting.why} for {GIVEN_UP_AFTER:g} s; it is asked again")
            return
        ends, starting.ends = starting.ends, None
        try:
            starting.log = LogRange(*(self._catalog.read_offset(future) for future in ends))
        except KafkaUnavailable as error:
            self._later(place, str(error))

    def _later(self, place: Place, why: str) -> None:
        starting = self._open[place]
        now = self._clock()
        starting.ask_at = now + AGAIN_AFTER
        if starting.waits_since is None:
            starting.waits_since = now
        starting.why = why
        # A topic that was just created has no leader yet.
        if starting.logged_at is None and now - starting.waits_since >= LOGGED_AFTER:
            self._log_why(place, starting)

    def _log_waiting(self) -> None:
        """Log within a minute each partition that waits, whatever it waits for."""
        now = self._clock()
        for place, starting in self._open.items():
            if now - (starting.since if starting.logged_at is None else starting.logged_at) >= LOGGED_EVERY:
                self._log_why(place, starting)

    def _log_why(self, place: Place, starting: _StartingPartition) -> None:
        starting.logged_at = now = self._clock()
        why = starting.why.rstrip(".")
        logger.warning("%s-%d: where to begin is not known yet, for %.0f s: %s.", *place, now - starting.since, why)

    def _search_on(self, until: float) -> bool:
        """Let searches go on to their next questions, which are answered together; return whether there are any."""
        searching = [
            (place, starting)
            for place, starting in self._open.items()
            if starting.log is not None and starting.start is None
        ]
        asked: list[LedgerQuestion[Any]] = []
        try:
            for place, starting in searching:
                if starting.question is None or starting.question.answered:
                    self._go_on(place, starting)
                if starting.question is not None and not starting.question.answered:
                    asked.append(starting.question)
                if self._clock() > until:
                    break
            self._starts.answer(asked)
        except BaseException:
            # Some questions have no answer, and what was answered before may be lost by now.
            for starting in self._open.values():
                starting.search = starting.question = None
            raise
        return bool(searching)

    def _go_on(self, place: Place, starting: _StartingPartition) -> None:
        """Let a search go on to its next question, or to its end."""
        if starting.search is None:
            starting.search = self._search(place, starting)
        try:
            starting.question = next(starting.search)
        except StopIteration as end:
            starting.search, starting.question, starting.start = None, None, end.value

    def _search(self, place: Place, starting: _StartingPartition) -> LedgerSearch[int | None]:
        """Return the start offset; `None` if Kafka must be asked again first."""
        assert starting.committed is not None
        assert starting.log is not None
        while True:
            before = yield from self._starts.read_state()
            evidence = starting.committed.evidence
            topic_id = self._catalog.id_of(place[0])
            decision = yield from self._logs.decide(
                place, topic_id, evidence, starting.log.low, starting.log.high, starting.suspected
            )
            if isinstance(decision, SuspectedLog):
                self._ask_all_again(place, starting, decision)
                return None
            starting.decision = decision
            # A commit on a changed log says nothing about this one.
            committed = (
                starting.committed
                if decision.offset == evidence.offset
                else CommittedOffset(decision.offset, None, evidence)
            )
            starting.first = yield from self._starts.choose_first_offset(place, committed.offset, starting.log)
            starting.why = f"the ledger is searched from offset {starting.first} on"
            start = yield from self._starts.search_start(place, committed, starting.log, starting.first, before)
            if start is not None:
                return start

    def _ask_all_again(self, place: Place, starting: _StartingPartition, found: SuspectedLog) -> None:
        """Ask for the topic's id, the commit and the range again: a changed log needs a second, later proof."""
        starting.committed = starting.log = starting.ends = None
        starting.suspected = found.log
        self._later(place, f"the log {found.what} by one answer of Kafka (a second one decides)")

    def _begin(self, consumer: Consumer, place: Place, starting: _StartingPartition) -> bool:
        """Seek to the start; return False while the consumer cannot, just after the assignment."""
        assert starting.start is not None
        assert starting.log is not None
        assert starting.decision is not None
        # With the epoch the client checks that the log still has what was read, or goes back to its end.
        kept = (
            starting.decision.kept
            and starting.decision.offset is not None
            and starting.start >= starting.decision.offset
        )
        # Records that are skipped as settled were read too, whoever committed.
        epoch = starting.decision.epoch if kept or starting.decision.back or starting.start > starting.first else -1
        try:
            consumer.seek(TopicPartition(*place, starting.start, leader_epoch=epoch))
        except KafkaException as error:
            starting.why = f"Kafka's client cannot seek to offset {starting.start}: {explain_error(error)}"
            logger.debug("%s-%d: %s", *place, starting.why)
            return False
        del self._open[place]
        self._assignment.begin(
            place, starting.start, starting.log.low, starting.decision.offset if starting.decision.kept else None
        )
        self._assignment.note_epoch(place, -1, epoch)
        return True


class PartitionRereads:
    """The partitions to read again, because the ledger lost fates or a stuck delivery is open again."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._from: dict[Place, int] = {}

    def __contains__(self, place: Place) -> bool:
        return place in self._from

    def __iter__(self) -> Iterator[Place]:
        return iter(self._from)

    def request_reread(self, partition: Partition, offset: int) -> None:
        """Ask for a reread from an offset, or from the first in flight: the restarted partition knows nothing below."""
        place = partition.place
        self._from[place] = min(offset, partition.offsets.window.start, self._from.get(place, offset))

    def forget(self, places: Iterable[Place]) -> None:
        """Forget partitions that another bridge has now."""
        for place in places:
            self._from.pop(place, None)

    def carry_out(self, consumer: Consumer) -> Iterator[Place]:
        """Seek, and start each partition anew; one that cannot be sought yet waits for the next call.

        Yields:
            each partition whose buffered records are read again.

        Raises:
            KafkaUnavailable, LedgerUnavailable: this one and the rest are done with the next call.
        """
        for place, offset in list(self._from.items()):
            if place in self._assignment:
                try:
                    consumer.seek(TopicPartition(*place, offset))
                except KafkaException as error:
                    logger.debug("%s-%d cannot be read again yet: %s", *place, explain_error(error))
                    continue
                yield place
                self._assignment.restart(place, offset)
            del self._from[place]


class RetryRewinds:
    """The seeks of retry partitions back to the first record that is not held."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment

    def carry_out(self, consumer: Consumer, elsewhere: Collection[Place]) -> None:
        """Seek; a partition that cannot be sought yet waits for the next call.

        Parameters:
            elsewhere: partitions that are about to be read from another offset.
        """
        for partition in self._assignment.busy_parked:
            if (offset := partition.rewind) is None or partition.place in elsewhere:
                continue
            epoch = self._assignment.epoch_below(partition.place, offset)
            try:
                consumer.seek(TopicPartition(*partition.place, offset, leader_epoch=epoch))
            except KafkaException as error:
                logger.debug("%s-%d cannot be read again yet: %s", *partition.place, explain_error(error))
                continue
            partition.end_rewind()


@dataclass(frozen=True)
class PartitionReads:
    """The reading of the assigned partitions: the next offset of each, its buffered records, and its pause.

    Attributes:
        buffer: the records that were read and not taken in yet.
        starts: the partitions whose start offset is not known yet.
        rereads: the partitions to read again.
    """

    assignment: Assignment
    buffer: RecordBuffer
    starts: PartitionStarts
    rereads: PartitionRereads
    rewinds: RetryRewinds
    pauses: PauseApplier

    @property
    def unsettled(self) -> set[Place]:
        """Return the partitions whose next offset is not settled: records of them are of another reading."""
        return {*self.starts, *self.rereads}

    def find_own(self, places: Iterable[Place]) -> set[Place]:
        """Return the partitions of which polled records are to be taken in.

        The revoke callback runs inside poll(): records from before it are another bridge's now.
        """
        rewinding = {partition.place for partition in self.assignment.busy_parked if partition.rewind is not None}
        elsewhere = self.unsettled | rewinding
        return {place for place in places if place in self.assignment and place not in elsewhere}

    def restart(self, consumer: Consumer, places: Collection[Place]) -> None:
        """Pause partitions until their start offset is found; nothing that was known of them counts."""
        if not places:
            return
        self.buffer.drop(places)
        self.rereads.forget(places)
        self.starts.add(places)
        self.pauses.begin(consumer, places)

    def give_up(self, places: Collection[Place]) -> None:
        """Forget partitions that another bridge has now, or that are deleted."""
        self.assignment.remove(places)
        self.buffer.drop(places)
        self.starts.forget(places)
        self.rereads.forget(places)
        self.pauses.forget(places)

    def carry_out_rereads(self, consumer: Consumer) -> None:
        """Seek to where partitions are read again.

        Raises:
            KafkaUnavailable, LedgerUnavailable: the rest is done with the next call.
        """
        for place in self.rereads.carry_out(consumer):
            self.buffer.drop([place])

    def carry_out_rewinds(self, consumer: Consumer) -> None:
        """Seek retry partitions back; call it after the pauses: a paused partition resumes from the sought offset."""
        for partition in self.assignment.busy_parked:
            if partition.rewind is not None:
                # These records are read again with those before them.
                self.buffer.drop([partition.place])
                partition.note_untaken(0)
        self.rewinds.carry_out(consumer, self.unsettled)
