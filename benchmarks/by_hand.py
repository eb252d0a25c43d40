"""The limit: consume, pack 200 records into a message of Celery's, push, commit; nothing is checked."""

import json
import os
import sys
import uuid
from base64 import b64encode
from collections.abc import Sequence

import redis
from confluent_kafka import Consumer, Message

BATCH = 200


def main(topic: str) -> None:
    """Hand off until killed; the key `pushed` counts the records."""
    client = redis.Redis.from_url(os.environ["CELERY_BROKER_URL"])
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
            "group.id": f"by-hand-{os.getpid()}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 10,
        }
    )
    consumer.subscribe([topic])
    while True:
        records = [record for record in consumer.consume(2_000, 0.1) if record.error() is None]
        if not records:
            continue
        with client.pipeline(transaction=False) as pipe:
            for start in range(0, len(records), BATCH):
                pipe.lpush("celery", _entry(records[start : start + BATCH]))
            pipe.incrby("pushed", len(records))
            pipe.execute()
        consumer.commit(asynchronous=True)


def _entry(records: Sequence[Message]) -> str:
    """A message of Celery's protocol 2, as kombu's Redis transport lays it down."""
    rows = [[record.partition(), record.offset(), _text(record.key()), _text(record.value())] for record in records]
    name = str(uuid.uuid4())
    return json.dumps(
        {
            "body": b64encode(b"[[], {}, {}]").decode(),
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": {"lang": "py", "task": "batch", "id": name, "root_id": name, "kafka": rows},
            "properties": {
                "correlation_id": name,
                "delivery_mode": 2,
                "delivery_info": {"exchange": "", "routing_key": "celery"},
                "priority": 0,
                "body_encoding": "base64",
                "delivery_tag": name,
            },
        }
    )


def _text(value: str | bytes | None) -> str | None:
    return None if value is None else b64encode(value if isinstance(value, bytes) else value.encode()).decode()


if __name__ == "__main__":
    main(sys.argv[1])
