"""Keeps the ledger's pages of what is under way."""

from collections.abc import Iterable

from bridge.ledger import Ledger
from bridge.partitions.partition import Partition


def renew(ledger: Ledger, partitions: Iterable[Partition]) -> None:
    """Let no page expire on which the commit still waits for something, however long that is under way.

    Raises:
        LedgerUnavailable: Redis does not answer.
    """
    ledger.renew(
        (account, window.start, window.stop - 1)
        for partition in partitions
        if partition.watched
        for account in partition.accounts.values()
        for window in partition.offsets.windows
    )
