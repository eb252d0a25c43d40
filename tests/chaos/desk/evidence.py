"""Reads what a run left behind: Kafka's records, the handlers' book, and the desk's rows."""

from collections.abc import Iterable, Sequence
from typing import Any

import psycopg
from confluent_kafka import Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from bridge.deadletters.model.stored_letter import unpack_headers
from tests.chaos import evidence
from tests.chaos.desk.topics import TOPICS
from tests.chaos.desk.verdict import Content, Death, Delivery, Done, Item, Left, Place, Row, Sent
from tests.chaos.desk.world import DeskWorld
from tests.chaos.verdict import Happened
from tests.processes import DeadLetter, headers_of


def found(world: DeskWorld, faults: Sequence[Happened]) -> Left:
    """All of it."""
    sources = [raw for name in TOPICS for raw in world.records(name)]
    with psycopg.connect(world.postgres.dsn) as connection:
        rows, items = _rows(connection), _items(connection)
    return Left(
        records={_origin(raw): evidence.record(raw) for raw in sources},
        contents={_origin(raw): _content(raw, headers_of(raw)) for raw in sources},
        deaths=[_death(letter) for name in TOPICS for letter in world.dead_letters(name)],
        sent=[_sent(DeadLetter(raw)) for name in TOPICS for raw in world.records(f"{name}.replay")],
        done=list(_done(world)),
        rows=rows,
        items=items,
        faults=faults,
    )


def miscounted(world: DeskWorld) -> list[str]:
    """Which of the desk's counts are not what a recount of its rows gives."""
    with psycopg.connect(world.postgres.dsn) as connection:
        return [
            f"{what} {which}: {kept} kept, {counted} counted"
            for what, query in _RECOUNTS.items()
            for *which, kept, counted in connection.execute(query).fetchall()
        ]


def unrecorded(world: DeskWorld) -> dict[str, Any]:
    """What the desk has still to do by itself: records to take in, plans to apply, ends to learn."""
    with psycopg.connect(world.postgres.dsn, connect_timeout=5) as connection:
        reached = {(topic, partition): next_ for topic, partition, next_ in connection.execute(_REACHED)}
        waits = {what: count for what, count in connection.execute(_WAITS) if count}
    behind = {
        f"{topic}-{partition}": f"recorded {reached.get((topic, partition), 0)} of {end}"
        for topic, partition, end in ends(world)
        if reached.get((topic, partition), 0) < end
    }
    return behind | waits


def ends(world: DeskWorld) -> list[Place]:
    """The ends of the dead-letter topics."""
    admin = AdminClient({"bootstrap.servers": world.kafka, "log_level": 0})
    there = admin.list_topics(timeout=20).topics
    names = [name for each in TOPICS if (name := world.topic(f"{each}.dlq")) in there]
    asked = {TopicPartition(name, number): OffsetSpec.latest() for name in names for number in there[name].partitions}
    return [(at.topic, at.partition, found.result(20).offset) for at, found in admin.list_offsets(asked).items()]


_REACHED = "SELECT topic, partition, max(next) FROM positions GROUP BY topic, partition"
_WAITS = """
    SELECT 'letters ' || status, count(*) FROM letters WHERE status = 'replaying' GROUP BY status
    UNION ALL SELECT 'plans ' || state, count(*) FROM plans WHERE state = 'applying' GROUP BY state
    UNION ALL SELECT 'items ' || state, count(*) FROM items WHERE state IN ('claimed', 'sent') GROUP BY state
"""
_RECOUNTS = {
    "letters of a kind and a status": """
        SELECT kind_id, status, coalesce(kept, 0), coalesce(counted, 0)
        FROM (SELECT kind_id, status, count AS kept FROM tallies WHERE count <> 0) AS one
        FULL JOIN (SELECT kind_id, status, count(*) AS counted FROM letters GROUP BY kind_id, status) AS other
        USING (kind_id, status) WHERE coalesce(kept, 0) <> coalesce(counted, 0)
    """,
    "failures of a kind in an hour": """
        SELECT kind_id, hour, coalesce(kept, 0), coalesce(counted, 0)
        FROM (SELECT kind_id, hour, count AS kept FROM hours WHERE count <> 0) AS one
        FULL JOIN (
            SELECT kind_id, hour, count(*) AS counted
            FROM (
                SELECT kind_id, failed_at / 3600000 AS hour FROM letters
                UNION ALL SELECT kind_id, failed_at / 3600000 FROM failures
            ) AS each GROUP BY kind_id, hour
        ) AS other
        USING (kind_id, hour) WHERE coalesce(kept, 0) <> coalesce(counted, 0)
    """,
    "plans that the trail does not tell of": """
        SELECT id, state, 0, 1 FROM plans WHERE NOT EXISTS (SELECT 1 FROM trail WHERE trail.plan_id = plans.id)
    """,
}
_ROWS = """
    SELECT letters.id, kinds.topic, partition, "offset", kinds.handler, topic_id, status, number, occurrences,
           letters.failures, letter_topic, letter_partition, letter_offset, key, value, value_size, headers
    FROM letters JOIN kinds ON kinds.id = letters.kind_id
"""
_ITEMS = """
    SELECT items.plan_id, kinds.topic, partition, "offset", kinds.handler, topic_id, items.state, items.number,
           sent_topic, sent_partition, sent_offset
    FROM items JOIN letters ON letters.id = items.letter_id JOIN kinds ON kinds.id = letters.kind_id
"""


def _rows(connection: psycopg.Connection[Any]) -> list[Row]:
    places: dict[int, list[Place]] = {}
    earlier = "SELECT letter_id, letter_topic, letter_partition, letter_offset FROM failures ORDER BY letter_id, number"
    for id_, *place in connection.execute(earlier):
        places.setdefault(id_, []).append((place[0], place[1], place[2]))
    found = []
    for row in connection.execute(_ROWS):
        id_, topic, partition, offset, handler, log, status, number, occurrences, failures, *rest = row
        last, (key, value, size, headers) = (rest[0], rest[1], rest[2]), rest[3:]
        found.append(
            Row(
                Delivery(f"{topic}-{partition}-{offset}", handler, log),
                status,
                number,
                occurrences,
                failures,
                (*places.get(id_, ()), last),
                Content(_bytes(key), _bytes(value), unpack_headers(bytes(headers))),
                size,
            )
        )
    return found


def _items(connection: psycopg.Connection[Any]) -> list[Item]:
    found = []
    for plan, topic, partition, offset, handler, log, state, number, *place in connection.execute(_ITEMS):
        sent = None if place[0] is None else (place[0], place[1], place[2])
        found.append(Item(plan, Delivery(f"{topic}-{partition}-{offset}", handler, log), state, number, sent))
    return found


def _done(world: DeskWorld) -> Iterable[Done]:
    for entry in evidence.book(world.book):
        outcome, _, replayed = entry.outcome.partition(" ")
        if outcome == "done":
            yield Done(Delivery(entry.coordinates, entry.handler), int(replayed), entry.at, entry.pid)


def _death(dead: DeadLetter) -> Death:
    said = dead.ours
    numbers = int(said["delivery_number"]), int(said["attempts_replayed"]), int(said["failed_at"])
    return Death(_delivery(dead), *numbers, _at(dead.record), _place(dead.record), _content(dead.record, dead.theirs))


def _sent(back: DeadLetter) -> Sent:
    said = back.ours
    numbers = int(said["delivery_number"]), int(said["attempts_replayed"])
    return Sent(_delivery(back), *numbers, _at(back.record), _place(back.record), _content(back.record, back.theirs))


def _delivery(dead: DeadLetter) -> Delivery:
    return Delivery(dead.origin, dead.ours["handler"], dead.ours["origin_topic_id"])


def _content(raw: Message, headers: Iterable[tuple[str, bytes | None]]) -> Content:
    key, value = raw.key(), raw.value()
    assert isinstance(key, bytes | None)
    assert isinstance(value, bytes | None)
    return Content(key, value, tuple(headers))


def _origin(raw: Message) -> str:
    return "{}-{}-{}".format(*_place(raw))


def _place(raw: Message) -> Place:
    return raw.topic() or "", raw.partition() or 0, raw.offset() or 0


def _at(raw: Message) -> float:
    return raw.timestamp()[1] / 1000


def _bytes(found: Any) -> bytes | None:
    return None if found is None else bytes(found)
