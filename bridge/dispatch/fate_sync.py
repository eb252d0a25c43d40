"""Fates between partitions and ledger: read for new and for handed deliveries, and marked until it has them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from bridge.formats.delivery_identity import Place
from bridge.kafka.clients import Record
from bridge.ledger import Fate, Ledger, Mark
from bridge.ledger.fate_pages import PAGE
from bridge.partitions.partition import Partition


class PendingMarks:
    """What has happened already, whatever the ledger says to it.

    Parameters:
        ledger: `None` where there is no Redis for it: nothing is told.
    """

    def __init__(self, ledger: Ledger | None) -> None:
        self._ledger = ledger
        self._untold: list[Mark] = []

    def add(self, marks: Iterable[Mark]) -> None:
        """Note marks, to be told with the next `tell`."""
        if self._ledger is not None:
            self._untold += marks

    def tell(self) -> None:
        """Tell the ledger all that it has not been told.

        Raises:
            LedgerUnavailable: it is told again with the next.
        """
        if self._ledger is None or not self._untold:
            return
        long = [mark for mark in self._untold if mark.fate is Fate.GAP and len(mark.offsets) > PAGE]
        self._ledger.write([mark for mark in self._untold if mark not in long] if long else self._untold)
        for mark in long:
            self._ledger.mark_gap(mark.account, mark.offsets[0], mark.offsets[-1])
        self._untold = []


class LostFates(NamedTuple):
    """A partition that must be read again: the ledger has lost fates of it, or what was stuck is open again.

    Attributes:
        offset: where to begin.
        done: how many of its deliveries were done and are not any more.
    """

    partition: Partition
    offset: int
    done: int


class LedgerView(NamedTuple):
    """What a look at the ledger asks for."""

    marks: list[Mark]
    undone: list[LostFates]


def take_in_records(
    ledger: Ledger | None, held: Mapping[Place, Sequence[Record]], partitions: Mapping[Place, Partition]
) -> list[Mark]:
    """Let the partitions take in records, with what the ledger says of each; return what it must be told.

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


def read_handed_fates(ledger: Ledger, watched: Sequence[Partition]) -> LedgerView:
    """See how what the partitions have handed out has ended.

    Raises:
        LedgerUnavailable: nothing is known.
    """
    asked = [(p, account, window) for p in watched for account in p.accounts.values() for window in p.offsets.windows]
    answers = ledger.fates_many([(account, window.start, window.stop - 1) for _, account, window in asked])
    seen = LedgerView([], [])
    for (partition, account, window), found in zip(asked, answers, strict=True):
        doomed, offset, done = partition.saw(account.handler, window.start, found)
        seen.marks.extend(doomed)
        if offset is not None:
            seen.undone.append(LostFates(partition, offset, done))
    return seen
