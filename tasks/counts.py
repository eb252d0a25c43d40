"""How many deliveries ended how, for the pictures of the overview: kept back, and written by a thread of their own.

No delivery waits for it and nothing rests on it: what a killed process had not written yet is not counted.
"""

import os
import threading
import time
from typing import Final

from bridge.errors import LedgerUnavailable
from bridge.ledger import Ledger
from bridge.ledger.counts import Counted, What, count
from tasks import observing
from tasks.observing import harmless

logger = observing.log(__name__)

#: Seconds for which counts are kept back, so that many go in one trip.
WITHIN: Final = 5.0


class Counts:
    """The counts of one process; of each ledger as many as there are handlers, topics and minutes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[Ledger, dict[Counted, int]] = {}
        self._process = os.getpid()

    @harmless
    def add(self, ledger: Ledger | None, topic: str, handler: str, what: What, number: int = 1) -> None:
        """Count so many, to be written soon."""
        if ledger is None:
            return
        which = Counted(topic, handler, what, int(time.time() // 60))
        with self._lock:
            if self._process != os.getpid():
                # What was pending is written by the process that this one was forked from.
                self._pending, self._process = {}, os.getpid()
            first = not self._pending
            found = self._pending.setdefault(ledger, {})
            found[which] = found.get(which, 0) + number
        if first:
            timer = threading.Timer(WITHIN, self.flush)
            timer.daemon = True
            timer.start()

    @harmless
    def flush(self) -> None:
        """Write what there is."""
        with self._lock:
            pending, self._pending = self._pending, {}
        for ledger, found in pending.items():
            try:
                count(ledger, found)
            except LedgerUnavailable as error:
                logger.debug("%s", error)


counts = Counts()
