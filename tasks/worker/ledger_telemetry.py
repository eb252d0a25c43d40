"""Telemetry of a process in the ledger, for `bridge status` and `bridge find`: counts, outcomes of attempts, and which
task carried which delivery. A write buffer writes it every few seconds; no delivery waits for it.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from bridge.errors import LedgerUnavailable
from bridge.ledger import Account, Ledger
from bridge.ledger.attempt_statistics import RecentAttempts, TopicHandler, note_outcomes, note_unpublished
from bridge.ledger.delivery_counts import CountKey, CountKind, DurationKey, add_counts
from bridge.ledger.duration_histogram import count_by_bucket
from bridge.ledger.task_notes import SINGLE_TASKS, TaskNote, note_tasks
from lossless.background_thread import start_timer
from tasks import logs
from tasks.logs import harmless

logger = logs.harmless_logger(__name__)

Kept = TypeVar("Kept")


class WriteBuffer(Generic[Kept]):
    """A buffer of writes of one process, by ledger.

    Parameters:
        within: seconds for which it is kept back.
        new: makes what is kept for a ledger, with nothing in it.
        write: writes what was kept for a ledger; where that does not answer, it is lost.
    """

    def __init__(self, within: float, new: Callable[[], Kept], write: Callable[[Ledger, Kept], None]) -> None:
        self._within, self._new, self._write = within, new, write
        self._lock = threading.Lock()
        self._pending: dict[Ledger, Kept] = {}
        self._awaited = False
        self._process = os.getpid()

    def change(self, ledger: Ledger, put: Callable[[Kept], None]) -> None:
        """Put something into what is kept for a ledger, to be written soon."""
        with self._lock:
            if self._process != os.getpid():
                # What was pending is written by the process that this one was forked from.
                self._pending, self._awaited, self._process = {}, False, os.getpid()
            if ledger not in self._pending:
                self._pending[ledger] = self._new()
            put(self._pending[ledger])
            if not self._awaited:
                # Where no thread can be started, the next change tries again.
                start_timer("telemetry", self._within, self.flush)
                self._awaited = True

    @harmless
    def flush(self) -> None:
        """Write the pending entries."""
        with self._lock:
            pending, self._pending, self._awaited = self._pending, {}, False
        for ledger, kept in pending.items():
            try:
                self._write(ledger, kept)
            except LedgerUnavailable as error:
                logger.debug("%s", error)


#: Seconds for which notes are kept back, so that many go in one trip.
NOTES_WITHIN: Final = 1.0
#: Notes of a process that are kept back at most; more are dropped.
MOST_NOTES: Final = 5_000
#: Deliveries alone in their tasks that one note has at most, of a second's: of very many, one by one, the first.
MOST_ALONE: Final = 20


@dataclass(slots=True)
class _KeptNotes:
    notes: list[TaskNote] = field(default_factory=list)
    alone: dict[Account, set[int]] = field(default_factory=dict)


class CarrierNotes:
    """The notes of one process."""

    def __init__(self) -> None:
        self._kept = WriteBuffer[_KeptNotes](NOTES_WITHIN, _KeptNotes, _write_notes)
        self.flush = self._kept.flush

    @harmless
    def add(self, ledger: Ledger, made: TaskNote) -> None:
        """Keep a note, to be written soon."""

        def put(kept: _KeptNotes) -> None:
            if len(kept.notes) < MOST_NOTES:
                kept.notes.append(made)

        self._kept.change(ledger, put)

    @harmless
    def add_alone(self, ledger: Ledger, account: Account, offset: int) -> None:
        """Keep that a delivery ended in a task of its own, as long as it is not one of very many."""

        def put(kept: _KeptNotes) -> None:
            found = kept.alone.setdefault(account, set())
            if len(found) < MOST_ALONE:
                found.add(offset)

        self._kept.change(ledger, put)


def _write_notes(ledger: Ledger, kept: _KeptNotes) -> None:
    note_tasks(
        ledger, kept.notes + [TaskNote(SINGLE_TASKS, account, sorted(found)) for account, found in kept.alone.items()]
    )


carrier_notes = CarrierNotes()


#: Seconds for which counts are kept back, so that many go in one trip.
COUNTS_WITHIN: Final = 5.0


@dataclass(slots=True)
class _KeptCounts:
    counts: dict[CountKey, int] = field(default_factory=dict)
    durations: dict[DurationKey, dict[int, int]] = field(default_factory=dict)


class DeliveryCounts:
    """The counts of one process; of each ledger as many as there are handlers, topics and minutes."""

    def __init__(self) -> None:
        self._kept = WriteBuffer[_KeptCounts](COUNTS_WITHIN, _KeptCounts, _write_counts)
        self.flush = self._kept.flush

    @harmless
    def add(
        self,
        ledger: Ledger | None,
        topic: str,
        handler: str,
        what: CountKind,
        number: int = 1,
        seconds: Sequence[float] = (),
    ) -> None:
        """Count so many, to be written soon.

        Parameters:
            seconds: how long the counted runs took.
        """
        if ledger is None:
            return
        minute = int(time.time() // 60)
        which, of_minute = CountKey(topic, handler, what, minute), DurationKey(topic, handler, minute)
        buckets = count_by_bucket(seconds)

        def put(kept: _KeptCounts) -> None:
            kept.counts[which] = kept.counts.get(which, 0) + number
            if buckets:
                found = kept.durations.setdefault(of_minute, {})
                for bucket, runs in buckets.items():
                    found[bucket] = found.get(bucket, 0) + runs

        self._kept.change(ledger, put)


def _write_counts(ledger: Ledger, kept: _KeptCounts) -> None:
    add_counts(ledger, kept.counts, kept.durations)


delivery_counts = DeliveryCounts()


#: Seconds for which it is kept back, so that much goes in one trip.
OUTCOMES_WITHIN: Final = 2.0


@dataclass(slots=True)
class _UntoldOutcomes:
    """The outcomes that a process has not written yet: attempts, and dead letters that Kafka refused or took later."""

    attempts: dict[TopicHandler, RecentAttempts] = field(default_factory=dict)
    refused: dict[str, dict[str, str]] = field(default_factory=dict)
    written: dict[str, set[str]] = field(default_factory=dict)


def _write_outcomes(ledger: Ledger, untold: _UntoldOutcomes) -> None:
    note_outcomes(ledger, untold.attempts, time.time())
    if untold.refused or untold.written:
        note_unpublished(ledger, untold.refused, untold.written)


class AttemptOutcomes:
    """The outcomes of one process."""

    def __init__(self) -> None:
        self._kept = WriteBuffer[_UntoldOutcomes](OUTCOMES_WITHIN, _UntoldOutcomes, _write_outcomes)
        self.flush = self._kept.flush

    @harmless
    def succeeded(self, ledger: Ledger | None, topic: str, handler: str) -> None:
        """Note a successful attempt."""
        self._change(ledger, (topic, handler), lambda attempts: attempts.succeeded(time.time()))

    @harmless
    def failed(self, ledger: Ledger | None, topic: str, handler: str, number: int = 1, error: str = "") -> None:
        """Note failed attempts."""
        self._change(ledger, (topic, handler), lambda attempts: attempts.has_failed(time.time(), number, error))

    @harmless
    def process_lost(self, ledger: Ledger | None, topic: str, handler: str) -> None:
        """Note that a process died with deliveries of a handler."""

        def count(attempts: RecentAttempts) -> None:
            attempts.lost += 1

        self._change(ledger, (topic, handler), count)

    @harmless
    def refused(self, ledger: Ledger | None, handler: str, identity: str, error: str) -> None:
        """Note that Kafka did not take a dead letter."""
        if ledger is None:
            return

        def put(untold: _UntoldOutcomes) -> None:
            untold.written.get(handler, set()).discard(identity)
            untold.refused.setdefault(handler, {})[identity] = error

        self._kept.change(ledger, put)

    @harmless
    def written(self, ledger: Ledger | None, handler: str, identity: str) -> None:
        """Note that Kafka has taken a dead letter that it had refused before."""
        if ledger is None:
            return

        def put(untold: _UntoldOutcomes) -> None:
            untold.refused.get(handler, {}).pop(identity, None)
            untold.written.setdefault(handler, set()).add(identity)

        self._kept.change(ledger, put)

    def _change(self, ledger: Ledger | None, whose: TopicHandler, change: Callable[[RecentAttempts], None]) -> None:
        if ledger is not None:
            self._kept.change(ledger, lambda untold: change(untold.attempts.setdefault(whose, RecentAttempts())))


attempt_outcomes = AttemptOutcomes()
