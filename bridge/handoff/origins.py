"""What was parked, and has ended since: it is not handed out."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from bridge.ledger import OWN, Fate, Ledger, Mark, to_skip
from bridge.partitions.held import Held
from bridge.partitions.parked import ParkedPartition
from bridge.partitions.partition import Partition
from bridge.partitions.turns import Group

#: What was taken from a partition: deliveries of one handler, and the records of each.
Taken: TypeAlias = tuple[Partition, Group, list[Any]]


def leave_out_ended(ledger: Ledger | None, taken: Sequence[Taken]) -> tuple[list[Taken], list[Mark]]:
    """Leave out what has ended where it first lay; return the rest, and what the ledger is to be told.

    Raises:
        LedgerUnavailable: it is not known; nothing has changed.
    """
    again = [each for each in taken if isinstance(each[0], ParkedPartition)]
    if ledger is None or not again:
        return list(taken), []
    found = iter(ledger.fates_of([(held[0].whose.account, _origins(held)) for _, _, held in again]))
    left: list[Taken] = []
    marks: list[Mark] = []
    for partition, group, records in taken:
        if isinstance(partition, ParkedPartition):
            rest = _rest(partition, group, records, next(found), marks)
            if rest is not None:
                left.append(rest)
        else:
            left.append((partition, group, records))
    return left, marks


def _origins(held: Sequence[Held]) -> list[int]:
    return sorted({each.origin for each in held})


def _rest(partition: ParkedPartition, group: Group, held: list[Held], found: bytes, marks: list[Mark]) -> Taken | None:
    fates = dict(zip(_origins(held), map(Fate, found), strict=True))
    ended = [each.offset for each in held if _is_over(each, fates[each.origin], replays=partition.replays)]
    if not ended:
        return partition, group, held
    partition.settle(OWN, ended, Fate.DONE)
    marks.append(Mark(partition.account, ended, Fate.DONE))
    rest = [each for each in held if each.offset not in set(ended)]
    return (partition, Group(group.handler, [each.offset for each in rest], group.why), rest) if rest else None


def _is_over(held: Held, origin: Fate, *, replays: bool) -> bool:
    delivery = held.delivery
    return to_skip(Fate.OPEN, origin, retried=delivery.retried(replays=replays), again=bool(delivery.again))
