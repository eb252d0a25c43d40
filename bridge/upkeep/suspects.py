"""What was handed off long ago and is not settled, and how it is opened again where its task is nowhere."""

import logging
from collections.abc import Sequence

from bridge.ledger import Fate, Ledger, Mark
from bridge.ledger.stuck import stuck
from bridge.metrics import BridgeMetrics
from bridge.partitions.partition import Partition

logger = logging.getLogger(__name__)


class Suspects:
    """Deliveries that may be stuck. Each method raises LedgerUnavailable when Redis does not answer.

    Parameters:
        after: seconds since the hand-off from which on a delivery that is not settled is suspected.
    """

    def __init__(self, ledger: Ledger, metrics: BridgeMetrics, after: float) -> None:
        self._ledger, self._metrics, self._after = ledger, metrics, after

    def of(self, partition: Partition, handler: str) -> list[int]:
        """Those of one handler on a partition, ascending."""
        found = stuck(self._ledger, partition.accounts[handler], self._after)
        return sorted({offset for each in found for offset in each.offsets})

    def reopen(self, partition: Partition, handler: str, nowhere: Sequence[int]) -> None:
        """Open those whose task is nowhere; where the ledger does not answer they may be open all the same."""
        logger.warning(
            "%s-%d: %d deliveries to %s were handed off over %g s ago and their task is nowhere: again.",
            partition.topic,
            partition.number,
            len(nowhere),
            handler,
            self._after,
        )
        self._ledger.write([Mark(partition.accounts[handler], nowhere, Fate.OPEN)])
        self._metrics.stuck.inc(len(nowhere))
