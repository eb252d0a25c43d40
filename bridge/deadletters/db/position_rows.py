"""The recorded position of each partition of the dead-letter topics.

A position changes in the transaction that records, so each record counts once.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from sqlalchemy import BigInteger, Connection, bindparam, case, select, update

from bridge.deadletters.db.sql import insert_missing
from bridge.deadletters.db.table_definitions import positions
from bridge.errors import RecordedByAnother


class RecordedLog(NamedTuple):
    """A partition of a dead-letter topic, for one group.

    Attributes:
        consumer_group: the only group whose letters are recorded; "": all groups.
        topic_id: a recreated topic has another.
    """

    consumer_group: str
    topic: str
    topic_id: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class RecordedPosition(NamedTuple):
    """The recorded position of a log.

    Attributes:
        next: the offset of the next record.
        epoch: the leader epoch of the record before it; -1 if it is not known.
    """

    next: int
    epoch: int


class PositionStep(NamedTuple):
    """A move of a log's recorded position.

    Attributes:
        before: the position before; `None`: nothing was recorded.
        missed: records that Kafka had dropped before they could be recorded.
    """

    log: RecordedLog
    before: int | None
    after: RecordedPosition
    missed: int = 0


_KEY: Final = tuple(positions.c[name] == bindparam(f"of_{name}") for name in RecordedLog._fields)
_MOVE: Final = (
    update(positions)
    .where(*_KEY, positions.c.next == bindparam("before"))
    .values(
        next=bindparam("to_next"),
        epoch=bindparam("to_epoch"),
        missed=positions.c.missed + bindparam("more_missed"),
        missed_at=case(
            (bindparam("more_missed", type_=BigInteger) > 0, bindparam("now", type_=BigInteger)),
            else_=positions.c.missed_at,
        ),
        at=bindparam("now"),
    )
)


def read_positions(
    connection: Connection, groups: Iterable[str], topics: Iterable[str]
) -> dict[RecordedLog, RecordedPosition]:
    """Return the recorded positions of the logs of topics, deleted logs of the same name included."""
    query = select(positions).where(positions.c.consumer_group.in_(set(groups)), positions.c.topic.in_(set(topics)))
    return {
        RecordedLog(row.consumer_group, row.topic, row.topic_id, row.partition): RecordedPosition(row.next, row.epoch)
        for row in connection.execute(query)
    }


def find_recorded_topics(connection: Connection, group: str) -> list[str]:
    """Return the topics of which letters of this group alone were ever recorded."""
    query = select(positions.c.topic).where(positions.c.consumer_group == group).distinct()
    return sorted(connection.execute(query).scalars())


def move_positions(connection: Connection, steps: Sequence[PositionStep], at: int) -> None:
    """Move recorded positions, each only from the expected one.

    Parameters:
        at: ms since the epoch.

    Raises:
        RecordedByAnother: another recorder has moved some of them; the transaction must be rolled back.
    """
    # In one order: otherwise two recorders could deadlock.
    overtaken = [
        step.log for step in sorted(steps, key=lambda step: step.log) if not _move_position(connection, step, at)
    ]
    if overtaken:
        raise RecordedByAnother(overtaken)


def _move_position(connection: Connection, step: PositionStep, at: int) -> bool:
    if step.before is None:
        row = {**step.log._asdict(), **step.after._asdict(), "missed": step.missed, "at": at}
        row["missed_at"] = at if step.missed else None
        begun = insert_missing(connection, positions).returning(positions.c.next)
        return connection.execute(begun, row).first() is not None
    values = {f"of_{name}": value for name, value in step.log._asdict().items()}
    values |= {"before": step.before, "to_next": step.after.next, "to_epoch": step.after.epoch}
    return connection.execute(_MOVE, {**values, "more_missed": step.missed, "now": at}).rowcount == 1


class PositionState(NamedTuple):
    """The recorded position of a partition, for status pages.

    Attributes:
        at: when a record of it was recorded last, ms since the epoch.
        missed: records that Kafka had dropped before they could be recorded.
        missed_at: when that was last found; `None`: never.
    """

    consumer_group: str
    topic: str
    topic_id: str
    partition: int
    next: int
    at: int
    missed: int
    missed_at: int | None


def read_position_states(connection: Connection, group: str) -> list[PositionState]:
    """Return the recorded partitions of a group and of all groups; of recreated topics the latest log."""
    query = select(*(positions.c[name] for name in PositionState._fields)).where(
        positions.c.consumer_group.in_((group, ""))
    )
    found = (PositionState(*row) for row in connection.execute(query.order_by(positions.c.at)))
    return [*{(each.consumer_group, each.topic, each.partition): each for each in found}.values()]
