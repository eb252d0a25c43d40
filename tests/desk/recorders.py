"""Real recorders on a real Kafka, and dead letters as workers write them."""

import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Table, select

from bridge.deadletters.db.database import Database
from bridge.deadletters.db.table_definitions import letters, positions
from bridge.errors import DeskUnavailable
from bridge.formats import dead_letter_record
from bridge.formats.delivery import Attempts, Dead, Delivery, Message
from bridge.formats.failure import Failure
from tests.processes import Served, Stack, eventually
from tests.servers.process import free_port

HANDLER = "tests.handlers.simple.work"


def recorder(stack: Stack, *arguments: str, wait: bool = True, **environ: Any) -> Served:
    """`bridge deadletters record`; with `wait`, until it records."""
    port = environ.setdefault("DEADLETTERS_HTTP_PORT", str(free_port()))
    command = (sys.executable, "-m", "bridge", "deadletters", "record", *arguments)
    process: Served = stack.start("recorder", *command, kind=Served, **environ)
    process.port = int(port)
    if wait:
        eventually(lambda: process.ready() or process.exit_code is not None, 40, "the recorder records")
    return process


def bury(
    stack: Stack,
    offsets: Iterable[int],
    topic: str = "orders",
    *,
    to: str = "",
    at: int | None = None,
    producer: Any = None,
    partition: int | None = None,
    group: str = "",
    **other: Any,
) -> None:
    """Write dead letters of these offsets of a topic, as a worker does.

    Parameters:
        to: the dead-letter topic, where it is not the topic's own.
        at: when they failed, ms since the epoch.
        group: another consumer group's.
        other: of Delivery and Failure.
    """
    failed_at = at or time.time_ns() // 1_000_000
    message = other.pop("error_message", "no")
    text = other.pop(
        "traceback", f'Traceback (most recent call last):\n  File "/a.py", line 1, in pay\nValueError: {message}\n'
    )
    failure = Failure(other.pop("error_class", "builtins.ValueError"), message, text, failed_at)
    value, key = other.pop("value", b"{}"), other.pop("key", b"k")
    client = producer or stack.producer
    for offset in offsets:
        source = Message(stack.topic(topic), 0, offset, key=key, value=value, timestamp=1_000)
        given: dict[str, Any] = {
            "handler": HANDLER,
            "runs": 13,
            "attempts": Attempts(13),
            "first_failed_at": failed_at,
        } | other
        headers = dead_letter_record.dead_letter_headers(
            Delivery(source, **given), Dead("exhausted", failure, "1.0"), group or stack.environ["BRIDGE_GROUP"]
        )
        where: dict[str, Any] = {} if partition is None else {"partition": partition}
        client.produce(to or f"{stack.topic(topic)}.dlq", value, key, headers=headers, **where)
        client.poll(0)
    assert client.flush(30) == 0


def recorded(url: str, table: Table = letters) -> list[dict[str, Any]]:
    """What the database has."""
    database = Database(url)
    try:
        with database.reading() as connection:
            return [dict(row) for row in connection.execute(select(table)).mappings()]
    finally:
        database.close()


def offsets(url: str) -> list[int]:
    """The source offsets of the letters."""
    return sorted(row["offset"] for row in recorded(url))


def has(url: str, count: int, within: float = 30) -> list[dict[str, Any]]:
    """Wait until the database has so many letters, and no more."""

    def there() -> bool:
        try:
            return len(offsets(url)) >= count
        except DeskUnavailable:
            # It has no tables yet.
            return False

    eventually(there, within, f"{count} letters")
    found = recorded(url)
    assert len(found) == count
    return found


def once_each(url: str, number: int) -> None:
    """Wait until the database has the letters of offsets 0 to `number`; each was read once and counted once."""
    found = has(url, number, 60)
    assert sorted(row["offset"] for row in found) == list(range(number))
    assert {row["occurrences"] for row in found} == {1}
    assert sum(row["next"] for row in recorded(url, positions)) == number


def kept(rows: Iterable[Mapping[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    """Some columns of each row, sorted."""
    return sorted(tuple(row[name] for name in names) for row in rows)
