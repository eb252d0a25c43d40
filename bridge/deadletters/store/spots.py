"""Where what a plan sends lies: noted before it is sent, as the end of its partition, and after that, as it is."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from sqlalchemy import Connection, TextClause, text


class Spot(NamedTuple):
    """An offset of a partition."""

    topic: str
    partition: int
    offset: int


class Sent(NamedTuple):
    """What was published for a delivery, under which number, and where it lies."""

    position: int
    number: int
    spot: Spot


def claimed(connection: Connection, plan_id: int, found: Mapping[int, Spot], at: int) -> None:
    """Note of deliveries that wait that they are about to be sent: each will lie where this says, or behind.

    Parameters:
        found: by position.
    """
    if connection.dialect.name == "postgresql":
        _together(connection, _CLAIM_TOGETHER, plan_id, [Sent(each, 0, spot) for each, spot in found.items()], at)
    elif found:
        rows = [(*spot, at, plan_id, position) for position, spot in found.items()]
        connection.exec_driver_sql(_CLAIM, rows)


def sent(connection: Connection, plan_id: int, found: Sequence[Sent], at: int) -> None:
    """Note what Kafka has; of what has ended meanwhile, only where it lies."""
    if connection.dialect.name == "postgresql":
        _together(connection, _SENT_TOGETHER, plan_id, found, at)
    elif found:
        rows = [(each.number, *each.spot, at, plan_id, each.position) for each in found]
        connection.exec_driver_sql(_SENT, rows)


def _together(connection: Connection, what: TextClause, plan_id: int, found: Iterable[Sent], at: int) -> None:
    """All that go into one topic in one statement."""
    for topic, some in _by_topic(found):
        positions, numbers, spots = zip(*some, strict=True)
        _, partitions, offsets = zip(*spots, strict=True)
        lists = {"positions": positions, "numbers": numbers, "partitions": partitions, "offsets": offsets}
        given = {name: ",".join(map(str, each)) for name, each in lists.items() if f":{name}" in what.text}
        common = {"plan": plan_id, "at": at, "topic": topic, "first": positions[0], "last": positions[-1]}
        connection.execute(what, common | given)


def _by_topic(found: Iterable[Sent]) -> Iterator[tuple[str, list[Sent]]]:
    """In the order of their positions, by which their places in the lists are found."""
    by_topic: dict[str, list[Sent]] = defaultdict(list)
    for each in sorted(found):
        by_topic[each.spot.topic].append(each)
    yield from by_topic.items()


def _list(name: str, type_: str) -> str:
    """A list that is given as text. In a SELECT of its own: else it would be taken apart for each row."""
    return f"CAST((SELECT CAST(string_to_array(:{name}, ',') AS {type_}[])) AS {type_}[])"


def _at(name: str, type_: str) -> str:
    """What a list has for a row: `width_bucket` finds its place by halving."""
    return f"({_list(name, type_)})[width_bucket(position, {_list('positions', 'int')})]"


_CLAIM: Final = (
    "UPDATE items SET state = 'claimed', sent_topic = ?, sent_partition = ?, sent_offset = ?, sent_at = ? "
    "WHERE plan_id = ? AND position = ? AND COALESCE(state, '') = 'waiting'"
)
_SENT: Final = (
    "UPDATE items SET state = CASE state WHEN 'claimed' THEN 'sent' ELSE state END, number = ?, sent_topic = ?, "
    "sent_partition = ?, sent_offset = ?, sent_at = ? WHERE plan_id = ? AND position = ?"
)
#: Not by a join with their values: of a plan that was just made no database has statistics, and all of it would be
#: looked through for each.
_WHERE: Final = (
    f"sent_topic = :topic, sent_partition = {_at('partitions', 'int')}, sent_offset = {_at('offsets', 'bigint')}, "
    "sent_at = :at WHERE plan_id = :plan AND position BETWEEN :first AND :last "
    f"AND position = ANY({_list('positions', 'int')})"
)
_CLAIM_TOGETHER: Final = text(f"UPDATE items SET state = 'claimed', {_WHERE} AND COALESCE(state, '') = 'waiting'")
_SENT_TOGETHER: Final = text(
    f"UPDATE items SET state = CASE state WHEN 'claimed' THEN 'sent' ELSE state END, "
    f"number = {_at('numbers', 'int')}, {_WHERE}"
)
