"""How many deliveries a bridge hands off that were sent back: counted for the overview, and nothing rests on it."""

import logging
import time
from collections.abc import Callable, Collection, Iterable

from bridge.errors import LedgerUnavailable
from bridge.ledger import Ledger
from bridge.ledger.counts import Counted, count
from bridge.topics.names import TopicNames

logger = logging.getLogger(__name__)


class Replays:
    """What has been handed off of replay topics and not been told yet.

    Parameters:
        ledger: `None`: nothing is told.
        handlers: that are counted: a record of a replay topic may name any.
        clock: Unix time.
    """

    def __init__(
        self,
        ledger: Ledger | None,
        names: TopicNames,
        topics: Iterable[str],
        handlers: Collection[str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._ledger, self._handlers, self._clock = ledger, handlers, clock
        self._sources = {names.replay(topic): topic for topic in topics}
        self._pending: dict[Counted, int] = {}

    def handed(self, topic: str, handler: str, number: int) -> None:
        """Take in that so many of a topic went out; those of others than replay topics are not counted."""
        if (source := self._sources.get(topic)) is not None and handler in self._handlers:
            which = Counted(source, handler, "replayed", int(self._clock() // 60))
            self._pending[which] = self._pending.get(which, 0) + number

    def tell(self) -> None:
        """Write what there is; what a ledger that is away does not hear is not counted."""
        pending, self._pending = self._pending, {}
        if self._ledger is None or not pending:
            return
        try:
            count(self._ledger, pending)
        except LedgerUnavailable as error:
            logger.debug("%s", error)
