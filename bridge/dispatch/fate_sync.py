"""The exchange of fates between partitions and ledger: read for new and handed deliveries, marked until it has them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from bridge.formats.delivery_identity import Place
from bridge.kafka.clients import Record
from bridge.ledger import Fate, Ledger, Mark
from bridge.ledger.ledger_layout import PAGE
from bridge.partitions.partition import Partition


class PendingMarks:
    """The marks of what has happened, kept until the ledger has them.

    Parameters:
        ledger: `None` without Redis: no marks are kept.
    """

    def __init__(self, ledger: Ledger | None) -> None:
        self._ledger = ledger
        self._pending: list[Mark] = []

    def add(self, marks: Iterable[Mark]) -> None:
        """Add marks for the next `tell`."""
        if self._ledger is not None:
            self._pending += marks

    def write(self) -> None:
        """Write all marks that the ledger does not have.

        Raises:
            LedgerUnavailable: they are written with the next call.
        """
        if self._ledger is None or not self._pending:
            return
        long = [mark for mark in self._pending if mark.fate is Fate.GAP and len(mark.offsets) > PAGE]
        self._ledger.write([mark for mark in self._pending if mark not in long] if long else self._pending)
        for mark in long:
            self._ledger.mark_gap(mark.account, mark.offsets[0], mark.offsets[-1])
        self._pending = []


class LostFates(NamedTuple):
    """A partition to read again, because the ledger lost fates or a stuck delivery is open again.

    Attributes:
        offset: where to start.
        done: how many deliveries are no longer done.
    """

    partition: Partition
    offset: int
    done: int


class LedgerView(NamedTuple):
    """The consequences of a poll of the ledger: marks to write, and partitions to read again."""

    marks: list[Mark]
    undone: list[LostFates]


def take_in_records(
    ledger: Ledger | None, held: Mapping[Place, Sequence[Record]], partitions: Mapping[Place, Partition]
) -> list[Mark]:
    """Let partitions take in records with the ledger's fates; return marks for the ledger.

    Raises:
        LedgerUnavailable: nothing was taken in.
    """
    known = [(partitions[place], records) for place, records in held.items()]
    asked = [
        (account, [record.offset() or 0 for record in records])
        for partition, records in known
        for account in partition.accounts.values()
    ]
    found = iter(ledger.fates_of(asked)) if ledger is not None else None
    marks: list[Mark] = []
    for partition, records in known:
        fates = None if found is None else {name: next(found) for name in partition.accounts}
        marks += partition.receive(records, fates)
    return marks


def read_handed_fates(ledger: Ledger, partitions: Sequence[Partition], *, awaited: bool = False) -> LedgerView:
    """Poll the fates of handed deliveries.

    Parameters:
        awaited: whether only those are read that others may wait for; else the whole window, for the commit.

    Raises:
        LedgerUnavailable: Redis does not answer.
    """
    asked = [
        (partition, account, window)
        for partition in partitions
        for account in partition.accounts.values()
        for window in (partition.offsets.find_awaited(account.handler) if awaited else partition.offsets.windows)
    ]
    answers = ledger.fates_many([(account, window.start, window.stop - 1) for _, account, window in asked])
    seen = LedgerView([], [])
    for (partition, account, window), found in zip(asked, answers, strict=True):
        doomed, offset, done = partition.take_in_fates(account.handler, window.start, found)
        seen.marks.extend(doomed)
        if offset is not None:
            seen.undone.append(LostFates(partition, offset, done))
    return seen
