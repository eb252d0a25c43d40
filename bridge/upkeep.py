"""What a bridge does with the ledger now and then: looks for what is stuck, shows the audit, says how it is."""

import logging
import os
import socket
import time
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from bridge.assignment import Assignment
from bridge.audit import line
from bridge.dispatch import Dispatch
from bridge.errors import HandoffFailed, LedgerUnavailable
from bridge.extent import Extent
from bridge.handoff import Handoff
from bridge.ledger import Ledger
from bridge.ledger.members import Members
from bridge.metrics import BridgeMetrics, Place
from bridge.partition import Partition

logger = logging.getLogger(__name__)

#: Offsets below the committed one that the metrics count; `bridge audit` counts all.
AUDITED: Final = 262_144
#: Seconds for which an announcement holds.
ANNOUNCED_FOR: Final = 10.0


class Upkeep:
    """Each of these raises LedgerUnavailable where Redis does not answer, `leave` apart."""

    def __init__(
        self,
        ledger: Ledger,
        handoff: Handoff,
        dispatch: Dispatch,
        assignment: Assignment,
        metrics: BridgeMetrics,
        stuck_after: float,
    ) -> None:
        self._ledger, self._handoff, self._dispatch = ledger, handoff, dispatch
        self._assignment, self._metrics = assignment, metrics
        self._stuck_after = stuck_after
        self._members = Members(ledger)
        self._member = f"{socket.gethostname()}:{os.getpid()}"
        self._oldest: dict[tuple[str, int, str, int], float] = {}

    def stuck(self) -> list[tuple[Partition, int]]:
        """Open deliveries handed out long ago whose task is nowhere; return from where to read each partition again."""
        found = []
        # Each queue is read once a look, and only if something in it may be stuck.
        carried = cache(self._handoff.carried)
        try:
            for partition in self._assignment.partitions:
                lowest = self._dispatch.reopen_stuck(partition, self._stuck_after, carried)
                if lowest is not None:
                    found.append((partition, lowest))
        except HandoffFailed as error:
            logger.warning("stuck deliveries could not be looked for: %s", error)
        return found

    def audit(self, ends: Mapping[Place, int]) -> None:
        """Show the counts of `bridge audit` as metrics."""
        for partition in self._assignment.partitions:
            place = (partition.topic, partition.number)
            committed, end = self._assignment.committed.get(place), ends.get(place)
            if end is not None:
                extent = Extent(*place, max(0, (committed or 0) - AUDITED), end, committed)
                for account in partition.accounts.values():
                    self._metrics.show_fates(partition.topic, line(self._ledger, account, extent))

    def announce(self, paused: Mapping[Place, str], obstacles: list[str]) -> None:
        """Say how this bridge is, for `bridge status`."""
        state = {
            "assigned": sorted(f"{topic}-{number}" for topic, number in self._assignment),
            "paused": {f"{topic}-{number}": why for (topic, number), why in sorted(paused.items())},
            "obstacles": obstacles,
            "waiting": self._waiting(),
        }
        self._members.announce(self._member, state, ANNOUNCED_FOR)

    def leave(self) -> None:
        """Take back what was announced."""
        try:
            self._members.leave(self._member)
        except LedgerUnavailable as error:
            logger.debug("%s", error)

    def _waiting(self) -> list[dict[str, Any]]:
        """What others of its order have waited for since the last announcement or longer."""
        now, known, self._oldest = time.time(), self._oldest, {}
        for partition in self._assignment.partitions:
            for handler, offset in partition.oldest():
                delivery = (partition.topic, partition.number, handler, offset)
                self._oldest[delivery] = known.get(delivery, now)
        names = ("topic", "partition", "handler", "offset")
        return [
            {**dict(zip(names, delivery, strict=True)), "seconds": round(now - since, 1)}
            for delivery, since in self._oldest.items()
            if since < now
        ]
