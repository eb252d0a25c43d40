"""The commits to Kafka: for each partition the first offset that must be read again after a crash."""

import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Final

from bridge.bridge_metrics import BridgeMetrics
from bridge.errors import KafkaUnavailable, LedgerNotSynced
from bridge.formats.delivery_identity import Place
from bridge.kafka.clients import Consumer, KafkaError, KafkaException, TopicPartition, explain_error
from bridge.kafka.partition_offsets import commit_note
from bridge.ledger import Accounts, Ledger, LedgerState
from bridge.partitions.assignment import Assignment
from bridge.partitions.partition import Partition
from lossless.background_thread import start_call

logger = logging.getLogger(__name__)

#: Seconds that the broker's append-only file may take to reach the disk.
FSYNC_WITHIN: Final = 2.5
#: Seconds to wait for the answer to a commit, in a rebalance and at the end.
COMMIT_WITHIN: Final = 3.0
#: Seconds until a commit is tried again that came with an epoch of the group that was over.
STALE_PAUSE: Final = 0.1


class OffsetCommits:
    """The commits of this bridge: deliveries are published, acknowledged and marked in the ledger before.

    Parameters:
        fsync: whether a commit waits for the broker's append-only file.
    """

    def __init__(self, assignment: Assignment, ledger: Ledger | None, fsync: bool, metrics: BridgeMetrics) -> None:
        self._assignment, self._ledger, self._fsync, self._metrics = assignment, ledger, fsync, metrics
        self._state: LedgerState | None = None
        self._slow = False
        self._late_answer: Future[list[TopicPartition]] | None = None

    def check_fsync(self) -> None:
        """Check at the start that this Redis can confirm fsync, if a topic needs it.

        Raises:
            LedgerCannotFsync: it cannot.
        """
        if self._ledger is not None and self._fsync:
            self._ledger.fsync(FSYNC_WITHIN)

    def commit(self, consumer: Consumer, held_back: set[Place], *, wait: bool) -> str | None:
        """Commit what is safe, after the ledger has confirmed that it still has the fates which make it safe.

        Parameters:
            held_back: partitions that are about to be read again.
            wait: whether to wait some seconds for Kafka's answer.

        Returns:
            why data loss in the ledger is suspected, a sentence; then nothing new was committed.

        Raises:
            LedgerUnavailable: nothing was committed.
        """
        self._hear_late_answer()
        try:
            doubt = self._suspect_loss()
        except LedgerNotSynced as error:
            if not self._slow:
                logger.warning("nothing is committed until this is fixed: %s", error)
            self._slow = True
            return None
        self._slow = False
        if doubt is not None:
            return doubt
        safe = [(p, p.safe()) for p in self._assignment.partitions if p.place not in held_back]
        doubt = self._reach(safe)
        if doubt is None:
            further = {p.place: at for p, at in safe if at > self._assignment.committed.get(p.place, -1)}
            self._commit(consumer, self._store_own(consumer, further), wait=wait)
        return doubt

    def read_ledger_state(self) -> None:
        """Note the state of the ledger before its first use, so that a later loss is noticed.

        Raises:
            LedgerUnavailable: Redis does not answer.
        """
        if self._ledger is not None and self._state is None:
            self._state = self._ledger.state()

    def move(self, consumer: Consumer, place: Place, offset: int) -> None:
        """Move the committed offset, backwards too, and wait for Kafka's answer.

        Raises:
            KafkaUnavailable: the offset may or may not be committed.
        """
        ours = self._store_own(consumer, {place: offset})
        if not ours:
            raise KafkaUnavailable(f"{place[0]}-{place[1]} is no longer ours.")
        try:
            (committed,) = _answer_to(consumer, ours).result(COMMIT_WITHIN)
        except (KafkaException, TimeoutError) as error:
            raise KafkaUnavailable(
                f"Kafka did not move the committed offset of {place[0]}-{place[1]}: {explain_error(error)}."
            ) from None
        if committed.error is not None:
            raise KafkaUnavailable(
                f"Kafka did not move the committed offset of {place[0]}-{place[1]}: {explain_error(committed.error)}."
            )
        self.take_answer(None, [committed])

    def take_answer(self, error: KafkaError | None, partitions: list[TopicPartition]) -> bool:
        """Note Kafka's answer to a commit; return whether something was committed."""
        if error is not None and error.code() != KafkaError._NO_OFFSET:
            # An epoch of the group that is over is no fault of anybody's: it comes with each new assignment.
            level = logging.INFO if error.code() == KafkaError.STALE_MEMBER_EPOCH else logging.WARNING
            logger.log(level, "not committed, tried again: %s", explain_error(error))
            return False
        committed = False
        for partition in partitions:
            place = (partition.topic, partition.partition)
            if partition.error is None and partition.offset >= 0 and place in self._assignment:
                committed = True
                self._assignment.committed[place] = partition.offset
                self._metrics.committed.labels(*place).set(partition.offset)
        return committed

    def _suspect_loss(self) -> str | None:
        if self._ledger is None:
            return None
        return self._compare(self._ledger.fsync(FSYNC_WITHIN) if self._fsync else self._ledger.state())

    def _compare(self, now: LedgerState) -> str | None:
        before, self._state = self._state, now
        return None if before is None else now.doubt(before)

    def _reach(self, safe: Sequence[tuple[Partition, int]]) -> str | None:
        """Tell the ledger how far the commit will go; return why data loss in it is suspected, if it is."""
        # Also below the commit: a ledger that lost it learns what was read again.
        if self._ledger is None:
            return None
        further = [(partition, offset) for partition, offset in safe if offset > partition.reached]
        if not further:
            return None
        reached = {account: offset for p, offset in further for account in p.accounts.values()}
        doubt = self._compare(Accounts(self._ledger).raise_reached(reached, self._state))
        if doubt is None:
            for partition, offset in further:
                partition.note_reached(offset)
        return doubt

    def _store_own(self, consumer: Consumer, offsets: dict[Place, int]) -> list[TopicPartition]:
        """Return the offsets that this bridge may commit: storing is fenced against other bridges, a commit is not."""
        epoch = self._state.epoch if self._state is not None else None
        ours = []
        for place, safe in offsets.items():
            metadata = commit_note(epoch, self._assignment.logs[place].id, self._assignment.find_commit_mode(place))
            offset = TopicPartition(*place, safe, metadata, self._assignment.epoch_below(place, safe))
            try:
                consumer.store_offsets(offsets=[offset])
                ours.append(offset)
            except KafkaException as error:
                logger.warning("%s-%d is no longer ours: %s", *place, explain_error(error))
        return ours

    def _commit(self, consumer: Consumer, offsets: list[TopicPartition], *, wait: bool) -> None:
        """Commit these offsets by name: of stored ones the client leaves out those below its last commit."""
        if not offsets:
            return
        try:
            if wait:
                self._wait(consumer, offsets)
            else:
                consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            logger.warning("not committed, tried again: %s", explain_error(error))

    def _wait(self, consumer: Consumer, offsets: list[TopicPartition]) -> None:
        """Wait some seconds for a commit: commit() itself waits in a thread, for as long as Kafka is unavailable."""
        answer = _answer_to(consumer, offsets)
        try:
            self.take_answer(None, answer.result(COMMIT_WITHIN))
        except TimeoutError:
            logger.warning("Kafka did not answer a commit within %g s: these records may be read again.", COMMIT_WITHIN)
            self._late_answer = answer

    def _hear_late_answer(self) -> None:
        if self._late_answer is not None and self._late_answer.done():
            if self._late_answer.exception() is None:
                self.take_answer(None, self._late_answer.result())
            self._late_answer = None


def _answer_to(consumer: Consumer, offsets: list[TopicPartition]) -> Future[list[TopicPartition]]:
    """Commit in a thread, and return its answer; librdkafka has a reply queue for each such commit."""
    return start_call("commit", lambda: _commit_and_wait(consumer, offsets))


def _commit_and_wait(consumer: Consumer, offsets: list[TopicPartition]) -> list[TopicPartition]:
    """Commit, again after a new assignment of the group (KIP-848): librdkafka then asks for it at once."""
    until = time.monotonic() + COMMIT_WITHIN
    while True:
        try:
            return consumer.commit(offsets=offsets, asynchronous=False) or []
        except KafkaException as error:
            if error.args[0].code() != KafkaError.STALE_MEMBER_EPOCH or time.monotonic() >= until:
                raise
        time.sleep(STALE_PAUSE)
