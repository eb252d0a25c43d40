"""The counts of `bridge audit` as metrics: fates of each partition, as far back as they are needed."""

import logging
from collections.abc import Mapping
from typing import Final

from bridge.bridge_metrics import BridgeMetrics
from bridge.errors import LedgerUnavailable
from bridge.formats.delivery_identity import Place
from bridge.kafka.partition_offsets import Extent
from bridge.ledger import Ledger
from bridge.ledger.audit_line import count_audit_line
from bridge.partitions.assignment import Assignment
from bridge.partitions.partition import Partition

logger = logging.getLogger(__name__)

#: Offsets below the committed one that the metrics count, and at most: back to where the last count ended, or to the
#: first that is unaccounted for. `bridge audit` counts all.
AUDITED: Final = 262_144
AUDITED_AT_MOST: Final = 4_194_304


def find_audit_start(low: int, committed: int, before: int | None) -> int:
    """Where a count for the metrics begins.

    No offset is passed over between two counts, and what is unaccounted for is counted until it is not, as long as
    this bridge has the partition.

    Parameters:
        low: the first offset that Kafka had when the partition was taken over.
        before: the offset committed at the last count, or the first that was unaccounted for in it.
    """
    wanted = committed - AUDITED if before is None else min(committed - AUDITED, before)
    return max(low, wanted, committed - AUDITED_AT_MOST)


class AuditMetrics:
    """Shows fates as metrics.

    Attributes:
        unaccounted: by topic, partition and handler, the committed offsets whose fate is open or was lost with the
            ledger; only where there are.
    """

    def __init__(self, ledger: Ledger, assignment: Assignment, metrics: BridgeMetrics) -> None:
        self._ledger, self._assignment, self._metrics = ledger, assignment, metrics
        self._audited: dict[Place, int] = {}
        self.unaccounted: dict[tuple[str, int, str], int] = {}

    def show(self, ends: Mapping[Place, int]) -> None:
        """Count anew.

        Parameters:
            ends: one more than the last offset of each partition; one that is not known is left out.

        Raises:
            LedgerUnavailable: nothing was counted.
        """
        unaccounted: dict[tuple[str, int, str], int] = {}
        for partition in self._assignment.partitions:
            if (end := ends.get(partition.place)) is None:
                continue
            try:
                unaccounted.update(self._audit(partition, end))
            except LedgerUnavailable:
                raise
            except Exception:
                logger.exception("%s-%d could not be audited.", *partition.place)
        self.unaccounted = unaccounted

    def _audit(self, partition: Partition, end: int) -> dict[tuple[str, int, str], int]:
        place = partition.place
        committed = self._assignment.committed.get(place)
        low = self._assignment.low.get(place, 0)
        first = find_audit_start(low, committed or 0, self._audited.get(place))
        extent = Extent(*place, first, end, committed)
        lines = [count_audit_line(self._ledger, account, extent) for account in partition.accounts.values()]
        for each in lines:
            self._metrics.show_fates(place, each.handler, each.fates, each.missing)
        lost = [each.unaccounted_at[0] for each in lines if each.unaccounted]
        # What is forgotten or evicted has no page to find its first by: all of this range is counted again.
        lost += [first for each in lines if each.forgotten or each.evicted]
        self._audited[place] = min(lost, default=committed or 0)
        counts = {(*place, each.handler): each.missing for each in lines}
        return {which: count for which, count in counts.items() if count}
