"""What a process keeps back for a moment, so that much of it goes to a ledger in one trip, by a thread of its own.

No delivery waits for it and nothing rests on it: what a killed process had not written yet is lost.
"""

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from bridge.errors import LedgerUnavailable
from bridge.ledger import Ledger
from tasks import observing
from tasks.observing import harmless

logger = observing.log(__name__)

Kept = TypeVar("Kept")


class KeptBack(Generic[Kept]):
    """What one process keeps back, of each ledger together.

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
                timer = threading.Timer(self._within, self.flush)
                timer.daemon = True
                timer.start()
                self._awaited = True

    @harmless
    def flush(self) -> None:
        """Write what there is."""
        with self._lock:
            pending, self._pending, self._awaited = self._pending, {}, False
        for ledger, kept in pending.items():
            try:
                self._write(ledger, kept)
            except LedgerUnavailable as error:
                logger.debug("%s", error)
