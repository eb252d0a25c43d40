"""Notes of which task carried what, for `bridge find`: kept back, and written once a second by a thread of their own.

No delivery waits for them and nothing rests on them: what a killed process had not written yet is not known.
"""

import os
import threading
from typing import Final

from bridge.errors import LedgerUnavailable
from bridge.ledger import Account, Ledger
from bridge.ledger.carried import ALONE, Note, note
from tasks import observing
from tasks.observing import harmless

logger = observing.log(__name__)

#: Seconds for which notes are kept back, so that many go in one trip.
WITHIN: Final = 1.0
#: Notes of a process that are kept back at most; more are dropped.
MOST: Final = 5_000
#: Deliveries alone in their tasks that one note has at most, of a second's: of very many, one by one, the first.
MOST_ALONE: Final = 20


class Notes:
    """The notes of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[Ledger, list[Note]] = {}
        self._alone: dict[tuple[Ledger, Account], set[int]] = {}
        self._process = os.getpid()

    @harmless
    def add(self, ledger: Ledger, made: Note) -> None:
        """Keep a note, to be written soon."""
        with self._lock:
            first = self._is_first()
            found = self._pending.setdefault(ledger, [])
            if len(found) < MOST:
                found.append(made)
        if first:
            self._flush_soon()

    @harmless
    def add_alone(self, ledger: Ledger, account: Account, offset: int) -> None:
        """Keep that a delivery ended in a task of its own, as long as it is not one of very many."""
        with self._lock:
            first = self._is_first()
            found = self._alone.setdefault((ledger, account), set())
            if len(found) < MOST_ALONE:
                found.add(offset)
        if first:
            self._flush_soon()

    def _is_first(self) -> bool:
        if self._process != os.getpid():
            # What was pending is written by the process that this one was forked from.
            self._pending, self._alone, self._process = {}, {}, os.getpid()
        return not self._pending and not self._alone

    def _flush_soon(self) -> None:
        timer = threading.Timer(WITHIN, self.flush)
        timer.daemon = True
        timer.start()

    @harmless
    def flush(self) -> None:
        """Write what there is."""
        with self._lock:
            pending, self._pending = self._pending, {}
            alone, self._alone = self._alone, {}
        for (ledger, account), offsets in alone.items():
            pending.setdefault(ledger, []).append(Note(ALONE, account, sorted(offsets)))
        for ledger, kept in pending.items():
            try:
                note(ledger, kept)
            except LedgerUnavailable as error:
                logger.debug("%s", error)


notes = Notes()
