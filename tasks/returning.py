"""A run that cannot be brought to its end: what has not ended comes again, and what was done is done."""

import logging
from contextlib import suppress
from typing import Any

from celery.exceptions import Reject
from kombu.exceptions import KombuError

from bridge.errors import BridgeError, LedgerUnavailable
from bridge.records.message import Batch
from lossless.worker.ending import ComeBack
from tasks import aftermath, observing
from tasks.book import Book
from tasks.errors import GivenAway, TopicHalted
from tasks.halting import LOOK_AGAIN_AFTER
from tasks.running import MessageTask
from tasks.settling import Settling
from tasks.standing import Standing

# As where the batch runs: one who reads the logs of that reads these.
logger = observing.log("tasks.execution")


class Returning:
    """Where the message of one batch goes whose run was broken off."""

    def __init__(
        self, task: MessageTask[..., Any], batch: Batch, book: Book, settling: Settling, standing: Standing
    ) -> None:
        self._task, self._batch, self._book = task, batch, book
        self._settling, self._standing = settling, standing

    def given_up(self, gone: GivenAway) -> str:
        """What is not done is others' to do; what is done is marked, so that they find it so."""
        logger.warning("%s: %s: what is not done of it is left to others.", str(self._batch), str(gone))
        with suppress(LedgerUnavailable):
            self._book.flush()
        return f"given away: {self._standing.ends}"

    def waits(self, halted: TopicHalted, gate: str) -> ComeBack:
        """What has not run waits in front of all else of its topic; it has spent nothing."""
        try:
            self._book.flush()
        except LedgerUnavailable as error:
            logger.debug("%s", error)
        return ComeBack(f"it waits: {halted}", self._headers(self._left()), gate, LOOK_AGAIN_AFTER, halted.first)

    def broken(self, error: BaseException) -> ComeBack | None:
        """What has not ended comes again; `None`: all has. Call it where the error is handled."""
        left = self._left()
        if not left.deliveries:
            logger.exception("%s: all of it has ended, but then: %s", str(self._batch), type(error).__name__)
            return None
        foreseen = isinstance(error, BridgeError | Reject | KombuError | OSError)
        level = logging.WARNING if foreseen else logging.ERROR
        logger.log(level, "%s comes again: %s", str(self._batch), str(error), exc_info=not foreseen)
        return ComeBack(f"{self._batch} could not be settled: {type(error).__name__}", self._headers(left))

    def _left(self) -> Batch:
        """What has not ended; and what has, as far as the ledger has not been told."""
        return self._batch.holding(self._settling.left_of(self._standing.left()))

    def _headers(self, left: Batch) -> dict[str, Any]:
        return aftermath.coming_back(left, self._task.request.headers or {})
