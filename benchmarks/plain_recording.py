"""The recorder that everybody writes first: consume, insert the record as it is into one table, commit.

It reads no header, groups nothing, and finds nothing but by the record's place: what any recorder costs at least.
"""

import os
import pickle
import sys
from typing import Any

from confluent_kafka import Consumer
from sqlalchemy import Column, Integer, LargeBinary, MetaData, String, Table, create_engine, insert

AT_ONCE = 500

table = Table(
    "plain",
    MetaData(),
    Column("topic", String, primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("offset", Integer, primary_key=True, autoincrement=False),
    Column("key", LargeBinary),
    Column("value", LargeBinary),
    Column("headers", LargeBinary),
)


def main(topic: str, count: int) -> None:
    """Record so many of a topic."""
    engine = create_engine(os.environ["DEADLETTERS_DATABASE_URL"])
    table.metadata.create_all(engine)
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
            "group.id": "plain",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    written = 0
    while written < count:
        records = consumer.consume(AT_ONCE, 1.0)
        if records:
            with engine.begin() as connection:
                connection.execute(insert(table), [_row(record) for record in records])
            consumer.commit(asynchronous=True)
            written += len(records)
    consumer.close()


def _row(record: Any) -> dict[str, Any]:
    place = {"topic": record.topic(), "partition": record.partition(), "offset": record.offset()}
    return {**place, "key": record.key(), "value": record.value(), "headers": pickle.dumps(record.headers())}


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
