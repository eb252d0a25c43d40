"""Commits what is safe, now and then, in a rebalance and at the end."""

import logging

from bridge.errors import LedgerCannotFsync, LedgerUnavailable
from bridge.kafka import Consumer, KafkaError, TopicPartition
from bridge.loop.parts import Parts
from bridge.loop.places import begin_anew

logger = logging.getLogger(__name__)


class Committing:
    """Where the ledger may have lost fates nothing is committed, and everything begins anew."""

    def __init__(self, parts: Parts, consumer: Consumer) -> None:
        self._parts, self._consumer = parts, consumer

    def commit(self, wait: bool = False) -> None:
        """Commit what is safe.

        Raises:
            LedgerUnavailable: nothing was committed.
        """
        parts = self._parts
        # A commit rests on marks too.
        parts.marks.tell()
        doubt = parts.commits.commit(self._consumer, set(parts.rereads), wait=wait)
        if doubt is None:
            return
        logger.warning("%s.", doubt)
        # A halt that only Kafka has by now must be known before anything is handed off again.
        parts.timetable.soon("decided")
        # Those that have not begun too: half of what is known of them may be of before.
        begin_anew(parts, self._consumer, list(parts.assignment))

    def last(self, *, wait: bool) -> None:
        """In a rebalance and at the end, where nothing may be raised."""
        blockage = self._parts.before.blockage
        if blockage.why is not None:
            return
        try:
            self.commit(wait)
        except (LedgerCannotFsync, LedgerUnavailable) as error:
            blockage.failed(self.commit, error)

    def answered(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """Kafka has answered to a commit."""
        parts = self._parts
        if parts.commits.noted(error, partitions):
            parts.before.kafka.answers()
            parts.before.kafka.show(parts.assignment)
