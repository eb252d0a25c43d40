"""What the ledger says: of records that have come, and of what was handed out."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bridge.kafka import Record
from bridge.ledger import Ledger, Mark
from bridge.partitions.partition import Partition
from bridge.records.place import Place


class Undone(NamedTuple):
    """A partition that must be read again: the ledger has lost fates of it, or what was stuck is open again.

    Attributes:
        offset: where to begin.
        done: how many of its deliveries were done and are not any more.
    """

    partition: Partition
    offset: int
    done: int


class Seen(NamedTuple):
    """What a look at the ledger asks for."""

    marks: list[Mark]
    undone: list[Undone]


def receive(
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


def see(ledger: Ledger, watched: Sequence[Partition]) -> Seen:
    """See how what the partitions have handed out has ended.

    Raises:
        LedgerUnavailable: nothing is known.
    """
    asked = [(p, account, window) for p in watched for account in p.accounts.values() for window in p.offsets.windows]
    answers = ledger.fates_many([(account, window.start, window.stop - 1) for _, account, window in asked])
    seen = Seen([], [])
    for (partition, account, window), found in zip(asked, answers, strict=True):
        doomed, offset, done = partition.saw(account.handler, window.start, found)
        seen.marks.extend(doomed)
        if offset is not None:
            seen.undone.append(Undone(partition, offset, done))
    return seen
