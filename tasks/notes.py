"""Notes of which task carried what, for `bridge find`: kept back, and written once a second by a thread of their own.

No delivery waits for them and nothing rests on them: what a killed process had not written yet is not known.
"""

import os
import threading
from typing import Final

from bridge.errors import LedgerUnavailable
from bridge.ledger import Ledger
from bridge.ledger.carried import Note, note
from tasks import observing
from tasks.observing import harmless

logger = observing.log(__name__)

#: Seconds for which notes are kept back, so that many go in one trip.
WITHIN: Final = 1.0
#: Notes of a process that are kept back at most; more are dropped.
MOST: Final = 5_000


class Notes:
    """The notes of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[Ledger, list[Note]] = {}
        self._process = os.getpid()

    @harmless
    def add(self, ledger: Ledger, made: Note) -> None:
        """Keep a note, to be written soon."""
        with self._lock:
            if self._process != os.getpid():
                # What was pending is written by the process that this one was forked from.
                self._pending, self._process = {}, os.getpid()
            first = not self._pending
            found = self._pending.setdefault(ledger, [])
            if len(found) < MOST:
                found.append(made)
        if first:
            timer = threading.Timer(WITHIN, self.flush)
            timer.daemon = True
            timer.start()

    @harmless
    def flush(self) -> None:
        """Write what there is."""
        with self._lock:
            pending, self._pending = self._pending, {}
        for ledger, kept in pending.items():
            try:
                note(ledger, kept)
            except LedgerUnavailable as error:
                logger.debug("%s", error)


notes = Notes()
