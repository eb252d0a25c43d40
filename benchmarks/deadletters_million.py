"""A desk with a million dead letters, as years of use make them: few faults with most letters, many with few."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, islice
from random import Random
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, insert, text

from bridge.deadletters.db import kind_rows, search_index
from bridge.deadletters.db import table_definitions as tables
from bridge.deadletters.db.database import Database
from bridge.deadletters.model.digest import key_digest
from bridge.deadletters.model.failure_group import FailureGroup
from bridge.deadletters.model.stored_letter import LetterKind, pack_headers

#: 2026-11-20T08:30:00Z, and how far back letters go.
NOW: Final = 1_795_163_400_000
DAYS: Final = 90
GROUPS: Final = 500
#: Letters of a transaction.
AT_ONCE: Final = 20_000
COLUMNS: Final = tuple(column.name for column in tables.letters.columns)

_STATUSES: Final = (("open", 60), ("resolved", 25), ("discarded", 10), ("archived", 4), ("replaying", 1))
_MESSAGES: Final = (
    "card declined by bank {bank} for order {order}",
    "HTTPSConnectionPool(host='bank{bank}.example', port=443): Read timed out. (read timeout=10) order {order}",
    "order {order}: 1 validation error for Order amount Input should be a valid number",
    "could not connect to server: Connection refused, is it running on host db{bank} and accepting connections?",
)


class Fault(NamedTuple):
    """A kind, and the days in which it came."""

    kind_id: int
    group_id: int
    message: str
    first: int
    last: int


def fill(database: Database, letters: int, now: int = NOW) -> None:
    """Make the tables with so many letters, and say what the index of words takes of that.

    Parameters:
        now: when the last of them failed, ms since the epoch.
    """
    random = Random(11)
    database.migrate()
    with database.writing() as connection:
        # Letters are written without their words, which are indexed afterwards, as a migration does.
        search_index.drop_search_index(connection)
        faults = [fault for rank in range(GROUPS) for fault in _faults(connection, random, rank, now)]
    weights = list(accumulate(1 / (1 + fault.group_id) for fault in faults))
    rows = _letters(random, faults, weights, letters, now)
    # A transaction each: the database ends one in which nothing comes for seconds.
    while some := list(islice(rows, AT_ONCE)):
        with database.writing() as connection:
            _write(connection, some)
    began = time.perf_counter()
    with database.writing() as connection:
        search_index.create_search_index(connection)
    print(f"the index of words, made of {letters:,} letters: {time.perf_counter() - began:.0f} s", flush=True)
    _analyze(database)


def _faults(connection: Connection, random: Random, rank: int, now: int) -> Iterator[Fault]:
    """A group, and its kinds by version and reason."""
    handler = f"shop.{random.choice(('orders', 'mails', 'stock'))}.handlers.on_{rank % 23}"
    group = FailureGroup(handler, f"shop.errors.Error{rank % 37}", f"shop/part{rank}.py:step")
    first = now - random.randrange(1, DAYS) * 24 * kind_rows.HOUR_MS
    last = now if rank < 20 else min(now, first + random.randrange(1, 30) * 24 * kind_rows.HOUR_MS)
    row = {"digest": group.digest, **group._asdict(), "first_at": first, "last_at": last}
    group_id = connection.execute(insert(tables.groups).values(row).returning(tables.groups.c.id)).scalar_one()
    for version in range(1 + rank % 4):
        kind = LetterKind(
            group, f"topic{rank % 11}", "bridge", "bridge", random.choice(("exhausted", "permanent")), f"1.{version}"
        )
        row = {**kind._asdict(), "digest": kind.digest, "group_id": group_id, "error_class": group.error_class}
        del row["group"]
        made = insert(tables.kinds).values(row | {"handler": handler}).returning(tables.kinds.c.id)
        kind_id = connection.execute(made).scalar_one()
        yield Fault(kind_id, group_id, _MESSAGES[rank % len(_MESSAGES)], first, last)


def _letters(
    random: Random, faults: list[Fault], weights: list[float], letters: int, now: int
) -> Iterator[dict[str, Any]]:
    """As the recorder wrote them: in the order in which they failed."""
    chosen = random.choices(faults, cum_weights=weights, k=letters)
    failed = sorted((random.randrange(fault.first, fault.last), at) for at, fault in enumerate(chosen))
    statuses = random.choices([name for name, _ in _STATUSES], [share for _, share in _STATUSES], k=letters)
    for number, (failed_at, at) in enumerate(failed, 1):
        letter = _letter(random, number, chosen[at], failed_at, old=number < letters // 5)
        status, changed = statuses[at], min(now, failed_at + random.randrange(1, 7_200_000))
        yield letter | {"status": status, "status_at": failed_at if status == "open" else changed}


def _letter(random: Random, number: int, fault: Fault, failed_at: int, old: bool) -> dict[str, Any]:
    customer = int(random.paretovariate(0.5)) % 200_000
    key = f"customer-{customer}".encode()
    tenant = b"blue" if random.random() < 0.8 else b"green%d" % random.randrange(40)
    message = fault.message.format(bank=random.randrange(100), order=number)
    value = {
        "order": number,
        "customer": customer,
        "amount": random.randrange(10_000) / 100,
        "system": "legacy" if old else "current",
        "note": "unicorn" if number % 50_021 == 7 else "",
        "lines": [{"sku": f"sku-{random.randrange(5_000)}", "count": random.randrange(9)} for _ in range(3)],
        "address": {"street": f"Street {random.randrange(900)}", "city": random.choice(("Berlin", "Paris", "Rome"))},
    }
    data = json.dumps(value).encode()
    return {
        "id": number,
        "digest": number.to_bytes(16, "big"),
        "kind_id": fault.kind_id,
        "topic_id": "mnB7bUNNTFuKyAPSx1zQ2w",
        "partition": number % 12,
        "offset": number,
        "timestamp": failed_at - 60_000,
        "key": key,
        "key_digest": key_digest(key),
        "value": data,
        "value_size": len(data),
        "headers": pack_headers([("tenant", tenant), ("trace", b"%032x" % random.getrandbits(128))]),
        **dict.fromkeys(("number", "lost", "postponed", "replayed"), 0),
        **dict.fromkeys(("runs", "failed"), 5),
        "error_message": message,
        "traceback_id": None,
        **dict.fromkeys(("first_failed_at", "failed_at", "recorded_at"), failed_at),
        "letter_topic": "orders.dlq",
        "letter_partition": number % 12,
        "letter_offset": number,
        **dict.fromkeys(("occurrences", "failures"), 1),
        **dict.fromkeys(("plan_id", "again", "trace", "attempt_history")),
    }


def _write(connection: Connection, rows: list[dict[str, Any]]) -> None:
    kind_rows.add_to_tallies(connection, Counter((row["kind_id"], row["status"]) for row in rows))
    kind_rows.add_failure_hours(
        connection, Counter((row["kind_id"], row["failed_at"] // kind_rows.HOUR_MS) for row in rows)
    )
    _write_some(connection, [tuple(row[name] for name in COLUMNS) for row in rows])


def _write_some(connection: Connection, rows: list[tuple[Any, ...]]) -> None:
    names = ", ".join(f'"{name}"' for name in COLUMNS)
    own: Any = connection.connection.driver_connection
    if connection.dialect.name == "sqlite":
        own.executemany(f"INSERT INTO letters ({names}) VALUES ({', '.join('?' * len(COLUMNS))})", rows)
        return
    with own.cursor().copy(f"COPY letters ({names}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)


def _analyze(database: Database) -> None:
    """As PostgreSQL does by itself after a while; SQLite is asked without statistics, as it is in use."""
    if database.dialect == "postgresql":
        with database.writing() as connection:
            connection.execute(text("ANALYZE"))
            connection.execute(text("SELECT setval('letters_id_seq', (SELECT max(id) FROM letters))"))
