"""How many deliveries ended how, for the pictures of the overview: kept back, and nothing rests on it."""

import time
from typing import Final

from bridge.ledger import Ledger
from bridge.ledger.counts import Counted, What, count
from tasks.kept_back import KeptBack
from tasks.observing import harmless

#: Seconds for which counts are kept back, so that many go in one trip.
WITHIN: Final = 5.0


class Counts:
    """The counts of one process; of each ledger as many as there are handlers, topics and minutes."""

    def __init__(self) -> None:
        self._kept = KeptBack[dict[Counted, int]](WITHIN, dict, count)
        self.flush = self._kept.flush

    @harmless
    def add(self, ledger: Ledger | None, topic: str, handler: str, what: What, number: int = 1) -> None:
        """Count so many, to be written soon."""
        if ledger is None:
            return
        which = Counted(topic, handler, what, int(time.time() // 60))

        def put(found: dict[Counted, int]) -> None:
            found[which] = found.get(which, 0) + number

        self._kept.change(ledger, put)


counts = Counts()
