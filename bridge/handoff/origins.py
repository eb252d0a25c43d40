"""What was parked, and has ended since: it is not handed out."""

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from bridge.ledger import OWN, Fate, Ledger, Mark, to_skip
from bridge.partitions.held import Held
from bridge.partitions.parked import ParkedPartition
from bridge.partitions.partition import Partition
from bridge.partitions.turns import Group
from bridge.records.place import Place

logger = logging.getLogger(__name__)

#: Of a place, a log's id and an offset, whether a record is or was there; `None`: it is not known yet.
Exists: TypeAlias = Callable[[Place, str, int], bool | None]
#: What was taken from a partition: deliveries of one handler, and the records of each.
Taken: TypeAlias = tuple[Partition, Group, list[Any]]


def leave_out_ended(
    ledger: Ledger | None, taken: Sequence[Taken], exists: Exists = lambda *_: True
) -> tuple[list[Taken], list[Mark]]:
    """Leave out what has ended where it first lay, and what lies nowhere; return the rest, and what the ledger is told.

    Parameters:
        exists: whether a source record does (SourceEnds.exists), asked for what the ledger has nothing of; `None`: its
            deliveries are given back, and taken again.

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
            rest = _rest(partition, group, records, next(found), marks, exists)
            if rest is not None:
                left.append(rest)
        else:
            left.append((partition, group, records))
    return left, marks


def _origins(held: Sequence[Held]) -> list[int]:
    return sorted({each.origin for each in held})


def _rest(
    partition: ParkedPartition, group: Group, held: list[Held], found: bytes, marks: list[Mark], exists: Exists
) -> Taken | None:
    fates = dict(zip(_origins(held), map(Fate, found), strict=True))
    ended = [each.offset for each in held if _is_over(each, fates[each.origin], replays=partition.replays)]
    answers = {each.offset: _exists(each, fates[each.origin], exists) for each in held if each.offset not in set(ended)}
    made_up = [offset for offset, answer in answers.items() if answer is False]
    waiting = [offset for offset, answer in answers.items() if answer is None]
    for offsets, fate in ((ended, Fate.DONE), (made_up, Fate.GAP)):
        if offsets:
            partition.settle(OWN, offsets, fate)
            marks.append(Mark(partition.account, offsets, fate))
    _refuse(partition, [each for each in held if each.offset in made_up])
    if waiting:
        partition.give_back(group.handler, waiting)
    rest = [each for each in held if answers.get(each.offset)]
    if len(rest) == len(held):
        return partition, group, held
    return (partition, Group(group.handler, [each.offset for each in rest], group.why), rest) if rest else None


def _exists(held: Held, origin: Fate, exists: Exists) -> bool | None:
    """Whether its source record exists; the ledger knows something of most."""
    if origin is not Fate.OPEN:
        return True
    message = held.delivery.message
    return exists((message.topic, message.partition), held.parked.topic_id, message.offset)


def _refuse(partition: ParkedPartition, refused: Sequence[Held]) -> None:
    partition.strange += len(refused)
    if not (many := partition.refusals.count(len(refused))):
        return
    message = refused[0].delivery.message
    logger.error(
        "%s-%d-%d names source record %s-%d-%d, which Kafka does not have yet: it is left alone (%d such records since "
        "this was last said). Who may write to %s decides what runs; restrict that.",
        *partition.place,
        refused[0].offset,
        message.topic,
        message.partition,
        message.offset,
        many,
        partition.topic,
    )


def _is_over(held: Held, origin: Fate, *, replays: bool) -> bool:
    delivery = held.delivery
    return to_skip(Fate.OPEN, origin, retried=delivery.retried(replays=replays), again=bool(delivery.again))
