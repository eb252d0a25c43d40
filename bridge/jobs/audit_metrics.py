"""The counts of `bridge audit` as metrics: the fates of the latest committed offsets of each partition."""

import logging
from collections.abc import Mapping
from typing import Final

from bridge.bridge_metrics import BridgeMetrics
from bridge.errors import LedgerUnavailable
from bridge.formats.delivery_identity import Place
from bridge.kafka.partition_offsets import Extent
from bridge.ledger import Account, Accounts, Ledger
from bridge.ledger.account_progress import AccountProgress
from bridge.ledger.unaccounted_offsets import count_audit_line
from bridge.partitions.assignment import Assignment
from bridge.partitions.partition import Partition

logger = logging.getLogger(__name__)

#: Offsets below the committed one that each count covers. A count goes further back, to the end of the last count or to
#: the first unaccounted offset, but not beyond `AUDITED_AT_MOST`. `bridge audit` counts all offsets.
AUDITED: Final = 262_144
AUDITED_AT_MOST: Final = 4_194_304


def find_audit_start(low: int, committed: int, before: int | None) -> int:
    """Return the offset at which a count for the metrics starts.

    No offset is skipped between two counts, and an unaccounted one is counted as long as this bridge has the partition.

    Parameters:
        low: the first offset that Kafka had at the assignment.
        before: the offset committed at the last count, or the first that it found unaccounted.
    """
    wanted = committed - AUDITED if before is None else min(committed - AUDITED, before)
    return max(low, wanted, committed - AUDITED_AT_MOST)


class AuditMetrics:
    """The fates of the assigned partitions as metrics.

    Attributes:
        unaccounted: by topic, partition and handler, how many committed offsets have a fate that is open or was lost
            with the ledger, if any have.
    """

    def __init__(self, ledger: Ledger, assignment: Assignment, metrics: BridgeMetrics) -> None:
        self._ledger, self._assignment, self._metrics = ledger, assignment, metrics
        self._audited: dict[Place, int] = {}
        self.unaccounted: dict[tuple[str, int, str], int] = {}

    def show(self, ends: Mapping[Place, int]) -> None:
        """Count the fates again, and set the metrics.

        Parameters:
            ends: one more than the last offset of each partition; one without is left out.

        Raises:
            LedgerUnavailable: nothing was counted.
        """
        extents = [
            (partition, self._find_extent(partition, ends[partition.place]))
            for partition in self._assignment.partitions
            if partition.place in ends
        ]
        asked = [
            account for partition, extent in extents if not extent.is_empty for account in partition.accounts.values()
        ]
        progress = dict(zip(asked, Accounts(self._ledger).read_progress(asked), strict=True))
        unaccounted: dict[tuple[str, int, str], int] = {}
        for partition, extent in extents:
            try:
                unaccounted.update(self._audit(partition, extent, progress))
            except LedgerUnavailable:
                raise
            except Exception:
                logger.exception("%s-%d could not be audited.", *partition.place)
        self.unaccounted = unaccounted

    def _find_extent(self, partition: Partition, end: int) -> Extent:
        place = partition.place
        committed = self._assignment.committed.get(place)
        low = self._assignment.low.get(place, 0)
        return Extent(*place, find_audit_start(low, committed or 0, self._audited.get(place)), end, committed)

    def _audit(
        self, partition: Partition, extent: Extent, progress: Mapping[Account, AccountProgress]
    ) -> dict[tuple[str, int, str], int]:
        place = partition.place
        if extent.is_empty:
            # So are most partitions of retry and replay topics, most of the time: nothing is asked, and nothing shown.
            self._metrics.hide_fates(place)
            self._audited[place] = extent.committed or 0
            return {}
        lines = [
            count_audit_line(self._ledger, account, extent, known=progress[account])
            for account in partition.accounts.values()
        ]
        for line in lines:
            self._metrics.show_fates(place, line.handler, line.fates, line.missing)
        lost = [line.unaccounted_at[0] for line in lines if line.unaccounted]
        # Forgotten and evicted fates have no page with their first offset: this whole range is counted again.
        lost += [extent.first for line in lines if line.forgotten or line.evicted]
        self._audited[place] = min(lost, default=extent.committed or 0)
        counts = {(*place, line.handler): line.missing for line in lines}
        return {key: count for key, count in counts.items() if count}
